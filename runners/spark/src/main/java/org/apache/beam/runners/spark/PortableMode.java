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
package org.apache.beam.runners.spark;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.function.Predicate;
import org.apache.beam.model.pipeline.v1.RunnerApi;
import org.apache.beam.model.pipeline.v1.RunnerApi.Components;
import org.apache.beam.model.pipeline.v1.RunnerApi.IsBounded;
import org.apache.beam.model.pipeline.v1.RunnerApi.PTransform;
import org.apache.beam.model.pipeline.v1.RunnerApi.ParDoPayload;
import org.apache.beam.runners.fnexecution.translation.PipelineTranslatorUtils;
import org.apache.beam.sdk.options.ExperimentalOptions;
import org.apache.beam.sdk.util.construction.PTransformTranslation;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.InvalidProtocolBufferException;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.collect.ImmutableSet;

/**
 * Whether a portable pipeline runs as a batch or as a stream of micro-batches, or not at all.
 *
 * <p>What a stream cannot do is refused before anything runs: state, timers and side inputs, of
 * which Spark has no more than one micro-batch. A pipeline that reads what ends by itself need not
 * be a stream; whether all of its reads do only its author knows, and says so by the experiment
 * {@value #SOURCES_END}.
 */
class PortableMode {

  /** The experiment by which an author says that each unbounded read of the pipeline ends. */
  static final String SOURCES_END = "unbounded_sources_end";

  /** A splittable DoFn as it is, and the part of it that reads, if the SDK has expanded it. */
  private static final Set<String> PAR_DOS =
      ImmutableSet.of(
          PTransformTranslation.PAR_DO_TRANSFORM_URN,
          PTransformTranslation.SPLITTABLE_PROCESS_SIZED_ELEMENTS_AND_RESTRICTIONS_URN);

  private PortableMode() {}

  /**
   * Tells how to run a pipeline: as a stream if options ask for it or something in it is unbounded,
   * unless the unbounded reads end.
   *
   * @throws UnsupportedOperationException if it is a stream with something that streams cannot do;
   *     the message names the transforms, and what to do
   */
  static boolean isStreaming(RunnerApi.Pipeline pipeline, SparkPipelineOptions options) {
    boolean streaming = isStream(pipeline, options);
    if (streaming) {
      refuse(pipeline.getComponents());
    }
    return streaming;
  }

  private static boolean isStream(RunnerApi.Pipeline pipeline, SparkPipelineOptions options) {
    if (options.isStreaming()) {
      return true;
    }
    boolean allEnd =
        ExperimentalOptions.hasExperiment(options, SOURCES_END)
            && hasUnboundedReads(pipeline.getComponents());
    return !allEnd && PipelineTranslatorUtils.hasUnboundedPCollections(pipeline);
  }

  private static void refuse(Components components) {
    List<String> keepState = named(components, PortableMode::keepsState);
    List<String> readBeside = named(components, payload -> payload.getSideInputsCount() > 0);
    if (keepState.isEmpty() && readBeside.isEmpty()) {
      return;
    }
    List<String> problems = new ArrayList<>();
    if (!keepState.isEmpty()) {
      problems.add("state or timers: " + String.join(", ", keepState));
    }
    if (!readBeside.isEmpty()) {
      problems.add("side inputs: " + String.join(", ", readBeside));
    }
    throw new UnsupportedOperationException(
        String.format(
            "Portable Spark runs this pipeline as a stream, and streams on it have no %s. Use "
                + "another runner, such as --runner=FlinkRunner or --runner=PrismRunner, or a "
                + "GroupByKey in the place of state, and a constant or a join in that of a side "
                + "input. If each unbounded read of the pipeline ends by itself, say so by "
                + "--experiments=%s, without --streaming: the pipeline then runs as a batch.",
            String.join("; and no ", problems), SOURCES_END));
  }

  private static boolean keepsState(ParDoPayload payload) {
    return payload.getStateSpecsCount() > 0 || payload.getTimerFamilySpecsCount() > 0;
  }

  /** The names of the ParDos of which something is so. */
  private static List<String> named(Components components, Predicate<ParDoPayload> is) {
    List<String> names = new ArrayList<>();
    for (PTransform transform : components.getTransformsMap().values()) {
      if (PAR_DOS.contains(transform.getSpec().getUrn()) && is.test(payload(transform))) {
        names.add(transform.getUniqueName());
      }
    }
    names.sort(String::compareTo);
    return names;
  }

  /** Whether a splittable DoFn makes something unbounded of what is bounded. */
  private static boolean hasUnboundedReads(Components components) {
    return components.getTransformsMap().values().stream()
        .anyMatch(
            transform ->
                PAR_DOS.contains(transform.getSpec().getUrn())
                    && !payload(transform).getRestrictionCoderId().isEmpty()
                    && !anyUnbounded(components, transform.getInputsMap().values())
                    && anyUnbounded(components, transform.getOutputsMap().values()));
  }

  private static ParDoPayload payload(PTransform transform) {
    try {
      return ParDoPayload.parseFrom(transform.getSpec().getPayload());
    } catch (InvalidProtocolBufferException e) {
      throw new IllegalArgumentException(
          String.format("The ParDo %s cannot be read", transform.getUniqueName()), e);
    }
  }

  private static boolean anyUnbounded(Components components, Collection<String> pCollections) {
    return pCollections.stream()
        .anyMatch(
            id -> components.getPcollectionsOrThrow(id).getIsBounded() == IsBounded.Enum.UNBOUNDED);
  }
}
