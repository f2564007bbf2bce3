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

"""An open reader, and how much to ask of it at a time.

Purpose: drives the source author's reader record by record, in chunks whose
  size keeps a bundle responsive: the runner can split between two chunks, and
  the time cap of a bundle is looked at between two chunks.
Guarantees: the reader stands on the last record of the chunk when the chunk is
  returned, never one further, so a mark cut then covers exactly what was read.
  ``close`` of the reader is called once.
Threads: one bundle at a time reads. ``finalized`` and ``close`` may come from
  another thread.
Lock: guards the count of outstanding marks and the closed flag; never held
  while the reader runs.
"""

import logging
import sys
import threading
import time
from typing import Optional

from apache_beam import coders
from apache_beam.io._unbounded_chunk import GLOBAL_WINDOWS
from apache_beam.io._unbounded_restriction import new_id
from apache_beam.utils.windowed_value import WindowedValue

_LOGGER = logging.getLogger(__name__)

# So many records, their timestamps and windowed values still fit into the
# youngest generation of the garbage collector; more would be promoted and
# looked at again and again.
MAX_CHUNK_RECORDS = 150
MAX_CHUNK_BYTES = 4 << 20
MAX_CHUNK_SECONDS = 0.1
# While nothing is known of a reader: few enough to cost little if each takes
# long, enough not to be felt if they do not.
_FIRST_CHUNK_RECORDS = 8
# The most records read between two looks at the clock.
_MAX_STEP = 16


class Pace:
  """How long a record takes and how large it is, from what was seen so far.

  Given the time, it knows none by itself.
  """
  def __init__(self) -> None:
    self._seconds: Optional[float] = None
    self._bytes = 0

  def chunk_limit(self, seconds_left: float) -> int:
    """How many records to read next: at least one."""
    if self._seconds is None:
      return _FIRST_CHUNK_RECORDS
    limit = MAX_CHUNK_RECORDS
    if self._bytes * limit > MAX_CHUNK_BYTES:
      limit = MAX_CHUNK_BYTES // self._bytes
    seconds = min(max(seconds_left, 0.0), MAX_CHUNK_SECONDS)
    if self._seconds * limit > seconds:
      limit = int(seconds / self._seconds)
    return max(limit, 1)

  def observe(self, records: int, seconds: float) -> None:
    """Notes what a chunk took, to read it and to process it downstream.

    Slower than thought counts at once, faster by and by.
    """
    each = seconds / records
    if self._seconds is not None and each < self._seconds:
      each = (each + self._seconds) / 2
    self._seconds = each

  def weigh(self, record_bytes: int) -> None:
    """Notes the size of a record; likewise."""
    self._bytes = max(record_bytes, self._bytes // 2)


class OpenReader:
  """A reader between ``create_reader`` and ``close``, with what goes with it.

  Attributes:
    reader: the author's reader.
    mark_coder: the source's coder for its marks.
    pace: see :class:`Pace`.
    poll_due: when it is to be asked again (monotonic seconds), after it had
      nothing and the runner was asked to wait.
    retired_as: what the cache keeps it under between :meth:`retire` and the
      close.
  """
  def __init__(
      self,
      reader,
      mark_coder: coders.Coder,
      value_coder: coders.Coder) -> None:
    self.reader = reader
    self.mark_coder = mark_coder
    self.pace = Pace()
    self.poll_due = 0.0
    self.retired_as = new_id()
    self._value_coder = value_coder
    self._unweighed = 0
    self._weigh_after = 1
    self._started = False
    self._lock = threading.Lock()
    self._outstanding = 0
    self._retired = False
    self._closed = False

  def read(self, limit: int) -> tuple[list[WindowedValue], bool]:
    """Reads at most ``limit`` records, fewer if they take long.

    Returns:
      The records, and whether the reader may have more at once.
    """
    advance = self.reader.advance
    value = self.reader.get_current
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

  def weigh(self, records: list[WindowedValue]) -> None:
    """Tells the pace how large records are, by a sample of one.

    Strings cost nothing to weigh. For others that is left to their coder, which
    may have to encode them; so only now and then.
    """
    value = records[-1].value
    if isinstance(value, (bytes, str)):
      self.pace.weigh(len(value))
      return
    self._unweighed += 1
    if self._unweighed < self._weigh_after:
      return
    self._unweighed = 0
    # The first chunks, while nothing is known, and every tenth thereafter.
    self._weigh_after = min(self._weigh_after + 1, 10)
    try:
      self.pace.weigh(self._value_coder.estimate_size(value))
    except Exception:  # pylint: disable=broad-except
      # Whether the coder fits is not for an estimate to say: where the record
      # gets encoded, that fails with a message of its own.
      self.pace.weigh(sys.getsizeof(value))

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
      close = self._retired and self._outstanding <= 0
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
      self._retired = True
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
    try:
      self.reader.close()
    except Exception:  # pylint: disable=broad-except
      _LOGGER.warning(
          'close() of a %s failed; what it holds may stay open until the '
          'worker ends.',
          type(self.reader).__name__,
          exc_info=True)
