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


"""Watch, one input at a time: what is output when, and what is kept.

The other inputs of a runner, and runners, are in ``watch_pipeline_test``.
"""

import dataclasses
import functools
import pickle
import time
import typing
import unittest
from unittest import mock

import hypothesis
from hypothesis import strategies as st

import apache_beam as beam
from apache_beam import coders
from apache_beam.io import _watch_dofn
from apache_beam.io import watch as watch_module
from apache_beam.io._unbounded_restriction import new_id
from apache_beam.io._watch_memory import MEMORIES
from apache_beam.io._watch_poll import NotYet
from apache_beam.io._watch_poll import NumberedPollFn
from apache_beam.io._watch_restriction import Packed
from apache_beam.io._watch_restriction import Polling
from apache_beam.io._watch_restriction import Replay
from apache_beam.io._watch_restriction import RestrictionCoder
from apache_beam.io._watch_testing import FakeClock
from apache_beam.io._watch_testing import Script
from apache_beam.io._watch_testing import WatchHarness
from apache_beam.io._watch_testing import at
from apache_beam.io._watch_testing import found
from apache_beam.io.watch import PollError
from apache_beam.io.watch import PollFn
from apache_beam.io.watch import PollResult
from apache_beam.io.watch import RetryLater
from apache_beam.io.watch import TerminationCondition
from apache_beam.io.watch import Watch
from apache_beam.io.watch import WatchStateError
from apache_beam.io.watch import after_iterations
from apache_beam.io.watch import after_total_of
from apache_beam.io.watch import all_of
from apache_beam.io.watch import never
from apache_beam.transforms.window import TimestampedValue
from apache_beam.typehints import typehints
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Duration
from apache_beam.utils.timestamp import Timestamp

incomplete = PollResult.incomplete
complete = PollResult.complete


def listed(*values, base=1000):
  """Values named by their time."""
  return [at(base + int(value[1:]), value) for value in values]


class PollResultTest(unittest.TestCase):
  def test_outputs_keep_their_times(self):
    result = incomplete([at(1, 'a'), 'b'], timestamp=7)
    self.assertEqual((at(1, 'a'), at(7, 'b')), result.outputs)
    self.assertIsNone(result.watermark)
    self.assertFalse(result.is_complete)

  def test_outputs_without_a_time_get_that_of_the_clock(self):
    before = Timestamp.now()
    for result in (incomplete(['a']), complete(['a']), PollResult(('a', ))):
      output, = result.outputs
      self.assertEqual('a', output.value)
      self.assertLessEqual(before, output.timestamp)
      self.assertLessEqual(output.timestamp, Timestamp.now())

  def test_complete_has_the_last_watermark(self):
    self.assertEqual(MAX_TIMESTAMP, complete([]).watermark)
    self.assertTrue(complete([]).is_complete)
    self.assertTrue(incomplete([]).with_watermark(MAX_TIMESTAMP).is_complete)
    self.assertFalse(incomplete([]).with_watermark(5).is_complete)
    self.assertEqual(Timestamp(5), incomplete([]).with_watermark(5).watermark)

  def test_iterables_are_gone_through_once(self):
    """Case B06: a generator that was used up gave nothing."""
    for make in (iter, set, frozenset, list, tuple, lambda it: (x for x in it)):
      result = incomplete(make(['a']), timestamp=1)
      self.assertEqual((at(1, 'a'), ), result.outputs)
      self.assertEqual((at(1, 'a'), ), result.outputs)
      self.assertEqual(result, pickle.loads(pickle.dumps(result)))
      self.assertEqual((at(1, 'a'), ), PollResult(iter([at(1, 'a')])).outputs)

  def test_is_a_value(self):
    self.assertEqual(incomplete(listed('a1')), incomplete(listed('a1')))
    self.assertNotEqual(incomplete(listed('a1')), complete(listed('a1')))
    self.assertEqual(
        hash(incomplete(listed('a1'))), hash(incomplete(listed('a1'))))
    self.assertEqual(
        incomplete(listed('a1')),
        incomplete(listed('a1')).with_watermark(3)._changed(watermark=None))
    with self.assertRaises(Exception):
      incomplete([]).watermark = 3

  def test_arguments_are_checked(self):
    for make, told in (
        (lambda: incomplete('abc'), "outputs='abc' must be an iterable"),
        (lambda: complete(b'abc'), 'put it into a list'),
        (lambda: incomplete({'a': 1}), 'must be an iterable'),
        (lambda: incomplete(None), 'outputs=None must'),
        (lambda: incomplete(at(1, 'a')), 'put it into a list'),
        (lambda: PollResult('abc'), "outputs='abc'"),
        (lambda: incomplete([], timestamp='noon'), "timestamp='noon' is not"),
        (lambda: complete([], timestamp=float('nan')), 'timestamp=nan is not'),
        (
            lambda: incomplete([]).with_watermark('noon'),
            "watermark='noon' is not a time"),
        (lambda: incomplete([]).with_watermark(None), 'watermark=None is not'),
        (
            lambda: incomplete([]).with_watermark(float('inf')),
            'watermark=inf is not a time'),
        (lambda: PollResult((), 1e30), 'watermark=1e.30 is outside of what'),
        (
            lambda: incomplete([]).with_next_poll_delay(-1),
            'next_poll_delay=-1 must be 0 or more'),
        (
            lambda: incomplete([]).with_next_poll_delay('1'),
            "next_poll_delay='1' must be a number"),
        (
            lambda: incomplete([]).with_next_poll_delay(float('nan')),
            'next_poll_delay=nan must be 0 or more')):
      with self.subTest(told):
        with self.assertRaisesRegex((TypeError, ValueError), told):
          make()


class WhatIsOutputTest(unittest.TestCase):
  """Purpose: each output once, with the time it was first listed with."""
  def run_all(self, script, restart=False, **kwargs):
    harness = WatchHarness(script, **kwargs)
    return [
        sorted(found(result)) for result in harness.steps(restart=restart)
    ]

  def test_listed_again_reordered_duplicated_and_empty(self):
    for cursor in (False, True):
      for restart in (False, True):
        with self.subTest(cursor=cursor, restart=restart):
          script = Script(
              incomplete([]),
              incomplete(listed('a1', 'b2')),
              incomplete([]),
              incomplete(listed('b2', 'a1')),
              incomplete(listed('c3', 'b2', 'c3', 'a1', 'c3')),
              complete(listed('d4', 'c3')))
          self.assertEqual([[], ['a1', 'b2'], [], [], ['c3'], ['d4']],
                           self.run_all(
                               script, restart, timestamp_cursor=cursor))
          self.assertEqual(6, len(script.polls))

  def test_input_and_time_come_with_each(self):
    harness = WatchHarness(
        Script(
            incomplete([at(5.000001, 'a')]),
            complete([at(9, 'a'), at(7, 'b')])))
    first, second = harness.steps()
    self.assertEqual([(('in', 'a'), Timestamp(micros=5000001))], first.records)
    self.assertEqual([(('in', 'b'), Timestamp(7))], second.records)

  def test_a_generator(self):
    self.assertEqual(
        [['a', 'b'], ['c']],
        self.run_all(
            Script(
                lambda: incomplete((at(1, v) for v in 'ab')),
                lambda: complete(at(1, v) for v in 'abc'))))

  def test_equal_times_in_different_polls(self):
    """Case B19."""
    for restart in (False, True):
      self.assertEqual([['a'], ['b'], []],
                       self.run_all(
                           Script(
                               incomplete([at(5, 'a')]),
                               incomplete([at(5, 'a'), at(5, 'b')]),
                               complete([at(5, 'b'), at(5, 'a')])),
                           restart,
                           timestamp_cursor=True))

  def test_microseconds_through_the_cursor(self):
    """Case B02."""
    for remainder in (0, 1, 499, 500, 999):
      time_ = Timestamp(micros=1_500_000_001_234_000 + remainder)
      one = TimestampedValue('a', time_)
      harness = WatchHarness(
          Script(
              incomplete([one]),
              incomplete([one]),
              complete([TimestampedValue('b', time_), one])),
          timestamp_cursor=True)
      results = harness.steps(restart=True)
      self.assertEqual([['a'], [], ['b']], list(map(found, results)))
      self.assertEqual(time_.micros, results[0].residuals[0].cursor)
      self.assertEqual(time_, results[2].records[0][1])

  def test_lateness(self):
    """Cases B18 and B20."""
    for lateness, expected in ((0, []), (2.999999, []), (3, ['b']),
                               (Duration(4), ['b'])):
      self.assertEqual([['a'], expected],
                       self.run_all(
                           Script(
                               incomplete([at(18, 'a')]),
                               complete([at(18, 'a'), at(15, 'b')])),
                           timestamp_cursor=True,
                           allowed_lateness=lateness))

  def test_a_time_far_ahead(self):
    """One wrong time must not silence, or make late, what follows."""
    clock = FakeClock(10)
    for cursor in (False, True):
      for restart in (False, True):
        script = Script(
            incomplete([at(9, 'a'), at(10**9, 'far')]),
            incomplete([at(10**9, 'far'), at(10**9 + 1, 'farther')]),
            incomplete([at(10**9, 'far'), at(10, 'b')]),
            complete([at(10**9, 'far'), at(11, 'c')]))
        harness = WatchHarness(script, timestamp_cursor=cursor, now_fn=clock)
        results = harness.steps(restart=restart)
        self.assertEqual([['a', 'far'], ['farther'], ['b'], ['c']],
                         list(map(found, results)))
        self.assertEqual(
            [Timestamp(9), Timestamp(9), Timestamp(10)],
            [result.watermarks[0] for result in results[:3]])

  def test_the_end_of_time_does_not_end_polling(self):
    for cursor in (False, True):
      script = Script(
          incomplete([TimestampedValue('end', MAX_TIMESTAMP)]),
          incomplete([
              TimestampedValue('end', MAX_TIMESTAMP),
              TimestampedValue('a', Timestamp(5))
          ]),
          complete([at(5, 'b')]))
      harness = WatchHarness(script, timestamp_cursor=cursor)
      results = harness.steps()
      self.assertEqual([['end'], ['a'], ['b']], list(map(found, results)))
      self.assertEqual([MIN_TIMESTAMP], results[0].watermarks)

  def test_times_that_beam_has_not(self):
    beyond = Timestamp(micros=MAX_TIMESTAMP.micros + 1)
    harness = WatchHarness(
        Script(incomplete([at(5, 'a'), TimestampedValue('b', beyond)])))
    with self.assertRaisesRegex(PollError, "event time of 'b' is"):
      harness.steps()

  def test_equal_keys_that_are_not_identical(self):
    values = [1, 1.0, True, 0, False, (1, ), (True, )]
    for cursor in (False, True):
      for restart in (False, True):
        script = Script(
            incomplete([at(1, value) for value in values[:1]]),
            incomplete([at(1, value) for value in values[:3]]),
            complete([at(1, value) for value in values[::-1]]),
            coder=coders.FastPrimitivesCoder())
        harness = WatchHarness(script, timestamp_cursor=cursor)
        results = harness.steps(restart=restart)
        self.assertEqual(
            ['[1]', '[1.0, True]', '[(True,), (1,), False, 0]'],
            [repr(found(result)) for result in results])

  def test_a_key_function(self):
    def first_letter(value: str) -> str:
      return value[0]

    for cursor in (False, True):
      self.assertEqual([['a1', 'b1'], ['c1'], []],
                       self.run_all(
                           Script(
                               incomplete([at(1, v) for v in ('a1', 'b1')]),
                               incomplete([at(1, v) for v in ('a2', 'c1')]),
                               complete([at(1, v) for v in ('b3', 'c2')])),
                           output_key_fn=first_letter,
                           timestamp_cursor=cursor))

  def test_start_cursor(self):
    """Case B14: only what is newer, whatever the lateness."""
    for cursor in (False, True):
      harness = WatchHarness(
          Script(
              incomplete([at(4, 'a'), at(5, 'b'), at(5.000001, 'c')]),
              incomplete([at(4, 'a'), at(6, 'd')]),
              complete([at(3, 'e'), at(5.5, 'f')])),
          timestamp_cursor=cursor,
          allowed_lateness=3 if cursor else 0,
          start_cursor=Timestamp(5))
      results = harness.steps()
      self.assertEqual([['c'], ['d'], ['f']], list(map(found, results)))
      self.assertEqual(1, results[0].residuals[0].key_count)

  def test_settle_time(self):
    """Case B23: what is newer than now - d is left to a later poll."""
    for cursor in (False, True):
      clock = FakeClock(100)
      outputs = [at(89, 'a'), at(90, 'b'), at(91, 'c'), at(100, 'd')]

      def later(seconds, result, clock=clock):
        def poll():
          clock.now += seconds
          return result

        return poll

      harness = WatchHarness(
          Script(
              later(0, incomplete(outputs).with_watermark(100)),
              later(1, incomplete(outputs[::-1]).with_watermark(100)),
              later(8, incomplete(outputs).with_watermark(100)),
              later(9, complete(outputs + [at(109, 'e')]))),
          settle_time=10,
          timestamp_cursor=cursor,
          now_fn=clock)
      results = harness.steps()
      # The time counts when the poll begins: what it lists is as old as that.
      self.assertEqual([['a', 'b'], [], ['c'], ['d', 'e']],
                       list(map(found, results)))
      # The watermark does not pass what is held.
      self.assertEqual(
          [Timestamp(91), Timestamp(91), Timestamp(100)],
          [result.watermarks[0] for result in results[:3]])

  def test_settle_time_needs_event_times(self):
    for kwargs in ({'settle_time': 1}, {'timestamp_cursor': True}):
      with self.assertRaisesRegex(PollError, 'in every list'):
        WatchHarness(Script(incomplete(['a'])), **kwargs).steps()
      WatchHarness(Script(complete(['a'], timestamp=5)), **kwargs).steps()


class RoundsTest(unittest.TestCase):
  """Purpose: one poll of very many outputs is taken in portions."""
  def script(self):
    return Script(
        incomplete(listed('a5', 'b3', 'c4', 'd1', 'e2')).with_watermark(5000),
        incomplete(listed('a5', 'f9')),
        complete(listed('g7')))

  def test_the_oldest_first(self):
    for cursor in (False, True):
      script = self.script()
      harness = WatchHarness(
          script,
          max_outputs_per_round=2,
          timestamp_cursor=cursor,
          allowed_lateness=5 if cursor else 0,
          poll_interval=30)
      results = []
      restriction = harness.initial()
      for _ in range(3):
        results.append(harness.bundle(restriction).raise_error())
        restriction, = results[-1].residuals
      self.assertEqual([['d1', 'e2'], ['b3', 'c4'], ['a5']],
                       list(map(found, results)))
      self.assertEqual(1, len(script.polls), 'it was polled once')
      # What waits is not late, and is asked for at once.
      self.assertEqual(
          [Timestamp(1003), Timestamp(1005), Timestamp(5000)],
          [result.watermarks[0] for result in results])
      self.assertEqual([0, 0], [result.delays[0] for result in results[:2]])
      self.assertAlmostEqual(30, results[2].delays[0], delta=1)
      self.assertEqual([0, 0, 1],
                       [result.residuals[0].polls for result in results])
      self.assertEqual([3, 1, 0], [result.sizes[0] for result in results])
      self.assertEqual([2, 4, 5],
                       [result.residuals[0].key_count for result in results])

  def test_another_process_polls_again(self):
    for cursor in (False, True):
      outputs = listed('a5', 'b3', 'c4', 'd1', 'e2')
      script = Script(complete(outputs))
      harness = WatchHarness(
          script, max_outputs_per_round=2, timestamp_cursor=cursor)
      results = harness.steps(restart=True)
      self.assertEqual([['d1', 'e2'], ['b3', 'c4'], ['a5']],
                       list(map(found, results)))
      self.assertEqual(3, len(script.polls))

  def test_a_huge_poll_is_not_put_into_the_state(self):
    """Case B01, second: neither the residual nor the primary of a split."""
    outputs = [at(n, f'item-{n:06}') for n in range(100000)]

    def split_last(name, number):
      if name == 'end':
        harness.split()

    harness = WatchHarness(
        Script(incomplete(outputs)), on_event=split_last, timestamp_cursor=True)
    result = harness.bundle(harness.initial()).raise_error()
    coder = RestrictionCoder(coders.StrUtf8Coder())
    residual, = result.residuals
    self.assertEqual(10000, len(result.records))
    self.assertLess(len(coder.encode(residual)), 200)

  def test_a_condition_counts_polls_not_portions(self):
    states = []

    class Counting(TerminationCondition):
      def for_new_input(self, now, element):
        return 0

      def on_seen_new_output(self, now, state):
        return state + 10

      def on_poll_complete(self, state):
        states.append(state + 1)
        return state + 1

      def can_stop_polling(self, now, state):
        return state > 20

      def state_coder(self):
        return coders.VarIntCoder()

    harness = WatchHarness(
        self.script(), max_outputs_per_round=2, termination=Counting())
    self.assertEqual([['d1', 'e2'], ['b3', 'c4'], ['a5'], ['f9']],
                     list(map(found, harness.steps())))
    self.assertEqual([11, 22], states)

  def test_complete_ends_with_the_last_portion(self):
    harness = WatchHarness(
        Script(complete(listed('a1', 'b2', 'c3'))), max_outputs_per_round=2)
    first, second = harness.steps()
    self.assertEqual(['a1', 'b2'], found(first))
    self.assertEqual([Timestamp(1003)], first.watermarks)
    self.assertEqual(['c3'], found(second))
    self.assertEqual([], second.residuals)


  def test_portions_at_the_end_of_time_hold_the_watermark(self):
    """Else the runner would take the rest for late, or the watch for over."""
    outputs = [TimestampedValue(value, MAX_TIMESTAMP) for value in 'abc']
    harness = WatchHarness(Script(complete(outputs)), max_outputs_per_round=2)
    first, second = harness.steps()
    self.assertEqual(['a', 'b'], found(first))
    self.assertEqual([MIN_TIMESTAMP], first.watermarks)
    self.assertEqual(['c'], found(second))


class WatermarkTest(unittest.TestCase):
  def watermarks(self, *results, **kwargs):
    harness = WatchHarness(Script(*results, complete([])), **kwargs)
    return [
        int(result.watermarks[0]) if result.watermarks[0] != MIN_TIMESTAMP else
        None for result in harness.steps()[:-1]
    ]

  def test_explicit_inferred_regressing_and_none(self):
    self.assertEqual(
        [None, 10, 10, 10, 12, 30, 30, 30, 40],
        self.watermarks(
            incomplete([]),
            incomplete([at(12, 'a'), at(10, 'b')]),
            incomplete([at(12, 'a'), at(10, 'b')]),
            incomplete([at(5, 'late')]),
            incomplete([at(15, 'c'), at(12, 'd'), at(5, 'late')]),
            incomplete([]).with_watermark(30),
            incomplete([]).with_watermark(20),
            incomplete([at(25, 'e')]),
            incomplete([at(45, 'f')]).with_watermark(40)))

  def test_is_set_after_the_outputs(self):
    """Else a runner that hears of it at once would take them for late."""
    heard, result = self.heard(
        Script(incomplete(listed('a1', 'b2')).with_watermark(2000)))
    # Begin, poll, polled, two outputs, end.
    self.assertEqual([MIN_TIMESTAMP] * 5, heard[:5])
    self.assertEqual(Timestamp(2000), heard[-1])
    self.assertEqual([Timestamp(2000)], result.watermarks)

  def heard(self, script, restriction=None):
    """The watermark at each event of a bundle, and at its end."""
    create = _watch_dofn.WatermarkProvider.create_watermark_estimator
    estimators = []

    def spy(provider, state):
      estimators.append(create(provider, state))
      return estimators[-1]

    heard = []
    with mock.patch.object(
        _watch_dofn.WatermarkProvider, 'create_watermark_estimator', spy):
      harness = WatchHarness(script)
      harness.on_event = lambda name, number: heard.append(
          estimators[-1].current_watermark())
      result = harness.bundle(restriction or harness.initial()).raise_error()
    return heard + [estimators[-1].current_watermark()], result

  def test_a_replay_does_not_pass_its_outputs(self):
    """Case B05: it was set to the time of the input."""
    replay = Replay(new_id(), new_id(), tuple(listed('a5', 'b7')), Timestamp(3))
    heard, result = self.heard(Script(complete([])), replay)
    self.assertEqual(['a5', 'b7'], found(result))
    self.assertEqual([], result.residuals)
    self.assertEqual([Timestamp(3)] * 3, heard[:3])
    self.assertEqual(MAX_TIMESTAMP, heard[-1])

  def test_a_residual_of_the_runner_has_the_watermark_of_its_state(self):
    def split(name, number):
      if name == 'output':
        harness.split()

    harness = WatchHarness(
        Script(incomplete(listed('a1')).with_watermark(2000), complete([])),
        on_event=split)
    first = harness.bundle(harness.initial()).raise_error()
    self.assertEqual([MIN_TIMESTAMP], first.watermarks)
    self.assertEqual(Timestamp(2000), first.residuals[0].watermark)
    primary, = first.primaries
    self.assertEqual(MIN_TIMESTAMP, primary.watermark)

  def test_estimator_state_is_pinned(self):
    """It is persisted: microseconds, as a variable length integer."""
    provider = WatchHarness(Script(complete([])))._estimators
    coder = provider.estimator_state_coder()
    polling = Polling(new_id(), new_id(), watermark=Timestamp(micros=300))
    state = provider.initial_estimator_state('in', polling)
    self.assertEqual(bytes.fromhex('ac02'), coder.encode(state))
    estimator = provider.create_watermark_estimator(state)
    estimator.observe_timestamp(Timestamp(9))
    self.assertEqual(Timestamp(micros=300), estimator.current_watermark())
    estimator.advance_to(Timestamp(micros=200))
    self.assertEqual(300, estimator.get_estimator_state())


class SplitsAndFailuresTest(unittest.TestCase):
  def script(self):
    return Script(
        incomplete(listed('a1', 'b2')),
        incomplete(listed('a1', 'b2', 'c3')),
        incomplete([]),
        complete(listed('d4', 'c3', 'a1')))

  EXPECTED = ['a1', 'b2', 'c3', 'd4']

  def test_split_at_every_moment(self):
    """Cases B08 and B43: no split loses, repeats, or polls again.

    What the bundles output is what their primaries would replay.
    """
    for cursor in (False, True):
      at_event, events = 0, 1
      while at_event < events:
        at_event += 1
        script = self.script()
        asked = []

        def split(name, number):
          # pylint: disable=cell-var-from-loop
          asked.append(harness.split(0.5))
          if number == at_event:
            asked.append(harness.split())
            if name in ('poll', 'polled'):
              self.assertFalse(asked[-1])

        harness = WatchHarness(
            script,
            on_event=split,
            timestamp_cursor=cursor,
            allowed_lateness=9 if cursor else 0)
        results = harness.steps()
        self.assertEqual(
            self.EXPECTED,
            sorted(value for result in results for value in found(result)))
        self.assertEqual(4, len(script.polls))
        for result in results:
          for primary in result.primaries:
            replayed = harness.bundle(primary).raise_error()
            self.assertEqual(result.records, replayed.records)
            self.assertEqual([], replayed.residuals)
        events = harness.events
      self.assertGreater(at_event, 15)

  def test_a_slow_poll_is_made_once(self):
    """Case B08: asked to split again and again while it polls."""
    def poll():
      for _ in range(5):
        self.assertFalse(harness.split())
        progress = harness.progress()
        self.assertEqual(0.0, progress.fraction_completed)
      return incomplete(listed('a1'))

    script = Script(poll)
    harness = WatchHarness(script, termination=after_iterations(1))
    result, = harness.steps()
    self.assertEqual(['a1'], found(result))
    self.assertEqual(1, len(script.polls))

  def test_fail_at_every_moment(self):
    """Each bundle that fails is done again, with what it began with."""
    for cursor in (False, True):
      at_event, events = 0, 1
      while at_event < events:
        at_event += 1

        def fail(name, number):
          # pylint: disable=cell-var-from-loop
          if number == at_event:
            raise RuntimeError('lost power')

        script = self.script()
        harness = WatchHarness(
            script,
            on_event=fail,
            timestamp_cursor=cursor,
            allowed_lateness=9 if cursor else 0)
        todo, values, failed = harness.initial(), [], 0
        while todo is not None:
          polls = len(script.polls)
          result = harness.bundle(todo)
          if result.error is not None:
            failed += 1
            # The same list again, as of a folder that is still the same.
            del script.polls[polls:]
            continue
          values += found(result)
          todo, = result.residuals or [None]
        self.assertEqual(self.EXPECTED, sorted(values))
        events = harness.events if failed else 0
      self.assertGreater(at_event, 15)

  def test_every_bundle_twice(self):
    """bundle_repeat: memory ahead of the restriction gave 0 of 15."""
    for cursor in (False, True):
      outputs = [f'a{n}' for n in range(15)]
      harness = WatchHarness(
          Script(*(incomplete(listed(*outputs[:n + 1])) for n in range(15))),
          timestamp_cursor=cursor,
          termination=after_iterations(15))
      script = harness._watch._polls.poll_fn
      restriction, values = harness.initial(), []
      for n in range(15):
        once = harness.bundle(restriction).raise_error()
        del script.polls[n:]
        again = harness.bundle(restriction).raise_error()
        self.assertEqual(once.records, again.records)
        values += found(again)
        restriction, = again.residuals or [None]
      self.assertIsNone(restriction)
      self.assertEqual(outputs, values)

  @hypothesis.settings(deadline=None, max_examples=150)
  @hypothesis.given(
      st.lists(
          st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=6),
      st.lists(
          st.sampled_from(['ok', 'fail', 'split', 'forget', 'retry']),
          max_size=12),
      st.booleans(),
      st.integers(1, 3))
  def test_any_polls_under_any_interference(
      self, polls, interference, cursor, max_outputs):
    """Against a set: each value once, whatever a runner does.

    With a cursor the lateness covers all times.
    """
    state = {'mode': 'ok', 'poll': 0}

    def poll():
      if state['mode'] == 'retry':
        return RetryLater(0)
      at_poll = state['poll']
      values = [f'v{n}' for n in polls[at_poll]]
      last = at_poll + 1 == len(polls)
      return (complete if last else incomplete)(listed(*values))

    def on_event(name, number):
      if state['mode'] == 'fail' and name == 'output':
        raise RuntimeError('lost power')
      if state['mode'] == 'split' and name == 'output':
        harness.split()

    harness = WatchHarness(
        Script(poll),
        on_event=on_event,
        timestamp_cursor=cursor,
        allowed_lateness=20 if cursor else 0,
        max_outputs_per_round=max_outputs)
    values, restriction, steps = [], harness.initial(), list(interference)
    while restriction is not None:
      state['mode'] = steps.pop(0) if steps else 'ok'
      # What is listed is a matter of the committed polls.
      state['poll'] = restriction.polls
      if state['mode'] == 'forget':
        MEMORIES.close_all()
      result = harness.bundle(restriction)
      if result.error is not None:
        self.assertEqual('fail', state['mode'])
        continue
      values += found(result)
      restriction, = result.residuals or [None]
    self.assertEqual(
        sorted({f'v{n}' for listed_ in polls for n in listed_}), sorted(values))

  def test_a_restart_knows_all(self):
    """From the encoded state, with nothing else."""
    for cursor in (False, True):
      for stop_after in range(4):
        before = WatchHarness(
            self.script(), timestamp_cursor=cursor, allowed_lateness=9 *
            cursor)
        results = before.steps(stop_after)
        restriction = (
            results[-1].residuals[0] if results else before.initial())
        script = self.script()
        script.polls = [None] * stop_after
        after = WatchHarness(
            script, timestamp_cursor=cursor, allowed_lateness=9 * cursor)
        results += after.steps(restriction=restriction)
        self.assertEqual(
            self.EXPECTED,
            sorted(value for result in results for value in found(result)))

  def test_a_poll_that_raises_names_its_input(self):
    harness = WatchHarness(
        Script(incomplete(listed('a1')), KeyError('no such bucket')),
        element='bucket-7')
    first = harness.bundle(harness.initial()).raise_error()
    failed = harness.bundle(first.residuals[0])
    self.assertIsInstance(failed.error, PollError)
    self.assertIsInstance(failed.error.__cause__, KeyError)
    for told in ('Script', "input 'bucket-7'", 'poll 2', 'no such bucket',
                 'Nothing is lost'):
      self.assertIn(told, str(failed.error))
    self.assertEqual([], failed.residuals)
    # The retry starts from the last round.
    harness._watch._polls.poll_fn.results = [complete(listed('a1', 'b2'))]
    again = harness.bundle(first.residuals[0]).raise_error()
    self.assertEqual(['b2'], found(again))

  def test_what_a_poll_must_not_return(self):
    for result in (None, ['a'], 'a'):
      with self.assertRaisesRegex(PollError, 'where a PollResult is needed'):
        WatchHarness(Script(result)).steps()
    with self.assertRaisesRegex(PollError, "outputs='abc' must be"):
      WatchHarness(Script(lambda: incomplete('abc'))).steps()
    with self.assertRaisesRegex(
        PollError,
        "'in', poll 1: the key 5 cannot be encoded by StrUtf8Coder: Attribute"
        '.*output_key_fn that takes'):
      WatchHarness(Script(incomplete([at(1, 5)]))).steps()
    with self.assertRaisesRegex(PollError, "'in'.*cannot be taken.*ZeroDiv"):
      WatchHarness(
          Script(incomplete(listed('a1'))), output_key_fn=lambda v: 1 /
          0).steps()

  def test_a_long_input_is_cut_short(self):
    harness = WatchHarness(Script(ValueError()), element='x' * 10000)
    error = harness.bundle(harness.initial()).error
    self.assertLess(len(str(error)), 700)

  def test_retry_later(self):
    """The poll counts for nothing, and is made again after the delay."""
    for cursor in (False, True):
      script = Script(
          incomplete(listed('a1')),
          RetryLater(0.005, 'quota'),
          RetryLater(7),
          complete(listed('a1', 'b2')))
      harness = WatchHarness(
          script, termination=after_iterations(2), timestamp_cursor=cursor)
      results = harness.steps(2)
      with self.assertLogs('apache_beam.io._watch_dofn', 'WARNING') as logs:
        results += harness.steps(1, restriction=results[-1].residuals[0])
      self.assertIn("Script asks to be called for input 'in'", logs.output[0])
      self.assertEqual([['a1'], [], []], list(map(found, results)))
      self.assertAlmostEqual(7, results[-1].delays[0], delta=1)
      self.assertEqual([1, 1, 1],
                       [result.residuals[0].polls for result in results])
      self.assertEqual([Timestamp(1001)] * 3,
                       [result.watermarks[0] for result in results])
      last, = harness.steps(restriction=results[1].residuals[0], restart=True)
      self.assertEqual([], found(last) and last.residuals)

  def test_only_a_poll_may_ask_for_later(self):
    """Else what it found would count as seen, and be lost."""
    class Late(TerminationCondition):
      late: list[float] = []

      def for_new_input(self, now, element):
        return 0

      def can_stop_polling(self, now, state):
        if self.late:
          raise RetryLater(self.late.pop())
        return True

      def state_coder(self):
        return coders.VarIntCoder()

    for cursor in (False, True):
      Late.late = [5]
      harness = WatchHarness(
          Script(incomplete(listed('a1'))),
          termination=Late(),
          timestamp_cursor=cursor)
      first = harness.initial()
      failed = harness.bundle(first)
      self.assertIsInstance(failed.error, PollError)
      self.assertEqual(['a1'], found(harness.bundle(first).raise_error()))

  def test_drain(self):
    """Case B15: polls no more, and keeps what is to be replayed."""
    harness = WatchHarness(self.script())
    provider = harness._provider
    self.assertIsNone(provider.truncate('in', harness.initial()))
    result = harness.bundle(harness.initial()).raise_error()
    self.assertIsNone(provider.truncate('in', result.residuals[0]))
    replay = Replay(new_id(), new_id(), tuple(listed('a1')))
    self.assertIs(replay, provider.truncate('in', replay))

  def test_size_is_what_waits(self):
    """Case B30: nothing, while a watch just waits."""
    harness = WatchHarness(self.script())
    provider = harness._provider
    self.assertEqual(0, provider.restriction_size('in', harness.initial()))
    replay = Replay(new_id(), new_id(), tuple(listed('a1', 'b2')))
    self.assertEqual(2, provider.restriction_size('in', replay))

  def test_a_state_of_the_other_mode_is_refused(self):
    for cursor in (False, True):
      before = WatchHarness(self.script(), timestamp_cursor=cursor)
      restriction, = before.steps(1)[0].residuals
      after = WatchHarness(self.script(), timestamp_cursor=not cursor)
      with self.assertRaisesRegex(
          WatchStateError, f'timestamp_cursor={cursor} before'):
        after.steps(restriction=restriction)


class StateTest(unittest.TestCase):
  def sizes(self, rounds, per_round, relist=True, **kwargs):
    outputs = [at(1000 + n, f'item-{n}') for n in range(rounds * per_round)]
    harness = WatchHarness(
        Script(
            *(
                incomplete(
                    outputs[0 if relist else n * per_round:(n + 1) * per_round])
                for n in range(rounds))),
        termination=after_iterations(rounds),
        **kwargs)
    results = harness.steps()
    self.assertEqual(
        rounds * per_round, sum(len(result.records) for result in results))
    coder = RestrictionCoder(coders.StrUtf8Coder())
    return [
        len(coder.encode(result.residuals[0])) for result in results[:-1]
    ]

  def test_a_key_takes_at_most_17_bytes(self):
    sizes = self.sizes(20, 500)
    self.assertLess(sizes[-1], 17 * 500 * 19)
    self.assertEqual({16 * 500},
                     {after - before
                      for before, after in zip(sizes, sizes[1:])})

  def test_each_key_is_encoded_once(self):
    """However often it is listed, as long as the process lives."""
    encoded = []

    class Counting(coders.Coder):
      def encode(self, value):
        encoded.append(value)
        return value.encode()

      def is_deterministic(self):
        return True

    def key(value):
      return value

    for cursor in (False, True):
      for restart, times in ((False, 1), (True, 10)):
        encoded.clear()
        outputs = listed(*(f'a{n}' for n in range(100)))
        harness = WatchHarness(
            Script(*[incomplete(outputs)] * 9, complete(outputs[::-1])),
            output_key_fn=key,
            output_key_coder=Counting(),
            timestamp_cursor=cursor,
            allowed_lateness=1000 if cursor else 0)
        harness.steps(restart=restart)
        self.assertEqual(times * 100, len(encoded))

  def test_flat_with_a_cursor(self):
    """Case B01: 200 polls, each with as many new outputs."""
    sizes = self.sizes(200, 100, relist=False, timestamp_cursor=True)
    # The state of the condition is one or two bytes.
    self.assertLessEqual(max(sizes) - min(sizes), 1)
    self.assertLess(sizes[0], 100)
    sizes = self.sizes(
        50, 100, timestamp_cursor=True, allowed_lateness=Duration(199))
    self.assertEqual({sizes[5]}, set(sizes[5:]))
    self.assertEqual(200 * 24, sizes[5] - self.sizes(2, 1)[0] + 16)

  def test_many_keys_are_warned_of_once(self):
    keys = b''.join(n.to_bytes(16, 'big') for n in range(499999))
    restriction = dataclasses.replace(
        Polling.initial(False, b''), keys=Packed(keys))
    harness = WatchHarness(
        Script(
            incomplete([]),
            incomplete(listed('a1', 'b2')),
            incomplete(listed('c3')),
            complete([])))
    with self.assertLogs('apache_beam.io._watch_round', 'WARNING') as logs:
      harness.steps(restriction=restriction)
    self.assertEqual(1, len(logs.output))
    self.assertIn('keeps 500001 keys by now', logs.output[0])
    self.assertIn('8000016 bytes travel', logs.output[0])
    self.assertIn('timestamp_cursor=True lets', logs.output[0])


class DelayTest(unittest.TestCase):
  def test_the_interval(self):
    for interval in (60, 60.0, Duration(60)):
      harness = WatchHarness(
          Script(incomplete(listed('a1'))), poll_interval=interval)
      result, = harness.steps(1)
      self.assertAlmostEqual(60, result.delays[0], delta=1)

  def test_a_poll_may_set_the_next_delay(self):
    harness = WatchHarness(
        Script(
            incomplete(listed('a1')).with_next_poll_delay(5).with_watermark(9),
            incomplete([]).with_next_poll_delay(Duration(7)),
            incomplete([]).with_next_poll_delay(0),
            incomplete([])),
        poll_interval=60)
    delays = []
    restriction = harness.initial()
    for _ in range(4):
      result = harness.bundle(restriction).raise_error()
      delays.append(round(result.delays[0]))
      restriction, = result.residuals
      MEMORIES.close_all()
    self.assertEqual([5, 7, 0, 60], delays)

  def test_an_early_resume_does_not_poll(self):
    """A runner that ignores the delay; it goes back, with the state as it is.
    """
    script = Script(incomplete(listed('a1')), complete(listed('a1', 'b2')))
    harness = WatchHarness(script, poll_interval=1.0)
    result = harness.bundle(harness.initial()).raise_error()
    polled = time.monotonic()
    bundles = 0
    while result.residuals:
      last = result
      result = harness.bundle(result.residuals[0]).raise_error()
      bundles += 1
    self.assertGreaterEqual(time.monotonic() - polled, 0.9)
    self.assertEqual(2, len(script.polls))
    self.assertEqual(['b2'], found(result))
    # It waited a while in each; to go back at once would be a busy loop.
    self.assertIn(bundles, range(2, 13))
    self.assertEqual(1, last.residuals[0].polls)
    self.assertEqual([Timestamp(1001)], last.watermarks)

  def test_an_early_resume_under_another_clock_polls(self):
    script = Script(incomplete([]), complete([]))
    harness = WatchHarness(script, poll_interval=3600)
    harness.fn.foreign_clock = True
    harness.steps()
    self.assertEqual(2, len(script.polls))

  def test_split_while_it_waits(self):
    script = Script(incomplete(listed('a1')), complete(listed('b2')))
    harness = WatchHarness(script, poll_interval=0.2)
    first = harness.bundle(harness.initial()).raise_error()
    harness.on_event = lambda name, number: (
        name == 'begin' and harness.split())
    second = harness.bundle(first.residuals[0]).raise_error()
    self.assertEqual(1, len(second.residuals))
    self.assertEqual(1, len(script.polls))
    harness.on_event = lambda name, number: None
    results = harness.steps(restriction=second.residuals[0])
    self.assertEqual(['b2'], found(results[-1]))
    self.assertEqual(2, len(script.polls), 'it knew when the poll was due')


class TerminationTest(unittest.TestCase):
  def test_conditions_are_told_in_order(self):
    told = []

    class Telling(TerminationCondition):
      def for_new_input(self, now, element):
        told.append(('input', int(now), element))
        return 0

      def on_seen_new_output(self, now, state):
        told.append(('new', int(now)))
        return state

      def on_poll_complete(self, state):
        told.append(('poll', state))
        return state + 1

      def can_stop_polling(self, now, state):
        told.append(('stop?', int(now), state))
        return state == 2

      def state_coder(self):
        return coders.VarIntCoder()

    clock = FakeClock(5)

    def poll():
      clock.now += 1
      return incomplete(listed('a1'))

    harness = WatchHarness(Script(poll), termination=Telling(), now_fn=clock)
    self.assertEqual([['a1'], []], list(map(found, harness.steps())))
    self.assertEqual([('input', 5, 'in'), ('new', 6), ('poll', 0),
                      ('stop?', 6, 1), ('poll', 1), ('stop?', 7, 2)],
                     told)

  def test_the_last_poll_is_output(self):
    clock = FakeClock()

    def poll():
      clock.now += 4
      return incomplete(listed(f'a{clock.now:.0f}'))

    harness = WatchHarness(
        Script(poll), termination=after_total_of(10), now_fn=clock)
    results = harness.steps(restart=True)
    self.assertEqual([['a4'], ['a8'], ['a12']], list(map(found, results)))
    self.assertEqual([], results[-1].residuals)

  def test_the_budget_of_polls_survives_a_restart(self):
    script = Script(incomplete([]))
    harness = WatchHarness(script, termination=after_iterations(5))
    harness.steps(restart=True)
    self.assertEqual(5, len(script.polls))

  def test_several_polls_ended_by_finality(self):
    harness = WatchHarness(
        Script(incomplete(listed('a1')), complete(listed('b2'))),
        termination=never())
    self.assertEqual([['a1'], ['b2']], list(map(found, harness.steps())))


class NumberedPollFnTest(unittest.TestCase):
  """What transforms that are made of a watch build on."""
  def test_is_told_the_number_by_the_state(self):
    told = []

    class Numbered(NumberedPollFn):
      def poll(self, element, number, now):
        told.append((element, number, int(now)))
        if len(told) == 2:
          raise NotYet(3)
        return complete([]) if number == 2 else incomplete([])

      def default_output_coder(self):
        return coders.StrUtf8Coder()

    harness = WatchHarness(Numbered(), now_fn=FakeClock(5))
    with self.assertNoLogs('apache_beam.io._watch_dofn', 'WARNING'):
      results = harness.steps(restart=True)
    self.assertEqual([('in', 0, 5), ('in', 1, 5), ('in', 1, 5), ('in', 2, 5)],
                     told)
    self.assertAlmostEqual(3, results[1].delays[0], delta=1)
    with self.assertRaises(NotImplementedError):
      NumberedPollFn()('in')


class UnsortedCoder(coders.Coder):
  def encode(self, value):
    return b''

  def is_deterministic(self):
    return False


def annotated(element: str) -> PollResult[int]:
  return complete([1])


def yielding(element):
  yield 1


async def awaiting(element):
  return complete([1])


class Callable:
  def __call__(self, element):
    return complete([1])


class Plain:
  pass


def plain(element) -> PollResult[Plain]:
  return complete([])


def unannotated(element):
  return complete([1])


class ConstructionTest(unittest.TestCase):
  def test_arguments_are_checked(self):
    """Case B22."""
    nan = float('nan')
    good = unannotated
    names = beam.pvalue.AsList(beam.Pipeline() | beam.Create([]))
    for make, error, told in (
        (lambda: Watch(None, 1), TypeError, 'poll_fn=None is not callable'),
        (lambda: Watch(Script, 1), TypeError, 'give an instance of it'),
        (lambda: Watch(Callable, 1), TypeError, 'give an instance of it'),
        (lambda: Watch(yielding, 1), TypeError, 'must return a PollResult'),
        (lambda: Watch(awaiting, 1), TypeError, 'outputs of that may be a gen'),
        (
            lambda: Watch(functools.partial(awaiting), 1),
            TypeError,
            'yields or awaits'),
        (
            lambda: Watch(lambda: None, 1),
            TypeError,
            r'cannot be called with \(an input\): too many positional'),
        (
            lambda: Watch(good, 1, side_inputs={'names': names}),
            TypeError,
            r"\(an input, names=…\): got an unexpected keyword argument 'na"
        ),
        (lambda: Watch(good, -1), ValueError, 'poll_interval=-1 must be 0 or'),
        (lambda: Watch(good, nan), ValueError, 'poll_interval=nan'),
        (lambda: Watch(good, float('inf')), ValueError, '10,000 years'),
        (lambda: Watch(good, '1'), TypeError, "poll_interval='1' must be"),
        (lambda: Watch(good, None), TypeError, 'poll_interval=None'),
        (lambda: Watch(good, True), TypeError, 'poll_interval=True'),
        (lambda: Watch(good, Duration(-1)), ValueError, 'poll_interval='),
        (lambda: Watch(good, 1, 5), TypeError, 'termination=5 is not a Term'),
        (lambda: Watch(good, 1, never), TypeError, 'Call the function'),
        (lambda: Watch(good, 1, TerminationCondition), TypeError, 'instance'),
        (
            lambda: Watch(good, 1, output_coder=coders.StrUtf8Coder),
            TypeError,
            'output_coder=.* is not a Coder. Give an instance'),
        (
            lambda: Watch(good, 1, output_key_coder='utf8'),
            TypeError,
            "output_key_coder='utf8' is not a Coder"),
        (
            lambda: Watch(Script(coder=5), 1),
            TypeError,
            r'Script.default_output_coder\(\)=5 is not a Coder'),
        (lambda: Watch(good, 1, output_key_fn=5), TypeError, 'output_key_fn=5'),
        (lambda: Watch(good, 1, now_fn=5), TypeError, 'now_fn=5 is not call'),
        (
            lambda: Watch(good, 1, timestamp_cursor=1),
            TypeError,
            'timestamp_cursor=1 must be a bool'),
        (
            lambda: Watch(good, 1, allowed_lateness=5),
            ValueError,
            'needs timestamp_cursor=True'),
        (
            lambda: Watch(
                good, 1, timestamp_cursor=True, allowed_lateness=-5),
            ValueError,
            'allowed_lateness=-5 must be 0 or more'),
        (lambda: Watch(good, 1, settle_time=-1), ValueError, 'settle_time=-1'),
        (
            lambda: Watch(good, 1, start_cursor='noon'),
            TypeError,
            "start_cursor='noon' is not a time"),
        (
            lambda: Watch(good, 1, start_cursor=nan),
            ValueError,
            'start_cursor=nan is not a time'),
        (
            lambda: Watch(good, 1, max_outputs_per_round=0),
            ValueError,
            'max_outputs_per_round=0 must be 1 or more'),
        (
            lambda: Watch(good, 1, max_outputs_per_round=1.5),
            TypeError,
            'max_outputs_per_round=1.5 must be an int'),
        (
            lambda: Watch(good, 1, side_inputs=[1]),
            TypeError,
            'must map the names'),
        (
            lambda: Watch(good, 1, side_inputs={'a': 1}),
            TypeError,
            r"side_inputs\['a'\]=1 is not a side input"),
    ):
      with self.subTest(told):
        with self.assertRaisesRegex(error, told):
          make()

  def test_a_decorator_may_give_the_poll_fn_more(self):
    def with_connection(function):
      @functools.wraps(function)
      def wrapper(*args, **kwargs):
        return function('connection', *args, **kwargs)

      return wrapper

    @with_connection
    def poll(connection, element) -> PollResult[str]:
      return complete([at(1, connection + element)])

    self.assertEqual([['connectionin']],
                     list(map(found, WatchHarness(poll).steps())))
    self.assertEqual(coders.StrUtf8Coder(), Watch(poll, 1)._output_coder)

  def test_a_condition_without_a_coder(self):
    class NoCoder(TerminationCondition):
      def state_coder(self):
        return None

    with self.assertRaisesRegex(TypeError, r'NoCoder\(\): state_coder\(\)=No'):
      Watch(unannotated, 1, NoCoder())

  def test_a_coder_without_deterministic_form_is_named(self):
    for kwargs, told in (({'output_coder': UnsortedCoder()},
                          'the coder of the outputs, UnsortedCoder'),
                         ({'output_key_coder': UnsortedCoder()},
                          'output_key_coder, UnsortedCoder')):
      with self.assertRaisesRegex(ValueError, told):
        Watch(unannotated, 1, **kwargs)
    Watch(
        unannotated,
        1,
        output_coder=UnsortedCoder(),
        output_key_coder=coders.StrUtf8Coder())

  def test_a_key_coder_gets_its_deterministic_form(self):
    """Two orders of one map are one key."""
    coder = coders.MapCoder(coders.StrUtf8Coder(), coders.VarIntCoder())
    self.assertFalse(coder.is_deterministic())
    harness = WatchHarness(
        Script(
            incomplete([at(1, {'a': 1, 'b': 2})]),
            complete([at(1, {'b': 2, 'a': 1}), at(1, {'b': 3})]),
            coder=coder))
    self.assertEqual([[{'a': 1, 'b': 2}], [{'b': 3}]],
                     list(map(found, harness.steps())))

  def test_types(self):
    """And boundedness, case B29."""
    class Method(PollFn):
      def __call__(self, element) -> PollResult[bytes]:
        return complete([])

    class Given(Method):
      def default_output_coder(self):
        return coders.VarIntCoder()

    class Typeless(coders.Coder):
      encode = decode = lambda self, value: value
      is_deterministic = lambda self: True

    string = typing.List[str]

    def lists(element) -> 'PollResult[string]':
      return complete([])

    def generic(element) -> PollResult:
      return complete([])

    for poll_fn, kwargs, expected in (
        (annotated, {}, int),
        (unannotated, {}, typehints.Any),
        (lambda element: complete([]), {}, typehints.Any),
        (generic, {}, typehints.Any),
        (functools.partial(annotated), {}, int),
        (plain, {}, Plain),
        (Method(), {}, bytes),
        (Given(), {}, int),
        (Given(), {'output_coder': coders.StrUtf8Coder()}, str),
        (annotated, {'output_coder': Typeless()}, typehints.Any)):
      p = beam.Pipeline()
      out = p | beam.Create(['a']) | Watch(poll_fn, 1, **kwargs)
      self.assertEqual(typehints.Tuple[str, expected], out.element_type)
      self.assertFalse(out.is_bounded)
    bound = functools.partial(annotated)
    self.assertIs(
        coders.VarIntCoder, type(Watch(bound, 1)._output_coder))
    self.assertIs(  # It refers to a local name.
        coders.FastPrimitivesCoder, type(Watch(lists, 1)._output_coder))

  def test_all_that_is_pickled_names_this_module(self):
    """To a worker that has another one in its place."""
    p = beam.Pipeline()
    outputs = p | beam.Create(['a']) | Watch(annotated, 1)
    poll, = (
        part for part in outputs.producer.parent.parts
        if part.full_label.endswith('Poll'))
    fns = [outputs.producer.transform.fn, poll.transform.fn]
    chunks = coders.registry.get_coder(poll.outputs[None].element_type)
    for guarded in fns + [fns[1].restriction_coder(), chunks]:
      self.assertIn(
          b'The apache_beam.io.watch on this worker', pickle.dumps(guarded))
      again = pickle.loads(pickle.dumps(guarded))
      self.assertIn(b'The apache_beam.io.watch on', pickle.dumps(again))

  def test_takes_a_pcollection(self):
    with self.assertRaisesRegex(TypeError, r'beam.Create\(\[input\]\)'):
      _ = beam.Pipeline() | Watch(unannotated, 1)

  def test_public_names(self):
    for name in watch_module.__all__:
      public = getattr(watch_module, name)
      if isinstance(public, type) and name != 'RetryLater':
        self.assertEqual('apache_beam.io.watch', public.__module__)
        self.assertIs(public, pickle.loads(pickle.dumps(public)))

  def test_display_data(self):
    data = Watch(annotated, 1.5, all_of(never(), never())).display_data()
    self.assertEqual('annotated', data['poll_fn'].value)
    self.assertEqual(1.5, data['poll_interval'].value)
    bound = functools.partial(functools.partial(annotated))
    of_bound = Watch(bound, 1).display_data()
    self.assertEqual('annotated', of_bound['poll_fn'].value)
    self.assertEqual('all_of(never(), never())', data['termination'].value)

  def test_abstract_methods_name_themselves(self):
    with self.assertRaisesRegex(NotImplementedError, 'PollFn.__call__'):
      PollFn()('in')
    self.assertIsNone(PollFn().default_output_coder())


if __name__ == '__main__':
  unittest.main()
