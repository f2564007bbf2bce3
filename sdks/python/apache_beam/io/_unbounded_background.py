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
  records; a reader must not. Here a thread waits, and fills a bounded buffer
  that the reader takes from.
Guarantees:
  * The buffer is bounded: ``fetch`` is called only while it holds less than
    ``capacity`` items, so it may exceed that by what one call returns.
  * Items are delivered in order, each once. What the thread raised is raised
    by ``advance``, after all that came before.
  * What the thread fetched ahead changes nothing that the reading thread sees,
    so marks and watermarks depend on what was delivered alone.
  * ``close`` ends the thread, and waits for that no longer than 5 s; it warns
    if the thread lasts longer. A reader that is dropped without ``close`` takes
    its thread along, when the fetch that runs returns.
Threads: the reading thread, and a background one: see :class:`BackgroundReader`
  for what runs where. ``close`` may be called by any.
Lock: none; see ``_unbounded_fetcher``.
"""

import inspect
import logging
from typing import Any
from typing import Iterable
from typing import Optional

from apache_beam.io._unbounded_api import UnboundedReader
from apache_beam.io._unbounded_fetcher import Failure
from apache_beam.io._unbounded_fetcher import Fetcher
from apache_beam.io._unbounded_fetcher_async import AsyncFetcher

_LOGGER = logging.getLogger(__name__)

# When to ask again while something is expected.
_EXPECTANT_POLL_SECONDS = 0.1


class BackgroundReader(UnboundedReader):
  """Reads from a client that blocks, by a thread of its own.

  What an author overrides runs on either of two threads. On the background
  thread, all that uses the client: :meth:`open`, :meth:`fetch`,
  :meth:`keep_alive`, :meth:`shut`. On the reading thread, all that tells where
  the reader is: :meth:`delivered`, :meth:`get_current` and its like; they use
  :attr:`current`, the item that was delivered last::

    import time

    from apache_beam.io.unbounded_source import BackgroundReader
    from apache_beam.io.unbounded_source import CheckpointMark
    from apache_beam.utils.timestamp import Timestamp

    class Client:  # Stands for one that talks to a broker.
      log = ['a', 'b', 'c', 'd']

      def poll(self, offset, timeout):
        if offset == len(self.log):
          time.sleep(timeout)
        return list(enumerate(self.log))[offset:offset + 10]

    class Mark(CheckpointMark):
      def __init__(self, offset):
        self.offset = offset

    class Reader(BackgroundReader):
      def __init__(self, mark):
        super().__init__(capacity=100)
        self._fetched = self._given = 0 if mark is None else mark.offset

      def open(self):
        self._client = Client()

      def fetch(self):
        items = self._client.poll(self._fetched, timeout=0.5)
        self._fetched += len(items)
        return items

      def delivered(self, item):
        self._given = item[0] + 1

      def get_current(self):
        return self.current[1]

      def get_current_timestamp(self):
        return Timestamp.now()

      def get_watermark(self):
        return Timestamp.now()

      def get_checkpoint_mark(self):
        return Mark(self._given)  # self._fetched would lose what is buffered.

  The methods of a client for asyncio are awaited: if :meth:`fetch` is ``async
  def`` (it may yield), the thread runs an event loop from :meth:`open` to the
  end of :meth:`shut`, and :meth:`close` cancels the fetch.

  A client that only one thread may use is not for an ``acknowledge`` to call.
  Have that put ids into a ``queue.SimpleQueue``, which :meth:`fetch`,
  :meth:`keep_alive` and :meth:`shut` empty first.

  Args:
    capacity: how many items may be fetched ahead; 1 or more. They take memory,
      and are fetched again after a failure.

  Attributes:
    current: the item that was delivered last; None before the first.

  Raises:
    TypeError, ValueError: for any other ``capacity``.
  """

  # With two underscores, so that no attribute of an author's collides.
  __capacity: Optional[int] = None
  __fetcher: Optional[Fetcher] = None
  __closed = False

  def __init__(self, capacity: int = 1000) -> None:
    if isinstance(capacity, bool) or not isinstance(capacity, int):
      raise TypeError(f'capacity={capacity!r} must be an int.')
    if capacity < 1:
      raise ValueError(f'capacity={capacity!r} must be 1 or more.')
    self.current: Any = None
    self.__capacity = capacity

  def open(self) -> None:
    """Connects, and seeks. The default does nothing.

    Called: once, on the background thread, before the first :meth:`fetch`. It
      may block.
    Must: clean up after itself if it raises; :meth:`shut` is not called then.

    Raises:
      whatever it likes; it counts as :meth:`fetch` does.
    """

  def fetch(self) -> Iterable[Any]:
    """The next items; none if nothing came for a while.

    Called: on the background thread, again and again while there is room.
    Must: return within about a second, or be woken by :meth:`interrupt`; if
      nothing comes, wait rather than return at once. Not change what the
      reading thread uses, as what is fetched is not delivered yet.
    Not promised: that it is called regularly; see :meth:`keep_alive`. Of a
      generator, the next item is asked for when there is room.

    Raises:
      whatever it likes, ``RetryLater`` too: :meth:`advance` raises it when it
      has delivered what came before. Nothing is fetched any more.
    """
    raise NotImplementedError(type(self))

  def keep_alive(self) -> None:
    """Keeps the connection while nothing is fetched. The default does nothing.

    Called: on the background thread, about once a second while the buffer is
      full, which can last for minutes. The place to answer heartbeats and to
      extend leases, of what is fetched and of what is given and not
      acknowledged.

    Raises:
      whatever it likes; it counts as :meth:`fetch` does.
    """

  def shut(self) -> None:
    """Disconnects. The default does nothing.

    Called: once, on the background thread, after :meth:`close`; also if
      :meth:`fetch` raised. Until then the connection is there, for what is
      acknowledged. The place to close an ``AckLedger``.
    """

  def interrupt(self) -> None:
    """Wakes a fetch that blocks. The default does nothing.

    Called: at most once, by :meth:`close`, on its thread, while fetching goes
      on; before :meth:`shut`. The fetch of a client for asyncio is cancelled
      after it.
    Must: hold for a fetch that is about to block, too. To shut a socket down
      does, or to set an event.
    """

  def delivered(self, item: Any) -> None:
    """Hears of an item that becomes current. The default does nothing.

    Called: on the reading thread, before :meth:`start` or :meth:`advance`
      returns True. The place to note the position, to add to an ``AckLedger``
      and to observe the timestamp.
    """

  def finish(self) -> None:
    """Says that there is nothing to come, for good.

    Called: by the author's :meth:`fetch`. What this call of it returns is
      delivered, then :attr:`finished` is True.
    """
    self.__running().finishing = True

  @property
  def finished(self) -> bool:
    """Whether :meth:`finish` was called, and all is delivered.

    Called: on the reading thread; by ``get_watermark``, which then may return
      ``MAX_TIMESTAMP``.
    """
    fetcher = self.__fetcher
    return fetcher is not None and fetcher.finished

  @property
  def idle(self) -> bool:
    """Whether the last fetch brought nothing, and all is delivered.

    For clients that cannot tell their lag, this is as near to "caught up" as
    they come. False before the first fetch, after a failure, and if the fetch
    that runs takes longer than 5 s.

    Called: on the reading thread.
    Not promised: that the fetch that runs brings nothing. So the slack of an
      ``IdleWatermark`` has to be longer than one takes.
    """
    fetcher = self.__fetcher
    return fetcher is not None and fetcher.idle

  def buffered(self) -> int:
    """How many items are fetched and not delivered."""
    fetcher = self.__fetcher
    return 0 if fetcher is None else len(fetcher.items)

  def start(self) -> bool:
    """Starts the thread. False as a rule: nothing has been fetched yet."""
    name = type(self).__name__
    if self.__capacity is None:
      raise RuntimeError(f'{name}.__init__() did not call super().__init__().')
    if self.__closed:
      raise RuntimeError(f'{name}: start() after close().')
    if self.__fetcher is not None:
      raise RuntimeError(
          f'{name}: start() was called before. It has one thread and one '
          'connection; make another reader.')
    kind = AsyncFetcher if _is_async(self) else Fetcher
    self.__failure = Failure()
    self.__fetcher = kind(self, self.__failure, self.__capacity)
    self.__fetcher.start()
    return self.advance()

  def advance(self) -> bool:
    """Takes the next item out of the buffer, if there is one.

    If there is none, but the last fetch brought some, it waits a moment for
    the one that runs (20 ms): to end the bundle would cost more.
    """
    fetcher = self.__fetcher
    if fetcher is None or not fetcher.items:
      fetcher = self.__running()
      if not fetcher.wait_for_item():
        return False
    item = fetcher.items.popleft()
    fetcher.taken()
    self.current = item
    self.delivered(item)
    return True

  def next_poll_delay(self) -> Optional[float]:
    """Soon, while the fetch that runs is likely to bring something."""
    fetcher = self.__fetcher
    if fetcher is not None and fetcher.expectant:
      return _EXPECTANT_POLL_SECONDS
    return None

  def close(self) -> None:
    """Ends the thread, which calls :meth:`shut`; waits for that, up to 5 s.

    Called: any number of times, by any thread.
    """
    self.__closed = True
    fetcher = self.__fetcher
    if fetcher is None or not fetcher.stop():
      return
    try:
      if fetcher.interruptible:
        self.interrupt()
    except Exception:  # pylint: disable=broad-except
      _LOGGER.warning(
          'interrupt() of a %s failed; close() waits for its fetch().',
          type(self).__name__,
          exc_info=True)
    finally:
      fetcher.end()
      fetcher.items.clear()

  def __running(self) -> Fetcher:
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
  for method in (reader.open, reader.keep_alive, reader.shut):
    if inspect.iscoroutinefunction(method):
      raise TypeError(
          f'{type(reader).__name__}: {method.__name__}() is "async def", but '
          'fetch() is not. Write both so, or neither.')
  return False
