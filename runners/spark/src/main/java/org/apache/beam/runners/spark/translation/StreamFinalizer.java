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
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.util.concurrent.ThreadFactoryBuilder;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.JavaSparkContext$;
import org.apache.spark.streaming.Time;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Tuple2;
import scala.collection.JavaConverters;
import scala.collection.Seq;

/**
 * Has bundles finalized where they ran, when their micro-batch has been processed to its last
 * stage.
 *
 * <p>It does so beside the stream, in tasks that Spark sends to the executors that ran the bundles.
 * If Spark sends one elsewhere, because the executor is busy, it is tried again; an executor that
 * is gone has taken its callbacks along.
 */
class StreamFinalizer {

  private static final Logger LOG = LoggerFactory.getLogger(StreamFinalizer.class);
  private static final int ATTEMPTS = 10;
  private static final long LAST_SECONDS = 70;

  private final JavaSparkContext spark;
  private final TreeMap<Long, Map<String, List<String>>> waiting = new TreeMap<>();
  private final ExecutorService thread =
      Executors.newSingleThreadExecutor(
          new ThreadFactoryBuilder().setDaemon(true).setNameFormat("StreamFinalizer").build());

  StreamFinalizer(JavaSparkContext spark) {
    this.spark = spark;
  }

  /**
   * Has bundles finalized when a micro-batch is complete.
   *
   * @param batch the micro-batch
   * @param executor where they are held, as Spark names a place
   * @param token by which {@link HeldBundles} finds them; empty if there are none
   */
  synchronized void add(Time batch, String executor, String token) {
    if (!token.isEmpty()) {
      waiting
          .computeIfAbsent(batch.milliseconds(), time -> new HashMap<>())
          .computeIfAbsent(executor, place -> new ArrayList<>())
          .add(token);
    }
  }

  /** Tells that a micro-batch, and all before it, have been processed; returns at once. */
  synchronized void completed(long batchMillis) {
    Map<String, List<String>> tokens = new HashMap<>();
    Collection<Map<String, List<String>>> complete = waiting.headMap(batchMillis, true).values();
    complete.forEach(
        held ->
            held.forEach(
                (executor, some) ->
                    tokens.computeIfAbsent(executor, place -> new ArrayList<>()).addAll(some)));
    complete.clear();
    if (!tokens.isEmpty() && !thread.isShutdown()) {
      thread.execute(() -> finalizeAll(tokens));
    }
  }

  /** Ends when all has been tried, or a minute has passed. */
  void end() throws InterruptedException {
    thread.shutdown();
    if (!thread.awaitTermination(LAST_SECONDS, TimeUnit.SECONDS)) {
      thread.shutdownNow();
    }
  }

  private void finalizeAll(Map<String, List<String>> tokens) {
    try {
      Map<String, List<String>> left = tokens;
      for (int attempt = 0; attempt < ATTEMPTS && !left.isEmpty(); attempt++) {
        left = attempt(left);
      }
      if (!left.isEmpty()) {
        LOG.warn("Bundles were not finalized, on {}", left.keySet());
      }
    } catch (RuntimeException e) {
      LOG.warn("Bundles were not finalized", e);
    }
  }

  /** Returns what was not found. */
  private Map<String, List<String>> attempt(Map<String, List<String>> tokens) {
    List<Tuple2<List<String>, Seq<String>>> work = new ArrayList<>();
    tokens.forEach((executor, some) -> work.add(new Tuple2<>(some, seq(List.of(executor)))));
    Set<String> unknown = new HashSet<>();
    JavaRDD<List<String>> rdd =
        spark
            .sc()
            .makeRDD(seq(work), JavaSparkContext$.MODULE$.<List<String>>fakeClassTag())
            .toJavaRDD();
    rdd.map(HeldBundles::finalizeAll).collect().forEach(unknown::addAll);
    Map<String, List<String>> left = new HashMap<>();
    tokens.forEach(
        (executor, some) -> {
          List<String> again = new ArrayList<>(some);
          again.retainAll(unknown);
          if (!again.isEmpty()) {
            left.put(executor, again);
          }
        });
    return left;
  }

  private static <T> Seq<T> seq(List<T> list) {
    return JavaConverters.asScalaBuffer(list).toSeq();
  }
}
