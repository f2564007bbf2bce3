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

"""Lets one thread sample the states of many bundles of a processor.

Purpose: a state sampler started a thread with each bundle and waited for it at
  the end, which sleeps for some milliseconds between two samples. For short
  bundles that cost more than anything else the worker does.
Guarantees: after a bundle its thread goes on, for a while; the next bundle of
  the same processor takes it up, and is charged nothing of the time between.
  The thread ends when no bundle begins soon, or at once when the processor is
  shut down. A sampler never has two threads.
Threads: any, but one bundle of a sampler at a time.
Lock: guards the two collections; never held while a thread is waited for.
"""

import logging
import threading
import time
from typing import Optional

from apache_beam.runners.worker import statesampler

_LOGGER = logging.getLogger(__name__)

# Bundles that follow one another do so within milliseconds.
IDLE_SECONDS = 0.2
# The longest time between two samples. Samples get rarer the longer a thread
# runs, up to 200 ms by default: too coarse where it outlives its bundle.
PERIOD_MS = 50


class SamplerThreads:
  """The threads of samplers between two bundles.

  Args:
    idle_seconds: after what time without a bundle a thread is ended.
  """
  def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
    self._idle_seconds = idle_seconds
    self._changed = threading.Condition()
    self._parked: dict[statesampler.StateSampler, float] = {}
    self._stopping: Optional[statesampler.StateSampler] = None
    self._thread: Optional[threading.Thread] = None

  def start(self, sampler: statesampler.StateSampler) -> None:
    """Begins a bundle, in place of ``sampler.start()``."""
    with self._changed:
      self._wait_until_stopped(sampler)
      if self._parked.pop(sampler, None) is not None:
        # Operations that enter a state twice leave it on: what was charged
        # to it since the last bundle is none of this one's.
        sampler.reset()
        sampler.started = True
    if not sampler.started:
      sampler.start()
      return
    sampler.tracked_thread = threading.current_thread()
    # What the thread found between the bundles is no state to be stuck in.
    sampler.time_since_transition = 0
    statesampler.set_current_tracker(sampler)

  def stop(self, sampler: statesampler.StateSampler) -> None:
    """Ends a bundle, in place of ``sampler.stop_if_still_running()``."""
    if not hasattr(sampler, 'run'):
      # Without compiled modules there is no thread.
      sampler.stop_if_still_running()
      return
    if not sampler.started or sampler.finished:
      return
    statesampler.set_current_tracker(None)
    with self._changed:
      sampler.started = False
      self._parked[sampler] = time.monotonic()
      if self._thread is None:
        self._thread = threading.Thread(
            target=self._end_idle, name='sampler-threads', daemon=True)
        self._thread.start()

  def reset(self, sampler: statesampler.StateSampler) -> None:
    """Forgets what was sampled, in place of ``sampler.reset()``."""
    with self._changed:
      # To reset one that is being stopped would let its thread run on.
      self._wait_until_stopped(sampler)
      sampler.reset()

  def end(self, sampler: statesampler.StateSampler) -> None:
    """Has the thread ended soon, as no further bundle will come."""
    with self._changed:
      if sampler in self._parked:
        self._parked[sampler] = float('-inf')
        self._changed.notify_all()

  def _wait_until_stopped(self, sampler) -> None:
    while self._stopping is sampler:
      self._changed.wait()

  def _end_idle(self) -> None:
    while True:
      with self._changed:
        if not self._parked:
          # Under the lock, so that who parks the next one starts a thread.
          self._thread = None
          return
        # One by one: all others can be taken up again meanwhile.
        sampler = min(self._parked, key=self._parked.__getitem__)
        due = self._parked[sampler] + self._idle_seconds
        wait = due - time.monotonic()
        if wait > 0:
          self._changed.wait(wait)
          continue
        del self._parked[sampler]
        self._stopping = sampler
      try:
        sampler.stop()
      except Exception:  # pylint: disable=broad-except
        _LOGGER.exception('Ending the thread of a state sampler failed.')
      with self._changed:
        # As before its first bundle.
        sampler.finished = False
        self._stopping = None
        self._changed.notify_all()


SAMPLER_THREADS = SamplerThreads()
