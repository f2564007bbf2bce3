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
package org.apache.beam.runners.fnexecution.translation;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNull;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.beam.model.pipeline.v1.RunnerApi;
import org.apache.beam.model.pipeline.v1.RunnerApi.Components;
import org.apache.beam.model.pipeline.v1.RunnerApi.ComponentsOrBuilder;
import org.apache.beam.model.pipeline.v1.RunnerApi.MessageWithComponents;
import org.apache.beam.model.pipeline.v1.RunnerApi.PTransform;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.coders.Coder;
import org.apache.beam.sdk.coders.VarLongCoder;
import org.apache.beam.sdk.io.range.OffsetRange;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.options.PortablePipelineOptions;
import org.apache.beam.sdk.testing.CrashingRunner;
import org.apache.beam.sdk.transforms.DoFn;
import org.apache.beam.sdk.transforms.Impulse;
import org.apache.beam.sdk.transforms.ParDo;
import org.apache.beam.sdk.transforms.splittabledofn.OffsetRangeTracker;
import org.apache.beam.sdk.transforms.splittabledofn.RestrictionTracker;
import org.apache.beam.sdk.transforms.splittabledofn.SplitResult;
import org.apache.beam.sdk.util.construction.Environments;
import org.apache.beam.sdk.util.construction.PTransformTranslation;
import org.apache.beam.sdk.util.construction.PipelineTranslation;
import org.apache.beam.sdk.util.construction.graph.ProtoOverrides;
import org.apache.beam.sdk.util.construction.graph.SplittableParDoExpander;
import org.apache.beam.sdk.values.PCollection;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/** Tests that several splittable DoFns of one pipeline keep what each was expanded to. */
@RunWith(JUnit4.class)
public class SuccessiveReplacementTest {

  /** Reads a range of numbers. */
  private static class ReadRange extends DoFn<byte[], Long> {
    @ProcessElement
    public void process(RestrictionTracker<OffsetRange, Long> tracker, OutputReceiver<Long> out) {
      for (long n = tracker.currentRestriction().getFrom(); tracker.tryClaim(n); n++) {
        out.output(n);
      }
    }

    @GetInitialRestriction
    public OffsetRange initial() {
      return new OffsetRange(0, 5);
    }

    @NewTracker
    public OffsetRangeTracker tracker(@Restriction OffsetRange range) {
      return new OffsetRangeTracker(range);
    }
  }

  /** Claims a number once. */
  private static class OnceTracker extends RestrictionTracker<Long, Long> {
    private final Long number;

    OnceTracker(Long number) {
      this.number = number;
    }

    @Override
    public boolean tryClaim(Long position) {
      return true;
    }

    @Override
    public Long currentRestriction() {
      return number;
    }

    @Override
    public SplitResult<Long> trySplit(double fraction) {
      return null;
    }

    @Override
    public void checkDone() {}

    @Override
    public IsBounded isBounded() {
      return IsBounded.BOUNDED;
    }
  }

  /** Has restrictions with another coder. */
  private static class ReadOnce extends DoFn<byte[], Long> {
    @ProcessElement
    public void process(RestrictionTracker<Long, Long> tracker, OutputReceiver<Long> out) {
      tracker.tryClaim(0L);
      out.output(tracker.currentRestriction());
    }

    @GetInitialRestriction
    public Long initial() {
      return 42L;
    }

    @GetRestrictionCoder
    public Coder<Long> coder() {
      return VarLongCoder.of();
    }

    @NewTracker
    public OnceTracker tracker(@Restriction Long number) {
      return new OnceTracker(number);
    }
  }

  private static Pipeline newPipeline() {
    PortablePipelineOptions options = PipelineOptionsFactory.as(PortablePipelineOptions.class);
    options.setRunner(CrashingRunner.class);
    options.setDefaultEnvironmentType(Environments.ENVIRONMENT_EMBEDDED);
    return Pipeline.create(options);
  }

  private static Components expand(Pipeline pipeline) {
    return ProtoOverrides.updateTransform(
            PTransformTranslation.PAR_DO_TRANSFORM_URN,
            PipelineTranslation.toProto(pipeline),
            SuccessiveReplacement.of(SplittableParDoExpander.createSizedReplacement()))
        .getComponents();
  }

  /** The restriction coders of both reads, by the kind of their expansions' first outputs. */
  private static Map<String, String> restrictionCoders(Components components) {
    Map<String, String> found = new HashMap<>();
    for (PTransform transform : components.getTransformsMap().values()) {
      if (transform
          .getSpec()
          .getUrn()
          .equals(PTransformTranslation.SPLITTABLE_PAIR_WITH_RESTRICTION_URN)) {
        String output = transform.getOutputsOrThrow("out");
        RunnerApi.Coder pair =
            components.getCodersOrThrow(components.getPcollectionsOrThrow(output).getCoderId());
        // The pair of an element with its restriction and the state of its watermark.
        RunnerApi.Coder restriction = components.getCodersOrThrow(pair.getComponentCoderIds(1));
        String restrictionId =
            restriction.getComponentCoderIdsCount() > 0
                ? restriction.getComponentCoderIds(0)
                : pair.getComponentCoderIds(1);
        found.put(transform.getUniqueName().substring(0, 4), restrictionId);
      }
    }
    return found;
  }

  private static void assertEachIsMadeOnce(Components components) {
    Map<String, List<String>> producers = new HashMap<>();
    for (Map.Entry<String, PTransform> entry : components.getTransformsMap().entrySet()) {
      if (entry.getValue().getSubtransformsCount() == 0) {
        for (String output : entry.getValue().getOutputsMap().values()) {
          producers.computeIfAbsent(output, id -> new ArrayList<>()).add(entry.getKey());
        }
      }
    }
    producers.forEach((id, by) -> assertEquals(id + " of " + by, 1, by.size()));
  }

  @Test
  public void testTwoReadsOfOnePCollection() {
    Pipeline pipeline = newPipeline();
    PCollection<byte[]> begin = pipeline.apply(Impulse.create());
    begin.apply("many", ParDo.of(new ReadRange()));
    begin.apply("once", ParDo.of(new ReadOnce()));
    Components expanded = expand(pipeline);
    assertEachIsMadeOnce(expanded);
    assertRightCoders(expanded);
  }

  @Test
  public void testTwoReadsWithInputsOfOneCoder() {
    Pipeline pipeline = newPipeline();
    pipeline.apply("begin many", Impulse.create()).apply("many", ParDo.of(new ReadRange()));
    pipeline.apply("begin once", Impulse.create()).apply("once", ParDo.of(new ReadOnce()));
    Components expanded = expand(pipeline);
    assertEachIsMadeOnce(expanded);
    assertRightCoders(expanded);
  }

  private static void assertRightCoders(Components expanded) {
    Map<String, String> coders = restrictionCoders(expanded);
    assertEquals(2, coders.size());
    assertEquals(
        "beam:coder:varint:v1", expanded.getCodersOrThrow(coders.get("once")).getSpec().getUrn());
    assertEquals(
        "beam:coders:javasdk:0.1",
        expanded.getCodersOrThrow(coders.get("many")).getSpec().getUrn());
  }

  @Test
  public void testEachPipelineBeginsAnew() {
    List<Integer> seen = new ArrayList<>();
    SuccessiveReplacement counting =
        SuccessiveReplacement.of(
            (id, existing) -> {
              seen.add(existing.getCodersCount());
              return id.equals("none") ? null : adding(existing);
            });
    Components one = Components.getDefaultInstance();
    assertNull(counting.getReplacement("none", one));
    assertEquals(1, counting.getReplacement("some", one).getComponents().getCodersCount());
    counting.getReplacement("more", one);
    ComponentsOrBuilder other =
        Components.newBuilder().putCoders("x", RunnerApi.Coder.getDefaultInstance());
    counting.getReplacement("again", other);
    assertEquals(Arrays.asList(0, 0, 1, 1), seen);
    assertEquals(1, other.getCodersCount());
  }

  private static MessageWithComponents adding(ComponentsOrBuilder existing) {
    MessageWithComponents.Builder made = MessageWithComponents.newBuilder();
    made.getComponentsBuilder()
        .putCoders("coder " + existing.getCodersCount(), RunnerApi.Coder.getDefaultInstance());
    return made.build();
  }
}
