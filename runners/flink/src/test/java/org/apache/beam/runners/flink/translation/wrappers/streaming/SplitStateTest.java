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
import static org.hamcrest.Matchers.containsInAnyOrder;
import static org.hamcrest.Matchers.greaterThan;
import static org.hamcrest.Matchers.hasSize;
import static org.hamcrest.Matchers.is;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.BundleApplication;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.DelayedBundleApplication;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.InstructionRequest;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.InstructionResponse;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.ProcessBundleDescriptor;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.ProcessBundleResponse;
import org.apache.beam.model.pipeline.v1.RunnerApi;
import org.apache.beam.runners.core.construction.SerializablePipelineOptions;
import org.apache.beam.runners.flink.FlinkPipelineOptions;
import org.apache.beam.runners.flink.adapter.FlinkKey;
import org.apache.beam.runners.flink.translation.functions.FlinkExecutableStageContextFactory;
import org.apache.beam.runners.fnexecution.control.BundleCheckpointHandler;
import org.apache.beam.runners.fnexecution.control.BundleFinalizationHandler;
import org.apache.beam.runners.fnexecution.control.BundleProgressHandler;
import org.apache.beam.runners.fnexecution.control.ExecutableStageContext;
import org.apache.beam.runners.fnexecution.control.InstructionRequestHandler;
import org.apache.beam.runners.fnexecution.control.OutputReceiverFactory;
import org.apache.beam.runners.fnexecution.control.ProcessBundleDescriptors.ExecutableProcessBundleDescriptor;
import org.apache.beam.runners.fnexecution.control.RemoteBundle;
import org.apache.beam.runners.fnexecution.control.StageBundleFactory;
import org.apache.beam.runners.fnexecution.control.TimerReceiverFactory;
import org.apache.beam.runners.fnexecution.provisioning.JobInfo;
import org.apache.beam.runners.fnexecution.state.StateRequestHandler;
import org.apache.beam.sdk.coders.Coder;
import org.apache.beam.sdk.coders.DoubleCoder;
import org.apache.beam.sdk.coders.KvCoder;
import org.apache.beam.sdk.coders.StringUtf8Coder;
import org.apache.beam.sdk.coders.VarLongCoder;
import org.apache.beam.sdk.fn.data.FnDataReceiver;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.beam.sdk.transforms.windowing.GlobalWindow;
import org.apache.beam.sdk.util.CoderUtils;
import org.apache.beam.sdk.util.construction.PTransformTranslation;
import org.apache.beam.sdk.util.construction.Timer;
import org.apache.beam.sdk.util.construction.graph.ExecutableStage;
import org.apache.beam.sdk.values.KV;
import org.apache.beam.sdk.values.TupleTag;
import org.apache.beam.sdk.values.WindowedValue;
import org.apache.beam.sdk.values.WindowedValues;
import org.apache.beam.sdk.values.WindowingStrategy;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.ByteString;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Duration;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Struct;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Timestamp;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.typeutils.ValueTypeInfo;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.util.AbstractStreamOperatorTestHarness;
import org.apache.flink.streaming.util.KeyedOneInputStreamOperatorTestHarness;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/**
 * Tests that splits go on from a snapshot, whatever the parallelism is then: the operator of
 * splittable stages in Flink's own harness, with the answers of an SDK.
 */
@RunWith(JUnit4.class)
public class SplitStateTest {

  private static final String JOB = "SplitStateTest";
  private static final int KEY_GROUPS = 128;
  private static final Coder<KV<KV<String, Long>, Double>> SPLIT_CODER =
      KvCoder.of(KvCoder.of(StringUtf8Coder.of(), VarLongCoder.of()), DoubleCoder.of());
  private static final Coder<WindowedValue<KV<KV<String, Long>, Double>>> CODER =
      WindowedValues.getFullCoder(SPLIT_CODER, GlobalWindow.Coder.INSTANCE);

  private static final long START = System.currentTimeMillis();

  /** What is left at an hour is due half an hour later, until when nothing is resumed. */
  private static int hour = 0;

  /** Splits from here on have nothing for now. */
  private static final long WAITS = 10_000;

  /** Whether the splits have ended, as they must to let a subtask end. */
  private static boolean over = false;

  private static long now() {
    return START + hour * 3_600_000L;
  }

  /** Seconds that a split asks to wait for: to the next hour, or longer than any test looks. */
  private static long delay(long split) {
    return split < WAITS ? hour * 3600L + 1800 : 1_000_000L;
  }

  /** One subtask. */
  private static class Subtask
      extends KeyedOneInputStreamOperatorTestHarness<
          FlinkKey,
          WindowedValue<KV<KV<String, Long>, Double>>,
          WindowedValue<KV<KV<String, Long>, Double>>> {

    Subtask(
        KeySelector<WindowedValue<KV<KV<String, Long>, Double>>, FlinkKey> keys,
        Coder<?> keyCoder,
        int parallelism,
        int index)
        throws Exception {
      super(
          operator(keys, keyCoder),
          keys,
          ValueTypeInfo.of(FlinkKey.class),
          KEY_GROUPS,
          parallelism,
          index);
    }

    Subtask(int parallelism, int index) throws Exception {
      this(new SubtaskKeys<>(), AnyKeyCoder.of(), parallelism, index);
    }

    /** Goes on from a snapshot of so many subtasks, or of none. */
    Subtask begin(OperatorSubtaskState snapshot, int parallelismBefore) throws Exception {
      setProcessingTime(now());
      if (snapshot != null) {
        initializeState(
            repartitionOperatorState(
                snapshot,
                KEY_GROUPS,
                parallelismBefore,
                getEnvironment().getTaskInfo().getNumberOfParallelSubtasks(),
                getEnvironment().getTaskInfo().getIndexOfThisSubtask()));
      }
      open();
      return this;
    }

    void read(long split) throws Exception {
      processElement(
          new StreamRecord<>(
              WindowedValues.valueInGlobalWindow(KV.of(KV.of("source", split), 1.0))));
    }

    /** Ends the bundle under way, and resumes what is left of each split for one record. */
    void resume() throws Exception {
      checkpoint();
      hour++;
      setProcessingTime(now());
    }

    /** Ends the bundle under way, and emits what was kept back. */
    OperatorSubtaskState checkpoint() throws Exception {
      OperatorSubtaskState snapshot = snapshot(checkpoints++, 0);
      setProcessingTime(now());
      return snapshot;
    }

    private long checkpoints = 1;

    /** The records since this was asked last. */
    List<Long> records() {
      List<Long> found = new ArrayList<>();
      for (Object one : getOutput()) {
        if (one instanceof StreamRecord) {
          found.add(
              ((WindowedValue<KV<KV<String, Long>, Double>>) ((StreamRecord<?>) one).getValue())
                  .getValue()
                  .getKey()
                  .getValue());
        }
      }
      getOutput().removeIf(one -> one instanceof StreamRecord);
      return found;
    }

    /** The latest watermark; null if there is none. */
    Long watermark() {
      Long found = null;
      for (Object one : getOutput()) {
        found = one instanceof Watermark ? (Long) ((Watermark) one).getTimestamp() : found;
      }
      return found;
    }
  }

  private static ExecutableStageDoFnOperator<
          KV<KV<String, Long>, Double>, KV<KV<String, Long>, Double>>
      operator(
          KeySelector<WindowedValue<KV<KV<String, Long>, Double>>, ?> keys, Coder<?> keyCoder) {
    FlinkPipelineOptions options = FlinkPipelineOptions.defaults();
    options.setStreaming(true);
    options.setMaxBundleSize(1000L);
    options.setMaxBundleTimeMills(1_000_000_000_000L);
    TupleTag<KV<KV<String, Long>, Double>> tag = new TupleTag<>("records");
    return new ExecutableStageDoFnOperator<>(
        "read",
        CODER,
        Collections.emptyMap(),
        tag,
        Collections.emptyList(),
        new DoFnOperator.MultiOutputOutputManagerFactory<>(
            tag, CODER, new SerializablePipelineOptions(options)),
        Collections.emptyMap(),
        Collections.emptyList(),
        Collections.emptyMap(),
        options,
        stage(),
        JobInfo.create(JOB, JOB, "", Struct.getDefaultInstance()),
        FlinkExecutableStageContextFactory.getInstance(),
        Collections.singletonMap("records", tag),
        WindowingStrategy.globalDefault(),
        keyCoder,
        keys);
  }

  private static RunnerApi.ExecutableStagePayload stage() {
    RunnerApi.PTransform read =
        RunnerApi.PTransform.newBuilder()
            .setUniqueName("read")
            .setSpec(
                RunnerApi.FunctionSpec.newBuilder()
                    .setUrn(
                        PTransformTranslation
                            .SPLITTABLE_PROCESS_SIZED_ELEMENTS_AND_RESTRICTIONS_URN))
            .putInputs("input", "splits")
            .putOutputs("output", "records")
            .build();
    return RunnerApi.ExecutableStagePayload.newBuilder()
        .setInput("splits")
        .addOutputs("records")
        .addTransforms("read")
        .setEnvironment(RunnerApi.Environment.newBuilder().setUrn("beam:env:test"))
        .setComponents(
            RunnerApi.Components.newBuilder()
                .putTransforms("read", read)
                .putPcollections("splits", RunnerApi.PCollection.getDefaultInstance())
                .putPcollections("records", RunnerApi.PCollection.getDefaultInstance()))
        .build();
  }

  /** Reads one record of each split in a bundle, and leaves the rest: a split is a number. */
  private static class Sdk implements ExecutableStageContext, StageBundleFactory {

    @Override
    public StageBundleFactory getStageBundleFactory(ExecutableStage executableStage) {
      return this;
    }

    @Override
    public RemoteBundle getBundle(
        OutputReceiverFactory outputs,
        TimerReceiverFactory timers,
        StateRequestHandler states,
        BundleProgressHandler progress,
        BundleFinalizationHandler finalization,
        BundleCheckpointHandler checkpoints) {
      ProcessBundleResponse.Builder response = ProcessBundleResponse.newBuilder();
      FnDataReceiver<WindowedValue<KV<KV<String, Long>, Double>>> input =
          element -> {
            if (over) {
              return;
            }
            outputs.create("records").accept(element);
            KV<String, Long> split = element.getValue().getKey();
            WindowedValue<KV<KV<String, Long>, Double>> rest =
                element.withValue(KV.of(KV.of(split.getKey(), split.getValue() + 1), 1.0));
            response.addResidualRoots(
                DelayedBundleApplication.newBuilder()
                    .setRequestedTimeDelay(
                        Duration.newBuilder().setSeconds(delay(split.getValue())))
                    .setApplication(
                        BundleApplication.newBuilder()
                            .putOutputWatermarks(
                                "output",
                                Timestamp.newBuilder().setSeconds(split.getValue()).build())
                            .setElement(
                                ByteString.copyFrom(CoderUtils.encodeToByteArray(CODER, rest)))));
          };
      return new Bundle(input, () -> checkpoints.onCheckpoint(response.build()));
    }

    @Override
    public ExecutableProcessBundleDescriptor getProcessBundleDescriptor() {
      return ExecutableProcessBundleDescriptor.of(
          ProcessBundleDescriptor.getDefaultInstance(),
          Collections.emptyList(),
          Collections.emptyMap(),
          Collections.emptyMap(),
          Collections.emptyMap(),
          Collections.emptyMap());
    }

    @Override
    public InstructionRequestHandler getInstructionRequestHandler() {
      return new InstructionRequestHandler() {
        @Override
        public void registerProcessBundleDescriptor(ProcessBundleDescriptor descriptor) {}

        @Override
        public CompletableFuture<InstructionResponse> handle(InstructionRequest request) {
          return new CompletableFuture<>();
        }

        @Override
        public void close() {}
      };
    }

    @Override
    public void close() {}
  }

  private static class Bundle implements RemoteBundle {
    private final FnDataReceiver<?> input;
    private final Runnable end;

    Bundle(FnDataReceiver<?> input, Runnable end) {
      this.input = input;
      this.end = end;
    }

    @Override
    public String getId() {
      return "bundle";
    }

    @Override
    @SuppressWarnings("rawtypes")
    public Map<String, FnDataReceiver> getInputReceivers() {
      return Collections.singletonMap("splits", input);
    }

    @Override
    public Map<KV<String, String>, FnDataReceiver<Timer>> getTimerReceivers() {
      return new HashMap<>();
    }

    @Override
    public void requestProgress() {}

    @Override
    public void split(double fractionOfRemainder) {}

    @Override
    public void close() {
      end.run();
    }
  }

  private final List<Subtask> subtasks = new ArrayList<>();

  @Before
  public void setUp() throws Exception {
    hour = 0;
    over = false;
    // A job's contexts are made once in a process; this job's are made here, by its id.
    Field factories = FlinkExecutableStageContextFactory.class.getDeclaredField("jobFactories");
    factories.setAccessible(true);
    @SuppressWarnings("unchecked")
    Map<String, ExecutableStageContext.Factory> byJob =
        (Map<String, ExecutableStageContext.Factory>) factories.get(null);
    byJob.put(JOB, job -> new Sdk());
  }

  @After
  public void tearDown() throws Exception {
    over = true;
    for (Subtask subtask : subtasks) {
      subtask.checkpoint();
      subtask.close();
    }
  }

  /** Starts one subtask of so many, from a snapshot of so many. */
  private Subtask start(
      int parallelism, int index, OperatorSubtaskState snapshot, int parallelismBefore)
      throws Exception {
    Subtask subtask = new Subtask(parallelism, index);
    subtasks.add(subtask);
    return subtask.begin(snapshot, parallelismBefore);
  }

  private Subtask started(long... splits) throws Exception {
    Subtask subtask = start(1, 0, null, 1);
    for (long split : splits) {
      subtask.read(split);
    }
    return subtask;
  }

  @Test
  public void splitsOfOneSubtaskAreReadOn() throws Exception {
    Subtask subtask = started(100, 200, 300);
    assertThat(subtask.records(), contains(100L, 200L, 300L));
    subtask.resume();
    assertThat(subtask.records(), containsInAnyOrder(101L, 201L, 301L));
    subtask.resume();
    assertThat(subtask.records(), containsInAnyOrder(102L, 202L, 302L));
  }

  @Test
  public void splitThatWaitsAtTheEndOfTimeIsReadOn() throws Exception {
    long last = BoundedWindow.TIMESTAMP_MAX_VALUE.getMillis() / 1000 + 1;
    Subtask subtask = started(last);
    subtask.processWatermark(Watermark.MAX_WATERMARK);
    subtask.checkpoint();
    assertThat(subtask.records(), contains(last));
    // All windows have ended for what follows.
    long end = GlobalWindow.INSTANCE.maxTimestamp().getMillis();
    assertThat(subtask.watermark(), greaterThan(end));
    subtask.setProcessingTime(now() + delay(last) * 1000 + 3_600_000);
    subtask.checkpoint();
    assertThat(subtask.records(), contains(last + 1));
  }

  @Test
  public void splitsAreDividedAmongMoreSubtasks() throws Exception {
    OperatorSubtaskState snapshot = started(100, 200, 300, 400).checkpoint();
    List<Long> records = new ArrayList<>();
    for (int index = 0; index < 2; index++) {
      Subtask subtask = start(2, index, snapshot, 1);
      subtask.resume();
      List<Long> own = subtask.records();
      assertThat(own, hasSize(2));
      records.addAll(own);
    }
    assertThat(records, containsInAnyOrder(101L, 201L, 301L, 401L));
  }

  @Test
  public void splitThatWaitsIsDividedFromThoseThatAreBusy() throws Exception {
    Subtask before = started(WAITS, 100, 200, 300);
    before.resume();
    before.resume();
    OperatorSubtaskState snapshot = before.checkpoint();
    List<Long> busy = new ArrayList<>();
    List<Integer> left = new ArrayList<>();
    for (int index = 0; index < 4; index++) {
      Subtask subtask = start(4, index, snapshot, 1);
      left.add(subtask.numProcessingTimeTimers());
      subtask.resume();
      busy.addAll(subtask.records());
    }
    assertThat(busy, containsInAnyOrder(103L, 203L, 303L));
    assertThat(left, contains(1, 1, 1, 1));
  }

  @Test
  public void splitsOfManySubtasksComeTogether() throws Exception {
    OperatorSubtaskState[] snapshots = new OperatorSubtaskState[3];
    for (int index = 0; index < 3; index++) {
      Subtask subtask = start(3, index, null, 3);
      subtask.read(100 * (index + 1));
      subtask.read(1000 * (index + 1));
      snapshots[index] = subtask.checkpoint();
    }
    OperatorSubtaskState all = AbstractStreamOperatorTestHarness.repackageState(snapshots);
    Subtask together = start(1, 0, all, 3);
    together.resume();
    assertThat(together.records(), containsInAnyOrder(101L, 201L, 301L, 1001L, 2001L, 3001L));
    together.resume();
    assertThat(together.records(), containsInAnyOrder(102L, 202L, 302L, 1002L, 2002L, 3002L));
  }

  @Test
  public void splitThatIsDealtToASubtaskMayHaveAnyElement() throws Exception {
    // By its element, the key of all of them would be one, and of one of the subtasks.
    for (int index = 0; index < 4; index++) {
      Subtask subtask = start(4, index, null, 4);
      subtask.read(100);
      subtask.resume();
      assertThat(subtask.records(), contains(100L, 101L));
    }
  }

  @Test
  public void slowestSplitHoldsTheWatermark() throws Exception {
    Subtask subtask = start(1, 0, null, 1);
    subtask.read(5);
    subtask.read(9);
    subtask.processWatermark(Watermark.MAX_WATERMARK);
    subtask.checkpoint();
    assertThat(subtask.watermark(), is(5_000L));
    subtask.resume();
    OperatorSubtaskState snapshot = subtask.checkpoint();
    assertThat(subtask.watermark(), is(6_000L));
    List<Long> watermarks = new ArrayList<>();
    for (int index = 0; index < 2; index++) {
      Subtask one = start(2, index, snapshot, 1);
      one.processWatermark(Watermark.MAX_WATERMARK);
      watermarks.add(one.watermark());
    }
    assertThat(watermarks, containsInAnyOrder(6_000L, 10_000L));
  }

  @Test
  public void subtaskWithoutASplitHoldsNothing() throws Exception {
    OperatorSubtaskState snapshot = started(100).checkpoint();
    List<Long> watermarks = new ArrayList<>();
    for (int index = 0; index < 3; index++) {
      Subtask subtask = start(3, index, snapshot, 1);
      subtask.processWatermark(Watermark.MAX_WATERMARK);
      watermarks.add(subtask.watermark());
    }
    assertThat(watermarks, containsInAnyOrder(100_000L, Long.MAX_VALUE, Long.MAX_VALUE));
  }

  @Test
  public void splitsOfAReleasedSnapshotAreReadOn() throws Exception {
    hour = 9; // What it left has been due since then.
    Subtask subtask = start(1, 0, ReleasedSnapshot.read(), 1);
    subtask.resume();
    assertThat(subtask.records(), containsInAnyOrder(102L, 202L, 302L));
    OperatorSubtaskState snapshot = subtask.checkpoint();
    // From now on they are no longer under one key.
    List<Integer> counts = new ArrayList<>();
    List<Long> records = new ArrayList<>();
    for (int index = 0; index < 2; index++) {
      Subtask one = start(2, index, snapshot, 1);
      one.resume();
      List<Long> own = one.records();
      counts.add(own.size());
      records.addAll(own);
    }
    assertThat(records, containsInAnyOrder(103L, 203L, 303L));
    assertThat(counts, containsInAnyOrder(1, 2));
  }

  @Test
  public void splitsOfAReleasedSnapshotAreReadOnByOneOfManySubtasks() throws Exception {
    hour = 9; // What it left has been due since then.
    List<Long> records = new ArrayList<>();
    for (int index = 0; index < 4; index++) {
      Subtask subtask = start(4, index, ReleasedSnapshot.read(), 1);
      subtask.resume();
      subtask.resume();
      records.addAll(subtask.records());
    }
    assertThat(records, containsInAnyOrder(102L, 202L, 302L, 103L, 203L, 303L));
  }
}
