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

"""An open reader, and the checks of what it returns.

Purpose: drives the source author's reader record by record, chunk by chunk.
Guarantees: the reader stands on the last record of the chunk when the chunk is
  returned, never one further, so a mark cut then covers exactly what was read.
  ``close`` of the reader is called once.
Threads: one bundle at a time reads. ``finalized`` and ``close`` may come from
  another thread.
Lock: guards the count of outstanding marks and the closed flag; never held
  while the reader runs.
"""

import logging
import math
import operator
import sys
import threading
import time
import weakref
from typing import Any
from typing import Optional

from apache_beam import coders
from apache_beam.io._unbounded_chunk import GLOBAL_WINDOWS
from apache_beam.io._unbounded_errors import MarkCoderError
from apache_beam.io._unbounded_errors import MarkDidNotMoveError
from apache_beam.io._unbounded_errors import MarkReusedError
from apache_beam.io._unbounded_errors import ReaderReusedError
from apache_beam.io._unbounded_pace import MAX_CHUNK_SECONDS
from apache_beam.io._unbounded_pace import Pace
from apache_beam.io._unbounded_restriction import new_id
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

_LOGGER = logging.getLogger(__name__)

# The most records read between two looks at the clock.
_MAX_STEP = 16

_MICROS = operator.attrgetter('timestamp_micros')


def checked_backlog(method: str, backlog: Any) -> Optional[int]:
  """A backlog as an author's method returned it, if it can be one."""
  if backlog is None:
    return None
  if isinstance(backlog, bool) or not isinstance(backlog, int):
    raise TypeError(
        f'{method} returned {backlog!r}, where an int or None is needed.')
  if backlog < 0:
    raise ValueError(
        f'{method} returned {backlog!r}; it cannot be below 0. Where the input '
        'shrinks (it was trimmed), return what is left.')
  return backlog


class _OpenCount:
  """How many readers are open in this process, and whom that surprises."""
  def __init__(self) -> None:
    self._lock = threading.Lock()
    self._count = 0
    self._told = 0

  def add(self, change: int) -> None:
    with self._lock:
      self._count += change

  def take_change(self) -> Optional[int]:
    """The count, if it is another one than when it was last asked for."""
    with self._lock:
      if self._count == self._told:
        return None
      self._told = self._count
      return self._count


OPEN_READERS = _OpenCount()


class _Known:
  """Which readers were opened before; holds none of them alive."""
  def __init__(self) -> None:
    # A reader may go away, and `forget` be called, while this thread holds it:
    # the garbage collector comes when it likes.
    self._lock = threading.RLock()
    self._references: dict[int, weakref.ref] = {}

  def add(self, reader) -> bool:
    """Notes a reader; returns False if it was noted before."""
    key = id(reader)

    def forget(reference):
      with self._lock:
        if self._references.get(key) is reference:
          del self._references[key]

    try:
      reference = weakref.ref(reader, forget)
    except TypeError:  # Of a class with __slots__: it cannot be told.
      return True
    with self._lock:
      found = self._references.get(key)
      if found is not None and found() is reader:
        return False
      self._references[key] = reference
      return True


_KNOWN = _Known()


class Pause:
  """In a reader's place while the source wants to be left alone."""

  retired = True

  def __init__(self) -> None:
    self.poll_due = 0.0

  def retire(self) -> bool:
    return True

  def close(self) -> None:
    pass


class OpenReader:
  """A reader between ``create_reader`` and ``close``, with what goes with it.

  What the author's methods return is checked here; the errors do not say yet
  which split it was, and where.

  Args:
    identified: whether records have ids, and are given as (id, record).

  Attributes:
    reader: the author's reader.
    mark_coder: the source's coder for its marks.
    pace: see :class:`Pace`.
    poll_due: when it is to be asked again (monotonic seconds), after it had
      nothing and the runner was asked to wait.
    retired: whether nothing is to be read with it any more.
    retired_as: what the cache keeps it under between :meth:`retire` and the
      close.
  """
  def __init__(
      self,
      reader,
      mark_coder: coders.Coder,
      value_coder: coders.Coder,
      identified: bool = False) -> None:
    if not _KNOWN.add(reader):
      raise ReaderReusedError(
          f'create_reader() returned a {type(reader).__name__} that it had '
          'returned before. It stands where it was left, not behind the mark. '
          'Make a new reader each time; what they share belongs elsewhere.')
    OPEN_READERS.add(1)
    self.reader = reader
    self.mark_coder = mark_coder
    self.pace = Pace()
    self.poll_due = 0.0
    self.retired_as = new_id()
    self._value_coder = value_coder
    self._has_ids = identified
    self._value = self._identified if identified else reader.get_current
    self._mark: Optional[Any] = None
    self._mark_bytes: Optional[bytes] = None
    self._warned_late = False
    self._warned_backlog = False
    self._weight = 0
    self._unweighed = 0
    self._weigh_after = 1
    self._started = False
    self._lock = threading.Lock()
    self._outstanding = 0
    self.retired = False
    self._closed = False

  def read(self, limit: int) -> tuple[list[WindowedValue], bool]:
    """Reads at most ``limit`` records, fewer if they take long.

    Returns:
      The records, and whether the reader may have more at once.
    """
    advance = self.reader.advance
    value = self._value
    timestamp = self.reader.get_current_timestamp
    records: list[WindowedValue] = []
    append = records.append
    if self._started:
      more = advance()
    else:
      self._started = True
      more = self.reader.start()
    if not more:
      return records, False
    append(WindowedValue(value(), timestamp(), GLOBAL_WINDOWS))

    clock = time.monotonic
    deadline = clock() + MAX_CHUNK_SECONDS
    step = 1
    left = limit - 1
    while left > 0:
      step = min(step, left)
      for _ in range(step):
        if not advance():
          return records, False
        append(WindowedValue(value(), timestamp(), GLOBAL_WINDOWS))
      if clock() >= deadline:
        break
      left -= step
      step = min(2 * step, _MAX_STEP)
    return records, True

  def _identified(self) -> tuple[bytes, Any]:
    """The current record under its id."""
    record_id = self.reader.get_current_record_id()
    if not isinstance(record_id, bytes):
      raise TypeError(
          f'get_current_record_id() returned {record_id!r}, where bytes are '
          'needed: the source says requires_deduping().')
    return record_id, self.reader.get_current()

  def cut_mark(self, count: int) -> tuple[Any, bytes]:
    """Cuts a mark, and encodes it here and now.

    That freezes what is resumed after, should the source go on changing the
    object.

    Args:
      count: how many records were read since the last one.

    Returns:
      The mark and its bytes.
    """
    mark = self.reader.get_checkpoint_mark()
    if mark is self._mark:
      raise MarkReusedError(
          f'get_checkpoint_mark() returned the same {type(mark).__name__} '
          f'object as before, though {count} records were read in between. '
          'Finalizing the first would acknowledge them too early. Return a new '
          'mark each time, and do not change it afterwards.')
    if not callable(getattr(mark, 'finalize_checkpoint', None)):
      raise TypeError(
          f'get_checkpoint_mark() returned {mark!r}, where a CheckpointMark is '
          'needed.')
    encoded = self.mark_coder.encode(mark)
    if self._mark is None:
      self._check_coder(mark, encoded)
    # Only of this reader's own marks can it be said that they have to move: a
    # queue may give a new reader the very records that the last one gave.
    stands = encoded == self._mark_bytes
    self._mark, self._mark_bytes = mark, encoded
    if stands:
      raise MarkDidNotMoveError(
          f'{count} records were read, but the mark encodes as before '
          f'({len(encoded)} bytes). After a restart they would be read again. '
          'Return a mark that covers the last record, and have its coder '
          'encode where that is.')
    return mark, encoded

  def _check_coder(self, mark, encoded: bytes) -> None:
    """Looks at the first mark of each reader whether its coder can be used."""
    coder = type(self.mark_coder).__name__
    if not isinstance(encoded, bytes):
      raise MarkCoderError(f'{coder}.encode() returned no bytes: {encoded!r}.')
    again = self.mark_coder.encode(mark)
    if again != encoded:
      raise MarkCoderError(
          f'{coder} encodes one and the same mark to {encoded[:32].hex()} and '
          f'to {again[:32].hex()}. Encode only what the mark says, sets and '
          'dicts in sorted order.')
    again = self.mark_coder.encode(self.mark_coder.decode(encoded))
    if again != encoded:
      raise MarkCoderError(
          f'{coder} decodes a mark of {encoded[:32].hex()} to one that it '
          f'encodes to {again[:32].hex()}. A resumed reader would start from '
          'something else than what was cut.')

  def late(self, records: list[WindowedValue], watermark: Timestamp) -> int:
    """How many of the records lie before the watermark that was reported."""
    bound = watermark.micros
    if min(map(_MICROS, records)) >= bound:
      return 0
    late = [r for r in records if r.timestamp_micros < bound]
    if not self._warned_late:
      self._warned_late = True
      _LOGGER.warning(
          '%s reported the watermark %s and then gave a record of %s: it is '
          'late, and a window that is closed drops it. get_watermark() must '
          'not pass what is still to come; metric late_records counts on.',
          type(self.reader).__name__,
          watermark,
          late[0].timestamp)
    return len(late)

  def backlog(self) -> Optional[int]:
    """What the reader says is still to read, in bytes; None: unknown."""
    try:
      backlog = self.reader.get_split_backlog_bytes()
    except Exception:  # pylint: disable=broad-except
      if not self._warned_backlog:
        self._warned_backlog = True
        _LOGGER.warning(
            'get_split_backlog_bytes() of a %s failed; its backlog counts as '
            'unknown.',
            type(self.reader).__name__,
            exc_info=True)
      return None
    return checked_backlog('get_split_backlog_bytes()', backlog)

  def poll_delay(self, poll_interval: float) -> float:
    """After how many seconds to ask a reader again that has nothing."""
    delay = self.reader.next_poll_delay()
    if delay is None:
      return poll_interval
    if isinstance(delay, bool) or not isinstance(delay, (int, float)):
      raise TypeError(
          f'next_poll_delay() returned {delay!r}, where a number of seconds or '
          'None is needed.')
    if not 0 <= delay < math.inf:
      raise ValueError(
          f'next_poll_delay() returned {delay!r}, where a number of seconds, 0 '
          'or more, or None is needed.')
    return float(delay)

  def weigh(self, records: list[WindowedValue]) -> int:
    """Tells the pace how large records are, by a sample of one.

    Strings cost nothing to weigh. For others that is left to their coder, which
    may have to encode them; so only now and then.

    Returns:
      The bytes of the sample, or of the last one.
    """
    value = records[-1].value
    if self._has_ids:
      value = value[1]
    if isinstance(value, (bytes, str)):
      self._weight = len(value)
    else:
      self._unweighed += 1
      if self._unweighed < self._weigh_after:
        return self._weight
      self._unweighed = 0
      # The first chunks, while nothing is known, and every tenth thereafter.
      self._weigh_after = min(self._weigh_after + 1, 10)
      try:
        self._weight = self._value_coder.estimate_size(value)
      except Exception:  # pylint: disable=broad-except
        # Whether the coder fits is not for an estimate to say: where the record
        # gets encoded, that fails with a message of its own.
        self._weight = sys.getsizeof(value)
    self.pace.weigh(self._weight)
    return self._weight

  def registered(self) -> None:
    """A mark of this reader was registered for finalization."""
    with self._lock:
      self._outstanding += 1

  def finalized(self) -> bool:
    """The runner asked to finalize one; closes a retired reader at the last.

    Returns whether it did close.
    """
    with self._lock:
      self._outstanding -= 1
      close = self.retired and self._outstanding <= 0
    if close:
      self.close()
    return close

  def retire(self) -> bool:
    """Closes the reader, or leaves that to the last outstanding mark.

    A mark may need the reader's connection to acknowledge. Returns whether the
    reader is closed now; if not, somebody must see to it that it is closed in
    the end, as a runner may never finalize.
    """
    with self._lock:
      self.retired = True
      close = self._outstanding <= 0
    if close:
      self.close()
    return close

  def close(self) -> None:
    """Closes the reader, once; an error is logged, as the work is done."""
    with self._lock:
      if self._closed:
        return
      self._closed = True
    OPEN_READERS.add(-1)
    try:
      self.reader.close()
    except Exception:  # pylint: disable=broad-except
      _LOGGER.warning(
          'close() of a %s failed; what it holds may stay open until the '
          'worker ends.',
          type(self.reader).__name__,
          exc_info=True)
