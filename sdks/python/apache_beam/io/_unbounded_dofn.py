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

"""The DoFns behind ``ReadFromUnboundedSource``.

Three in a row: one splits the source, a splittable one reads a split chunk by
chunk and pauses (how is in ``_unbounded_reading``), one takes the chunks apart.
"""

import itertools
import logging
from typing import Iterator
from typing import Optional

from apache_beam import coders
from apache_beam.io._unbounded_api import UnboundedSource
from apache_beam.io._unbounded_errors import SourceReadError
from apache_beam.io._unbounded_errors import SourceSplitError
from apache_beam.io._unbounded_guard import Guarded
from apache_beam.io._unbounded_metrics import tell_of_the_process
from apache_beam.io._unbounded_reader import checked_backlog
from apache_beam.io._unbounded_reading import Reading
from apache_beam.io._unbounded_reading import dump
from apache_beam.io._unbounded_reading import load
from apache_beam.io._unbounded_restriction import Restriction
from apache_beam.io._unbounded_restriction import RestrictionCoder
from apache_beam.io._unbounded_restriction import Split
from apache_beam.io._unbounded_tracker import UNKNOWN_SIZE
from apache_beam.io._unbounded_tracker import UnboundedTracker
from apache_beam.io.iobase import WatermarkEstimator
from apache_beam.transforms.core import DoFn
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.core import WatermarkEstimatorProvider
from apache_beam.utils.timestamp import Timestamp

_LOGGER = logging.getLogger(__name__)


def split_source(source, desired: int, options) -> Iterator[Split]:
  """Asks a source for its splits and checks what comes back.

  Raises:
    SourceSplitError: it raised, or gave none, too many, or what cannot be
      pickled or is no source.
  """
  name = f'{type(source).__name__}.split({desired})'
  try:
    # One more than allowed tells "too many", and ends with an endless one.
    parts = list(itertools.islice(source.split(desired, options), desired + 1))
  except Exception as exc:
    raise SourceSplitError(
        f'{name} failed, so nothing was read: {exc!r}') from exc
  if not parts:
    raise SourceSplitError(
        f'{name} returned no source, so nothing would ever be read. Return '
        '[self] if it cannot be divided.')
  if len(parts) > desired:
    raise SourceSplitError(
        f'{name} returned more than {desired} sources. Let one source read '
        'several partitions.')
  for index, part in enumerate(parts):
    if not isinstance(part, UnboundedSource):
      raise SourceSplitError(
          f'{name} returned a {type(part).__name__} at position {index} where '
          'an UnboundedSource is needed.')
    try:
      pickled = dump(part)
    except Exception as exc:
      raise SourceSplitError(
          f'{name} returned a {type(part).__name__} at position {index} that '
          f'cannot be pickled: {exc!r}. Keep connections, threads and open '
          'files in the reader; the source only says how to make one.') from exc
    yield Split(index, len(parts), pickled)


class SplitEachFn(Guarded, DoFn):
  """Turns each source that comes into its splits.

  Args:
    identified: whether the read drops repeats of records.
  """
  def __init__(self, options: bytes, desired: int, identified: bool) -> None:
    self._options = options
    self._desired = desired
    self._identified = identified

  def process(self, source) -> Iterator[Split]:
    if not isinstance(source, UnboundedSource):
      raise SourceSplitError(
          'ReadAllFromUnboundedSource reads a PCollection of UnboundedSource '
          f'objects, but got a {type(source).__name__}.')
    if source.requires_deduping() and not self._identified:
      raise SourceSplitError(
          f'{type(source).__name__}.requires_deduping() is True, but its '
          'records would be read with their repeats: give '
          'ReadAllFromUnboundedSource(requires_deduping=True).')
    yield from split_source(source, self._desired, load(self._options))


class SplitSourceFn(Guarded, DoFn):
  """Turns an impulse into the splits of a source."""
  def __init__(self, source: bytes, options: bytes, desired: int) -> None:
    self._source = source
    self._options = options
    self._desired = desired

  def process(self, unused_impulse) -> Iterator[Split]:
    yield from split_source(
        load(self._source), self._desired, load(self._options))


def _total_backlog(split: Split, options: bytes) -> Optional[int]:
  """What a split that nobody reads yet says is to read; opens no reader."""
  try:
    source = load(split.source)
    backlog = source.get_total_backlog_bytes(load(options))
  except Exception:  # pylint: disable=broad-except
    # No more than a hint to the runner; to read tells what is wrong.
    _LOGGER.warning(
        'get_total_backlog_bytes() failed for %r; its backlog counts as '
        'unknown.',
        split,
        exc_info=True)
    return None
  try:
    return checked_backlog('get_total_backlog_bytes()', backlog)
  except Exception as exc:
    raise SourceReadError(
        f'An unbounded source has no size: {split!r}: {exc!r}') from exc


class _Provider(RestrictionProvider):
  """What the SDK asks about restrictions; part of the reading DoFn."""

  _options: bytes

  def initial_restriction(self, element: Split) -> Restriction:
    return Restriction.initial()

  def create_tracker(self, restriction: Restriction) -> UnboundedTracker:
    return UnboundedTracker(restriction)

  def restriction_size(self, element: Split, restriction: Restriction) -> float:
    """How many bytes there are to read, as far as the source tells.

    A residual was told so by its reader. Only of a split that was never read
    is the source asked.
    """
    if restriction.is_done:
      return 0.0
    size = restriction.size
    if size is None and restriction.is_unread:
      size = _total_backlog(element, self._options)
    return UNKNOWN_SIZE if size is None else float(size)

  def restriction_coder(self) -> coders.Coder:
    return RestrictionCoder()

  def truncate(self, element: Split,
               restriction: Restriction) -> Optional[Restriction]:
    """Drain: reads nothing new.

    What was read was output by the bundle that read it, and is finalized with
    it. Only the primary of a split is finite work that still has to be done.
    """
    return None if restriction.limit is None else restriction


class _Watermark(WatermarkEstimator):
  """The greatest watermark that was set, in microseconds as its state."""
  def __init__(self, micros: int) -> None:
    self._micros = micros

  def observe_timestamp(self, timestamp: Timestamp) -> None:
    pass

  def advance_to(self, timestamp: Timestamp) -> None:
    self._micros = max(self._micros, timestamp.micros)

  def current_watermark(self) -> Timestamp:
    return Timestamp(micros=self._micros)

  def get_estimator_state(self) -> int:
    return self._micros


class WatermarkProvider(WatermarkEstimatorProvider):
  def initial_estimator_state(
      self, element: Split, restriction: Restriction) -> int:
    return restriction.watermark.micros

  def create_watermark_estimator(self, estimator_state: int) -> _Watermark:
    return _Watermark(estimator_state)

  def estimator_state_coder(self) -> coders.Coder:
    return coders.VarIntCoder()


class ReadSplitFn(Guarded, _Provider, DoFn):
  """Reads a split until it has nothing, or a cap is reached; then pauses.

  Args:
    identified: whether records are output with their ids.

  Attributes:
    foreign_clock: whether the runner keeps a time of its own (a TestStream),
      so that the time of a poll cannot be judged by the clock here.
  """
  def __init__(
      self,
      options: bytes,
      poll_interval: float,
      max_records: int,
      max_seconds: float,
      identified: bool = False) -> None:
    self.foreign_clock = False
    self._options = options
    self._poll_interval = poll_interval
    self._max_records = max_records
    self._max_seconds = max_seconds
    self._identified = identified
    self._reading: Optional[Reading] = None

  def __getstate__(self):
    return {**self.__dict__, '_reading': None}

  def start_bundle(self) -> None:
    self._abandon()
    tell_of_the_process()

  def teardown(self) -> None:
    self._abandon()

  def _abandon(self) -> None:
    """Closes the reader of a bundle that failed downstream of this DoFn.

    Such a failure is not raised here: the generator is just never resumed, and
    goes away at some later time.
    """
    reading, self._reading = self._reading, None
    if reading is not None:
      reading.close()

  @DoFn.unbounded_per_element()
  def process(
      self,
      split: Split,
      # First: the SDK passes it by position, the other two by name.
      finalizer=DoFn.BundleFinalizerParam,
      tracker=DoFn.RestrictionParam(),
      watermark=DoFn.WatermarkEstimatorParam(WatermarkProvider())):
    self._reading = Reading(
        split,
        tracker,
        watermark,
        finalizer,
        self._options,
        self._identified)
    return self._reading.records(
        self._poll_interval,
        self._max_records,
        self._max_seconds,
        self.foreign_clock)


class ChunkRecordsFn(Guarded, DoFn):
  """Takes chunks apart."""
  def process(self, chunk):  # Unannotated: the type of a chunk is a ChunkOf.
    return chunk.records
