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
package org.apache.beam.runners.spark.translation;

import static org.hamcrest.MatcherAssert.assertThat;
import static org.hamcrest.Matchers.contains;
import static org.hamcrest.Matchers.empty;
import static org.hamcrest.Matchers.is;
import static org.hamcrest.Matchers.sameInstance;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.InstructionRequest;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.InstructionResponse;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.ProcessBundleDescriptor;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.ProcessBundleResponse;
import org.apache.beam.runners.fnexecution.control.BundleCheckpointHandler;
import org.apache.beam.runners.fnexecution.control.BundleFinalizationHandler;
import org.apache.beam.runners.fnexecution.control.BundleProgressHandler;
import org.apache.beam.runners.fnexecution.control.ExecutableStageContext;
import org.apache.beam.runners.fnexecution.control.InstructionRequestHandler;
import org.apache.beam.runners.fnexecution.control.OutputReceiverFactory;
import org.apache.beam.runners.fnexecution.control.ProcessBundleDescriptors.ExecutableProcessBundleDescriptor;
import org.apache.beam.runners.fnexecution.control.RemoteBundle;
import org.apache.beam.runners.fnexecution.control.StageBundleFactory;
import org.apache.beam.runners.fnexecution.control.TimerReceiverFactory;
import org.apache.beam.runners.fnexecution.state.StateRequestHandler;
import org.apache.beam.sdk.util.construction.graph.ExecutableStage;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Duration;
import org.checkerframework.checker.nullness.qual.Nullable;
import org.junit.After;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/** Tests of {@link StreamReadTask} and {@link HeldBundles}, with a worker that is made up. */
@RunWith(JUnit4.class)
public class StreamReadTaskTest {

  private final List<String> events = new ArrayList<>();

  @After
  public void letGo() {
    HeldBundles.letGoAll();
  }

  /** Each of its bundles leaves one residual, and asks to be finalized. */
  private class Worker
      implements ExecutableStageContext, StageBundleFactory, InstructionRequestHandler {

    private final String name;
    private boolean answers = true;

    Worker(String name) {
      this.name = name;
    }

    @Override
    public StageBundleFactory getStageBundleFactory(ExecutableStage stage) {
      return this;
    }

    @Override
    public RemoteBundle getBundle(
        OutputReceiverFactory outputs,
        TimerReceiverFactory timers,
        StateRequestHandler state,
        BundleProgressHandler progress,
        @Nullable BundleFinalizationHandler finalization,
        @Nullable BundleCheckpointHandler checkpoints)
        throws Exception {
      checkpoints.onCheckpoint(
          ProcessBundleResponse.newBuilder()
              .addResidualRoots(
                  TaskResidualsTest.residual("of " + name, Duration.getDefaultInstance()))
              .build());
      finalization.requestsFinalization("bundle of " + name);
      return null;
    }

    @Override
    public CompletionStage<InstructionResponse> handle(InstructionRequest request) {
      events.add("finalized " + request.getFinalizeBundle().getInstructionId());
      CompletableFuture<InstructionResponse> answer = new CompletableFuture<>();
      if (answers) {
        answer.complete(InstructionResponse.getDefaultInstance());
      } else {
        answer.completeExceptionally(new IllegalStateException("a callback failed"));
      }
      return answer;
    }

    @Override
    public void registerProcessBundleDescriptor(ProcessBundleDescriptor descriptor) {}

    @Override
    public ExecutableProcessBundleDescriptor getProcessBundleDescriptor() {
      throw new UnsupportedOperationException();
    }

    @Override
    public InstructionRequestHandler getInstructionRequestHandler() {
      return this;
    }

    @Override
    public void close() {
      events.add("closed " + name);
    }
  }

  /** As the function does that runs a stage. */
  private static void runStage(ExecutableStageContext worker) throws Exception {
    try (ExecutableStageContext context = StreamReadTask.wrap(worker)) {
      context
          .getStageBundleFactory(null)
          .getBundle(
              null,
              null,
              null,
              null,
              id -> {
                throw new AssertionError("the task finalizes");
              },
              response -> {
                throw new AssertionError("the task resumes");
              });
    }
  }

  private String runTask(Worker worker) throws Exception {
    try (StreamReadTask task = new StreamReadTask()) {
      runStage(worker);
      assertThat(task.residuals().size(), is(1));
      return task.hold();
    }
  }

  @Test
  public void bundlesAreHeldUntilTheyAreFinalized() throws Exception {
    String first = runTask(new Worker("a"));
    String second = runTask(new Worker("b"));
    assertThat(events, empty());
    assertThat(HeldBundles.finalizeAll(Arrays.asList(first, "elsewhere")), contains("elsewhere"));
    assertThat(events, contains("finalized bundle of a", "closed a"));
    assertThat(HeldBundles.finalizeAll(Arrays.asList(first)), contains(first));
    HeldBundles.letGoAll();
    assertThat(events, contains("finalized bundle of a", "closed a", "closed b"));
    assertThat(HeldBundles.finalizeAll(Arrays.asList(second)), contains(second));
  }

  @Test
  public void aCallbackThatFailsKeepsNothing() throws Exception {
    Worker worker = new Worker("a");
    worker.answers = false;
    assertThat(HeldBundles.finalizeAll(Arrays.asList(runTask(worker))), empty());
    assertThat(events, contains("finalized bundle of a", "closed a"));
  }

  @Test
  public void aTaskThatFailsHoldsNothing() throws Exception {
    try (StreamReadTask task = new StreamReadTask()) {
      runStage(new Worker("a"));
      assertThat(events, empty());
    }
    assertThat(events, contains("closed a"));
    HeldBundles.letGoAll();
    assertThat(events, contains("closed a"));
  }

  @Test
  public void whatReadsForNoStreamIsAsItWas() throws Exception {
    Worker worker = new Worker("a");
    assertThat(StreamReadTask.wrap(worker), sameInstance(worker));
    runTask(worker);
    assertThat(StreamReadTask.wrap(worker), sameInstance(worker));
    assertThat(HeldBundles.finalizeAll(Collections.emptyList()), empty());
  }
}
