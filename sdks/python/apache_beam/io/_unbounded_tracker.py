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

"""Decides who reads what of a split: the restriction tracker.

Purpose: the reading DoFn says what it is about to read and what it has read;
  the runner may split off the rest at any time. Both go through here.
Guarantees: every record belongs to exactly one of primary and residual. A
  residual resumes after the last claimed chunk, or is refused.
Threads: the SDK calls one method at a time, under its lock, from the bundle's
  thread and from the one that answers progress and split requests. All here is
  a few assignments: reading, which may take long, happens between two claims,
  outside of that lock.

The DoFn claims in pairs::

  tracker.try_claim(CHUNK)            # False: the rest was split off; stop
  ... read a chunk, cut a mark ...
  tracker.try_claim(Claim(...))       # always True

  tracker.try_claim(Backlog(...))     # any time: what is left, if known

Between the first two a chunk is in flight: the reader is ahead of the last mark, and
no restriction can say where it is. Splits are declined then. So a first read,
however slow, is never thrown away.
"""

import dataclasses
from typing import NamedTuple
from typing import Optional
from typing import Union

from apache_beam.io._unbounded_restriction import Restriction
from apache_beam.io._unbounded_restriction import new_id
from apache_beam.io.iobase import RestrictionProgress
from apache_beam.io.iobase import RestrictionTracker
from apache_beam.utils.timestamp import Timestamp


class _Chunk:
  def __repr__(self) -> str:
    return 'CHUNK'


CHUNK = _Chunk()
# Of a restriction whose source cannot tell. Not 0, which means caught up.
UNKNOWN_SIZE = 1.0


class Claim(NamedTuple):
  """What was read since ``CHUNK`` was claimed.

  Attributes:
    records: how many records the chunk has; 0 if there was nothing.
    mark: the encoded mark after them; where the last one was if there is none.
    watermark: the watermark after them; never below the last one.
    finished: whether the source will give no more.
  """
  records: int
  mark: Optional[bytes]
  watermark: Timestamp
  finished: bool


class Backlog(NamedTuple):
  """What the source has still to give, claimed between two chunks.

  Attributes:
    size: in bytes.
  """
  size: float


class Fraction(RestrictionProgress):
  """A fraction, whatever the SDK adds.

  The SDK adds the bytes that were output, which is NaN before the first sample
  and says nothing about a source without an end.
  """
  def with_completed(self, completed) -> 'RestrictionProgress':
    return self


class UnboundedTracker(RestrictionTracker):
  """Tracks one :class:`Restriction`. See the head of the module."""
  def __init__(self, restriction: Restriction) -> None:
    self._restriction = restriction
    self._read = 0
    self._mark = restriction.mark
    self._watermark = restriction.watermark
    self._finished = restriction.finished
    self._in_flight = False
    self._was_asked = False
    self._size = UNKNOWN_SIZE

  def current_restriction(self) -> Restriction:
    return self._restriction

  def try_claim(self, position: Union[_Chunk, Claim, Backlog]) -> bool:
    self._was_asked = True
    if isinstance(position, Backlog):
      self._size = position.size
      return True
    if position is CHUNK:
      if self._in_flight:
        raise ValueError(
            'A chunk is in flight: claim what it read before the next one.')
      self._in_flight = not self._is_done()
      return self._in_flight
    if not self._in_flight:
      raise ValueError(f'Nothing is in flight that {position!r} could end.')
    left = self._left()
    if left is not None and position.records > left:
      raise ValueError(
          f'{position.records} records were read where {left} were left.')
    self._in_flight = False
    self._read += position.records
    self._mark = position.mark
    self._watermark = position.watermark
    self._finished = position.finished
    return True

  def try_split(self, fraction_of_remainder: float):
    """Splits the unread rest off; only a checkpoint (fraction 0) can be.

    What is still to come cannot be divided in proportion, as nobody knows how
    much it is.
    """
    if fraction_of_remainder != 0 or self._in_flight or self._is_done():
      return None
    left = self._left()
    residual = dataclasses.replace(
        self._restriction,
        generation=new_id(),
        mark=self._mark,
        watermark=self._watermark,
        limit=left,
        size=self._size)
    self._restriction = dataclasses.replace(
        self._restriction, limit=self._read, successor=residual.generation)
    return self._restriction, residual

  def check_done(self) -> bool:
    if not self._is_done() and not self._was_asked:
      raise ValueError(
          'The runner asked whether an unbounded read is done before it ran '
          'it. The bundle-based DirectRunner does, and cannot run such reads '
          '(DirectRunner falls back to it, for a TestStream among others): '
          'use FnApiRunner, or PrismRunner with a TestStream.')
    if self._in_flight or not self._is_done():
      raise ValueError(
          f'An unbounded read stopped at {self._restriction!r} after '
          f'{self._read} records without saying what becomes of the rest. '
          'This is a fault in ReadFromUnboundedSource, not in the source.')
    return True

  def current_progress(self) -> RestrictionProgress:
    return Fraction(fraction=1.0 if self._is_done() else 0.0)

  def is_bounded(self) -> bool:
    return self._restriction.limit is not None

  def _left(self) -> Optional[int]:
    limit = self._restriction.limit
    return None if limit is None else limit - self._read

  def _is_done(self) -> bool:
    return self._finished or self._left() == 0
