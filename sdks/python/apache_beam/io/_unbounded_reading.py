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

"""One bundle's read of one split.

Purpose: takes over the reader that the last bundle left, or opens one; reads
  chunk by chunk; leaves the reader for the next bundle.
Guarantees: why each step stands where it stands:

  1. A poll that comes before its time waits, or goes back; the source is not
     asked.
  2. ``CHUNK`` is claimed before the reader is touched, so that a rest that was
     split off before is left alone.
  3. Reading and cutting the mark happen outside of the SDK's lock.
  4. The chunk is claimed, then the watermark set, then the chunk is output: a
     residual never has a position or a watermark beyond its mark.
  5. The reader is handed to the cache last, when nothing can fail any more.
Threads: the bundle's. Only ``close`` may come from elsewhere, or late: a
  bundle that failed downstream just never resumes this generator.
"""

import logging
import threading
import time
import weakref
from typing import Any
from typing import Iterator

from apache_beam.internal import cloudpickle_pickler
from apache_beam.io._unbounded_chunk import GLOBAL_WINDOWS
from apache_beam.io._unbounded_chunk import Chunk
from apache_beam.io._unbounded_errors import SourceReadError
from apache_beam.io._unbounded_reader import OpenReader
from apache_beam.io._unbounded_readers import READERS
from apache_beam.io._unbounded_restriction import Restriction
from apache_beam.io._unbounded_restriction import Split
from apache_beam.io._unbounded_tracker import CHUNK
from apache_beam.io._unbounded_tracker import Claim
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import Duration
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

_LOGGER = logging.getLogger(__name__)

# How much before its time a poll may come: runners keep time in milliseconds.
_EARLY_SECONDS = 0.02
# How long a bundle may wait for a poll that came early. Not longer, as other
# splits may wait for this bundle to end.
_WAIT_SECONDS = 0.1


def dump(what: Any) -> bytes:
  """Pickles a source or options, whatever pickler the pipeline is set to.

  Cloudpickle carries classes of the main script, or of a function, by value.
  """
  return cloudpickle_pickler.dumps(what, use_zlib=True)


def load(pickled: bytes) -> Any:
  return cloudpickle_pickler.loads(pickled, use_zlib=True)


class Reading:
  """See the head of the module.

  Args:
    split: what to read.
    tracker: the SDK's view of the restriction's tracker.
    watermark: the SDK's view of the watermark estimator.
    finalizer: where to register for the commit of this bundle.
    options: pickled, for ``create_reader``.
  """
  def __init__(
      self, split: Split, tracker, watermark, finalizer,
      options: bytes) -> None:
    self._split = split
    self._tracker = tracker
    self._watermark_estimator = watermark
    self._finalizer = finalizer
    self._options = options
    restriction: Restriction = tracker.current_restriction()
    self._restriction = restriction
    self._reader = READERS.take(restriction.generation)
    # Where the read stands; what is claimed is made of it.
    self._mark = restriction.mark
    self._watermark = restriction.watermark
    self._finished = False
    self._mark_coder = None

  def records(
      self,
      poll_interval: float,
      max_records: int,
      max_seconds: float,
      foreign_clock: bool) -> Iterator[WindowedValue]:
    """Reads until there is nothing, or a cap is reached; yields the chunks."""
    # Before anything can end the bundle: the runner must hear of a watermark
    # in each.
    self._watermark_estimator.advance_to(self._watermark)
    if self._restriction.is_done:
      # Split off before it began, perhaps: then the reader is the residual's.
      self._keep_reader(0.0)
      return
    try:
      if foreign_clock or not self._goes_back():
        yield from self._read(poll_interval, max_records, max_seconds)
    except BaseException:
      self.close()
      raise

  def close(self) -> None:
    """Closes the reader, if the bundle did not get to hand it on."""
    reader, self._reader = self._reader, None
    if reader is not None:
      reader.close()

  def _goes_back(self) -> bool:
    """Waits if the poll came early, and defers it again if it came far so.

    A runner that ignores the delay that it was asked for would otherwise have
    the source asked over and over.
    """
    if self._reader is None:
      return False
    early = self._reader.poll_due - time.monotonic()
    if early <= _EARLY_SECONDS:
      return False
    time.sleep(min(early, _WAIT_SECONDS))
    early = self._reader.poll_due - time.monotonic()
    if early <= _EARLY_SECONDS:
      return False
    self._tracker.defer_remainder(Duration.of(early))
    self._keep_reader(early)
    return True

  def _read(
      self, poll_interval: float, max_records: int,
      max_seconds: float) -> Iterator[WindowedValue]:
    limit = self._restriction.limit
    cap = max_records if limit is None else min(max_records, limit)
    clock = time.monotonic
    now = clock()
    deadline = now + max_seconds
    count = 0
    mark = None
    more = True
    while more and count < cap and (not count or now < deadline):
      if not self._tracker.try_claim(CHUNK):
        break
      if self._reader is None:
        self._reader = self._open()
      reader = self._reader
      # No future record lies before it, so it serves as the chunk's time where
      # a runner does not fuse; to look for the least would cost each record.
      before = self._watermark
      records, new_mark, more = self._next_chunk(
          min(cap - count, reader.pace.chunk_limit(deadline - now)))
      self._tracker.try_claim(
          Claim(len(records), self._mark, self._watermark, self._finished))
      if self._watermark is not before:
        self._watermark_estimator.advance_to(self._watermark)
      begun, now = now, clock()
      if records:
        mark = new_mark
        count += len(records)
        reader.weigh(records)
        yield WindowedValue(Chunk(records), before, GLOBAL_WINDOWS)
        now = clock()
        reader.pace.observe(len(records), now - begun)

    if mark is not None:
      self._finalizer.register(_Finalize(mark, self._reader, self._split))
    if self._finished or count == limit:
      self._retire_reader()
      return
    # Does nothing if the runner split the rest off in the meantime.
    self._tracker.defer_remainder(None if more else Duration.of(poll_interval))
    idle = 0.0 if more else poll_interval
    if self._reader is not None:
      self._reader.poll_due = now + idle
    self._keep_reader(idle)

  def _open(self) -> OpenReader:
    from apache_beam.io.unbounded_source import UnboundedReader
    READERS.close_split(self._restriction.split_id)
    try:
      source = load(self._split.source)
      self._mark_coder = source.get_checkpoint_mark_coder()
      value_coder = source.default_output_coder()
      mark = (
          None if self._mark is None else self._mark_coder.decode(self._mark))
      reader = source.create_reader(load(self._options), mark)
      if not isinstance(reader, UnboundedReader):
        raise TypeError(
            f'create_reader() returned a {type(reader).__name__} where an '
            'UnboundedReader is needed.')
    except Exception as exc:
      raise self._error('could not be opened', exc) from exc
    return OpenReader(reader, self._mark_coder, value_coder)

  def _next_chunk(self, limit: int):
    """Reads, cuts a mark if there was something, and notes where it stands.

    Returns:
      The records, the mark that covers them (None if there are none), and
      whether there may be more at once.
    """
    opened = self._reader
    self._mark_coder = opened.mark_coder
    try:
      records, more = opened.read(limit)
      mark = None
      mark_bytes = self._mark
      if records:
        mark = opened.reader.get_checkpoint_mark()
        # Encoded here and now, which also freezes what the residual resumes
        # after, should the source go on changing the object.
        mark_bytes = opened.mark_coder.encode(mark)
      watermark = Timestamp.of(opened.reader.get_watermark())
    except Exception as exc:
      raise self._error('could not be read', exc) from exc
    self._mark = mark_bytes
    # Microseconds are compared: timestamps compare twenty times slower.
    at_end = watermark.micros >= MAX_TIMESTAMP.micros
    self._finished = at_end and not more
    # A source that claims the end of time while it still has records would
    # make all of them late.
    if watermark.micros > self._watermark.micros and at_end == self._finished:
      self._watermark = watermark
    return records, mark, more

  def _keep_reader(self, idle: float) -> None:
    """Leaves the reader to the residual."""
    reader, self._reader = self._reader, None
    successor = self._tracker.current_restriction().successor
    if reader is None:
      return
    if successor is None:
      reader.close()
    else:
      READERS.keep(self._restriction.split_id, successor, reader, idle)

  def _retire_reader(self) -> None:
    """Has the reader closed, as soon as its last mark is finalized."""
    reader, self._reader = self._reader, None
    if reader is not None and not reader.retire():
      # Under a generation that nobody resumes: kept to be closed.
      READERS.keep(self._restriction.split_id, reader.retired_as, reader)

  def _error(self, what: str, cause: Exception) -> SourceReadError:
    split = f'split {self._split.index + 1} of {self._split.count}'
    return SourceReadError(
        f'An unbounded source {what}: {split}, {self._position()}: {cause!r}. '
        'Nothing is lost where the runner retries: that resumes after the last '
        'committed mark.')

  def _position(self) -> str:
    if self._mark is None:
      return 'at its very start'
    try:
      mark = self._mark_coder.decode(self._mark)
      if type(mark).__repr__ is not object.__repr__:
        return f'after mark {mark!r}'
    except Exception:  # pylint: disable=broad-except
      pass
    return f'after the mark with bytes {self._mark[:32].hex()}'


class _FailureCount:
  """Failed finalizations that no metric has been told of yet.

  They happen outside of bundles, where metrics go nowhere; the next bundle
  reports them.
  """
  def __init__(self) -> None:
    self._lock = threading.Lock()
    self._count = 0

  def add(self) -> None:
    with self._lock:
      self._count += 1

  def take(self) -> int:
    with self._lock:
      count, self._count = self._count, 0
    return count


FAILED_FINALIZATIONS = _FailureCount()


class _Finalize:
  """The callback of one bundle: finalizes one mark, once."""
  def __init__(self, mark, reader: OpenReader, split: Split) -> None:
    self._mark = [mark]
    # The runner may keep this for long; the reader is not its to keep.
    self._reader = weakref.ref(reader)
    self._split = repr(split)
    self._retired_as = reader.retired_as
    reader.registered()

  def __call__(self) -> None:
    try:
      mark = self._mark.pop()  # Atomic, should two threads come.
    except IndexError:
      return
    try:
      mark.finalize_checkpoint()
    except Exception:  # pylint: disable=broad-except
      FAILED_FINALIZATIONS.add()
      _LOGGER.warning(
          'finalize_checkpoint() of a %s failed for %s. The records up to it '
          'are committed; the source may deliver them again after a restart, '
          'or hold them until a later mark covers them.',
          type(mark).__name__,
          self._split,
          exc_info=True)
    finally:
      reader = self._reader()
      if reader is not None and reader.finalized():
        READERS.take(self._retired_as)
