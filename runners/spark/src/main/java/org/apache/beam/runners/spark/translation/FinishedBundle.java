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

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.FinalizeBundleRequest;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.InstructionRequest;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.InstructionResponse;
import org.apache.beam.runners.fnexecution.control.InstructionRequestHandler;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A bundle that has ended and asked to be finalized, and the worker that ran it. */
class FinishedBundle {

  private static final Logger LOG = LoggerFactory.getLogger(FinishedBundle.class);
  private static final long ANSWER_SECONDS = 60;

  private final InstructionRequestHandler worker;
  private final String id;

  FinishedBundle(InstructionRequestHandler worker, String id) {
    this.worker = worker;
    this.id = id;
  }

  private CompletableFuture<InstructionResponse> requestFinalization() {
    return worker
        .handle(
            InstructionRequest.newBuilder()
                .setInstructionId("finalize-" + id)
                .setFinalizeBundle(FinalizeBundleRequest.newBuilder().setInstructionId(id))
                .build())
        .toCompletableFuture();
  }

  /**
   * Finalizes bundles, and waits for that, as their workers may end afterwards: for a minute at
   * most. A callback that fails is not tried again.
   */
  static void finalizeAll(Iterable<FinishedBundle> bundles) throws InterruptedException {
    List<CompletableFuture<InstructionResponse>> answers = new ArrayList<>();
    bundles.forEach(bundle -> answers.add(bundle.requestFinalization()));
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(ANSWER_SECONDS);
    for (CompletableFuture<InstructionResponse> answer : answers) {
      try {
        answer.get(end - System.nanoTime(), TimeUnit.NANOSECONDS);
      } catch (ExecutionException | TimeoutException e) {
        LOG.warn("A bundle was not finalized", e);
      }
    }
  }

  /** Closes what the worker of a bundle needed; that it cannot be closed harms no result. */
  static void letGo(AutoCloseable needed) {
    try {
      needed.close();
    } catch (Exception e) {
      LOG.warn("The worker of a stage could not be let go", e);
    }
  }
}
