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
import java.util.Iterator;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.beam.runners.fnexecution.control.ExecutableStageContext;
import org.apache.beam.runners.fnexecution.provisioning.JobInfo;
import org.apache.spark.api.java.function.FlatMapFunction;

/**
 * The workers of streams, kept on this executor from one micro-batch to the next.
 *
 * <p>What Beam does with a worker that no task uses is to end it. A stream would begin one anew for
 * each micro-batch, and open again whatever its DoFns read from.
 */
class StreamWorkers {

  private static final Map<String, ExecutableStageContext> KEPT = new ConcurrentHashMap<>();
  private static final Set<String> ENDED = Collections.newSetFromMap(new ConcurrentHashMap<>());

  static {
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(() -> KEPT.values().forEach(HeldBundles::close), "StreamWorkers"));
  }

  private StreamWorkers() {}

  /** Keeps the workers of a job, until its stream or this executor ends. */
  static void keep(JobInfo job) {
    KEPT.computeIfAbsent(
        job.jobId(),
        id ->
            ENDED.contains(id) ? null : SparkExecutableStageContextFactory.getInstance().get(job));
  }

  /** Lets the workers of a job go, of which no task keeps any again. */
  static void end(JobInfo job) {
    ENDED.add(job.jobId());
    ExecutableStageContext kept = KEPT.remove(job.jobId());
    if (kept != null) {
      HeldBundles.close(kept);
    }
  }

  /** A function that runs in a stream, with workers that are kept. */
  static <InputT, OutputT> FlatMapFunction<Iterator<InputT>, OutputT> kept(
      JobInfo job, FlatMapFunction<Iterator<InputT>, OutputT> function) {
    return inputs -> {
      if (inputs.hasNext()) {
        keep(job);
      }
      return function.call(inputs);
    };
  }
}
