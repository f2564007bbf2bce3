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

import static org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.base.Preconditions.checkArgument;
import static org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.base.Preconditions.checkState;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import org.apache.beam.sdk.metrics.Counter;
import org.apache.beam.sdk.metrics.Metrics;
import org.apache.beam.sdk.transforms.Watch.GrowthState;
import org.apache.beam.sdk.transforms.Watch.PollingGrowthState;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.beam.sdk.values.TimestampedValue;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.collect.ImmutableMap;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.hash.HashCode;
import org.checkerframework.checker.nullness.qual.Nullable;
import org.joda.time.Duration;
import org.joda.time.Instant;

/**
 * Lets the history of a {@link Watch} expire by event time.
 *
 * <p>The <i>cursor</i> is the greatest event time that a watch has output. The <i>floor</i> lies
 * the allowed lateness below it. Keys at or above the floor are remembered: of two outputs with
 * equal times, found by different polls, each is output once. What a poll lists below the floor is
 * dropped, and counted.
 *
 * <p>An output that is ahead of the clock by more than {@link #CLOCK_SKEW} is output and
 * remembered, but moves the cursor only when its time has come, and does not pull the watermark
 * along: one time that is wrong by years silences nothing.
 *
 * <p>A state without a {@link WatchCursorPosition} is one of a watch that has no cursor, or whose
 * cursor does not stand anywhere yet. It knows all keys with their times, so a watch that is given
 * a cursor goes on from it; the way back does not exist.
 */
final class WatchCursor implements Serializable {
  /** By how much clocks may differ. */
  static final Duration CLOCK_SKEW = Duration.standardMinutes(1);

  private static final Counter DROPPED = Metrics.counter(Watch.class, "outputs_dropped_late");

  private final Duration allowedLateness;

  private WatchCursor(Duration allowedLateness) {
    this.allowedLateness = allowedLateness;
  }

  static WatchCursor withAllowedLateness(Duration allowedLateness) {
    checkArgument(allowedLateness != null, "allowedLateness can not be null");
    checkArgument(
        allowedLateness.getMillis() >= 0,
        "allowedLateness can not be negative, but is %s",
        allowedLateness);
    return new WatchCursor(allowedLateness);
  }

  /** Refuses the state of a watch that had a cursor, where there is none now. */
  static void checkFits(@Nullable WatchCursor cursor, GrowthState state) {
    checkState(
        cursor != null
            || !(state instanceof PollingGrowthState)
            || ((PollingGrowthState<?>) state).getCursorPosition() == null,
        "This watch was run with withTimestampCursor() before. It has forgotten what it output "
            + "behind its cursor, and would output all of that again. Keep withTimestampCursor(), "
            + "or start the job anew.");
  }

  /** Below which event time outputs are dropped. */
  private Instant floor(WatchCursorPosition position) {
    long cursor = position.getCursor().getMillis();
    long lowest = BoundedWindow.TIMESTAMP_MIN_VALUE.getMillis();
    // Both are far from overflowing, their difference is not.
    boolean reachesDown = allowedLateness.getMillis() >= cursor - lowest;
    return reachesDown
        ? BoundedWindow.TIMESTAMP_MIN_VALUE
        : new Instant(cursor - allowedLateness.getMillis());
  }

  /** Takes out of a poll what lies below the floor, and counts what is new of that. */
  <OutputT> List<TimestampedValue<OutputT>> notLate(
      @Nullable WatchCursorPosition position,
      List<TimestampedValue<OutputT>> outputs,
      Function<OutputT, HashCode> hash) {
    if (position == null) {
      return outputs;
    }
    Instant floor = floor(position);
    List<TimestampedValue<OutputT>> left = new ArrayList<>();
    Set<HashCode> below = new HashSet<>();
    for (TimestampedValue<OutputT> output : outputs) {
      if (output.getTimestamp().isBefore(floor)) {
        below.add(hash.apply(output.getValue()));
      } else {
        left.add(output);
      }
    }
    long dropped = WatchLateOutputs.ofProcess().countNew(position, below);
    if (dropped > 0) {
      DROPPED.inc(dropped);
    }
    return left;
  }

  /**
   * The state after a poll, without what lies below the floor now.
   *
   * @param before where the cursor stood before the poll
   * @param state with all that was output, before the poll and by it
   */
  <StateT> PollingGrowthState<StateT> expire(
      @Nullable WatchCursorPosition before, PollingGrowthState<StateT> state) {
    Instant cursor = newest(before, state.getCompleted());
    if (cursor == null) {
      return state;
    }
    WatchCursorPosition position =
        WatchCursorPosition.of(
            cursor, before == null ? WatchLateOutputs.newWatchId() : before.getWatchId());
    Instant floor = floor(position);
    ImmutableMap.Builder<HashCode, Instant> kept = ImmutableMap.builder();
    Set<HashCode> expired = new HashSet<>();
    for (Map.Entry<HashCode, Instant> output : state.getCompleted().entrySet()) {
      if (output.getValue().isBefore(floor)) {
        expired.add(output.getKey());
      } else {
        kept.put(output);
      }
    }
    WatchLateOutputs.ofProcess().moved(before, position, expired);
    return PollingGrowthState.of(
        kept.build(), state.getPollWatermark(), state.getTerminationState(), position);
  }

  private static @Nullable Instant newest(
      @Nullable WatchCursorPosition before, Map<HashCode, Instant> completed) {
    Instant newest = before == null ? null : before.getCursor();
    Instant latest = latest();
    for (Instant time : completed.values()) {
      if (!time.isAfter(latest) && (newest == null || time.isAfter(newest))) {
        newest = time;
      }
    }
    return newest;
  }

  /** The latest time that is believed. */
  private static Instant latest() {
    return Instant.now().plus(CLOCK_SKEW);
  }

  /**
   * The watermark after a poll that did not say one.
   *
   * @param cursor null where there is none: then all times are believed, as ever
   * @param earliest the time of the earliest new output
   * @return null where the watermark stays
   */
  static @Nullable Instant inferredWatermark(@Nullable WatchCursor cursor, Instant earliest) {
    return cursor != null && earliest.isAfter(latest()) ? null : earliest;
  }
}
