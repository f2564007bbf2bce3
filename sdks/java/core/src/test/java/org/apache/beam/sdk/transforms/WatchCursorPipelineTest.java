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
package org.apache.beam.sdk.transforms;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.beam.sdk.PipelineResult;
import org.apache.beam.sdk.metrics.MetricNameFilter;
import org.apache.beam.sdk.metrics.MetricResult;
import org.apache.beam.sdk.metrics.MetricsFilter;
import org.apache.beam.sdk.testing.NeedsRunner;
import org.apache.beam.sdk.testing.PAssert;
import org.apache.beam.sdk.testing.TestPipeline;
import org.apache.beam.sdk.testing.UsesUnboundedSplittableParDo;
import org.apache.beam.sdk.transforms.Watch.Growth;
import org.apache.beam.sdk.transforms.Watch.Growth.PollFn;
import org.apache.beam.sdk.transforms.Watch.Growth.PollResult;
import org.apache.beam.sdk.values.KV;
import org.apache.beam.sdk.values.PCollection;
import org.apache.beam.sdk.values.TimestampedValue;
import org.joda.time.Duration;
import org.joda.time.Instant;
import org.junit.Rule;
import org.junit.Test;
import org.junit.experimental.categories.Category;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/** Tests a {@link Watch} with a cursor in pipelines. */
@RunWith(JUnit4.class)
public class WatchCursorPipelineTest {
  private static final int POLLS = 5;

  @Rule public final transient TestPipeline p = TestPipeline.create();

  /** Polls of all inputs, in this process. */
  private static final AtomicInteger POLL = new AtomicInteger();

  /** Poll n lists the outputs 0 to 10n + 9 at their second, and finds one late from the third. */
  private static final class Grows extends PollFn<String, Integer> {
    @Override
    public PollResult<Integer> apply(String element, Context c) {
      int poll = POLL.getAndIncrement();
      List<TimestampedValue<Integer>> outputs = new ArrayList<>();
      for (int i = 0; i < 10 * poll + 10; i++) {
        outputs.add(TimestampedValue.of(i, Instant.ofEpochSecond(i)));
      }
      if (poll >= 2) {
        outputs.add(TimestampedValue.of(1000, Instant.ofEpochSecond(14)));
        outputs.add(TimestampedValue.of(1001, Instant.ofEpochSecond(15)));
      }
      return PollResult.incomplete(outputs);
    }
  }

  private static final class Seconds extends DoFn<KV<String, Integer>, Long> {
    @ProcessElement
    public void process(@Timestamp Instant time, OutputReceiver<Long> out) {
      out.output(time.getMillis() / 1000);
    }
  }

  @Test
  @Category({NeedsRunner.class, UsesUnboundedSplittableParDo.class})
  public void testEachOutputOnceAtItsTime() {
    POLL.set(0);
    PCollection<KV<String, Integer>> found =
        p.apply(Create.of("a"))
            .apply(
                Watch.growthOf(new Grows())
                    .withPollInterval(Duration.millis(10))
                    .withTerminationPerInput(Growth.afterIterations(POLLS))
                    // The floor of the third poll is the second 19 - 4.
                    .withTimestampCursor(Duration.standardSeconds(4)));
    List<KV<String, Integer>> expected = new ArrayList<>();
    List<Long> seconds = new ArrayList<>();
    for (int i = 0; i < 10 * POLLS; i++) {
      expected.add(KV.of("a", i));
      seconds.add((long) i);
    }
    expected.add(KV.of("a", 1001));
    seconds.add(15L);
    PAssert.that(found).containsInAnyOrder(expected);
    PAssert.that(found.apply(ParDo.of(new Seconds()))).containsInAnyOrder(seconds);
    PipelineResult result = p.run();
    Iterable<MetricResult<Long>> dropped =
        result
            .metrics()
            .queryMetrics(
                MetricsFilter.builder()
                    .addNameFilter(MetricNameFilter.named(Watch.class, "outputs_dropped_late"))
                    .build())
            .getCounters();
    assertEquals(1L, (long) dropped.iterator().next().getAttempted());
    assertEquals(POLLS, POLL.get());
  }

  @Test
  public void testChecksAtConstruction() {
    p.enableAbandonedNodeEnforcement(false);
    Growth<String, Integer, Integer> growth = Watch.growthOf(new Grows());
    assertThrows(
        IllegalArgumentException.class,
        () -> growth.withTimestampCursor(Duration.standardSeconds(-1)));
  }
}
