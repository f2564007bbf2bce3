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

import static org.hamcrest.MatcherAssert.assertThat;
import static org.hamcrest.Matchers.greaterThan;
import static org.junit.Assert.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.beam.sdk.transforms.Watch.Growth.PollResult;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.beam.sdk.values.TimestampedValue;
import org.joda.time.DateTimeUtils;
import org.joda.time.Instant;
import org.junit.After;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/** The cursor of {@link Watch} against the table that Python's reads, too. */
@RunWith(JUnit4.class)
public class WatchCursorCasesTest {
  private static final String TABLE =
      "sdks/python/apache_beam/testing/data/watch_cursor_cases.json";

  @After
  public void startClock() {
    DateTimeUtils.setCurrentMillisSystem();
  }

  /** The table; the tests run somewhere below the root of the repository. */
  private static JsonNode table() throws IOException {
    for (File at = new File("").getAbsoluteFile(); at != null; at = at.getParentFile()) {
      File table = new File(at, TABLE);
      if (table.isFile()) {
        return new ObjectMapper().readTree(table);
      }
    }
    throw new AssertionError(TABLE + " is not in any folder above");
  }

  @Test
  public void testTable() throws IOException {
    JsonNode table = table();
    assertThat(table.get("cases").size(), greaterThan(20));
    for (JsonNode testCase : table.get("cases")) {
      run(testCase, table.get("now").asLong());
    }
  }

  private static void run(JsonNode testCase, long commonNow) {
    WatchHarness watch = WatchHarness.withCursor(testCase.get("allowed_lateness").asLong());
    WatchLateOutputs.ofProcess().forgetAll();
    long dropped = 0;
    for (int number = 0; number < testCase.get("polls").size(); number++) {
      JsonNode poll = testCase.get("polls").get(number);
      String where = testCase.get("name").asText() + ", poll " + number;
      DateTimeUtils.setCurrentMillisFixed(poll.path("now").asLong(commonNow));
      if (poll.path("restart").asBoolean()) {
        WatchLateOutputs.ofProcess().forgetAll();
      }
      List<String> gives = new ArrayList<>();
      poll.get("gives").forEach(output -> gives.add(output.asText()));
      assertEquals(where, gives, watch.poll(WatchHarness.Step.COMMIT, result(poll)));
      dropped += poll.get("drops").asLong();
      assertEquals(where, dropped, watch.dropped());
      assertEquals(where, time(poll.get("cursor"), null), watch.cursor());
      assertEquals(where, poll.get("keeps").asInt(), watch.kept());
      assertEquals(
          where, time(poll.get("watermark"), BoundedWindow.TIMESTAMP_MIN_VALUE), watch.watermark());
    }
  }

  private static PollResult<String> result(JsonNode poll) {
    List<TimestampedValue<String>> outputs = new ArrayList<>();
    for (JsonNode output : poll.get("lists")) {
      outputs.add(WatchHarness.at(output.get(0).asLong(), output.get(1).asText()));
    }
    PollResult<String> result = PollResult.incomplete(outputs);
    return poll.has("says") ? result.withWatermark(time(poll.get("says"), null)) : result;
  }

  private static Instant time(JsonNode millis, Instant ifNull) {
    return millis.isNull() ? ifNull : new Instant(millis.asLong());
  }
}
