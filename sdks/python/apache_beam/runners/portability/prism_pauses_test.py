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

"""Sources that pause, on Prism: each test here fails on the Prism of 2.75.

They run where ``PRISM_LOCATION`` names a binary. The suite runs them on the
binary of the base, too, and there wants each to fail.
"""

import collections
import time
import unittest

import apache_beam as beam
from apache_beam.io import iobase
from apache_beam.io._runner_testing import needs_prism
from apache_beam.io._runner_testing import prism_pipeline
from apache_beam.io.restriction_trackers import OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.runners.portability._prism_testing import Positions
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to
from apache_beam.transforms import trigger
from apache_beam.transforms import userstate
from apache_beam.transforms.window import FixedWindows
from apache_beam.transforms.window import GlobalWindows
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration
from apache_beam.utils.timestamp import Timestamp

T0 = 1_600_000_000

# What was seen, by the name of a test: DoFns are pickled, this is not.
SEEN: dict[str, list] = collections.defaultdict(list)


class Unending(OffsetRestrictionTracker):
  """Positions of a source whose end is not known before it is there."""
  def is_bounded(self):
    return False


class Endless(Positions):
  def create_tracker(self, positions):
    return Unending(positions)


class TrickleFn(beam.DoFn):
  """Gives position n of (name, count) when n times `seconds` have passed.

  It asks to be resumed after `delay` seconds while nothing is due. Its
  watermark stands at T0, until it ends.
  """
  def __init__(self, seconds, delay):
    self._seconds = seconds
    self._delay = delay
    self._begin = time.time() + 1

  @beam.DoFn.unbounded_per_element()
  def process(
      self,
      element,
      tracker=beam.DoFn.RestrictionParam(Endless()),
      watermark=beam.DoFn.WatermarkEstimatorParam(
          ManualWatermarkEstimator.default_provider())):
    name, count = element
    SEEN[f'{name} polls'].append(time.time())
    watermark.set_watermark(Timestamp(T0))
    at = tracker.current_restriction().start
    while at < count:
      if time.time() < self._begin + at * self._seconds:
        tracker.defer_remainder(Duration(self._delay))
        return
      if not tracker.try_claim(at):
        return
      SEEN[f'{name} given'].append(time.time())
      yield TimestampedValue((name, at), T0 + at)
      at += 1


class NoteFn(beam.DoFn):
  def process(self, record):
    name, at = record
    SEEN[f'{name} seen'].append((at, time.time()))
    yield record


class NoteWithStateFn(NoteFn):
  COUNT = userstate.CombiningValueStateSpec('count', sum)

  def process(self, record, count=beam.DoFn.StateParam(COUNT)):
    count.add(1)
    yield from super().process(record)


class NoteWithTimerFn(NoteFn):
  """Every record sets a timer that is far away."""
  LATER = userstate.TimerSpec('later', userstate.TimeDomain.WATERMARK)

  def process(self, record, later=beam.DoFn.TimerParam(LATER)):
    later.set(Timestamp(T0 + 1_000))
    yield from super().process(record)

  @userstate.on_timer(LATER)
  def fired(self):
    yield from ()


@needs_prism
class PausesTest(unittest.TestCase):
  def tearDown(self):
    for name in [name for name in SEEN if name.startswith(self.id())]:
      del SEEN[name]

  def trickle(self, p, count=4, seconds=1.5, delay=0.1):
    return (
        p
        | beam.Create([(self.id(), count)])
        | beam.ParDo(TrickleFn(seconds, delay)))

  def seen(self, what):
    return SEEN[f'{self.id()} {what}']

  def assert_each_in_time(self, count=4, seconds=1.5):
    """No record waits for the one after it."""
    given = self.seen('given')
    seen = dict(self.seen('seen'))
    self.assertEqual(count, len(given))
    self.assertEqual(list(range(count)), sorted(seen))
    late = [seen[at] - given[at] for at in range(count)]
    self.assertLess(max(late[:-1]), seconds, late)

  def test_a_plain_consumer(self):
    """Case B33: the watermark of the source stands still all the time."""
    with prism_pipeline() as p:
      _ = self.trickle(p) | beam.Reshuffle() | beam.ParDo(NoteFn())
    self.assert_each_in_time()

  def test_a_stateful_consumer(self):
    with prism_pipeline() as p:
      _ = self.trickle(p) | beam.ParDo(NoteWithStateFn())
    self.assert_each_in_time()

  def test_a_consumer_whose_key_has_a_timer(self):
    with prism_pipeline() as p:
      _ = self.trickle(p) | beam.ParDo(NoteWithTimerFn())
    self.assert_each_in_time()

  def test_early_firings_of_a_grouping(self):
    """Case B33."""
    with prism_pipeline() as p:
      _ = (
          self.trickle(p, count=3, seconds=4)
          | beam.WindowInto(
              GlobalWindows(),
              trigger=trigger.Repeatedly(trigger.AfterProcessingTime(1)),
              accumulation_mode=trigger.AccumulationMode.DISCARDING)
          | beam.GroupByKey()
          | beam.FlatMapTuple(lambda name, many: [(name, at) for at in many])
          | beam.ParDo(NoteFn()))
    self.assert_each_in_time(count=3, seconds=4)

  def test_a_consumer_with_a_side_input(self):
    with prism_pipeline() as p:
      table = p | 'Table' >> beam.Create([1, 2])
      _ = (
          self.trickle(p)
          | beam.Reshuffle()
          | beam.Map(
              lambda record,
              rows: record if sorted(rows) == [1, 2] else None,
              beam.pvalue.AsList(table))
          | beam.ParDo(NoteFn()))
    self.assert_each_in_time()

  def test_asked_as_often_as_it_wants(self):
    """Case B32: two records, 6 s apart, asked for every 2 s."""
    with prism_pipeline() as p:
      _ = self.trickle(p, count=2, seconds=6, delay=2)
    self.assertIn(len(self.seen('polls')), range(4, 8))

  def test_a_slow_poll_runs_once(self):
    """Case B08: 2 s to its first claim; a split before that has no use."""
    with prism_pipeline() as p:
      _ = p | beam.Create([(self.id(), 2)]) | beam.ParDo(SlowFn())
    self.assertEqual(1, len(self.seen('polls')))

  def test_progress_that_is_not_a_number(self):
    with prism_pipeline() as p:
      _ = p | beam.Create([(self.id(), 3)]) | beam.ParDo(LostFn())
    self.assertEqual(3, len(self.seen('given')))

  def test_a_key_stays_with_its_bundle_when_it_is_split(self):
    """A slow bundle of one key is split; its state counts on."""
    with prism_pipeline() as p:
      _ = (
          p
          | beam.Create([(self.id(), at) for at in range(6)])
          | beam.Reshuffle()
          | beam.ParDo(SlowCountFn()))
    self.assertEqual([1, 2, 3, 4, 5, 6], sorted(self.seen('counts')))


@needs_prism
class HoldsTest(unittest.TestCase):
  """What waits holds the watermark; the base is right here, too."""
  tearDown = PausesTest.tearDown

  def test_the_slower_of_two_splits_holds_the_windows(self):
    with prism_pipeline() as p:
      counts = (
          p
          | beam.Create([(0, 8), (1.5, 1)])
          | beam.ParDo(AtItsPaceFn())
          | beam.WindowInto(FixedWindows(10))
          | beam.GroupByKey()
          | beam.MapTuple(
              lambda key, all, window=beam.DoFn.WindowParam:
              (int(window.start) - T0, len(list(all)))))
      assert_that(
          counts, equal_to([(0, 2)] + [(at, 1) for at in range(10, 80, 10)]))

  def test_a_bounded_aggregate_waits_for_what_is_parked(self):
    """Cases B32 and B40: it must not fire early, nor fail."""
    with prism_pipeline() as p:
      total = (
          p
          | beam.Create([(self.id(), 4)])
          | beam.ParDo(BoundedFn())
          | beam.CombineGlobally(beam.combiners.CountCombineFn()))
      assert_that(total, equal_to([4]))


class AtItsPaceFn(beam.DoFn):
  """One record for every 10 s of event time, after a pause of its own."""
  @beam.DoFn.unbounded_per_element()
  def process(
      self,
      element,
      tracker=beam.DoFn.RestrictionParam(Endless()),
      watermark=beam.DoFn.WatermarkEstimatorParam(
          ManualWatermarkEstimator.default_provider())):
    pause, count = element
    key = f'{self}{pause}'
    at = tracker.current_restriction().start
    watermark.set_watermark(Timestamp(T0 + 10 * at))
    if pause and not SEEN[key]:
      SEEN[key].append(True)
      tracker.defer_remainder(Duration(pause))
    elif tracker.try_claim(at):
      yield TimestampedValue(('key', at), T0 + 10 * at)
      watermark.set_watermark(Timestamp(T0 + 10 * (at + 1)))
      if at + 1 < count:
        tracker.defer_remainder(Duration(0.05))


class BoundedFn(beam.DoFn):
  """Pauses after each position, of as many as there are."""
  def process(
      self, element, tracker=beam.DoFn.RestrictionParam(Positions())):
    name, count = element
    at = tracker.current_restriction().start
    if tracker.try_claim(at):
      yield name, at
      if at + 1 < count:
        tracker.defer_remainder(Duration(0.3))


class SlowCountFn(beam.DoFn):
  COUNT = userstate.CombiningValueStateSpec('count', sum)

  def process(self, record, count=beam.DoFn.StateParam(COUNT)):
    time.sleep(0.5)
    count.add(1)
    SEEN[f'{record[0]} counts'].append(count.read())


class SlowFn(beam.DoFn):
  @beam.DoFn.unbounded_per_element()
  def process(
      self, element, tracker=beam.DoFn.RestrictionParam(Endless())):
    name, count = element
    SEEN[f'{name} polls'].append(time.time())
    time.sleep(2)
    for at in range(tracker.current_restriction().start, count):
      if not tracker.try_claim(at):
        return
      yield TimestampedValue((name, at), T0 + at)


class LostTracker(Unending):
  def current_progress(self):
    return iobase.RestrictionProgress(
        completed=float('nan'), remaining=float('nan'))


class LostPositions(Positions):
  def create_tracker(self, positions):
    return LostTracker(positions)


class LostFn(beam.DoFn):
  """Takes its time after a record; does not know how far it is."""
  @beam.DoFn.unbounded_per_element()
  def process(
      self, element, tracker=beam.DoFn.RestrictionParam(LostPositions())):
    name, count = element
    for at in range(tracker.current_restriction().start, count):
      if not tracker.try_claim(at):
        return
      SEEN[f'{name} given'].append(time.time())
      yield TimestampedValue((name, at), T0 + at)
      time.sleep(1)


if __name__ == '__main__':
  unittest.main()
