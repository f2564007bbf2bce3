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

"""Sources that report a wrong watermark or backlog, or leave things open."""

import os
import threading
import unittest

from apache_beam.testing._unbounded_broken_testing import BrokenTest
from apache_beam.testing._unbounded_broken_testing import VALUES
from apache_beam.testing._unbounded_broken_testing import log
from apache_beam.testing._unbounded_test_sources import LogReader
from apache_beam.testing._unbounded_test_sources import Server
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp


class WatermarkTest(BrokenTest):
  def test_it_goes_back(self):
    class Reader(LogReader):
      def get_watermark(self):
        return Timestamp(0 if self.next % 2 else -1)

    self.assert_caught(
        'watermark', 'advance advance', 'It went back from Timestamp(0)',
        log(Reader))

  def test_it_is_above_a_record_that_comes(self):
    class Reader(LogReader):
      def get_watermark(self):
        return Timestamp(self.next + 1)

    self.assert_caught(
        'watermark', 'advance advance', "'b' has the time Timestamp(1), after",
        log(Reader))

  def test_it_is_above_a_record_that_comes_after_an_idle_time(self):
    class Reader(LogReader):
      def get_watermark(self):
        if self.next == len(self.server.values):
          return Timestamp.now() + 10**10
        return super().get_watermark()

    for leave_out in ({}, {'resume': 'appends, too'}):
      self.assert_caught(
          'watermark', 'idle append', "'appended-4' has the time", log(Reader),
          append=Server.append_to,
          leave_out=leave_out)

  def test_it_was_above_a_record_that_another_reader_gives(self):
    """What one reader reports holds for those after it."""
    class Reader(LogReader):
      def __init__(self, source, mark):
        super().__init__(source, mark)
        self.opened_at = self.next

      def get_current_timestamp(self):
        return Timestamp(self.next - self.opened_at)

      def get_watermark(self):
        return self.get_current_timestamp()

    self.assert_caught(
        'watermark', 'advance advance mark close',
        "'c' has the time Timestamp(1), after a watermark of Timestamp(2)",
        log(Reader))

  def test_it_says_the_end_before_it(self):
    class Reader(LogReader):
      def get_watermark(self):
        return MAX_TIMESTAMP if self.next == 3 else super().get_watermark()

    self.assert_caught(
        'watermark', 'advance advance advance', 'It is MAX_TIMESTAMP, while',
        log(Reader))

  def test_a_reader_that_is_opened_at_the_end_does_not_end(self):
    class Reader(LogReader):
      started = False

      def start(self):
        self.started = self.next < len(VALUES)
        return super().start()

      def get_watermark(self):
        watermark = super().get_watermark()
        return watermark if self.started else min(watermark, Timestamp(4))

    self.assert_caught(
        'watermark', 'advance advance advance advance idle idle mark close',
        'A pipeline that restarts would not end', None,
        make=lambda: log(Reader)(VALUES, ends=True))

  def test_it_is_no_timestamp(self):
    class Reader(LogReader):
      def get_watermark(self):
        return 17

    self.assert_caught(
        'watermark', 'advance', 'get_watermark() returned 17', log(Reader))

  def test_a_time_is_no_timestamp(self):
    class Reader(LogReader):
      def get_current_timestamp(self):
        return 17

    self.assert_caught(
        'watermark', 'advance', 'get_current_timestamp() returned 17',
        log(Reader))

  def test_it_stays_while_nothing_is_there(self):
    """B57."""
    class Reader(LogReader):
      def get_watermark(self):
        return min(super().get_watermark(), Timestamp(3))

    self.assert_caught(
        'idle-watermark', 'advance advance advance advance idle',
        'The watermark stayed at Timestamp(3)', log(Reader))

  def test_it_stays_where_no_record_was_read(self):
    """B58: a reader that is opened at the end, and never gives anything."""
    class Reader(LogReader):
      gave = False

      def advance(self):
        read = super().advance()
        self.gave = self.gave or read
        return read

      def get_watermark(self):
        return super().get_watermark() if self.gave else MIN_TIMESTAMP

    self.assert_caught(
        'idle-watermark', 'advance advance advance advance idle',
        'of a reader that was opened at the end stayed at', log(Reader))


class BacklogTest(BrokenTest):
  def test_it_counts_the_last_record_when_all_was_read(self):
    """B59."""
    class Reader(LogReader):
      def get_split_backlog_bytes(self):
        return len(VALUES) + 1 - self.next

    self.assert_caught(
        'backlog', 'advance advance advance advance',
        'returned 1, when all was read', log(Reader))

  def test_it_is_0_while_a_record_is_left(self):
    class Reader(LogReader):
      def get_split_backlog_bytes(self):
        return len(VALUES) - 1 - self.next

    self.assert_caught(
        'backlog', 'advance advance advance advance',
        "returned 0, and then 'd' came", log(Reader))

  def test_it_grows_while_nothing_is_there(self):
    """B71."""
    class Reader(LogReader):
      polls = 0

      def advance(self):
        self.polls += self.next == len(VALUES)
        return super().advance()

      def get_split_backlog_bytes(self):
        return super().get_split_backlog_bytes() + max(self.polls - 1, 0)

    self.assert_caught(
        'backlog', 'advance advance advance advance idle idle',
        'returned 1, when all was read', log(Reader))

  def test_it_is_negative(self):
    class Reader(LogReader):
      def get_split_backlog_bytes(self):
        return -1 if self.next > 2 else 1

    self.assert_caught(
        'backlog', 'advance advance advance', 'returned -1', log(Reader))

  def test_a_reader_is_opened_to_ask_the_source(self):
    """B70."""
    def get_total_backlog_bytes(self, options):
      reader = self.create_reader(options, None)
      try:
        return reader.get_split_backlog_bytes()
      finally:
        reader.close()

    self.assert_caught(
        'backlog', '', 'get_total_backlog_bytes() opened a reader',
        log(get_total_backlog_bytes=get_total_backlog_bytes))

  def test_a_reader_is_opened_to_ask_a_reader(self):
    """B70."""
    class Reader(LogReader):
      def get_split_backlog_bytes(self):
        other = self.source.create_reader(None, None)
        other.close()
        return super().get_split_backlog_bytes()

    self.assert_caught(
        'backlog', '', 'get_split_backlog_bytes() opened a reader',
        log(Reader))


class ClosingTest(BrokenTest):
  def test_a_thread_stays(self):
    end = threading.Event()
    self.addCleanup(end.set)

    class Reader(LogReader):
      def __init__(self, source, mark):
        super().__init__(source, mark)
        threading.Thread(target=end.wait, daemon=True).start()

    self.assert_caught(
        'closing', 'advance close', '5 threads more', log(Reader))

  def test_a_file_stays_open(self):
    files = []
    self.addCleanup(lambda: [os.close(file) for file in files])

    class Reader(LogReader):
      def __init__(self, source, mark):
        super().__init__(source, mark)
        files.append(os.open(os.devnull, os.O_RDONLY))

    self.assert_caught(
        'closing', 'advance close', '5 open files more', log(Reader))

  def test_split_leaves_a_reader_open(self):
    """B62: as many closes as opens."""
    def split(self, desired_num_splits, options=None):
      self.create_reader(options, None)
      return [self]

    self.assert_caught(
        'closing', '', '1 of them, each a LogReader, were not closed',
        log(split=split))

  def test_close_raises(self):
    class Reader(LogReader):
      def close(self):
        raise OSError('already closed')

    self.assert_caught(
        'closing', 'advance advance advance advance idle idle idle',
        "close() raised OSError('already closed')", log(Reader))


if __name__ == '__main__':
  unittest.main()
