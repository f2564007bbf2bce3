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

"""The buffer of one key: what comes goes in, what is safe comes out in order.

No pipeline, no clock and no timers here: the watermark comes in as a bound,
below which nothing more is expected. So all of it can be tested by hand and by
hypothesis.
"""

import dataclasses
from typing import Optional

from apache_beam.runners.worker.statecache import CacheAware
from apache_beam.transforms._ordered_records import Record
from apache_beam.transforms._ordered_records import RecordOrder
from apache_beam.transforms._ordered_runs import AHEAD
from apache_beam.transforms._ordered_runs import cut_at_time
from apache_beam.transforms._ordered_runs import number_before

# How many records a key keeps in its own value before it uses other states.
FRONT = 192

# Microseconds that are later than any Timestamp.
_AFTER_ALL = 1 << 63


@dataclasses.dataclass(frozen=True)
class BufferState:
  """How far the buffer of one key is. Times are microseconds since 1970.

  Attributes:
    safe_watermark: elements before it have been given out, or are late; None
      as long as nothing was given out.
    last_processed: the event time of the last element that was given out.
    min_event_time: that of the first element that waits, or None.
    max_event_time: that of the last that waits, or None.
    batch_pending: whether elements wait, so that a timer is set for them.
  """
  safe_watermark: Optional[int] = None
  last_processed: Optional[int] = None
  min_event_time: Optional[int] = None
  max_event_time: Optional[int] = None

  @property
  def batch_pending(self) -> bool:
    return self.min_event_time is not None


@dataclasses.dataclass
class Saved(CacheAware):
  """What is kept of a buffer between two bundles. Not to be changed.

  Attributes:
    state: how far it is.
    next_number: the number of arrival that the next element gets.
    timers: what `Schedule` remembers.
    marks: what the storage of later records remembers.
    front: the earliest records, in order.
    context: the last records that were given out, in order, or none of them if
      they are many: then they have a state of their own.
    encoded: all of it as bytes, once they are known.
  """
  state: BufferState = BufferState()
  next_number: int = 0
  timers: tuple[int, ...] = ()
  marks: tuple[int, ...] = ()
  front: tuple[Record, ...] = ()
  context: tuple[Record, ...] = ()
  encoded: Optional[bytes] = dataclasses.field(
      default=None, compare=False, repr=False)

  def get_referents_for_cache(self) -> list:
    """What a cache of states measures: not each of the records, by far."""
    return [self.encoded]


class KeyBuffer:
  """The buffer of one key, for as long as a call has its states.

  The earliest records are in `front`, a list; what is later than all of them
  is in `back`, which is only touched when the front overflows or runs out.

  Args:
    saved: as `save` returned it.
    back: see `_ordered_runs`.
    order: of the records.

  Attributes:
    context: what is to be saved as `Saved.context`.
  """
  def __init__(self, saved: Saved, back, order: RecordOrder):
    self._state = saved.state
    self._next_number = saved.next_number
    self._front = list(saved.front)
    self.context = saved.context
    self._back = back
    self._order = order

  @property
  def state(self) -> BufferState:
    return self._state

  @property
  def count(self) -> int:
    """How many elements wait."""
    return len(self._front) + self._back.count

  @property
  def ahead(self) -> list[int]:
    """Event times of the earliest elements that wait, those at hand."""
    return [record[0] for record in self._front]

  def save(self, timers: tuple[int, ...]) -> Saved:
    return Saved(
        self._state,
        self._next_number,
        timers,
        tuple(self._back.marks),
        tuple(self._front),
        tuple(self.context))

  def add(self, arrivals: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Takes in elements in their order of arrival, as (event time, value).

    Returns:
      those that came too late for their place in the order.
    """
    safe = self._state.safe_watermark
    late = []
    if safe is not None:
      late = [arrival for arrival in arrivals if arrival[0] < safe]
      if late:
        arrivals = [arrival for arrival in arrivals if arrival[0] >= safe]
    if not arrivals:
      return late
    number = self._next_number
    records = [(time, i, value)
               for i, (time, value) in enumerate(arrivals, number)]
    self._next_number += len(records)
    self._order.sort(records)
    first, last = records[0][0], records[-1][0]
    if self._back.count:
      cut = number_before(records, self._back.low)
      if cut < len(records):
        self._back.add(records[cut:])
        records = records[:cut]
    if records:
      sort = bool(self._front)
      self._front += records
      if sort:
        self._order.sort(self._front)
      self._limit_front()
    state = self._state
    if state.min_event_time is not None:
      first = min(first, state.min_event_time)
      last = max(last, state.max_event_time)
    self._state = dataclasses.replace(
        state, min_event_time=first, max_event_time=last)
    return late

  def _limit_front(self):
    if len(self._front) > FRONT:
      cut = cut_at_time(self._front, AHEAD)
      self._back.add(self._front[cut:])
      del self._front[cut:]

  def release(self, bound: Optional[int]) -> list[Record]:
    """Gives out what is before `bound`, or everything, in order.

    Args:
      bound: no element that comes later is earlier than this time. None if no
        element comes at all.
    """
    state = self._state
    safe = state.max_event_time if bound is None else bound
    if safe is None or (state.safe_watermark is not None and
                        safe < state.safe_watermark):
      safe = state.safe_watermark
    if bound is None:
      bound = _AFTER_ALL
    cut = number_before(self._front, bound)
    records = self._front[:cut]
    del self._front[:cut]
    while self._back.count and self._back.low < bound:
      records += self._take(bound)
    if records and not self._front and self._back.count:
      # Not if nothing came out: of many elements of one time none are taken in
      # advance, however often it is tried.
      self._take(bound)
    self._limit_front()
    if self._front:
      first = self._front[0][0]
    elif self._back.count:
      first = self._back.low
    else:
      first = None
    self._state = BufferState(
        safe,
        records[-1][0] if records else state.last_processed,
        first,
        None if first is None else state.max_event_time)
    return records

  def _take(self, bound):
    """Takes from the back what is before `bound`, and the next to the front."""
    taken = self._back.take(bound)
    cut = number_before(taken, bound)
    self._front += taken[cut:]
    return taken[:cut]

  def clear(self) -> None:
    """Forgets everything. What waits is lost: release it before."""
    self._back.clear()
    self._front.clear()
    self.context = ()
    self._state = BufferState()
    self._next_number = 0
