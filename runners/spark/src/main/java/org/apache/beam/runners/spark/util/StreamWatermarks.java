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
package org.apache.beam.runners.spark.util;

import java.io.IOException;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.beam.runners.spark.util.GlobalWatermarkHolder.SparkWatermarks;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.spark.streaming.Time;
import org.joda.time.Instant;

/**
 * The watermarks of the sources of a stream, for each of its micro-batches.
 *
 * <p>The driver advances them, before what they are of is processed. Tasks take them along: what is
 * sent to a task has the watermarks of the past as well as those of its own micro-batch. So a task
 * that Spark repeats for a micro-batch of the past sees what the first one saw, drops and fires the
 * same, and the state that results is the same.
 */
public class StreamWatermarks implements Serializable {

  /** Changes that are kept. Spark recomputes nothing that is older than two of its checkpoints. */
  private static final int KEPT = 1000;

  private static final long BEGINNING = BoundedWindow.TIMESTAMP_MIN_VALUE.getMillis();
  private static final long END = BoundedWindow.TIMESTAMP_MAX_VALUE.getMillis();

  /** By source: its watermark from a micro-batch on, where it is another than before. */
  private final Map<Integer, TreeMap<Long, Long>> changes = new HashMap<>();

  /** Makes a source known; its watermark is at the beginning. */
  public synchronized void add(int source) {
    changes.putIfAbsent(source, new TreeMap<>());
  }

  /**
   * Tells how far a source has come.
   *
   * @param source a source that is known
   * @param batch the micro-batch
   * @param watermark no element that the source gives later, in this micro-batch or another, is
   *     before it; an earlier one than before changes nothing
   */
  public synchronized void advance(int source, Time batch, Instant watermark) {
    TreeMap<Long, Long> times = changes.get(source);
    if (times == null) {
      throw new IllegalArgumentException("Source " + source + " is not known");
    }
    if (watermark.getMillis() > (times.isEmpty() ? BEGINNING : times.lastEntry().getValue())) {
      times.put(batch.milliseconds(), watermark.getMillis());
    }
    while (times.size() > KEPT) {
      times.pollFirstEntry();
    }
  }

  /** The earliest watermark of some sources, when a micro-batch has been processed. */
  public synchronized Instant of(Collection<Integer> sources, Time batch) {
    long earliest = END;
    for (int source : sources) {
      earliest = Math.min(earliest, value(changes.get(source).floorEntry(batch.milliseconds())));
    }
    return new Instant(earliest);
  }

  /** The watermarks of all sources, before and after a micro-batch. */
  public synchronized Map<Integer, SparkWatermarks> at(Time batch) {
    Map<Integer, SparkWatermarks> found = new HashMap<>();
    for (Map.Entry<Integer, TreeMap<Long, Long>> entry : changes.entrySet()) {
      TreeMap<Long, Long> times = entry.getValue();
      found.put(
          entry.getKey(),
          new SparkWatermarks(
              new Instant(value(times.lowerEntry(batch.milliseconds()))),
              new Instant(value(times.floorEntry(batch.milliseconds()))),
              new Instant(batch.milliseconds())));
    }
    return found;
  }

  /**
   * The micro-batch in which the last source came to its end.
   *
   * @return milliseconds; -1 if there is one that may give more
   */
  public synchronized long ended() {
    long last = 0;
    for (TreeMap<Long, Long> times : changes.values()) {
      if (times.isEmpty() || times.lastEntry().getValue() < END) {
        return -1;
      }
      last = Math.max(last, times.lastKey());
    }
    return last;
  }

  private static long value(Map.Entry<Long, Long> entry) {
    return entry == null ? BEGINNING : entry.getValue();
  }

  private synchronized void writeObject(ObjectOutputStream stream) throws IOException {
    stream.defaultWriteObject();
  }
}
