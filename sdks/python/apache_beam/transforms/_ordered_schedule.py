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

"""Which event-time timers a key's buffer needs. Times here are milliseconds.

A timer tells a DoFn that the watermark is at its time or later, not where it
is. Therefore:

`next` is set for when the earliest element is safe. Its watermark hold is the
time of that element, not when it fires, so that what comes out is not late.

Probes stand for a watermark that moves by more than one element. They are set
once `next` has fired and elements are left: at each of the next few elements,
at every eighth that the buffer has at hand, and after those in distances that
grow fourfold, up to the latest. They stay until they fire. So a watermark that
passes a hundred elements is found in two or three rounds of timers, one that
passes a hundred thousand in a few more; and an element has a probe at most.

`end` is set for when the window expires.
"""

import bisect
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple
from typing import Optional

from apache_beam.transforms._ordered_buffer import BufferState

# How many of the next elements have a probe each; after them, one of so many.
_PROBE_STEP = 8
# And then, how much farther each is than the one before.
_PROBE_GROWTH = 4


class TimerToSet(NamedTuple):
  """One timer, by its dynamic tag."""
  tag: str
  fire: int
  hold: int


class Schedule:
  """Plans the timers of one key.

  Args:
    lateness: how much later than the watermark tells an element is safe.
    interval: elements become safe at multiples of it only. 0 for none.
    end: when the window expires, or None if it does not.
    memory: as `memory` was before.
  """
  def __init__(
      self,
      lateness: int,
      interval: int,
      end: Optional[int],
      memory: tuple[int, ...] = ()):
    self._lateness = lateness
    self._interval = interval
    self._end = end
    self._next = memory[:2]
    self._probes = list(memory[2:])

  @property
  def memory(self) -> tuple[int, ...]:
    """`next` and its hold as set last, and when each probe fires, or did."""
    return (*self._next, *self._probes)

  def bound(self, fired: int) -> Optional[int]:
    """Before which microsecond elements are safe, when a timer has fired.

    Returns:
      None if the window expires, so that all are.
    """
    if self._end is not None and fired >= self._end:
      return None
    return (fired - self._lateness) * 1000

  def _fire(self, micros):
    """When an element is safe. Its whole millisecond has to be over."""
    fire = micros // 1000 + 1 + self._lateness
    if self._interval:
      fire = -(-fire // self._interval) * self._interval
    return fire if self._end is None else min(fire, self._end)

  def plan(
      self,
      state: BufferState,
      ahead: Optional[Sequence[int]] = None) -> list[TimerToSet]:
    """The timers to set now, but for those that are set.

    Args:
      state: of the buffer, after the change.
      ahead: if a timer has just fired, event times of the earliest elements
        that wait, in order, as many as are at hand.
    """
    timers = []
    if self._end is not None and not self._next:
      timers.append(TimerToSet('end', self._end, self._end))
    if state.min_event_time is None:
      return timers
    fire = self._fire(state.min_event_time)
    hold = state.min_event_time // 1000
    if (fire, hold) != self._next:
      self._next = (fire, hold)
      # Prism takes the hold of a timer from what was set first for its tag and
      # firing time. So a tag never gets two holds for one firing time.
      exact = fire == hold + 1 + self._lateness
      timers.append(TimerToSet('next' if exact else f'next{hold}', fire, hold))
    if ahead is not None:
      self._plan_probes(fire, state, ahead, timers)
    return timers

  def _plan_probes(self, fire, state, ahead, timers):
    # A probe that is not later than `next` has fired, or tells nothing more.
    pending = sorted(at for at in self._probes if at > fire)
    free = [i for i, at in enumerate(self._probes) if at <= fire]
    missing = (
        *self._missing_near(fire, pending, ahead),
        *self._missing_far(fire, pending, state, ahead))
    for at in missing:
      if free:
        i = free.pop()
        self._probes[i] = at
      else:
        i = len(self._probes)
        self._probes.append(at)
      timers.append(TimerToSet(f'probe{i}', at, at))

  def _missing_near(self, fire, pending, ahead) -> Iterator[int]:
    pending = set(pending)
    previous = fire
    since = 0
    for i, time in enumerate(ahead):
      at = self._fire(time)
      since += 1
      if at == previous:
        continue
      if at in pending:
        since = 0
      elif i <= _PROBE_STEP or since >= _PROBE_STEP:
        yield at
        since = 0
      previous = at

  def _missing_far(self, fire, pending, state, ahead) -> Iterator[int]:
    begin = max(fire, self._fire(ahead[-1])) if ahead else fire
    last = self._fire(state.max_event_time)
    distance = max(begin - fire, self._interval, 1)
    while begin < last:
      end = min(begin + distance, last)
      if bisect.bisect(pending, begin) == bisect.bisect(pending, end):
        yield end
      begin = end
      distance *= _PROBE_GROWTH
