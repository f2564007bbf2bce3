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
package org.apache.beam.runners.spark.util;

import static org.hamcrest.MatcherAssert.assertThat;
import static org.hamcrest.Matchers.is;
import static org.junit.Assert.assertThrows;

import java.util.Arrays;
import java.util.Collections;
import org.apache.beam.runners.spark.util.GlobalWatermarkHolder.SparkWatermarks;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.beam.sdk.util.SerializableUtils;
import org.apache.spark.streaming.Time;
import org.joda.time.Instant;
import org.junit.Before;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/** Tests of {@link StreamWatermarks}. */
@RunWith(JUnit4.class)
public class StreamWatermarksTest {

  private static final Instant BEGINNING = BoundedWindow.TIMESTAMP_MIN_VALUE;
  private static final Instant END = BoundedWindow.TIMESTAMP_MAX_VALUE;

  private final StreamWatermarks watermarks = new StreamWatermarks();

  @Before
  public void addSources() {
    watermarks.add(1);
    watermarks.add(2);
  }

  private static void assertIs(SparkWatermarks found, long batch, Instant low, Instant high) {
    assertThat(found.getLowWatermark(), is(low));
    assertThat(found.getHighWatermark(), is(high));
    assertThat(found.getSynchronizedProcessingTime(), is(new Instant(batch)));
  }

  private static void assertAt(StreamWatermarks watermarks, long batch, Instant low, Instant high) {
    assertIs(watermarks.at(new Time(batch)).get(1), batch, low, high);
  }

  private void advance(int source, long batch, long millis) {
    watermarks.advance(source, new Time(batch), new Instant(millis));
  }

  @Test
  public void elementsOfAMicroBatchMayBeFromBeforeItAndItsTimersAreFromBehindIt() {
    assertAt(watermarks, 500, BEGINNING, BEGINNING);
    advance(1, 500, 10);
    advance(1, 1000, 10);
    advance(1, 2000, 30);
    assertAt(watermarks, 0, BEGINNING, BEGINNING);
    assertAt(watermarks, 500, BEGINNING, new Instant(10));
    assertAt(watermarks, 1000, new Instant(10), new Instant(10));
    assertAt(watermarks, 1500, new Instant(10), new Instant(10));
    assertAt(watermarks, 2000, new Instant(10), new Instant(30));
    assertAt(watermarks, 2500, new Instant(30), new Instant(30));
  }

  @Test
  public void thePastStaysAsItWasWhereTasksTakeIt() {
    advance(1, 500, 10);
    advance(1, 1000, 20);
    StreamWatermarks taken = SerializableUtils.clone(watermarks);
    advance(1, 1500, 40);
    assertAt(taken, 1000, new Instant(10), new Instant(20));
    assertAt(watermarks, 1000, new Instant(10), new Instant(20));
    assertAt(watermarks, 500, BEGINNING, new Instant(10));
  }

  @Test
  public void noWatermarkGoesBack() {
    advance(1, 500, 20);
    advance(1, 1000, 10);
    assertAt(watermarks, 1000, new Instant(20), new Instant(20));
  }

  @Test
  public void severalSourcesAreAsFarAsTheSlowest() {
    advance(1, 500, 20);
    assertThat(watermarks.of(Arrays.asList(1, 2), new Time(500)), is(BEGINNING));
    advance(2, 1000, 10);
    assertThat(watermarks.of(Arrays.asList(1, 2), new Time(1000)), is(new Instant(10)));
    assertThat(watermarks.of(Arrays.asList(1, 2), new Time(500)), is(BEGINNING));
    assertThat(watermarks.of(Collections.emptyList(), new Time(500)), is(END));
  }

  @Test
  public void aStreamHasEndedWithTheLastOfItsSources() {
    assertThat(watermarks.ended(), is(-1L));
    watermarks.advance(1, new Time(1500), END);
    assertThat(watermarks.ended(), is(-1L));
    advance(2, 1000, 10);
    assertThat(watermarks.ended(), is(-1L));
    watermarks.advance(2, new Time(1000), END);
    assertThat(watermarks.ended(), is(1500L));
  }

  @Test
  public void theLastChangesAreKept() {
    for (int i = 0; i < 5000; i++) {
      advance(1, i * 500, i);
    }
    assertAt(watermarks, 4999 * 500, new Instant(4998), new Instant(4999));
    assertAt(watermarks, 4500 * 500, new Instant(4499), new Instant(4500));
    assertThat(SerializableUtils.serializeToByteArray(watermarks).length < 100_000, is(true));
  }

  @Test
  public void aSourceThatNobodyMadeKnownIsAnError() {
    assertThrows(IllegalArgumentException.class, () -> advance(3, 500, 10));
  }
}
