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
import java.util.PriorityQueue;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.DelayedBundleApplication;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.ProcessBundleResponse;
import org.apache.beam.runners.fnexecution.control.BundleCheckpointHandler;
import org.apache.beam.sdk.coders.Coder;
import org.apache.beam.sdk.coders.CoderException;
import org.apache.beam.sdk.util.CoderUtils;
import org.apache.beam.sdk.values.WindowedValue;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Duration;

/**
 * What the bundles of a task have left undone, in the order in which it is to be resumed.
 *
 * <p>A residual is due when its bundle has ended and the delay that it asked for has passed. Those
 * that are due at the same moment are in the order in which they were handed over. Nothing is kept
 * outside of memory: if the task fails, Spark runs it anew from its input, and so from before any
 * residual.
 *
 * <p>Used by the thread of the task alone.
 */
class TaskResiduals<T> implements BundleCheckpointHandler {

  private final Coder<WindowedValue<T>> coder;
  private final TaskClock clock;
  private final PriorityQueue<Residual<T>> waiting = new PriorityQueue<>();
  private long handedOver = 0;

  /**
   * Begins without any.
   *
   * @param coder of the elements that go into the stage, which residuals are
   * @param clock by which delays are counted
   */
  TaskResiduals(Coder<WindowedValue<T>> coder, TaskClock clock) {
    this.coder = coder;
    this.clock = clock;
  }

  @Override
  public void onCheckpoint(ProcessBundleResponse response) {
    long now = clock.nanos();
    for (DelayedBundleApplication residual : response.getResidualRootsList()) {
      if (residual.hasApplication()) {
        waiting.add(
            new Residual<>(
                saturatedSum(now, nanos(residual.getRequestedTimeDelay())),
                handedOver++,
                decode(residual)));
      }
    }
  }

  /** Whether all is done. */
  boolean isEmpty() {
    return waiting.isEmpty();
  }

  /**
   * Waits until something is due, and takes all that is.
   *
   * @return elements for the input of the stage; none if {@link #isEmpty()}
   * @throws InterruptedException if the thread was interrupted as it waited
   */
  List<WindowedValue<T>> takeDue() throws InterruptedException {
    List<WindowedValue<T>> due = new ArrayList<>();
    if (waiting.isEmpty()) {
      return due;
    }
    clock.sleepUntil(waiting.peek().due);
    long now = clock.nanos();
    while (!waiting.isEmpty() && waiting.peek().due <= now) {
      due.add(waiting.remove().element);
    }
    return due;
  }

  private WindowedValue<T> decode(DelayedBundleApplication residual) {
    try {
      return CoderUtils.decodeFromByteArray(
          coder, residual.getApplication().getElement().toByteArray());
    } catch (CoderException e) {
      throw new IllegalStateException(
          String.format(
              "A residual of %s cannot be decoded by the coder of its input",
              residual.getApplication().getTransformId()),
          e);
    }
  }

  /** A delay in nanoseconds: none if it is negative, and never more than there is. */
  static long nanos(Duration delay) {
    if (delay.getSeconds() < 0 || delay.getNanos() < 0) {
      return 0;
    }
    if (delay.getSeconds() > Long.MAX_VALUE / 1_000_000_000L - 1) {
      return Long.MAX_VALUE;
    }
    return delay.getSeconds() * 1_000_000_000L + delay.getNanos();
  }

  private static long saturatedSum(long now, long delay) {
    return now > Long.MAX_VALUE - delay ? Long.MAX_VALUE : now + delay;
  }

  private static class Residual<T> implements Comparable<Residual<T>> {
    private final long due;
    private final long number;
    private final WindowedValue<T> element;

    Residual(long due, long number, WindowedValue<T> element) {
      this.due = due;
      this.number = number;
      this.element = element;
    }

    @Override
    public int compareTo(Residual<T> other) {
      int byTime = Long.compare(due, other.due);
      return byTime == 0 ? Long.compare(number, other.number) : byTime;
    }
  }
}
