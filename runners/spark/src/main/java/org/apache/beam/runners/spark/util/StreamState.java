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

import java.io.Serializable;
import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.beam.runners.spark.util.GlobalWatermarkHolder.SparkWatermarks;
import org.apache.spark.Partitioner;
import org.apache.spark.streaming.StreamingContext;
import org.apache.spark.streaming.Time;
import org.apache.spark.streaming.dstream.DStream;
import org.apache.spark.streaming.dstream.PairDStreamFunctions;
import org.checkerframework.checker.nullness.qual.Nullable;
import scala.Function1;
import scala.Option;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.collection.Iterator$;
import scala.collection.Seq;
import scala.reflect.ClassTag;
import scala.runtime.AbstractFunction4;

/**
 * State by key that is updated with the watermarks of the micro-batch that it is of.
 *
 * <p>Of a stream that has {@link StreamWatermarks}. For any other, state is updated with what
 * {@link GlobalWatermarkHolder} has at that moment.
 */
public class StreamState {

  private static final Map<StreamingContext, StreamWatermarks> STREAMS =
      Collections.synchronizedMap(new WeakHashMap<>());

  private static final ThreadLocal<@Nullable Map<Integer, SparkWatermarks>> CURRENT =
      new ThreadLocal<>();

  private StreamState() {}

  /** Gives a stream watermarks of its own. */
  public static void register(StreamingContext stream, StreamWatermarks watermarks) {
    STREAMS.put(stream, watermarks);
  }

  /**
   * The watermarks with which the state of a key is to be updated on this thread.
   *
   * @param cacheMillis how long those of {@link GlobalWatermarkHolder} may be cached
   */
  public static Map<Integer, SparkWatermarks> watermarks(Long cacheMillis) {
    Map<Integer, SparkWatermarks> current = CURRENT.get();
    return current == null ? GlobalWatermarkHolder.get(cacheMillis) : current;
  }

  /** As the method of {@link PairDStreamFunctions} with these parameters. */
  public static <K, V, S> DStream<Tuple2<K, S>> updateStateByKey(
      StreamingContext stream,
      PairDStreamFunctions<K, V> pairs,
      Function1<Iterator<Tuple3<K, Seq<V>, Option<S>>>, Iterator<Tuple2<K, S>>> update,
      Partitioner partitioner,
      boolean rememberPartitioner,
      ClassTag<S> tag) {
    StreamWatermarks watermarks = STREAMS.get(stream);
    return watermarks == null
        ? pairs.updateStateByKey(update, partitioner, rememberPartitioner, tag)
        : pairs.updateStateByKey(
            new Update<>(update, watermarks),
            partitioner,
            rememberPartitioner,
            Option.empty(),
            tag);
  }

  private static class Update<K, V, S>
      extends AbstractFunction4<Time, K, Seq<V>, Option<S>, Option<S>> implements Serializable {

    private final Function1<Iterator<Tuple3<K, Seq<V>, Option<S>>>, Iterator<Tuple2<K, S>>> update;
    private final StreamWatermarks watermarks;
    private transient @Nullable Time time;
    private transient @Nullable Map<Integer, SparkWatermarks> ofTime;

    Update(
        Function1<Iterator<Tuple3<K, Seq<V>, Option<S>>>, Iterator<Tuple2<K, S>>> update,
        StreamWatermarks watermarks) {
      this.update = update;
      this.watermarks = watermarks;
    }

    @Override
    public Option<S> apply(Time batch, K key, Seq<V> values, Option<S> before) {
      if (!batch.equals(time)) {
        ofTime = watermarks.at(batch);
        time = batch;
      }
      CURRENT.set(ofTime);
      try {
        Iterator<Tuple2<K, S>> after =
            update.apply(Iterator$.MODULE$.single(new Tuple3<>(key, values, before)));
        return after.hasNext() ? Option.apply(after.next()._2()) : Option.empty();
      } finally {
        CURRENT.remove();
      }
    }
  }
}
