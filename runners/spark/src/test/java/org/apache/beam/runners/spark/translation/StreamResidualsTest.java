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
import static org.hamcrest.Matchers.empty;
import static org.hamcrest.Matchers.is;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.DelayedBundleApplication;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.beam.sdk.util.CoderUtils;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Duration;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Timestamp;
import org.joda.time.Instant;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/** Tests of {@link StreamResiduals}. */
@RunWith(JUnit4.class)
public class StreamResidualsTest {

  private final TaskResidualsTest.Clock clock = new TaskResidualsTest.Clock();
  private final StreamResiduals residuals = new StreamResiduals(clock);

  private static DelayedBundleApplication residual(String element, long millis) throws Exception {
    return TaskResidualsTest.residual(
        element,
        Duration.newBuilder()
            .setSeconds(millis / 1000)
            .setNanos((int) (millis % 1000) * 1_000_000)
            .build());
  }

  private static DelayedBundleApplication holding(long millis, Timestamp... watermarks)
      throws Exception {
    DelayedBundleApplication.Builder residual = residual("held", millis).toBuilder();
    for (int i = 0; i < watermarks.length; i++) {
      residual.getApplicationBuilder().putOutputWatermarks("output " + i, watermarks[i]);
    }
    return residual.build();
  }

  private static Timestamp seconds(long seconds) {
    return Timestamp.newBuilder().setSeconds(seconds).build();
  }

  private static Timestamp time(long seconds, int nanos) {
    return Timestamp.newBuilder().setSeconds(seconds).setNanos(nanos).build();
  }

  private List<String> takeDue() throws Exception {
    List<String> values = new ArrayList<>();
    for (byte[] element : residuals.takeDue()) {
      values.add(CoderUtils.decodeFromByteArray(TaskResidualsTest.CODER, element).getValue());
    }
    return values;
  }

  @Test
  public void whatIsDueIsTakenInOrderAndOnce() throws Exception {
    residuals.add(
        Arrays.asList(
            residual("in three", 3000),
            residual("at once", 0),
            residual("in one", 1000),
            residual("at once too", 0)));
    assertThat(takeDue(), contains("at once", "at once too"));
    assertThat(takeDue(), empty());
    residuals.add(Collections.singleton(residual("in two", 2000)));
    clock.now += 3_000_000_000L;
    assertThat(takeDue(), contains("in one", "in two", "in three"));
    assertThat(residuals.isEmpty(), is(true));
  }

  @Test
  public void aDelayIsOverWhenItIsOver() throws Exception {
    residuals.add(Collections.singleton(residual("a", 1500)));
    clock.now += 1_499_999_999L;
    assertThat(takeDue(), empty());
    clock.now += 1;
    assertThat(takeDue(), contains("a"));
  }

  @Test
  public void theLongestDelayIsNotOverAtOnce() throws Exception {
    residuals.add(
        Collections.singleton(
            TaskResidualsTest.residual(
                "never", Duration.newBuilder().setSeconds(315_576_000_000L).build())));
    clock.now += 1_000_000_000_000_000L;
    assertThat(takeDue(), empty());
    assertThat(residuals.isEmpty(), is(false));
  }

  @Test
  public void noneIsEarlyAndNoneIsLost() throws Exception {
    Random random = new Random(8);
    List<Long> due = new ArrayList<>();
    int taken = 0;
    for (int round = 0; round < 500; round++) {
      for (int more = random.nextInt(4); more > 0; more--) {
        long millis = random.nextInt(40) * 25L;
        residuals.add(Collections.singleton(residual(String.valueOf(due.size()), millis)));
        due.add(clock.now + millis * 1_000_000);
      }
      clock.now += random.nextInt(100_000_000);
      for (String number : takeDue()) {
        assertThat(due.get(Integer.parseInt(number)) <= clock.now, is(true));
        taken++;
      }
      long late = due.stream().filter(at -> at <= clock.now).count();
      assertThat((long) taken, is(late));
    }
  }

  @Test
  public void theWatermarkIsThatOfTheSlowest() throws Exception {
    assertThat(residuals.watermark(), is(BoundedWindow.TIMESTAMP_MAX_VALUE));
    residuals.add(
        Arrays.asList(
            holding(0, seconds(7)), holding(1000, seconds(9), seconds(8)), holding(0, seconds(5))));
    assertThat(residuals.watermark(), is(new Instant(5000)));
    residuals.takeDue();
    assertThat("what is not due holds as well", residuals.watermark(), is(new Instant(8000)));
    residuals.add(Collections.singleton(holding(0)));
    assertThat(residuals.watermark(), is(BoundedWindow.TIMESTAMP_MIN_VALUE));
    clock.now += 1_000_000_000L;
    residuals.takeDue();
    assertThat(residuals.watermark(), is(BoundedWindow.TIMESTAMP_MAX_VALUE));
  }

  private static Instant hold(Timestamp watermark) {
    return StreamResiduals.hold(Collections.singleton(watermark));
  }

  @Test
  public void watermarksAreCutToWhatBeamHas() {
    assertThat(hold(time(1, 999_999_999)), is(new Instant(1999)));
    assertThat(hold(time(-1, 999_999_999)), is(new Instant(-1)));
    assertThat(hold(time(-2, 1)), is(new Instant(-2000)));
    assertThat(hold(seconds(-62_135_596_800L)), is(new Instant(-62_135_596_800_000L)));
    assertThat(hold(seconds(253_402_300_799L)), is(new Instant(253_402_300_799_000L)));
    assertThat(hold(seconds(Long.MAX_VALUE)), is(BoundedWindow.TIMESTAMP_MAX_VALUE));
    assertThat(hold(seconds(Long.MIN_VALUE)), is(BoundedWindow.TIMESTAMP_MIN_VALUE));
  }

  @Test
  public void whatNamesNoWorkIsNone() {
    residuals.add(Collections.singleton(DelayedBundleApplication.getDefaultInstance()));
    assertThat(residuals.isEmpty(), is(true));
  }
}
