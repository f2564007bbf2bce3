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

"""The thread behind a ``BackgroundReader``, and the buffer that it fills.

Purpose: calls what an author overrides for it (``open``, ``fetch``,
  ``keep_alive``, ``shut``) while the reading thread takes out of the buffer
  what has come.
Guarantees:
  * These run on this thread alone, ``open`` first and ``shut`` last, both once.
    After an ``open`` that raised there is nothing else.
  * ``fetch`` is called only while there are less than ``capacity`` items in the
    buffer, and after it was full only once it is half empty.
  * A failure, an end and "nothing came" become visible after all that came
    before them has.
  * The thread ends when it is told to, or when its reader is gone.
Threads: the reading thread takes items and reads the attributes; any may call
  ``stop`` and ``end``.
Lock: none is held while the author's methods run. The buffer is a deque, whose
  ``extend`` and ``popleft`` are atomic; the attributes are flags. Two events
  say "look again". Where something could be missed in between, *Orders* says
  why it is not.
"""

import collections
import logging
import threading
import time
import weakref
from typing import Any
from typing import Iterable
from typing import Optional

_LOGGER = logging.getLogger(__name__)

# How long close() waits for the thread. A fetch is to take about a second.
CLOSE_SECONDS = 5.0
# How long a fetch may run for the reader to pass for idle: one that takes
# longer may be cut off from the system.
MAX_IDLE_FETCH_SECONDS = 5.0
# How long take() waits for a fetch whose forerunner brought something. To end a
# bundle and to begin another takes as long.
_EXPECTANT_SECONDS = 0.02
# How often a thread that waits for room has the connection kept alive, and any
# that waits looks whether its reader is still there.
LOOK_SECONDS = 1.0
# A fetch that has nothing takes so long at least: one that does not block would
# keep a processor busy.
_EMPTY_FETCH_SECONDS = 0.05


class Failure:
  """Room for what the thread raised; the reader holds it.

  The thread must not: a traceback holds the reader, and one that was dropped
  would never be seen to be gone.
  """
  def __init__(self) -> None:
    self.raised: Optional[BaseException] = None


class Fetcher:
  """A background thread and its buffer.

  Args:
    reader: whose methods are called.
    failure: where to put what they raise.
    capacity: see the head of the module.

  Attributes:
    items: what was fetched and not taken. To be taken by ``popleft``, and then
      ``taken``.
    finishing: set by the reader's ``fetch``: it is the last one.
  """
  def __init__(self, reader, failure: Failure, capacity: int) -> None:
    self.items: collections.deque = collections.deque()
    self.finishing = False
    self._finished = False
    self._failed = False
    self._opened = False
    # Whether the last fetch brought nothing, and when the newest one began.
    self._empty = False
    self._since = 0.0
    self._capacity = capacity
    self._resume_at = capacity // 2
    # Whether the thread waits until there is room.
    self._full = False
    self._room = threading.Event()
    self._came = threading.Event()
    self._stopping = threading.Event()
    self._ending = threading.Event()
    self._first_stop = threading.Lock()
    # The thread holds the reader only while the author's methods run. That it
    # is gone is looked for: a callback could come at any allocation, in a
    # thread that holds the lock of the very event that it would set.
    self._reader = weakref.ref(reader)
    self._failure = weakref.ref(failure)
    self._of = type(reader).__name__
    self._doing = 'open'
    self._thread = threading.Thread(
        target=self._run, name=f'{self._of}-fetch', daemon=True)

  def start(self) -> None:
    self._thread.start()

  # The reading thread's side.

  @property
  def finished(self) -> bool:
    """Whether there is nothing to come, and all is taken."""
    # Orders: it is set after the last item is put. So it is read first.
    return self._finished and not self.items

  @property
  def idle(self) -> bool:
    """Whether the last fetch brought nothing, and all is taken."""
    # Orders: it is reset before an item is put. So it is read first; what is
    # put thereafter cannot be gone again, as this thread alone takes.
    return (
        self._empty and not self.items and
        time.monotonic() - self._since < MAX_IDLE_FETCH_SECONDS)

  @property
  def expectant(self) -> bool:
    """Whether the fetch that runs is likely to bring something soon."""
    return not (self._empty or self._over())

  def wait_for_item(self) -> bool:
    """Whether there is an item, after a moment if one is expected.

    Raises:
      what the thread raised, if there is no item.
    """
    if not self.items and not self._over():
      if not self._thread.is_alive():
        raise RuntimeError(
            f'The thread of this {self._of} is gone, and left no error: the '
            'process was forked after start(). Open readers in the process '
            'that uses them.')
      # Orders: what comes before this is seen in the next line; what comes
      # after it sets the event.
      self._came.clear()
      if not self.items and self.expectant:
        self._came.wait(_EXPECTANT_SECONDS)
    # Orders: it is set after the last item is put. So it is read first.
    failed = self._failed
    if self.items:
      return True
    if not failed:
      return False
    raised = self._failure().raised
    if isinstance(raised, Exception):
      raise raised
    # For example SystemExit, which is not meant for the thread that reads.
    raise RuntimeError(
        f'{self._doing}() of a {self._of} raised {raised!r}.') from raised

  def taken(self) -> None:
    """Tells the thread that an item was taken."""
    # Orders: the thread sets _full before it looks how many there are. Either
    # this sees it set, or the thread sees that the item is gone.
    if self._full and len(self.items) <= self._resume_at:
      self._full = False
      self._wake()

  # Any thread's side.

  def stop(self) -> bool:
    """Has the thread fetch no more. The caller that gets True is to end it.

    False also in a fork, which leaves the connection to its parent.
    """
    if (not self._thread.is_alive() or
        not self._first_stop.acquire(blocking=False)):
      return False
    self._stopping.set()
    self._came.set()
    return True

  @property
  def interruptible(self) -> bool:
    """Whether the thread may be waiting in the reader's ``fetch``."""
    return self._opened and not self._over()

  def end(self) -> None:
    """Has the thread shut the reader, and waits for it, within bounds."""
    self._ending.set()
    self._wake()
    if threading.current_thread() is self._thread:
      return
    self._thread.join(CLOSE_SECONDS)
    if self._thread.is_alive():
      _LOGGER.warning(
          'close() of a %s gave up after %g s: its thread %r is still in %s(). '
          'It calls shut() and ends when that returns. Have fetch() return '
          'within a second, or interrupt() wake it.',
          self._of,
          CLOSE_SECONDS,
          self._thread.name,
          self._doing)

  def _wake(self) -> None:
    self._room.set()

  def _over(self) -> bool:
    return self._failed or self._finished

  # The thread's side.

  def _run(self) -> None:
    try:
      reader = self._reader()
      if reader is not None:
        reader.open()
        self._opened = True
      del reader
      while not (self._ends() or self._finished):
        self._fetch()
    except BaseException as exc:  # pylint: disable=broad-except
      self._fail(exc)
    # The connection stays, for what is acknowledged, and for interrupt().
    while not (self._ending.is_set() or self._reader() is None):
      self._ending.wait(LOOK_SECONDS)
    reader = self._reader()
    if reader is None:
      self._warn_dropped()
      return
    if not self._opened:
      return
    self._doing = 'shut'
    try:
      reader.shut()
    except Exception:  # pylint: disable=broad-except
      self._warn_shut()

  def _fetch(self) -> None:
    self._wait_for_room()
    reader = self._reader()
    if reader is None or self._stopping.is_set():
      return
    self._begin()
    fetched = reader.fetch()
    del reader
    if isinstance(fetched, (list, tuple)):
      count = len(fetched)
      self._put(fetched)
    else:
      count = 0
      for item in self._checked(fetched):
        self._wait_for_room()
        if self._ends():
          return
        self._put((item, ))
        count += 1
    pause = self._ended(count)
    if pause > 0:
      self._stopping.wait(pause)

  def _wait_for_room(self) -> None:
    if len(self.items) < self._capacity:
      return
    while not self._ends():
      self._room.clear()
      self._full = True
      if len(self.items) <= self._resume_at or self._ending.is_set():
        break
      if not self._room.wait(LOOK_SECONDS):
        self._doing = 'keep_alive'
        reader = self._reader()
        if reader is not None:
          reader.keep_alive()
        del reader
        self._doing = 'fetch'
    self._full = False

  def _ends(self) -> bool:
    return self._stopping.is_set() or self._reader() is None

  def _begin(self) -> None:
    self._doing = 'fetch'
    self._since = time.monotonic()

  def _put(self, items) -> None:
    if items:
      self._empty = False
      self.items.extend(items)
      # Orders: if the reading thread clears it after this, it looks for items
      # after that.
      if not self._came.is_set():
        self._came.set()

  def _ended(self, count: int) -> float:
    """Notes that a fetch returned; returns how long to pause."""
    if self.finishing:
      self._finished = True
    if count:
      return 0.0
    self._empty = True
    self._came.set()
    return self._since + _EMPTY_FETCH_SECONDS - time.monotonic()

  def _checked(self, fetched: Any) -> Iterable[Any]:
    if isinstance(fetched, (str, bytes)) or not hasattr(fetched, '__iter__'):
      raise TypeError(
          f'{self._of}.fetch() returned a {type(fetched).__name__}. It is to '
          'return an iterable of items, an empty one if there are none.')
    return fetched

  def _fail(self, exc: BaseException) -> None:
    if self._stopping.is_set():
      # It was interrupted, most likely, and nobody is there to be told.
      _LOGGER.debug(
          '%s() of a %s raised as it was closed.',
          self._doing,
          self._of,
          exc_info=exc)
    failure = self._failure()
    if failure is not None:
      failure.raised = exc
    self._empty = False
    self._failed = True
    self._came.set()

  def _warn_shut(self) -> None:
    _LOGGER.warning(
        'shut() of a %s failed; what it holds may stay open until the worker '
        'ends.',
        self._of,
        exc_info=True)

  def _warn_dropped(self) -> None:
    if self._opened:
      _LOGGER.warning(
          'A %s was dropped without close(), so its shut() was not called.',
          self._of)
