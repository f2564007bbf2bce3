#
# Licensed to the Apache Software Foundation (ASF) under one or more
# contributor license agreements.  See the NOTICE file distributed with
# this work for additional information regarding copyright ownership.
# The ASF licenses this file to You under the Apache License, Version 2.0
# (the "License"); you may not use this file except in compliance with
# the License.  You may obtain a copy of the License at
#
#    http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
#

"""The watermarks that follow from what a reader has seen: their laws."""

import itertools
import unittest

from hypothesis import given
from hypothesis import strategies as st

from apache_beam.io._unbounded_watermarks import IdleWatermark
from apache_beam.io._unbounded_watermarks import MonotonicWatermark
from apache_beam.io._unbounded_watermarks import OutOfOrdernessWatermark
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp


def at(micros: int) -> Timestamp:
  return Timestamp(micros=micros)


# All there are, often near the ends, and often near one another.
TIMES = (
    st.integers(MIN_TIMESTAMP.micros, MAX_TIMESTAMP.micros)
    | st.integers(MIN_TIMESTAMP.micros, MIN_TIMESTAMP.micros + 9)
    | st.integers(MAX_TIMESTAMP.micros - 9, MAX_TIMESTAMP.micros)
    | st.integers(0, 9_000_000)).map(at)
SECONDS = st.floats(0, 1e12) | st.integers(0, 10**13) | st.floats(0, 10)
STREAMS = st.lists(TIMES, max_size=30)
INNERS = st.builds(MonotonicWatermark) | st.builds(
    OutOfOrdernessWatermark, SECONDS)
POLLS = st.lists(
    st.tuples(st.lists(TIMES, max_size=3), TIMES, st.booleans()), max_size=20)


class LawsTest(unittest.TestCase):
  @given(INNERS, STREAMS)
  def test_never_goes_back_and_never_ends_the_split(self, watermark, stream):
    before = watermark.value()
    for timestamp in stream:
      watermark.observe(timestamp)
      after = watermark.value()
      self.assertLessEqual(MIN_TIMESTAMP, before)
      self.assertLessEqual(before, after)
      self.assertLess(after, MAX_TIMESTAMP)
      before = after

  @given(STREAMS)
  def test_of_an_ordered_stream_is_its_last_timestamp(self, stream):
    watermark = MonotonicWatermark()
    for timestamp in sorted(stream):
      self.assertLessEqual(watermark.value(), timestamp)
      watermark.observe(timestamp)
      if timestamp < MAX_TIMESTAMP:
        self.assertEqual(timestamp, watermark.value())

  @given(SECONDS, STREAMS)
  def test_nothing_within_the_delay_is_late_and_all_beyond_is(
      self, delay, stream):
    watermark = OutOfOrdernessWatermark(delay)
    latest = MIN_TIMESTAMP.micros
    for timestamp in stream:
      if timestamp == MAX_TIMESTAMP:
        continue
      late = latest - timestamp.micros > round(delay * 1_000_000)
      self.assertEqual(late, timestamp < watermark.value())
      watermark.observe(timestamp)
      latest = max(latest, timestamp.micros)

  @given(STREAMS)
  def test_no_delay_is_a_monotonic_one(self, stream):
    one, other = MonotonicWatermark(), OutOfOrdernessWatermark(0)
    for timestamp in stream:
      one.observe(timestamp)
      other.observe(timestamp)
      self.assertEqual(one.value(), other.value())

  @given(INNERS, SECONDS, POLLS)
  def test_idle_only_when_caught_up(self, inner, slack, polls):
    """As a dumb model: the greatest of all that there was a reason for."""
    watermark = IdleWatermark(inner, slack)
    reasons = [MIN_TIMESTAMP.micros]
    for stream, now, caught_up in polls:
      for timestamp in stream:
        watermark.observe(timestamp)
      reasons.append(inner.value().micros)
      if caught_up:
        reasons.append(
            min(
                now.micros - round(slack * 1_000_000),
                MAX_TIMESTAMP.micros - 1))
      self.assertEqual(max(reasons), watermark.value(now, caught_up).micros)

  @given(TIMES)
  def test_initial(self, initial):
    watermark = MonotonicWatermark(initial)
    expected = min(initial, at(MAX_TIMESTAMP.micros - 1))
    self.assertEqual(expected, watermark.value())
    watermark.observe(MIN_TIMESTAMP)
    self.assertEqual(expected, watermark.value())


class IdleWatermarkTest(unittest.TestCase):
  def test_a_partition_that_never_delivered(self):
    """Case B58: at MIN, it would hold back every window of the pipeline."""
    watermark = IdleWatermark(MonotonicWatermark(), slack_seconds=10)
    now = Timestamp(1000)
    self.assertEqual(MIN_TIMESTAMP, watermark.value(now, caught_up=False))
    self.assertEqual(Timestamp(990), watermark.value(now, caught_up=True))
    self.assertEqual(Timestamp(990), watermark.value(now, caught_up=False))

  def test_low_traffic(self):
    """Case B57: caught up it follows the clock, with a backlog it holds."""
    watermark = IdleWatermark(OutOfOrdernessWatermark(5), slack_seconds=10)
    watermark.observe(Timestamp(100))
    for now, caught_up, expected in [
        (200, False, 95),
        (300, True, 290),
        (400, True, 390),
        (500, False, 390),
        (450, True, 440),
        (440, True, 440),  # The clock was set back.
    ]:
      self.assertEqual(
          Timestamp(expected), watermark.value(Timestamp(now), caught_up))

  def test_records_ahead_of_the_clock_count(self):
    watermark = IdleWatermark(MonotonicWatermark(), slack_seconds=0)
    watermark.observe(Timestamp(100))
    self.assertEqual(Timestamp(100), watermark.value(Timestamp(50), True))

  def test_of_a_watermark_of_ones_own(self):
    class Fixed:
      def observe(self, timestamp):
        self.seen = timestamp

      def value(self):
        return self.seen

    watermark = IdleWatermark(Fixed(), 1)
    watermark.observe(Timestamp(7))
    self.assertEqual(Timestamp(7), watermark.value(Timestamp(1), True))

    class Number(Fixed):
      def value(self):
        return 7

    with self.assertRaisesRegex(
        TypeError, r'inner.value\(\)=7 must be a Timestamp'):
      IdleWatermark(Number(), 1).value(Timestamp(1), True)


class ArgumentsTest(unittest.TestCase):
  def test_seconds(self):
    makers = [
        ('max_delay_seconds', OutOfOrdernessWatermark),
        ('slack_seconds', lambda s: IdleWatermark(MonotonicWatermark(), s)),
    ]
    wrong = [(-1, ValueError), (float('nan'), ValueError),
             (float('inf'), ValueError), (True, TypeError), ('1', TypeError),
             (None, TypeError), (Timestamp(1), TypeError)]
    for (name, maker), (seconds, error) in itertools.product(makers, wrong):
      with self.subTest(name, seconds=seconds):
        with self.assertRaisesRegex(error, f'{name}=.* must be a number of s'):
          maker(seconds)

  def test_timestamps(self):
    watermarks = [
        MonotonicWatermark(),
        OutOfOrdernessWatermark(1),
        IdleWatermark(MonotonicWatermark(), 1)
    ]
    for wrong in (1, 1.0, None, '1', True):
      with self.subTest(wrong):
        message = f'{wrong!r} must be a Timestamp'
        for watermark in watermarks:
          with self.assertRaisesRegex(TypeError, f'timestamp={message}'):
            watermark.observe(wrong)
        with self.assertRaisesRegex(TypeError, f'initial={message}'):
          MonotonicWatermark(wrong)
        with self.assertRaisesRegex(TypeError, f'now={message}'):
          watermarks[-1].value(wrong, True)

  def test_caught_up(self):
    watermark = IdleWatermark(MonotonicWatermark(), 1)
    for wrong in (0, 1, None, 'yes'):
      with self.subTest(wrong):
        with self.assertRaisesRegex(
            TypeError, f'caught_up={wrong!r} must be a bool.*backlog == 0'):
          watermark.value(Timestamp(1), wrong)

  def test_inner(self):
    class Half:
      def observe(self, timestamp):
        pass

    for wrong in (None, 5, MonotonicWatermark, Half(),
                  IdleWatermark(MonotonicWatermark(), 1)):
      with self.subTest(repr(wrong)):
        with self.assertRaisesRegex(TypeError, 'inner=.*OutOfOrdernessWat'):
          IdleWatermark(wrong, 1)


if __name__ == '__main__':
  unittest.main()
