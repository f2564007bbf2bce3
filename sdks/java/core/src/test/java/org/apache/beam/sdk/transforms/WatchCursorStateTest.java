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
import static org.hamcrest.Matchers.containsString;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.Arrays;
import org.apache.beam.sdk.coders.Coder;
import org.apache.beam.sdk.coders.SnappyCoder;
import org.apache.beam.sdk.coders.StringUtf8Coder;
import org.apache.beam.sdk.coders.VarIntCoder;
import org.apache.beam.sdk.testing.CoderProperties;
import org.apache.beam.sdk.transforms.Watch.Growth.PollResult;
import org.apache.beam.sdk.transforms.Watch.GrowthState;
import org.apache.beam.sdk.transforms.Watch.GrowthStateCoder;
import org.apache.beam.sdk.transforms.Watch.NonPollingGrowthState;
import org.apache.beam.sdk.transforms.Watch.PollingGrowthState;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.beam.sdk.util.CoderUtils;
import org.apache.beam.sdk.values.TimestampedValue;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.collect.ImmutableMap;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.hash.HashCode;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.io.BaseEncoding;
import org.joda.time.Instant;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/** Tests the bytes of the states of {@link Watch}, with and without a cursor. */
@RunWith(JUnit4.class)
public class WatchCursorStateTest {
  @SuppressWarnings({"unchecked", "rawtypes"})
  private static final Coder<GrowthState> CODER =
      GrowthStateCoder.of(StringUtf8Coder.of(), (Coder) VarIntCoder.of());

  private static final HashCode A = HashCode.fromString("ee9639802c89246f3d4dd6d980e994e5");
  private static final HashCode B = HashCode.fromString("330e72f583328bee345eaf1270d6b47a");

  private static final ImmutableMap<HashCode, Instant> KEYS =
      ImmutableMap.of(A, new Instant(1000), B, new Instant(2000));

  // All but the last were written by Beam 2.73.0, as it was released.
  private static final String NEW = "00030000000000";
  private static final String POLLING =
      "00030180000000000005dc00000002ee9639802c89246f3d4dd6d980e994e580000000000003e8"
          + "330e72f583328bee345eaf1270d6b47a80000000000007d0";
  private static final String REPLAY = "010000000002016180000000000003e8016280000000000007d0";
  private static final String COMPRESSED =
      "3d3f10000301800001015405dc00000002ee9639802c89246f3d4dd6d980e994e5091c6403e8330e72f5833"
          + "28bee345eaf1270d6b47a80000000000007d0";
  private static final String WITH_CURSOR =
      "0280000000000007d00123456789abcdef" + POLLING.substring(2);

  private static byte[] bytes(String hex) {
    return BaseEncoding.base16().lowerCase().decode(hex);
  }

  private static void assertPinned(String hex, GrowthState state) throws Exception {
    assertEquals(state, CoderUtils.decodeFromByteArray(CODER, bytes(hex)));
    assertEquals(
        hex, BaseEncoding.base16().lowerCase().encode(CoderUtils.encodeToByteArray(CODER, state)));
  }

  @Test
  public void testStatesOfReleasedBeamStayAsTheyAre() throws Exception {
    assertPinned(NEW, PollingGrowthState.of(3));
    assertPinned(POLLING, PollingGrowthState.of(KEYS, new Instant(1500), 3));
    assertPinned(
        REPLAY,
        NonPollingGrowthState.of(
            PollResult.incomplete(
                Arrays.asList(
                    TimestampedValue.of("a", new Instant(1000)),
                    TimestampedValue.of("b", new Instant(2000))))));
  }

  @Test
  public void testStateAsItIsPersistedIsRead() throws Exception {
    assertEquals(
        PollingGrowthState.of(KEYS, new Instant(1500), 3),
        CoderUtils.decodeFromByteArray(SnappyCoder.of(CODER), bytes(COMPRESSED)));
  }

  @Test
  public void testStateWithCursorIsPinned() throws Exception {
    assertPinned(
        WITH_CURSOR,
        PollingGrowthState.of(
            KEYS,
            new Instant(1500),
            3,
            WatchCursorPosition.of(new Instant(2000), 0x0123456789abcdefL)));
  }

  @Test
  public void testEveryPositionRoundTrips() throws Exception {
    for (Instant cursor :
        Arrays.asList(
            BoundedWindow.TIMESTAMP_MIN_VALUE,
            new Instant(-1),
            new Instant(0),
            new Instant(1_500_000_001_234L),
            BoundedWindow.TIMESTAMP_MAX_VALUE)) {
      for (long id : new long[] {Long.MIN_VALUE, -1, 0, 1, Long.MAX_VALUE}) {
        CoderProperties.coderDecodeEncodeEqual(
            CODER,
            PollingGrowthState.of(ImmutableMap.of(), null, 0, WatchCursorPosition.of(cursor, id)));
      }
    }
  }

  @Test
  public void testStateThatIsCutOffIsRefused() {
    byte[] whole = bytes(WITH_CURSOR);
    for (int length = 1; length < whole.length; length++) {
      byte[] part = Arrays.copyOf(whole, length);
      assertThrows(Exception.class, () -> CoderUtils.decodeFromByteArray(CODER, part));
    }
  }

  @Test
  public void testUnknownStateIsRefused() {
    InputStream unknown = new ByteArrayInputStream(bytes("03"));
    Exception e = assertThrows(IOException.class, () -> CODER.decode(unknown));
    assertThat(e.getMessage(), containsString("3"));
  }
}
