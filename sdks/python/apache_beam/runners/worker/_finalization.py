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

"""What a worker keeps of a bundle that the runner may still finalize.

Purpose: a runner finalizes a bundle long after it has ended, or never. Until
then only the callbacks that the bundle registered are kept. Its processor is
free for the next bundle.

Guarantees:
  - A callback runs at most once.
  - The number of callbacks kept is bounded, and so is the time that each is
    kept. The oldest go first. What goes is counted and reported.
  - The latest bundle's callbacks are kept, however many they are.
  - Not guaranteed: that a callback runs at all.

Threads: bundles end, and are finalized, on many threads at a time.

Lock: guards the fields. It is never held while a callback runs, nor while
something is logged.
"""

import collections
import logging
import threading
import time
from typing import TYPE_CHECKING
from typing import Callable
from typing import NamedTuple
from typing import Optional

from apache_beam.transforms import core

if TYPE_CHECKING:
  from apache_beam.runners.worker import bundle_processor

_LOGGER = logging.getLogger(__name__)

Callback = Callable[[], None]

# The number of callbacks, of all bundles together, that a worker keeps.
MAX_CALLBACKS = 20000
# How long a callback is kept. It must be longer than a runner's longest pause
# between two commits: on Flink, the interval of its checkpoints.
KEEP_SECS = 3600.0
# The number of bundles that are remembered for having lost their callbacks.
MAX_DROPPED_BUNDLES = 10000


class _Kept(NamedTuple):
  descriptor_id: str
  callbacks: list[Callback]
  expires: float


def detach_callbacks(
    processor: 'bundle_processor.BundleProcessor') -> list[Callback]:
  """Returns what the processor's bundle registered, without running it.

  Goes through the processor's own finalization, since the DoFns' parameters
  are out of reach in compiled operations. In this thread they hand over their
  callbacks meanwhile.
  """
  callbacks: list[Callback] = []
  handover = core.DoFn.BundleFinalizerParam.handover
  handover.take = callbacks.extend
  try:
    processor.finalize_bundle()
  finally:
    del handover.take
  return callbacks


class FinalizationCallbacks(object):
  """The callbacks of bundles that have ended but are not finalized yet."""
  def __init__(
      self,
      max_callbacks: int = MAX_CALLBACKS,
      keep_secs: float = KEEP_SECS,
      max_dropped_bundles: int = MAX_DROPPED_BUNDLES,
      clock: Callable[[], float] = time.monotonic) -> None:
    self._max_callbacks = max_callbacks
    self._keep_secs = keep_secs
    self._max_dropped_bundles = max_dropped_bundles
    self._clock = clock
    self._lock = threading.Lock()
    # By instruction id, the oldest first, which is also the first to expire.
    self._kept: collections.OrderedDict[str, _Kept] = collections.OrderedDict()
    self._num_kept = 0
    # The number of bundles by descriptor whose callbacks are kept or running.
    self._pending: collections.Counter[str] = collections.Counter()
    self._num_dropped = 0
    self._next_report = 1
    self._dropped_ids: collections.OrderedDict[
        str, None] = collections.OrderedDict()
    self._forgot_dropped_ids = False

  def keep(
      self,
      instruction_id: str,
      descriptor_id: str,
      processor: 'bundle_processor.BundleProcessor') -> None:
    """Keeps the callbacks of the bundle that the processor has just ended.

    Called: before the processor is reset, on the thread that ran the bundle.
    """
    callbacks = detach_callbacks(processor)
    now = self._clock()
    with self._lock:
      if instruction_id in self._kept:
        self._drop(instruction_id)
      self._kept[instruction_id] = _Kept(
          descriptor_id, callbacks, now + self._keep_secs)
      self._num_kept += len(callbacks)
      self._pending[descriptor_id] += 1
      report = self._expire(now)
    self._log(report)

  def finalize(self, instruction_id: str) -> bool:
    """Runs the callbacks of a bundle.

    An exception in one is logged. It keeps neither the others from being run
    nor the bundle from being finalized.

    Returns:
      Whether there was something to finalize. A bundle whose callbacks were
      dropped counts, as the runner did nothing wrong.
    """
    with self._lock:
      report = self._expire(self._clock())
      kept = self._take(instruction_id)
      dropped = kept is None and self._is_dropped(instruction_id)
    self._log(report)
    if kept is None:
      return dropped
    try:
      for callback in kept.callbacks:
        try:
          callback()
        except Exception as e:  # pylint: disable=broad-except
          _LOGGER.warning(
              'A finalization callback of bundle %s failed: %r',
              instruction_id,
              e)
    finally:
      with self._lock:
        self._settle(kept.descriptor_id)
    return True

  def has_pending(self, descriptor_id: str) -> bool:
    """Whether callbacks of bundles of this descriptor may still run.

    If so, its DoFns should not be torn down: the callbacks may use them.
    """
    with self._lock:
      report = self._expire(self._clock())
      pending = descriptor_id in self._pending
    self._log(report)
    return pending

  @property
  def num_kept(self) -> int:
    """The number of callbacks that are kept."""
    with self._lock:
      return self._num_kept

  @property
  def num_dropped(self) -> int:
    """The number of callbacks that went without having been run."""
    with self._lock:
      return self._num_dropped

  # The lock is held by the callers of what follows.

  def _take(self, instruction_id: str) -> Optional[_Kept]:
    kept = self._kept.pop(instruction_id, None)
    if kept is not None:
      self._num_kept -= len(kept.callbacks)
    return kept

  def _settle(self, descriptor_id: str) -> None:
    self._pending[descriptor_id] -= 1
    if not self._pending[descriptor_id]:
      del self._pending[descriptor_id]

  def _drop(self, instruction_id: str) -> None:
    kept = self._take(instruction_id)
    assert kept is not None
    self._settle(kept.descriptor_id)
    self._num_dropped += len(kept.callbacks)
    self._dropped_ids[instruction_id] = None
    if len(self._dropped_ids) > self._max_dropped_bundles:
      self._dropped_ids.popitem(last=False)
      self._forgot_dropped_ids = True

  def _is_dropped(self, instruction_id: str) -> bool:
    # Once ids have been forgotten, an unknown one may be one of those. A job
    # should not fail over what is best effort.
    return self._forgot_dropped_ids or instruction_id in self._dropped_ids

  def _expire(self, now: float) -> Optional[int]:
    """Drops what is too old or too much; returns a count to be reported."""
    while self._kept:
      instruction_id, oldest = next(iter(self._kept.items()))
      too_much = (
          self._num_kept > self._max_callbacks and len(self._kept) > 1)
      if oldest.expires > now and not too_much:
        break
      self._drop(instruction_id)
    if self._num_dropped < self._next_report:
      return None
    while self._next_report <= self._num_dropped:
      self._next_report *= 10
    return self._num_dropped

  def _log(self, num_dropped: Optional[int]) -> None:
    if num_dropped is not None:
      _LOGGER.warning(
          'Dropped %d finalization callbacks so far without running them, as '
          'the runner finalized their bundles neither within %g s nor within '
          'the next %d callbacks. What is acknowledged in them may be read '
          'again.',
          num_dropped,
          self._keep_secs,
          self._max_callbacks)
