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

"""Sources that never end: message brokers, change feeds, outbox tables.

To read one, implement three small classes and give the source to
:class:`ReadFromUnboundedSource` (or ``beam.io.Read``):

* an :class:`UnboundedSource` says how to divide the input and how to open a
  part of it;
* an :class:`UnboundedReader` steps through one part, and never waits;
* a :class:`CheckpointMark` says how far a reader has come. It is persisted with
  the pipeline's own state, so that after a crash reading goes on behind it.

A source that counts, complete::

  from apache_beam.coders import Coder
  from apache_beam.io.unbounded_source import CheckpointMark
  from apache_beam.io.unbounded_source import UnboundedReader
  from apache_beam.io.unbounded_source import UnboundedSource
  from apache_beam.utils.timestamp import Timestamp

  class Counter(UnboundedSource):
    def split(self, desired_num_splits, options=None):
      return [self]

    def create_reader(self, options, checkpoint_mark):
      return CountingReader(
          0 if checkpoint_mark is None else checkpoint_mark.last + 1)

    def get_checkpoint_mark_coder(self):
      return CountMarkCoder()

  class CountingReader(UnboundedReader):
    def __init__(self, first):
      self._current = first - 1

    def start(self):
      return self.advance()

    def advance(self):
      self._current += 1
      return True

    def get_current(self):
      return self._current

    def get_current_timestamp(self):
      return Timestamp(self._current)

    def get_watermark(self):
      return Timestamp(self._current)

    def get_checkpoint_mark(self):
      return CountMark(self._current)

  class CountMark(CheckpointMark):
    def __init__(self, last):
      self.last = last

  class CountMarkCoder(Coder):
    def encode(self, mark):
      return mark.last.to_bytes(8, 'big')

    def decode(self, encoded):
      return CountMark(int.from_bytes(encoded, 'big'))

    def is_deterministic(self):
      return True

What is guaranteed: every record that a reader gives is output, and after any
failure reading resumes behind the last mark that the runner committed. Whether
a record can be output twice then depends on the source alone: not if a reader
opened with a mark gives exactly what follows that mark.
"""

import math
from typing import Any

from apache_beam import coders
from apache_beam import pvalue
from apache_beam.io import _unbounded_dofn
from apache_beam.io._unbounded_api import CheckpointMark
from apache_beam.io._unbounded_api import UnboundedReader
from apache_beam.io._unbounded_api import UnboundedSource
from apache_beam.io._unbounded_background import BackgroundReader
from apache_beam.io._unbounded_chunk import ChunkOf
from apache_beam.io._unbounded_errors import RestrictionFormatError
from apache_beam.io._unbounded_errors import SourceReadError
from apache_beam.io._unbounded_errors import SourceSplitError
from apache_beam.io._unbounded_errors import UnboundedSourceError
from apache_beam.io._unbounded_errors import WorkerModuleError
from apache_beam.io._unbounded_ledger import AckLedger
from apache_beam.io._unbounded_ledger import Receipt
from apache_beam.io._unbounded_reading import dump
from apache_beam.io._unbounded_restriction import Split
from apache_beam.pipeline import PipelineVisitor
from apache_beam.io._unbounded_watermarks import IdleWatermark
from apache_beam.io._unbounded_watermarks import MonotonicWatermark
from apache_beam.io._unbounded_watermarks import OutOfOrdernessWatermark
from apache_beam.transforms.core import Impulse
from apache_beam.transforms.core import ParDo
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.transforms.ptransform import PTransform
from apache_beam.typehints import typehints

__all__ = [
    'AckLedger',
    'BackgroundReader',
    'CheckpointMark',
    'IdleWatermark',
    'MonotonicWatermark',
    'OutOfOrdernessWatermark',
    'ReadFromUnboundedSource',
    'Receipt',
    'RestrictionFormatError',
    'SourceReadError',
    'SourceSplitError',
    'UnboundedReader',
    'UnboundedSource',
    'UnboundedSourceError',
    'WorkerModuleError',
]


class ReadFromUnboundedSource(PTransform):
  """Reads an :class:`UnboundedSource` into an unbounded PCollection.

  Args:
    source: what to read.
    poll_interval: seconds until a reader that had nothing is asked again; at
      least 0. Runners that keep to it use no CPU in between.
    max_records_per_bundle: after so many records a busy reader pauses, so that
      the runner can commit them; at least 1. A larger number costs less for
      each record, and more work has to be repeated after a failure.
    max_read_time_seconds: the same after so much time, that which the records
      take downstream included; above 0.

  Raises:
    TypeError, ValueError: at construction, for anything else than that. The
      message names the argument.

  Elements are in the global window, with the timestamps that the readers gave.
  It never closes: put them into other windows, or set a trigger, before they
  are grouped or combined.
  Errors while the pipeline runs are :class:`SourceSplitError` and
  :class:`SourceReadError`.
  """

  # What sources are asked to divide into. Many more than the workers of most
  # pipelines; a source with more partitions reads several in one part.
  _DESIRED_NUM_SPLITS = 20

  def __init__(
      self,
      source: UnboundedSource,
      poll_interval: float = 1.0,
      max_records_per_bundle: int = 10000,
      max_read_time_seconds: float = 10.0) -> None:
    super().__init__()
    if not isinstance(source, UnboundedSource):
      hint = (
          ' Give an instance, not the class.' if isinstance(source, type) and
          issubclass(source, UnboundedSource) else '')
      raise TypeError(f'source={source!r} is not an UnboundedSource.{hint}')
    self._source = source
    self._poll_interval = _number('poll_interval', poll_interval)
    if not 0 <= self._poll_interval < math.inf:
      raise ValueError(
          f'poll_interval={poll_interval!r} must be a number of seconds, 0 or '
          'more.')
    if (isinstance(max_records_per_bundle, bool) or
        not isinstance(max_records_per_bundle, int)):
      raise TypeError(
          f'max_records_per_bundle={max_records_per_bundle!r} must be an int.')
    if max_records_per_bundle < 1:
      raise ValueError(
          f'max_records_per_bundle={max_records_per_bundle!r} must be 1 or '
          'more.')
    self._max_records = max_records_per_bundle
    self._max_seconds = _number('max_read_time_seconds', max_read_time_seconds)
    if not self._max_seconds > 0:
      raise ValueError(
          f'max_read_time_seconds={max_read_time_seconds!r} must be a number '
          'of seconds above 0.')
    self._output_type = _output_type(source)
    mark_coder = source.get_checkpoint_mark_coder()
    if not isinstance(mark_coder, coders.Coder):
      raise TypeError(
          f'source={type(source).__name__}: get_checkpoint_mark_coder() '
          f'returned {mark_coder!r}, which is not a Coder.')

  def expand(self, pbegin: pvalue.PBegin) -> pvalue.PCollection:
    if not isinstance(pbegin, pvalue.PBegin):
      raise TypeError(
          'ReadFromUnboundedSource begins a pipeline; it takes no input, but '
          f'was applied to {pbegin!r}.')
    try:
      source = dump(self._source)
    except Exception as exc:
      raise ValueError(
          f'source={type(self._source).__name__} cannot be pickled: {exc!r}. '
          'Keep connections, threads and open files in the reader; the source '
          'only says how to make one.') from exc
    options = dump(pbegin.pipeline.options)
    read = _unbounded_dofn.ReadSplitFn(
        options, self._poll_interval, self._max_records, self._max_seconds)
    take_apart = _unbounded_dofn.ChunkRecordsFn()
    return (
        pbegin
        | Impulse()
        | 'Split' >> ParDo(
            _unbounded_dofn.SplitSourceFn(
                source, options,
                self._DESIRED_NUM_SPLITS)).with_output_types(Split)
        | 'Read' >> _ReadSplits(read, pbegin.pipeline).with_output_types(
            ChunkOf(self._output_type))
        | 'Records' >> ParDo(take_apart).with_output_types(self._output_type))

  def display_data(self):
    return {
        'source': DisplayDataItem(self._source.__class__, label='Read Source'),
        'source_dd': self._source,
    }


class _ReadSplits(ParDo):
  """The reading ParDo; looks at the whole pipeline before it is submitted."""
  def __init__(self, fn: _unbounded_dofn.ReadSplitFn, pipeline) -> None:
    super().__init__(fn)
    self._pipeline = pipeline

  def to_runner_api_parameter(self, context, **extra_kwargs):
    # Not before now is it known whether a TestStream is in the pipeline.
    self.fn.foreign_clock = _has_test_stream(self._pipeline)
    return super().to_runner_api_parameter(context, **extra_kwargs)


def _has_test_stream(pipeline) -> bool:
  from apache_beam.testing.test_stream import TestStream
  found = []

  class Visitor(PipelineVisitor):
    def visit_transform(self, applied):
      if isinstance(applied.transform, TestStream):
        found.append(applied)

  pipeline.visit(Visitor())
  return bool(found)


def _number(name: str, value: Any) -> float:
  if isinstance(value, bool) or not isinstance(value, (int, float)):
    raise TypeError(f'{name}={value!r} must be a number of seconds.')
  return float(value)


def _output_type(source: UnboundedSource) -> Any:
  """The type whose registered coder is the source's output coder.

  The Python SDK encodes a PCollection with the coder that is registered for
  its type. A coder that is not could only be ignored in silence.
  """
  where = f'source={type(source).__name__}: default_output_coder()'
  coder = source.default_output_coder()
  if not isinstance(coder, coders.Coder):
    raise TypeError(f'{where} returned {coder!r}, which is not a Coder.')
  try:
    hint = coder.to_type_hint()
  except NotImplementedError:
    raise ValueError(
        f'{where} returned a {type(coder).__name__}, which has no '
        'to_type_hint(), so it cannot be used. Say there which type it '
        'encodes, and register it for that type: '
        f'beam.coders.registry.register_coder(<type>, {type(coder).__name__}).'
    ) from None
  if hint in (Any, typehints.Any, object):
    return typehints.Any
  registered = coders.registry.get_coder(hint)
  if registered != coder:
    raise ValueError(
        f'{where} returned {coder!r}, but records of type {hint!r} would be '
        f'encoded with {registered!r}, which is registered for that type. '
        f'Return that one, or register yours: '
        f'beam.coders.registry.register_coder({hint!r}, '
        f'{type(coder).__name__}).')
  return hint
