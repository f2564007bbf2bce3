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


"""The cursor of a watch, and what a process remembers between its rounds."""

import types
import unittest

import hypothesis
from hypothesis import strategies as st

from apache_beam import coders
from apache_beam.io import _watch_cursor
from apache_beam.io._watch_cursor import CLOCK_SKEW
from apache_beam.io._watch_cursor import RecentKeys
from apache_beam.io._watch_cursor import entry
from apache_beam.io._watch_cursor import entry_micros
from apache_beam.io._watch_memory import Memory
from apache_beam.io._watch_memory import MemoryCache
from apache_beam.io._watch_restriction import Packed
from apache_beam.io._watch_restriction import Polling
from apache_beam.io._watch_seen import SeenKeys
from apache_beam.io._watch_seen import digester
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

DIGEST = digester(coders.StrUtf8Coder())
NOW = 1_000_000


def at(micros, value):
  return TimestampedValue(value, Timestamp(micros=micros))


class Watched:
  """A watch with a cursor, reduced to its keys."""
  def __init__(self, lateness=0, now=NOW):
    self.lateness = lateness
    self.now = now
    self.cursor = None
    self.recent = RecentKeys()
    self.dropped = 0

  def poll(self, *outputs):
    """The values that are output."""
    floor = _watch_cursor.floor_of(self.cursor, self.lateness)
    left, dropped = self.recent.split(outputs, floor, None)
    self.dropped += dropped
    new = [(left[index], digest) for index, digest in self.recent.unseen(
        [output.value for output in left], DIGEST)]
    self.recent.keep(
        [entry(output.timestamp.micros, digest) for output, digest in new])
    self.cursor = self.recent.cursor(self.cursor, self.now)
    floor = _watch_cursor.floor_of(self.cursor, self.lateness)
    if floor is not None:
      self.recent.expire(floor)
    return [output.value for output, _ in new]

  def restart(self):
    packed = Packed(self.recent.packed())
    self.recent = RecentKeys(packed.cut_up(24))


class CursorTest(unittest.TestCase):
  def test_entries_sort_as_times_do(self):
    times = [MIN_TIMESTAMP.micros, -1, 0, 1, 255, 256, MAX_TIMESTAMP.micros]
    packed = [entry(time, b'd' * 16) for time in times]
    self.assertEqual(sorted(packed), packed)
    self.assertEqual(times, list(map(entry_micros, packed)))
    self.assertEqual(
        bytes.fromhex('8000000000000001') + b'd' * 16, entry(1, b'd' * 16))

  def test_equal_times_in_different_polls(self):
    """Case B19: a strict bound would lose b."""
    watched = Watched()
    self.assertEqual(['a'], watched.poll(at(5, 'a')))
    self.assertEqual(['b'], watched.poll(at(5, 'a'), at(5, 'b')))
    self.assertEqual([], watched.poll(at(5, 'a'), at(5, 'b')))

  def test_microseconds_count(self):
    """Case B02: a cursor in milliseconds came back below what it was taken
    from."""
    for remainder in (0, 1, 499, 500, 999):
      time = 1_500_000_001_234_000 + remainder
      watched = Watched(now=time)
      self.assertEqual(['a'], watched.poll(at(time, 'a')))
      watched.restart()
      self.assertEqual(time, watched.cursor)
      self.assertEqual([], watched.poll(at(time, 'a')))
      self.assertEqual(['b'], watched.poll(at(time - 1, 'c'), at(time, 'b')))

  def test_late_by_less_and_by_more(self):
    """Cases B18 and B20."""
    for lateness, found, dropped in ((0, [], 1), (2, [], 1), (3, ['late'], 0),
                                     (4, ['late'], 0)):
      with self.subTest(lateness):
        watched = Watched(lateness)
        watched.poll(at(18, 'f'))
        listed = at(18, 'f'), at(15, 'late')
        self.assertEqual(found, watched.poll(*listed))
        self.assertEqual(dropped, watched.dropped)
        self.assertEqual([], watched.poll(*listed))
        self.assertEqual(dropped, watched.dropped, 'counted once')

  def test_what_was_output_is_not_counted_as_dropped(self):
    watched = Watched()
    for n in range(1, 20):
      watched.poll(*(at(time, f'item-{time}') for time in range(n)))
    self.assertEqual(0, watched.dropped)
    watched.restart()
    watched.poll(*(at(time, f'item-{time}') for time in range(25)))
    watched.poll(*(at(time, f'item-{time}') for time in range(30)))
    self.assertEqual(0, watched.dropped)
    watched.poll(*(at(time, f'item-{time}') for time in range(30)), at(3, 'x'))
    self.assertEqual(1, watched.dropped)

  def test_keys_without_a_hash(self):
    recent = RecentKeys()
    recent.split([], None, None)
    digest = digester(coders.FastPrimitivesCoder())
    recent.unseen([[1]], digest)
    recent.keep([entry(5, digest([1]))])
    recent.expire(9)
    self.assertEqual(([], 0), recent.split([at(5, [1])], 9, None))
    self.assertEqual([(0, digest([1]))], recent.unseen([[1]], digest))

  def test_state_stays_flat(self):
    """Cases B01 and B17: the cursor alone makes keys go."""
    watched = Watched(lateness=10, now=10**9)
    sizes = []
    for poll in range(200):
      watched.poll(*(at(poll * 100 + n, f'{poll}-{n}') for n in range(100)))
      sizes.append((len(watched.recent.packed()), len(watched.recent)))
    self.assertEqual({(11 * 24, 11)}, set(sizes))

  def test_a_time_far_ahead_silences_nothing(self):
    year = 365 * 24 * 3600 * 1000000
    watched = Watched()
    self.assertEqual(['a', 'far'],
                     watched.poll(at(NOW, 'a'), at(NOW + 10 * year, 'far')))
    self.assertEqual(NOW, watched.cursor)
    watched.restart()
    self.assertEqual(
        ['b'], watched.poll(at(NOW + 10 * year, 'far'), at(NOW + 1, 'b')))
    self.assertEqual(NOW + 1, watched.cursor)
    # It counts when its time has come.
    watched.now = NOW + 10 * year
    self.assertEqual([], watched.poll(at(NOW + 10 * year, 'far')))
    self.assertEqual(NOW + 10 * year, watched.cursor)
    self.assertEqual(1, len(watched.recent))

  def test_clocks_may_differ_by_a_minute(self):
    self.assertEqual(60 * 10**6, CLOCK_SKEW)
    for ahead, cursor in ((CLOCK_SKEW, NOW + CLOCK_SKEW),
                          (CLOCK_SKEW + 1, None)):
      watched = Watched()
      watched.poll(at(NOW + ahead, 'a'))
      self.assertEqual(cursor, watched.cursor)

  def test_the_cursor_never_goes_back(self):
    watched = Watched(lateness=100)
    watched.poll(at(NOW, 'a'))
    watched.now = 0  # A clock that was set back.
    watched.poll(at(NOW - 50, 'b'))
    self.assertEqual(NOW, watched.cursor)

  @hypothesis.given(
      st.lists(
          st.tuples(
              st.lists(
                  st.tuples(st.integers(0, 12), st.sampled_from('abcd')),
                  max_size=6),
              st.booleans())),
      st.integers(0, 5))
  def test_is_what_a_dumb_list_would_do(self, polls, lateness):
    """A key is its value and its time, as of files that change."""
    watched = Watched(lateness)
    kept, cursor = {}, None
    for listed, restart in polls:
      expected = []
      for time, name in listed:
        value = f'{name}{time}'
        if cursor is not None and time < cursor - lateness:
          continue
        if value not in kept:
          kept[value] = time
          expected.append(value)
      if kept:
        cursor = max([*kept.values(), cursor or 0])
      kept = {
          value: time
          for value, time in kept.items() if time >= cursor - lateness
      }
      self.assertEqual(
          expected,
          watched.poll(*(at(time, f'{name}{time}') for time, name in listed)))
      self.assertEqual(cursor, watched.cursor)
      self.assertEqual(len(kept) * 24, len(watched.recent.packed()))
      self.assertEqual(len(kept), len(watched.recent))
      if restart:
        watched.restart()

  def test_keys_with_one_digest_expire_together(self):
    """A coder that gives two values one encoding."""
    recent = RecentKeys()

    def digest(key):
      return DIGEST(key.lower())

    def unseen(*keys):
      return [keys[index] for index, _ in recent.unseen(list(keys), digest)]

    self.assertEqual(['a'], unseen('a', 'A'))
    recent.keep([entry(5, digest('a'))])
    self.assertEqual([], unseen('A', 'a'))
    recent.expire(6)
    self.assertEqual(['A'], unseen('A', 'a'))


class FakeClock:
  now = 0.0

  def __call__(self):
    return self.now


class MemoryTest(unittest.TestCase):
  def memory(self, number=1):
    return Memory(SeenKeys(DIGEST(str(n)) for n in range(number)))

  def test_is_taken_once(self):
    """A bundle that is retried brings the same generation, and must not find
    what the failed attempt did."""
    cache = MemoryCache(reap=False)
    memory = self.memory()
    cache.keep(b'watch', b'gen-1', memory)
    self.assertIsNone(cache.take(b'gen-2'))
    self.assertIs(memory, cache.take(b'gen-1'))
    self.assertIsNone(cache.take(b'gen-1'))

  def test_one_a_watch(self):
    cache = MemoryCache(reap=False)
    cache.keep(b'watch', b'gen-1', self.memory())
    cache.keep(b'other', b'gen-2', self.memory())
    cache.keep(b'watch', b'gen-3', self.memory())
    self.assertEqual(2, len(cache))
    self.assertIsNone(cache.take(b'gen-1'))

  def test_is_bounded_in_keys(self):
    cache = MemoryCache(max_keys=100, reap=False)
    for n in range(20):
      cache.keep(b'watch-%d' % n, b'gen-%d' % n, self.memory(9))
    self.assertEqual(10, len(cache))
    self.assertIsNone(cache.take(b'gen-9'))
    self.assertIsNotNone(cache.take(b'gen-10'))
    # What waits, and what is remembered as dropped, counts as well.
    waiting = self.memory(1)
    waiting.waiting = types.SimpleNamespace(new=[0] * 60)
    self.assertEqual(62, waiting.weight)
    recent = RecentKeys()
    recent.split([], None, None)
    recent.split([at(1, 'a'), at(2, 'b')], 5, None)
    self.assertEqual(3, Memory(recent).weight)
    # One that is larger than all is kept, alone.
    cache.keep(b'large', b'gen-large', self.memory(200))
    self.assertEqual(1, len(cache))

  def test_expires(self):
    clock = FakeClock()
    cache = MemoryCache(clock=clock, reap=False)
    cache.keep(b'watch', b'gen-1', self.memory())
    cache.keep(b'rare', b'gen-2', self.memory(), 3600)
    clock.now = 61.0
    cache.reap()
    self.assertIsNone(cache.take(b'gen-1'))
    self.assertIsNotNone(cache.take(b'gen-2'))

  def test_built_from_a_restriction(self):
    digest = DIGEST('a')
    plain = Memory.of(Polling(b'w', b'g', Packed(digest, DIGEST('b'))))
    self.assertIs(SeenKeys, type(plain.keys))
    self.assertEqual(2, len(plain.keys))
    self.assertEqual([], plain.keys.unseen(['a'], DIGEST))
    timed = Memory.of(
        Polling(b'w', b'g', Packed(entry(5, digest)), by_time=True))
    self.assertEqual([], timed.keys.unseen(['a'], DIGEST))
    timed.keys.expire(6)
    self.assertEqual(1, len(timed.keys.unseen(['a'], DIGEST)))


if __name__ == '__main__':
  unittest.main()
