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
import static org.junit.Assert.assertEquals;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.beam.sdk.transforms.Watch.Growth.PollResult;
import org.apache.beam.sdk.transforms.WatchHarness.Step;
import org.apache.beam.sdk.values.TimestampedValue;
import org.checkerframework.checker.nullness.qual.Nullable;
import org.joda.time.DateTimeUtils;
import org.joda.time.Instant;
import org.junit.After;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/**
 * Holds a watch with a cursor against a plain list that does the same, while the runner splits,
 * retries, replays and restarts it at random. A failure names its seed.
 */
@RunWith(JUnit4.class)
public class WatchCursorRandomTest {
  private static final int SEEDS = 200;
  private static final long NOW = 1000;
  private static final long SKEW = WatchCursor.CLOCK_SKEW.getMillis();

  @After
  public void startClock() {
    DateTimeUtils.setCurrentMillisSystem();
  }

  /** What a watch with a cursor does, in the plainest words. */
  private static final class Model {
    private final long lateness;
    private final Map<String, Long> kept = new HashMap<>();
    private final Set<String> output = new HashSet<>();
    private final Set<String> lost = new HashSet<>();
    private @Nullable Long cursor;
    private long dropped;
    private boolean remembersLastPoll;

    Model(long lateness) {
      this.lateness = lateness;
    }

    List<String> poll(List<TimestampedValue<String>> listed, long now, Step step) {
      Map<String, Long> found = new HashMap<>();
      for (TimestampedValue<String> each : listed) {
        long time = each.getTimestamp().getMillis();
        if (cursor == null || time >= cursor - lateness) {
          if (!kept.containsKey(each.getValue())) {
            found.put(each.getValue(), time);
          }
        } else if (!output.contains(each.getValue()) && lost.add(each.getValue())) {
          // A failed attempt has counted it, and its metrics are thrown away.
          dropped += remembersLastPoll && step != Step.FAIL ? 1 : 0;
        }
      }
      Long moved = cursorAfter(found, now);
      if (step == Step.FAIL || step == Step.SPLIT_WHILE_POLLING) {
        // What a process remembers is good for one position of the cursor only.
        remembersLastPoll =
            cursor != null && (step == Step.SPLIT_WHILE_POLLING || cursor.equals(moved));
        return Collections.emptyList();
      }
      kept.putAll(found);
      output.addAll(found.keySet());
      cursor = moved;
      if (cursor != null) {
        kept.values().removeIf(time -> time < cursor - lateness);
      }
      remembersLastPoll = cursor != null;
      List<String> sorted = new ArrayList<>(found.keySet());
      Collections.sort(sorted);
      return sorted;
    }

    private @Nullable Long cursorAfter(Map<String, Long> found, long now) {
      List<Long> times = new ArrayList<>(kept.values());
      times.addAll(found.values());
      times.removeIf(time -> time > now + SKEW);
      if (cursor != null) {
        times.add(cursor);
      }
      return times.isEmpty() ? null : Collections.max(times);
    }
  }

  @Test
  public void testIsWhatAPlainListWouldDo() {
    for (int seed = 0; seed < SEEDS; seed++) {
      run(seed);
    }
  }

  private static void run(int seed) {
    Random random = new Random(seed);
    long lateness = random.nextInt(6);
    long now = NOW;
    WatchLateOutputs.ofProcess().forgetAll();
    WatchHarness watch = WatchHarness.withCursor(lateness);
    Model model = new Model(lateness);
    List<TimestampedValue<String>> listed = new ArrayList<>();
    int polls = 1 + random.nextInt(12);
    for (int poll = 0; poll < polls; poll++) {
      String where = "seed " + seed + ", poll " + poll;
      for (int more = random.nextInt(5); more > 0; more--) {
        // Around the floor, and now and then far ahead of the clock.
        long time = random.nextInt(12) == 0 ? now + SKEW + random.nextInt(3) : random.nextInt(15);
        listed.add(at(time, "abcd".charAt(random.nextInt(4)) + "@" + time));
      }
      Collections.shuffle(listed, random);
      Step step = Step.values()[random.nextInt(Step.values().length)];
      now += random.nextInt(3);
      DateTimeUtils.setCurrentMillisFixed(now);
      List<String> expected = model.poll(listed, now, step);
      assertEquals(
          where + ", " + step,
          expected,
          watch.poll(step, PollResult.incomplete(new ArrayList<>(listed))));
      assertEquals(
          where, model.cursor == null ? null : new Instant((long) model.cursor), watch.cursor());
      assertEquals(where, model.kept.size(), watch.kept());
      assertEquals(where, model.dropped, watch.dropped());
      if (random.nextInt(5) == 0) {
        WatchLateOutputs.ofProcess().forgetAll();
        model.remembersLastPoll = false;
      }
    }
  }
}
