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

import static org.apache.beam.sdk.transforms.WatchHarness.at;
import static org.hamcrest.MatcherAssert.assertThat;
import static org.hamcrest.Matchers.containsString;
import static org.hamcrest.Matchers.empty;
import static org.hamcrest.Matchers.lessThan;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.beam.sdk.transforms.Watch.Growth;
import org.apache.beam.sdk.transforms.Watch.Growth.PollFn;
import org.apache.beam.sdk.transforms.Watch.Growth.PollResult;
import org.apache.beam.sdk.transforms.splittabledofn.RestrictionTracker.IsBounded;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.beam.sdk.values.KV;
import org.apache.beam.sdk.values.TimestampedValue;
import org.joda.time.DateTimeUtils;
import org.joda.time.Duration;
import org.joda.time.Instant;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/** Tests what {@link Watch.Growth#withTimestampCursor} promises. */
@RunWith(JUnit4.class)
public class WatchCursorTest {
  private static final long NOW = 1_000_000_000L;
  private static final long SKEW = WatchCursor.CLOCK_SKEW.getMillis();
  private static final long YEAR = Duration.standardDays(365).getMillis();

  @Before
  public void stopClock() {
    DateTimeUtils.setCurrentMillisFixed(NOW);
    WatchLateOutputs.ofProcess().forgetAll();
  }

  @After
  public void startClock() {
    DateTimeUtils.setCurrentMillisSystem();
  }

  private static List<String> list(String... values) {
    return Arrays.asList(values);
  }

  private static TimestampedValue<?>[] numbered(int count) {
    TimestampedValue<?>[] outputs = new TimestampedValue<?>[count];
    for (int i = 0; i < count; i++) {
      outputs[i] = at(i, "item-" + i);
    }
    return outputs;
  }

  @SuppressWarnings("unchecked")
  private static List<String> pollNumbered(WatchHarness watch, int count) {
    return watch.poll((TimestampedValue<String>[]) numbered(count));
  }

  @Test
  public void testEqualTimesInDifferentPolls() {
    WatchHarness watch = WatchHarness.withCursor(0);
    assertEquals(list("a"), watch.poll(at(5, "a")));
    assertEquals(list("b"), watch.poll(at(5, "a"), at(5, "b")));
    assertThat(watch.poll(at(5, "a"), at(5, "b")), empty());
    assertEquals(2, watch.kept());
  }

  @Test
  public void testLateByLessAndByMore() {
    for (int lateness = 0; lateness < 6; lateness++) {
      WatchHarness watch = WatchHarness.withCursor(lateness);
      watch.poll(at(18, "newest"));
      List<String> expected = lateness < 3 ? list() : list("late");
      assertEquals(expected, watch.poll(at(18, "newest"), at(15, "late")));
      assertEquals(lateness < 3 ? 1 : 0, watch.dropped());
      assertThat(watch.poll(at(18, "newest"), at(15, "late")), empty());
      assertEquals("counted once", lateness < 3 ? 1 : 0, watch.dropped());
    }
  }

  @Test
  public void testOrderWithinOnePollDoesNotMatter() {
    WatchHarness watch = WatchHarness.withCursor(0);
    assertEquals(list("new", "old"), watch.poll(at(18, "new"), at(1, "old")));
    assertEquals(0, watch.dropped());
    assertEquals(1, watch.kept());
  }

  @Test
  public void testExpiredOutputsAreNotCountedAsDropped() {
    WatchHarness watch = WatchHarness.withCursor(2);
    for (int count = 1; count < 20; count++) {
      assertEquals(1, pollNumbered(watch, count).size());
    }
    assertEquals(0, watch.dropped());
    WatchLateOutputs.ofProcess().forgetAll(); // A restart.
    pollNumbered(watch, 25);
    pollNumbered(watch, 30);
    assertEquals(0, watch.dropped());
    TimestampedValue<?>[] more = Arrays.copyOf(numbered(30), 31);
    more[30] = at(3, "lost");
    @SuppressWarnings("unchecked")
    TimestampedValue<String>[] outputs = (TimestampedValue<String>[]) more;
    watch.poll(outputs);
    assertEquals(1, watch.dropped());
  }

  @Test
  @SuppressWarnings("unchecked")
  public void testStateStaysFlat() {
    WatchHarness watch = WatchHarness.withCursor(10);
    Set<Integer> kept = new HashSet<>();
    for (int poll = 0; poll < 200; poll++) {
      TimestampedValue<?>[] outputs = new TimestampedValue<?>[100];
      for (int i = 0; i < 100; i++) {
        outputs[i] = at(poll * 100 + i, poll + "-" + i);
      }
      assertEquals(100, watch.poll((TimestampedValue<String>[]) outputs).size());
      kept.add(watch.kept());
      assertThat(watch.state().length, lessThan(400));
    }
    assertEquals(Collections.singleton(11), kept);
  }

  @Test
  public void testTimeFarAheadSilencesNothing() {
    WatchHarness watch = WatchHarness.withCursor(0);
    assertEquals(list("a", "far"), watch.poll(at(NOW, "a"), at(NOW + YEAR, "far")));
    assertEquals(new Instant(NOW), watch.cursor());
    assertEquals(list("b"), watch.poll(at(NOW + YEAR, "far"), at(NOW + 1, "b")));
    assertEquals(new Instant(NOW + 1), watch.cursor());
    assertEquals(2, watch.kept());
    // It counts when its time has come.
    DateTimeUtils.setCurrentMillisFixed(NOW + YEAR);
    assertThat(watch.poll(at(NOW + YEAR, "far")), empty());
    assertEquals(new Instant(NOW + YEAR), watch.cursor());
    assertEquals(1, watch.kept());
  }

  @Test
  public void testTimeFarAheadDoesNotMoveTheWatermark() {
    WatchHarness watch = WatchHarness.withCursor(0);
    watch.poll(at(5, "a"));
    assertEquals(new Instant(5), watch.watermark());
    watch.poll(at(NOW + SKEW + 1, "ahead"));
    assertEquals(new Instant(5), watch.watermark());
    watch.poll(at(NOW + SKEW, "in time"));
    assertEquals(new Instant(NOW + SKEW), watch.watermark());
    watch = new WatchHarness(null, 0);
    watch.poll(at(NOW + YEAR, "as ever"));
    assertEquals(new Instant(NOW + YEAR), watch.watermark());
  }

  @Test
  public void testTheEndOfTimeEndsNothing() {
    long end = BoundedWindow.TIMESTAMP_MAX_VALUE.getMillis();
    WatchHarness watch = WatchHarness.withCursor(0);
    assertEquals(list("a"), watch.poll(at(end, "a")));
    assertFalse(watch.isFinished());
    assertEquals(list("b"), watch.poll(at(end, "a"), at(5, "b")));
    assertEquals(new Instant(5), watch.cursor());
  }

  @Test
  public void testClocksMayDifferByOneMinute() {
    assertEquals(60_000, SKEW);
    WatchHarness watch = WatchHarness.withCursor(0);
    watch.poll(at(NOW + SKEW, "a"));
    assertEquals(new Instant(NOW + SKEW), watch.cursor());
    watch = WatchHarness.withCursor(0);
    watch.poll(at(NOW + SKEW + 1, "a"));
    assertNull(watch.cursor());
    assertEquals(1, watch.kept());
  }

  @Test
  public void testTheCursorNeverGoesBack() {
    WatchHarness watch = WatchHarness.withCursor(100);
    watch.poll(at(NOW, "a"));
    DateTimeUtils.setCurrentMillisFixed(0); // A clock that was set back.
    assertEquals(list("b"), watch.poll(at(NOW - 50, "b")));
    assertEquals(new Instant(NOW), watch.cursor());
    assertEquals(2, watch.kept());
  }

  @Test
  public void testCursorIsExactToTheMillisecond() {
    for (long time : new long[] {-1, 0, 1, 1_500_000_001_234L, -1_500_000_001_234L}) {
      DateTimeUtils.setCurrentMillisFixed(time);
      WatchHarness watch = WatchHarness.withCursor(0);
      assertEquals(list("a"), watch.poll(at(time, "a")));
      assertEquals(new Instant(time), watch.cursor());
      assertEquals(list("b"), watch.poll(at(time, "a"), at(time - 1, "c"), at(time, "b")));
    }
  }

  @Test
  public void testLatenessLongerThanTime() {
    for (long cursor : new long[] {-NOW, NOW}) {
      WatchHarness watch = WatchHarness.withCursor(Long.MAX_VALUE);
      watch.poll(at(cursor, "a"));
      Instant first = BoundedWindow.TIMESTAMP_MIN_VALUE;
      assertEquals(list("b"), watch.poll(at(first.getMillis(), "b"), at(cursor, "a")));
      assertEquals(2, watch.kept());
    }
  }

  @Test
  public void testKeyThatComesBackWithANewerTime() {
    WatchHarness watch = WatchHarness.withCursor(10);
    watch.poll(at(5, "a"));
    assertThat("remembered", watch.poll(at(15, "a")), empty());
    watch.poll(at(16, "b"));
    assertEquals("expired", list("a"), watch.poll(at(16, "a")));
  }

  @Test
  public void testPollThatFindsNothing() {
    WatchHarness watch = WatchHarness.withCursor(0);
    assertThat(watch.poll(), empty());
    assertNull(watch.cursor());
    watch.poll(at(5, "a"));
    assertThat(watch.poll(), empty());
    assertEquals(new Instant(5), watch.cursor());
    assertEquals(1, watch.kept());
  }

  @Test
  public void testTermination() {
    WatchHarness watch = WatchHarness.withCursor(0);
    PollResult<String> last = PollResult.complete(Collections.singletonList(at(5, "a")));
    assertEquals(list("a"), watch.poll(WatchHarness.Step.COMMIT, last));
    assertTrue(watch.isFinished());
    watch = new WatchHarness(Duration.ZERO, 3);
    for (int poll = 0; poll < 3; poll++) {
      assertFalse(watch.isFinished());
      assertEquals(list("item-" + poll), watch.poll(at(poll, "item-" + poll)));
    }
    assertTrue(watch.isFinished());
  }

  /** The SDK lets a drain truncate what is unbounded, and keeps what is bounded. */
  @Test
  public void testDrainStopsPollingAndKeepsReplays() {
    WatchHarness watch = WatchHarness.withCursor(0);
    watch.poll(at(5, "a"));
    Watch.GrowthTracker<String, Integer> tracker = watch.fn().newTracker(watch.decoded());
    assertEquals(IsBounded.UNBOUNDED, tracker.isBounded());
    assertTrue(
        tracker.tryClaim(KV.of(PollResult.incomplete(Collections.singletonList(at(6, "b"))), 0)));
    Watch.GrowthState primary = tracker.trySplit(0).getPrimary();
    assertEquals(IsBounded.BOUNDED, watch.fn().newTracker(primary).isBounded());
  }

  @Test
  public void testWithoutCursorNothingExpires() {
    WatchHarness watch = new WatchHarness(null, 0);
    watch.poll(at(NOW, "a"));
    assertEquals(list("b"), watch.poll(at(1, "b")));
    assertNull(watch.cursor());
    assertEquals(2, watch.kept());
    assertEquals(0, watch.dropped());
  }

  @Test
  public void testWatchIsGivenACursorLater() {
    WatchHarness before = new WatchHarness(null, 0);
    before.poll(at(1, "a"), at(7, "b"), at(9, "c"));
    WatchHarness watch = WatchHarness.withCursor(2).from(before.state());
    TimestampedValue<String> early = at(0, "early");
    assertEquals(
        "nothing is late yet",
        list("d", "early"),
        watch.poll(early, at(1, "a"), at(7, "b"), at(9, "c"), at(8, "d")));
    assertEquals(new Instant(9), watch.cursor());
    assertEquals(3, watch.kept());
    assertThat(watch.poll(early, at(1, "a"), at(7, "b"), at(9, "c")), empty());
    assertEquals(0, watch.dropped());
  }

  @Test
  public void testCursorCannotBeTakenAway() {
    WatchHarness before = WatchHarness.withCursor(0);
    before.poll(at(5, "a"));
    WatchHarness watch = new WatchHarness(null, 0).from(before.state());
    Exception e = assertThrows(IllegalStateException.class, () -> watch.poll(at(5, "a")));
    assertThat(e.getMessage(), containsString("withTimestampCursor"));
    // As long as the cursor stood nowhere, nothing was forgotten.
    WatchHarness empty = WatchHarness.withCursor(0);
    empty.poll(at(NOW + YEAR, "far"));
    assertThat(new WatchHarness(null, 0).from(empty.state()).poll(at(NOW + YEAR, "far")), empty());
  }

  private static Growth<String, String, String> growth() {
    return Watch.growthOf(
        new PollFn<String, String>() {
          @Override
          public PollResult<String> apply(String element, Context c) {
            return PollResult.incomplete(Collections.emptyList());
          }
        });
  }

  @Test
  public void testLatenessIsChecked() {
    Exception e =
        assertThrows(
            IllegalArgumentException.class,
            () -> growth().withTimestampCursor(Duration.millis(-1)));
    assertThat(e.getMessage(), containsString("allowedLateness"));
    assertThat(e.getMessage(), containsString("-0.001S"));
    e = assertThrows(IllegalArgumentException.class, () -> growth().withTimestampCursor(null));
    assertThat(e.getMessage(), containsString("allowedLateness"));
  }

  @Test
  public void testBuilderKeepsTheCursor() {
    assertNull(growth().getTimestampCursor());
    Growth<String, String, String> growth = growth().withTimestampCursor(Duration.millis(7));
    assertEquals(
        growth.getTimestampCursor(),
        growth.withPollInterval(Duration.ZERO).withOutputCoder(null).getTimestampCursor());
  }
}
