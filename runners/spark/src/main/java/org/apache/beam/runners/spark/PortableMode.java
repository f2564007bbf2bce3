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
 * <p>A stage on Spark gives its output when all that it reads has been read, in a micro-batch too.
 * A splittable DoFn that never ends would keep Spark busy and give nothing, so it is refused before
 * anything runs. Whether one that may be unbounded ends only its author knows: the experiment
 * {@value #SOURCES_END} says so for all of a pipeline.
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
   * @throws UnsupportedOperationException if the pipeline reads without an end; the message names
   *     the transforms that do
   */
  static boolean isStreaming(RunnerApi.Pipeline pipeline, SparkPipelineOptions options) {
    List<String> unbounded = unboundedReads(pipeline.getComponents());
    if (unbounded.isEmpty()) {
      return options.isStreaming() || PipelineTranslatorUtils.hasUnboundedPCollections(pipeline);
    }
    if (ExperimentalOptions.hasExperiment(options, SOURCES_END)) {
      return options.isStreaming();
    }
    throw new UnsupportedOperationException(
        String.format(
            "Portable Spark cannot run what reads without an end, for it gives nothing before the "
                + "end: %s. Use another runner, such as --runner=FlinkRunner or "
                + "--runner=PrismRunner, or a read that is bounded. If each of these ends by "
                + "itself, say so by --experiments=%s: the pipeline then runs as a batch.",
            String.join(", ", unbounded), SOURCES_END));
  }

  /** The names of splittable DoFns that make something unbounded of what is bounded. */
  static List<String> unboundedReads(Components components) {
    List<String> names = new ArrayList<>();
    for (PTransform transform : components.getTransformsMap().values()) {
      if (PAR_DOS.contains(transform.getSpec().getUrn())
          && isSplittable(transform)
          && !anyUnbounded(components, transform.getInputsMap().values())
          && anyUnbounded(components, transform.getOutputsMap().values())) {
        names.add(transform.getUniqueName());
      }
    }
    names.sort(String::compareTo);
    return names;
  }

  private static boolean isSplittable(PTransform transform) {
    try {
      return !ParDoPayload.parseFrom(transform.getSpec().getPayload())
          .getRestrictionCoderId()
          .isEmpty();
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
