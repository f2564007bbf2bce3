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

import static org.hamcrest.MatcherAssert.assertThat;
import static org.hamcrest.Matchers.allOf;
import static org.hamcrest.Matchers.containsString;
import static org.hamcrest.Matchers.is;
import static org.hamcrest.Matchers.not;
import static org.junit.Assert.assertThrows;

import org.apache.beam.model.pipeline.v1.RunnerApi;
import org.apache.beam.model.pipeline.v1.RunnerApi.Components;
import org.apache.beam.model.pipeline.v1.RunnerApi.FunctionSpec;
import org.apache.beam.model.pipeline.v1.RunnerApi.IsBounded;
import org.apache.beam.model.pipeline.v1.RunnerApi.PCollection;
import org.apache.beam.model.pipeline.v1.RunnerApi.PTransform;
import org.apache.beam.model.pipeline.v1.RunnerApi.ParDoPayload;
import org.apache.beam.model.pipeline.v1.RunnerApi.SideInput;
import org.apache.beam.model.pipeline.v1.RunnerApi.StateSpec;
import org.apache.beam.model.pipeline.v1.RunnerApi.TimerFamilySpec;
import org.apache.beam.sdk.options.ExperimentalOptions;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.util.construction.PTransformTranslation;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.ByteString;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/** Tests of {@link PortableMode}. */
@RunWith(JUnit4.class)
public class PortableModeTest {

  private final Components.Builder components = Components.newBuilder();
  private final SparkPipelineOptions options =
      PipelineOptionsFactory.as(SparkPipelineOptions.class);

  private void pCollection(String id, IsBounded.Enum bounded) {
    components.putPcollections(id, PCollection.newBuilder().setIsBounded(bounded).build());
  }

  private void parDo(String name, String urn, String input, String output, ParDoPayload payload) {
    components.putTransforms(
        "id of " + name,
        PTransform.newBuilder()
            .setUniqueName(name)
            .setSpec(FunctionSpec.newBuilder().setUrn(urn).setPayload(payload.toByteString()))
            .putInputs("in", input)
            .putOutputs("out", output)
            .build());
  }

  private void read(String name, String urn, String input, String output, String restriction) {
    parDo(
        name,
        urn,
        input,
        output,
        ParDoPayload.newBuilder().setRestrictionCoderId(restriction).build());
  }

  private void map(String name, ParDoPayload.Builder payload) {
    parDo(
        name,
        PTransformTranslation.PAR_DO_TRANSFORM_URN,
        "unbounded",
        "unbounded",
        payload.build());
  }

  private void splittable(String name, String input, String output) {
    read(name, PTransformTranslation.PAR_DO_TRANSFORM_URN, input, output, "coder");
  }

  private RunnerApi.Pipeline pipeline() {
    pCollection("bounded", IsBounded.Enum.BOUNDED);
    pCollection("unbounded", IsBounded.Enum.UNBOUNDED);
    return RunnerApi.Pipeline.newBuilder().setComponents(components).build();
  }

  @Test
  public void whatIsBoundedIsABatchUnlessOptionsSayOtherwise() {
    splittable("read files", "bounded", "bounded");
    assertThat(PortableMode.isStreaming(pipeline(), options), is(true));
    components.removePcollections("unbounded");
    RunnerApi.Pipeline bounded = RunnerApi.Pipeline.newBuilder().setComponents(components).build();
    assertThat(PortableMode.isStreaming(bounded, options), is(false));
    options.setStreaming(true);
    assertThat(PortableMode.isStreaming(bounded, options), is(true));
  }

  private String refused() {
    return assertThrows(
            UnsupportedOperationException.class,
            () -> PortableMode.isStreaming(pipeline(), options))
        .getMessage();
  }

  @Test
  public void whatAStreamCannotDoIsRefusedByItsName() {
    splittable("read queue", "bounded", "unbounded");
    assertThat(PortableMode.isStreaming(pipeline(), options), is(true));
    map("count", ParDoPayload.newBuilder().putStateSpecs("s", StateSpec.getDefaultInstance()));
    map(
        "alarm",
        ParDoPayload.newBuilder().putTimerFamilySpecs("t", TimerFamilySpec.getDefaultInstance()));
    assertThat(
        refused(),
        allOf(
            containsString("have no state or timers: alarm, count."),
            containsString("--runner=FlinkRunner"),
            containsString("--experiments=" + PortableMode.SOURCES_END),
            not(containsString("read queue")),
            not(containsString("side inputs:"))));
    map("rate", ParDoPayload.newBuilder().putSideInputs("r", SideInput.getDefaultInstance()));
    assertThat(
        refused(), containsString("no state or timers: alarm, count; and no side inputs: rate."));
  }

  @Test
  public void aBatchCanDoAll() {
    map("count", ParDoPayload.newBuilder().putStateSpecs("s", StateSpec.getDefaultInstance()));
    components.putTransforms("other", PTransform.newBuilder().setUniqueName("not a ParDo").build());
    components.removePcollections("unbounded");
    RunnerApi.Pipeline bounded = RunnerApi.Pipeline.newBuilder().setComponents(components).build();
    assertThat(PortableMode.isStreaming(bounded, options), is(false));
    options.setStreaming(true);
    assertThrows(
        UnsupportedOperationException.class, () -> PortableMode.isStreaming(bounded, options));
  }

  @Test
  public void whatEndsIsABatch() {
    splittable("read queue", "bounded", "unbounded");
    ExperimentalOptions.addExperiment(
        options.as(ExperimentalOptions.class), PortableMode.SOURCES_END);
    assertThat(PortableMode.isStreaming(pipeline(), options), is(false));
    options.setStreaming(true);
    assertThat(PortableMode.isStreaming(pipeline(), options), is(true));
  }

  private boolean runsAsAStreamThoughAllEnds() {
    ExperimentalOptions.addExperiment(
        options.as(ExperimentalOptions.class), PortableMode.SOURCES_END);
    return PortableMode.isStreaming(pipeline(), options);
  }

  @Test
  public void readsThatWereExpandedBeforeAreFoundToo() {
    read(
        "read queue",
        PTransformTranslation.SPLITTABLE_PROCESS_SIZED_ELEMENTS_AND_RESTRICTIONS_URN,
        "bounded",
        "unbounded",
        "coder");
    assertThat(runsAsAStreamThoughAllEnds(), is(false));
  }

  @Test
  public void whatIsUnboundedButNotReadByASplittableDoFnIsAStream() {
    read("map", PTransformTranslation.PAR_DO_TRANSFORM_URN, "bounded", "unbounded", "");
    read("composite", "beam:transform:other:v1", "bounded", "unbounded", "coder");
    splittable("read what the queue names", "unbounded", "unbounded");
    assertThat(runsAsAStreamThoughAllEnds(), is(true));
  }

  @Test
  public void aParDoThatCannotBeReadIsAnError() {
    splittable("read queue", "bounded", "unbounded");
    PTransform.Builder broken = components.getTransformsOrThrow("id of read queue").toBuilder();
    broken.getSpecBuilder().setPayload(ByteString.copyFromUtf8("?"));
    components.putTransforms("id of read queue", broken.build());
    Exception e =
        assertThrows(
            IllegalArgumentException.class, () -> PortableMode.isStreaming(pipeline(), options));
    assertThat(e.getMessage(), containsString("read queue"));
  }
}
