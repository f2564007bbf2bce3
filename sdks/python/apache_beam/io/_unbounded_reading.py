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
import time
import weakref
from typing import Any
from typing import Iterator
from typing import Optional
from typing import Union

from apache_beam.internal import cloudpickle_pickler
from apache_beam.io._unbounded_api import UnboundedReader
from apache_beam.io._unbounded_chunk import GLOBAL_WINDOWS
from apache_beam.io._unbounded_chunk import Chunk
from apache_beam.io._unbounded_errors import RetryLater
from apache_beam.io._unbounded_errors import SourceReadError
from apache_beam.io._unbounded_metrics import FAILED_FINALIZATIONS
from apache_beam.io._unbounded_metrics import FINALIZED
from apache_beam.io._unbounded_metrics import BundleMetrics
from apache_beam.io._unbounded_reader import OpenReader
from apache_beam.io._unbounded_reader import Pause
from apache_beam.io._unbounded_readers import READERS
from apache_beam.io._unbounded_restriction import Restriction
from apache_beam.io._unbounded_restriction import Split
from apache_beam.io._unbounded_tracker import CHUNK
from apache_beam.io._unbounded_tracker import Backlog
from apache_beam.io._unbounded_tracker import Claim
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
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
    identified: whether records are given with their ids.
  """
  def __init__(
      self,
      split: Split,
      tracker,
      watermark,
      finalizer,
      options: bytes,
      identified: bool = False) -> None:
    self._split = split
    self._tracker = tracker
    self._watermark_estimator = watermark
    self._finalizer = finalizer
    self._options = options
    self._identified = identified
    restriction: Restriction = tracker.current_restriction()
    self._restriction = restriction
    self._reader: Optional[Union[OpenReader, Pause]] = READERS.take(
        restriction.generation)
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
    metrics = BundleMetrics()
    count = 0
    mark = None
    retry = None
    more = True
    split_off = False
    while more and count < cap and (not count or now < deadline):
      if not self._tracker.try_claim(CHUNK):
        split_off = True
        break
      # No future record lies before it, so it serves as the chunk's time where
      # a runner does not fuse; to look for the least would cost each record.
      before = self._watermark
      try:
        reader = self._opened(metrics)
        records, new_mark, more = self._next_chunk(
            min(cap - count, reader.pace.chunk_limit(deadline - now)))
      except RetryLater as exc:
        # What was read since the last mark comes again.
        retry = exc
        records, more = [], False
      self._tracker.try_claim(
          Claim(len(records), self._mark, self._watermark, self._finished))
      if self._watermark is not before:
        self._watermark_estimator.advance_to(self._watermark)
      begun, now = now, clock()
      if records:
        mark = new_mark
        count += len(records)
        metrics.record_bytes += reader.weigh(records) * len(records)
        if before.micros > MIN_TIMESTAMP.micros:
          metrics.late += reader.late(records, before)
        yield WindowedValue(Chunk(records), before, GLOBAL_WINDOWS)
        now = clock()
        reader.pace.observe(len(records), now - begun)

    if mark is not None:
      self._finalizer.register(_Finalize(mark, self._reader, self._split))
    metrics.records = count
    if self._finished or count == limit:
      self._retire_reader()
    elif split_off:
      self._keep_reader(0.0)
    else:
      self._pause(metrics, more, retry, poll_interval)
    metrics.tell(self._watermark)

  def _pause(
      self,
      metrics: BundleMetrics,
      more: bool,
      retry: Optional[RetryLater],
      poll_interval: float) -> None:
    """Leaves the rest to a bundle after this one."""
    delay = 0.0
    if retry is not None:
      delay = retry.seconds
      metrics.put_off = True
      _LOGGER.warning(
          'An unbounded source asks to be read later, %s: %s. Reading resumes '
          'after the last mark.', self._where(), retry)
      if self._reader is None:
        self._reader = Pause()
      self._reader.retire()
    else:
      try:
        metrics.backlog = self._reader.backlog()
        if not more:
          delay = self._reader.poll_delay(poll_interval)
      except Exception as exc:
        raise self._error('could not be read', exc) from exc
      if metrics.backlog is not None:
        self._tracker.try_claim(Backlog(float(metrics.backlog)))
    metrics.empty = not more and retry is None
    metrics.paused = True
    self._reader.poll_due = time.monotonic() + delay
    # Does nothing if the runner split the rest off in the meantime.
    self._tracker.defer_remainder(Duration.of(delay) if delay else None)
    self._keep_reader(delay)

  def _opened(self, metrics: BundleMetrics) -> OpenReader:
    """The reader to go on with."""
    if self._reader is not None and self._reader.retired:
      self.close()
    if self._reader is None:
      self._reader = self._open()
      metrics.opened += 1
    return self._reader

  def _open(self) -> OpenReader:
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
      return OpenReader(
          reader, self._mark_coder, value_coder, self._identified)
    except RetryLater:
      raise
    except Exception as exc:
      raise self._error('could not be opened', exc) from exc

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
        mark, mark_bytes = opened.cut_mark(len(records))
      watermark = Timestamp.of(opened.reader.get_watermark())
    except RetryLater:
      raise
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
    told = f'An unbounded source {what}: {self._where()}: '
    if isinstance(cause, SourceReadError):
      return type(cause)(f'{told}{cause}')
    return SourceReadError(
        f'{told}{cause!r}. Nothing is lost where the runner retries: that '
        'resumes after the last committed mark.')

  def _where(self) -> str:
    split = f'split {self._split.index + 1} of {self._split.count}'
    return f'{split}, {self._position()}'

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
      FINALIZED.add()
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
