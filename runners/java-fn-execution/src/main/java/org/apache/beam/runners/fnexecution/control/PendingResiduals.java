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

import java.util.Collection;
import java.util.Collections;
import java.util.UUID;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.DelayedBundleApplication;
import org.apache.beam.runners.core.StateInternals;
import org.apache.beam.runners.core.StateInternalsFactory;
import org.apache.beam.runners.core.StateNamespace;
import org.apache.beam.runners.core.StateNamespaces;
import org.apache.beam.runners.core.StateTag;
import org.apache.beam.runners.core.StateTags;
import org.apache.beam.runners.core.TimerInternalsFactory;
import org.apache.beam.sdk.coders.Coder;
import org.apache.beam.sdk.coders.CoderException;
import org.apache.beam.sdk.coders.StringUtf8Coder;
import org.apache.beam.sdk.state.MapState;
import org.apache.beam.sdk.state.TimeDomain;
import org.apache.beam.sdk.state.ValueState;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.beam.sdk.transforms.windowing.GlobalWindow;
import org.apache.beam.sdk.util.CoderUtils;
import org.apache.beam.sdk.values.WindowedValue;
import org.apache.beam.sdk.values.WindowedValues;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Duration;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Timestamp;
import org.checkerframework.checker.nullness.qual.Nullable;
import org.joda.time.Instant;

/**
 * The residuals of bundles that checkpointed themselves, each waiting for its timer.
 *
 * <p>All residuals of a key and window lie in one map state, each under the id of its own timer.
 * {@link #take} removes what it returns, so the state is as large as what waits, however often
 * bundles checkpoint. A runner registers one state in all.
 *
 * <p>The ids are random. Many residuals can wait under one key, as the splits of a source do, and a
 * pipeline that is restored finds residuals of earlier runs: an id that is counted would begin anew
 * and overwrite one of them.
 */
public class PendingResiduals<T> {

  private static final String STATE_ID = "sdf_residuals";
  private static final int NANOS_PER_MILLI = 1_000_000;

  /**
   * How far a watermark goes while a residual waits, even if that will not output anything: all
   * windows have ended there. Behind it a runner takes its work for done, and clears the state of
   * the global window, which residuals are in.
   */
  private static final Instant LATEST_HOLD = GlobalWindow.INSTANCE.maxTimestamp().plus(1L);

  private final TimerInternalsFactory<T> timers;
  private final StateInternalsFactory<T> states;
  private final Coder<WindowedValue<T>> residualCoder;
  private final Coder<BoundedWindow> windowCoder;

  /**
   * Keeps residuals in the state and by the timers of a runner.
   *
   * @param timers gives the timers of the key that a residual is of
   * @param states gives the state of the key that a residual is of
   * @param residualCoder the coder of the elements that the residuals are
   * @param windowCoder the coder of their windows
   */
  public PendingResiduals(
      TimerInternalsFactory<T> timers,
      StateInternalsFactory<T> states,
      Coder<WindowedValue<T>> residualCoder,
      Coder<BoundedWindow> windowCoder) {
    this.timers = timers;
    this.states = states;
    this.residualCoder = residualCoder;
    this.windowCoder = windowCoder;
  }

  /**
   * Puts a residual away, and sets a timer for when it is to be resumed.
   *
   * <p>Until the timer fires it holds the output watermark to what the residual may still output.
   */
  public void park(DelayedBundleApplication residual) {
    WindowedValue<T> element = decode(residual);
    Instant due = due(Instant.now(), residual.getRequestedTimeDelay());
    Instant hold = hold(residual.getApplication().getOutputWatermarksMap().values());
    for (BoundedWindow window : element.getWindows()) {
      String timerId = newTimerId();
      StateNamespace namespace = StateNamespaces.window(windowCoder, window);
      states
          .stateInternalsForKey(element.getValue())
          .state(namespace, tag(residualCoder))
          .put(
              timerId,
              WindowedValues.of(
                  element.getValue(),
                  element.getTimestamp(),
                  Collections.singletonList(window),
                  element.getPaneInfo()));
      timers
          .timerInternalsForKey(element.getValue())
          .setTimer(namespace, timerId, "", due, hold, TimeDomain.PROCESSING_TIME);
    }
  }

  /**
   * Removes and returns the residual whose timer has fired.
   *
   * @param states the state of the key that the timer is of
   * @param namespace the namespace of the timer
   * @param timerId the id of the timer
   * @param residualCoder the coder of the elements that the residuals are
   * @throws IllegalStateException if there is none
   */
  public static <T> WindowedValue<T> take(
      StateInternals states,
      StateNamespace namespace,
      String timerId,
      Coder<WindowedValue<T>> residualCoder) {
    @Nullable WindowedValue<T> residual;
    if (isOfOlderRelease(timerId)) {
      ValueState<WindowedValue<T>> own =
          states.state(namespace, StateTags.value(timerId, residualCoder));
      residual = own.read();
      own.clear();
    } else {
      MapState<String, WindowedValue<T>> pending = states.state(namespace, tag(residualCoder));
      residual = pending.get(timerId).read();
      pending.remove(timerId);
    }
    if (residual == null) {
      throw new IllegalStateException(
          String.format(
              "The timer %s fired, but its residual is not in the state of %s. What was read of "
                  + "its restriction cannot be resumed; start from an earlier checkpoint.",
              timerId, namespace.stringKey()));
    }
    return residual;
  }

  /**
   * Whether the timer was set by a release that kept each residual in a state of its own, named as
   * the timer. Checkpoints of such a release can be restored.
   */
  private static boolean isOfOlderRelease(String timerId) {
    return timerId.startsWith(
        BundleCheckpointHandlers.StateAndTimerBundleCheckpointHandler.SDF_PREFIX + ":");
  }

  private static String newTimerId() {
    return BundleCheckpointHandlers.StateAndTimerBundleCheckpointHandler.SDF_PREFIX
        + "/"
        + UUID.randomUUID();
  }

  private static <T> StateTag<MapState<String, WindowedValue<T>>> tag(
      Coder<WindowedValue<T>> residualCoder) {
    return StateTags.map(STATE_ID, StringUtf8Coder.of(), residualCoder);
  }

  private WindowedValue<T> decode(DelayedBundleApplication residual) {
    try {
      return CoderUtils.decodeFromByteArray(
          residualCoder, residual.getApplication().getElement().toByteArray());
    } catch (CoderException e) {
      throw new IllegalStateException("A residual cannot be decoded by the coder of the input", e);
    }
  }

  /** When to resume: never before the delay has passed, so fractions of a millisecond count up. */
  static Instant due(Instant now, Duration delay) {
    long latest = BoundedWindow.TIMESTAMP_MAX_VALUE.getMillis();
    long room = latest - now.getMillis();
    if (delay.getSeconds() >= room / 1000) {
      return new Instant(latest);
    }
    long fraction = (delay.getNanos() + NANOS_PER_MILLI - 1) / NANOS_PER_MILLI;
    return now.plus(Math.max(delay.getSeconds() * 1000 + fraction, 0));
  }

  /**
   * The earliest of the watermarks that a residual gave for its outputs, fractions of a millisecond
   * left off. A residual that gave none may output anything, and none lets go of the last instants
   * of time.
   */
  static Instant hold(Collection<Timestamp> watermarks) {
    return watermarks.stream()
        .map(PendingResiduals::instant)
        .min(Instant::compareTo)
        .map(earliest -> earliest.isAfter(LATEST_HOLD) ? LATEST_HOLD : earliest)
        .orElse(BoundedWindow.TIMESTAMP_MIN_VALUE);
  }

  private static Instant instant(Timestamp timestamp) {
    long earliest = BoundedWindow.TIMESTAMP_MIN_VALUE.getMillis();
    long latest = BoundedWindow.TIMESTAMP_MAX_VALUE.getMillis();
    if (timestamp.getSeconds() < Math.floorDiv(earliest, 1000L)) {
      return BoundedWindow.TIMESTAMP_MIN_VALUE;
    }
    if (timestamp.getSeconds() > latest / 1000) {
      return BoundedWindow.TIMESTAMP_MAX_VALUE;
    }
    long millis = timestamp.getSeconds() * 1000 + timestamp.getNanos() / NANOS_PER_MILLI;
    return new Instant(Math.max(earliest, Math.min(latest, millis)));
  }
}
