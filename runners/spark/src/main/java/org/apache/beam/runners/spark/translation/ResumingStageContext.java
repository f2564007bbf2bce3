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

import java.util.List;
import java.util.Map;
import org.apache.beam.runners.fnexecution.control.BundleCheckpointHandler;
import org.apache.beam.runners.fnexecution.control.BundleFinalizationHandler;
import org.apache.beam.runners.fnexecution.control.BundleProgressHandler;
import org.apache.beam.runners.fnexecution.control.ExecutableStageContext;
import org.apache.beam.runners.fnexecution.control.OutputReceiverFactory;
import org.apache.beam.runners.fnexecution.control.RemoteBundle;
import org.apache.beam.runners.fnexecution.control.StageBundleFactory;
import org.apache.beam.runners.fnexecution.control.TimerReceiverFactory;
import org.apache.beam.runners.fnexecution.state.StateRequestHandler;
import org.apache.beam.sdk.coders.Coder;
import org.apache.beam.sdk.fn.data.FnDataReceiver;
import org.apache.beam.sdk.util.construction.Timer;
import org.apache.beam.sdk.util.construction.graph.ExecutableStage;
import org.apache.beam.sdk.values.KV;
import org.apache.beam.sdk.values.WindowedValue;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.collect.Iterables;
import org.apache.spark.TaskContext;
import org.checkerframework.checker.nullness.qual.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Gives a task of Spark bundles that leave nothing undone.
 *
 * <p>A bundle may hand back residuals: what its splittable DoFn has still to read, now or after a
 * delay. Here the end of a bundle is the end of its residuals too. They are given to further
 * bundles as they become due, and {@link RemoteBundle#close()} returns when none is left. Their
 * output goes to the receivers of the first bundle, and is complete or, if the task fails, not used
 * at all. So a task gives the same as if its bundle had not been interrupted, however often Spark
 * runs it.
 *
 * <p>Bundles that ask to be finalized are, when the task has succeeded: see {@link TaskFinalizer}.
 * The context of the workers stays open until then.
 *
 * <p>Not promised: a task whose residuals never end does not end either, and gives no output. While
 * a residual waits, its task keeps its core.
 */
class ResumingStageContext implements ExecutableStageContext {

  private static final Logger LOG = LoggerFactory.getLogger(ResumingStageContext.class);

  private final ExecutableStageContext context;
  private final @Nullable TaskContext task;
  private final TaskClock clock;
  private boolean finalizes = false;

  /**
   * Wraps the context of a stage, for the task that runs on this thread.
   *
   * @param context is closed when this is closed, or later, when its bundles have been finalized
   */
  ResumingStageContext(ExecutableStageContext context) {
    this(context, TaskContext.get());
  }

  private ResumingStageContext(ExecutableStageContext context, @Nullable TaskContext task) {
    this(context, task, TaskClock.of(task));
  }

  ResumingStageContext(
      ExecutableStageContext context, @Nullable TaskContext task, TaskClock clock) {
    this.context = context;
    this.task = task;
    this.clock = clock;
  }

  @Override
  public StageBundleFactory getStageBundleFactory(ExecutableStage stage) {
    return new ResumingBundleFactory(context.getStageBundleFactory(stage));
  }

  @Override
  public void close() throws Exception {
    if (finalizes && task != null) {
      TaskFinalizer.of(task).closeAtEnd(context);
    } else {
      context.close();
    }
  }

  private class ResumingBundleFactory extends ForwardingBundleFactory {

    ResumingBundleFactory(StageBundleFactory factory) {
      super(factory);
    }

    /** The handlers of finalization and of checkpoints are ours: give none. */
    @Override
    public RemoteBundle getBundle(
        OutputReceiverFactory outputs,
        TimerReceiverFactory timers,
        StateRequestHandler state,
        BundleProgressHandler progress,
        @Nullable BundleFinalizationHandler finalization,
        @Nullable BundleCheckpointHandler checkpoints)
        throws Exception {
      if (finalization != null || checkpoints != null) {
        throw new IllegalArgumentException("Finalization and checkpoints are handled already");
      }
      TaskResiduals<Object> residuals = new TaskResiduals<>(inputCoder(), clock);
      BundleOpener opener =
          () -> factory.getBundle(outputs, timers, state, progress, this::toFinalize, residuals);
      return new ResumingBundle(opener, residuals);
    }

    /** Called as a bundle ends: until the next one begins, its worker is the current one. */
    private void toFinalize(String bundleId) {
      if (task != null) {
        TaskFinalizer.of(task).add(factory.getInstructionRequestHandler(), bundleId);
        finalizes = true;
      }
    }

    /** The coder of what goes into the stage, as the worker knows it. */
    @SuppressWarnings("unchecked")
    private Coder<WindowedValue<Object>> inputCoder() {
      return (Coder<WindowedValue<Object>>)
          (Coder<?>)
              Iterables.getOnlyElement(getProcessBundleDescriptor().getRemoteInputDestinations())
                  .getCoder();
    }
  }

  /** Begins a bundle, which gives its output and its residuals where those before it did. */
  private interface BundleOpener {
    RemoteBundle open() throws Exception;
  }

  /** A first bundle, and after its end those of its residuals. */
  private static class ResumingBundle implements RemoteBundle {

    private final BundleOpener opener;
    private final TaskResiduals<Object> residuals;
    private final RemoteBundle first;
    private boolean closed = false;

    ResumingBundle(BundleOpener opener, TaskResiduals<Object> residuals) throws Exception {
      this.opener = opener;
      this.residuals = residuals;
      this.first = opener.open();
    }

    @Override
    public void close() throws Exception {
      if (closed) {
        return;
      }
      closed = true;
      first.close();
      long bundles = 0;
      for (; !residuals.isEmpty(); bundles++) {
        resume(residuals.takeDue());
      }
      if (bundles > 0) {
        LOG.info("Resumed what a bundle left undone, in {} bundles", bundles);
      }
    }

    @SuppressWarnings("unchecked")
    private void resume(List<WindowedValue<Object>> elements) throws Exception {
      try (RemoteBundle bundle = opener.open()) {
        FnDataReceiver<WindowedValue<Object>> receiver =
            Iterables.getOnlyElement(bundle.getInputReceivers().values());
        for (WindowedValue<Object> element : elements) {
          receiver.accept(element);
        }
      }
    }

    @Override
    public String getId() {
      return first.getId();
    }

    @Override
    @SuppressWarnings("rawtypes") // As the interface has it.
    public Map<String, FnDataReceiver> getInputReceivers() {
      return first.getInputReceivers();
    }

    @Override
    @SuppressWarnings("rawtypes") // As the interface has it.
    public Map<KV<String, String>, FnDataReceiver<Timer>> getTimerReceivers() {
      return first.getTimerReceivers();
    }

    @Override
    public void requestProgress() {
      first.requestProgress();
    }

    @Override
    public void split(double fractionOfRemainder) {
      first.split(fractionOfRemainder);
    }
  }
}
