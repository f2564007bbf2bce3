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
package org.apache.beam.runners.fnexecution.control;

import static org.hamcrest.MatcherAssert.assertThat;
import static org.hamcrest.Matchers.contains;
import static org.hamcrest.Matchers.containsInAnyOrder;
import static org.hamcrest.Matchers.containsString;
import static org.hamcrest.Matchers.is;
import static org.junit.Assert.assertThrows;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.BundleApplication;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.DelayedBundleApplication;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.ProcessBundleResponse;
import org.apache.beam.runners.core.InMemoryStateInternals;
import org.apache.beam.runners.core.InMemoryTimerInternals;
import org.apache.beam.runners.core.StateInternals;
import org.apache.beam.runners.core.StateNamespace;
import org.apache.beam.runners.core.StateNamespaces;
import org.apache.beam.runners.core.StateTag;
import org.apache.beam.runners.core.StateTags;
import org.apache.beam.runners.core.TimerInternals.TimerData;
import org.apache.beam.runners.fnexecution.control.BundleCheckpointHandlers.StateAndTimerBundleCheckpointHandler;
import org.apache.beam.sdk.coders.Coder;
import org.apache.beam.sdk.coders.StringUtf8Coder;
import org.apache.beam.sdk.state.State;
import org.apache.beam.sdk.state.StateContext;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.beam.sdk.transforms.windowing.GlobalWindow;
import org.apache.beam.sdk.transforms.windowing.IntervalWindow;
import org.apache.beam.sdk.transforms.windowing.PaneInfo;
import org.apache.beam.sdk.util.CoderUtils;
import org.apache.beam.sdk.values.WindowedValue;
import org.apache.beam.sdk.values.WindowedValues;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.ByteString;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Duration;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Timestamp;
import org.joda.time.Instant;
import org.junit.Before;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/**
 * Tests of {@link PendingResiduals}, through the {@link StateAndTimerBundleCheckpointHandler} that
 * puts residuals into it. State and timers are the in-memory ones of {@code runners-core}.
 */
@RunWith(JUnit4.class)
public class PendingResidualsTest {

  private static final IntervalWindow WINDOW = new IntervalWindow(new Instant(0), new Instant(10));
  private static final IntervalWindow LATER = new IntervalWindow(new Instant(10), new Instant(20));
  private static final Coder<BoundedWindow> WINDOW_CODER = windowCoder();
  private static final Coder<WindowedValue<String>> CODER =
      WindowedValues.getFullCoder(StringUtf8Coder.of(), WINDOW_CODER);

  private NamedStates states;
  private InMemoryTimerInternals timers;
  private StateAndTimerBundleCheckpointHandler<String> handler;

  @SuppressWarnings("unchecked")
  private static Coder<BoundedWindow> windowCoder() {
    return (Coder<BoundedWindow>) (Coder<?>) IntervalWindow.getCoder();
  }

  /** In-memory state that notes which states were asked for, as a Flink operator registers them. */
  private static class NamedStates implements StateInternals {
    private final StateInternals inner = InMemoryStateInternals.forKey("key");
    final Set<String> names = new TreeSet<>();

    @Override
    public Object getKey() {
      return inner.getKey();
    }

    @Override
    public <T extends State> T state(
        StateNamespace namespace, StateTag<T> address, StateContext<?> context) {
      names.add(address.getId());
      return inner.state(namespace, address, context);
    }
  }

  @Before
  public void setUp() {
    states = new NamedStates();
    timers = new InMemoryTimerInternals();
    handler = newHandler();
  }

  private StateAndTimerBundleCheckpointHandler<String> newHandler() {
    return new StateAndTimerBundleCheckpointHandler<>(
        key -> timers, key -> states, CODER, WINDOW_CODER);
  }

  private static DelayedBundleApplication.Builder residual(
      String element, IntervalWindow... windows) {
    try {
      WindowedValue<String> value =
          WindowedValues.of(
              element,
              new Instant(5),
              windows.length == 0 ? Collections.singletonList(WINDOW) : Arrays.asList(windows),
              PaneInfo.NO_FIRING);
      return DelayedBundleApplication.newBuilder()
          .setApplication(
              BundleApplication.newBuilder()
                  .setElement(ByteString.copyFrom(CoderUtils.encodeToByteArray(CODER, value))));
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  private void checkpoint(DelayedBundleApplication.Builder... residuals) {
    ProcessBundleResponse.Builder response = ProcessBundleResponse.newBuilder();
    Arrays.stream(residuals).forEach(response::addResidualRoots);
    handler.onCheckpoint(response.build());
  }

  private List<TimerData> fireAll() throws Exception {
    timers.advanceProcessingTime(BoundedWindow.TIMESTAMP_MAX_VALUE);
    List<TimerData> fired = new ArrayList<>();
    for (TimerData timer = timers.removeNextProcessingTimer();
        timer != null;
        timer = timers.removeNextProcessingTimer()) {
      fired.add(timer);
    }
    return fired;
  }

  private WindowedValue<String> take(TimerData timer) {
    return PendingResiduals.take(states, timer.getNamespace(), timer.getTimerId(), CODER);
  }

  private List<String> takeAll() throws Exception {
    List<String> taken = new ArrayList<>();
    for (TimerData timer : fireAll()) {
      taken.add(take(timer).getValue());
    }
    return taken;
  }

  @Test
  public void residualComesBackWhole() throws Exception {
    checkpoint(residual("a"));
    TimerData timer = fireAll().get(0);
    assertThat(StateAndTimerBundleCheckpointHandler.isSdfTimer(timer.getTimerId()), is(true));
    WindowedValue<String> taken = take(timer);
    assertThat(taken.getValue(), is("a"));
    assertThat(taken.getTimestamp(), is(new Instant(5)));
    assertThat(new ArrayList<BoundedWindow>(taken.getWindows()), contains((BoundedWindow) WINDOW));
    assertThat(taken.getPaneInfo(), is(PaneInfo.NO_FIRING));
  }

  @Test
  public void residualsOfOneBundleAreKeptApart() throws Exception {
    checkpoint(residual("a"), residual("b"), residual("c"));
    assertThat(takeAll(), containsInAnyOrder("a", "b", "c"));
  }

  @Test
  public void residualsOfManyBundlesAreKeptApart() throws Exception {
    checkpoint(residual("a"));
    checkpoint(residual("b"));
    assertThat(takeAll(), containsInAnyOrder("a", "b"));
  }

  @Test
  public void residualOfAnEarlierRunIsNotOverwritten() throws Exception {
    checkpoint(residual("waits"));
    handler = newHandler(); // What a restored operator makes: it knows of no ids that were used.
    checkpoint(residual("new"));
    assertThat(takeAll(), containsInAnyOrder("waits", "new"));
  }

  @Test
  public void stateIsOneAndIsEmptyAgain() throws Exception {
    for (int i = 0; i < 100; i++) {
      checkpoint(residual("a" + i), residual("b" + i));
      assertThat(takeAll(), containsInAnyOrder("a" + i, "b" + i));
    }
    assertThat(states.names.size(), is(1));
    checkpoint(residual("last"));
    TimerData timer = fireAll().get(0);
    take(timer);
    assertThat(
        states
            .state(
                timer.getNamespace(),
                StateTags.map(states.names.iterator().next(), StringUtf8Coder.of(), CODER))
            .isEmpty()
            .read(),
        is(true));
  }

  @Test
  public void eachWindowIsAResidualOfItsOwn() throws Exception {
    checkpoint(residual("a", WINDOW, LATER));
    List<BoundedWindow> windows = new ArrayList<>();
    for (TimerData timer : fireAll()) {
      WindowedValue<String> taken = take(timer);
      assertThat(
          timer.getNamespace(),
          is(StateNamespaces.window(WINDOW_CODER, taken.getWindows().iterator().next())));
      windows.addAll(taken.getWindows());
    }
    assertThat(windows, containsInAnyOrder((BoundedWindow) WINDOW, LATER));
  }

  @Test
  public void residualIsTakenOnce() throws Exception {
    checkpoint(residual("a"));
    TimerData timer = fireAll().get(0);
    take(timer);
    IllegalStateException e = assertThrows(IllegalStateException.class, () -> take(timer));
    assertThat(e.getMessage(), containsString(timer.getTimerId()));
  }

  @Test
  public void residualOfAnOlderCheckpointIsTaken() throws Exception {
    String timerId = "sdf_checkpoint:17:0";
    StateNamespace namespace = StateNamespaces.window(WINDOW_CODER, WINDOW);
    states
        .state(namespace, StateTags.value(timerId, CODER))
        .write(
            WindowedValues.of(
                "old", new Instant(1), Collections.singletonList(WINDOW), PaneInfo.NO_FIRING));
    assertThat(PendingResiduals.take(states, namespace, timerId, CODER).getValue(), is("old"));
    assertThrows(
        IllegalStateException.class,
        () -> PendingResiduals.take(states, namespace, timerId, CODER));
  }

  @Test
  public void residualWithoutAnElementIsPassedOver() throws Exception {
    checkpoint(DelayedBundleApplication.newBuilder(), residual("a"));
    assertThat(takeAll(), contains("a"));
  }

  @Test
  public void timerHasTheDelayAndTheWatermark() throws Exception {
    DelayedBundleApplication.Builder delayed =
        residual("a")
            .setRequestedTimeDelay(Duration.newBuilder().setSeconds(3).setNanos(990000000));
    delayed
        .getApplicationBuilder()
        .putOutputWatermarks(
            "out", Timestamp.newBuilder().setSeconds(7).setNanos(250999999).build());
    Instant before = Instant.now();
    checkpoint(delayed);
    Instant after = Instant.now();
    TimerData timer = fireAll().get(0);
    assertThat(timer.getTimestamp().isBefore(before.plus(3990)), is(false));
    assertThat(timer.getTimestamp().isAfter(after.plus(3990)), is(false));
    assertThat(timer.getOutputTimestamp(), is(new Instant(7250)));
  }

  private static Duration delay(long seconds, int nanos) {
    return Duration.newBuilder().setSeconds(seconds).setNanos(nanos).build();
  }

  @Test
  public void delayIsKeptToTheMillisecond() {
    Instant now = new Instant(1000);
    assertThat(PendingResiduals.due(now, Duration.getDefaultInstance()), is(now));
    assertThat(PendingResiduals.due(now, delay(0, 990_000_000)), is(new Instant(1990)));
    assertThat(PendingResiduals.due(now, delay(2, 500_000_000)), is(new Instant(3500)));
  }

  @Test
  public void delayIsNeverCutShort() {
    Instant now = new Instant(1000);
    assertThat(PendingResiduals.due(now, delay(0, 1)), is(new Instant(1001)));
    assertThat(PendingResiduals.due(now, delay(0, 1_000_001)), is(new Instant(1002)));
    assertThat(PendingResiduals.due(now, delay(0, 999_999_999)), is(new Instant(2000)));
  }

  @Test
  public void delayThatIsNegativeIsNone() {
    Instant now = new Instant(1000);
    assertThat(PendingResiduals.due(now, delay(-1, -1)), is(now));
    assertThat(PendingResiduals.due(now, delay(0, -500_000_000)), is(now));
  }

  @Test
  public void delayEndsWithTime() {
    Instant now = new Instant(1000);
    for (long seconds : new long[] {Long.MAX_VALUE, Long.MAX_VALUE / 1000, 9223372036854775L}) {
      assertThat(
          PendingResiduals.due(now, delay(seconds, 999_999_999)),
          is(BoundedWindow.TIMESTAMP_MAX_VALUE));
    }
  }

  private static Timestamp watermark(long seconds, int nanos) {
    return Timestamp.newBuilder().setSeconds(seconds).setNanos(nanos).build();
  }

  @Test
  public void holdIsTheEarliestWatermark() {
    assertThat(
        PendingResiduals.hold(
            Arrays.asList(watermark(8, 0), watermark(7, 250_999_999), watermark(9, 1))),
        is(new Instant(7250)));
    assertThat(
        PendingResiduals.hold(Arrays.asList(watermark(-1, 1_000_000))), is(new Instant(-999)));
  }

  @Test
  public void holdWithoutAWatermarkIsTheBeginningOfTime() {
    assertThat(
        PendingResiduals.hold(Collections.emptyList()), is(BoundedWindow.TIMESTAMP_MIN_VALUE));
  }

  @Test
  public void holdStaysWithinTime() {
    long earliest = BoundedWindow.TIMESTAMP_MIN_VALUE.getMillis();
    long end = GlobalWindow.INSTANCE.maxTimestamp().getMillis();
    for (long seconds : new long[] {Long.MIN_VALUE, Math.floorDiv(earliest, 1000L)}) {
      assertThat(
          PendingResiduals.hold(Arrays.asList(watermark(seconds, 0))), is(new Instant(earliest)));
    }
    // All windows may end, but the time of the runner does not.
    for (long seconds : new long[] {Long.MAX_VALUE, end / 1000 + 86_400, end / 1000 + 1}) {
      assertThat(
          PendingResiduals.hold(Arrays.asList(watermark(seconds, 999_999_999))),
          is(new Instant(end + 1)));
    }
  }
}
