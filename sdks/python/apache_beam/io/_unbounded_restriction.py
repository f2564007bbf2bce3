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

"""What an unbounded read keeps between bundles, and its bytes.

A read that pauses hands two values to the runner, which persists them as
bytes and gives them back, perhaps to another process and another release:

* the element, a :class:`Split`: the pickled source. Pickled once, when the
  source is split; here it is opaque, so that neither a checkpoint nor a resume
  costs time in proportion to the source.
* the restriction, a :class:`Restriction`: how far the split has been read.

They are kept apart on purpose. The source travels once, not in both; and
because each split is an element of its own, runners that spread or key their
state by element (Flink does) tell the splits apart.

Both formats begin with a version byte. Bytes of every version that was ever
written stay readable; the tests pin them.
"""

import dataclasses
import os
import struct
from typing import Optional

from apache_beam import coders
from apache_beam.io._unbounded_errors import RestrictionFormatError
from apache_beam.io._unbounded_guard import Guarded
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

_ID_BYTES = 8

_SPLIT_VERSION = 1
_SPLIT_HEADER = struct.Struct('>BII')

_RESTRICTION_VERSION = 1
_RESTRICTION_HEADER = struct.Struct(f'>BB{_ID_BYTES}s{_ID_BYTES}sqQ')
_HAS_MARK = 1
_IS_FINISHED = 2
_IS_LIMITED = 4
_KNOWN_FLAGS = _HAS_MARK | _IS_FINISHED | _IS_LIMITED


def new_id() -> bytes:
  """Random, so that two attempts at the same work never share one."""
  return os.urandom(_ID_BYTES)


@dataclasses.dataclass(frozen=True)
class Split:
  """One part of a source, as the runner carries it.

  Attributes:
    index: which part it is, from 0.
    count: how many parts there are.
    source: the pickled ``UnboundedSource`` of this part.
  """
  index: int
  count: int
  source: bytes

  def __repr__(self) -> str:
    return f'Split({self.index + 1} of {self.count})'


@dataclasses.dataclass(frozen=True)
class Restriction:
  """How far a split has been read, and how far this piece of work may go.

  Never falsy, so it has no length: the SDK drops a falsy residual, without a
  word.

  Attributes:
    split_id: names the split for as long as it lives.
    generation: names this very piece of work. Each residual gets a new one, so
      that what a process remembers about one attempt is never taken for what
      another attempt left behind.
    mark: the encoded checkpoint mark to resume after; None: from the start.
    watermark: what was last reported for this split.
    finished: whether the source said that nothing will follow.
    limit: how many records this piece of work may still read; None: no limit.
      Only the primary of a split by the runner has one: should the runner run
      the primary again, it stops where the residual begins.
    successor: the generation of the residual that was split off, None before.
      Process-local, never encoded.
    size: how much is left to read, in bytes, as the source last told (1 if it
      does not know); None: it was not asked. For the runner, which is told when
      the residual is made; never encoded.
  """
  split_id: bytes
  generation: bytes
  mark: Optional[bytes] = None
  watermark: Timestamp = MIN_TIMESTAMP
  finished: bool = False
  limit: Optional[int] = None
  successor: Optional[bytes] = dataclasses.field(default=None, compare=False)
  size: Optional[float] = dataclasses.field(default=None, compare=False)

  @classmethod
  def initial(cls) -> 'Restriction':
    return cls(split_id=new_id(), generation=new_id())

  @property
  def is_done(self) -> bool:
    """Whether nothing is left to read."""
    return self.finished or self.limit == 0

  @property
  def is_unread(self) -> bool:
    """Whether no reader was ever opened for it, as far as it tells."""
    return self.mark is None and self.watermark == MIN_TIMESTAMP

  def __repr__(self) -> str:
    return (
        f'Restriction({self.split_id.hex()[:6]} gen={self.generation.hex()[:6]}'
        f' mark={"none" if self.mark is None else f"{len(self.mark)} bytes"}'
        f' watermark={self.watermark}'
        f'{" finished" if self.finished else ""}'
        f'{"" if self.limit is None else f" limit={self.limit}"})')


def _version_error(what: str, found: str, reads: int) -> RestrictionFormatError:
  return RestrictionFormatError(
      f'The persisted {what} of an unbounded read has format {found}; this '
      f'worker reads format {reads} and earlier. A newer release wrote it, or '
      'it is not from ReadFromUnboundedSource at all: run the job on workers '
      'with the release that it was last run with, or a newer one.')


class SplitCoder(Guarded, coders.Coder):
  """Version byte, index and count (big-endian 32 bits), the pickled source."""
  def encode(self, value: Split) -> bytes:
    return _SPLIT_HEADER.pack(
        _SPLIT_VERSION, value.index, value.count) + value.source

  def decode(self, encoded: bytes) -> Split:
    if not encoded or encoded[0] != _SPLIT_VERSION:
      found = str(encoded[0]) if encoded else 'none (0 bytes)'
      raise _version_error('split', found, _SPLIT_VERSION)
    if len(encoded) < _SPLIT_HEADER.size:
      raise _version_error(
          'split', f'1, cut off after {len(encoded)} bytes', _SPLIT_VERSION)
    _, index, count = _SPLIT_HEADER.unpack_from(encoded)
    return Split(index, count, encoded[_SPLIT_HEADER.size:])

  def is_deterministic(self) -> bool:
    return True

  def to_type_hint(self):
    return Split

  def estimate_size(self, value: Split) -> int:
    return _SPLIT_HEADER.size + len(value.source)

  def __eq__(self, other) -> bool:
    return type(self) is type(other)

  def __hash__(self) -> int:
    return hash(type(self))


class RestrictionCoder(Guarded, coders.Coder):
  """The bytes of a :class:`Restriction`.

  Version byte, flags, split id, generation, watermark in microseconds and
  limit (big-endian 64 bits; the limit is 0 where there is none), and the mark
  to the end.
  """
  def encode(self, value: Restriction) -> bytes:
    flags = (
        (_HAS_MARK if value.mark is not None else 0) |
        (_IS_FINISHED if value.finished else 0) |
        (_IS_LIMITED if value.limit is not None else 0))
    return _RESTRICTION_HEADER.pack(
        _RESTRICTION_VERSION,
        flags,
        value.split_id,
        value.generation,
        value.watermark.micros,
        value.limit or 0) + (value.mark or b'')

  def decode(self, encoded: bytes) -> Restriction:
    if not encoded or encoded[0] != _RESTRICTION_VERSION:
      found = str(encoded[0]) if encoded else 'none (0 bytes)'
      raise _version_error('position', found, _RESTRICTION_VERSION)
    if len(encoded) < _RESTRICTION_HEADER.size:
      raise _version_error(
          'position',
          f'1, cut off after {len(encoded)} bytes',
          _RESTRICTION_VERSION)
    (_, flags, split_id, generation, micros,
     limit) = _RESTRICTION_HEADER.unpack_from(encoded)
    if flags & ~_KNOWN_FLAGS:
      raise _version_error(
          'position', f'1 with unknown flags {flags:#x}', _RESTRICTION_VERSION)
    return Restriction(
        split_id=split_id,
        generation=generation,
        mark=encoded[_RESTRICTION_HEADER.size:] if flags & _HAS_MARK else None,
        watermark=Timestamp(micros=micros),
        finished=bool(flags & _IS_FINISHED),
        limit=limit if flags & _IS_LIMITED else None)

  def is_deterministic(self) -> bool:
    return True

  def to_type_hint(self):
    return Restriction

  def __eq__(self, other) -> bool:
    return type(self) is type(other)

  def __hash__(self) -> int:
    return hash(type(self))


coders.registry.register_coder(Split, SplitCoder)
