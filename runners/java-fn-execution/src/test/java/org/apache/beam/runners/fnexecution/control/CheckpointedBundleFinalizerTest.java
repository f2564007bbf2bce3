/*
 * Licensed to the Apache Software Foundation (ASF) under one
 * or more contributor license agreements.  See the NOTICE file
 * distributed with this work for additional information
 * regarding copyright ownership.  The ASF licenses this file
 * to you under the Apache License, Version 2.0 (the
 * "License"); you may not use this file except in compliance
 * with the License.  You may obtain a copy of the License at
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */
package org.apache.beam.runners.fnexecution.control;

import static org.hamcrest.MatcherAssert.assertThat;
import static org.hamcrest.Matchers.contains;
import static org.hamcrest.Matchers.empty;
import static org.hamcrest.Matchers.is;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.InstructionRequest;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.InstructionResponse;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.ProcessBundleDescriptor;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/** Tests of {@link CheckpointedBundleFinalizer}. */
@RunWith(JUnit4.class)
public class CheckpointedBundleFinalizerTest {

  /** A worker that notes what it is told to finalize. */
  private static class Worker implements InstructionRequestHandler {
    final List<String> finalized = new ArrayList<>();
    final Set<String> instructionIds = new HashSet<>();

    @Override
    public CompletionStage<InstructionResponse> handle(InstructionRequest request) {
      finalized.add(request.getFinalizeBundle().getInstructionId());
      instructionIds.add(request.getInstructionId());
      return CompletableFuture.completedFuture(InstructionResponse.getDefaultInstance());
    }

    @Override
    public void registerProcessBundleDescriptor(ProcessBundleDescriptor descriptor) {}

    @Override
    public void close() {}
  }

  private final Worker worker = new Worker();
  private final CheckpointedBundleFinalizer finalizer = new CheckpointedBundleFinalizer(worker);

  @Test
  public void bundlesOfACompletedCheckpointAreFinalizedInOrder() {
    finalizer.requestsFinalization("a");
    finalizer.requestsFinalization("b");
    finalizer.checkpoint(1);
    finalizer.complete(1);
    assertThat(worker.finalized, contains("a", "b"));
  }

  @Test
  public void nothingIsFinalizedBeforeTheCheckpointCompletes() {
    finalizer.requestsFinalization("a");
    finalizer.checkpoint(1);
    assertThat(worker.finalized, empty());
  }

  @Test
  public void bundlesAfterTheSnapshotWaitForTheNextCheckpoint() {
    finalizer.requestsFinalization("in");
    finalizer.checkpoint(1);
    finalizer.requestsFinalization("after");
    finalizer.complete(1);
    assertThat(worker.finalized, contains("in"));
    finalizer.checkpoint(2);
    finalizer.complete(2);
    assertThat(worker.finalized, contains("in", "after"));
  }

  @Test
  public void bundlesOfALaterCheckpointWaitForIt() {
    finalizer.requestsFinalization("a");
    finalizer.checkpoint(1);
    finalizer.requestsFinalization("b");
    finalizer.checkpoint(2);
    finalizer.complete(1);
    assertThat(worker.finalized, contains("a"));
    finalizer.complete(2);
    assertThat(worker.finalized, contains("a", "b"));
  }

  @Test
  public void bundlesOfAnAbortedCheckpointAreFinalizedWithTheNext() {
    finalizer.requestsFinalization("a");
    finalizer.checkpoint(1);
    finalizer.requestsFinalization("b");
    finalizer.checkpoint(2);
    finalizer.complete(2);
    assertThat(worker.finalized, contains("a", "b"));
  }

  @Test
  public void bundlesAreFinalizedOnce() {
    finalizer.requestsFinalization("a");
    finalizer.checkpoint(1);
    finalizer.complete(1);
    finalizer.complete(1);
    finalizer.complete(2);
    assertThat(worker.finalized, contains("a"));
  }

  @Test
  public void answersCanBeToldApart() {
    finalizer.requestsFinalization("a");
    finalizer.requestsFinalization("b");
    finalizer.checkpoint(1);
    finalizer.complete(1);
    assertThat(worker.instructionIds.size(), is(2));
    assertThat(worker.instructionIds.contains("a"), is(false));
  }
}
