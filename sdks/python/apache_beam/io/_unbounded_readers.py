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

"""Keeps readers open from one bundle of a split to the next.

Purpose: to open a reader (connect, seek, join a group) may cost more than a
  bundle. A reader that paused is kept for the residual that it left behind.
Guarantees:
  * No reader is ever ahead of what is committed. A reader is kept under the
    generation of the residual that was cut where it stands, and taken out on
    look-up. A bundle that is retried brings the generation it began with,
    under which nothing is kept any more; the residual of the failed attempt,
    and so its reader, are never asked for again.
  * Before a bundle opens a reader of its own, and when it leaves one, what
    other generations of the split left is closed: exclusive consumers and
    replication slots admit one.
  * At most ``max_readers`` are kept; those unused for long are closed by a
    thread that lives only while there are any.
Threads: any.
Lock: guards the two dicts; readers are closed outside of it.
"""

import atexit
import logging
import threading
import time
from collections import OrderedDict
from typing import NamedTuple
from typing import Optional

from apache_beam.io._unbounded_reader import OpenReader

_LOGGER = logging.getLogger(__name__)

MAX_READERS = 1000
MIN_IDLE_SECONDS = 60.0


class _Kept(NamedTuple):
  reader: OpenReader
  split_id: bytes
  expires: float


class ReaderCache:
  """Readers that wait for the next bundle of their split.

  Args:
    max_readers: how many to keep; beyond, the longest kept are closed.
    clock: monotonic seconds.
    reap: whether a thread closes what expires; tests call ``reap`` instead.
  """
  def __init__(
      self,
      max_readers: int = MAX_READERS,
      clock=time.monotonic,
      reap: bool = True) -> None:
    self._max_readers = max_readers
    self._clock = clock
    self._reap = reap
    self._lock = threading.Lock()
    self._wake = threading.Condition(self._lock)
    self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
    self._generations: dict[bytes, set[bytes]] = {}
    self._thread: Optional[threading.Thread] = None

  def take(self, generation: bytes) -> Optional[OpenReader]:
    """The reader that was kept for this generation, which the caller now owns.

    None if there is none.
    """
    with self._lock:
      return self._pop(generation)

  def close_split(self, split_id: bytes) -> None:
    """Closes what is kept for a split, before another reader of it is opened.
    """
    with self._lock:
      readers = self._pop_split(split_id)
    for reader in readers:
      reader.close()

  def keep(
      self,
      split_id: bytes,
      generation: bytes,
      reader: OpenReader,
      idle_seconds: float = 0.0) -> None:
    """Keeps a reader for a generation; the cache owns it from now on.

    Args:
      idle_seconds: how long it is expected not to be asked for.
    """
    expires = self._clock() + max(MIN_IDLE_SECONDS, 2 * idle_seconds)
    with self._lock:
      # Only an attempt that was given up can have left others behind.
      evicted = self._pop_split(split_id)
      self._kept[generation] = _Kept(reader, split_id, expires)
      self._generations.setdefault(split_id, set()).add(generation)
      while len(self._kept) > self._max_readers:
        evicted.append(self._pop(next(iter(self._kept))))
      self._start_thread()
    for other in evicted:
      other.close()

  def reap(self) -> None:
    """Closes what expired."""
    now = self._clock()
    with self._lock:
      expired = [g for g, kept in self._kept.items() if kept.expires <= now]
      readers = [self._pop(generation) for generation in expired]
    for reader in readers:
      reader.close()

  def close_all(self) -> None:
    """Closes everything that is kept."""
    with self._lock:
      readers = [self._pop(generation) for generation in list(self._kept)]
      self._wake.notify_all()
    for reader in readers:
      reader.close()

  def __len__(self) -> int:
    return len(self._kept)

  def _pop(self, generation: bytes) -> Optional[OpenReader]:
    kept = self._kept.pop(generation, None)
    if kept is None:
      return None
    generations = self._generations[kept.split_id]
    generations.discard(generation)
    if not generations:
      del self._generations[kept.split_id]
    return kept.reader

  def _pop_split(self, split_id: bytes) -> list[OpenReader]:
    return [
        self._pop(generation)
        for generation in list(self._generations.get(split_id, ()))
    ]

  def _start_thread(self) -> None:
    if self._reap and self._thread is None:
      self._thread = threading.Thread(
          target=self._reap_until_empty, name='unbounded-readers', daemon=True)
      self._thread.start()

  def _reap_until_empty(self) -> None:
    while True:
      with self._lock:
        if not self._kept:
          # Under the lock, so that a reader that is kept from now on finds
          # no thread and starts one.
          self._thread = None
          return
        soonest = min(kept.expires for kept in self._kept.values())
        self._wake.wait(max(soonest - self._clock(), 1.0))
      try:
        self.reap()
      except Exception:  # pylint: disable=broad-except
        _LOGGER.exception('Closing idle readers failed; going on.')


READERS = ReaderCache()
atexit.register(READERS.close_all)
