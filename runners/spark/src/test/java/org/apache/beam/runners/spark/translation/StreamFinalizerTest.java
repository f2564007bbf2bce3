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
import static org.hamcrest.Matchers.containsInAnyOrder;
import static org.hamcrest.Matchers.empty;

import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.InstructionRequest;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.InstructionResponse;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.ProcessBundleDescriptor;
import org.apache.beam.runners.fnexecution.control.InstructionRequestHandler;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.streaming.Time;
import org.junit.AfterClass;
import org.junit.BeforeClass;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/** Tests of {@link StreamFinalizer}, with the one executor of a local Spark. */
@RunWith(JUnit4.class)
public class StreamFinalizerTest {

  private static JavaSparkContext spark;

  private final List<String> finalized = new CopyOnWriteArrayList<>();
  private final StreamFinalizer finalizer = new StreamFinalizer(spark);

  @BeforeClass
  public static void startSpark() {
    spark =
        new JavaSparkContext(
            new SparkConf()
                .setMaster("local[2]")
                .setAppName("StreamFinalizerTest")
                .set("spark.ui.enabled", "false"));
  }

  @AfterClass
  public static void stopSpark() {
    spark.stop();
  }

  private String hold(String name) {
    InstructionRequestHandler worker =
        new InstructionRequestHandler() {
          @Override
          public CompletionStage<InstructionResponse> handle(InstructionRequest request) {
            finalized.add(request.getFinalizeBundle().getInstructionId());
            return CompletableFuture.completedFuture(InstructionResponse.getDefaultInstance());
          }

          @Override
          public void registerProcessBundleDescriptor(ProcessBundleDescriptor descriptor) {}

          @Override
          public void close() {}
        };
    return HeldBundles.hold(
        Collections.singletonList(new FinishedBundle(worker, name)), Collections.emptyList());
  }

  private void add(long batch, String token) {
    String host = SparkEnv.get().blockManager().blockManagerId().host();
    finalizer.add(new Time(batch), "executor_" + host + "_driver", token);
  }

  @Test
  public void bundlesOfWhatIsCompleteAreFinalizedOnce() throws Exception {
    add(500, hold("a"));
    add(500, hold("b"));
    add(1000, hold("c"));
    add(1500, hold("of what is not complete"));
    finalizer.completed(500);
    finalizer.completed(1000);
    finalizer.completed(1000);
    finalizer.end();
    assertThat(finalized, containsInAnyOrder("a", "b", "c"));
  }

  @Test
  public void whatIsGoneKeepsNobodyWaiting() throws Exception {
    add(500, "a token of an executor that is gone");
    add(500, "");
    add(500, hold("a"));
    finalizer.completed(500);
    finalizer.end();
    assertThat(finalized, containsInAnyOrder("a"));
  }

  @Test
  public void nothingIsFinalizedUntilSomethingIsComplete() throws Exception {
    add(500, hold("a"));
    finalizer.completed(499);
    finalizer.end();
    finalizer.completed(500);
    assertThat(finalized, empty());
  }
}
