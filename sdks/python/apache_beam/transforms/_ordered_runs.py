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

"""Where a key's buffer keeps the records that do not fit into one value.

Both kinds of storage do the same two things: `add` takes records in order, and
`take` gives back the earliest. What they have to remember between two bundles
is a list of integers, `marks`, which the buffer keeps for them. No Beam here:
states come in as objects with the few methods that are used.
"""

import bisect
import itertools
from collections.abc import Sequence

from apache_beam.transforms._ordered_records import Record
from apache_beam.transforms._ordered_records import RecordOrder
from apache_beam.transforms._ordered_records import decode_run
from apache_beam.transforms._ordered_records import encode_run
from apache_beam.transforms._ordered_records import encode_runs
from apache_beam.transforms._ordered_records import event_time
from apache_beam.transforms._ordered_records import first_time
from apache_beam.utils.timestamp import Timestamp

# The number of records that a level may hold before its later half moves on;
# the last level holds any number.
CAPACITIES = (2048, 32768)
LEVELS = len(CAPACITIES) + 1
# How many records are taken in advance, so that the next release finds them in
# the buffer's own value.
AHEAD = 128


def cut_at_time(records: Sequence[Record], wanted: int) -> int:
  """Where to cut so that about `wanted` are before it, at most.

  Records of one event time stay together, so that a time says on which side a
  record is.
  """
  if wanted >= len(records):
    return len(records)
  return number_before(records, records[wanted][0])


def number_before(records: Sequence[Record], time: int) -> int:
  """How many of the records, which are in order, are earlier than `time`."""
  return bisect.bisect_left(records, (time, ))


def _check_found(found: int, expected: int, state: str, way_out: str) -> None:
  """Raises if a state does not have what was put into it.

  Else elements would be lost in silence, and timers set for them without end.
  """
  if found != expected:
    raise RuntimeError(
        f'Ordered processing finds {found} elements in {state}, where it put '
        f'{expected}: this runner does not keep what is in it. {way_out}')


class BagRuns:
  """Levels of bags that hold runs; each level is later than those before it.

  A level has records from its mark on, those before it have earlier ones only.
  So a release reads the first level that has records, and of it decodes only
  the runs that begin early enough; what it takes too much moves down a level.
  A record moves as often as there are levels, whatever the size of the buffer.
  Runs are added to a level without looking at it, and merged when they are
  read.

  Args:
    bags: one state for each level, with `read`, `add` and `clear`.
    order: of the records.
    marks: as `marks` was before, or an empty list.
  """
  def __init__(
      self,
      bags: Sequence,
      order: RecordOrder,
      marks: Sequence[int]):
    self._bags = bags
    self._order = order
    self._counts = list(marks[:LEVELS]) or [0] * LEVELS
    self._lows = list(marks[LEVELS:]) or [0] * LEVELS

  @property
  def marks(self) -> list[int]:
    return self._counts + self._lows if any(self._counts) else []

  @property
  def count(self) -> int:
    return sum(self._counts)

  @property
  def low(self) -> int:
    """No record is earlier. Only if there are any."""
    return next(
        low for count, low in zip(self._counts, self._lows) if count)

  def add(self, records: list[Record]) -> None:
    """Adds records, in order."""
    end = len(records)
    for level in reversed(range(LEVELS)):
      if self._counts[level]:
        begin = bisect.bisect_left(records, (self._lows[level], ), 0, end)
        self._append(level, records[begin:end])
        end = begin
    self._append(0, records[:end])
    for level, capacity in enumerate(CAPACITIES):
      if self._counts[level] > capacity:
        self._move_later_half_on(level, capacity // 2)

  def _append(self, level, records):
    if not records:
      return
    first = records[0][0]
    if not self._counts[level] or first < self._lows[level]:
      self._lows[level] = first
    self._counts[level] += len(records)
    bag = self._bags[level]
    for run in encode_runs(records):
      bag.add(run)

  def _move_later_half_on(self, level, wanted):
    records = []
    for run in self._bags[level].read():
      records += decode_run(run)
    self._order.sort(records)
    cut = cut_at_time(records, wanted)
    self._clear(level)
    self._append(level, records[:cut])
    self._append(level + 1, records[cut:])

  def _clear(self, level):
    self._bags[level].clear()
    self._counts[level] = 0

  def take(self, bound: int) -> list[Record]:
    """Removes all records before `bound`, and some that follow, in order."""
    taken: list[Record] = []
    for level in range(LEVELS):
      if self._counts[level] and (not taken or self._lows[level] < bound):
        taken += self._take_level(level, bound)
        if any(self._counts[:level + 1]):
          break
    return taken

  def _take_level(self, level, bound):
    runs = sorted((first_time(run), run)
                  for run in self._bags[level].read())
    # The levels below are empty, and are filled by half.
    halves = [AHEAD] + [capacity // 2 for capacity in CAPACITIES[:level]]
    records: list[Record] = []
    used = 0
    for first, run in runs:
      if first >= bound and len(records) >= sum(halves):
        self._order.sort(records)
        # Runs overlap: only what is before the next one is complete.
        if number_before(records, first) >= (
            number_before(records, bound) + sum(halves)):
          break
      records += decode_run(run)
      used += 1
    self._order.sort(records)
    rest = runs[used:]
    if not rest:
      _check_found(
          len(records),
          self._counts[level],
          'a bag',
          'What is missing is lost to this job: read it again.')
    begin = 0
    pieces = []
    wanted = number_before(records, bound)
    for half in halves:
      wanted += half
      cut = max(begin, cut_at_time(records, wanted))
      pieces.append(records[begin:cut])
      begin = cut
    self._counts[level] -= begin
    self._bags[level].clear()
    if self._counts[level]:
      kept = records[begin:]
      self._lows[level] = min(some[0][0] for some in (kept, rest) if some)
      for run in encode_runs(kept):
        self._bags[level].add(run)
      for _, run in rest:
        self._bags[level].add(run)
    for lower, piece in enumerate(pieces[1:]):
      self._append(lower, piece)
    return pieces[0]

  def clear(self) -> None:
    for level in range(LEVELS):
      if self._counts[level]:
        self._clear(level)


class ListRuns:
  """A state that is a list in the order of time: OrderedListState.

  The records of one event time that are added together are one entry, a run.
  Reading is by ranges of time, so a release begins with a range that should
  have enough records if they are spread evenly, and widens it fourfold.

  Args:
    entries: the state, with `add`, `read_range` and `clear_range`.
    order: of the records.
    marks: as `marks` was before, or an empty list.
  """
  _LEAST_STEP = 1000

  def __init__(
      self,
      entries,
      order: RecordOrder,
      marks: Sequence[int]):
    self._entries = entries
    self._order = order
    self.count, self.low, self._high = marks or (0, 0, 0)

  @property
  def marks(self) -> list[int]:
    return [self.count, self.low, self._high] if self.count else []

  def add(self, records: list[Record]) -> None:
    """Adds records, in order."""
    for time, group in itertools.groupby(records, event_time):
      self._entries.add(
          (Timestamp(micros=time), encode_run(list(group))))
    first, last = records[0][0], records[-1][0]
    self.low = min(first, self.low) if self.count else first
    self._high = max(last, self._high) if self.count else last
    self.count += len(records)

  def take(self, bound: int) -> list[Record]:
    """Removes all records before `bound`, and some that follow, in order."""
    records: list[Record] = []
    begin = self.low
    step = max(
        self._LEAST_STEP, (self._high - self.low) // self.count * AHEAD)
    end = begin
    while end <= self._high:
      end = min(max(bound, begin + step), self._high + 1)
      for _, run in self._entries.read_range(Timestamp(micros=begin),
                                             Timestamp(micros=end)):
        records += decode_run(run)
      if len(records) - number_before(records, bound) >= AHEAD:
        break
      begin = end
      step *= 4
    if end > self._high:
      _check_found(
          len(records),
          self.count,
          'OrderedListState',
          'Use bags: TimestampBufferDoFnBag, or OrderedProcess without '
          'ordered_list_state.')
    self._order.sort(records)
    cut = cut_at_time(records, number_before(records, bound) + AHEAD)
    limit = records[cut][0] if cut < len(records) else end
    self._entries.clear_range(
        Timestamp(micros=self.low), Timestamp(micros=limit))
    self.count -= cut
    self.low = limit
    return records[:cut]

  def clear(self) -> None:
    if self.count:
      self._entries.clear_range(
          Timestamp(micros=self.low), Timestamp(micros=self._high + 1))
      self.count = 0
