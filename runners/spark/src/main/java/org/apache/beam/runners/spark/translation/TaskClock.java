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

import java.util.concurrent.TimeUnit;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.checkerframework.checker.nullness.qual.Nullable;

/** The time of a task, which counts from no known moment and goes on while Spark is alive. */
interface TaskClock {

  /** Nanoseconds since this clock began. */
  long nanos();

  /**
   * Returns when the clock is at a time, or past it.
   *
   * @throws InterruptedException if the thread was interrupted
   * @throws TaskKilledException if Spark wants the task to end
   */
  void sleepUntil(long nanos) throws InterruptedException;

  /**
   * The clock of the machine.
   *
   * @param task the task that sleeps; null: nothing ends its sleep
   */
  static TaskClock of(@Nullable TaskContext task) {
    return new SystemClock(task);
  }

  /** Sleeps by moments: Spark does not interrupt the thread of a task that it wants to end. */
  class SystemClock implements TaskClock {

    private static final long MOMENT = TimeUnit.MILLISECONDS.toNanos(200);

    // Times of System.nanoTime can only be compared by their difference.
    private final long start = System.nanoTime();
    private final @Nullable TaskContext task;

    private SystemClock(@Nullable TaskContext task) {
      this.task = task;
    }

    @Override
    public long nanos() {
      return System.nanoTime() - start;
    }

    @Override
    public void sleepUntil(long nanos) throws InterruptedException {
      for (long left = nanos - nanos(); left > 0; left = nanos - nanos()) {
        if (task != null && task.isInterrupted()) {
          throw new TaskKilledException("ended while it waited for unfinished work to be due");
        }
        // Rounded up, by as little as a sleep can be.
        long moment = Math.min(left, MOMENT);
        Thread.sleep(moment / 1_000_000, (int) (moment % 1_000_000));
      }
    }
  }
}
