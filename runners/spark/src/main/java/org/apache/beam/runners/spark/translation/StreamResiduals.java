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
import java.util.Collection;
import java.util.List;
import java.util.PriorityQueue;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.DelayedBundleApplication;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Timestamp;
import org.joda.time.Instant;

/**
 * What the micro-batches of a stage have left undone so far, in the order in which it is due.
 *
 * <p>It lives on the driver. Delays count from when the driver has the residual, so nothing is
 * resumed earlier than it asked.
 */
class StreamResiduals {

  private final TaskClock clock;
  private final PriorityQueue<Residual> waiting = new PriorityQueue<>();
  private long handedOver = 0;

  /** Begins without any; delays are counted by a clock. */
  StreamResiduals(TaskClock clock) {
    this.clock = clock;
  }

  /** Keeps residuals; what names no work is none. */
  void add(Collection<DelayedBundleApplication> residuals) {
    long now = clock.nanos();
    for (DelayedBundleApplication residual : residuals) {
      if (residual.hasApplication()) {
        waiting.add(new Residual(residual, now, handedOver++));
      }
    }
  }

  /**
   * Takes what is due.
   *
   * @return elements for the input of the stage, as its coder encodes them
   */
  List<byte[]> takeDue() {
    List<byte[]> due = new ArrayList<>();
    long now = clock.nanos();
    while (!waiting.isEmpty() && waiting.peek().due <= now) {
      due.add(waiting.remove().element);
    }
    return due;
  }

  boolean isEmpty() {
    return waiting.isEmpty();
  }

  /** The earliest that what waits may still give; the end of time if nothing waits. */
  Instant watermark() {
    return waiting.stream()
        .map(residual -> residual.hold)
        .min(Instant::compareTo)
        .orElse(BoundedWindow.TIMESTAMP_MAX_VALUE);
  }

  /**
   * The earliest of the watermarks that a residual has for its outputs, to the millisecond before.
   * One that has none may give anything.
   */
  static Instant hold(Collection<Timestamp> watermarks) {
    return watermarks.stream()
        .map(StreamResiduals::instant)
        .min(Instant::compareTo)
        .orElse(BoundedWindow.TIMESTAMP_MIN_VALUE);
  }

  private static Instant instant(Timestamp timestamp) {
    long earliest = BoundedWindow.TIMESTAMP_MIN_VALUE.getMillis();
    long latest = BoundedWindow.TIMESTAMP_MAX_VALUE.getMillis();
    // So far from what is a time for Beam that the product below has room.
    long seconds =
        Math.max(earliest / 1000 - 1, Math.min(latest / 1000 + 1, timestamp.getSeconds()));
    long millis = seconds * 1000 + Math.floorDiv(timestamp.getNanos(), 1_000_000);
    return new Instant(Math.max(earliest, Math.min(latest, millis)));
  }

  private static class Residual implements Comparable<Residual> {
    private final long due;
    private final long number;
    private final byte[] element;
    private final Instant hold;

    Residual(DelayedBundleApplication residual, long now, long number) {
      long delay = TaskResiduals.nanos(residual.getRequestedTimeDelay());
      this.due = now > Long.MAX_VALUE - delay ? Long.MAX_VALUE : now + delay;
      this.number = number;
      this.element = residual.getApplication().getElement().toByteArray();
      this.hold = hold(residual.getApplication().getOutputWatermarksMap().values());
    }

    @Override
    public int compareTo(Residual other) {
      int byTime = Long.compare(due, other.due);
      return byTime == 0 ? Long.compare(number, other.number) : byTime;
    }
  }
}
