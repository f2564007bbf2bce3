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

"""The queue of work that is to be resumed later.

Purpose: a bundle may hand back a residual that asks to be left alone for a
while. This queue keeps such residuals, each until its own due time.

Guarantees:
  - What is parked comes out exactly once, never before it is due.
  - What comes out together is in the order of due times, and of parking where
    these are equal.
  - An input of a stage counts as held as long as something of it is parked.

Threads: used by one thread, the one that runs the stages.

There is no clock in here and no lock: the time is an argument. Its unit is
seconds, its origin the caller's choice.
"""

import collections
import heapq
from typing import Optional

# The elements to resume, by stage and by the name of the stage's input.
DueInputs = dict[str, dict[str, list[bytes]]]


class DelayedInputs(object):
  """Encoded elements, each parked for an input of a stage until it is due."""
  def __init__(self) -> None:
    self._heap: list[tuple[float, int, str, str, bytes]] = []
    # Breaks ties in the heap, so that equal due times keep their order.
    self._parked_so_far = 0
    self._held: collections.Counter[tuple[str, str]] = collections.Counter()

  def park(
      self, due: float, stage_name: str, input_name: str,
      element: bytes) -> None:
    """Keeps an encoded element until `due`."""
    self._parked_so_far += 1
    heapq.heappush(
        self._heap, (due, self._parked_so_far, stage_name, input_name, element))
    self._held[stage_name, input_name] += 1

  def take_due(self, now: float) -> DueInputs:
    """Takes out all that is due at `now`."""
    taken: DueInputs = {}
    while self._heap and self._heap[0][0] <= now:
      _, _, stage_name, input_name, element = heapq.heappop(self._heap)
      taken.setdefault(stage_name, {}).setdefault(input_name,
                                                  []).append(element)
      self._held[stage_name, input_name] -= 1
      if not self._held[stage_name, input_name]:
        del self._held[stage_name, input_name]
    return taken

  def next_due(self) -> Optional[float]:
    """The time at which something is due next; None if nothing is parked."""
    return self._heap[0][0] if self._heap else None

  def held_inputs(self) -> set[tuple[str, str]]:
    """The (stage name, input name) pairs of which something is parked."""
    return set(self._held)

  def __len__(self) -> int:
    return len(self._heap)

  def __repr__(self) -> str:
    entries = ', '.join(
        '%s/%s@%g' % (stage_name, input_name, due)
        for due, _, stage_name, input_name, _ in sorted(self._heap))
    return '<DelayedInputs [%s]>' % entries
