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

"""Sources that lose records when things fail, and parts that are no whole."""

import copy
import unittest

from apache_beam.testing._unbounded_broken_testing import BrokenTest
from apache_beam.testing._unbounded_broken_testing import log
from apache_beam.testing._unbounded_test_sources import LogMark
from apache_beam.testing._unbounded_test_sources import LogReader
from apache_beam.testing._unbounded_test_sources import LogSource
from apache_beam.testing._unbounded_test_sources import PartsSource
from apache_beam.testing._unbounded_test_sources import QueueMark
from apache_beam.testing._unbounded_test_sources import QueueReader
from apache_beam.testing._unbounded_test_sources import QueueSource


class SchedulesTest(BrokenTest):
  """Without acked=, what the input forgets too early shows after a crash."""
  def caught(self, schedule, words, reader=QueueReader, mark=QueueMark):
    source = type(
        'WrongSource', (QueueSource, ), dict(reader=reader, mark=mark))
    return self.assert_queue_caught(
        'schedules', schedule, words, source, acked=None)

  def test_reading_makes_the_input_forget(self):
    class Reader(QueueReader):
      def advance(self):
        read = super().advance()
        self.unacked = []
        return read

      def get_checkpoint_mark(self):
        return QueueMark(self, (self.index, ))

    self.caught('advance crash', "'a' did not come", Reader)

  def test_cutting_a_mark_makes_the_input_forget(self):
    class Reader(QueueReader):
      def get_checkpoint_mark(self):
        mark = super().get_checkpoint_mark()
        self.unacked = []
        return mark

    self.caught('advance mark crash', "'a' did not come", Reader)

  def test_finalizing_makes_it_forget_what_was_read_since(self):
    class Mark(QueueMark):
      def finalize_checkpoint(self):
        if self.reader is not None:
          self.reader.unacked = []

    self.caught(
        'advance mark advance finalize crash', "'b' did not come", mark=Mark)

  def test_the_second_reader_counts_from_where_it_began(self):
    """What a first resume does not show, a second does."""
    class Reader(LogReader):
      def __init__(self, source, mark):
        super().__init__(source, mark)
        self.first = self.next

      def get_checkpoint_mark(self):
        return LogMark(self.source.name, self.next - self.first)

    self.assert_caught(
        'moving-marks', 'advance mark close advance mark',
        'encodes as the one before', log(Reader))


  def test_it_goes_wrong_only_after_long(self):
    """Beyond the short schedules: drawn, then made as short as it can be."""
    class Reader(LogReader):
      def __init__(self, source, mark):
        super().__init__(source, mark)
        self.server.openings = getattr(self.server, 'openings', 0) + 1
        if mark is not None and self.server.openings == 7:
          self.next -= 1

    self.assert_caught(
        'schedules', 'idle mark close close close close close close',
        "'d' came a second time", log(Reader), schedules=200)


class BundlesTest(BrokenTest):
  def test_a_source_remembers_on_itself(self):
    """Another worker has another copy of it, which remembers nothing."""
    class Source(LogSource):
      last = None

      def create_reader(self, options, mark):
        if mark is not None and self.last is not None:
          mark = LogMark(self.name, self.last.next)
        elif mark is not None:
          mark = LogMark(self.name, mark.offset - 1)
        self.last = LogReader(self, mark)
        return self.last

    self.assert_caught(
        'bundles', 'fail-at-begin-2', "'b' came twice", Source,
        leave_out=dict.fromkeys(('schedules', 'resume'), 'by one process'))


class SplitsTest(BrokenTest):
  def test_each_part_is_the_whole(self):
    self.assert_caught(
        'splits', 'split(2)', "'a' came a second time",
        log(split=lambda self, n, options: [copy.copy(self)
                                            for _ in range(min(n, 3))]))

  def test_the_remainder_is_lost(self):
    class Source(PartsSource):
      def split(self, desired_num_splits, options=None):
        parts = super().split(desired_num_splits, options)
        return parts[:2]

    self.assert_caught(
        'splits', 'split(7)', "'c' came from none of 2 parts", Source,
        ordered=False)

  def test_more_than_asked_for(self):
    class Source(PartsSource):
      def split(self, desired_num_splits, options=None):
        return super().split(max(desired_num_splits, 3) % 100 or 3, options)

    self.assert_caught(
        'splits', '', 'split(1) gave', Source, ordered=False)

  def test_nothing(self):
    self.assert_caught(
        'splits', 'split(100)', 'split(100) gave nothing',
        log(split=lambda self, n, options: [self] if n < 100 else []))

  def test_what_cannot_be_pickled(self):
    def split(self, desired_num_splits, options=None):
      if desired_num_splits > 1:
        self.open = (row for row in ())
      return [self]

    self.assert_caught(
        'splits', 'split(2)', 'cannot be pickled', log(split=split))


if __name__ == '__main__':
  unittest.main()
