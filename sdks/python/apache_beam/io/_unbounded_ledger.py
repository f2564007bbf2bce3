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

"""Which records a reader gave that the system does not know to be done.

Purpose: message queues keep a record until it is acknowledged, by its id. To
  be acknowledged it has to be committed by the runner, and that is told mark by
  mark: late, twice, out of order, by another thread, or never.
Guarantees:
  * A receipt covers what had been added when it was cut, and nothing that was
    added since.
  * It also covers what earlier receipts cover. One that is never finalized
    costs nothing but the time until a later one is.
  * An id is given to ``acknowledge`` at most once, unless that raised; never
    before a receipt that covers it is finalized; in the order of the adding.
  * An id is released as soon as it is acknowledged. A ledger whose receipts
    are never finalized keeps every id: see :class:`AckLedger`.
Threads: any, at the same time. ``add`` and ``cut`` are usually called by the
  thread that reads, ``finalize`` by one of the runner's, ``close`` by any.
Lock: ``_lock`` guards the ids and their count, and is never held over I/O.
  ``_turn`` is held over ``acknowledge``, so that two finalizations cannot send
  one id twice; ``add`` and ``cut`` do not need it. ``_turn`` is taken first.

Knows nothing of Beam.
"""

import collections
import inspect
import itertools
import threading
from typing import Any
from typing import Callable
from typing import Optional


class AckLedger:
  """The ids of the records that were read and not acknowledged yet, in order.

  A reader adds the id of each record that it gives, and puts a receipt into
  each mark; the mark finalizes the receipt::

    from apache_beam.io.unbounded_source import AckLedger

    sent = []
    ledger = AckLedger(sent.append)

    ledger.add('a')
    ledger.add('b')
    first = ledger.cut()
    ledger.add('c')
    second = ledger.cut()
    ledger.add('d')

    second.finalize()  # The first never was: its ids come along.
    first.finalize()  # Nothing is left of it.
    assert sent == [['a', 'b', 'c']]
    assert ledger.pending() == ['d']

  A runner may never finalize. Then a ledger grows by an id for each record, as
  the system's own list of what is in flight does. A reader that wants a bound
  has no record (``advance`` returns False) while ``len(ledger)`` is at it.

  Args:
    acknowledge: tells the system that records are done, given a list of their
      ids. Called by the thread that finalizes, by one at a time, without any
      lock that :meth:`add` or :meth:`cut` waits for; so it may take its time.
      If it raises, none of the ids counts as acknowledged; the next
      finalization tries them again, so it has to bear ids that it has sent
      before. It must not finalize a receipt of the same ledger.

  Raises:
    TypeError: if ``acknowledge`` cannot be called, or is a coroutine function.
  """
  def __init__(self, acknowledge: Callable[[list], Any]) -> None:
    if not callable(acknowledge):
      raise TypeError(
          f'acknowledge={acknowledge!r} cannot be called. It is to take a list '
          'of ids.')
    if inspect.iscoroutinefunction(acknowledge):
      raise TypeError(
          f'acknowledge={acknowledge!r} is a coroutine function, which nobody '
          f'would await. {_USE_THE_LOOP}')
    self._acknowledge = acknowledge
    self._lock = threading.Lock()
    # Can be taken again by its owner, who is then told off.
    self._turn = threading.RLock()
    self._acknowledging = False
    self._ids: collections.deque = collections.deque()
    # How many were acknowledged. An id's number is this and its place in _ids.
    self._done = 0
    self._closed = False

  def add(self, ack_id: Any) -> None:
    """Notes that the record with this id was given.

    Called: when the record becomes current.
    """
    with self._lock:
      self._ids.append(ack_id)

  def cut(self) -> 'Receipt':
    """A receipt for all that was added so far; costs the same for any number.
    """
    with self._lock:
      return Receipt(self, self._done + len(self._ids))

  def pending(self) -> list:
    """The ids that are not acknowledged, in the order of the adding.

    To be persisted in a mark, if a resumed reader needs to know them. Takes
    time with their number.
    """
    with self._lock:
      return list(self._ids)

  def close(self) -> None:
    """Acknowledges nothing any more; to be called before the connection closes.

    Waits for an ``acknowledge`` that is running. Ids that are pending stay so:
    the system will deliver their records again.
    """
    with self._turn:
      self._closed = True

  def __len__(self) -> int:
    """How many ids are not acknowledged."""
    return len(self._ids)

  def __bool__(self) -> bool:
    """True, also when it is empty: a ledger is not a list."""
    return True

  def __repr__(self) -> str:
    closed = ', closed' if self._closed else ''
    return f'<AckLedger: {len(self)} pending, {self._done} done{closed}>'

  def __reduce__(self):
    raise TypeError(
        'An AckLedger cannot be pickled or copied: it acknowledges by a '
        'connection of this process. Keep it in the reader; a mark holds a '
        'receipt, which can be pickled.')

  def _finalize(self, upto: int) -> None:
    with self._turn:
      if self._acknowledging:
        raise RuntimeError(
            'acknowledge() finalized a receipt of the ledger that called it.')
      with self._lock:
        count = 0 if self._closed else upto - self._done
        ids = list(itertools.islice(self._ids, max(count, 0)))
      if not ids:
        return
      self._acknowledging = True
      try:
        answer = self._acknowledge(ids)
      finally:
        self._acknowledging = False
      if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
          answer.close()
        raise TypeError(
            'acknowledge() returned an awaitable, which nobody awaits; nothing '
            f'was acknowledged. {_USE_THE_LOOP}')
      with self._lock:
        for _ in range(count):
          self._ids.popleft()
        self._done += count


_USE_THE_LOOP = (
    'Have it run in the loop of the client: asyncio.run_coroutine_threadsafe('
    '…, loop).result(timeout).')


class Receipt:
  """What one mark acknowledges: all that was added before it was cut.

  ``Receipt()`` acknowledges nothing. So does one that went through pickle or
  copy: it has no connection any more.
  """

  __slots__ = ('_ledger', '_upto')

  def __init__(
      self, ledger: Optional[AckLedger] = None, upto: int = 0) -> None:
    self._ledger = ledger
    self._upto = upto

  def finalize(self) -> None:
    """Acknowledges what it covers, except for what is acknowledged already.

    Called: by any thread, any number of times, before or after other receipts.
    Does nothing once the ledger is closed.

    Raises:
      whatever ``acknowledge`` raises; then its ids are still pending.
    """
    if self._ledger is not None:
      self._ledger._finalize(self._upto)

  def __repr__(self) -> str:
    if self._ledger is None:
      return 'Receipt()'
    return f'<Receipt for the first {self._upto} of {self._ledger!r}>'

  def __reduce__(self):
    return Receipt, ()
