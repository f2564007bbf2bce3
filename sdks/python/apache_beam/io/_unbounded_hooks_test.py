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


"""What a source may tell beyond its records, and the mistakes that are named.

By the harness that plays the runner, and, for what only a runner does (metrics,
repeats that are dropped, sources that come as elements), by pipelines.
"""

import logging
import math
import os
import threading
import unittest

import hypothesis
from hypothesis import given
from hypothesis import strategies as st

import apache_beam as beam
from apache_beam import coders
from apache_beam.io import _unbounded_dofn
from apache_beam.io import _unbounded_reader
from apache_beam.io import unbounded_source
from apache_beam.io._runner_testing import needs_prism
from apache_beam.io._runner_testing import prism_pipeline
from apache_beam.io._unbounded_readers import READERS
from apache_beam.io._unbounded_restriction import Restriction
from apache_beam.io._unbounded_restriction import RestrictionCoder
from apache_beam.io._unbounded_testing import T0
from apache_beam.io._unbounded_testing import CountingReader
from apache_beam.io._unbounded_testing import CountingSource
from apache_beam.io._unbounded_testing import CountMark
from apache_beam.io._unbounded_testing import CountMarkCoder
from apache_beam.io._unbounded_testing import Harness
from apache_beam.io._unbounded_testing import Journal
from apache_beam.io._unbounded_testing import JournalTest
from apache_beam.io.unbounded_source import MarkCoderError
from apache_beam.io.unbounded_source import MarkDidNotMoveError
from apache_beam.io.unbounded_source import MarkReusedError
from apache_beam.io.unbounded_source import ReadAllFromUnboundedSource
from apache_beam.io.unbounded_source import ReaderReusedError
from apache_beam.io.unbounded_source import ReadFromUnboundedSource
from apache_beam.io.unbounded_source import RetryLater
from apache_beam.io.unbounded_source import SourceReadError
from apache_beam.io.unbounded_source import SourceSplitError
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability import fn_api_runner
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to
from apache_beam.transforms.window import FixedWindows
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue


class Crash(Exception):
  """What a test makes a bundle fail with."""


class Made(CountingSource):
  """A counting source whose readers a test changes.

  Args:
    change: called with each new reader.
    before: called with the mark before a reader is made; may raise.
  """
  def __init__(self, name, count, change=None, before=None, **kwargs):
    super().__init__(name, count, **kwargs)
    self.change = change or (lambda reader: None)
    self.before = before or (lambda mark: None)

  def create_reader(self, options, checkpoint_mark):
    self.before(checkpoint_mark)
    reader = super().create_reader(options, checkpoint_mark)
    self.change(reader)
    return reader


def returning(**values):
  """A change of a reader: methods that return what is given."""
  def change(reader):
    for name, value in values.items():
      setattr(reader, name, lambda value=value: value)

  return change


class BacklogTest(JournalTest, unittest.TestCase):
  def size(self, harness, restriction):
    return harness._provider.restriction_size(harness.element, restriction)

  def test_the_readers_word_is_the_size_of_the_residual(self):
    def change(reader):
      reader.get_split_backlog_bytes = lambda: 8 * (99 - reader._last)

    harness = Harness(Made(self.id(), 100, change), max_records=10)
    first = harness.bundle(harness.initial()).raise_error()
    self.assertEqual([8 * 90], first.sizes)
    second = harness.bundle(first.residuals[0]).raise_error()
    self.assertEqual([8 * 80], second.sizes)

  def test_caught_up_is_zero_and_unknown_is_not(self):
    """Case B30: what is idle asks for no workers."""
    for told, size in ((0, 0.0), (None, 1.0)):
      harness = Harness(
          Made(
              self.id(),
              5,
              returning(get_split_backlog_bytes=told),
              ends=False))
      result = harness.bundle(harness.initial()).raise_error()
      self.assertEqual([size], result.sizes)

  def test_a_split_that_nobody_reads_asks_its_source_once_and_no_reader(self):
    """Case B70: sizes that opened a reader each time."""
    class Source(CountingSource):
      def get_total_backlog_bytes(self, options):
        Journal.of(self.name).told.append(options)
        return 12

    harness = Harness(
        Source(self.id(), 5, ends=False), options=PipelineOptions())
    initial = harness.initial()
    self.assertEqual(12.0, self.size(harness, initial))
    self.assertIsInstance(self.journal.told[0], PipelineOptions)
    self.assertEqual(0, self.journal.opened)
    residual = harness.bundle(initial).raise_error().residuals[0]
    self.assertEqual(1.0, self.size(harness, residual))
    self.assertEqual(1, len(self.journal.told))

  def test_a_finished_split_has_no_size(self):
    harness = Harness(CountingSource(self.id(), 5))
    done = Restriction(b'12345678', b'12345678', finished=True)
    self.assertEqual(0.0, self.size(harness, done))

  def test_what_fails_is_unknown_and_warned_of_once(self):
    def change(reader):
      def fail():
        raise IOError('no admin rights')

      reader.get_split_backlog_bytes = fail

    class Source(Made):
      def get_total_backlog_bytes(self, options):
        raise IOError('no admin rights')

    harness = Harness(Source(self.id(), 50, change), max_records=10)
    with self.assertLogs(level=logging.WARNING) as logs:
      self.assertEqual(1.0, self.size(harness, harness.initial()))
      self.assertEqual(list(range(50)), harness.run())
    self.assertEqual(2, len(logs.output), logs.output)

  def test_what_is_no_size_is_refused(self):
    for wrong in (-1, 1.5, True, 'many', math.nan):
      with self.subTest(wrong):
        harness = Harness(
            Made(
                self.id(),
                5,
                returning(get_split_backlog_bytes=wrong),
                ends=False))
        error = harness.bundle(harness.initial()).error
        self.assertIsInstance(error, SourceReadError)
        self.assertIn(f'get_split_backlog_bytes() returned {wrong!r}',
                      str(error))
        self.assertEqual(self.journal.opened, self.journal.closed)

  def test_a_total_that_is_no_size_is_refused(self):
    class Source(CountingSource):
      def get_total_backlog_bytes(self, options):
        return -5

    harness = Harness(Source(self.id(), 5))
    with self.assertRaisesRegex(SourceReadError, r'backlog_bytes\(\).*-5'):
      self.size(harness, harness.initial())

  def test_it_is_not_persisted(self):
    """So bytes of releases before it stay what they were."""
    known = Restriction(b'12345678', b'abcdefgh', size=5.0)
    encoded = RestrictionCoder().encode(known)
    self.assertEqual(
        encoded,
        RestrictionCoder().encode(Restriction(b'12345678', b'abcdefgh')))
    self.assertIsNone(RestrictionCoder().decode(encoded).size)


class PollDelayTest(JournalTest, unittest.TestCase):
  def test_the_readers_word_goes_before_the_poll_interval(self):
    for told, delay in ((7.5, 7.5), (0, 0.0), (None, 3.0)):
      harness = Harness(
          Made(self.id(), 5, returning(next_poll_delay=told), ends=False),
          poll_interval=3.0)
      result = harness.bundle(harness.initial()).raise_error()
      self.assertAlmostEqual(delay, result.delays[0], delta=0.5)
      READERS.close_all()

  def test_is_not_asked_of_a_reader_that_has_more(self):
    harness = Harness(
        Made(self.id(), 50, returning(next_poll_delay=9.0)), max_records=10)
    result = harness.bundle(harness.initial()).raise_error()
    self.assertEqual([0.0], result.delays)

  def test_what_is_no_delay_is_refused(self):
    for wrong in (-1, math.nan, math.inf, True, 'soon'):
      with self.subTest(wrong):
        harness = Harness(
            Made(self.id(), 5, returning(next_poll_delay=wrong), ends=False))
        error = harness.bundle(harness.initial()).error
        self.assertIsInstance(error, SourceReadError)
        self.assertIn(f'next_poll_delay() returned {wrong!r}', str(error))


class RetryLaterTest(JournalTest, unittest.TestCase):
  def raising(self, call, times=1, seconds=0.0):
    """A source whose reader raises so many times at record 14, or at start."""
    name = self.id()
    self.journal.told = [None] * times

    def later():
      # By name: what the source holds itself is copied when it is pickled.
      told = Journal.of(name).told
      if told:
        told.pop()
        raise RetryLater(seconds, 'failing over')

    def before(mark):
      if call == 'create_reader' and mark is not None:
        later()

    def change(reader):
      advance, start = reader.advance, reader.start

      def advance_or_not():
        if call == 'advance' and reader._last == 14:
          later()
        return advance()

      def start_or_not():
        if call == 'start':
          later()
        return start()

      reader.advance, reader.start = advance_or_not, start_or_not

    return Made(name, 40, change, before)

  def test_nothing_is_lost_and_nothing_comes_twice(self):
    for call in ('create_reader', 'start', 'advance'):
      for times in (1, 3):
        with self.subTest(f'{call} {times}'):
          self.journal = Journal.new(self.id())
          harness = Harness(self.raising(call, times), max_records=10)
          values, todo = [], [harness.initial()]
          while todo:
            result = harness.bundle(todo.pop()).raise_error()
            values += result.values
            todo += result.residuals
            # Where create_reader is to be called again.
            if call == 'create_reader' and len(values) == 10:
              READERS.close_all()
          self.assertEqual(list(range(40)), values)
          READERS.close_all()
          self.assertEqual(self.journal.opened, self.journal.closed)

  def test_what_was_claimed_before_is_output_and_finalized(self):
    harness = Harness(self.raising('advance', seconds=60.0))
    # The first chunk of a reader has 8 records; the second fails at 15.
    result = harness.bundle(harness.initial()).raise_error()
    self.assertEqual(list(range(8)), result.values)
    self.assertAlmostEqual(60.0, result.delays[0], delta=1.0)
    self.assertEqual(0, self.journal.closed)
    result.finalize()
    self.assertEqual([7], self.journal.finalized)
    # Its last mark is finalized, so it need not wait for the next bundle.
    self.assertEqual(1, self.journal.closed)

  def test_an_early_resume_does_not_ask_before_its_time(self):
    for call in ('start', 'create_reader'):
      with self.subTest(call):
        self.journal = Journal.new(self.id())
        source = self.raising(call, seconds=60.0)
        harness = Harness(source, max_records=10)
        residual = harness.initial()
        if call == 'create_reader':
          residual = harness.bundle(residual).residuals[0]
          READERS.close_all()
        result = harness.bundle(residual).raise_error()
        self.assertAlmostEqual(60.0, result.delays[0], delta=1.0)
        opened = self.journal.opened
        again = harness.bundle(result.residuals[0]).raise_error()
        self.assertEqual([], again.values)
        self.assertGreater(again.delays[0], 59.0)
        self.assertEqual(opened, self.journal.opened)

  def test_a_reader_that_waits_for_finalization_closes_before_the_next(self):
    """Exclusive consumers: a broker that admits one at a time."""
    harness = Harness(self.raising('advance'), max_records=100)
    opened_before_close = []

    def on_event(name, number):
      if name == 'start':
        opened_before_close.append(self.journal.opened - self.journal.closed)

    harness.on_event = on_event
    self.assertEqual(list(range(40)), harness.run(finalize=False))
    self.assertEqual([1, 1], opened_before_close)

  def test_a_split_while_it_is_put_off(self):
    harness = Harness(self.raising('start', seconds=60.0))
    result = harness.bundle(harness.initial()).raise_error()
    harness.on_event = lambda name, number: harness.split()
    again = harness.bundle(result.residuals[0]).raise_error()
    self.assertEqual(1, len(again.residuals))

  @given(
      st.dictionaries(
          st.integers(1, 300), st.sampled_from(['retry', 'split', 'crash'])),
      st.integers(1, 20),
      st.booleans())
  @hypothesis.settings(deadline=None, max_examples=60)
  def test_any_order_of_retries_splits_and_crashes_is_exact(
      self, actions, cap, finalize):
    self.journal = Journal.new(self.id())
    READERS.close_all()

    def on_event(name, number):
      action = actions.get(number)
      if action == 'crash' and name != 'close':
        raise Crash(name)
      if action == 'split':
        harness.split()
      if action == 'retry' and name in ('start', 'advance'):
        raise RetryLater(0)

    harness = Harness(
        self.source(40, idle_every=9), max_records=cap, on_event=on_event)
    values, todo = [], [harness.initial()]
    while todo:
      restriction = todo.pop()
      result = harness.bundle(restriction)
      if result.error is not None:
        todo.append(restriction)  # Nothing of it counts; it is run again.
        continue
      values += result.values
      todo += result.residuals
      if finalize:
        result.finalize()
    self.assertEqual(list(range(40)), values)
    READERS.close_all()
    self.assertEqual(self.journal.opened, self.journal.closed)

  def test_its_arguments(self):
    self.assertEqual('again in 2.5 s: full', str(RetryLater(2.5, 'full')))
    self.assertEqual('again in 0 s', str(RetryLater(0)))
    for wrong in (-1, 1e30, math.nan, math.inf):
      with self.assertRaisesRegex(ValueError, 'seconds='):
        RetryLater(wrong)
    for wrong in (True, '1', None):
      with self.assertRaisesRegex(TypeError, 'seconds='):
        RetryLater(wrong)


class MarkMistakesTest(JournalTest, unittest.TestCase):
  def error(self, source, bundles=1):
    harness = Harness(source, max_records=10)
    residual = harness.initial()
    for _ in range(bundles):
      result = harness.bundle(residual)
      if result.error is not None:
        break
      residual = result.residuals[0]
    self.assertIsInstance(result.error, SourceReadError)
    self.assertIn('split 1 of 1', str(result.error))
    self.assertEqual(self.journal.opened, self.journal.closed)
    return result.error

  def test_a_mark_that_does_not_move(self):
    """Case B73: a cache that grew until memory was gone."""
    def change(reader):
      reader.get_checkpoint_mark = lambda: CountMark(reader._source.name, 3)

    error = self.error(Made(self.id(), 40, change), bundles=2)
    self.assertIsInstance(error, MarkDidNotMoveError)
    for part in ('after mark CountMark(3)', '2 records were read',
                 'encodes as before', 'covers the last record'):
      self.assertIn(part, str(error))

  def test_a_new_reader_may_cut_the_mark_of_the_last_one(self):
    """A queue delivers again what was committed and not acknowledged."""
    def change(reader):
      if Journal.of(reader._source.name).opened > 1:
        reader._last = -1

    harness = Harness(Made(self.id(), 40, change), max_records=8)
    harness.late_allowed = True
    residual = harness.bundle(harness.initial()).raise_error().residuals[0]
    READERS.close_all()
    again = harness.bundle(residual).raise_error()
    self.assertEqual(residual.mark, again.residuals[0].mark)

  def test_one_mark_that_goes_on_changing(self):
    """Cases B48 and B49: records read later were acknowledged with it."""
    def change(reader):
      mark = CountMark(reader._source.name, 0)

      def cut():
        mark.last = reader._last
        return mark

      reader.get_checkpoint_mark = cut

    error = self.error(Made(self.id(), 40, change), bundles=2)
    self.assertIsInstance(error, MarkReusedError)
    for part in ('same CountMark object', 'Return a new mark each time'):
      self.assertIn(part, str(error))

  def test_a_coder_that_is_different_each_time(self):
    class Salted(CountMarkCoder):
      def encode(self, value):
        return super().encode(value) + os.urandom(4)

      def decode(self, encoded):
        return super().decode(encoded[:8])

    class Forgetful(CountMarkCoder):
      def decode(self, encoded):
        return CountMark(self._name, 0)

    class Text(CountMarkCoder):
      def encode(self, value):
        return str(value.last)

    for coder, message in ((Salted, 'one and the same mark'),
                           (Forgetful, 'decodes a mark of'),
                           (Text, 'returned no bytes')):
      with self.subTest(coder.__name__):
        self.journal = Journal.new(self.id())
        source = Made(self.id(), 40)
        name = self.id()
        source.get_checkpoint_mark_coder = lambda: coder(name)
        error = self.error(source)
        self.assertIsInstance(error, MarkCoderError)
        self.assertIn(coder.__name__, str(error))
        self.assertIn(message, str(error))

  def test_a_reader_that_was_returned_before(self):
    class Shared(CountingSource):
      def create_reader(self, options, checkpoint_mark):
        told = Journal.of(self.name).told
        if not told:
          told.append(super().create_reader(options, checkpoint_mark))
        return told[0]

    harness = Harness(Shared(self.id(), 40), max_records=10)
    residual = harness.bundle(harness.initial()).raise_error().residuals[0]
    READERS.close_all()
    error = harness.bundle(residual).error
    self.assertIsInstance(error, ReaderReusedError)
    self.assertIn('Make a new reader each time', str(error))
    self.assertEqual(1, self.journal.closed)

  def test_no_reader_is_held_by_the_list_of_those_known(self):
    known = _unbounded_reader._Known()
    reader = CountingReader(CountingSource(self.id(), 1), None)
    self.assertTrue(known.add(reader))
    self.assertFalse(known.add(reader))
    del reader
    self.assertEqual({}, known._references)


  def test_a_reader_may_go_away_while_another_is_noted(self):
    """The garbage collector runs in whatever thread allocates."""
    known = _unbounded_reader._Known()
    readers = [CountingReader(CountingSource(self.id(), 1), None)]
    known.add(readers[0])

    def collect_within():
      with known._lock:
        readers.clear()

    thread = threading.Thread(target=collect_within, daemon=True)
    thread.start()
    thread.join(20)
    self.assertFalse(thread.is_alive())
    self.assertEqual({}, known._references)


class LateRecordsTest(JournalTest, unittest.TestCase):
  def test_are_counted_and_warned_of_once(self):
    def change(reader):
      def watermark():
        return Timestamp(T0 + reader._last + 3)

      reader.get_watermark = watermark

    harness = Harness(Made(self.id(), 40, change, ends=False), max_records=10)
    harness.late_allowed = True
    with self.assertLogs(level=logging.WARNING) as logs:
      result = harness.bundle(harness.initial()).raise_error()
      result = harness.bundle(result.residuals[0]).raise_error()
    self.assertEqual(1, len(logs.output), logs.output)
    for part in ('CountingReader', 'late_records', 'get_watermark()'):
      self.assertIn(part, logs.output[0])


class IdentifiedSource(CountingSource):
  """Gives each number twice, or as often as it says, under one id."""
  def __init__(self, name, count, repeats=2, record_id=None, **kwargs):
    super().__init__(name, count, **kwargs)
    self.repeats = repeats
    self.record_id = record_id

  def requires_deduping(self):
    return True

  def create_reader(self, options, checkpoint_mark):
    reader = super().create_reader(options, checkpoint_mark)
    reader.get_current = lambda: reader._last // self.repeats
    reader.get_current_record_id = lambda: (
        self.record_id or str(reader._last // self.repeats).encode())
    return reader


class FnApiDeduplicationTest(JournalTest, unittest.TestCase):
  def pipeline(self):
    return beam.Pipeline(runner=fn_api_runner.FnApiRunner())

  def test_repeats_are_dropped(self):
    with self.pipeline() as p:
      records = p | ReadFromUnboundedSource(
          IdentifiedSource(self.id(), 200, repeats=4),
          poll_interval=0,
          max_records_per_bundle=30)
      assert_that(records, equal_to(list(range(50))))

  def test_the_time_is_that_of_the_first(self):
    with self.pipeline() as p:
      records = (
          p
          | ReadFromUnboundedSource(
              IdentifiedSource(self.id(), 20), poll_interval=0)
          | beam.Map(
              lambda value, at=beam.DoFn.TimestampParam:
              (value, int(at) - T0)))
      assert_that(records, equal_to([(n, 2 * n) for n in range(10)]))

  def test_the_same_record_in_a_repeated_bundle(self):
    with beam.Pipeline(runner=fn_api_runner.FnApiRunner(bundle_repeat=2)) as p:
      records = p | ReadFromUnboundedSource(
          IdentifiedSource(self.id(), 40), poll_interval=0)
      assert_that(records, equal_to(list(range(20))))

  def test_the_type_of_the_records_stays(self):
    p = beam.Pipeline(runner=fn_api_runner.FnApiRunner())
    records = p | ReadFromUnboundedSource(IdentifiedSource(self.id(), 40))
    self.assertEqual(int, records.element_type)

  def test_what_is_no_id_is_refused(self):
    for wrong in ('text', 7, bytearray(b'7')):
      with self.subTest(wrong):
        harness = Harness(
            IdentifiedSource(self.id(), 4, record_id=wrong))
        harness.fn._identified = True
        error = harness.bundle(harness.initial()).error
        self.assertIsInstance(error, SourceReadError)
        self.assertIn(f'get_current_record_id() returned {wrong!r}', str(error))


@needs_prism
class PrismDeduplicationTest(JournalTest, unittest.TestCase):
  def test_repeats_are_dropped(self):
    with prism_pipeline() as p:
      records = p | ReadFromUnboundedSource(
          IdentifiedSource(self.id(), 200, repeats=4),
          poll_interval=0,
          max_records_per_bundle=30)
      assert_that(records, equal_to(list(range(50))))


class ReadAllTests(JournalTest):
  def test_every_record_of_every_source_once(self):
    with self.pipeline() as p:
      records = (
          p
          | beam.Create([0])
          | beam.FlatMap(
              lambda _, name=self.id(): [
                  CountingSource(name, 300, first=n, step=3)
                  for n in range(3)
              ])
          | ReadAllFromUnboundedSource(
              poll_interval=0, max_records_per_bundle=20))
      assert_that(records, equal_to(list(range(300))))
    READERS.close_all()
    self.assertEqual((3, 3), (self.journal.opened, self.journal.closed))

  def test_a_source_is_split(self):
    with self.pipeline() as p:
      records = (
          p
          | beam.Create([0])
          | beam.Map(
              lambda _, name=self.id(): CountingSource(name, 100, parts=4))
          | ReadAllFromUnboundedSource(poll_interval=0))
      assert_that(records, equal_to(list(range(100))))
    READERS.close_all()
    self.assertEqual(4, self.journal.opened)

  def test_windows_of_the_sources_are_not_those_of_the_records(self):
    with self.pipeline() as p:
      records = (
          p
          | beam.Create([0])
          | 'Sources' >> beam.WindowInto(FixedWindows(10))
          | beam.Map(lambda _, name=self.id(): CountingSource(name, 30))
          | ReadAllFromUnboundedSource(poll_interval=0)
          | beam.WindowInto(FixedWindows(10))
          | beam.Map(lambda value: (None, value))
          | beam.GroupByKey()
          | beam.Map(lambda kv: len(list(kv[1]))))
      assert_that(records, equal_to([10, 10, 10]))

class FnApiReadAllTest(ReadAllTests, unittest.TestCase):
  def pipeline(self):
    return beam.Pipeline(runner=fn_api_runner.FnApiRunner())

  def test_repeats_are_dropped_if_asked_for(self):
    with self.pipeline() as p:
      records = (
          p
          | beam.Create([0])
          | beam.Map(lambda _, name=self.id(): IdentifiedSource(name, 40))
          | ReadAllFromUnboundedSource(
              poll_interval=0, requires_deduping=True))
      assert_that(records, equal_to(list(range(20))))

  def test_what_is_no_source_is_named(self):
    with self.assertRaisesRegex(Exception, 'UnboundedSource .*but got a str'):
      with self.pipeline() as p:
        _ = p | beam.Create(['topic']) | ReadAllFromUnboundedSource()

  def test_a_source_with_repeats_is_not_read_with_them(self):
    source = IdentifiedSource(self.id(), 40)
    fn = _unbounded_dofn.SplitEachFn(b'', 20, identified=False)
    with self.assertRaisesRegex(SourceSplitError, 'requires_deduping=True'):
      list(fn.process(source))

  def test_its_arguments_are_checked(self):
    with self.assertRaisesRegex(ValueError, 'poll_interval=-1'):
      ReadAllFromUnboundedSource(poll_interval=-1)
    with self.assertRaisesRegex(TypeError, 'requires_deduping'):
      ReadAllFromUnboundedSource(requires_deduping='no')
    with self.assertRaisesRegex(TypeError, 'PCollection'):
      _ = beam.Pipeline() | ReadAllFromUnboundedSource()

  def test_the_output_type_can_be_said(self):
    p = self.pipeline()
    sources = p | beam.Create([0])
    records = sources | ReadAllFromUnboundedSource().with_output_types(int)
    self.assertEqual(int, records.element_type)
    self.assertFalse(records.is_bounded)


@needs_prism
class PrismReadAllTest(ReadAllTests, unittest.TestCase):
  def pipeline(self):
    return prism_pipeline()


class MetricsTest(JournalTest, unittest.TestCase):
  def query(self, source, **kwargs):
    pipeline = beam.Pipeline(runner=fn_api_runner.FnApiRunner())
    _ = pipeline | ReadFromUnboundedSource(source, **kwargs)
    result = pipeline.run()
    result.wait_until_finish()
    found = result.metrics().query(
        MetricsFilter().with_namespace(unbounded_source.__name__))
    return {
        metric.key.metric.name: metric.committed
        for kind in found.values() for metric in kind
    }

  def test_a_read_tells_what_it_did(self):
    def change(reader):
      reader.get_split_backlog_bytes = lambda: 8 * (94 - reader._last)

    metrics = self.query(
        Made(self.id(), 95, change, idle_every=20),
        poll_interval=0,
        max_records_per_bundle=10)
    self.assertEqual(95, metrics['records'])
    self.assertEqual(95, metrics['estimated_bytes'])
    # After 20, 40, 60 and 80 records it has nothing, once.
    self.assertEqual(4, metrics['empty_polls'])
    self.assertEqual(1, metrics['readers_opened'])
    self.assertEqual(metrics['self_checkpoints'],
                     metrics['backlog_bytes'].count)
    self.assertEqual(8 * 85, metrics['backlog_bytes'].max)
    self.assertGreater(metrics['finalized'], 0)
    self.assertGreater(metrics['watermark_lag_millis'].min, 0)
    self.assertEqual(1, metrics['open_readers'].value)
    self.assertNotIn('late_records', metrics)
    self.assertNotIn('failed_finalizations', metrics)

  def test_open_readers_are_told_when_their_number_changed(self):
    count = _unbounded_reader.OPEN_READERS
    count.take_change()
    harness = Harness(self.source(40), max_records=10)
    residual = harness.bundle(harness.initial()).residuals[0]
    opened = count.take_change()
    self.assertIsNone(count.take_change())
    harness.bundle(residual).raise_error()
    self.assertIsNone(count.take_change())
    READERS.close_all()
    self.assertEqual(opened - 1, count.take_change())

  def test_an_id_does_not_count_as_bytes_of_its_record(self):
    reader = _unbounded_reader.OpenReader(
        CountingReader(self.source(1), None),
        CountMarkCoder(self.id()),
        coders.BytesCoder(),
        identified=True)
    record = WindowedValue((b'a long id of a record', b'12345'), 0, ())
    self.assertEqual(5, reader.weigh([record]))
    reader.close()

  def test_late_records_and_retries_are_counted(self):
    name = self.id()

    def change(reader):
      advance, watermark = reader.advance, reader.get_watermark

      def early():
        true = watermark()
        return true if true == MAX_TIMESTAMP else true + 3

      def later():
        told = Journal.of(name).told
        if reader._last == 30 and not told:
          told.append(True)
          raise RetryLater(0)
        return advance()

      reader.advance, reader.get_watermark = later, early

    source = Made(name, 40, change)
    metrics = self.query(source, poll_interval=0, max_records_per_bundle=10)
    self.assertEqual(40, metrics['records'])
    self.assertEqual(2, metrics['readers_opened'])
    self.assertEqual(1, metrics['retries_later'])
    self.assertNotIn('empty_polls', metrics)
    self.assertGreater(metrics['late_records'], 0)


if __name__ == '__main__':
  unittest.main()
