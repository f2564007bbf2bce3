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

"""A reader whose client blocks, as one that never waits.

Purpose: most client libraries wait for the network in the call that asks for
  records; a reader must not. Here a thread waits, and puts what comes into a
  bounded buffer, from which the reader takes it.
Guarantees:
  * ``open``, ``fetch`` and ``shut`` are called by one thread, the background
    one; in this order; ``open`` and ``shut`` once.
  * The buffer is bounded: ``fetch`` is not called while it holds ``capacity``
    items, and again when it is half empty. It may exceed it by what one call
    returns.
  * What the thread raised is raised by ``advance`` once all that came before
    it was given. Nothing is given that the thread has not put whole.
  * ``close`` ends the thread, and waits for that no longer than
    ``CLOSE_SECONDS``; it warns if the thread lasts longer. A reader that is
    dropped without ``close`` takes its thread along, after the ``fetch`` that
    runs.
Threads: the reading thread (``start``, ``advance``, what the author overrides
  of ``UnboundedReader``) and the background one. ``close`` may come from any.
Lock: none is held while the author's methods run. The buffer is a deque, whose
  ``append`` and ``popleft`` are atomic; the two events say that the other thread
  may have to look again. What is said beside them, under *orders*, is why
  nothing is missed.
"""

import asyncio
import collections
import inspect
import logging
import threading
import time
import weakref
from typing import Any
from typing import Iterable
from typing import Optional

from apache_beam.io._unbounded_api import UnboundedReader

_LOGGER = logging.getLogger(__name__)

# How long close() waits for the thread. A fetch is to take about a second.
CLOSE_SECONDS = 5.0
# How long advance() waits for a fetch whose forerunner brought something. To
# end a bundle and begin another takes as long.
_EXPECTANT_SECONDS = 0.02
# When to ask again, in that case.
_EXPECTANT_POLL_SECONDS = 0.1
# How often a thread that waits looks whether its reader is still there.
_LOOK_SECONDS = 1.0
# A fetch that has nothing takes so long at least: one that does not block would
# keep a processor busy.
_EMPTY_FETCH_SECONDS = 0.05


class BackgroundReader(UnboundedReader):
  """Reads from a client that blocks, by a thread of its own.

  What an author overrides runs on either of two threads. On the background
  thread, all that uses the client: :meth:`open`, :meth:`fetch`, :meth:`shut`.
  On the reading thread, all that tells where the reader is:
  :meth:`get_current` and its like, which use :attr:`current`, the item that
  was delivered last::

    import queue

    from apache_beam.io.unbounded_source import BackgroundReader
    from apache_beam.io.unbounded_source import CheckpointMark
    from apache_beam.utils.timestamp import Timestamp

    class Client:  # In its place: a consumer of a broker.
      messages = queue.Queue()

      def poll(self, offset, timeout):
        try:
          return [(offset, self.messages.get(timeout=timeout))]
        except queue.Empty:
          return []

    class Mark(CheckpointMark):
      def __init__(self, offset):
        self.offset = offset

    class Reader(BackgroundReader):
      def __init__(self, mark):
        super().__init__(capacity=100)
        self._next = 0 if mark is None else mark.offset + 1
        self._offset = self._next - 1

      def open(self):
        self._client = Client()

      def fetch(self):
        found = self._client.poll(self._next, timeout=0.5)
        self._next += len(found)
        return found

      def delivered(self, item):
        self._offset = item[0]

      def get_current(self):
        return self.current[1]

      def get_current_timestamp(self):
        return Timestamp.now()

      def get_watermark(self):
        return Timestamp.now()

      def get_checkpoint_mark(self):
        return Mark(self._offset)  # Not self._next: that was only fetched.

  Methods of a client for asyncio are awaited: where :meth:`fetch` is ``async
  def`` (or yields in one), the thread runs an event loop from :meth:`open` to
  :meth:`shut`, and :meth:`close` cancels the fetch.

  Args:
    capacity: how many items may be fetched ahead; 1 or more. They cost memory,
      and are fetched again by a reader that goes on after a failure.

  Attributes:
    current: the item that was delivered last; None before the first.

  Raises:
    TypeError, ValueError: for any other ``capacity``.
  """

  # Names of the class's own, so that an author's cannot collide with them.
  __fetcher: Optional['_Fetcher'] = None
  __closed = False
  __capacity: Optional[int] = None

  def __init__(self, capacity: int = 1000) -> None:
    if isinstance(capacity, bool) or not isinstance(capacity, int):
      raise TypeError(f'capacity={capacity!r} must be an int.')
    if capacity < 1:
      raise ValueError(f'capacity={capacity!r} must be 1 or more.')
    self.current: Any = None
    self.__capacity = capacity

  def open(self) -> None:
    """Connects, and seeks. The default does nothing.

    Called: once, on the background thread, before the first :meth:`fetch`. May
      block.
    """

  def fetch(self) -> Iterable[Any]:
    """The next items; none if nothing came for a while.

    Called: on the background thread, again and again, unless the buffer is
      full.
    Must: return within about a second, so that :meth:`close` need not wait for
      long, or be woken by :meth:`interrupt`. Not touch what the reading thread
      uses (the position that goes into marks): what is fetched is not
      delivered.
    Not promised: that items are taken at once. Of a generator, the next one is
      asked for when there is room.

    Raises:
      whatever it likes; :meth:`advance` raises it when it has delivered what
      came before, and nothing is fetched any more. ``RetryLater`` too.
    """
    raise NotImplementedError(type(self))

  def shut(self) -> None:
    """Disconnects. The default does nothing.

    Called: on the background thread, once, after :meth:`close`; also when
      :meth:`open` or :meth:`fetch` raised. Until then the connection is there
      for what is acknowledged.
    """

  def interrupt(self) -> None:
    """Wakes a fetch that blocks. The default does nothing.

    Called: once, by :meth:`close`, whether or not a fetch is running just then:
      what it does has to hold for the next one, too. To close a socket does.
    """

  def delivered(self, item: Any) -> None:
    """Hears of an item that becomes current. The default does nothing.

    Called: on the reading thread, before :meth:`start` or :meth:`advance`
      returns True. The place to note the position, to add to an ``AckLedger``
      and to observe the timestamp.
    """

  def finish(self) -> None:
    """Ends the fetching: there is nothing to come for good.

    Called: by the author's :meth:`fetch`; what that call returns is delivered.
      See :attr:`finished`.
    """
    self.__running().finishing = True

  @property
  def finished(self) -> bool:
    """Whether :meth:`finish` was called, and all of it is delivered.

    Called: on the reading thread. ``get_watermark`` may then return
    ``MAX_TIMESTAMP``.
    """
    fetcher = self.__fetcher
    # Orders: it is set when all is in the buffer; so it is read first.
    return fetcher is not None and fetcher.finished and not fetcher.items

  @property
  def idle(self) -> bool:
    """Whether the last fetch brought nothing, and all before is delivered.

    Called: on the reading thread, to judge whether the reader has caught up.
    False before the first fetch, and after one that raised. What a running
    fetch will bring is not known: the slack of an ``IdleWatermark`` has to be
    longer than one takes.
    """
    fetcher = self.__fetcher
    # Orders: it is reset before anything is put; so it is read first. What is
    # put later cannot be missed: only this thread takes it out.
    return fetcher is not None and fetcher.empty and not fetcher.items

  def buffered(self) -> int:
    """How many items are fetched and not delivered."""
    fetcher = self.__fetcher
    return 0 if fetcher is None else len(fetcher.items)

  def start(self) -> bool:
    """Starts the thread. Returns False, as a rule: nothing is fetched yet."""
    if self.__capacity is None:
      raise RuntimeError(
          f'{type(self).__name__}.__init__() does not call super().__init__().')
    if self.__closed:
      raise RuntimeError(f'{type(self).__name__} was closed.')
    if self.__fetcher is not None:
      raise RuntimeError(
          f'{type(self).__name__} was started before. It has one thread and '
          'one connection; make another reader.')
    kind = _AsyncFetcher if _is_async(self) else _Fetcher
    self.__fetcher = kind(self, self.__capacity)
    self.__fetcher.start()
    return self.advance()

  def advance(self) -> bool:
    """Takes the next item out of the buffer, if there is one.

    Waits a moment (20 ms) for a fetch that is under way, if the one before
    brought something; the end of a bundle costs more.
    """
    try:
      item = self.__fetcher.items.popleft()
    except (AttributeError, IndexError):
      fetcher = self.__running()
      if not fetcher.wait_for_item():
        return False
      item = fetcher.items.popleft()
    self.__fetcher.taken()
    self.current = item
    self.delivered(item)
    return True

  def next_poll_delay(self) -> Optional[float]:
    """Soon if a fetch is expected to bring something, else the default."""
    fetcher = self.__fetcher
    if fetcher is None or fetcher.empty or fetcher.finished:
      return None
    return _EXPECTANT_POLL_SECONDS

  def close(self) -> None:
    """Ends the thread, which calls :meth:`shut`; waits for it, 5 s at most.

    Called: by any thread, any number of times.
    """
    self.__closed = True
    fetcher = self.__fetcher
    # Not alive in a fork, which leaves the connection to its parent.
    if fetcher is None or not fetcher.is_alive() or not fetcher.stop():
      return
    try:
      self.interrupt()
    except Exception:  # pylint: disable=broad-except
      _LOGGER.warning(
          'interrupt() of a %s failed; close() waits for its fetch().',
          type(self).__name__,
          exc_info=True)
    fetcher.join_or_warn()
    fetcher.items.clear()

  def __running(self) -> '_Fetcher':
    if self.__closed:
      raise RuntimeError(f'{type(self).__name__} was closed.')
    if self.__fetcher is None:
      raise RuntimeError(f'{type(self).__name__} was not started.')
    return self.__fetcher

  def __reduce__(self):
    raise TypeError(
        f'A {type(self).__name__} cannot be pickled or copied: it has a thread '
        'and a connection. Pickle the source, which makes readers.')


def _is_async(reader: BackgroundReader) -> bool:
  fetch = reader.fetch
  if inspect.iscoroutinefunction(fetch) or inspect.isasyncgenfunction(fetch):
    return True
  for method in (reader.open, reader.shut):
    if inspect.iscoroutinefunction(method):
      raise TypeError(
          f'{type(reader).__name__}.{method.__name__}() is "async def", but '
          'fetch() is not. Make both so, or neither.')
  return False


class _Fetcher(threading.Thread):
  """The background thread.

  Attributes:
    items: what was fetched and not taken.
    empty: whether the last fetch brought nothing.
    failure: what ended the fetching.
    finishing: whether the running fetch is the last one.
    finished: whether there is nothing more to come.
  """
  def __init__(self, reader: BackgroundReader, capacity: int) -> None:
    super().__init__(name=f'{type(reader).__name__}-fetch', daemon=True)
    self.items: collections.deque = collections.deque()
    self.empty = False
    self.failure: Optional[BaseException] = None
    self.finishing = False
    self.finished = False
    self._capacity = capacity
    self._resume_at = capacity // 2
    # Whether this thread waits until there is room.
    self._full = False
    self._came = threading.Event()
    self._room = threading.Event()
    self._stopping = threading.Event()
    self._first_stop = threading.Lock()
    # Only while the author's methods run does this thread hold the reader.
    # That it is gone is looked for: a callback could come at any allocation,
    # in a thread that holds the lock of the event that it would set.
    self._reader = weakref.ref(reader)
    self._of = type(reader).__name__
    self._doing = 'open'

  # The reading thread's side.

  def wait_for_item(self) -> bool:
    """Whether there is an item, after a moment if one is to be expected."""
    if not self.items and not self._over():
      if not self.is_alive():
        raise RuntimeError(
            f'The thread of this {self._of} is gone, and no error of it: the '
            'process was forked after start(). Open readers in the process '
            'that uses them.')
      # Orders: what is put before this is seen by the next line; what is put
      # after it sets the event.
      self._came.clear()
      if not self.items and not self._over() and not self.empty:
        self._came.wait(_EXPECTANT_SECONDS)
    # Orders: a failure is set when all is in the buffer; so it is read first.
    failure = self.failure
    if self.items:
      return True
    if failure is None:
      return False
    if isinstance(failure, Exception):
      raise failure
    raise RuntimeError(
        f'{self._doing}() of a {self._of} raised {failure!r}.') from failure

  def taken(self) -> None:
    """Tells the thread that an item was taken out."""
    # Orders: _full is set before the thread looks how many there are. So either
    # this sees it, or the thread sees that the item is gone.
    if self._full and len(self.items) <= self._resume_at:
      self._full = False
      self._wake()

  def stop(self) -> bool:
    """Has the thread end; any thread may call it. Whether this is the first."""
    if not self._first_stop.acquire(blocking=False):
      return False
    self._stopping.set()
    self._came.set()
    self._wake()
    return True

  def join_or_warn(self) -> None:
    if threading.current_thread() is self:
      return
    self.join(CLOSE_SECONDS)
    if self.is_alive():
      _LOGGER.warning(
          'close() of a %s gave up after %g s: its thread %r is still in '
          '%s(). It will call shut() and end when that returns. Have fetch() '
          'return within a second, or interrupt() wake it.',
          self._of,
          CLOSE_SECONDS,
          self.name,
          self._doing)

  def _over(self) -> bool:
    return self.failure is not None or self.finished

  def _wake(self) -> None:
    self._room.set()

  # The background thread's side.

  def run(self) -> None:
    try:
      self._open()
      while not (self._ends() or self.finished):
        self._fetch()
    except BaseException as exc:  # pylint: disable=broad-except
      self._fail(exc)
    # The connection stays, for what is acknowledged.
    while not self._ends():
      self._stopping.wait(_LOOK_SECONDS)
    self._doing = 'shut'
    reader = self._reader()
    if reader is None:
      self._warn_dropped()
      return
    try:
      reader.shut()
    except Exception:  # pylint: disable=broad-except
      self._warn_shut()

  def _open(self) -> None:
    reader = self._reader()
    if reader is not None:
      reader.open()

  def _fetch(self) -> None:
    self._wait_for_room()
    reader = self._reader()
    if reader is None or self._stopping.is_set():
      return
    self._doing = 'fetch'
    begun = time.monotonic()
    fetched = reader.fetch()
    del reader
    if isinstance(fetched, (list, tuple)):
      count = len(fetched)
      self._put_all(fetched)
    else:
      count = 0
      for item in self._checked(fetched):
        if self._stopping.is_set():
          return
        self._wait_for_room()
        self._put_all((item, ))
        count += 1
    pause = self._fetched(count, time.monotonic() - begun)
    if pause > 0:
      self._stopping.wait(pause)

  def _wait_for_room(self) -> None:
    if len(self.items) < self._capacity:
      return
    while not self._ends():
      self._room.clear()
      self._full = True
      if len(self.items) <= self._resume_at or self._stopping.is_set():
        break
      self._room.wait(_LOOK_SECONDS)
    self._full = False

  def _ends(self) -> bool:
    return self._stopping.is_set() or self._reader() is None

  def _put_all(self, items) -> None:
    if items:
      self.empty = False
      self.items.extend(items)
      # Orders: if the reading thread clears it after this, it looks for items
      # after that.
      if not self._came.is_set():
        self._came.set()

  def _fetched(self, count: int, seconds: float) -> float:
    """Notes the end of a fetch; returns how long to pause."""
    if self.finishing:
      self.finished = True
    if count:
      return 0.0
    self.empty = True
    self._came.set()
    return _EMPTY_FETCH_SECONDS - seconds

  def _checked(self, fetched: Any) -> Iterable[Any]:
    if isinstance(fetched, (str, bytes)) or not hasattr(fetched, '__iter__'):
      raise TypeError(
          f'{self._of}.fetch() returned a {type(fetched).__name__}. It is to '
          'return an iterable of items, an empty one if there are none.')
    return fetched

  def _fail(self, exc: BaseException) -> None:
    if self._stopping.is_set():
      # It was interrupted, most likely; nobody is there to be told.
      _LOGGER.debug(
          '%s() of a %s raised as it was closed.',
          self._doing,
          self._of,
          exc_info=exc)
    self.empty = False
    self.failure = exc
    self._came.set()

  def _warn_shut(self) -> None:
    _LOGGER.warning(
        'shut() of a %s failed; what it holds may stay open until the worker '
        'ends.',
        self._of,
        exc_info=True)

  def _warn_dropped(self) -> None:
    _LOGGER.warning(
        'A %s was dropped without close(), so its shut() was not called.',
        self._of)


class _AsyncFetcher(_Fetcher):
  """The background thread, running an event loop.

  Its events belong to the loop; other threads set them by a call into it.
  """
  def __init__(self, reader: BackgroundReader, capacity: int) -> None:
    super().__init__(reader, capacity)
    self._loop: Optional[asyncio.AbstractEventLoop] = None
    self._loop_room: Optional[asyncio.Event] = None
    self._loop_stop: Optional[asyncio.Event] = None

  def _wake(self) -> None:
    loop = self._loop
    # Orders: before there is a loop, the thread has still to look at what the
    # caller has changed.
    if loop is None:
      return
    try:
      loop.call_soon_threadsafe(self._woken)
    except RuntimeError:
      pass  # The loop is closed: the thread ends.

  def _woken(self) -> None:
    self._loop_room.set()
    if self._stopping.is_set():
      self._loop_stop.set()

  def run(self) -> None:
    asyncio.run(self._run())

  async def _run(self) -> None:
    self._loop_room = asyncio.Event()
    self._loop_stop = asyncio.Event()
    self._loop = asyncio.get_running_loop()
    if self._stopping.is_set():
      self._loop_stop.set()
    reading = asyncio.ensure_future(self._read())
    # If the reading ends by itself, the connection stays, as above.
    while not self._ends():
      await _wait(self._loop_stop)
    reading.cancel()
    await asyncio.wait([reading])
    self._doing = 'shut'
    reader = self._reader()
    if reader is None:
      self._warn_dropped()
      return
    try:
      await _awaited(reader.shut())
    except Exception:  # pylint: disable=broad-except
      self._warn_shut()

  async def _read(self) -> None:
    try:
      reader = self._reader()
      if reader is not None:
        await _awaited(reader.open())
      del reader
      while not (self._ends() or self.finished):
        await self._fetch()
    except BaseException as exc:  # pylint: disable=broad-except
      self._fail(exc)

  async def _fetch(self) -> None:
    await self._wait_for_room()
    reader = self._reader()
    if reader is None or self._stopping.is_set():
      return
    self._doing = 'fetch'
    begun = time.monotonic()
    fetched = reader.fetch()
    del reader
    count = 0
    if hasattr(fetched, '__aiter__'):
      async for item in fetched:
        await self._wait_for_room()
        self._put_all((item, ))
        count += 1
    else:
      items = list(self._checked(await fetched))
      count = len(items)
      self._put_all(items)
    pause = self._fetched(count, time.monotonic() - begun)
    if pause > 0:
      await asyncio.sleep(pause)

  async def _wait_for_room(self) -> None:
    if len(self.items) < self._capacity:
      return
    while not self._ends():
      self._loop_room.clear()
      self._full = True
      if len(self.items) <= self._resume_at:
        break
      await _wait(self._loop_room)
    self._full = False


async def _awaited(result: Any) -> None:
  if inspect.isawaitable(result):
    await result


async def _wait(event: asyncio.Event) -> None:
  try:
    await asyncio.wait_for(event.wait(), _LOOK_SECONDS)
  except asyncio.TimeoutError:
    pass
