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

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.FinalizeBundleRequest;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.InstructionRequest;

/**
 * Finalizes the bundles that a completed checkpoint holds, and no others.
 *
 * <p>A bundle that ends while a checkpoint is under way is not in it: if the job is restored from
 * that checkpoint, the bundle is processed again. What it read must not be acknowledged before a
 * later checkpoint has completed.
 *
 * <p>The runner calls {@link #checkpoint} when it takes a snapshot, after the bundles that are in
 * it, and {@link #complete} when that checkpoint is durable. Bundles of a checkpoint that is never
 * completed are finalized with the next one that is.
 */
public class CheckpointedBundleFinalizer implements BundleFinalizationHandler {

  private final InstructionRequestHandler worker;
  private final NavigableMap<Long, List<String>> bundlesByCheckpoint = new TreeMap<>();
  private List<String> bundlesSinceCheckpoint = new ArrayList<>();

  /** Sends requests to finalize bundles to a worker, without waiting for its answers. */
  public CheckpointedBundleFinalizer(InstructionRequestHandler worker) {
    this.worker = worker;
  }

  @Override
  public synchronized void requestsFinalization(String bundleId) {
    bundlesSinceCheckpoint.add(bundleId);
  }

  /** Takes all bundles until now to be in a checkpoint. */
  public synchronized void checkpoint(long checkpointId) {
    bundlesByCheckpoint.put(checkpointId, bundlesSinceCheckpoint);
    bundlesSinceCheckpoint = new ArrayList<>();
  }

  /** Finalizes the bundles that are in a checkpoint, or in one before it. */
  public synchronized void complete(long checkpointId) {
    NavigableMap<Long, List<String>> durable = bundlesByCheckpoint.headMap(checkpointId, true);
    for (Map.Entry<Long, List<String>> checkpoint : durable.entrySet()) {
      checkpoint.getValue().forEach(this::finalizeBundle);
    }
    durable.clear();
  }

  private void finalizeBundle(String bundleId) {
    // The answer of the worker is told from others by the id of the instruction.
    worker.handle(
        InstructionRequest.newBuilder()
            .setInstructionId("finalize-" + bundleId)
            .setFinalizeBundle(FinalizeBundleRequest.newBuilder().setInstructionId(bundleId))
            .build());
  }
}
