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


"""What a watch keeps between polls, and its bytes.

The element of the splittable DoFn is the input itself. Beside it a watch hands
the runner one of two restrictions, which the runner persists as bytes and gives
back, perhaps to another process and another release:

* :class:`Polling`: go on polling. Holds the keys of what was output, how far
  the event times have come, and the state of the termination condition.
* :class:`Replay`: output exactly this. The primary of a round that the runner
  split off while it was being output.

The keys are by far the largest part, and they travel with every poll. So they
are packed: digests of 16 bytes in the order in which they came, behind one
another. What a round adds is put behind; the bytes of earlier rounds are copied
as they are, neither decoded nor encoded again. A watch with a cursor keeps few
keys and puts the event time before each.

The format begins with a version byte. Bytes of every version that was ever
written stay readable; the tests pin them.
"""

import dataclasses
import struct
from typing import Optional
from typing import Union

from apache_beam import coders
from apache_beam.io._unbounded_guard import Guarded
from apache_beam.io._unbounded_restriction import new_id
from apache_beam.io._watch_errors import WatchStateError
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

DIGEST_BYTES = 16
# With its event time before it.
ENTRY_BYTES = 8 + DIGEST_BYTES

_VERSION = 1
_ID = '8s'
# Version, flags, id of the watch, generation, watermark in microseconds.
_HEADER = struct.Struct(f'>BB{_ID}{_ID}q')
# Cursor in microseconds, number of polls, length of the condition's state.
_POLLING = struct.Struct('>qQI')
# Number of outputs.
_REPLAY = struct.Struct('>I')
# Event time in microseconds, length of the encoded output.
_OUTPUT = struct.Struct('>qI')
_IS_REPLAY = 1
_IS_FINISHED = 2
_HAS_CURSOR = 4
_IS_BY_TIME = 8
_KNOWN_FLAGS = _IS_REPLAY | _IS_FINISHED | _HAS_CURSOR | _IS_BY_TIME


class Packed:
  """Bytes that grow at their end, kept as the pieces that they came in.

  A value: what is added makes another one, which shares the pieces.
  """

  __slots__ = ('pieces', 'size')

  def __init__(self, *pieces: bytes) -> None:
    self.pieces = tuple(piece for piece in pieces if piece)
    self.size = sum(map(len, self.pieces))

  def plus(self, more: bytes) -> 'Packed':
    return Packed(*self.pieces, more) if more else self

  def joined(self) -> bytes:
    return self.pieces[0] if len(self.pieces) == 1 else b''.join(self.pieces)

  def cut_up(self, step: int) -> list[bytes]:
    whole = self.joined()
    return [whole[at:at + step] for at in range(0, len(whole), step)]

  def __eq__(self, other) -> bool:
    return type(other) is Packed and self.joined() == other.joined()

  def __hash__(self) -> int:
    return hash(self.joined())

  def __repr__(self) -> str:
    return f'Packed({self.size} bytes)'


@dataclasses.dataclass(frozen=True)
class Polling:
  """How far a watch has come.

  Never falsy, so it has no length: the SDK drops a falsy residual, without a
  word.

  Attributes:
    watch_id: names the watch of one input for as long as it lives.
    generation: names this very piece of work. Each residual gets a new one, so
      that what a process remembers about one attempt is never taken for what
      another attempt left behind.
    keys: digests of the keys that were output; with their event times if
      ``by_time``.
    by_time: whether history expires by event time.
    cursor: the greatest event time that was output, in microseconds; None:
      there was none yet.
    watermark: what was last reported.
    polls: how many polls there were.
    condition: the encoded state of the termination condition.
    finished: whether polling has ended.
    size: how many outputs are known to wait; for the runner, never encoded.
    successor: the generation of the residual that was split off, None before.
      Process-local, never encoded.
  """
  watch_id: bytes
  generation: bytes
  keys: Packed = Packed()
  by_time: bool = False
  cursor: Optional[int] = None
  watermark: Timestamp = MIN_TIMESTAMP
  polls: int = 0
  condition: bytes = b''
  finished: bool = False
  size: int = dataclasses.field(default=0, compare=False)
  successor: Optional[bytes] = dataclasses.field(default=None, compare=False)

  @classmethod
  def initial(cls, by_time: bool, condition: bytes) -> 'Polling':
    return cls(new_id(), new_id(), by_time=by_time, condition=condition)

  @property
  def is_done(self) -> bool:
    return self.finished

  @property
  def key_count(self) -> int:
    return self.keys.size // (ENTRY_BYTES if self.by_time else DIGEST_BYTES)

  def __repr__(self) -> str:
    return (
        f'Polling({self.watch_id.hex()[:6]} gen={self.generation.hex()[:6]} '
        f'polls={self.polls} keys={self.key_count} watermark={self.watermark}'
        f'{" finished" if self.finished else ""})')


@dataclasses.dataclass(frozen=True)
class Replay:
  """Outputs that are still to be given, or given again; nothing is polled.

  Attributes:
    outputs: what was output of a round; the value is that of ``poll_fn``.
    watermark: what it was before the round: none of the outputs is behind it
      that was not when it was found.
  """
  watch_id: bytes
  generation: bytes
  outputs: tuple[TimestampedValue, ...] = ()
  watermark: Timestamp = MIN_TIMESTAMP
  successor: Optional[bytes] = dataclasses.field(default=None, compare=False)

  @property
  def is_done(self) -> bool:
    return not self.outputs

  def __repr__(self) -> str:
    return (
        f'Replay({self.watch_id.hex()[:6]} gen={self.generation.hex()[:6]} '
        f'outputs={len(self.outputs)} watermark={self.watermark})')


Restriction = Union[Polling, Replay]


class RestrictionCoder(Guarded, coders.Coder):
  """The bytes of a restriction, after a common header:

  * of a :class:`Polling`: cursor, number of polls, the condition's state with
    its length before it, and the keys to the end;
  * of a :class:`Replay`: how many outputs, and for each its event time and its
    encoded value with its length before it.

  Integers are big-endian, times are microseconds.

  Args:
    output_coder: encodes what ``poll_fn`` finds.
  """
  public = 'apache_beam.io.watch'

  def __init__(self, output_coder: coders.Coder) -> None:
    self._output_coder = output_coder

  def encode(self, value: Restriction) -> bytes:
    if isinstance(value, Replay):
      return self._encode_replay(value)
    flags = (
        (_IS_FINISHED if value.finished else 0) |
        (_HAS_CURSOR if value.cursor is not None else 0) |
        (_IS_BY_TIME if value.by_time else 0))
    return b''.join((
        _HEADER.pack(
            _VERSION,
            flags,
            value.watch_id,
            value.generation,
            value.watermark.micros),
        _POLLING.pack(value.cursor or 0, value.polls, len(value.condition)),
        value.condition,
        *value.keys.pieces))

  def _encode_replay(self, value: Replay) -> bytes:
    pieces = [
        _HEADER.pack(
            _VERSION,
            _IS_REPLAY,
            value.watch_id,
            value.generation,
            value.watermark.micros),
        _REPLAY.pack(len(value.outputs))
    ]
    for output in value.outputs:
      encoded = self._output_coder.encode(output.value)
      pieces.append(_OUTPUT.pack(output.timestamp.micros, len(encoded)))
      pieces.append(encoded)
    return b''.join(pieces)

  def decode(self, encoded: bytes) -> Restriction:
    if not encoded or encoded[0] != _VERSION:
      raise _format_error(
          str(encoded[0]) if encoded else 'none, as it has no bytes')
    try:
      return self._decode(encoded)
    except struct.error:
      raise _format_error(
          f'{_VERSION}, cut off after {len(encoded)} bytes') from None

  def _decode(self, encoded: bytes) -> Restriction:
    _, flags, watch_id, generation, micros = _HEADER.unpack_from(encoded)
    if flags & ~_KNOWN_FLAGS:
      raise _format_error(f'{_VERSION} with unknown flags {flags:#x}')
    watermark = Timestamp(micros=micros)
    at = _HEADER.size
    if flags & _IS_REPLAY:
      outputs = tuple(self._decode_outputs(encoded, at))
      return Replay(watch_id, generation, outputs, watermark)
    cursor, polls, length = _POLLING.unpack_from(encoded, at)
    at += _POLLING.size
    condition = encoded[at:at + length]
    keys = encoded[at + length:]
    by_time = bool(flags & _IS_BY_TIME)
    if (len(condition) < length or
        len(keys) % (ENTRY_BYTES if by_time else DIGEST_BYTES)):
      raise _format_error(f'{_VERSION}, cut off after {len(encoded)} bytes')
    return Polling(
        watch_id,
        generation,
        Packed(keys),
        by_time,
        cursor if flags & _HAS_CURSOR else None,
        watermark,
        polls,
        condition,
        bool(flags & _IS_FINISHED))

  def _decode_outputs(self, encoded: bytes, at: int):
    count, = _REPLAY.unpack_from(encoded, at)
    at += _REPLAY.size
    for _ in range(count):
      micros, length = _OUTPUT.unpack_from(encoded, at)
      at += _OUTPUT.size
      if len(encoded) < at + length:
        raise struct.error
      yield TimestampedValue(
          self._output_coder.decode(encoded[at:at + length]),
          Timestamp(micros=micros))
      at += length

  def is_deterministic(self) -> bool:
    return self._output_coder.is_deterministic()

  def __eq__(self, other) -> bool:
    return (
        type(self) is type(other) and self._output_coder == other._output_coder)

  def __hash__(self) -> int:
    return hash((type(self), self._output_coder))


def _format_error(found: str) -> WatchStateError:
  return WatchStateError(
      f'The persisted state of a watch has format {found}; this worker reads '
      f'format {_VERSION}. A newer release wrote it, or it is not from Watch '
      'at all: run the job on workers with the release that it was last run '
      'with, or a newer one.')
