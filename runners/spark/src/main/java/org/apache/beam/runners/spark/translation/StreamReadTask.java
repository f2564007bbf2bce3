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
import java.util.function.Supplier;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.DelayedBundleApplication;
import org.apache.beam.runners.fnexecution.control.BundleCheckpointHandler;
import org.apache.beam.runners.fnexecution.control.BundleFinalizationHandler;
import org.apache.beam.runners.fnexecution.control.BundleProgressHandler;
import org.apache.beam.runners.fnexecution.control.ExecutableStageContext;
import org.apache.beam.runners.fnexecution.control.OutputReceiverFactory;
import org.apache.beam.runners.fnexecution.control.RemoteBundle;
import org.apache.beam.runners.fnexecution.control.StageBundleFactory;
import org.apache.beam.runners.fnexecution.control.TimerReceiverFactory;
import org.apache.beam.runners.fnexecution.state.StateRequestHandler;
import org.apache.beam.sdk.util.construction.graph.ExecutableStage;
import org.checkerframework.checker.nullness.qual.Nullable;

/**
 * What the bundles of a task of a stream leave undone, and what of them is to be finalized.
 *
 * <p>While there is one on the thread of a task, the bundles of its stage hand their residuals to
 * it, and are not resumed by the task itself.
 */
class StreamReadTask implements AutoCloseable {

  private static final ThreadLocal<@Nullable StreamReadTask> CURRENT = new ThreadLocal<>();

  private final List<DelayedBundleApplication> residuals = new ArrayList<>();
  private final List<FinishedBundle> toFinalize = new ArrayList<>();
  private final List<AutoCloseable> open = new ArrayList<>();

  /** Begins one on this thread. */
  StreamReadTask() {
    CURRENT.set(this);
  }

  /** The context for a stage on this thread: the given one, if it does not run in a stream. */
  static ExecutableStageContext wrap(ExecutableStageContext context) {
    StreamReadTask current = CURRENT.get();
    ExecutableStageContext kept = StreamWorkers.wrap(context);
    return current == null ? kept : current.new Context(kept);
  }

  /** Gives what is not of the task of this thread, and will be there when that has ended. */
  static <T> T outside(Supplier<T> supplier) {
    StreamReadTask current = CURRENT.get();
    CURRENT.remove();
    try {
      return supplier.get();
    } finally {
      if (current != null) {
        CURRENT.set(current);
      }
    }
  }

  List<DelayedBundleApplication> residuals() {
    return residuals;
  }

  /**
   * Holds the bundles that are to be finalized, and their worker, until it is known whether they
   * are.
   *
   * @return by which they are found; empty if there are none
   */
  String hold() {
    if (toFinalize.isEmpty()) {
      return "";
    }
    String token = HeldBundles.hold(toFinalize, new ArrayList<>(open));
    open.clear();
    return token;
  }

  /** Ends it, on the thread on which it was begun. */
  @Override
  public void close() {
    CURRENT.remove();
    open.forEach(FinishedBundle::letGo);
  }

  private class Context implements ExecutableStageContext {

    private final ExecutableStageContext context;

    Context(ExecutableStageContext context) {
      this.context = context;
    }

    @Override
    public StageBundleFactory getStageBundleFactory(ExecutableStage stage) {
      return new Bundles(context.getStageBundleFactory(stage));
    }

    @Override
    public void close() {
      open.add(context);
    }
  }

  private class Bundles extends ForwardingBundleFactory {

    Bundles(StageBundleFactory factory) {
      super(factory);
    }

    /** What is given to handle finalization and checkpoints is not called. */
    @Override
    public RemoteBundle getBundle(
        OutputReceiverFactory outputs,
        TimerReceiverFactory timers,
        StateRequestHandler state,
        BundleProgressHandler progress,
        @Nullable BundleFinalizationHandler finalization,
        @Nullable BundleCheckpointHandler checkpoints)
        throws Exception {
      return factory.getBundle(
          outputs,
          timers,
          state,
          progress,
          id -> toFinalize.add(new FinishedBundle(factory.getInstructionRequestHandler(), id)),
          response -> residuals.addAll(response.getResidualRootsList()));
    }
  }
}
