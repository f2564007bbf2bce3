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

"""How far a split of Redis Streams was read, and the ids that tell it.

Purpose: to decide after a restart, for each entry that is still pending,
  whether it was output by what the runner has committed.
Guarantees: equal marks have equal bytes, which start with a version. Bytes of
  earlier versions stay readable.
"""

import dataclasses
import struct
from typing import NamedTuple

from apache_beam import coders
from apache_beam.io._redis_errors import RedisStreamsMarkError
from apache_beam.io.unbounded_source import CheckpointMark
from apache_beam.io.unbounded_source import Receipt
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp

_VERSION = 1
_COUNT = struct.Struct('>I')
_RUN = struct.Struct('>4sQQ')
# A later one is not in the global window.
_LAST_MS = GlobalWindow().max_timestamp().micros // 1000


class EntryId(NamedTuple):
  """The id of an entry, such as that they sort: milliseconds, number."""
  ms: int
  seq: int

  @classmethod
  def parse(cls, text: bytes) -> 'EntryId':
    ms, _, seq = text.partition(b'-')
    return cls(int(ms), int(seq or 0))

  def __str__(self) -> str:
    return f'{self.ms}-{self.seq}'


FIRST = EntryId(0, 0)


def event_time(ms: int) -> Timestamp:
  """The event time of an entry by its id.

  A producer may choose ids that are no times. Beam knows no time behind the
  global window's end, so later ones count as that.
  """
  return Timestamp(micros=min(ms, _LAST_MS) * 1000)


class Run(NamedTuple):
  """What one reader gave, as one consumer: every entry up to ``last``.

  Attributes:
    token: eight hexadecimal digits that end the consumer's name.
    last: the last entry. Those of a run are given in the order of their ids, so
      one that is pending for this consumer was given if it is not after it.
  """
  token: str
  last: EntryId


@dataclasses.dataclass(frozen=True)
class RedisStreamsMark(CheckpointMark):
  """The runs of each stream of a split, oldest first.

  More than one while entries of earlier runs are unacknowledged.
  """
  runs: tuple[tuple[str, tuple[Run, ...]], ...] = ()
  receipts: tuple[Receipt, ...] = dataclasses.field(
      default=(), compare=False, repr=False)

  def finalize_checkpoint(self) -> None:
    """Acknowledges the entries; does nothing if the reader is closed."""
    failed = None
    for receipt in self.receipts:
      try:
        receipt.finalize()
      except Exception as exc:  # pylint: disable=broad-except
        # The other streams' entries are done, too.
        failed = failed or exc
    if failed is not None:
      raise failed


class RedisStreamsMarkCoder(coders.Coder):
  """Marks as bytes; the receipts stay behind.

  A version byte; then of each stream: the length of its name in UTF-8 and the
  name, the number of its runs, and of each run the token's four bytes and two
  numbers of eight bytes. Counts take four bytes; all is big-endian.
  """
  def encode(self, mark: RedisStreamsMark) -> bytes:
    parts = [bytes([_VERSION])]
    for stream, runs in mark.runs:
      name = stream.encode()
      parts += [_COUNT.pack(len(name)), name, _COUNT.pack(len(runs))]
      parts += [
          _RUN.pack(bytes.fromhex(run.token), *run.last) for run in runs
      ]
    return b''.join(parts)

  def decode(self, encoded: bytes) -> RedisStreamsMark:
    if not encoded or encoded[0] != _VERSION:
      raise RedisStreamsMarkError(
          f'The mark is of version {encoded[0] if encoded else "(none)"}, this '
          f'release reads {_VERSION}. Go on with the release of Beam that the '
          'pipeline ran on.')
    try:
      return RedisStreamsMark(tuple(self._streams(encoded)))
    except (struct.error, UnicodeDecodeError) as exc:
      raise RedisStreamsMarkError(
          f'The mark ends too early, or is none: {len(encoded)} bytes.'
      ) from exc

  def _streams(self, encoded: bytes):
    at = 1
    while at < len(encoded):
      length, = _COUNT.unpack_from(encoded, at)
      at += _COUNT.size
      name = encoded[at:at + length].decode()
      at += length
      count, = _COUNT.unpack_from(encoded, at)
      at += _COUNT.size
      runs = []
      for _ in range(count):
        token, ms, seq = _RUN.unpack_from(encoded, at)
        at += _RUN.size
        runs.append(Run(token.hex(), EntryId(ms, seq)))
      yield name, tuple(runs)

  def is_deterministic(self) -> bool:
    return True

  def __eq__(self, other) -> bool:
    return type(other) is type(self)

  def __hash__(self) -> int:
    return hash(type(self))
