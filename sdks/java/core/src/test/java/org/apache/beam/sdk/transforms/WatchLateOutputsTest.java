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

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.hash.HashCode;
import org.joda.time.Instant;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/** Tests {@link WatchLateOutputs}. */
@RunWith(JUnit4.class)
public class WatchLateOutputsTest {
  private final WatchLateOutputs outputs = new WatchLateOutputs(100);

  private static WatchCursorPosition at(long cursor) {
    return WatchCursorPosition.of(new Instant(cursor), 7);
  }

  private static Set<HashCode> hashes(int... numbers) {
    Set<HashCode> found = new HashSet<>();
    Arrays.stream(numbers).forEach(number -> found.add(HashCode.fromInt(number)));
    return found;
  }

  private static Set<HashCode> range(int count) {
    Set<HashCode> found = new HashSet<>();
    for (int number = 0; number < count; number++) {
      found.add(HashCode.fromInt(number));
    }
    return found;
  }

  @Test
  public void testCountsEachOnce() {
    outputs.moved(null, at(5), hashes());
    assertEquals(2, outputs.countNew(at(5), hashes(1, 2)));
    assertEquals(0, outputs.countNew(at(5), hashes(1, 2)));
    assertEquals(1, outputs.countNew(at(5), hashes(1, 2, 3)));
  }

  @Test
  public void testExpiredIsKnown() {
    outputs.moved(null, at(5), hashes(1));
    outputs.moved(at(5), at(6), hashes(2));
    assertEquals(0, outputs.countNew(at(6), hashes(1, 2)));
    assertEquals(1, outputs.countNew(at(6), hashes(1, 2, 3)));
  }

  @Test
  public void testCountsNothingWhereItCannotTell() {
    assertEquals("made elsewhere", 0, outputs.countNew(at(5), hashes(1)));
    assertEquals(1, outputs.countNew(at(5), hashes(1, 2)));
    assertEquals("went on elsewhere", 0, outputs.countNew(at(9), hashes(1, 2, 3)));
    outputs.moved(at(5), at(10), hashes(4));
    assertEquals("restored from before", 0, outputs.countNew(at(10), hashes(8)));
  }

  @Test
  public void testListsMayFlicker() {
    outputs.moved(null, at(5), hashes());
    assertEquals(3, outputs.countNew(at(5), hashes(1, 2, 3)));
    assertEquals(0, outputs.countNew(at(5), hashes(1)));
    assertEquals(0, outputs.countNew(at(5), hashes(1, 2, 3)));
  }

  @Test
  public void testWatchesAreApart() {
    WatchCursorPosition other = WatchCursorPosition.of(new Instant(5), 8);
    outputs.moved(null, at(5), hashes());
    outputs.moved(null, other, hashes());
    assertEquals(1, outputs.countNew(at(5), hashes(1)));
    assertEquals(1, outputs.countNew(other, hashes(1)));
  }

  @Test
  public void testMemoryIsBounded() {
    outputs.moved(null, at(5), range(99));
    assertEquals(1, outputs.countNew(at(5), hashes(1000)));
    outputs.moved(null, at(5), range(101));
    assertEquals("was too much to keep", 0, outputs.countNew(at(5), hashes(1000)));
    outputs.moved(null, at(5), range(60));
    outputs.moved(null, WatchCursorPosition.of(new Instant(5), 8), range(60));
    assertEquals("went for another", 0, outputs.countNew(at(5), hashes(1000)));
  }

  @Test
  public void testWhatWasGivenAndIsListedAgainIsNotLost() {
    outputs.moved(null, at(5), hashes(1));
    assertEquals(1, outputs.countNew(at(5), hashes(2)));
    assertEquals(0, outputs.countNew(at(5), hashes(1, 2)));
    outputs.moved(at(5), at(6), hashes(3));
    assertEquals(1, outputs.countNew(at(6), hashes(4)));
    assertEquals(0, outputs.countNew(at(6), hashes(1, 2, 3, 4)));
  }
}
