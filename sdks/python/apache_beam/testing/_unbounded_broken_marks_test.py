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

"""Sources whose marks are wrong, or acknowledge what they should not."""

import random
import threading
import time
import unittest

from apache_beam.coders import coder_impl
from apache_beam.testing._unbounded_broken_testing import BrokenTest
from apache_beam.testing._unbounded_broken_testing import log
from apache_beam.testing._unbounded_test_sources import LogMark
from apache_beam.testing._unbounded_test_sources import LogMarkCoder
from apache_beam.testing._unbounded_test_sources import LogReader
from apache_beam.testing._unbounded_test_sources import LogSource
from apache_beam.testing._unbounded_test_sources import QueueMark
from apache_beam.testing._unbounded_test_sources import QueueReader
from apache_beam.testing._unbounded_test_sources import QueueSource


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


if __name__ == '__main__':
  unittest.main()
