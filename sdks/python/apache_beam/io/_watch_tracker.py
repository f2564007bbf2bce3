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


"""Decides who outputs what of a watch: the restriction tracker.

Purpose: the DoFn says that it is about to poll, and what came of it; the runner
  may split off the rest at any time. Both go through here.
Guarantees: each output belongs to exactly one of primary and residual. A poll
  is never thrown away: until its round is claimed, splits are declined.
Threads: the SDK calls one method at a time, under its lock, from the bundle's
  thread and from the one that answers progress and split requests. All here is
  a few assignments: polling, which may take minutes, happens between two
  claims, outside of that lock.

The DoFn claims in pairs::

  tracker.try_claim(WORK)           # False: was split off; stop
  ... poll, find what is new ...
  tracker.try_claim(Round(...))     # always True

For a replay the first claim is all.
"""

import dataclasses
from typing import NamedTuple
from typing import Union

from apache_beam.io._unbounded_restriction import new_id
from apache_beam.io._unbounded_tracker import Fraction
from apache_beam.io._watch_restriction import Polling
from apache_beam.io._watch_restriction import Replay
from apache_beam.io._watch_restriction import Restriction
from apache_beam.io.iobase import RestrictionProgress
from apache_beam.io.iobase import RestrictionTracker
from apache_beam.transforms.window import TimestampedValue


class _Work:
  def __repr__(self) -> str:
    return 'WORK'


WORK = _Work()


class Round(NamedTuple):
  """What came of a poll since ``WORK`` was claimed.

  Attributes:
    outputs: what this bundle is going to output.
    after: where the watch stands when they are.
  """
  outputs: tuple[TimestampedValue, ...]
  after: Polling


class WatchTracker(RestrictionTracker):
  """Tracks one restriction. See the head of the module.

  Attributes:
    _rest: what is left to do, and would be the residual; None: nothing.
    _given: what was claimed, and would be the primary.
  """
  def __init__(self, restriction: Restriction) -> None:
    self._restriction = restriction
    self._rest = None if restriction.is_done else restriction
    self._given: tuple[TimestampedValue, ...] = ()
    self._in_flight = False
    self._was_asked = False

  def current_restriction(self) -> Restriction:
    return self._restriction

  def try_claim(self, position: Union[_Work, Round]) -> bool:
    self._was_asked = True
    if position is WORK:
      if self._in_flight:
        raise ValueError(
            'A poll is in flight: claim its round before the next one.')
      if self._rest is None:
        return False
      if isinstance(self._rest, Replay):
        self._given, self._rest = self._rest.outputs, None
      else:
        self._in_flight = True
      return True
    if not self._in_flight:
      raise ValueError('No poll is in flight that this round could end.')
    self._in_flight = False
    self._given = position.outputs
    self._rest = None if position.after.finished else position.after
    return True

  def try_split(self, fraction_of_remainder: float):
    """Splits off what is not claimed; only a checkpoint (fraction 0) can be."""
    if fraction_of_remainder != 0 or self._in_flight or self._rest is None:
      return None
    before = self._restriction
    residual = dataclasses.replace(self._rest, generation=new_id())
    self._restriction = Replay(
        before.watch_id,
        before.generation,
        self._given,
        before.watermark,
        residual.generation)
    self._rest = None
    return self._restriction, residual

  def check_done(self) -> bool:
    if self._rest is None and not self._in_flight:
      return True
    if not self._was_asked:
      raise ValueError(
          'The runner asked whether a watch is done before it ran it. The '
          'bundle-based DirectRunner does, and cannot run Watch (DirectRunner '
          'falls back to it, for a TestStream among others): use FnApiRunner, '
          'or PrismRunner with a TestStream.')
    raise ValueError(
        f'A watch stopped at {self._restriction!r} without saying what becomes '
        'of the rest. This is a fault in Watch, not in poll_fn.')

  def current_progress(self) -> RestrictionProgress:
    return Fraction(
        fraction=1.0 if self._rest is None and not self._in_flight else 0.0)

  def is_bounded(self) -> bool:
    return isinstance(self._restriction, Replay)
