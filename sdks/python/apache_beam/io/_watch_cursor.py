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


"""Lets the history of a watch expire: the cursor.

Purpose: a watch that runs for years cannot keep the key of everything that it
  output. With a cursor it keeps those of the last while of event time.
Guarantees:
  * The cursor is the greatest event time that was output, but never one that
    is ahead of the clock by more than ``CLOCK_SKEW``: such an output is given
    and remembered, and moves the cursor when its time has come. So one time
    that is wrong by years does not silence what follows.
  * The floor lies the allowed lateness below the cursor. Keys at or above it
    are remembered: of two outputs with equal times, found by different polls,
    each is output once. Outputs below it are dropped, and counted.
  * Times are whole microseconds, here and in the persisted bytes.
Threads: owned by one bundle at a time.
"""

import bisect
import itertools
from typing import Any
from typing import Callable
from typing import Iterable
from typing import Optional
from typing import Sequence

from apache_beam.io._watch_seen import SeenKeys
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP

# By how much clocks may differ, in microseconds.
CLOCK_SKEW = 60 * 1000000
# Of so many dropped outputs of a poll it is remembered that they were counted.
_MAX_DROPPED = 1000000
_OFFSET = 1 << 63


def entry(micros: int, digest: bytes) -> bytes:
  """A key with its event time; entries sort as bytes as they do by time."""
  return (micros + _OFFSET).to_bytes(8, 'big') + digest


def entry_micros(packed: bytes) -> int:
  return int.from_bytes(packed[:8], 'big') - _OFFSET


def floor_of(cursor: Optional[int], lateness: int) -> Optional[int]:
  """Below which event time outputs are dropped; None: there is no bound."""
  # No time is below the first, and packed entries have no room for one.
  return None if cursor is None else max(
      cursor - lateness, MIN_TIMESTAMP.micros)


class RecentKeys(SeenKeys):
  """Keys that were seen, with their event times, as far as they matter.

  Args:
    entries: what is known already, sorted.
  """
  def __init__(self, entries: Iterable[bytes] = ()) -> None:
    self._entries = list(entries)
    super().__init__(packed[8:] for packed in self._entries)
    self._key_of: dict[bytes, Any] = {}
    # What was dropped by the last poll, to count it once; None: unknown.
    self._dropped: Optional[set] = None

  @property
  def weight(self) -> int:
    """With those that were dropped: they are remembered, too."""
    return len(self) + len(self._dropped or ())

  def keep(self, entries: list[bytes]) -> None:
    """Takes in what is output now."""
    self._entries += entries
    self._entries.sort()

  def packed(self) -> bytes:
    return b''.join(self._entries)

  def cursor(self, cursor: Optional[int], now: int) -> Optional[int]:
    """Where the cursor stands after what was kept.

    Args:
      cursor: where it stood.
      now: by the clock, in microseconds.
    """
    at = bisect.bisect_left(
        self._entries, entry(now + CLOCK_SKEW + 1, b''))
    if not at:
      return cursor
    newest = entry_micros(self._entries[at - 1])
    return newest if cursor is None else max(cursor, newest)

  def expire(self, floor: int) -> None:
    """Forgets the keys below the floor."""
    at = bisect.bisect_left(self._entries, entry(floor, b''))
    for packed in self._entries[:at]:
      digest = packed[8:]
      self._digests.discard(digest)
      if digest in self._key_of:
        key = self._key_of.pop(digest)
        values = self._values.get(type(key))
        if values is not None:
          values.discard(key)
        if self._dropped is not None:
          # It will be listed again, and was not lost.
          try:
            self._dropped.add(key)
          except TypeError:  # It has no hash; such are not told apart.
            pass
    del self._entries[:at]

  def split(
      self,
      outputs: Sequence[TimestampedValue],
      floor: Optional[int],
      key_fn: Optional[Callable[[Any], Any]]
  ) -> tuple[Sequence[TimestampedValue], int]:
    """Takes out what lies below the floor.

    Returns:
      What is left, and how much was dropped for the first time, as far as this
      process can tell: right after a restart it cannot.
    """
    if floor is None:
      self._dropped = set()
      return outputs, 0
    left = []
    below = []
    keep = left.append
    drop = below.append
    for output in outputs:  # One pass, as to get at an output takes the time.
      if output.timestamp.micros < floor:
        drop(output.value)
      else:
        keep(output)
    if key_fn is not None:
      below = list(map(key_fn, below))
    return left, self._count_dropped(below)

  def _count_dropped(self, keys: list) -> int:
    before, self._dropped = self._dropped, None
    if len(keys) > _MAX_DROPPED:
      return 0
    try:
      if before is None:
        self._dropped = set(keys)
        return 0
      if before.issuperset(keys):
        # Those that are listed no more go when they are the most.
        self._dropped = (
            before if len(before) <= 2 * len(keys) + 1000 else set(keys))
        return 0
      self._dropped = set(keys)
      return len(self._dropped - before)
    except TypeError:  # Keys that have no hash.
      return 0

  def _remember(self, hashed: list[bytes], keys: list) -> None:
    # One value a digest, or expiring would not find the others.
    note = self._key_of.setdefault
    first = [note(each, key) is key for each, key in zip(hashed, keys)]
    if not all(first):
      keys = list(itertools.compress(keys, first))
    super()._remember(hashed, keys)
