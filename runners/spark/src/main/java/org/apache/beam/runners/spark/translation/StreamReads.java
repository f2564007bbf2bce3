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
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.beam.model.pipeline.v1.RunnerApi.Components;
import org.apache.beam.model.pipeline.v1.RunnerApi.ExecutableStagePayload;
import org.apache.beam.runners.fnexecution.translation.PipelineTranslatorUtils;
import org.apache.beam.runners.spark.coders.CoderHelpers;
import org.apache.beam.runners.spark.translation.streaming.UnboundedDataset;
import org.apache.beam.sdk.coders.Coder;
import org.apache.beam.sdk.transforms.join.RawUnionValue;
import org.apache.beam.sdk.transforms.join.UnionCoder;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.beam.sdk.util.construction.PTransformTranslation;
import org.apache.beam.sdk.values.WindowedValue;
import org.apache.beam.sdk.values.WindowedValues;
import org.apache.spark.api.java.JavaFutureAction;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.api.java.function.Function2;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.streaming.Time;
import org.apache.spark.streaming.api.java.JavaDStream;
import org.apache.spark.streaming.api.java.JavaStreamingContext;
import org.joda.time.Instant;

/**
 * Runs a stage with a splittable DoFn in a stream.
 *
 * <p>In each micro-batch the stage processes what is new of its input and what is due of its
 * residuals, when the micro-batch is made, before anything behind it runs. What the tasks give
 * comes to the driver: outputs and residuals of the same bundles, once. So whatever Spark has to
 * repeat behind the stage it repeats with the same outputs. The bundles are finalized when the
 * micro-batch has been processed to its last stage.
 */
class StreamReads<InputT>
    implements Function2<JavaRDD<WindowedValue<InputT>>, Time, JavaRDD<RawUnionValue>> {

  /** Micro-batches that may wait for what is behind the stage before it reads on. */
  private static final int AHEAD = 8;

  // A stream is written into its checkpoints with all its functions. This one has no use there: the
  // driver holds what it knows, and a stream does not outlive its driver.
  private final transient PortableStream stream;
  private final transient JavaStreamingContext context;
  private final transient StreamResiduals residuals = new StreamResiduals(TaskClock.of(null));
  private final transient StreamReadFunction<InputT> function;
  private final transient Coder<WindowedValue<InputT>> inputCoder;
  private final transient Coder<RawUnionValue> outputCoder;
  private final transient List<Integer> inputSources;
  private final int source;
  private final long intervalMillis;
  private transient long readEnd = System.nanoTime();
  private transient long readNanos = 0;

  private StreamReads(
      SparkStreamingTranslationContext context,
      StreamReadFunction<InputT> function,
      Coder<WindowedValue<InputT>> inputCoder,
      Coder<RawUnionValue> outputCoder,
      List<Integer> inputSources,
      int source,
      long intervalMillis) {
    this.stream = PortableStream.of(context);
    this.context = context.getStreamingContext();
    this.function = function;
    this.inputCoder = inputCoder;
    this.outputCoder = outputCoder;
    this.inputSources = inputSources;
    this.source = source;
    this.intervalMillis = intervalMillis;
  }

  /**
   * The sources of what a stage gives.
   *
   * @param stage the stage
   * @param inputSources those of its input
   * @return a new one if the stage has a splittable DoFn, which holds watermarks of its own
   */
  static List<Integer> sources(
      ExecutableStagePayload stage,
      List<Integer> inputSources,
      SparkStreamingTranslationContext context) {
    if (!isSplittable(stage)) {
      return inputSources;
    }
    return Collections.singletonList(newSource(context));
  }

  /** A source that is known, and at its beginning. */
  private static int newSource(SparkStreamingTranslationContext context) {
    int source = context.getStreamingContext().ssc().getNewInputStreamId();
    PortableStream.of(context).watermarks().add(source);
    return source;
  }

  private static boolean isSplittable(ExecutableStagePayload stage) {
    return stage.getTransformsList().stream()
        .anyMatch(
            id ->
                PTransformTranslation.SPLITTABLE_PROCESS_SIZED_ELEMENTS_AND_RESTRICTIONS_URN.equals(
                    stage.getComponents().getTransformsOrThrow(id).getSpec().getUrn()));
  }

  /**
   * What a stage gives of a stream.
   *
   * @param stage the stage
   * @param function gives its outputs
   * @param input what goes into it, and {@link #sources} of what comes out
   * @param outputs the numbers of its outputs
   */
  static <T> JavaDStream<RawUnionValue> run(
      ExecutableStagePayload stage,
      FlatMapFunction<Iterator<WindowedValue<T>>, RawUnionValue> function,
      UnboundedDataset<T> input,
      List<Integer> sources,
      Map<String, Integer> outputs,
      Components components,
      SparkStreamingTranslationContext context) {
    FlatMapFunction<Iterator<WindowedValue<T>>, RawUnionValue> kept =
        StreamWorkers.kept(context.jobInfo, function);
    if (!isSplittable(stage)) {
      return input.getDStream().mapPartitions(kept);
    }
    Coder<RawUnionValue> outputCoder = outputCoder(outputs, components);
    return input
        .getDStream()
        .transform(
            new StreamReads<T>(
                context,
                new StreamReadFunction<>(kept, outputCoder),
                PipelineTranslatorUtils.getWindowedValueCoder(stage.getInput(), components),
                outputCoder,
                input.getStreamSources(),
                sources.get(0),
                input.getDStream().dstream().slideDuration().milliseconds()));
  }

  private static Coder<RawUnionValue> outputCoder(
      Map<String, Integer> outputs, Components components) {
    Coder<?>[] coders = new Coder<?>[outputs.size()];
    outputs.forEach(
        (id, tag) -> coders[tag] = PipelineTranslatorUtils.getWindowedValueCoder(id, components));
    return UnionCoder.of(List.of(coders));
  }

  /** Shuffles a micro-batch, unless there is nothing in it: that has no tasks, and keeps none. */
  static <T> JavaRDD<WindowedValue<T>> reshuffle(
      JavaRDD<WindowedValue<T>> input, WindowedValues.WindowedValueCoder<T> coder) {
    return input.getNumPartitions() == 0 ? input : GroupCombineFunctions.reshuffle(input, coder);
  }

  /** A stream of what has ended when the first micro-batch is made. */
  static <T> JavaDStream<T> ended(
      JavaDStream<T> input, List<Integer> sources, SparkStreamingTranslationContext context) {
    PortableStream stream = PortableStream.of(context);
    sources.forEach(stream.watermarks()::add);
    return input.transform(new Ended<T>(stream, sources));
  }

  @Override
  public JavaRDD<RawUnionValue> call(JavaRDD<WindowedValue<InputT>> input, Time batch)
      throws Exception {
    List<byte[]> due = mayReadOn(batch) ? residuals.takeDue() : Collections.emptyList();
    List<StreamReadFunction.Result> results = Collections.emptyList();
    if (!due.isEmpty() || input.getNumPartitions() > 0) {
      results = read(input.union(elements(due)));
    }
    if (!results.isEmpty()) {
      stream.begin(batch);
    }
    List<byte[]> outputs = new ArrayList<>();
    for (StreamReadFunction.Result result : results) {
      residuals.add(result.residuals());
      stream.finalizer().add(batch, result.executor(), result.held());
      if (result.outputs().length > 0) {
        outputs.add(result.outputs());
      }
    }
    advance(batch);
    return keep(outputs);
  }

  /**
   * Whether to read on, or to leave that to a later micro-batch.
   *
   * <p>A read may take longer than what there is between micro-batches. Those that are late by then
   * are made without reading, for as long as that read took at most: on a machine that is too slow
   * for its micro-batches all are late, and reads have to go on there as well.
   */
  private boolean mayReadOn(Time batch) {
    boolean late = System.currentTimeMillis() - batch.milliseconds() >= intervalMillis;
    boolean justRead = System.nanoTime() - readEnd < readNanos;
    return stream.unfinishedBefore(batch) < AHEAD && !(late && justRead);
  }

  private List<StreamReadFunction.Result> read(JavaRDD<WindowedValue<InputT>> elements)
      throws Exception {
    long begin = System.nanoTime();
    try {
      return runTasks(elements.mapPartitions(function));
    } finally {
      readEnd = System.nanoTime();
      readNanos = readEnd - begin;
    }
  }

  private JavaRDD<WindowedValue<InputT>> elements(List<byte[]> encoded) {
    JavaSparkContext spark = context.sparkContext();
    if (encoded.isEmpty()) {
      return spark.emptyRDD();
    }
    return spark
        .parallelize(encoded, Math.min(encoded.size(), spark.defaultParallelism()))
        .map(CoderHelpers.fromByteFunction(inputCoder));
  }

  private static <T> List<T> runTasks(JavaRDD<T> rdd) throws Exception {
    JavaFutureAction<List<T>> job = rdd.collectAsync();
    try {
      return job.get();
    } catch (ExecutionException e) {
      throw e.getCause() instanceof Exception ? (Exception) e.getCause() : e;
    } catch (InterruptedException e) {
      // The stream is ended.
      job.cancel(true);
      throw e;
    }
  }

  private void advance(Time batch) {
    Instant input = stream.watermarks().of(inputSources, batch);
    Instant own = residuals.watermark();
    stream.watermarks().advance(source, batch, own.isBefore(input) ? own : input);
  }

  /** Puts outputs where they outlive executors. */
  private JavaRDD<RawUnionValue> keep(List<byte[]> outputs) {
    JavaSparkContext spark = context.sparkContext();
    if (outputs.isEmpty()) {
      return spark.emptyRDD();
    }
    List<Broadcast<byte[]>> kept = new ArrayList<>();
    outputs.forEach(one -> kept.add(spark.broadcast(one)));
    Coder<RawUnionValue> coder = outputCoder;
    return spark
        .parallelize(kept, kept.size())
        .flatMap(one -> StreamReadFunction.decode(one.value(), coder));
  }

  private static class Ended<T> implements Function2<JavaRDD<T>, Time, JavaRDD<T>> {
    private final transient PortableStream stream;
    private final List<Integer> sources;

    Ended(PortableStream stream, List<Integer> sources) {
      this.stream = stream;
      this.sources = sources;
    }

    @Override
    public JavaRDD<T> call(JavaRDD<T> input, Time batch) {
      for (int source : sources) {
        stream.watermarks().advance(source, batch, BoundedWindow.TIMESTAMP_MAX_VALUE);
      }
      return input;
    }
  }
}
