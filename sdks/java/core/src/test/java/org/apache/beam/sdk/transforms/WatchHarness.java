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
package org.apache.beam.sdk.transforms;

import static org.mockito.ArgumentMatchers.any;
import static org.mockito.ArgumentMatchers.anyLong;
import static org.mockito.Mockito.doAnswer;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;
import static org.mockito.Mockito.withSettings;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.function.Supplier;
import org.apache.beam.sdk.coders.Coder;
import org.apache.beam.sdk.coders.StringUtf8Coder;
import org.apache.beam.sdk.metrics.Counter;
import org.apache.beam.sdk.metrics.MetricName;
import org.apache.beam.sdk.metrics.MetricsContainer;
import org.apache.beam.sdk.metrics.MetricsEnvironment;
import org.apache.beam.sdk.transforms.Watch.Growth;
import org.apache.beam.sdk.transforms.Watch.Growth.PollFn;
import org.apache.beam.sdk.transforms.Watch.Growth.PollResult;
import org.apache.beam.sdk.transforms.Watch.GrowthState;
import org.apache.beam.sdk.transforms.Watch.GrowthTracker;
import org.apache.beam.sdk.transforms.Watch.PollingGrowthState;
import org.apache.beam.sdk.transforms.Watch.WatchGrowthFn;
import org.apache.beam.sdk.transforms.splittabledofn.SplitResult;
import org.apache.beam.sdk.transforms.splittabledofn.WatermarkEstimators;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.beam.sdk.util.CoderUtils;
import org.apache.beam.sdk.values.KV;
import org.apache.beam.sdk.values.TimestampedValue;
import org.checkerframework.checker.nullness.qual.Nullable;
import org.joda.time.Duration;
import org.joda.time.Instant;

/**
 * Runs the DoFn of a {@link Watch} poll by poll, as a runner does. Its state goes through its bytes
 * before each poll.
 */
final class WatchHarness {
  /** What a runner may do with a poll. */
  enum Step {
    /** Its output and its metrics are committed, and what is left is resumed. */
    COMMIT,
    /** The runner asks for a checkpoint while the poll runs. */
    SPLIT_WHILE_POLLING,
    /**
     * The bundle fails when all is done: nothing of it counts, and the poll is to be made again.
     */
    FAIL,
    /** The bundle fails after its checkpoint: the primary runs anew, by itself. */
    REPLAY,
  }

  static final String INPUT = "input";
  private static final MetricName DROPPED = MetricName.named(Watch.class, "outputs_dropped_late");

  private final WatchGrowthFn<String, String, String, Integer> fn;
  private final Coder<GrowthState> coder;
  private final DoFn<String, KV<String, List<TimestampedValue<String>>>>.ProcessContext context;
  private final MetricsContainer metrics = metrics();
  private Supplier<PollResult<String>> poll = () -> null;
  private byte @Nullable [] state;
  private Instant watermark = BoundedWindow.TIMESTAMP_MIN_VALUE;
  private long dropped;

  // Of the attempt that is being made.
  private List<String> outputs = new ArrayList<>();
  private long droppedNow;

  /** A watch of outputs that are their own keys. */
  WatchHarness(@Nullable Duration allowedLateness, int iterations) {
    Growth<String, String, String> spec =
        Watch.growthOf(
                new PollFn<String, String>() {
                  @Override
                  public PollResult<String> apply(String element, Context c) {
                    return poll.get();
                  }
                })
            .withPollInterval(Duration.standardSeconds(1));
    spec =
        spec.withTerminationPerInput(
            iterations == 0 ? Growth.never() : Growth.afterIterations(iterations));
    if (allowedLateness != null) {
      spec = spec.withTimestampCursor(allowedLateness);
    }
    fn =
        new WatchGrowthFn<>(
            spec, StringUtf8Coder.of(), SerializableFunctions.identity(), StringUtf8Coder.of());
    coder = fn.getRestrictionCoder();
    context = context();
    state = encode(fn.getInitialRestriction(INPUT));
  }

  static WatchHarness withCursor(long allowedLateness) {
    return new WatchHarness(Duration.millis(allowedLateness), 0);
  }

  /** Goes on from a state, as a job that is updated does. */
  WatchHarness from(byte[] state) {
    this.state = state;
    return this;
  }

  static TimestampedValue<String> at(long millis, String value) {
    return TimestampedValue.of(value, new Instant(millis));
  }

  @SafeVarargs
  final List<String> poll(TimestampedValue<String>... outputs) {
    return poll(Step.COMMIT, PollResult.incomplete(Arrays.asList(outputs)));
  }

  /** Makes one poll that finds something; returns what is output for good, sorted. */
  List<String> poll(Step step, PollResult<String> found) {
    GrowthTracker<String, Integer> tracker = fn.newTracker(decode(state));
    List<SplitResult<GrowthState>> splits = new ArrayList<>();
    poll =
        () -> {
          if (step == Step.SPLIT_WHILE_POLLING) {
            splits.add(tracker.trySplit(0));
          }
          return found;
        };
    WatermarkEstimators.Manual estimator = fn.newWatermarkEstimator(watermark);
    boolean resumes = process(tracker, estimator);
    if (resumes) {
      splits.add(tracker.trySplit(0));
    }
    tracker.checkDone();
    if (step == Step.FAIL) {
      return Collections.emptyList();
    }
    state = splits.isEmpty() ? null : encode(splits.get(0).getResidual());
    watermark = estimator.currentWatermark();
    dropped += droppedNow;
    if (step == Step.REPLAY && !splits.isEmpty()) {
      GrowthTracker<String, Integer> replay =
          fn.newTracker(decode(encode(splits.get(0).getPrimary())));
      process(replay, fn.newWatermarkEstimator(watermark));
      replay.checkDone();
    }
    Collections.sort(outputs);
    return outputs;
  }

  private boolean process(
      GrowthTracker<String, Integer> tracker, WatermarkEstimators.Manual estimator) {
    outputs = new ArrayList<>();
    droppedNow = 0;
    MetricsEnvironment.setCurrentContainer(metrics);
    try {
      return fn.process(context, tracker, estimator).shouldResume();
    } catch (Exception e) {
      throw new AssertionError(e);
    } finally {
      MetricsEnvironment.setCurrentContainer(null);
    }
  }

  boolean isFinished() {
    return state == null;
  }

  byte[] state() {
    return state;
  }

  @SuppressWarnings("unchecked")
  PollingGrowthState<Integer> decoded() {
    return (PollingGrowthState<Integer>) decode(state);
  }

  /** Where the cursor stands; null if it stands nowhere yet. */
  @Nullable Instant cursor() {
    WatchCursorPosition position = decoded().getCursorPosition();
    return position == null ? null : position.getCursor();
  }

  int kept() {
    return decoded().getCompleted().size();
  }

  long dropped() {
    return dropped;
  }

  Instant watermark() {
    return watermark;
  }

  WatchGrowthFn<String, String, String, Integer> fn() {
    return fn;
  }

  byte[] encode(GrowthState state) {
    try {
      return CoderUtils.encodeToByteArray(coder, state);
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  GrowthState decode(byte[] bytes) {
    try {
      return CoderUtils.decodeFromByteArray(coder, bytes);
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  /** The runner's side of a DoFn: takes what is output. */
  @SuppressWarnings("unchecked")
  private DoFn<String, KV<String, List<TimestampedValue<String>>>>.ProcessContext context() {
    DoFn<String, KV<String, List<TimestampedValue<String>>>>.ProcessContext made =
        mock(DoFn.ProcessContext.class, withSettings().stubOnly());
    when(made.element()).thenReturn(INPUT);
    doAnswer(
            call -> {
              KV<String, List<TimestampedValue<String>>> output = call.getArgument(0);
              output.getValue().forEach(value -> outputs.add(value.getValue()));
              return null;
            })
        .when(made)
        .output(any(KV.class));
    return made;
  }

  /** The runner's side of metrics, of which a watch has one. */
  private MetricsContainer metrics() {
    Counter counter = mock(Counter.class, withSettings().stubOnly());
    doAnswer(call -> droppedNow += call.getArgument(0, Long.class)).when(counter).inc(anyLong());
    MetricsContainer made = mock(MetricsContainer.class, withSettings().stubOnly());
    when(made.getCounter(DROPPED)).thenReturn(counter);
    return made;
  }
}
