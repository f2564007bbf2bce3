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

"""The thread behind a ``BackgroundReader`` whose client is one for asyncio.

Purpose: as ``_unbounded_fetcher``, for methods that are to be awaited.
Guarantees: those of there, and:
  * The loop runs from ``open`` to the end of ``shut``, also while the buffer is
    full or after a failure: tasks of the client's go on, and it can be told to
    acknowledge.
  * To stop, the running ``open`` or ``fetch`` is cancelled; ``shut`` is not.
Threads: as there. Other threads touch the loop's events only by calls into it.
Lock: none.
"""

import asyncio
import inspect
from typing import Any
from typing import Optional

from apache_beam.io._unbounded_fetcher import LOOK_SECONDS
from apache_beam.io._unbounded_fetcher import Failure
from apache_beam.io._unbounded_fetcher import Fetcher


class AsyncFetcher(Fetcher):
  """A background thread that runs an event loop, and its buffer."""
  def __init__(self, reader, failure: Failure, capacity: int) -> None:
    super().__init__(reader, failure, capacity)
    self._loop: Optional[asyncio.AbstractEventLoop] = None
    self._loop_room: Optional[asyncio.Event] = None
    self._loop_end: Optional[asyncio.Event] = None

  def _wake(self) -> None:
    # Orders: before there is a loop, the thread has yet to look at what the
    # caller of this changed.
    if self._loop is not None:
      try:
        self._loop.call_soon_threadsafe(self._woken)
      except RuntimeError:
        pass  # The loop is closed: the thread ends.

  def _woken(self) -> None:
    self._loop_room.set()
    if self._ending.is_set():
      self._loop_end.set()

  def _run(self) -> None:
    asyncio.run(self._run_loop())

  async def _run_loop(self) -> None:
    self._loop_room = asyncio.Event()
    self._loop_end = asyncio.Event()
    self._loop = asyncio.get_running_loop()
    reading = asyncio.ensure_future(self._read())
    while not (self._ending.is_set() or self._reader() is None):
      await _wait(self._loop_end)
    reading.cancel()
    await asyncio.wait([reading])
    reader = self._reader()
    if reader is None:
      self._warn_dropped()
      return
    if not self._opened:
      return
    self._doing = 'shut'
    try:
      await _awaited(reader.shut())
    except Exception:  # pylint: disable=broad-except
      self._warn_shut()

  async def _read(self) -> None:
    try:
      reader = self._reader()
      if reader is not None:
        await _awaited(reader.open())
        self._opened = True
      del reader
      while not (self._ends() or self._finished):
        await self._fetch()
    except BaseException as exc:  # pylint: disable=broad-except
      self._fail(exc)

  async def _fetch(self) -> None:
    await self._wait_for_room()
    reader = self._reader()
    if reader is None:
      return
    self._begin()
    fetched = reader.fetch()
    del reader
    count = 0
    if hasattr(fetched, '__aiter__'):
      async for item in fetched:
        await self._wait_for_room()
        self._put((item, ))
        count += 1
    else:
      fetched = await fetched
      if isinstance(fetched, (list, tuple)):
        count = len(fetched)
        self._put(fetched)
      else:
        for item in self._checked(fetched):
          await self._wait_for_room()
          self._put((item, ))
          count += 1
    pause = self._ended(count)
    if pause > 0:
      await asyncio.sleep(pause)

  async def _wait_for_room(self) -> None:
    if len(self.items) < self._capacity:
      return
    while True:  # Until there is room, or this is cancelled.
      self._loop_room.clear()
      self._full = True
      if len(self.items) <= self._resume_at:
        break
      if not await _wait(self._loop_room):
        self._doing = 'keep_alive'
        reader = self._reader()
        if reader is not None:
          await _awaited(reader.keep_alive())
        del reader
        self._doing = 'fetch'
    self._full = False


async def _awaited(result: Any) -> None:
  if inspect.isawaitable(result):
    await result


async def _wait(event: asyncio.Event) -> bool:
  """Whether the event was set before the wait became too long."""
  try:
    return await asyncio.wait_for(event.wait(), LOOK_SECONDS)
  except asyncio.TimeoutError:
    return False
