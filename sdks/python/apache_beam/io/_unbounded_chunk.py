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

"""Records on their way from a reader to the pipeline, a chunk at a time.

Purpose: to hand a record from the reading DoFn to the runner costs several
  times what most readers need to make one. A chunk pays it once; the next
  DoFn, which runners fuse to the reading one, takes it apart.
Guarantees: a chunk holds what was read between two claims, in order. Where a
  runner does not fuse, it is encoded with the coder of the records.
"""

from typing import Any

from apache_beam import coders
from apache_beam.coders import coder_impl
from apache_beam.io._unbounded_guard import Guarded
from apache_beam.transforms.window import GlobalWindow
from apache_beam.typehints import typehints
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

GLOBAL_WINDOWS = (GlobalWindow(), )


class Chunk:
  """Records with their timestamps, as windowed values in the global window."""

  __slots__ = ('records', )

  def __init__(self, records: list[WindowedValue]) -> None:
    self.records = records

  def __eq__(self, other) -> bool:
    return type(other) is Chunk and self.records == other.records

  def __repr__(self) -> str:
    return f'Chunk({len(self.records)} records)'


class ChunkOf(typehints.TypeConstraint):
  """The type of a chunk whose records are of type ``inner_type``.

  A constraint of our own, since it is how the coder of the records gets into
  the coder of the chunk.

  Args:
    public: see :class:`Guarded`.
  """
  def __init__(self, inner_type: Any, public: str = Guarded.public) -> None:
    super().__init__()
    self.inner_type = inner_type
    self.public = public

  def type_check(self, instance) -> None:
    if type(instance) is not Chunk:
      raise typehints.SimpleTypeHintError(f'{instance!r} is not a Chunk')

  def __eq__(self, other) -> bool:
    return (
        type(other) is ChunkOf and self.inner_type == other.inner_type and
        self.public == other.public)

  def __hash__(self) -> int:
    return hash((ChunkOf, self.inner_type, self.public))

  def __repr__(self) -> str:
    return f'ChunkOf[{self.inner_type!r}]'


class _ChunkCoderImpl(coder_impl.StreamCoderImpl):
  """Count, then per record its timestamp in microseconds and its value."""

  # What a chunk is taken to weigh where the SDK samples sizes. To encode a
  # hundred records for that would cost more than reading them.
  _ESTIMATE_PER_RECORD = 64

  def __init__(self, value_impl: coder_impl.CoderImpl) -> None:
    self._value_impl = value_impl

  def encode_to_stream(self, value, stream, nested):
    stream.write_var_int64(len(value.records))
    for record in value.records:
      stream.write_bigendian_int64(record.timestamp_micros)
      self._value_impl.encode_to_stream(record.value, stream, True)

  def decode_from_stream(self, stream, nested):
    records = []
    for _ in range(stream.read_var_int64()):
      timestamp = Timestamp(micros=stream.read_bigendian_int64())
      value = self._value_impl.decode_from_stream(stream, True)
      records.append(WindowedValue(value, timestamp, GLOBAL_WINDOWS))
    return Chunk(records)

  def estimate_size(self, value, nested=False):
    return self._ESTIMATE_PER_RECORD * len(value.records)

  def get_estimated_size_and_observables(self, value, nested=False):
    return self.estimate_size(value, nested), []


class ChunkCoder(Guarded, coders.Coder):
  """Encodes a :class:`Chunk` with the coder of its records."""
  def __init__(
      self, value_coder: coders.Coder, public: str = Guarded.public) -> None:
    self._value_coder = value_coder
    self.public = public

  def _create_impl(self):
    return _ChunkCoderImpl(self._value_coder.get_impl())

  def encode(self, value: Chunk) -> bytes:
    return self.get_impl().encode(value)

  def decode(self, encoded: bytes) -> Chunk:
    return self.get_impl().decode(encoded)

  def is_deterministic(self) -> bool:
    return self._value_coder.is_deterministic()

  def to_type_hint(self):
    return ChunkOf(self._value_coder.to_type_hint(), self.public)

  @staticmethod
  def from_type_hint(typehint: ChunkOf, registry) -> 'ChunkCoder':
    return ChunkCoder(
        registry.get_coder(typehint.inner_type), typehint.public)

  def __eq__(self, other) -> bool:
    return (
        type(self) is type(other) and self._value_coder == other._value_coder)

  def __hash__(self) -> int:
    return hash((type(self), self._value_coder))


coders.registry.register_coder(ChunkOf, ChunkCoder)
