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

"""The position of a reader of Kafka, as a mark and as bytes."""

import dataclasses
import struct
import uuid
from typing import Any
from typing import Optional

from apache_beam import coders
from apache_beam.io._kafka_errors import KafkaMarkError
from apache_beam.io.unbounded_source import CheckpointMark

# A partition: its topic and number.
TopicPartition = tuple[str, int]

_NO_ID = uuid.UUID(int=0)
_SHOWN = 20


class Layout:
  """Which partitions the offsets of a mark are for.

  Shared by the marks of a reader: it changes only when a partition is added,
  so its bytes are made once and not for every mark.

  Args:
    index, count: which split of how many.
    topics: each topic's id; None where the brokers are too old to have any.
    partitions: sorted, so that equal marks have equal bytes.
  """
  def __init__(
      self,
      index: int,
      count: int,
      topics: dict[str, Optional[uuid.UUID]],
      partitions: tuple[TopicPartition, ...]) -> None:
    self.index = index
    self.count = count
    self.topics = topics
    self.partitions = tuple(sorted(partitions))
    self.encoded = self._encode()

  def _encode(self) -> bytes:
    out = [struct.pack('>BIIH', 1, self.index, self.count, len(self.topics))]
    for topic in sorted(self.topics):
      name = topic.encode('utf-8')
      out.append(struct.pack('>H', len(name)) + name)
      out.append((self.topics[topic] or _NO_ID).bytes)
      numbers = [p for t, p in self.partitions if t == topic]
      out.append(struct.pack(f'>I{len(numbers)}I', len(numbers), *numbers))
    return b''.join(out)

  def __eq__(self, other: Any) -> bool:
    return isinstance(other, Layout) and self.encoded == other.encoded

  def __hash__(self) -> int:
    return hash(self.encoded)

  def __repr__(self) -> str:
    return f'split {self.index + 1} of {self.count}'


@dataclasses.dataclass(frozen=True)
class KafkaMark(CheckpointMark):
  """The next offset to read, of each partition of a split.

  Attributes:
    layout: the partitions.
    offsets: one for each, in their order.
    committer: commits offsets to the group; only while the reader is open in
      this process. Not part of the mark's value.
  """
  layout: Layout
  offsets: tuple[int, ...]
  committer: Any = dataclasses.field(default=None, repr=False, compare=False)

  @property
  def positions(self) -> dict[TopicPartition, int]:
    return dict(zip(self.layout.partitions, self.offsets))

  def finalize_checkpoint(self) -> None:
    """Commits the offsets to the group, for monitoring and for new jobs.

    The read itself goes on from its marks; so nothing is lost where it cannot
    be done, as with a mark that was decoded, or whose reader is closed.
    """
    if self.committer is not None:
      self.committer.commit(self.positions)

  def __repr__(self) -> str:
    shown = [
        f'{topic}-{partition}@{offset}'
        for (topic, partition), offset in self.positions.items()
    ]
    if len(shown) > _SHOWN:
      shown[_SHOWN:] = [f'and {len(shown) - _SHOWN} more']
    return f'KafkaMark({self.layout}: {", ".join(shown)})'

  def __reduce__(self):
    # A copy in another process has no connection to commit with.
    return KafkaMark, (self.layout, self.offsets)


class KafkaMarkCoder(coders.Coder):
  """A mark as bytes; runners keep them, so the format is kept too.

  All numbers big-endian: version (1 byte, 1), split index and count (4 each),
  number of topics (2); for each topic, by name: length of the name (2), name,
  topic id (16, zeros if unknown), number of partitions (4), each partition's
  number (4). Then the offsets (8 each) in the order of the partitions.
  """
  def encode(self, value: KafkaMark) -> bytes:
    return value.layout.encoded + struct.pack(
        f'>{len(value.offsets)}q', *value.offsets)

  def decode(self, encoded: bytes) -> KafkaMark:
    if encoded[:1] != b'\x01':
      raise KafkaMarkError(
          f'A Kafka mark begins with {encoded[:1].hex() or "nothing"}; this '
          'release reads those of version 01. Run the release that wrote it, '
          'or a newer one.')
    try:
      return self._decode(encoded)
    except (struct.error, UnicodeDecodeError, IndexError, ValueError) as exc:
      raise KafkaMarkError(
          f'A Kafka mark of {len(encoded)} bytes cannot be read: {exc}. It was '
          'cut off, or is none.') from exc

  def _decode(self, encoded: bytes) -> KafkaMark:
    at = 0

    def take(form: str) -> tuple[Any, ...]:
      nonlocal at
      values = struct.unpack_from(form, encoded, at)
      at += struct.calcsize(form)
      return values

    _, index, count, number = take('>BIIH')
    topics: dict[str, Optional[uuid.UUID]] = {}
    partitions: list[TopicPartition] = []
    for _ in range(number):
      name, identity = take('>%ds16s' % take('>H'))
      topic = name.decode('utf-8')
      topics[topic] = (
          None if identity == _NO_ID.bytes else uuid.UUID(bytes=identity))
      numbers = take('>%dI' % take('>I'))
      partitions.extend((topic, number) for number in numbers)
    offsets = take(f'>{len(partitions)}q')
    if at != len(encoded):
      raise ValueError(f'{len(encoded) - at} bytes are left over')
    return KafkaMark(Layout(index, count, topics, tuple(partitions)), offsets)

  def is_deterministic(self) -> bool:
    return True

  def __eq__(self, other: Any) -> bool:
    return type(self) == type(other)

  def __hash__(self) -> int:
    return hash(type(self))
