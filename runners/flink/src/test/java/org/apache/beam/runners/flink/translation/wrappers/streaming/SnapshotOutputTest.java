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
import static org.hamcrest.Matchers.empty;
import static org.hamcrest.Matchers.is;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import org.apache.beam.runners.core.construction.SerializablePipelineOptions;
import org.apache.beam.runners.flink.FlinkPipelineOptions;
import org.apache.beam.sdk.coders.Coder;
import org.apache.beam.sdk.coders.StringUtf8Coder;
import org.apache.beam.sdk.transforms.DoFn;
import org.apache.beam.sdk.transforms.DoFnSchemaInformation;
import org.apache.beam.sdk.transforms.windowing.GlobalWindow;
import org.apache.beam.sdk.values.TupleTag;
import org.apache.beam.sdk.values.WindowedValue;
import org.apache.beam.sdk.values.WindowedValues;
import org.apache.beam.sdk.values.WindowingStrategy;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.util.OneInputStreamOperatorTestHarness;
import org.joda.time.Instant;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/**
 * Tests that what {@link DoFnOperator} keeps back during a snapshot is emitted after it, in Flink's
 * own harness of operators.
 */
@RunWith(JUnit4.class)
public class SnapshotOutputTest {

  /** Outputs what it got when its bundle ends, with the watermark that was then. */
  private static class OutputAtTheEnd extends DoFn<String, String> {
    private transient List<String> elements;

    @StartBundle
    public void startBundle() {
      elements = new ArrayList<>();
    }

    @ProcessElement
    public void process(@Element String element) {
      elements.add(element);
    }

    @FinishBundle
    public void finishBundle(FinishBundleContext context) {
      elements.forEach(element -> context.output(element, new Instant(5), GlobalWindow.INSTANCE));
    }
  }

  private OneInputStreamOperatorTestHarness<WindowedValue<String>, WindowedValue<String>> harness;
  private DoFnOperator<String, String, String> operator;

  @Before
  public void setUp() throws Exception {
    harness = newHarness();
    harness.open();
  }

  @After
  public void tearDown() throws Exception {
    harness.close();
  }

  private OneInputStreamOperatorTestHarness<WindowedValue<String>, WindowedValue<String>>
      newHarness() throws Exception {
    FlinkPipelineOptions options = FlinkPipelineOptions.defaults();
    options.setStreaming(true);
    options.setMaxBundleSize(1000L);
    options.setMaxBundleTimeMills(1_000_000L);
    TupleTag<String> tag = new TupleTag<>("main");
    Coder<WindowedValue<String>> coder =
        WindowedValues.getFullCoder(StringUtf8Coder.of(), GlobalWindow.Coder.INSTANCE);
    operator =
        new DoFnOperator<>(
            new OutputAtTheEnd(),
            "step",
            coder,
            Collections.emptyMap(),
            tag,
            Collections.emptyList(),
            new DoFnOperator.MultiOutputOutputManagerFactory<>(
                tag, coder, new SerializablePipelineOptions(options)),
            WindowingStrategy.globalDefault(),
            new HashMap<>(),
            Collections.emptyList(),
            options,
            null,
            null,
            DoFnSchemaInformation.create(),
            Collections.emptyMap());
    return new OneInputStreamOperatorTestHarness<>(operator);
  }

  private void process(String element) throws Exception {
    harness.processElement(new StreamRecord<>(WindowedValues.valueInGlobalWindow(element)));
  }

  /** What was emitted so far: values of elements, and watermarks as numbers. */
  private List<Object> emitted() {
    List<Object> found = new ArrayList<>();
    for (Object one : harness.getOutput()) {
      if (one instanceof Watermark) {
        found.add(((Watermark) one).getTimestamp());
      } else if (one instanceof StreamRecord) {
        found.add(((WindowedValue<?>) ((StreamRecord<?>) one).getValue()).getValue());
      }
    }
    return found;
  }

  @Test
  public void outputOfASnapshotIsEmittedAfterIt() throws Exception {
    process("a");
    harness.snapshot(1, 0);
    assertThat(emitted(), empty());
    harness.setProcessingTime(1);
    assertThat(emitted(), contains((Object) "a"));
  }

  @Test
  public void outputOfASnapshotIsEmittedOnce() throws Exception {
    process("a");
    harness.snapshot(1, 0);
    harness.setProcessingTime(1);
    process("b");
    harness.snapshot(2, 0);
    harness.setProcessingTime(2);
    harness.processWatermark(new Watermark(7));
    assertThat(emitted(), contains("a", "b", (Object) 7L));
  }

  @Test
  public void outputOfARestoredSnapshotIsEmitted() throws Exception {
    process("a");
    OperatorSubtaskState snapshot = harness.snapshot(1, 0);
    harness.close();
    harness = newHarness();
    harness.initializeState(snapshot);
    harness.open();
    assertThat(emitted(), empty());
    harness.setProcessingTime(1);
    assertThat(emitted(), contains((Object) "a"));
  }

  @Test
  public void watermarkDoesNotOvertakeTheOutput() throws Exception {
    process("a");
    // The bundle is under way: the watermark waits for its end.
    harness.processWatermark(new Watermark(9));
    assertThat(emitted().contains(9L), is(false));
    harness.snapshot(1, 0);
    harness.setProcessingTime(1);
    assertThat(emitted(), contains("a", (Object) 9L));
  }

  @Test
  public void watermarkOfTheEndOfABundleDoesNotOvertakeItsOutput() throws Exception {
    // As the operator of portable stages does.
    operator.setBundleFinishedCallback(
        () -> {
          try {
            operator.processWatermark1(new Watermark(9));
          } catch (Exception e) {
            throw new AssertionError(e);
          }
        });
    process("a");
    harness.snapshot(1, 0);
    assertThat(emitted(), empty());
    harness.setProcessingTime(1);
    assertThat(emitted(), contains("a", (Object) 9L));
  }

  @Test
  public void snapshotWithoutABundleEmitsNothing() throws Exception {
    harness.snapshot(1, 0);
    harness.setProcessingTime(1);
    assertThat(emitted(), empty());
  }
}
