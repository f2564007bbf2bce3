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

"""Unbounded reads bundle by bundle, by a harness that plays the runner.

Each test names the rule that it holds. The harness uses the SDK's own invoker,
tracker and watermark wrappers; pipelines on runners are tested in
``unbounded_source_pipeline_test``.
"""

import collections
import pickle
import threading
import time
import unittest

import hypothesis
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import precondition
from hypothesis.stateful import rule

import apache_beam as beam
from apache_beam import coders
from apache_beam.io import _unbounded_dofn
from apache_beam.io import _unbounded_reading
from apache_beam.io import unbounded_source
from apache_beam.io._unbounded_chunk import ChunkCoder
from apache_beam.io._unbounded_guard import Guarded
from apache_beam.io._unbounded_reader import OpenReader
from apache_beam.io._unbounded_readers import READERS
from apache_beam.io._unbounded_metrics import FAILED_FINALIZATIONS
from apache_beam.io._unbounded_restriction import RestrictionCoder
from apache_beam.io._unbounded_testing import T0
from apache_beam.io._unbounded_testing import CountingReader
from apache_beam.io._unbounded_testing import CountingSource
from apache_beam.io._unbounded_testing import CountMarkCoder
from apache_beam.io._unbounded_testing import Harness
from apache_beam.io._unbounded_testing import Journal
from apache_beam.io._unbounded_testing import JournalTest
from apache_beam.io.unbounded_source import CheckpointMark
from apache_beam.io.unbounded_source import ReadFromUnboundedSource
from apache_beam.io.unbounded_source import SourceReadError
from apache_beam.io.unbounded_source import SourceSplitError
from apache_beam.io.unbounded_source import UnboundedReader
from apache_beam.io.unbounded_source import UnboundedSource
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp


class Crash(Exception):
  """What a test makes a bundle fail with."""


class ExactnessTest(JournalTest, unittest.TestCase):
  def test_a_split_at_any_moment_is_exact(self):
    """A checkpoint is asked for at every moment of a run, one run a moment.

    Moments: before the DoFn runs, within every call of a reader method, before
    every record that is output. Passes if all records come once, in order, by
    one reader; asked for within a reader call it has to be declined.
    """
    asked = collections.Counter()
    at = 0
    ended = False
    while not ended:
      at += 1
      answers = []

      def on_event(name, number, at=at, answers=answers):
        if number == at:
          answers.append((name, harness.split()))

      journal = Journal.new(self.id())
      harness = Harness(
          self.source(40, idle_every=13), max_records=9, on_event=on_event)
      self.assertEqual(list(range(40)), harness.run(), answers)
      self.assertEqual((1, 1), (journal.opened, journal.closed), answers)
      ended = not answers
      for name, did in answers:
        asked[name] += 1
        # After the last record there is no rest to split off.
        if name in ('begin', 'output') and harness.events > at + 9:
          self.assertTrue(did, (at, name))
        if name not in ('begin', 'output'):
          self.assertFalse(did, (at, name))
    for name in ('begin', 'start', 'advance', 'get_current', 'output',
                 'get_watermark', 'get_checkpoint_mark'):
      self.assertTrue(asked[name], f'{name} was never split at')

  def test_a_split_after_every_record_is_exact(self):
    """Case B43: a runner that splits far too often."""
    def on_event(name, number):
      if name == 'output':
        harness.split()
        harness.split(0.5)

    harness = Harness(self.source(300), max_records=50, on_event=on_event)
    self.assertEqual(list(range(300)), harness.run())

  def test_the_primary_run_again_gives_what_it_gave(self):
    """Some runners retry the primary of a split apart from the residual."""
    def on_event(name, number):
      if name == 'output' and harness.result.values[-1:] == [20]:
        harness.split()

    harness = Harness(self.source(300), on_event=on_event)
    first = harness.bundle(harness.initial()).raise_error()
    primary, = first.primaries
    residual, = first.residuals
    harness.on_event = lambda name, number: None
    self.assertEqual(first.values, harness.run(primary))
    self.assertEqual(list(range(300)), first.values + harness.run(residual))

  def test_a_bundle_that_is_repeated_gives_the_same(self):
    """No reader is ahead of the restriction that a bundle begins with."""
    harness = Harness(self.source(95), max_records=10)
    restriction = harness.initial()
    values = []
    while restriction is not None:
      for _ in range(3):
        result = harness.bundle(restriction).raise_error()
      values += result.values
      restriction = result.residuals[0] if result.residuals else None
    READERS.close_all()
    self.assertEqual(list(range(95)), values)
    self.assertEqual(self.journal.opened, self.journal.closed)

  def test_a_crash_at_any_moment_is_exact(self):
    """The bundle fails at every moment once and is retried.

    Moments as above. Passes if what was committed is everything once, and each
    reader that was opened is closed once.
    """
    at = 0
    crashed = True
    while crashed:
      at += 1
      crashed = []

      def on_event(name, number, at=at, crashed=crashed):
        if number == at and name != 'close':
          crashed.append(name)
          raise Crash(name)

      journal = Journal.new(self.id())
      harness = Harness(
          self.source(25, idle_every=11), max_records=7, on_event=on_event)
      values = []
      todo = [harness.initial()]
      while todo:
        result = harness.bundle(todo[0])
        if result.error is None:
          values += result.values
          todo = result.residuals
          result.finalize()
        else:
          self.assertTrue(crashed, result.error)
      self.assertEqual(list(range(25)), values, (at, crashed))
      READERS.close_all()
      self.assertEqual(journal.opened, journal.closed, (at, crashed))

  def test_a_failure_downstream_closes_the_reader_before_the_retry(self):
    """An exclusive consumer admits no second reader beside the first."""
    def on_event(name, number):
      if name == 'output' and len(harness.result.values) == 5:
        harness.on_event = lambda name, number: None
        raise Crash(name)

    harness = Harness(self.source(20), on_event=on_event)
    failed = harness.bundle(harness.initial())
    self.assertIsInstance(failed.error, Crash)
    self.assertEqual((1, 1), (self.journal.opened, self.journal.closed))

  def test_a_reader_that_raises_is_closed_at_once(self):
    """Not only when the SDK gets to tear the DoFn down, which it may not."""
    def on_event(name, number):
      if name == 'get_checkpoint_mark':
        raise Crash(name)

    harness = Harness(self.source(20), on_event=on_event)
    harness.fn.teardown = lambda: None
    failed = harness.bundle(harness.initial())
    self.assertIsInstance(failed.error, SourceReadError)
    self.assertEqual((1, 1), (self.journal.opened, self.journal.closed))

  def test_the_reader_of_an_attempt_that_failed_is_closed_first(self):
    """A bundle that ended well and was not committed leaves a reader behind."""
    harness = Harness(self.source(30), max_records=10)
    restriction = harness.initial()
    harness.bundle(restriction)
    self.assertEqual(0, self.journal.closed)
    opened_over = []
    self.journal.on_call = lambda name: (
        name == 'start' and opened_over.append(
            self.journal.opened - self.journal.closed))
    harness.bundle(restriction)
    self.assertEqual([1], opened_over)

  def test_another_do_fn_of_the_process_goes_on_with_the_reader(self):
    """Case B64: runners make several DoFns; the reader is the process's."""
    harnesses = [Harness(self.source(100), max_records=10) for _ in range(2)]
    restriction = harnesses[0].initial()
    values = []
    number = 0
    while restriction is not None:
      result = harnesses[number % 2].bundle(restriction).raise_error()
      values += result.values
      restriction = result.residuals[0] if result.residuals else None
      number += 1
    self.assertEqual(list(range(100)), values)
    self.assertEqual(1, self.journal.opened)

  def test_a_lost_cache_only_costs_a_reader(self):
    """Case B74: on restore, what was read is skipped."""
    harness = Harness(self.source(45), max_records=10)
    values = []
    todo = [harness.initial()]
    while todo:
      result = harness.bundle(todo[0]).raise_error()
      values += result.values
      todo = result.residuals
      READERS.close_all()
    self.assertEqual(list(range(45)), values)
    self.assertEqual([None, 9, 19, 29, 39], self.journal.opened_after)


class RunnerMachine(RuleBasedStateMachine):
  """Any order of commits, crashes, splits, repeats, restarts is exact.

  The model is what was committed: it has to be 0, 1, 2 … without a gap or a
  repeat, whatever happened in between.
  """
  COUNT = 60

  def __init__(self):
    super().__init__()
    READERS.close_all()
    self.journal = Journal.new('machine')
    self.at = 0
    self.action = None
    self.harness = Harness(
        CountingSource('machine', self.COUNT, idle_every=17),
        max_records=12,
        on_event=self.on_event)
    self.restriction = self.harness.initial()
    self.committed = []
    self.callbacks = []

  def on_event(self, name, number):
    self.at -= 1
    if self.at == 0 and self.action is not None and name != 'close':
      self.action(name)

  def bundle(self, action=None, at=0):
    self.at, self.action = at, action
    result = self.harness.bundle(self.restriction)
    self.at = 0
    return result

  def commit(self, result):
    self.committed += result.values
    self.callbacks.append((len(self.committed), result.finalize))
    assert len(result.residuals) <= 1
    self.restriction = result.residuals[0] if result.residuals else None
    assert self.committed == list(range(len(self.committed)))
    if self.restriction is None:
      assert len(self.committed) == self.COUNT

  running = precondition(lambda self: self.restriction is not None)

  @running
  @rule()
  def run(self):
    self.commit(self.bundle().raise_error())

  @running
  @rule(times=st.integers(1, 2))
  def repeat(self, times):
    for _ in range(times):
      self.bundle().raise_error()

  @running
  @rule(at=st.integers(1, 60))
  def crash(self, at):
    def action(name):
      raise Crash(name)

    result = self.bundle(action, at)
    if result.error is None:
      self.commit(result)

  @running
  @rule(at=st.integers(1, 60), fraction=st.sampled_from([0, 0.5]))
  def split(self, at, fraction):
    self.commit(
        self.bundle(lambda name: self.harness.split(fraction),
                    at).raise_error())

  @rule(data=st.data())
  def finalize(self, data):
    if self.callbacks:
      index = data.draw(st.integers(0, len(self.callbacks) - 1))
      committed, finalize = self.callbacks[index]
      finalize()
      assert all(last < len(self.committed) for last in self.journal.finalized)
      # Once for a mark, however often the runner asks.
      assert len(self.journal.finalized) == len(set(self.journal.finalized))

  @rule()
  def lose_the_cache(self):
    READERS.close_all()

  def teardown(self):
    READERS.close_all()
    assert self.journal.opened == self.journal.closed


TestRunnerMachine = RunnerMachine.TestCase
TestRunnerMachine.settings = hypothesis.settings(
    max_examples=60, stateful_step_count=30, deadline=None)


class CapsAndDelaysTest(JournalTest, unittest.TestCase):
  def test_the_record_cap_is_exact(self):
    """Cases B36 and B72: a reader that always has more, any limit."""
    for cap in (1, 7, 8, 99, 100, 101, 250):
      Journal.new(self.id())
      harness = Harness(self.source(600), max_records=cap)
      result = harness.bundle(harness.initial()).raise_error()
      self.assertEqual(cap, len(result.values))
      self.assertEqual([0.0], result.delays)

  def test_the_time_cap_counts_what_happens_downstream(self):
    """1 ms downstream a record, a cap of 10 ms: some 10 records, not 10,000.

    Cases B36 and B37: a cap looked at too seldom let one bundle run for ever.
    """
    def on_event(name, number):
      if name == 'output':
        time.sleep(0.001)

    harness = Harness(
        self.source(10000), max_seconds=0.01, on_event=on_event)
    restriction = harness.initial()
    for _ in range(3):
      begun = time.monotonic()
      result = harness.bundle(restriction).raise_error()
      self.assertLessEqual(len(result.values), 30)
      self.assertGreaterEqual(len(result.values), 1)
      self.assertLess(time.monotonic() - begun, 0.5)
      restriction, = result.residuals

  def test_nothing_there_asks_for_the_poll_interval(self):
    harness = Harness(self.source(0, ends=False), poll_interval=7.5)
    result = harness.bundle(harness.initial()).raise_error()
    self.assertAlmostEqual(7.5, result.delays[0], delta=0.5)
    self.assertEqual(1, self.journal.polls)

  def test_records_before_a_pause_are_output_at_once(self):
    """Case B76: a resume delay must not delay what was read."""
    harness = Harness(self.source(3, ends=False), poll_interval=60)
    result = harness.bundle(harness.initial()).raise_error()
    self.assertEqual([0, 1, 2], result.values)
    self.assertAlmostEqual(60, result.delays[0], delta=0.5)

  def test_a_resume_that_comes_early_does_not_ask_the_source(self):
    """On a runner that ignores delays, in few bundles, not in a busy loop."""
    harness = Harness(self.source(0, ends=False), poll_interval=0.5)
    restriction = harness.initial()
    begun = time.monotonic()
    bundles = 0
    while time.monotonic() - begun < 1.7:
      result = harness.bundle(restriction).raise_error()
      restriction, = result.residuals
      bundles += 1
    self.assertIn(self.journal.polls, (3, 4))
    self.assertLess(bundles, 40)
    self.assertEqual(1, self.journal.opened)

  def test_an_early_resume_goes_back_with_what_is_left_of_the_delay(self):
    harness = Harness(self.source(0, ends=False), poll_interval=30)
    first = harness.bundle(harness.initial()).raise_error()
    second = harness.bundle(first.residuals[0]).raise_error()
    self.assertLess(second.delays[0], first.delays[0])
    self.assertGreater(second.delays[0], 25)

  def test_a_split_while_an_early_resume_waits(self):
    harness = Harness(self.source(0, ends=False), poll_interval=30)
    first = harness.bundle(harness.initial()).raise_error()
    timer = threading.Timer(0.03, harness.split)
    timer.start()
    second = harness.bundle(first.residuals[0]).raise_error()
    timer.join()
    self.assertEqual(1, len(second.residuals))
    self.assertEqual(1, self.journal.polls)

  def test_a_foreign_clock_is_not_second_guessed(self):
    """Under a TestStream a minute may pass in no time."""
    harness = Harness(self.source(0, ends=False), poll_interval=60)
    harness.fn.foreign_clock = True
    restriction = harness.initial()
    for _ in range(3):
      restriction, = harness.bundle(restriction).raise_error().residuals
    self.assertEqual(3, self.journal.polls)

  def test_the_pipeline_tells_whether_there_is_a_test_stream(self):
    for has_one in (False, True):
      pipeline = beam.Pipeline()
      read = pipeline | ReadFromUnboundedSource(self.source(1))
      if has_one:  # Applied later than the read.
        pipeline | TestStream().advance_watermark_to_infinity()
      pipeline.to_runner_api()
      reading = read.producer.inputs[0].producer.transform
      self.assertEqual(has_one, reading.fn.foreign_clock)


class WatermarkTest(JournalTest, unittest.TestCase):
  def test_reported_by_every_bundle_with_or_without_records(self):
    """Case B41: a split that never has anything must not hold windows."""
    class Moves(CountingReader):
      def get_watermark(self):
        now[0] += 1
        return Timestamp(now[0])

    class Source(CountingSource):
      def create_reader(self, options, checkpoint_mark):
        return Moves(self, None)

    now = [100]
    harness = Harness(Source(self.id(), 0, ends=False))
    harness.fn._options = _unbounded_reading.dump(None)
    seen = []
    restriction = harness.initial()
    for _ in range(3):
      # Pickled by value, the reader would count in a list of its own.
      reader = OpenReader(
          Moves(self.source(0, ends=False), None),
          coders.BytesCoder(),
          coders.BytesCoder())
      reader._started = reader.reader._started = True
      READERS.close_all()
      READERS.keep(restriction.split_id, restriction.generation, reader)
      result = harness.bundle(restriction).raise_error()
      restriction, = result.residuals
      seen += result.watermarks
      self.assertEqual(result.watermarks[0], restriction.watermark)
    self.assertEqual([Timestamp(101), Timestamp(102), Timestamp(103)], seen)

  def test_does_not_go_back_also_after_a_restart(self):
    harness = Harness(self.source(50), max_records=20)
    first = harness.bundle(harness.initial()).raise_error()
    self.assertEqual([Timestamp(T0 + 19)], first.watermarks)
    READERS.close_all()
    self.journal.on_call = lambda name: None

    class Behind(CountingReader):
      def get_watermark(self):
        return Timestamp(T0 - 1000)

    reader = OpenReader(
        Behind(self.source(50), 19),
        CountMarkCoder('none'),
        coders.VarIntCoder())
    residual, = first.residuals
    READERS.keep(residual.split_id, residual.generation, reader)
    second = harness.bundle(residual).raise_error()
    self.assertEqual([Timestamp(T0 + 19)], second.watermarks)
    self.assertEqual(Timestamp(T0 + 19), second.residuals[0].watermark)

  def test_restored_before_a_split_that_comes_first(self):
    harness = Harness(self.source(50), max_records=20)
    first = harness.bundle(harness.initial()).raise_error()
    harness.on_event = lambda name, number: harness.split()
    second = harness.bundle(first.residuals[0]).raise_error()
    self.assertEqual([], second.values)
    self.assertEqual([Timestamp(T0 + 19)], second.watermarks)

  def test_restored_where_the_estimator_was_left_behind(self):
    """The SDK reads the estimator before it splits, so it may be older."""
    harness = Harness(self.source(20, ends=False), max_records=20)
    first = harness.bundle(harness.initial()).raise_error()
    second = harness.bundle(
        first.residuals[0], MIN_TIMESTAMP.micros).raise_error()
    self.assertEqual([], second.values)
    self.assertEqual([Timestamp(T0 + 19)], second.watermarks)

  def test_never_beyond_the_records_of_the_residual(self):
    """A split while a chunk is output: the rest is not late."""
    def on_event(name, number):
      if name == 'output':
        harness.split()

    harness = Harness(self.source(200), max_records=150, on_event=on_event)
    restriction = harness.initial()
    values = []
    while restriction is not None:
      result = harness.bundle(restriction).raise_error()
      values += result.values
      restriction = result.residuals[0] if result.residuals else None
      if restriction is not None and values:
        self.assertLessEqual(result.watermarks[0], Timestamp(T0 + values[-1]))
    self.assertEqual(200, len(values))

  def test_the_end_is_the_end_only_when_nothing_is_left(self):
    """MAX_TIMESTAMP beside a record that is there would make the rest late."""
    class Early(CountingReader):
      def get_watermark(self):
        return MAX_TIMESTAMP

    harness = Harness(self.source(30), max_records=10)
    restriction = harness.initial()
    reader = OpenReader(
        Early(self.source(30), None),
        CountMarkCoder('none'),
        coders.VarIntCoder())
    READERS.keep(restriction.split_id, restriction.generation, reader)
    values = []
    watermarks = []
    while restriction is not None:
      result = harness.bundle(restriction).raise_error()
      values += result.values
      watermarks += result.watermarks
      restriction = result.residuals[0] if result.residuals else None
    self.assertEqual(list(range(30)), values)
    self.assertEqual({MIN_TIMESTAMP}, set(watermarks))

  def test_an_empty_source_that_ends_ends(self):
    harness = Harness(self.source(0))
    result = harness.bundle(harness.initial()).raise_error()
    self.assertEqual(([], []), (result.values, result.residuals))
    self.assertEqual((1, 1), (self.journal.opened, self.journal.closed))


class FinalizationTest(JournalTest, unittest.TestCase):
  def test_the_last_mark_of_each_bundle_once(self):
    """Case B36: one callback a bundle, not one a chunk."""
    harness = Harness(self.source(250), max_records=100)
    self.assertEqual(list(range(250)), harness.run())
    self.assertEqual([99, 199, 249], self.journal.finalized)

  def test_the_reader_is_closed_after_the_last_mark_is_finalized(self):
    """Cases B61 and B62: a mark may need the connection to acknowledge."""
    harness = Harness(self.source(20))
    result = harness.bundle(harness.initial()).raise_error()
    self.assertEqual(0, self.journal.closed)
    result.finalize()
    self.assertEqual([19], self.journal.finalized)
    self.assertEqual(1, self.journal.closed)
    self.assertEqual(0, len(READERS))
    result.finalize()
    self.assertEqual([19], self.journal.finalized)

  def test_never_finalized_it_still_ends_and_closes(self):
    """Case B52: neither watermark nor progress waits for the runner."""
    harness = Harness(self.source(500), max_records=10)
    values, watermarks, todo = [], [], [harness.initial()]
    while todo:
      result = harness.bundle(todo.pop()).raise_error()
      values += result.values
      watermarks += result.watermarks
      todo += result.residuals
    self.assertEqual(list(range(500)), values)
    self.assertEqual([Timestamp(T0 + n) for n in range(9, 499, 10)],
                     watermarks[:49])
    self.assertEqual([], self.journal.finalized)
    READERS.close_all()
    self.assertEqual((1, 1), (self.journal.opened, self.journal.closed))

  def test_nothing_read_nothing_to_finalize(self):
    harness = Harness(self.source(0, ends=False))
    result = harness.bundle(harness.initial()).raise_error()
    result.finalize()
    self.assertEqual(0, self.journal.marks)
    self.assertEqual([], harness._finalizer._callbacks)

  def test_from_two_threads_once(self):
    """Case B47."""
    harness = Harness(self.source(10))
    result = harness.bundle(harness.initial()).raise_error()
    threads = [threading.Thread(target=result.finalize) for _ in range(8)]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
    self.assertEqual([9], self.journal.finalized)

  def test_a_failure_is_logged_and_counted_and_fails_nothing(self):
    harness = Harness(self.source(10), max_records=5)
    result = harness.bundle(harness.initial()).raise_error()
    callback, = harness._finalizer._callbacks

    class Broken(CheckpointMark):
      def finalize_checkpoint(self):
        raise IOError('broker gone')

    callback._mark[0] = Broken()
    FAILED_FINALIZATIONS.take()
    with self.assertLogs(_unbounded_reading.__name__, 'WARNING') as logs:
      result.finalize()
    self.assertIn('finalize_checkpoint() of a Broken failed', logs.output[0])
    self.assertIn('Split(1 of 1)', logs.output[0])
    self.assertEqual(1, FAILED_FINALIZATIONS.take())

  def test_a_callback_keeps_no_reader(self):
    """A runner may keep callbacks for ever."""
    harness = Harness(self.source(100), max_records=10)
    harness.bundle(harness.initial()).raise_error()
    callback, = harness._finalizer._callbacks
    READERS.close_all()
    self.assertIsNone(callback._reader())


class DrainTest(JournalTest, unittest.TestCase):
  """Cases B44 and B45."""
  def test_reads_nothing_new(self):
    harness = Harness(self.source(100), max_records=10)
    result = harness.bundle(harness.initial()).raise_error()
    provider = harness._provider
    self.assertIsNone(provider.truncate(harness.element, harness.initial()))
    self.assertIsNone(
        provider.truncate(harness.element, result.residuals[0]))

  def test_what_was_read_is_output_and_acknowledged(self):
    """By the bundle that read it; what follows stays in the queue."""
    def on_event(name, number):
      if name == 'output' and harness.result.values[-1:] == [4]:
        harness.split()

    harness = Harness(self.source(100), on_event=on_event)
    result = harness.bundle(harness.initial()).raise_error()
    residual, = result.residuals
    self.assertIsNone(harness._provider.truncate(harness.element, residual))
    self.assertIn(len(result.values), range(6, 99))
    result.finalize()
    self.assertEqual(result.values[-1:], self.journal.finalized)

  def test_keeps_what_a_primary_still_owes(self):
    def on_event(name, number):
      if name == 'output':
        harness.split()

    harness = Harness(self.source(100), on_event=on_event)
    result = harness.bundle(harness.initial()).raise_error()
    primary, = result.primaries
    harness.on_event = lambda name, number: None
    kept = harness._provider.truncate(harness.element, primary)
    self.assertEqual(result.values, harness.run(kept))


class ErrorsTest(JournalTest, unittest.TestCase):
  def test_a_reader_that_raises_names_split_and_position(self):
    class Poisoned(CountingSource):
      def create_reader(self, options, checkpoint_mark):
        reader = super().create_reader(options, checkpoint_mark)
        advance = reader.advance

        def poisoned():
          if reader._last == 14:
            raise ValueError('bad bytes')
          return advance()

        reader.advance = poisoned
        return reader

    harness = Harness(Poisoned(self.id(), 30), max_records=10)
    first = harness.bundle(harness.initial()).raise_error()
    second = harness.bundle(first.residuals[0])
    self.assertIsInstance(second.error, SourceReadError)
    self.assertIsInstance(second.error.__cause__, ValueError)
    for part in ('could not be read', 'split 1 of 1', 'after mark CountMark(9)',
                 'bad bytes', 'resumes after the last'):
      self.assertIn(part, str(second.error))
    self.assertEqual((1, 1), (self.journal.opened, self.journal.closed))
    third = harness.bundle(first.residuals[0])
    self.assertEqual([None, 9], self.journal.opened_after)
    self.assertIsInstance(third.error, SourceReadError)

  def test_create_reader_and_start_that_raise_leave_nothing_open(self):
    class NoReader(CountingSource):
      def create_reader(self, options, checkpoint_mark):
        raise IOError('refused')

    class NoStart(CountingSource):
      def create_reader(self, options, checkpoint_mark):
        reader = super().create_reader(options, checkpoint_mark)

        def start():
          raise IOError('refused')

        reader.start = start
        return reader

    for source, what in ((NoReader, 'could not be opened'),
                         (NoStart, 'could not be read')):
      harness = Harness(source(self.id(), 3))
      result = harness.bundle(harness.initial())
      self.assertIsInstance(result.error, SourceReadError)
      self.assertIn(what, str(result.error))
      self.assertIn('at its very start', str(result.error))
      self.assertEqual(self.journal.opened, self.journal.closed)
      self.assertEqual(0, len(READERS))

  def test_what_is_no_reader_no_timestamp_no_watermark_is_refused(self):
    def set_to(name, value):
      def change(reader):
        setattr(reader, name, lambda: value)
        return reader

      return change

    for change, cause in [
        (lambda reader: None, 'returned a NoneType'),
        (set_to('get_current_timestamp', 'noon'), 'noon'),
        (set_to('get_watermark', None), 'None'),
        (set_to('get_checkpoint_mark', None), 'NoneType'),
    ]:

      class Wrong(CountingSource):
        def create_reader(self, options, checkpoint_mark):
          reader = super().create_reader(options, checkpoint_mark)
          return change(reader)

      harness = Harness(Wrong(self.id(), 3))
      result = harness.bundle(harness.initial())
      self.assertIsInstance(result.error, SourceReadError)
      self.assertIn(cause, str(result.error))

  def test_split_that_gives_nothing_usable_says_so(self):
    class Source(CountingSource):
      def split(self, desired_num_splits, options=None):
        return answer(self)

    class Unpicklable(CountingSource):
      def __init__(self):
        super().__init__('x', 1)
        self.thread = threading.current_thread()

    def raises(source):
      raise IOError('no metadata')

    def endless(source):
      while True:
        yield source

    for answer, message in [
        (lambda source: [], 'returned no source'),
        (lambda source: None, 'failed.*NoneType'),
        (raises, 'failed.*no metadata'),
        (lambda source: [source] * 21, 'more than 20'),
        (endless, 'more than 20'),
        (lambda source: [source, 'topic'], 'a str at position 1'),
        (lambda source: [Unpicklable()], 'cannot be pickled'),
    ]:
      with self.subTest(message):
        with self.assertRaisesRegex(SourceSplitError, message) as caught:
          list(_unbounded_dofn.split_source(Source('x', 1), 20, None))
        self.assertIn('Source.split(20)', str(caught.exception))

  def test_no_message_prints_the_source(self):
    class Secret(CountingSource):
      def __repr__(self):
        return 'password=hunter2'

      def split(self, desired_num_splits, options=None):
        raise IOError('no')

      def create_reader(self, options, checkpoint_mark):
        raise IOError('no')

    source = Secret('x', 1)
    with self.assertRaises(SourceSplitError) as caught:
      list(_unbounded_dofn.split_source(source, 1, None))
    self.assertNotIn('hunter2', str(caught.exception))
    harness = Harness(source)
    error = harness.bundle(harness.initial()).error
    self.assertNotIn('hunter2', str(error))


class SplittingTest(JournalTest, unittest.TestCase):
  @given(st.integers(1, 20))
  def test_parts_and_their_numbers(self, parts):
    source = CountingSource('parts', 40, parts=parts)
    splits = list(_unbounded_dofn.split_source(source, 20, None))
    self.assertEqual([(i, parts) for i in range(parts)],
                     [(s.index, s.count) for s in splits])
    firsts = [_unbounded_reading.load(s.source).first for s in splits]
    self.assertEqual(list(range(parts)), firsts)

  def test_options_reach_split_and_create_reader(self):
    class MyOptions(PipelineOptions):
      @classmethod
      def _add_argparse_args(cls, parser):
        parser.add_argument('--broker')

    seen = []

    class Source(CountingSource):
      def split(self, desired_num_splits, options=None):
        seen.append(options.view_as(MyOptions).broker)
        return [self]

      def create_reader(self, options, checkpoint_mark):
        broker = options.view_as(MyOptions).broker
        raise IOError(f'broker was {broker}')

    options = PipelineOptions(['--broker=here'])
    dumped = _unbounded_reading.load(_unbounded_reading.dump(options))
    list(_unbounded_dofn.split_source(Source('x', 1), 1, dumped))
    self.assertEqual(['here'], seen)
    harness = Harness(Source('x', 1), options=options)
    error = harness.bundle(harness.initial()).error
    self.assertIn('broker was here', str(error))

  def test_a_large_source_costs_nothing_a_bundle(self):
    """100 KB of source: what a bundle hands on does not grow with it."""
    class Large(CountingSource):
      def __init__(self, *args):
        super().__init__(*args)
        self.ballast = b'x' * 100_000

      def __setstate__(self, state):
        self.__dict__.update(state)
        Journal.of(self.name).marks += 1_000_000

    harness = Harness(Large(self.id(), 1000), max_records=10)
    first = harness.bundle(harness.initial()).raise_error()
    coder = RestrictionCoder()
    self.assertLess(len(coder.encode(first.residuals[0])), 100)
    harness.run(first.residuals[0])
    # Unpickled once, when the reader was opened, in a hundred bundles.
    self.assertEqual(1, self.journal.marks // 1_000_000)


class SlowReaderTest(JournalTest, unittest.TestCase):
  def test_split_requests_are_answered_while_a_reader_waits(self):
    """Splits and progress share a thread; one slow reader must not stall it.

    A reader hangs in its first ``start``. Meanwhile progress and splits of
    that very bundle are asked for. Passes if each answer takes no time, and
    the read, slow as it was, is not thrown away.
    """
    entered = threading.Event()
    go_on = threading.Event()

    def on_event(name, number):
      if name == 'start':
        entered.set()
        assert go_on.wait(10)

    harness = Harness(self.source(10), on_event=on_event)
    thread = threading.Thread(
        target=lambda: results.append(harness.bundle(harness.initial())))
    results = []
    thread.start()
    try:
      self.assertTrue(entered.wait(10))
      begun = time.monotonic()
      for _ in range(100):
        self.assertFalse(harness.split())
        self.assertFalse(harness.split(0.5))
        self.assertIsNotNone(harness.progress())
      self.assertLess(time.monotonic() - begun, 2)
    finally:
      go_on.set()
      thread.join(10)
    self.assertEqual(list(range(10)), results[0].raise_error().values)

  def test_a_fast_split_is_answered_beside_a_slow_one(self):
    """Two splits of one worker: the slow one holds nothing that is shared."""
    entered = threading.Event()
    go_on = threading.Event()

    def wait(name, number):
      if name == 'start':
        entered.set()
        assert go_on.wait(10)

    def split(name, number):
      if name == 'output' and not took:
        begun = time.monotonic()
        self.assertTrue(fast.split())
        took.append(time.monotonic() - begun)

    took = []
    slow_name = self.id() + '.slow'
    slow = Harness(CountingSource(slow_name, 10), on_event=wait)
    fast = Harness(self.source(300), max_records=50, on_event=split)
    thread = threading.Thread(
        target=lambda: results.append(slow.bundle(slow.initial())))
    results = []
    thread.start()
    try:
      self.assertTrue(entered.wait(10))
      self.assertEqual(list(range(300)), fast.run())
      self.assertTrue(thread.is_alive())
      self.assertLess(took[0], 1)
    finally:
      go_on.set()
      thread.join(10)
    self.assertEqual(list(range(10)), results[0].raise_error().values)


class ArgumentsTest(unittest.TestCase):
  def test_wrong_arguments_are_named(self):
    source = CountingSource('x', 1)
    nan = float('nan')
    for kwargs, error, message in [
        ({'source': None}, TypeError, 'source=None'),
        ({'source': CountingSource}, TypeError, 'not the class'),
        ({'poll_interval': -1}, ValueError, 'poll_interval=-1'),
        ({'poll_interval': nan}, ValueError, 'poll_interval=nan'),
        ({'poll_interval': float('inf')}, ValueError, 'poll_interval=inf'),
        ({'poll_interval': '1'}, TypeError, "poll_interval='1'"),
        ({'poll_interval': True}, TypeError, 'poll_interval=True'),
        ({'max_records_per_bundle': 0}, ValueError, 'max_records_per_bundle=0'),
        ({'max_records_per_bundle': 1.5}, TypeError, 'max_records_per_bundle'),
        ({'max_records_per_bundle': True}, TypeError, 'max_records_per_bundle'),
        ({'max_read_time_seconds': 0}, ValueError, 'max_read_time_seconds=0'),
        ({'max_read_time_seconds': nan}, ValueError, 'seconds=nan'),
        ({'max_read_time_seconds': None}, TypeError, 'seconds=None'),
    ]:
      with self.subTest(message):
        with self.assertRaisesRegex(error, message):
          ReadFromUnboundedSource(**{'source': source, **kwargs})

  def test_the_least_values_are_taken(self):
    ReadFromUnboundedSource(
        CountingSource('x', 1),
        poll_interval=0,
        max_records_per_bundle=1,
        max_read_time_seconds=1e-9)

  def test_applied_to_a_collection_it_says_where_it_belongs(self):
    with self.assertRaisesRegex(Exception, 'begins a pipeline'):
      pipeline = beam.Pipeline()
      pipeline | beam.Create([1]) | ReadFromUnboundedSource(
          CountingSource('x', 1))

  def test_a_source_that_cannot_be_pickled_fails_when_applied(self):
    source = CountingSource('x', 1)
    source.connection = threading.current_thread()
    with self.assertRaisesRegex(ValueError, 'source=CountingSource cannot be'):
      beam.Pipeline() | ReadFromUnboundedSource(source)

  def test_coders_are_checked(self):
    class Registered:
      pass

    class RegisteredCoder(coders.BytesCoder):
      def to_type_hint(self):
        return Registered

    class Nameless(coders.Coder):
      pass

    def read(coder=None, mark_coder=None):
      source = CountingSource('x', 1)
      if coder is not None:
        source.default_output_coder = lambda: coder
      if mark_coder is not None:
        source.get_checkpoint_mark_coder = lambda: mark_coder
      return ReadFromUnboundedSource(source)

    for coder in (coders.VarIntCoder(),
                  coders.PickleCoder(),
                  coders.StrUtf8Coder(),
                  coders.TupleCoder([coders.BytesCoder(), coders.FloatCoder()]),
                  UnboundedSource.default_output_coder(None)):
      read(coder)
    with self.assertRaisesRegex(ValueError, 'no to_type_hint'):
      read(Nameless())
    with self.assertRaisesRegex(ValueError, 'registry.register_coder'):
      read(RegisteredCoder())
    with self.assertRaisesRegex(TypeError, 'not a Coder'):
      read('utf8')
    with self.assertRaisesRegex(TypeError, 'get_checkpoint_mark_coder'):
      read(mark_coder=coders.BytesCoder)
    coders.registry.register_coder(Registered, RegisteredCoder)
    read(RegisteredCoder())

  def test_type_and_boundedness(self):
    read = beam.Pipeline() | ReadFromUnboundedSource(CountingSource('x', 1))
    self.assertEqual(int, read.element_type)
    self.assertFalse(read.is_bounded)

  def test_base_classes(self):
    self.assertFalse(UnboundedSource().is_bounded())
    self.assertIsNone(CheckpointMark().finalize_checkpoint())
    self.assertIsNone(UnboundedReader().close())
    for call in (UnboundedReader().start,
                 UnboundedReader().advance,
                 UnboundedReader().get_current,
                 UnboundedReader().get_current_timestamp,
                 UnboundedReader().get_watermark,
                 UnboundedReader().get_checkpoint_mark,
                 UnboundedSource().get_checkpoint_mark_coder,
                 lambda: UnboundedSource().split(1),
                 lambda: UnboundedSource().create_reader(None, None)):
      with self.assertRaises(NotImplementedError):
        call()

  def test_public_names_have_one_home(self):
    for name in unbounded_source.__all__:
      self.assertTrue(hasattr(unbounded_source, name), name)


class GuardTest(unittest.TestCase):
  def test_what_is_pickled_comes_back_whole(self):
    fn = _unbounded_dofn.ReadSplitFn(b'options', 1.5, 7, 2.0)
    fn._reading = object()
    copy = pickle.loads(pickle.dumps(fn))
    self.assertIsInstance(copy, Guarded)
    self.assertEqual({**fn.__dict__, '_reading': None}, copy.__dict__)
    self.assertEqual(
        coders.VarIntCoder(),
        pickle.loads(
            pickle.dumps(
                ChunkCoder(coders.VarIntCoder())))._value_coder)

  def test_another_protocol_is_refused(self):
    from apache_beam.io import _unbounded_guard
    with self.assertRaisesRegex(unbounded_source.WorkerModuleError,
                                'protocol 99, here 1.*same wheel'):
      _unbounded_guard.loader(99, 'apache_beam.io.unbounded_source')


if __name__ == '__main__':
  unittest.main()
