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

"""Tests of the buffer, its storages, its timers and its bytes.

`Simulation` is a runner in miniature: a watermark, timers that fire when it
reaches them, and states that are bytes between two bundles.
"""

import collections
import contextlib
import random
import unittest
from unittest import mock

import hypothesis
from hypothesis import strategies as st

from apache_beam.transforms import _ordered_buffer
from apache_beam.transforms import _ordered_records
from apache_beam.transforms import _ordered_runs
from apache_beam.transforms._ordered_buffer import BufferState
from apache_beam.transforms._ordered_buffer import KeyBuffer
from apache_beam.transforms._ordered_buffer import Saved
from apache_beam.transforms._ordered_records import RecordOrder
from apache_beam.transforms._ordered_records import decode_run
from apache_beam.transforms._ordered_records import encode_run
from apache_beam.transforms._ordered_runs import BagRuns
from apache_beam.transforms._ordered_runs import ListRuns
from apache_beam.transforms._ordered_schedule import Schedule
from apache_beam.transforms._ordered_state import SavedCoder

BACKS = ('bag', 'list')


class Bag:
  """A bag whose order is none, as a runner's may be."""
  def __init__(self, shuffle):
    self.items = []
    self.reads = 0
    self._shuffle = shuffle

  def add(self, item):
    assert type(item) is bytes
    self.items.append(item)

  def read(self):
    self.reads += 1
    self._shuffle(self.items)
    return iter(list(self.items))

  def clear(self):
    self.items = []


class OrderedList:
  """A list by time; of one time the entries are in no order."""
  def __init__(self, shuffle):
    self.entries = collections.defaultdict(list)
    self._shuffle = shuffle

  def add(self, entry):
    time, item = entry
    assert type(item) is bytes
    self.entries[time.micros].append(item)

  def read_range(self, begin, end):
    for time in sorted(self._times(begin, end)):
      self._shuffle(self.entries[time])
      for item in self.entries[time]:
        yield time, item

  def clear_range(self, begin, end):
    for time in self._times(begin, end):
      del self.entries[time]

  def _times(self, begin, end):
    begin, end = begin.micros, end.micros
    return [time for time in self.entries if begin <= time < end]


@contextlib.contextmanager
def small_sizes():
  """So small that a few elements go through everything."""
  with mock.patch.multiple(_ordered_buffer, FRONT=3, AHEAD=2), (
      mock.patch.multiple(
          _ordered_runs, AHEAD=2, CAPACITIES=(5, 9))), (
      mock.patch.object(_ordered_records, 'RECORDS_PER_RUN', 2)):
    yield


class Simulation:
  """One key on one runner. Times of elements in microseconds."""
  def __init__(
      self,
      back,
      lateness=0,
      interval=0,
      end=None,
      sort_key=None,
      shuffle=lambda items: None):
    self.back = back
    self.bags = [Bag(shuffle) for _ in range(_ordered_runs.LEVELS)]
    self.list = OrderedList(shuffle)
    self.order = RecordOrder(sort_key)
    self.schedule = (lateness, interval, end)
    self.saved = SavedCoder().encode(Saved())
    self.timers = {}
    self.released = []
    self.late = []
    self.count = 0
    self.fired = 0
    self.rounds = 0
    self.set = 0
    self.holds = []

  def open(self):
    saved = SavedCoder().decode(self.saved)
    back = (
        BagRuns(self.bags, self.order, saved.marks) if self.back == 'bag' else
        ListRuns(self.list, self.order, saved.marks))
    return KeyBuffer(saved, back, self.order), Schedule(
        *self.schedule, saved.timers)

  def close(self, buffer, schedule, probe):
    for tag, fire, hold in schedule.plan(
        buffer.state, buffer.ahead if probe else None):
      assert hold <= fire
      self.timers[tag] = (fire, hold)
      self.set += 1
    self.saved = SavedCoder().encode(buffer.save(schedule.memory))
    self.count = buffer.count

  def arrive(self, arrivals):
    buffer, schedule = self.open()
    self.late += buffer.add(arrivals)
    self.close(buffer, schedule, False)

  def hold(self):
    """The watermark hold, in milliseconds."""
    return min((hold for _, hold in self.timers.values()), default=None)

  def advance(self, watermark, rounds=10_000):
    """Fires what is due at a watermark (milliseconds), bundle by bundle."""
    for _ in range(rounds):
      due = sorted((fire, tag) for tag, (fire, _) in self.timers.items()
                   if fire <= watermark)
      if not due:
        return
      self.rounds += 1
      held = self.hold()
      for _, tag in due:
        del self.timers[tag]
      for fire, _ in due:
        self.fired += 1
        buffer, schedule = self.open()
        bound = schedule.bound(fire)
        released = buffer.release(bound)
        for time, _, _ in released:
          assert held * 1000 <= time, 'released behind the hold'
        self.released += released
        if bound is None:
          assert buffer.count == 0
          buffer.clear()
          self.saved = SavedCoder().encode(Saved())
          self.timers.clear()
          self.count = 0
          return
        self.close(buffer, schedule, True)
    raise AssertionError('timers fire for ever')

  def storage_is_empty(self):
    return not any(bag.items for bag in self.bags) and not self.list.entries


ARRIVALS = st.lists(
    st.tuples(
        st.integers(-20_000, 20_000), st.binary(min_size=1, max_size=1)),
    max_size=30)
STEPS = st.lists(
    st.one_of(ARRIVALS, st.integers(-25, 25)), min_size=1, max_size=12)


def sorted_by(arrivals, sort_key=None):
  return sorted(
      arrivals,
      key=lambda a: (a[0], sort_key(a[1]) if sort_key else 0))


class PropertyTest(unittest.TestCase):
  """Any arrivals, watermark and bundles: as sorting, but for what is late."""
  def check(self, back, steps, lateness, interval, end, sort_key, seed):
    with small_sizes():
      simulation = Simulation(
          back,
          lateness,
          interval,
          end,
          sort_key,
          random.Random(seed).shuffle)
      watermark = -30
      arrived = []
      for step in steps:
        if isinstance(step, list):
          # What is behind the watermark is late by Beam's words.
          on_time = [a for a in step if a[0] // 1000 >= watermark - lateness]
          if end is not None:
            step = [a for a in step if a[0] // 1000 <= end]
          arrived += step
          before = len(simulation.late)
          if step:
            simulation.arrive(step)
          for late in simulation.late[before:]:
            self.assertNotIn(late, on_time)
        elif step > watermark and (end is None or step < end):
          watermark = step
          simulation.advance(watermark)
          if simulation.count:
            self.assertLessEqual(
                simulation.hold() * 1000,
                simulation.open()[0].state.min_event_time)
          if not interval:
            # As soon as safe: all of it, and nothing that is not.
            state = simulation.open()[0].state
            if state.min_event_time is not None:
              self.assertGreaterEqual(
                  state.min_event_time, (watermark - lateness) * 1000)
      simulation.advance(10**9)
      given = [(time, value) for time, _, value in simulation.released]
      remaining = collections.Counter(arrived)
      remaining.subtract(simulation.late)
      self.assertEqual(sorted(given), sorted(remaining.elements()))
      # Equal elements are exchangeable but for arrival; numbers tell.
      expected = sorted_by(given, sort_key)
      self.assertEqual(expected, given)
      numbers = [(time, sort_key(value) if sort_key else 0, number)
                 for time, number, value in simulation.released]
      self.assertEqual(sorted(numbers), numbers)
      self.assertTrue(simulation.storage_is_empty())

  @hypothesis.settings(max_examples=150, deadline=None)
  @hypothesis.given(
      st.sampled_from(BACKS),
      STEPS,
      st.sampled_from([0, 3]),
      st.sampled_from([0, 7]),
      st.sampled_from([None, 21]),
      st.booleans(),
      st.integers(0, 9))
  def test_as_sorting(
      self, back, steps, lateness, interval, end, with_key, seed):
    self.check(
        back,
        steps,
        lateness,
        interval,
        end, (lambda value: 255 - value[0]) if with_key else None,
        seed)

  @hypothesis.settings(max_examples=5, deadline=None)
  @hypothesis.given(
      st.sampled_from(BACKS), st.integers(200, 6000), st.integers(0, 9))
  def test_as_sorting_at_real_sizes(self, back, number, seed):
    rng = random.Random(seed)
    simulation = Simulation(back)
    arrivals = [(rng.randrange(-10**7, 10**7), b'%d' % i)
                for i in range(number)]
    for i in range(0, number, 100):
      simulation.arrive(arrivals[i:i + 100])
    for watermark in range(-10_000, 10_001, 2500):
      simulation.advance(watermark)
      self.assertEqual(
          number - sum(a[0] < watermark * 1000 for a in arrivals),
          simulation.count)
    simulation.advance(10**9)
    self.assertEqual(
        sorted_by(arrivals),
        [(time, value) for time, _, value in simulation.released])


class BufferTest(unittest.TestCase):
  """Single points of what the property says."""
  def test_the_example_of_three_at_one_time(self):
    for back in BACKS:
      with small_sizes():
        simulation = Simulation(back)
        simulation.arrive([(1000, b'%d' % i) for i in range(10)])
        simulation.arrive([(1000, b'%d' % i) for i in range(10, 20)])
        simulation.advance(1)
        self.assertEqual([], simulation.released)
        simulation.advance(2)
        self.assertEqual([b'%d' % i for i in range(20)],
                         [record[2] for record in simulation.released])

  def test_a_late_element_stops_nothing(self):
    simulation = Simulation('bag')
    simulation.arrive([(1000, b'a')])
    simulation.advance(5)
    simulation.arrive([(1999, b'late'), (9000, b'b')])
    self.assertEqual([(1999, b'late')], simulation.late[-1:])
    simulation.advance(10)
    self.assertEqual([b'a', b'b'], [r[2] for r in simulation.released])

  def test_at_the_watermark_is_in_time(self):
    simulation = Simulation('bag')
    simulation.arrive([(1000, b'a'), (5000, b'c')])
    simulation.advance(2)
    simulation.arrive([(1999, b'late'), (2000, b'b')])
    self.assertEqual([(1999, b'late')], simulation.late)
    simulation.advance(6)
    self.assertEqual([b'a', b'b', b'c'], [r[2] for r in simulation.released])

  def test_elements_before_1970(self):
    simulation = Simulation('list', interval=10)
    simulation.arrive([(-1, b'b'), (-70_000_000, b'a')])
    simulation.advance(-69_990)
    self.assertEqual([b'a'], [r[2] for r in simulation.released])
    simulation.advance(-1)
    self.assertEqual(1, len(simulation.released))
    simulation.advance(0)
    self.assertEqual(2, len(simulation.released))

  def test_the_earliest_and_the_latest_time(self):
    for back in BACKS:
      with small_sizes():
        times = [-9223372036854775000, 9223371950454775000, 0, 1, 2, 3, 4, 5]
        simulation = Simulation(back, end=9223371950454775)
        simulation.arrive([(time, b'') for time in times])
        simulation.advance(9223371950454774)
        self.assertEqual(7, len(simulation.released))
        simulation.advance(9223371950454775)
        self.assertEqual(
            sorted(times), [record[0] for record in simulation.released])

  def test_the_window_end_gives_out_all_and_clears(self):
    simulation = Simulation('bag', lateness=100, end=9)
    simulation.arrive([(9500, b'b'), (1000, b'a')])
    self.assertEqual((9, 9), simulation.timers['end'])
    simulation.advance(8)
    self.assertEqual([], simulation.released)
    simulation.advance(9)
    self.assertEqual([b'a', b'b'], [r[2] for r in simulation.released])
    self.assertEqual(SavedCoder().encode(Saved()), simulation.saved)

  def test_lateness_waits(self):
    simulation = Simulation('bag', lateness=10)
    simulation.arrive([(5000, b'b')])
    simulation.advance(15)
    self.assertEqual([], simulation.released)
    simulation.arrive([(5000, b'c'), (4999, b'a')])
    self.assertEqual([], simulation.late)
    simulation.advance(16)
    self.assertEqual([b'a', b'b', b'c'], [r[2] for r in simulation.released])

  def test_what_state_tells(self):
    simulation = Simulation('bag')
    simulation.arrive([(1000, b''), (8000, b'')])
    self.assertEqual(
        BufferState(None, None, 1000, 8000), simulation.open()[0].state)
    simulation.advance(4)
    state = simulation.open()[0].state
    self.assertEqual(BufferState(2000, 1000, 8000, 8000), state)
    self.assertTrue(state.batch_pending)
    simulation.advance(9)
    state = simulation.open()[0].state
    self.assertEqual(BufferState(9000, 8000, None, None), state)
    self.assertFalse(state.batch_pending)


class CostTest(unittest.TestCase):
  """What is read, decoded and set, counted: no clock."""
  def decoded(self, number, back):
    """How many records are decoded to release `number`, fifty at a time."""
    simulation = Simulation(back)
    rng = random.Random(1)
    times = [i * 1000 for i in range(number)]
    rng.shuffle(times)
    decoded = 0

    def counted(run):
      nonlocal decoded
      records = decode_run(run)
      decoded += len(records)
      return records

    with mock.patch.object(_ordered_runs, 'decode_run', counted):
      for i in range(0, number, 100):
        simulation.arrive([(time, b'') for time in times[i:i + 100]])
      for watermark in range(0, number + 50, 50):
        simulation.advance(watermark)
    self.assertEqual(number, len(simulation.released))
    return decoded

  def test_a_record_is_decoded_a_few_times_whatever_the_number(self):
    self.assertLess(self.decoded(10_000, 'bag'), 8 * 10_000)
    self.assertLess(self.decoded(10_000, 'list'), 8 * 10_000)

  def test_a_slow_watermark_reads_storage_seldom(self):
    simulation = Simulation('bag')
    simulation.arrive([(i * 1000, b'') for i in range(5000)])
    for watermark in range(2000):
      simulation.advance(watermark)
    reads = sum(bag.reads for bag in simulation.bags)
    self.assertLess(reads, 2000 // 30)

  def test_a_slow_watermark_sets_few_timers(self):
    simulation = Simulation('bag')
    simulation.arrive([(i * 1000, b'') for i in range(1000)])
    for watermark in range(1001):
      simulation.advance(watermark)
    self.assertEqual(1000, len(simulation.released))
    # Its own, and one of the next few.
    self.assertLess(simulation.set, 2100)

  def test_a_watermark_that_jumps_fires_few_timers(self):
    for goal, fired, rounds in (
        (5000, 80, 9), (2503, 170, 12), (10**6, 80, 9)):
      simulation = Simulation('bag')
      simulation.arrive([(i * 1000, b'') for i in range(5000)])
      simulation.advance(goal)
      self.assertEqual(min(goal, 5000), len(simulation.released))
      self.assertLess(simulation.fired, fired)
      self.assertLess(simulation.rounds, rounds)

  def test_a_hundred_elements_take_few_rounds(self):
    simulation = Simulation('bag')
    simulation.arrive([(i * 1000, b'') for i in range(10_000)])
    for watermark in range(100, 9100, 100):
      simulation.advance(watermark)
    self.assertLess(simulation.rounds, 90 * 2.5)
    # One for each element, one of eight again, and a few.
    self.assertLess(simulation.set, 9000 * 1.3)

  def test_ties_that_do_not_fit_are_not_read_in_vain(self):
    simulation = Simulation('bag')
    simulation.arrive([(i // 100 * 1_000_000, b'') for i in range(5000)])
    for watermark in range(0, 20_000, 100):
      simulation.advance(watermark)
    self.assertEqual(2000, len(simulation.released))
    self.assertLess(sum(bag.reads for bag in simulation.bags), 3 * 20)

  def test_elements_in_order_set_one_timer(self):
    simulation = Simulation('bag')
    for i in range(100):
      simulation.arrive([(i * 1000, b'')])
    self.assertEqual(1, simulation.set)

  def test_the_value_of_a_key_stays_small(self):
    for back in BACKS:
      simulation = Simulation(back)
      for i in range(3000):
        simulation.arrive([(-i * 1000, b'12345678')])
      self.assertLess(len(simulation.saved), 192 * 20 + 100)


class RunsTest(unittest.TestCase):
  def test_what_a_runner_loses_is_an_error(self):
    """Case B84: of one time, a list kept the last."""
    simulation = Simulation('list')
    simulation.arrive([(time, b'') for time in range(0, 900_000, 1000)])
    for time in (500_000, 501_000):
      del simulation.list.entries[time]
    with self.assertRaisesRegex(RuntimeError, 'OrderedListState, where it put'):
      simulation.advance(1000)
    simulation = Simulation('bag')
    simulation.arrive([(time, b'') for time in range(0, 900_000, 1000)])
    del simulation.bags[0].items[0]
    with self.assertRaisesRegex(RuntimeError, 'in a bag, where it put'):
      simulation.advance(1000)

  def test_no_record_is_earlier_than_low(self):
    """A run that is left as it is may begin before what is left of others."""
    bags = [Bag(lambda items: None) for _ in range(_ordered_runs.LEVELS)]
    runs = BagRuns(bags, RecordOrder(), ())
    runs.add([(2 * i, i, b'') for i in range(128)])
    runs.add([(191 + 2 * i, 128 + i, b'') for i in range(128)])
    with mock.patch.object(_ordered_runs, 'AHEAD', 64):
      self.assertEqual(96, len(runs.take(64)))
    self.assertEqual(191, runs.low)


class HoldTest(unittest.TestCase):
  def test_one_tag_never_has_two_holds_for_one_time(self):
    """Prism ends a job that does so."""
    seen = {}
    for schedule in (Schedule(0, 10, 95), Schedule(5, 0, None)):
      for micros in range(0, 95_000, 500):
        # Each on its own memory: all that could be set in any order.
        for tag, fire, hold in Schedule(
            schedule._lateness, schedule._interval, schedule._end).plan(
            BufferState(None, None, micros, micros + 20_000),
            range(micros, micros + 20_000, 700)):
          key = (schedule._lateness, tag, fire)
          self.assertEqual(hold, seen.setdefault(key, hold), key)
    self.assertGreater(len(seen), 50)


class FormatTest(unittest.TestCase):
  """Bytes that jobs have in their states: they never change."""
  SAVED = Saved(
      BufferState(-1000, None, 5000, 7000),
      3, (6, 5),
      (2, 0, 0, 7000, 0, 0), ((5000, 1, b'v'), ),
      ((-1000, 0, b'u'), ))
  BYTES = bytes.fromhex(
      '0105'
      '98f8ffffffffffffff01'
      '8827d836'
      '03'
      '020605'
      '06020000d8360000'
      '882701'
      '8827010176'
      '98f8ffffffffffffff0101'
      '98f8ffffffffffffff01000175')

  def test_the_value_of_a_key(self):
    self.assertEqual(self.BYTES.hex(), SavedCoder().encode(self.SAVED).hex())
    self.assertEqual(self.SAVED, SavedCoder().decode(self.BYTES))

  def test_an_empty_one(self):
    self.assertEqual(
        '010000000000000000', SavedCoder().encode(Saved()).hex())
    self.assertEqual(Saved(), SavedCoder().decode(bytes.fromhex(
        '010000000000000000')))

  def test_a_run(self):
    records = [(-1, 0, b''), (5000, 300, b'xy')]
    encoded = encode_run(records)
    self.assertEqual(
        'ffffffffffffffffff0102'
        'ffffffffffffffffff010000'
        '8827ac02027879',
        encoded.hex())
    self.assertEqual(records, decode_run(encoded))

  def test_another_version_is_refused(self):
    with self.assertRaisesRegex(ValueError, 'has format 2, this Beam reads 1'):
      SavedCoder().decode(b'\x02' + self.BYTES[1:])

  @hypothesis.given(
      st.builds(
          Saved,
          st.one_of(
              st.just(BufferState()),
              st.builds(
                  BufferState, *[st.integers(-2**63, 2**63 - 1)] * 4)),
          st.integers(0, 2**40),
          st.lists(st.integers(-2**63, 2**63 - 1)).map(tuple),
          st.lists(st.integers(-2**63, 2**63 - 1)).map(tuple),
          st.lists(
              st.tuples(
                  st.integers(-2**63, 2**63 - 1),
                  st.integers(0, 2**40),
                  st.binary())).map(tuple),
          st.lists(
              st.tuples(
                  st.integers(-2**63, 2**63 - 1),
                  st.integers(0, 2**40),
                  st.binary())).map(tuple)))
  def test_what_is_encoded_comes_back(self, saved):
    encoded = SavedCoder().encode(saved)
    self.assertEqual(saved, SavedCoder().decode(encoded))


if __name__ == '__main__':
  unittest.main()
