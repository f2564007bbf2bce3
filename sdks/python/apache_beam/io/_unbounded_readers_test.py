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

"""Chunks, open readers and the cache that keeps them between bundles."""

import threading
import time
import unittest

import hypothesis
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import invariant
from hypothesis.stateful import rule

from apache_beam import coders
from apache_beam.io import _unbounded_pace
from apache_beam.io import _unbounded_reader
from apache_beam.io._unbounded_chunk import GLOBAL_WINDOWS
from apache_beam.io._unbounded_chunk import Chunk
from apache_beam.io._unbounded_chunk import ChunkCoder
from apache_beam.io._unbounded_pace import Pace
from apache_beam.io._unbounded_reader import OpenReader
from apache_beam.io._unbounded_readers import MIN_IDLE_SECONDS
from apache_beam.io._unbounded_readers import ReaderCache
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

TIMESTAMPS = st.integers(
    MIN_TIMESTAMP.micros,
    MAX_TIMESTAMP.micros).map(lambda micros: Timestamp(micros=micros))


class ChunkCoderTest(unittest.TestCase):
  @given(st.lists(st.tuples(st.integers(-2**63, 2**63 - 1), TIMESTAMPS)))
  def test_round_trip(self, records):
    chunk = Chunk([WindowedValue(v, t, GLOBAL_WINDOWS) for v, t in records])
    coder = ChunkCoder(coders.VarIntCoder())
    self.assertEqual(chunk, coder.decode(coder.encode(chunk)))
    nested = coders.TupleCoder([coder, coder])
    self.assertEqual((chunk, chunk), nested.decode(nested.encode(
        (chunk, chunk))))

  def test_estimate_does_not_encode(self):
    class Refuses(coders.Coder):
      def encode(self, value):
        raise AssertionError('encoded')

    chunk = Chunk([WindowedValue('v', Timestamp(1), GLOBAL_WINDOWS)] * 100)
    self.assertGreater(ChunkCoder(Refuses()).get_impl().estimate_size(chunk), 0)


class ListReader:
  """Gives the items of a list; None is a moment in which there is nothing."""
  def __init__(self, items, seconds_each=0.0):
    self._items = iter(items)
    self._seconds_each = seconds_each
    self._current = None
    self.started = 0
    self.closed = 0

  def start(self):
    self.started += 1
    return self.advance()

  def advance(self):
    time.sleep(self._seconds_each)
    self._current = next(self._items, None)
    return self._current is not None

  def get_current(self):
    return self._current

  def get_current_timestamp(self):
    return Timestamp(1)

  def close(self):
    self.closed += 1


def open_reader(reader=None, value_coder=coders.PickleCoder()):
  return OpenReader(reader or ListReader([]), coders.BytesCoder(), value_coder)


class OpenReaderTest(unittest.TestCase):
  @given(
      st.lists(st.none() | st.integers(), max_size=60),
      st.lists(st.integers(1, 20), min_size=1, max_size=10))
  def test_reads_all_in_order_and_never_looks_ahead(self, items, limits):
    reader = ListReader(items)
    opened = open_reader(reader)
    read = []
    pauses = 0
    for number in range(len(items) + 1):
      records, more = opened.read(limits[number % len(limits)])
      self.assertLessEqual(len(records), limits[number % len(limits)])
      read += [record.value for record in records]
      if more:
        # It stands on the last record of the chunk: a mark cut now covers it.
        self.assertEqual(records[-1].value, reader.get_current())
      else:
        pauses += 1
      if pauses > items.count(None):
        break
    self.assertEqual([item for item in items if item is not None], read)
    self.assertEqual(1, reader.started)

  def test_a_slow_reader_gives_a_short_chunk(self):
    opened = open_reader(ListReader(range(1000), seconds_each=0.03))
    records, more = opened.read(100)
    self.assertTrue(more)
    # 0.1 s at 0.03 s each, looked at after 1, 2, 4, 8 … records.
    self.assertLess(len(records), 16)

  def test_closes_once_and_swallows_what_close_raises(self):
    """Case B45."""
    class Raises(ListReader):
      def close(self):
        super().close()
        raise IOError('gone')

    reader = Raises([])
    opened = open_reader(reader)
    with self.assertLogs(_unbounded_reader.__name__, 'WARNING') as logs:
      opened.close()
      opened.close()
    self.assertEqual(1, reader.closed)
    self.assertIn('close() of a Raises failed', logs.output[0])

  def test_retired_it_stays_open_until_the_last_mark_is_finalized(self):
    reader = ListReader([])
    opened = open_reader(reader)
    for _ in range(3):
      opened.registered()
    self.assertFalse(opened.finalized())
    self.assertFalse(opened.retire())
    self.assertFalse(opened.finalized())
    self.assertEqual(0, reader.closed)
    self.assertTrue(opened.finalized())
    self.assertEqual(1, reader.closed)

  def test_retired_with_nothing_outstanding_it_closes_at_once(self):
    reader = ListReader([])
    opened = open_reader(reader)
    opened.registered()
    opened.finalized()
    self.assertTrue(opened.retire())
    self.assertEqual(1, reader.closed)

  def test_records_are_weighed_whatever_they_are(self):
    class Refuses(coders.Coder):
      def encode(self, value):
        raise TypeError('not mine')

    megabyte = 'x' * (1 << 20)
    for value, coder in ((megabyte, coders.PickleCoder()),
                         (megabyte.encode(), coders.PickleCoder()),
                         ({'a': megabyte}, coders.PickleCoder()),
                         ([0] * (1 << 17), Refuses())):
      opened = open_reader(value_coder=coder)
      opened.pace.observe(8, 8e-6)
      self.assertGreater(opened.pace.chunk_limit(10), 100)
      opened.weigh([WindowedValue(value, Timestamp(1), GLOBAL_WINDOWS)])
      self.assertLess(opened.pace.chunk_limit(10), 5)

  def test_large_records_after_many_small_ones_are_noticed(self):
    opened = open_reader()
    small = [WindowedValue(1, Timestamp(1), GLOBAL_WINDOWS)]
    large = [WindowedValue([b'x' * (1 << 20)], Timestamp(1), GLOBAL_WINDOWS)]
    for _ in range(100):
      opened.weigh(small)
    opened.pace.observe(8, 8e-6)
    for _ in range(10):
      opened.weigh(large)
    self.assertLess(opened.pace.chunk_limit(10), 5)


class PaceTest(unittest.TestCase):
  def test_begins_with_few(self):
    self.assertLess(Pace().chunk_limit(10), 20)

  def test_small_fast_records_come_by_the_hundred(self):
    pace = Pace()
    pace.observe(8, 8e-6)
    pace.weigh(10)
    self.assertEqual(
        _unbounded_pace.MAX_CHUNK_RECORDS, pace.chunk_limit(10))

  def test_large_records_come_in_small_chunks(self):
    pace = Pace()
    pace.observe(8, 8e-6)
    pace.weigh(1 << 20)
    self.assertEqual(
        _unbounded_pace.MAX_CHUNK_BYTES >> 20, pace.chunk_limit(10))
    pace.weigh(1 << 30)
    self.assertEqual(1, pace.chunk_limit(10))

  def test_slow_records_leave_the_time_cap_its_say(self):
    pace = Pace()
    pace.observe(8, 0.008)
    self.assertEqual(2, pace.chunk_limit(0.0025))

  @given(
      st.lists(
          st.tuples(
              st.integers(1, 100),
              st.floats(0, 1e6),
              st.integers(0, 1 << 40))),
      st.floats(-1, 1e9))
  def test_always_asks_for_something_and_never_too_much(self, seen, left):
    pace = Pace()
    for records, seconds, size in seen:
      pace.observe(records, seconds)
      pace.weigh(size)
    limit = pace.chunk_limit(left)
    self.assertTrue(1 <= limit <= _unbounded_pace.MAX_CHUNK_RECORDS)


class ReaderCacheMachine(RuleBasedStateMachine):
  """Readers are owned by the cache, or by a bundle, or closed once."""
  SPLITS = st.sampled_from([b'split-a', b'split-b', b'split-c'])
  GENERATIONS = st.integers(0, 9).map(lambda n: b'generation-%d' % n)

  def __init__(self):
    super().__init__()
    self.now = 0.0
    self.cache = ReaderCache(max_readers=2, clock=lambda: self.now, reap=False)
    self.kept = {}  # generation -> (split, reader, expires)
    self.owned = []
    self.closed = []

  def drop(self, generations):
    for generation in generations:
      self.closed.append(self.kept.pop(generation)[1])

  @rule(split=SPLITS, generation=GENERATIONS, idle=st.integers(0, 100))
  def keep(self, split, generation, idle):
    hypothesis.assume(generation not in self.kept)
    reader = ListReader([])
    self.cache.keep(split, generation, open_reader(reader), idle)
    self.drop([g for g, k in self.kept.items() if k[0] == split])
    expires = self.now + max(MIN_IDLE_SECONDS, 2 * idle)
    self.kept[generation] = (split, reader, expires)
    self.drop(list(self.kept)[:-2])

  @rule(generation=GENERATIONS)
  def take(self, generation):
    taken = self.cache.take(generation)
    expected = self.kept.pop(generation, None)
    assert (taken and taken.reader) is (expected and expected[1])
    if expected:
      self.owned.append(expected[1])

  @rule(split=SPLITS)
  def close_split(self, split):
    self.cache.close_split(split)
    self.drop([g for g, k in self.kept.items() if k[0] == split])

  @rule(seconds=st.integers(0, 80))
  def wait(self, seconds):
    self.now += seconds
    self.cache.reap()
    self.drop([g for g, k in self.kept.items() if k[2] <= self.now])

  @rule()
  def close_all(self):
    self.cache.close_all()
    self.drop(list(self.kept))

  @invariant()
  def nothing_leaks(self):
    assert len(self.cache) == len(self.kept)
    assert all(reader.closed == 1 for reader in self.closed)
    assert all(reader.closed == 0 for _, reader, _ in self.kept.values())
    assert all(reader.closed == 0 for reader in self.owned)


TestReaderCacheMachine = ReaderCacheMachine.TestCase
TestReaderCacheMachine.settings = hypothesis.settings(
    max_examples=60, stateful_step_count=40, deadline=None)


class ReaderCacheTest(unittest.TestCase):
  def test_500_splits_do_not_thrash(self):
    cache = ReaderCache(reap=False)
    readers = {}
    for number in range(500):
      readers[number] = open_reader()
      cache.keep(b's%d' % number, b'g0-%d' % number, readers[number])
    for round_ in range(3):
      for number in range(500):
        taken = cache.take(b'g%d-%d' % (round_, number))
        self.assertIs(readers[number], taken)
        cache.keep(b's%d' % number, b'g%d-%d' % (round_ + 1, number), taken)
    self.assertEqual(500, len(cache))

  def test_a_thread_closes_what_is_idle_and_ends_with_it(self):
    """Case B64."""
    now = [0.0]
    cache = ReaderCache(clock=lambda: now[0])
    reader = ListReader([])
    cache.keep(b'split', b'generation', open_reader(reader))
    thread = cache._thread
    self.assertTrue(thread.daemon)
    now[0] = MIN_IDLE_SECONDS + 1
    with cache._lock:
      cache._wake.notify_all()
    thread.join(10)
    self.assertFalse(thread.is_alive())
    self.assertEqual(1, reader.closed)
    cache.keep(b'split', b'another', open_reader())
    self.assertIsNotNone(cache._thread)
    cache.close_all()

  def test_a_reader_is_closed_outside_of_the_lock(self):
    """A close that takes long must not stall the other splits of the worker."""
    cache = ReaderCache(reap=False)
    closing = threading.Event()
    go_on = threading.Event()

    class Slow(ListReader):
      def close(self):
        closing.set()
        assert go_on.wait(10)
        super().close()

    cache.keep(b'slow', b'g1', open_reader(Slow([])))
    thread = threading.Thread(target=cache.close_split, args=(b'slow', ))
    thread.start()
    try:
      self.assertTrue(closing.wait(10))
      other = open_reader()
      cache.keep(b'fast', b'g2', other)
      self.assertIs(other, cache.take(b'g2'))
    finally:
      go_on.set()
      thread.join(10)


if __name__ == '__main__':
  unittest.main()
