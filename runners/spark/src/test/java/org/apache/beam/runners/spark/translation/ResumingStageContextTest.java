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

import static org.hamcrest.MatcherAssert.assertThat;
import static org.hamcrest.Matchers.contains;
import static org.hamcrest.Matchers.containsString;
import static org.hamcrest.Matchers.empty;
import static org.hamcrest.Matchers.hasItem;
import static org.hamcrest.Matchers.is;
import static org.hamcrest.Matchers.not;
import static org.junit.Assert.assertThrows;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.InstructionRequest;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.InstructionResponse;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.ProcessBundleDescriptor;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.ProcessBundleResponse;
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
import org.apache.beam.runners.fnexecution.data.RemoteInputDestination;
import org.apache.beam.runners.fnexecution.state.StateRequestHandler;
import org.apache.beam.sdk.fn.data.FnDataReceiver;
import org.apache.beam.sdk.util.construction.Timer;
import org.apache.beam.sdk.util.construction.graph.ExecutableStage;
import org.apache.beam.sdk.values.KV;
import org.apache.beam.sdk.values.WindowedValue;
import org.apache.beam.sdk.values.WindowedValues;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Duration;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaFutureAction;
import org.apache.spark.api.java.JavaSparkContext;
import org.junit.AfterClass;
import org.junit.Before;
import org.junit.BeforeClass;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/**
 * Tests of {@link ResumingStageContext} and {@link TaskFinalizer}, in the tasks of a Spark.
 *
 * <p>The worker is made up: it counts an element down, one a bundle, and asks that each bundle be
 * finalized. What it does is in {@link #EVENTS}; tasks run in this process.
 */
@RunWith(JUnit4.class)
public class ResumingStageContextTest {

  private static final List<String> EVENTS = new CopyOnWriteArrayList<>();
  private static JavaSparkContext spark;

  @BeforeClass
  public static void startSpark() {
    spark =
        new JavaSparkContext(
            new SparkConf()
                .setMaster("local[2,4]")
                .setAppName("ResumingStageContextTest")
                .set("spark.ui.enabled", "false"));
  }

  @AfterClass
  public static void stopSpark() {
    spark.stop();
  }

  @Before
  public void forget() {
    EVENTS.clear();
  }

  /** A worker that at n has n bundles left, up to ten; the first attempt fails at 13. */
  private static class CountingDown implements ExecutableStageContext, StageBundleFactory {

    private final int worker;
    private final boolean finalizes;
    private final Duration delay;
    private int bundles = 0;

    CountingDown(int worker, boolean finalizes, Duration delay) {
      this.worker = worker;
      this.finalizes = finalizes;
      this.delay = delay;
    }

    @Override
    public StageBundleFactory getStageBundleFactory(ExecutableStage stage) {
      return this;
    }

    @Override
    public RemoteBundle getBundle(
        OutputReceiverFactory outputs,
        TimerReceiverFactory timers,
        StateRequestHandler state,
        BundleProgressHandler progress,
        BundleFinalizationHandler finalization,
        BundleCheckpointHandler checkpoints)
        throws Exception {
      String id = worker + "." + ++bundles;
      List<Integer> inputs = new ArrayList<>();
      FnDataReceiver<Object> output = outputs.create("output");
      return new RemoteBundle() {
        @Override
        public String getId() {
          return id;
        }

        @Override
        @SuppressWarnings("rawtypes")
        public Map<String, FnDataReceiver> getInputReceivers() {
          FnDataReceiver<WindowedValue<String>> receiver =
              element -> inputs.add(Integer.parseInt(element.getValue()));
          return Collections.singletonMap("input", receiver);
        }

        @Override
        @SuppressWarnings("rawtypes")
        public Map<KV<String, String>, FnDataReceiver<Timer>> getTimerReceivers() {
          return Collections.emptyMap();
        }

        @Override
        public void requestProgress() {}

        @Override
        public void split(double fractionOfRemainder) {}

        @Override
        public void close() throws Exception {
          EVENTS.add("bundle " + id + " " + inputs);
          ProcessBundleResponse.Builder response = ProcessBundleResponse.newBuilder();
          for (int input : inputs) {
            if (input == 13 && worker == 0) {
              throw new IllegalStateException("thirteen");
            }
            output.accept(input);
            if (input % 10 > 0) {
              response.addResidualRoots(
                  TaskResidualsTest.residual(String.valueOf(input - 1), delay));
            }
          }
          // As the client of the worker does it: after all that was said of the bundle.
          if (response.getResidualRootsCount() > 0) {
            checkpoints.onCheckpoint(response.build());
          }
          if (finalizes) {
            finalization.requestsFinalization(id);
          }
        }
      };
    }

    @Override
    public ExecutableProcessBundleDescriptor getProcessBundleDescriptor() {
      return ExecutableProcessBundleDescriptor.of(
          ProcessBundleDescriptor.getDefaultInstance(),
          Collections.singletonList(RemoteInputDestination.of(TaskResidualsTest.CODER, "input")),
          Collections.emptyMap(),
          Collections.emptyMap(),
          Collections.emptyMap(),
          Collections.emptyMap());
    }

    @Override
    public InstructionRequestHandler getInstructionRequestHandler() {
      return new InstructionRequestHandler() {
        @Override
        public CompletionStage<InstructionResponse> handle(InstructionRequest request) {
          EVENTS.add(
              request.getInstructionId() + " " + request.getFinalizeBundle().getInstructionId());
          if (worker == 7) {
            CompletableFuture<InstructionResponse> failed = new CompletableFuture<>();
            failed.completeExceptionally(new IllegalStateException("no callback"));
            return failed;
          }
          return CompletableFuture.completedFuture(InstructionResponse.getDefaultInstance());
        }

        @Override
        public void registerProcessBundleDescriptor(ProcessBundleDescriptor descriptor) {}

        @Override
        public void close() {}
      };
    }

    @Override
    public void close() {
      EVENTS.add("closed " + worker);
    }
  }

  /** What a task of the runner does with its input. */
  private static List<Integer> process(
      ExecutableStageContext worker, Iterator<String> inputs, TaskClock clock) throws Exception {
    List<Integer> collected = new ArrayList<>();
    OutputReceiverFactory outputs =
        new OutputReceiverFactory() {
          @Override
          public <OutputT> FnDataReceiver<OutputT> create(String pCollectionId) {
            return output -> collected.add((Integer) output);
          }
        };
    try (ExecutableStageContext context =
        new ResumingStageContext(worker, TaskContext.get(), clock)) {
      StageBundleFactory factory = context.getStageBundleFactory(null);
      try (RemoteBundle bundle =
          factory.getBundle(
              outputs, StateRequestHandler.unsupported(), BundleProgressHandler.ignored())) {
        FnDataReceiver<WindowedValue<?>> receiver =
            bundle.getInputReceivers().values().iterator().next();
        while (inputs.hasNext()) {
          receiver.accept(WindowedValues.valueInGlobalWindow(inputs.next()));
        }
      }
    }
    return collected;
  }

  private static List<Integer> run(boolean finalizes, int worker, String... inputs) {
    return spark
        .parallelize(Arrays.asList(inputs), 1)
        .mapPartitions(
            elements ->
                process(
                        new CountingDown(
                            worker + TaskContext.get().attemptNumber(),
                            finalizes,
                            Duration.getDefaultInstance()),
                        elements,
                        new TaskResidualsTest.Clock())
                    .iterator())
        .collect();
  }

  private static List<String> events(Predicate<String> which) {
    List<String> found = new ArrayList<>(EVENTS);
    found.removeIf(which.negate());
    return found;
  }

  @Test
  public void bundlesAreResumedUntilNothingIsLeft() {
    assertThat(run(false, 0, "2", "0", "1"), contains(2, 0, 1, 1, 0, 0));
    assertThat(
        EVENTS,
        contains("bundle 0.1 [2, 0, 1]", "bundle 0.2 [1, 0]", "bundle 0.3 [0]", "closed 0"));
  }

  @Test
  public void bundlesAreFinalizedWhenTheTaskHasSucceeded() {
    run(true, 0, "2");
    assertThat(
        EVENTS,
        contains(
            "bundle 0.1 [2]",
            "bundle 0.2 [1]",
            "bundle 0.3 [0]",
            "finalize-0.1 0.1",
            "finalize-0.2 0.2",
            "finalize-0.3 0.3",
            "closed 0"));
  }

  @Test
  public void anAttemptThatFailsFinalizesNothing() {
    // Its first bundle succeeds; the second does not, and is not resumed.
    assertThat(run(true, 0, "14"), contains(14, 13, 12, 11, 10));
    assertThat(
        events(e -> !e.startsWith("bundle 1.")),
        contains(
            "bundle 0.1 [14]",
            "bundle 0.2 [13]",
            "closed 0",
            "finalize-1.1 1.1",
            "finalize-1.2 1.2",
            "finalize-1.3 1.3",
            "finalize-1.4 1.4",
            "finalize-1.5 1.5",
            "closed 1"));
  }

  @Test
  public void aTaskThatFailsAfterItsBundlesFinalizesNothing() {
    assertThrows(
        Exception.class,
        () ->
            spark
                .parallelize(Collections.singletonList("1"), 1)
                .mapPartitions(
                    elements ->
                        process(
                                new CountingDown(0, true, Duration.getDefaultInstance()),
                                elements,
                                new TaskResidualsTest.Clock())
                            .iterator())
                .foreach(
                    output -> {
                      throw new IllegalStateException("what uses the output fails");
                    }));
    assertThat(events(e -> e.startsWith("finalize")), empty());
    assertThat(events(e -> e.startsWith("closed")).size(), is(4));
  }

  @Test
  public void anAttemptFinalizesNothingIfAnotherHas() {
    spark
        .parallelize(Collections.singletonList("0"), 1)
        .mapPartitions(
            elements -> {
              TaskContext task = TaskContext.get();
              SparkEnv.get()
                  .outputCommitCoordinator()
                  .canCommit(task.stageId(), task.stageAttemptNumber(), task.partitionId(), 9);
              return process(
                      new CountingDown(0, true, Duration.getDefaultInstance()),
                      elements,
                      new TaskResidualsTest.Clock())
                  .iterator();
            })
        .collect();
    assertThat(EVENTS, contains("bundle 0.1 [0]", "closed 0"));
  }

  @Test
  public void allStagesOfATaskAreFinalized() {
    spark
        .parallelize(Collections.singletonList("0"), 1)
        .mapPartitions(
            elements -> {
              process(
                  new CountingDown(1, true, Duration.getDefaultInstance()),
                  elements,
                  new TaskResidualsTest.Clock());
              return process(
                      new CountingDown(2, true, Duration.getDefaultInstance()),
                      Collections.singletonList("0").iterator(),
                      new TaskResidualsTest.Clock())
                  .iterator();
            })
        .collect();
    assertThat(
        events(e -> !e.startsWith("bundle")),
        contains("finalize-1.1 1.1", "finalize-2.1 2.1", "closed 1", "closed 2"));
  }

  @Test
  public void aCallbackThatFailsDoesNotFailTheTask() {
    assertThat(run(true, 7, "1"), contains(1, 0));
    assertThat(
        events(e -> !e.startsWith("bundle")),
        contains("finalize-7.1 7.1", "finalize-7.2 7.2", "closed 7"));
  }

  @Test
  public void aTaskThatWaitsIsEndedWhenSparkWantsIt() throws Exception {
    Duration year = Duration.newBuilder().setSeconds(31_536_000).build();
    spark.setJobGroup("waits", "a read that waits for long", false);
    JavaFutureAction<List<Integer>> job =
        spark
            .parallelize(Collections.singletonList("1"), 1)
            .mapPartitions(
                elements ->
                    process(
                            new CountingDown(0, true, year),
                            elements,
                            TaskClock.of(TaskContext.get()))
                        .iterator())
            .collectAsync();
    spark.clearJobGroup();
    waitFor("bundle 0.1 [1]");
    assertThat(EVENTS, not(hasItem("closed 0")));
    job.cancel(true);
    waitFor("closed 0");
    assertThat(EVENTS, contains("bundle 0.1 [1]", "closed 0"));
  }

  private static void waitFor(String event) throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (!EVENTS.contains(event)) {
      assertThat("in time", System.nanoTime() < end);
      Thread.sleep(20);
    }
  }

  @Test
  public void handlersOfACallerAreRefused() throws Exception {
    try (ExecutableStageContext context =
        new ResumingStageContext(
            new CountingDown(0, false, Duration.getDefaultInstance()),
            null,
            new TaskResidualsTest.Clock())) {
      StageBundleFactory factory = context.getStageBundleFactory(null);
      Exception e =
          assertThrows(
              IllegalArgumentException.class,
              () -> factory.getBundle(null, null, null, null, bundleId -> {}, null));
      assertThat(e.getMessage(), containsString("already"));
    }
  }
}
