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

"""Wrong sources: each is caught, by the property that names its fault.

Each is a right source with one fault. Its test says the property, and the
schedule, which has to be minimal: no step of it can be left out.
"""

import copy
import os
import queue
import random
import threading
import time
import unittest

from apache_beam import coders
from apache_beam.coders import coder_impl
from apache_beam.testing._unbounded_test_sources import LogMark
from apache_beam.testing._unbounded_test_sources import LogMarkCoder
from apache_beam.testing._unbounded_test_sources import LogReader
from apache_beam.testing._unbounded_test_sources import LogSource
from apache_beam.testing._unbounded_test_sources import PartsSource
from apache_beam.testing._unbounded_test_sources import QueueMark
from apache_beam.testing._unbounded_test_sources import QueueReader
from apache_beam.testing._unbounded_test_sources import QueueSource
from apache_beam.testing._unbounded_test_sources import Server
from apache_beam.testing.unbounded_source import ConformanceError
from apache_beam.testing.unbounded_source import check_unbounded_source
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

VALUES = ['a', 'b', 'c', 'd']


def log(reader=LogReader, mark=LogMark, mark_coder=LogMarkCoder, **methods):
  """A log source with other parts."""
  return type(
      'WrongSource', (LogSource, ),
      dict(reader=reader, mark=mark, mark_coder=mark_coder, **methods))


class BrokenTest(unittest.TestCase):
  def assert_caught(
      self, property, schedule, words, source, make=None, expected=None,
      **kwargs):
    kwargs.setdefault('patience_seconds', 0.05)
    kwargs.setdefault('max_advance_seconds', 5)
    with self.assertRaises(ConformanceError) as caught:
      check_unbounded_source(
          make or (lambda: source(VALUES)), expected or VALUES, **kwargs)
    error = caught.exception
    self.assertEqual(property, error.property, error)
    self.assertEqual(tuple(schedule.split()), error.schedule, error)
    self.assertIn(words, error.seen)
    for part in (f'breaks "{property}"', 'seen:', 'look at:', words):
      self.assertIn(part, str(error))
    return error

  def assert_queue_caught(self, property, schedule, words, source, **kwargs):
    kwargs.setdefault('acked', Server.acked_by)
    return self.assert_caught(
        property, schedule, words, source,
        replays=False,
        leave_out={'idle-watermark': 'nobody knows what it delivers again'},
        **kwargs)


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


class MarksTest(BrokenTest):
  def test_records_read_later_join_the_mark(self):
    """B48: the mark that is returned is the reader's own."""
    class Reader(LogReader):
      def get_checkpoint_mark(self):
        reader = self

        class Mark(LogMark):
          offset = property(lambda self: reader.next, lambda self, v: None)

        return Mark(self.source.name, 0)

    self.assert_caught(
        'frozen-marks', 'advance mark advance',
        'Mark 1 was 0001 when it was cut, and is 0002 after advance',
        log(Reader))

  def test_the_same_object_each_time(self):
    """B49."""
    class Reader(LogReader):
      only = None

      def get_checkpoint_mark(self):
        self.only = self.only or LogMark(self.source.name, 0)
        self.only.offset = self.next
        return self.only

    self.assert_caught(
        'frozen-marks', 'advance mark advance mark', 'the same object',
        log(Reader))

  def test_the_mark_stays_though_records_were_read(self):
    """B73: rows, but the same offset: what follows repeats for ever."""
    class Reader(LogReader):
      def get_checkpoint_mark(self):
        return LogMark(self.source.name, (self.next + 1) // 2 * 2)

    self.assert_caught(
        'moving-marks', 'advance mark advance mark',
        "The mark after 'b' encodes as the one before: 0002", log(Reader))


class MarkCoderTest(BrokenTest):
  def test_it_reads_further_than_it_wrote(self):
    """B50: fine alone, wrong behind or before anything else."""
    class Impl(coder_impl.StreamCoderImpl):
      def encode_to_stream(self, value, stream, nested):
        stream.write(str(value.offset).encode(), False)

      def decode_from_stream(self, stream, nested):
        return LogMark(None, int(stream.read_all(False)))

    class Coder(LogMarkCoder):
      def _create_impl(self):
        return Impl()

      def encode(self, value):
        return self.get_impl().encode(value)

      def decode(self, encoded):
        return self.get_impl().decode(encoded)

    self.assert_caught(
        'mark-coder', 'advance mark', 'Within a TupleCoder it raised',
        log(mark_coder=Coder))

  def test_it_says_that_it_is_not_deterministic(self):
    class Coder(LogMarkCoder):
      def is_deterministic(self):
        return False

    self.assert_caught(
        'mark-coder', '', 'is_deterministic() returned False',
        log(mark_coder=Coder))

  def test_it_is_not_deterministic(self):
    class Coder(LogMarkCoder):
      def encode(self, value):
        return super().encode(value) + random.randbytes(4)

    self.assert_caught(
        'mark-coder', 'advance mark', 'One mark was encoded as',
        log(mark_coder=Coder))

  def test_it_loses_a_part(self):
    class Coder(LogMarkCoder):
      def decode(self, encoded):
        return LogMark(self.name, encoded[1] & 1)

    self.assert_caught(
        'mark-coder', 'advance advance mark',
        '0002, decoded and encoded again, is 0000', log(mark_coder=Coder))

  def test_it_cannot_decode(self):
    class Coder(LogMarkCoder):
      def decode(self, encoded):
        raise ValueError('95 unexpected extra bytes')

    self.assert_caught(
        'mark-coder', 'advance mark', 'decode() raised', log(mark_coder=Coder))

  def test_there_is_none(self):
    self.assert_caught(
        'mark-coder', '', 'get_checkpoint_mark_coder() raised',
        log(get_checkpoint_mark_coder=LogSource.__mro__[1].
            get_checkpoint_mark_coder))


class FinalizationTest(BrokenTest):
  def caught(self, schedule, words, **kwargs):
    mark = type('Mark', (QueueMark, ), kwargs.pop('mark', {}))
    reader = type('Reader', (QueueReader, ), kwargs.pop('reader', {}))
    source = type('WrongSource', (QueueSource, ), dict(
        mark=mark, reader=reader, **kwargs))
    return self.assert_queue_caught('finalization', schedule, words, source)

  def test_a_decoded_mark_has_no_connection(self):
    """B46."""
    class Coder(LogMarkCoder):
      def encode(self, value):
        return bytes(value.indexes)

      def decode(self, encoded):
        return NoConnection(None, tuple(encoded))

    class NoConnection(QueueMark):
      def finalize_checkpoint(self):
        self.reader.acknowledge(self.indexes)

    self.caught(
        'advance mark finalize-decoded',
        "finalize_checkpoint() raised AttributeError",
        get_checkpoint_mark_coder=lambda self: Coder(self))

  def test_to_finalize_again_acknowledges_again(self):
    """B47."""
    def acknowledge(self, indexes):
      self.server.acked += [self.server.values[i] for i in indexes]
      self.unacked = []

    self.caught(
        'advance mark finalize finalize-again', "'a' was acknowledged twice",
        reader={'acknowledge': acknowledge})

  def test_two_threads_at_once_acknowledge_twice(self):
    """B47, as the race that it was."""
    def acknowledge(self, indexes):
      gone = [index for index in indexes if index in self.unacked]
      time.sleep(0.02)
      self.unacked = [i for i in self.unacked if i not in gone]
      self.server.acked += [self.server.values[i] for i in gone]

    self.caught(
        'advance mark finalize-twice-at-once', "'a' was acknowledged twice",
        reader={'acknowledge': acknowledge})

  def test_what_was_read_later_is_acknowledged(self):
    """B48: the bytes are right, what is acknowledged is not."""
    def finalize_checkpoint(self):
      if self.reader is not None:
        self.reader.acknowledge(list(self.reader.unacked))

    self.caught(
        'advance mark advance finalize',
        "'b' was acknowledged, when no mark that covers it",
        mark={'finalize_checkpoint': finalize_checkpoint})

  def test_a_mark_that_was_not_finalized_takes_its_records_along(self):
    """B53: they are in no later mark."""
    def get_checkpoint_mark(self):
      fresh = [i for i in self.unacked if i not in self.__dict__.setdefault(
          'cut', [])]
      self.cut += fresh
      return QueueMark(self, tuple(fresh))

    self.caught(
        'advance mark advance mark finalize',
        "'a' is covered by a mark that was finalized, and was not acknowledged",
        reader={'get_checkpoint_mark': get_checkpoint_mark})

  def test_the_cut_acknowledges(self):
    def get_checkpoint_mark(self):
      mark = QueueReader.get_checkpoint_mark(self)
      self.acknowledge(mark.indexes)
      return mark

    self.caught(
        'advance mark', "'a' was acknowledged",
        reader={'get_checkpoint_mark': get_checkpoint_mark})

  def test_reading_acknowledges(self):
    def advance(self):
      read = QueueReader.advance(self)
      self.acknowledge(self.unacked)
      return read

    self.caught(
        'advance', "'a' was acknowledged", reader={'advance': advance})

  def test_it_works_on_one_thread_only(self):
    def acknowledge(self, indexes):
      if threading.current_thread() is not threading.main_thread():
        raise RuntimeError('created in another thread')
      QueueReader.acknowledge(self, indexes)

    self.caught(
        'advance mark finalize-elsewhere', 'on another thread raised',
        reader={'acknowledge': acknowledge})

  def test_it_fails_after_the_reader_was_closed(self):
    def acknowledge(self, indexes):
      if not self.open:
        raise ConnectionError('closed')
      QueueReader.acknowledge(self, indexes)

    self.caught(
        'advance mark close finalize', "raised ConnectionError('closed')",
        reader={'acknowledge': acknowledge})

  def test_marks_have_to_come_in_order(self):
    def acknowledge(self, indexes):
      if not all(index in self.unacked for index in indexes):
        raise LookupError('unknown delivery')
      QueueReader.acknowledge(self, indexes)

    def finalize_checkpoint(self):
      if not self.__dict__.setdefault('done', False):
        self.done = True
        self.reader.acknowledge(self.indexes)

    self.caught(
        'advance mark advance mark finalize finalize-first',
        "raised LookupError('unknown delivery')",
        reader={'acknowledge': acknowledge},
        mark={'finalize_checkpoint': finalize_checkpoint})


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
        'splits', 'split(7)', "['c'] came from none of 2 parts", Source,
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

    self.assert_caught(
        'watermark', 'idle append', "'appended-4' has the time", log(Reader),
        append=Server.append_to)

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
    class Reader(LogReader):
      def get_watermark(self):
        return min(super().get_watermark(), Timestamp(3))

    self.assert_caught(
        'idle-watermark', 'advance advance advance advance idle',
        'The watermark stayed at Timestamp(3)', log(Reader))

  def test_it_stays_where_no_record_was_read(self):
    """A reader that is opened at the end, and never gives anything."""
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
