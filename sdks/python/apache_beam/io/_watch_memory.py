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


"""What a process remembers of its watches from one bundle to the next.

Purpose: to find out from the packed keys what was seen costs time in proportion
  to all of them, every round. A watch that waits leaves it for its residual.
Guarantees:
  * Memory is never ahead of what is committed. It is kept under the generation
    of the residual that was cut with it, and taken out on look-up. A bundle
    that is retried brings the generation it began with, under which nothing is
    kept any more, and builds from its restriction.
  * Of one watch at most one memory is kept: what failed attempts left behind
    goes when the next is kept, and what nobody asks for expires.
  * ``max_keys`` in all: beyond, those kept longest are forgotten.
Threads, Lock: those of :class:`ReaderCache`, which this is.
"""

import dataclasses
import time
from typing import Any
from typing import Optional

from apache_beam.io._unbounded_readers import ReaderCache
from apache_beam.io._watch_cursor import RecentKeys
from apache_beam.io._watch_restriction import DIGEST_BYTES
from apache_beam.io._watch_restriction import ENTRY_BYTES
from apache_beam.io._watch_restriction import Polling
from apache_beam.io._watch_seen import SeenKeys

# Some 250 bytes each, see the documentation.
MAX_KEYS = 4000000


@dataclasses.dataclass
class Memory:
  """What goes with one restriction.

  Attributes:
    keys: what was seen.
    waiting: what the last poll found beyond its round; None: nothing.
    poll_due: when the next poll is, by the monotonic clock.
  """
  keys: SeenKeys
  waiting: Optional[Any] = None
  poll_due: float = 0.0

  @classmethod
  def of(cls, restriction: Polling) -> 'Memory':
    """Built from the packed keys."""
    if restriction.by_time:
      return cls(RecentKeys(restriction.keys.cut_up(ENTRY_BYTES)))
    return cls(SeenKeys(restriction.keys.cut_up(DIGEST_BYTES)))

  @property
  def weight(self) -> int:
    waiting = 0 if self.waiting is None else len(self.waiting.new)
    return self.keys.weight + waiting + 1

  def close(self) -> None:
    """Part of what a cache asks of what it keeps; memory needs no closing."""


class MemoryCache(ReaderCache):
  """Memories that wait for the next bundle of their watch."""
  def __init__(
      self,
      max_keys: int = MAX_KEYS,
      clock=time.monotonic,
      reap: bool = True) -> None:
    super().__init__(max_readers=10000, clock=clock, reap=reap)
    self._max_keys = max_keys

  def keep(
      self,
      watch_id: bytes,
      generation: bytes,
      memory: Memory,
      idle_seconds: float = 0.0) -> None:
    """See ReaderCache."""
    super().keep(watch_id, generation, memory, idle_seconds)
    with self._lock:
      kept = {
          generation: kept.reader.weight
          for generation,
          kept in self._kept.items()
      }
      excess = sum(kept.values()) - self._max_keys
      for oldest, weight in kept.items():
        if excess <= 0 or oldest == generation:
          break
        excess -= weight
        self._pop(oldest)


MEMORIES = MemoryCache()
