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

`last` and the probes between stand for a watermark that moves by more than one
element: once `next` has fired and elements are left, `last` is set for the
latest of them, and probes in distances that grow fourfold. They stay until they
fire. A watermark that moves slowly costs a third of a probe an element, one
that jumps over many elements some rounds of a few timers.

`end` is set for when the window expires.
"""

from typing import NamedTuple
from typing import Optional

from apache_beam.transforms._ordered_buffer import BufferState

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
    """The timers that were set last: `next`, its hold, `last`, the probes."""
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

  def plan(self, state: BufferState, probe: bool) -> list[TimerToSet]:
    """The timers to set now, but for those that are set.

    Args:
      state: of the buffer, after the change.
      probe: whether a timer has just fired.
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
    if probe:
      self._plan_probes(fire, self._fire(state.max_event_time), timers)
    return timers

  def _plan_probes(self, fire, last, timers):
    for i, at in enumerate(self._probe_times(fire, last)):
      if i == len(self._probes):
        self._probes.append(fire)
      if self._probes[i] <= fire:
        self._probes[i] = at
        timers.append(TimerToSet(f'probe{i}' if i else 'last', at, at))

  def _probe_times(self, fire, last):
    if last > fire:
      yield last
    distance = _PROBE_GROWTH * (self._interval or 1)
    while fire + distance < last:
      yield fire + distance
      distance *= _PROBE_GROWTH
