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

import java.util.Collections;
import java.util.Map;
import java.util.TreeSet;
import java.util.WeakHashMap;
import org.apache.beam.runners.fnexecution.provisioning.JobInfo;
import org.apache.beam.runners.spark.util.StreamState;
import org.apache.beam.runners.spark.util.StreamWatermarks;
import org.apache.spark.streaming.StreamingContext;
import org.apache.spark.streaming.Time;
import org.apache.spark.streaming.api.java.JavaStreamingContext;
import org.apache.spark.streaming.scheduler.OutputOperationInfo;
import org.apache.spark.streaming.scheduler.StreamingListener;
import org.apache.spark.streaming.scheduler.StreamingListenerBatchCompleted;
import scala.collection.JavaConverters;

/**
 * A portable pipeline that runs as a stream: its watermarks, how far its micro-batches are, and its
 * end.
 */
public class PortableStream {

  private static final Map<StreamingContext, PortableStream> STREAMS =
      Collections.synchronizedMap(new WeakHashMap<>());

  private static final long MOMENT = 200;
  private static final long LONGEST = Long.MAX_VALUE / 2;

  private final StreamWatermarks watermarks = new StreamWatermarks();
  private final JobInfo job;
  private final StreamFinalizer finalizer;
  private final TreeSet<Long> unfinished = new TreeSet<>();
  private long completed = 0;
  private boolean failed = false;

  private PortableStream(JavaStreamingContext stream, JobInfo job) {
    this.job = job;
    finalizer = new StreamFinalizer(stream.sparkContext());
    StreamState.register(stream.ssc(), watermarks);
    stream.ssc().addStreamingListener(new Progress());
  }

  /** The one that is translated. */
  static PortableStream of(SparkStreamingTranslationContext context) {
    JavaStreamingContext stream = context.getStreamingContext();
    return STREAMS.computeIfAbsent(
        stream.ssc(), ssc -> new PortableStream(stream, context.jobInfo));
  }

  StreamWatermarks watermarks() {
    return watermarks;
  }

  StreamFinalizer finalizer() {
    return finalizer;
  }

  /** Tells that a micro-batch has something to process. */
  synchronized void begin(Time batch) {
    unfinished.add(batch.milliseconds());
  }

  /** How many earlier micro-batches that have something to process are not done with it. */
  synchronized int unfinishedBefore(Time batch) {
    return unfinished.headSet(batch.milliseconds()).size();
  }

  private synchronized boolean isOver() {
    long ended = watermarks.ended();
    return !failed && ended >= 0 && completed >= ended;
  }

  /**
   * Waits until all sources of a stream have ended and what they gave is processed.
   *
   * @param stream a stream that runs
   * @param timeoutMillis when to return in any case; negative: never
   * @throws InterruptedException if the thread was interrupted
   */
  public static void awaitEnd(JavaStreamingContext stream, long timeoutMillis)
      throws InterruptedException {
    PortableStream portable = STREAMS.get(stream.ssc());
    long left = timeoutMillis < 0 ? LONGEST : timeoutMillis;
    long end = System.nanoTime() / 1_000_000 + left;
    try {
      while (left > 0
          && !stream.awaitTerminationOrTimeout(Math.min(left, MOMENT))
          && !(portable != null && portable.isOver())) {
        left = end - System.nanoTime() / 1_000_000;
      }
    } finally {
      if (portable != null) {
        portable.end();
      }
    }
  }

  /** Lets all go that is in this process: with a local master, executors are. */
  private void end() throws InterruptedException {
    try {
      finalizer.end();
    } finally {
      HeldBundles.letGoAll();
      StreamWorkers.end(job);
    }
  }

  private class Progress implements StreamingListener {
    @Override
    public void onBatchCompleted(StreamingListenerBatchCompleted batch) {
      long time = batch.batchInfo().batchTime().milliseconds();
      boolean failures = false;
      for (OutputOperationInfo one :
          JavaConverters.asJavaCollection(batch.batchInfo().outputOperationInfos().values())) {
        failures |= one.failureReason().isDefined();
      }
      synchronized (PortableStream.this) {
        failed |= failures;
        completed = Math.max(completed, time);
        unfinished.headSet(time, true).clear();
        if (!failed) {
          finalizer.completed(time);
        }
      }
    }
  }
}
