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

"""Sources that do not read what is there, or not from where they were."""

import queue
import time
import unittest

from apache_beam import coders
from apache_beam.testing._unbounded_broken_testing import BrokenTest
from apache_beam.testing._unbounded_broken_testing import VALUES
from apache_beam.testing._unbounded_broken_testing import log
from apache_beam.testing._unbounded_test_sources import LogMark
from apache_beam.testing._unbounded_test_sources import LogReader
from apache_beam.testing._unbounded_test_sources import LogSource
from apache_beam.testing._unbounded_test_sources import Server


class ReadsTest(BrokenTest):
  def test_the_first_record_is_lost(self):
    class Reader(LogReader):
      def start(self):
        return self.advance() and self.advance()

    self.assert_caught(
        'reads', 'advance', "'b' came, where 'a' is next", log(Reader))

  def test_a_record_is_missing(self):
    self.assert_caught(
        'reads', 'advance advance advance advance', "'d' did not come",
        None, make=lambda: LogSource(VALUES[:3]))

  def test_a_record_comes_twice(self):
    class Reader(LogReader):
      again = True

      def advance(self):
        if self.next == 2 and self.again:
          self.again = False
          return True
        return super().advance()

    self.assert_caught(
        'reads', 'advance advance advance', "'b' came a second time",
        log(Reader))

  def test_advance_raises(self):
    class Reader(LogReader):
      def advance(self):
        if self.next == 2:
          raise EOFError('no more')
        return super().advance()

    error = self.assert_caught(
        'reads', 'advance advance advance',
        "advance() raised EOFError('no more')", log(Reader))
    self.assertIsInstance(error.__cause__, EOFError)

  def test_advance_gives_no_answer(self):
    class Reader(LogReader):
      def advance(self):
        super().advance()

    self.assert_caught(
        'reads', 'advance', 'start() returned None', log(Reader))

  def test_create_reader_gives_something_else(self):
    self.assert_caught(
        'reads', '', 'create_reader() gave a list',
        log(create_reader=lambda self, options, mark: []))

  def test_records_come_without_an_end(self):
    class Reader(LogReader):
      def advance(self):
        self.next = self.next % len(VALUES) + 1
        return True

    self.assert_caught(
        'reads', 'advance advance advance advance idle',
        "'a' came a second time", log(Reader))


class NoBlockingTest(BrokenTest):
  def test_advance_waits_when_nothing_is_there(self):
    class Reader(LogReader):
      def advance(self):
        if self.next == len(VALUES):
          time.sleep(0.1)
        return super().advance()

    self.assert_caught(
        'no-blocking', 'advance advance advance advance idle',
        'advance() took 0.1', log(Reader), max_advance_seconds=0.05)

  def test_advance_waits_for_ever(self):
    """The classic: a queue is asked without a timeout. The check goes on."""
    stop = []

    class Reader(LogReader):
      def advance(self):
        if self.next == len(VALUES):
          stop.append(queue.Queue())
          stop[0].get()
        return super().advance()

    error = self.assert_caught(
        'no-blocking', 'advance advance advance advance idle',
        'advance() did not return: it stands in', log(Reader),
        max_advance_seconds=0.01)
    self.assertIn('get (', error.seen)
    stop[0].put(None)


class RecordCoderTest(BrokenTest):
  def test_records_are_not_what_the_coder_encodes(self):
    self.assert_caught(
        'record-coder', '', 'BytesCoder',
        log(default_output_coder=lambda self: coders.BytesCoder()))

  def test_a_coder_that_loses_something(self):
    class Coder(coders.StrUtf8Coder):
      def decode(self, encoded):
        return super().decode(encoded).upper()

    self.assert_caught(
        'record-coder', '', "'a', encoded and decoded, is 'A'",
        log(default_output_coder=lambda self: Coder()))


class ResumeTest(BrokenTest):
  def test_the_mark_is_ignored(self):
    """B74: on restore, what was read is not skipped."""
    self.assert_caught(
        'resume', 'advance mark close', "'a' came a second time",
        log(create_reader=lambda self, options, mark: LogReader(self, None)))

  def test_it_begins_with_the_record_of_the_mark(self):
    """B59: the position is next to read, not last read."""
    class Reader(LogReader):
      def get_checkpoint_mark(self):
        return LogMark(self.source.name, self.next - 1)

    self.assert_caught(
        'resume', 'advance mark close', "'a' came a second time", log(Reader))

  def test_the_mark_covers_what_was_fetched_and_not_given(self):
    class Reader(LogReader):
      def get_checkpoint_mark(self):
        return LogMark(self.source.name, self.next + 1)

    self.assert_caught(
        'resume', 'advance mark close', "'c' came, where 'b' is next",
        log(Reader))

  def test_only_the_third_mark_is_wrong(self):
    """A schedule has as many steps as it takes, and no more."""
    class Reader(LogReader):
      def __init__(self, source, mark):
        super().__init__(source, mark)
        if self.next == 3:
          self.next = 2

    self.assert_caught(
        'resume', 'advance advance advance mark close',
        "'c' came a second time", log(Reader))

  def test_a_record_that_comes_after_an_idle_time_is_lost(self):
    class Reader(LogReader):
      idle = False

      def advance(self):
        self.idle = self.idle or self.next >= len(self.server.values)
        return not self.idle and super().advance()

    self.assert_caught(
        'resume', 'idle append', "'appended-4' did not come", log(Reader),
        append=Server.append_to)


if __name__ == '__main__':
  unittest.main()
