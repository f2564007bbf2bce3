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
package org.apache.beam.runners.flink.translation.wrappers.streaming;

import static org.hamcrest.MatcherAssert.assertThat;
import static org.hamcrest.Matchers.contains;
import static org.hamcrest.Matchers.is;
import static org.junit.Assert.assertEquals;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.apache.beam.runners.core.SideInputHandler;
import org.apache.beam.runners.core.construction.SerializablePipelineOptions;
import org.apache.beam.runners.flink.FlinkPipelineOptions;
import org.apache.beam.runners.flink.FlinkRunner;
import org.apache.beam.runners.flink.FlinkStreamingPortablePipelineTranslator;
import org.apache.beam.runners.flink.translation.wrappers.streaming.state.FlinkBroadcastStateInternals;
import org.apache.beam.runners.fnexecution.provisioning.JobInfo;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.options.PortablePipelineOptions;
import org.apache.beam.sdk.transforms.DoFn;
import org.apache.beam.sdk.transforms.Impulse;
import org.apache.beam.sdk.transforms.ParDo;
import org.apache.beam.sdk.transforms.View;
import org.apache.beam.sdk.transforms.windowing.GlobalWindow;
import org.apache.beam.sdk.util.construction.Environments;
import org.apache.beam.sdk.util.construction.PipelineOptionsTranslation;
import org.apache.beam.sdk.util.construction.PipelineTranslation;
import org.apache.beam.sdk.values.PCollectionView;
import org.apache.beam.sdk.values.WindowedValues;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.graph.StreamNode;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.util.OneInputStreamOperatorTestHarness;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/** Tests that a side input of a portable stage is in a snapshot, and is what it was after it. */
@RunWith(JUnit4.class)
public class SideInputSnapshotTest {

  private static final FlinkPipelineOptions OPTIONS =
      PipelineOptionsFactory.as(FlinkPipelineOptions.class);

  private static class Begin extends DoFn<byte[], String> {
    @ProcessElement
    public void process(OutputReceiver<String> output) {
      output.output("begin");
    }
  }

  private static class Same extends DoFn<byte[], byte[]> {
    @ProcessElement
    public void process(@Element byte[] element, OutputReceiver<byte[]> output) {
      output.output(element);
    }
  }

  /** The side input of the one stage of a translated job that has one. */
  private static PCollectionView<?> translatedView() {
    OPTIONS.setStreaming(true);
    OPTIONS.setRunner(FlinkRunner.class);
    OPTIONS
        .as(PortablePipelineOptions.class)
        .setDefaultEnvironmentType(Environments.ENVIRONMENT_EMBEDDED);
    Pipeline pipeline = Pipeline.create(OPTIONS);
    PCollectionView<Iterable<String>> side =
        pipeline
            .apply("begin side", Impulse.create())
            .apply(ParDo.of(new Begin()))
            .apply(View.asIterable());
    pipeline
        .apply("begin main", Impulse.create())
        .apply("with a side input", ParDo.of(new Same()).withSideInput("side", side));
    StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(1);
    FlinkStreamingPortablePipelineTranslator translator =
        new FlinkStreamingPortablePipelineTranslator();
    translator.translate(
        translator.createTranslationContext(
            JobInfo.create("job", "job", "", PipelineOptionsTranslation.toProto(OPTIONS)),
            OPTIONS,
            environment),
        translator.prepareForTranslation(PipelineTranslation.toProto(pipeline)));
    List<PCollectionView<?>> found = new ArrayList<>();
    for (StreamNode node : environment.getStreamGraph().getStreamNodes()) {
      if (node.getOperator() instanceof ExecutableStageDoFnOperator) {
        found.addAll(((ExecutableStageDoFnOperator<?, ?>) node.getOperator()).sideInputs);
      }
    }
    assertEquals(1, found.size());
    return found.get(0);
  }

  /** Keeps a side input where the operator of stages keeps it. */
  private static class Keeping extends AbstractStreamOperator<Object>
      implements OneInputStreamOperator<Iterable<?>, Object> {

    private final PCollectionView<?> view;
    transient SideInputHandler handler;

    Keeping(PCollectionView<?> view) {
      this.view = view;
    }

    @Override
    public void open() throws Exception {
      super.open();
      handler =
          new SideInputHandler(
              Collections.singletonList(view),
              new FlinkBroadcastStateInternals<>(
                  0, getOperatorStateBackend(), new SerializablePipelineOptions(OPTIONS)));
    }

    @Override
    public void processElement(StreamRecord<Iterable<?>> values) {
      handler.addSideInputValue(view, WindowedValues.valueInGlobalWindow(values.getValue()));
    }
  }

  @Test
  public void testSideInputIsRestoredFromASnapshot() throws Exception {
    PCollectionView<?> view = translatedView();
    OperatorSubtaskState snapshot;
    try (OneInputStreamOperatorTestHarness<Iterable<?>, Object> harness =
        new OneInputStreamOperatorTestHarness<>(new Keeping(view))) {
      harness.open();
      harness.processElement(new StreamRecord<>(Arrays.asList("a", "b")));
      snapshot = harness.snapshot(1, 0);
    }
    Keeping restored = new Keeping(view);
    try (OneInputStreamOperatorTestHarness<Iterable<?>, Object> harness =
        new OneInputStreamOperatorTestHarness<>(restored)) {
      harness.initializeState(snapshot);
      harness.open();
      assertThat(restored.handler.isReady(view, GlobalWindow.INSTANCE), is(true));
      List<Object> values = new ArrayList<>();
      restored.handler.getIterable(view, GlobalWindow.INSTANCE).forEach(values::add);
      assertThat(values, contains("a", "b"));
    }
  }
}
