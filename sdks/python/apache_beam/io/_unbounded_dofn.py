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
from typing import Iterator
from typing import Optional

from apache_beam import coders
from apache_beam.io._unbounded_errors import SourceSplitError
from apache_beam.io._unbounded_guard import Guarded
from apache_beam.io._unbounded_reading import FAILED_FINALIZATIONS
from apache_beam.io._unbounded_reading import Reading
from apache_beam.io._unbounded_reading import dump
from apache_beam.io._unbounded_reading import load
from apache_beam.io._unbounded_restriction import Restriction
from apache_beam.io._unbounded_restriction import RestrictionCoder
from apache_beam.io._unbounded_restriction import Split
from apache_beam.io._unbounded_tracker import UnboundedTracker
from apache_beam.io.iobase import WatermarkEstimator
from apache_beam.metrics import Metrics
from apache_beam.transforms.core import DoFn
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.core import WatermarkEstimatorProvider
from apache_beam.utils.timestamp import Timestamp

_NAMESPACE = 'apache_beam.io.unbounded_source'


def split_source(source, desired: int, options) -> Iterator[Split]:
  """Asks a source for its splits and checks what comes back.

  Raises:
    SourceSplitError: it raised, or gave none, too many, or what cannot be
      pickled or is no source.
  """
  from apache_beam.io.unbounded_source import UnboundedSource
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


class SplitSourceFn(Guarded, DoFn):
  """Turns an impulse into the splits of a source."""
  def __init__(self, source: bytes, options: bytes, desired: int) -> None:
    self._source = source
    self._options = options
    self._desired = desired

  def process(self, unused_impulse) -> Iterator[Split]:
    yield from split_source(
        load(self._source), self._desired, load(self._options))


class _Provider(RestrictionProvider):
  def initial_restriction(self, element: Split) -> Restriction:
    return Restriction.initial()

  def create_tracker(self, restriction: Restriction) -> UnboundedTracker:
    return UnboundedTracker(restriction)

  def restriction_size(self, element: Split, restriction: Restriction) -> float:
    return 0.0 if restriction.is_done else 1.0

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


class _WatermarkProvider(WatermarkEstimatorProvider):
  def initial_estimator_state(
      self, element: Split, restriction: Restriction) -> int:
    return restriction.watermark.micros

  def create_watermark_estimator(self, estimator_state: int) -> _Watermark:
    return _Watermark(estimator_state)

  def estimator_state_coder(self) -> coders.Coder:
    return coders.VarIntCoder()


class ReadSplitFn(Guarded, DoFn):
  """Reads a split until it has nothing, or a cap is reached; then pauses.

  Attributes:
    foreign_clock: whether the runner keeps a time of its own (a TestStream),
      so that the time of a poll cannot be judged by the clock here.
  """
  def __init__(
      self,
      options: bytes,
      poll_interval: float,
      max_records: int,
      max_seconds: float) -> None:
    self.foreign_clock = False
    self._options = options
    self._poll_interval = poll_interval
    self._max_records = max_records
    self._max_seconds = max_seconds
    self._reading: Optional[Reading] = None

  def __getstate__(self):
    return {**self.__dict__, '_reading': None}

  def start_bundle(self) -> None:
    self._abandon()
    failed = FAILED_FINALIZATIONS.take()
    if failed:
      Metrics.counter(_NAMESPACE, 'failed_finalizations').inc(failed)

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
      tracker=DoFn.RestrictionParam(_Provider()),
      watermark=DoFn.WatermarkEstimatorParam(_WatermarkProvider())):
    self._reading = Reading(
        split, tracker, watermark, finalizer, self._options)
    return self._reading.records(
        self._poll_interval,
        self._max_records,
        self._max_seconds,
        self.foreign_clock)


class ChunkRecordsFn(Guarded, DoFn):
  """Takes chunks apart."""
  def process(self, chunk):  # Unannotated: the type of a chunk is a ChunkOf.
    return chunk.records
