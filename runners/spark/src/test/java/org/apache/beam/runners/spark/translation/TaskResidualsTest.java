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
import static org.hamcrest.Matchers.is;
import static org.junit.Assert.assertThrows;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.BundleApplication;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.DelayedBundleApplication;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.ProcessBundleResponse;
import org.apache.beam.sdk.coders.Coder;
import org.apache.beam.sdk.coders.CoderException;
import org.apache.beam.sdk.coders.StringUtf8Coder;
import org.apache.beam.sdk.transforms.windowing.GlobalWindow;
import org.apache.beam.sdk.util.CoderUtils;
import org.apache.beam.sdk.values.WindowedValue;
import org.apache.beam.sdk.values.WindowedValues;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.ByteString;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Duration;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/** Tests of {@link TaskResiduals}. */
@RunWith(JUnit4.class)
public class TaskResidualsTest {

  static final Coder<WindowedValue<String>> CODER =
      WindowedValues.getFullCoder(StringUtf8Coder.of(), GlobalWindow.Coder.INSTANCE);

  /** A clock that goes on when someone sleeps. */
  static class Clock implements TaskClock {
    long now = 1000;

    @Override
    public long nanos() {
      return now;
    }

    @Override
    public void sleepUntil(long nanos) {
      now = Math.max(now, nanos);
    }
  }

  private final Clock clock = new Clock();
  private final TaskResiduals<String> residuals = new TaskResiduals<>(CODER, clock);

  static DelayedBundleApplication residual(String element, Duration delay) throws CoderException {
    byte[] encoded =
        CoderUtils.encodeToByteArray(CODER, WindowedValues.valueInGlobalWindow(element));
    return DelayedBundleApplication.newBuilder()
        .setRequestedTimeDelay(delay)
        .setApplication(
            BundleApplication.newBuilder()
                .setTransformId("read")
                .setElement(ByteString.copyFrom(encoded)))
        .build();
  }

  private static Duration delay(long seconds, int nanos) {
    return Duration.newBuilder().setSeconds(seconds).setNanos(nanos).build();
  }

  private void handOver(DelayedBundleApplication... some) {
    ProcessBundleResponse.Builder response = ProcessBundleResponse.newBuilder();
    for (DelayedBundleApplication one : some) {
      response.addResidualRoots(one);
    }
    residuals.onCheckpoint(response.build());
  }

  private List<String> takeDue() throws InterruptedException {
    List<String> values = new ArrayList<>();
    residuals.takeDue().forEach(element -> values.add(element.getValue()));
    return values;
  }

  @Test
  public void delaysAreCountedToTheNanosecond() {
    assertThat(TaskResiduals.nanos(Duration.getDefaultInstance()), is(0L));
    assertThat(TaskResiduals.nanos(delay(0, 1)), is(1L));
    assertThat(TaskResiduals.nanos(delay(1, 999_999_999)), is(1_999_999_999L));
    assertThat(TaskResiduals.nanos(delay(86_400, 0)), is(86_400_000_000_000L));
  }

  @Test
  public void delaysThatAreNoneOrTooLongAreCutShort() {
    assertThat(TaskResiduals.nanos(delay(-1, 0)), is(0L));
    assertThat(TaskResiduals.nanos(delay(0, -1)), is(0L));
    assertThat(TaskResiduals.nanos(delay(315_576_000_000L, 999_999_999)), is(Long.MAX_VALUE));
    assertThat(TaskResiduals.nanos(delay(9_223_372_036L, 0)), is(Long.MAX_VALUE));
    assertThat(
        TaskResiduals.nanos(delay(9_223_372_035L, 999_999_999)), is(9_223_372_035_999_999_999L));
  }

  @Test
  public void whatIsDueIsTakenInOrder() throws Exception {
    handOver(
        residual("in three", delay(3, 0)),
        residual("at once", delay(0, 0)),
        residual("in one", delay(1, 0)),
        residual("at once too", delay(0, 0)));
    assertThat(takeDue(), contains("at once", "at once too"));
    handOver(residual("in two", delay(2, 0)));
    assertThat(takeDue(), contains("in one"));
    assertThat(clock.now, is(1_000_001_000L));
    assertThat(takeDue(), contains("in two"));
    assertThat(takeDue(), contains("in three"));
    assertThat(clock.now, is(3_000_001_000L));
    assertThat(residuals.isEmpty(), is(true));
    assertThat(takeDue(), empty());
  }

  @Test
  public void whatBecameDueMeanwhileIsTakenWithTheRest() throws Exception {
    handOver(residual("second", delay(2, 0)), residual("first", delay(1, 0)));
    clock.now += 5_000_000_000L;
    assertThat(takeDue(), contains("first", "second"));
  }

  @Test
  public void noneIsEarlyAndNoneIsLost() throws Exception {
    Random random = new Random(7);
    for (int round = 0; round < 200; round++) {
      int left = random.nextInt(20);
      List<Long> due = new ArrayList<>();
      for (int number = 0; number < left; number++) {
        long nanos = random.nextInt(5) * 250_000_000L;
        due.add(clock.now + nanos);
        handOver(
            residual(
                String.valueOf(number),
                delay(nanos / 1_000_000_000, (int) (nanos % 1_000_000_000))));
      }
      while (!residuals.isEmpty()) {
        List<String> taken = takeDue();
        left -= taken.size();
        for (String number : taken) {
          assertThat(due.get(Integer.parseInt(number)) <= clock.now, is(true));
        }
        clock.now += random.nextInt(300_000_000);
      }
      assertThat(left, is(0));
    }
  }

  @Test
  public void theLongestDelayIsNotOverAtOnce() throws Exception {
    handOver(residual("never", delay(315_576_000_000L, 0)), residual("soon", delay(1, 0)));
    assertThat(takeDue(), contains("soon"));
    assertThat(residuals.isEmpty(), is(false));
  }

  @Test
  public void whatNamesNoWorkIsNone() throws Exception {
    handOver(DelayedBundleApplication.newBuilder().setRequestedTimeDelay(delay(1, 0)).build());
    assertThat(residuals.isEmpty(), is(true));
  }

  @Test
  public void whatCannotBeDecodedIsAnError() {
    DelayedBundleApplication broken =
        DelayedBundleApplication.newBuilder()
            .setApplication(BundleApplication.newBuilder().setTransformId("read files"))
            .build();
    Exception e = assertThrows(IllegalStateException.class, () -> handOver(broken));
    assertThat(e.getMessage(), containsString("read files"));
  }
}
