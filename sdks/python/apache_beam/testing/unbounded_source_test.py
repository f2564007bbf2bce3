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

"""Right sources pass the check, and it says what it tried."""

import contextlib
import time
import unittest

from apache_beam import coders
from apache_beam.io.unbounded_source import AckLedger
from apache_beam.io.unbounded_source import BackgroundReader
from apache_beam.io.unbounded_source import CheckpointMark
from apache_beam.io.unbounded_source import RetryLater
from apache_beam.testing._unbounded_properties import BY_NAME
from apache_beam.testing._unbounded_run import Run
from apache_beam.testing._unbounded_test_sources import LogReader
from apache_beam.testing._unbounded_test_sources import LogSource
from apache_beam.testing._unbounded_test_sources import PartsSource
from apache_beam.testing._unbounded_test_sources import QueueReader
from apache_beam.testing._unbounded_test_sources import QueueSource
from apache_beam.testing._unbounded_test_sources import Server
from apache_beam.testing._unbounded_test_sources import ThreadSource
from apache_beam.testing._unbounded_world import Task
from apache_beam.testing._unbounded_world import new_world
from apache_beam.testing.unbounded_source import ConformanceError
from apache_beam.testing.unbounded_source import Crash
from apache_beam.testing.unbounded_source import End
from apache_beam.testing.unbounded_source import Idle
from apache_beam.testing.unbounded_source import Records
from apache_beam.testing.unbounded_source import ScriptedSource
from apache_beam.testing.unbounded_source import SplitInjectingHarness
from apache_beam.testing.unbounded_source import check_unbounded_source
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

class ToolkitMark(CheckpointMark):
  def __init__(self, read, receipt=None):
    self.read = read
    self.receipt = receipt

  def finalize_checkpoint(self):
    if self.receipt is not None:
      self.receipt.finalize()


class ToolkitMarkCoder(coders.Coder):
  def encode(self, value):
    return value.read.to_bytes(4, 'big')

  def decode(self, encoded):
    return ToolkitMark(int.from_bytes(encoded, 'big'))

  def is_deterministic(self):
    return True


class ToolkitReader(BackgroundReader):
  """A client of the queue that waits for records."""
  def __init__(self, source, mark):
    super().__init__(capacity=2)
    self.source = source
    self.read = 0 if mark is None else mark.read

  def open(self):
    self.client = QueueReader(self.source)
    self.ledger = AckLedger(self.client.acknowledge)

  def fetch(self):
    if self.client.advance():
      return [self.client.index]
    time.sleep(0.001)
    return []

  def shut(self):
    self.ledger.close()
    self.client.close()

  def delivered(self, item):
    self.ledger.add(item)
    self.read += 1

  def get_current(self):
    return self.client.server.values[self.current]

  def get_current_timestamp(self):
    return self.client.server.time_of(self.current)

  def get_watermark(self):
    return MIN_TIMESTAMP

  def get_checkpoint_mark(self):
    return ToolkitMark(self.read, self.ledger.cut())


class ToolkitSource(LogSource):
  reader = ToolkitReader
  mark_coder = lambda self, source: ToolkitMarkCoder()

  def get_total_backlog_bytes(self, options):
    return None


_SEEN: list[int] = []
VALUES = ['a', 'b', 'c', 'd']
ALL = set(BY_NAME) - {'not-vacuous'}
NO_CLOCK = {'idle-watermark': 'nobody knows what a queue delivers again'}


class RightSourcesTest(unittest.TestCase):
  """Of each kind of source one that is right passes everything."""
  def assert_passes(self, make_source, without=(), **kwargs):
    report = check_unbounded_source(make_source, VALUES, **kwargs)
    self.assertEqual(ALL - set(without), set(report.tried), report)

  def test_scripts(self):
    for script in (
        [Records('a', 'b'), Idle(2), Records('c', 'd'), End()],
        [Records('a', 'b'), Crash(), Idle(), Records(*'cd'), Crash(), End()],
        [Records(*VALUES)],
    ):
      with self.subTest(script):
        self.assert_passes(
            lambda script=script: ScriptedSource(script),
            acked=ScriptedSource.acknowledged)

  def test_a_log_that_never_ends(self):
    self.assert_passes(
        lambda: LogSource(VALUES), acked=Server.acked_by,
        append=Server.append_to)

  def test_a_log_that_ends(self):
    self.assert_passes(
        lambda: LogSource(VALUES, ends=True), acked=Server.acked_by)

  def test_partitions(self):
    self.assert_passes(
        lambda: PartsSource(VALUES), ['backlog'], ordered=False)

  def test_a_queue_that_delivers_again(self):
    self.assert_passes(
        lambda: QueueSource(VALUES), ['idle-watermark'],
        replays=False,
        acked=Server.acked_by,
        append=Server.append_to,
        leave_out=NO_CLOCK)

  def test_a_queue_whose_watermark_moves(self):
    """What it delivers again may be older than that, and is not late."""
    class Reader(QueueReader):
      def get_watermark(self):
        times = [self.server.time_of(index) for index in self.server.ready]
        return min(times, default=Timestamp.now())

    class Source(QueueSource):
      reader = Reader

    self.assert_passes(
        lambda: Source(VALUES), replays=False, acked=Server.acked_by)

  def test_a_queue_read_by_the_parts_that_authors_are_given(self):
    """BackgroundReader and AckLedger together."""
    self.assert_passes(
        lambda: ToolkitSource(VALUES), ['idle-watermark', 'backlog'],
        replays=False,
        acked=Server.acked_by,
        append=Server.append_to,
        leave_out=NO_CLOCK,
        schedules=200)

  def test_a_source_that_asks_for_patience(self):
    """RetryLater is no failure: reading goes on behind the last mark."""
    asked = []

    class Patience(LogSource):
      def create_reader(self, options, checkpoint_mark):
        asked.append(1)
        if len(asked) % 2:
          raise RetryLater(0.001, 'restarts')
        return super().create_reader(options, checkpoint_mark)

    self.assert_passes(lambda: Patience(VALUES), schedules=50)
    self.assert_passes(
        lambda: ScriptedSource([
            Records('a'), Crash(RetryLater(0.001)), Records(*'bc'),
            Crash(RetryLater(0.001)), Records('d')]),
        schedules=50)

  def test_a_thread_that_fetches_ahead(self):
    self.assert_passes(
        lambda: ThreadSource(VALUES), acked=Server.acked_by, schedules=300)


class RedeliveryTest(unittest.TestCase):
  def test_a_queue_that_is_never_finalized_can_be_read_again(self):
    """A runner may never finalize; then another reader gets the same records.

    Their mark is as it was, since the queue is as it was: that is no fault of
    the source, and not to be taken for a mark that stands still.
    """
    def fail(name, number):
      if name == 'begin':
        raise RuntimeError('the worker is lost')

    harness = SplitInjectingHarness(QueueSource(VALUES), max_records=2)
    first = harness.bundle(harness.initial()).raise_error()
    self.assertEqual(['a', 'b'], first.values)
    harness.on_event = fail
    harness.bundle(first.residuals[0])
    harness.on_event = lambda name, number: None
    again = harness.bundle(first.residuals[0]).raise_error()
    self.assertEqual(['a', 'b'], again.values)


class ModelTest(unittest.TestCase):
  def test_a_mark_that_a_crash_lost_is_never_finalized(self):
    """Its records were not committed; a runner has forgotten it."""
    task = Task(
        make_source=lambda: LogSource(VALUES), expected=VALUES,
        key=lambda record: record, ordered=True, replays=True,
        acked=Server.acked_by, append=None, options=None, schedules=1,
        max_advance_seconds=1, patience_seconds=1, leave_out={})
    with new_world(task) as world:
      run = Run(world, world.source, 'schedules')
      for step in ('advance', 'advance', 'mark', 'crash', 'advance', 'mark',
                   'finalize', 'finalize-first'):
        run.step(step)
      self.assertEqual(['a'], world.acked())


class ReportTest(unittest.TestCase):
  def test_a_simple_source_takes_a_second_or_two(self):
    """Some 0.5 s on two shared cores; the bound leaves room for a busy day."""
    begun = time.monotonic()
    check_unbounded_source(lambda: LogSource(VALUES), VALUES)
    self.assertLess(time.monotonic() - begun, 10)

  def test_it_says_what_was_tried_and_what_was_not(self):
    report = check_unbounded_source(
        lambda: PartsSource(VALUES), VALUES, ordered=False,
        leave_out={'splits': 'has no parts yet'}, schedules=50)
    self.assertEqual({
        'splits': 'has no parts yet', 'backlog': 'the source does not know'
    }, report.left_out)
    text = str(report)
    self.assertIn('PartsSource keeps', text)
    self.assertIn('resume .............. ok  behind each of 4 records', text)
    self.assertIn('splits .............. --  not checked: has no parts', text)
    self.assertIn('acknowledgements not seen', text)

  def test_the_number_of_inputs_can_be_limited(self):
    made = []

    def make_source():
      made.append(LogSource(VALUES))
      return made[-1]

    check_unbounded_source(make_source, VALUES, schedules=20)
    self.assertLess(len(made), 90)

  def test_every_reader_is_closed_before_its_input_goes(self):
    """Those that the DoFn keeps for another bundle, too."""
    readers = []
    left = []

    class Reader(LogReader):
      def __init__(self, source, mark):
        super().__init__(source, mark)
        readers.append(self)

      def close(self):
        readers.remove(self)

    @contextlib.contextmanager
    def make_source():
      source = LogSource(VALUES)
      source.reader = Reader
      yield source
      left.append(len(readers))

    check_unbounded_source(make_source, VALUES, schedules=20)
    self.assertEqual({0}, set(left))

  def test_an_input_is_cleaned_up(self):
    made = []
    ended = []

    @contextlib.contextmanager
    def make_source():
      made.append(1)
      yield LogSource(VALUES)
      ended.append(1)

    check_unbounded_source(make_source, VALUES, schedules=20)
    self.assertEqual(made, ended)
    self.assertTrue(made)

  def test_records_are_compared_by_their_key(self):
    check_unbounded_source(
        lambda: LogSource([('a', object), ('b', object)]), ['a', 'b'],
        key=lambda record: record[0],
        schedules=20)

  def test_what_a_class_in_a_function_sees_stays_in_sight(self):
    """It is pickled by value, with copies of what it sees; not for its test."""
    seen = []

    class Seeing(LogSource):
      def create_reader(self, options, checkpoint_mark):
        seen.append(1)
        _SEEN.append(1)
        return super().create_reader(options, checkpoint_mark)

    del _SEEN[:]
    for _ in range(2):
      check_unbounded_source(lambda: Seeing(VALUES), VALUES, schedules=20)
    self.assertEqual(len(seen), len(_SEEN))
    self.assertGreater(len(seen), 200)

  def test_a_source_is_as_before_when_the_check_is_done(self):
    before = dict(vars(LogSource))
    check_unbounded_source(lambda: LogSource(VALUES), VALUES, schedules=20)
    self.assertEqual(before, dict(vars(LogSource)))


class ArgumentsTest(unittest.TestCase):
  def test_wrong_arguments_are_named(self):
    for kwargs, error, words in (
        ({'leave_out': {'speed': 'x'}}, ValueError, "leave_out='speed' is no"),
        ({'leave_out': {'splits': ' '}}, ValueError, 'needs a reason'),
        ({'schedules': 0}, ValueError, 'schedules=0'),
        ({'schedules': 9.5}, TypeError, 'schedules=9.5 must be an int'),
        ({'patience_seconds': '9'}, TypeError, "='9' must be a number"),
        ({'patience_seconds': -1}, ValueError, 'patience_seconds=-1'),
        ({'max_advance_seconds': 0}, ValueError, 'max_advance_seconds=0'),
    ):
      with self.subTest(kwargs), self.assertRaisesRegex(error, words):
        check_unbounded_source(lambda: LogSource(VALUES), VALUES, **kwargs)
    with self.assertRaisesRegex(TypeError, 'make_source=.* gave a str'):
      check_unbounded_source(lambda: 'orders', VALUES)

  def test_what_proves_nothing_fails_as_vacuous(self):
    for expected in ([], ['a'], ['a', 'a', 'a']):
      with self.subTest(expected):
        with self.assertRaises(ConformanceError) as caught:
          check_unbounded_source(lambda: LogSource(expected), expected)
        self.assertEqual('not-vacuous', caught.exception.property)
    everything = dict.fromkeys(ALL - {'reads', 'backlog'}, 'no time')
    with self.assertRaises(ConformanceError) as caught:
      check_unbounded_source(
          lambda: LogSource(VALUES), VALUES, leave_out=everything)
    self.assertEqual('not-vacuous', caught.exception.property)


if __name__ == '__main__':
  unittest.main()
