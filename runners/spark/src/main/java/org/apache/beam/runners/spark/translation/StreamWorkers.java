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
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.beam.runners.fnexecution.control.ExecutableStageContext;
import org.apache.beam.runners.fnexecution.control.StageBundleFactory;
import org.apache.beam.runners.fnexecution.provisioning.JobInfo;
import org.apache.beam.sdk.util.construction.graph.ExecutableStage;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.checkerframework.checker.nullness.qual.Nullable;

/**
 * The workers of streams, kept on this executor from one micro-batch to the next, with what they
 * know of stages.
 *
 * <p>What Beam does with a worker that no task uses is to end it, and a stage it registers anew
 * with each task. A stream would begin a worker for each micro-batch, open again whatever its DoFns
 * read from, or fill a worker with copies of its stages.
 */
class StreamWorkers {

  private static final Map<String, StreamWorkers> KEPT = new ConcurrentHashMap<>();
  private static final Set<String> ENDED = Collections.newSetFromMap(new ConcurrentHashMap<>());
  private static final ThreadLocal<@Nullable StreamWorkers> CURRENT = new ThreadLocal<>();

  static {
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> KEPT.values().forEach(kept -> FinishedBundle.letGo(kept.context)),
                "StreamWorkers"));
  }

  private final ExecutableStageContext context;
  // One runs a bundle at a time, so as many are kept as tasks have run side by side.
  private final Map<ExecutableStage, Queue<StageBundleFactory>> idle = new ConcurrentHashMap<>();

  private StreamWorkers(ExecutableStageContext context) {
    this.context = context;
  }

  /** Keeps the workers of a job, until its stream or this executor ends; null if it has ended. */
  private static @Nullable StreamWorkers keep(JobInfo job) {
    return KEPT.computeIfAbsent(
        job.jobId(),
        id ->
            ENDED.contains(id)
                ? null
                // The task that is the first to ask may be one that reads: what its bundles leave
                // undone is its own, what those of later tasks do is not.
                : new StreamWorkers(
                    StreamReadTask.outside(
                        () -> SparkExecutableStageContextFactory.getInstance().get(job))));
  }

  /** Lets the workers of a job go, of which no task keeps any again. */
  static void end(JobInfo job) {
    ENDED.add(job.jobId());
    StreamWorkers kept = KEPT.get(job.jobId());
    if (kept != null) {
      kept.letGo(job);
    }
  }

  private void letGo(JobInfo job) {
    if (KEPT.remove(job.jobId(), this)) {
      idle.values().forEach(some -> some.forEach(FinishedBundle::letGo));
      FinishedBundle.letGo(context);
    }
  }

  /** A function that runs in a stream, with workers that are kept. */
  static <InputT, OutputT> FlatMapFunction<Iterator<InputT>, OutputT> kept(
      JobInfo job, FlatMapFunction<Iterator<InputT>, OutputT> function) {
    return inputs -> {
      if (!inputs.hasNext()) {
        return Collections.emptyIterator();
      }
      StreamWorkers kept = keep(job);
      CURRENT.set(kept);
      try {
        return function.call(inputs);
      } catch (Exception e) {
        // A worker may be the reason; the next attempt has another.
        if (kept != null) {
          kept.letGo(job);
        }
        throw e;
      } finally {
        CURRENT.remove();
      }
    };
  }

  /** The context for a stage on this thread: the given one, if it does not run in a stream. */
  static ExecutableStageContext wrap(ExecutableStageContext context) {
    StreamWorkers kept = CURRENT.get();
    return kept == null
        ? context
        : new ExecutableStageContext() {
          @Override
          public StageBundleFactory getStageBundleFactory(ExecutableStage stage) {
            return kept.stage(stage);
          }

          @Override
          public void close() throws Exception {
            context.close();
          }
        };
  }

  private Stage stage(ExecutableStage stage) {
    Queue<StageBundleFactory> siblings =
        idle.computeIfAbsent(stage, any -> new ConcurrentLinkedQueue<>());
    StageBundleFactory known = siblings.poll();
    return new Stage(known == null ? context.getStageBundleFactory(stage) : known, siblings);
  }

  /** A stage that is known to a worker already, or from now on. */
  private static class Stage extends ForwardingBundleFactory {

    private final Queue<StageBundleFactory> siblings;

    Stage(StageBundleFactory factory, Queue<StageBundleFactory> siblings) {
      super(factory);
      this.siblings = siblings;
    }

    @Override
    public void close() {
      siblings.add(factory);
    }
  }
}
