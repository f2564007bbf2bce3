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


"""The transforms between a source's splits and its records.

Also the checks of what people give to the public transforms, in words of their
world.
"""

import dataclasses
import math
from typing import Any

from apache_beam import coders
from apache_beam import pvalue
from apache_beam.io import _unbounded_dofn
from apache_beam.io._unbounded_chunk import ChunkOf
from apache_beam.pipeline import PipelineVisitor
from apache_beam.transforms.core import ParDo
from apache_beam.transforms.deduplicate import DeduplicatePerKey
from apache_beam.transforms.util import Reshuffle
from apache_beam.transforms.util import Values
from apache_beam.typehints import typehints

# How long the id of a record is remembered, in event time from its timestamp on.
# So a repeat is dropped, or so far behind the watermark. Not processing time:
# timers for that fire at once on FnApiRunner, and the repeats of a backlog that
# is caught up on would come too late.
DEDUPLICATION_SECONDS = 600


@dataclasses.dataclass(frozen=True)
class Caps:
  """How long a bundle may read, and how long a pause takes."""
  poll_interval: float
  max_records: int
  max_seconds: float

  @classmethod
  def checked(cls, poll_interval, max_records_per_bundle,
              max_read_time_seconds) -> 'Caps':
    seconds = _number('poll_interval', poll_interval)
    if not 0 <= seconds < math.inf:
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
    max_seconds = _number('max_read_time_seconds', max_read_time_seconds)
    if not max_seconds > 0:
      raise ValueError(
          f'max_read_time_seconds={max_read_time_seconds!r} must be a number '
          'of seconds above 0.')
    return cls(seconds, max_records_per_bundle, max_seconds)


def read_splits(
    splits: pvalue.PCollection,
    options: bytes,
    caps: Caps,
    record_type: Any,
    identified: bool) -> pvalue.PCollection:
  """Reads the splits of sources into their records.

  Args:
    options: the pickled options of the pipeline.
    identified: whether records come with ids, and repeats are to be dropped.
  """
  read = _unbounded_dofn.ReadSplitFn(
      options,
      caps.poll_interval,
      caps.max_records,
      caps.max_seconds,
      identified)
  read_type = typehints.Tuple[bytes, record_type] if identified else record_type
  records = (
      splits
      | 'Read' >> ClockAwareParDo(read, splits.pipeline).with_output_types(
          ChunkOf(read_type))
      | 'Records' >> ParDo(
          _unbounded_dofn.ChunkRecordsFn()).with_output_types(read_type))
  if not identified:
    return records
  return (
      records
      # FnApiRunner would otherwise run the stateful DoFn in the reading stage,
      # where its timers fire, and its state is gone, at the end of each bundle.
      | Reshuffle()
      | 'Deduplicate' >> DeduplicatePerKey(
          event_time_duration=DEDUPLICATION_SECONDS)
      | Values().with_output_types(record_type))


class ClockAwareParDo(ParDo):
  """Sets ``foreign_clock`` of its DoFn: whether a TestStream makes the time."""
  def __init__(self, fn, pipeline, *args, **kwargs) -> None:
    super().__init__(fn, *args, **kwargs)
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


def output_type(source) -> Any:
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
