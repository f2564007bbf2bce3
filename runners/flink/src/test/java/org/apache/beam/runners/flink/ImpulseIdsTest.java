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
package org.apache.beam.runners.flink;

import static org.junit.Assert.assertEquals;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.beam.runners.flink.translation.functions.ImpulseSourceFunction;
import org.apache.beam.runners.fnexecution.provisioning.JobInfo;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.options.PortablePipelineOptions;
import org.apache.beam.sdk.transforms.DoFn;
import org.apache.beam.sdk.transforms.Impulse;
import org.apache.beam.sdk.transforms.ParDo;
import org.apache.beam.sdk.util.construction.Environments;
import org.apache.beam.sdk.util.construction.PipelineOptionsTranslation;
import org.apache.beam.sdk.util.construction.PipelineTranslation;
import org.apache.beam.sdk.values.WindowedValue;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.runtime.OperatorIDPair;
import org.apache.flink.runtime.jobgraph.JobVertex;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.DiscardingSink;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/** A job that is restored finds the state of its sources, whatever its parallelism is. */
@RunWith(JUnit4.class)
public class ImpulseIdsTest {

  private static class Same extends DoFn<byte[], byte[]> {
    @ProcessElement
    public void process(@Element byte[] element, OutputReceiver<byte[]> output) {
      output.output(element);
    }
  }

  /** The heads of the chains that begin a job. */
  private static List<OperatorIDPair> sourcesOf(StreamExecutionEnvironment environment) {
    List<OperatorIDPair> found = new ArrayList<>();
    for (JobVertex vertex : environment.getStreamGraph().getJobGraph().getVertices()) {
      if (vertex.isInputVertex()) {
        // The last of a chain is its head.
        found.add(vertex.getOperatorIDs().get(vertex.getOperatorIDs().size() - 1));
      }
    }
    return found;
  }

  /** The sources of a translated job with two impulses. */
  private static List<OperatorIDPair> impulses(int parallelism) {
    FlinkPipelineOptions options = PipelineOptionsFactory.as(FlinkPipelineOptions.class);
    options.setStreaming(true);
    options.setRunner(FlinkRunner.class);
    options
        .as(PortablePipelineOptions.class)
        .setDefaultEnvironmentType(Environments.ENVIRONMENT_EMBEDDED);
    Pipeline pipeline = Pipeline.create(options);
    for (String name : new String[] {"one", "two"}) {
      pipeline.apply("begin " + name, Impulse.create()).apply("same " + name, ParDo.of(new Same()));
    }
    StreamExecutionEnvironment environment =
        StreamExecutionEnvironment.createLocalEnvironment(parallelism);
    FlinkStreamingPortablePipelineTranslator translator =
        new FlinkStreamingPortablePipelineTranslator();
    translator.translate(
        translator.createTranslationContext(
            JobInfo.create("job", "job", "", PipelineOptionsTranslation.toProto(options)),
            options,
            environment),
        translator.prepareForTranslation(PipelineTranslation.toProto(pipeline)));
    return sourcesOf(environment);
  }

  /** The ids of two sources that Flink makes when stages of this parallelism follow them. */
  private static Set<String> madeByFlink(int parallelism) {
    StreamExecutionEnvironment environment =
        StreamExecutionEnvironment.createLocalEnvironment(parallelism);
    for (int source = 0; source < 2; source++) {
      environment
          .addSource(new ImpulseSourceFunction(0))
          .returns(TypeInformation.of(new TypeHint<WindowedValue<byte[]>>() {}))
          .addSink(new DiscardingSink<>());
    }
    return idsOf(sourcesOf(environment));
  }

  private static Set<String> idsOf(List<OperatorIDPair> sources) {
    Set<String> ids = new HashSet<>();
    for (OperatorIDPair source : sources) {
      ids.add(source.getGeneratedOperatorID().toString());
    }
    return ids;
  }

  private static Set<String> olderIdsOf(List<OperatorIDPair> sources) {
    Set<String> ids = new HashSet<>();
    for (OperatorIDPair source : sources) {
      ids.add(source.getUserDefinedOperatorID().get().toString());
    }
    return ids;
  }

  @Test
  public void testIdsAreTheSameAtAnyParallelism() {
    Set<String> ids = idsOf(impulses(1));
    assertEquals(2, ids.size());
    assertEquals(ids, idsOf(impulses(2)));
    assertEquals(ids, idsOf(impulses(7)));
  }

  @Test
  public void testCheckpointsOfOlderReleasesAreFound() {
    // At parallelism 1 something was chained to them, at any other nothing was.
    for (int parallelism : new int[] {1, 2}) {
      assertEquals(madeByFlink(1), olderIdsOf(impulses(parallelism)));
      assertEquals(madeByFlink(2), idsOf(impulses(parallelism)));
    }
  }
}
