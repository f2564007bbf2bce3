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


"""What an author of a watch writes and returns: PollFn, PollResult."""

import collections.abc
import dataclasses
from typing import Any
from typing import Generic
from typing import Iterable
from typing import Optional
from typing import TypeVar

from apache_beam import coders
from apache_beam.io._unbounded_errors import RetryLater
from apache_beam.io._watch_conditions import time_of
from apache_beam.io._watch_conditions import time_span
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

_PUBLIC_HOME = 'apache_beam.io.watch'

OutputT = TypeVar('OutputT')


@dataclasses.dataclass(frozen=True)
class PollResult(Generic[OutputT]):
  """What one poll found: all there is, or what is new; ``Watch`` tells.

  Made by :meth:`incomplete` or :meth:`complete`.

  Args:
    outputs: any iterable, a generator too; it is gone through once, here.
      ``TimestampedValue`` objects keep their event times, anything else gets
      one (see :meth:`incomplete`). A string or a mapping is refused: it is one
      output, not many.
    watermark: a promise that nothing will be found any more that is older.
      ``MAX_TIMESTAMP`` ends polling. None: it is taken from the earliest of
      the new outputs, or stays where it is if there are none.
    next_poll_delay: seconds until the next poll of this input; None: the
      ``poll_interval`` of the watch.

  Raises:
    TypeError, ValueError: for anything else than that.
  """
  outputs: tuple[TimestampedValue, ...]
  watermark: Optional[Timestamp] = None
  next_poll_delay: Optional[float] = None
  # Whether some output got the time of the clock, for want of another.
  _of_the_clock: bool = dataclasses.field(
      default=False, init=False, compare=False, repr=False)

  def __post_init__(self) -> None:
    self._set('outputs', _gathered(self.outputs))
    if set(map(type, self.outputs)) - {TimestampedValue}:
      self._stamp(None)
    if self.watermark is not None:
      self._set('watermark', time_of('watermark', self.watermark))
    if self.next_poll_delay is not None:
      delay = time_span('next_poll_delay', self.next_poll_delay)
      self._set('next_poll_delay', delay.micros / 1e6)

  @classmethod
  def incomplete(
      cls, outputs: Iterable[Any], timestamp=None) -> 'PollResult[OutputT]':
    """There may be more later: polling goes on.

    Args:
      outputs: see the class.
      timestamp: the event time of outputs that have none of their own; the
        time of the call if not given.
    """
    return cls._made(outputs, timestamp, None)

  @classmethod
  def complete(
      cls, outputs: Iterable[Any], timestamp=None) -> 'PollResult[OutputT]':
    """There will never be more: polling of this input ends.

    Args:
      outputs, timestamp: as for :meth:`incomplete`.
    """
    return cls._made(outputs, timestamp, MAX_TIMESTAMP)

  @classmethod
  def _made(cls, outputs, timestamp, watermark) -> 'PollResult[OutputT]':
    outputs = _gathered(outputs)
    if timestamp is not None:
      outputs = _stamped(outputs, time_of('timestamp', timestamp))
    return cls(outputs, watermark)

  def with_watermark(self, watermark) -> 'PollResult[OutputT]':
    """The same, with a watermark; see the class."""
    return self._changed(watermark=time_of('watermark', watermark))

  def with_next_poll_delay(self, seconds) -> 'PollResult[OutputT]':
    """The same, with another delay than the watch's ``poll_interval``.

    For an endpoint that says itself when it will have something new.
    """
    return self._changed(next_poll_delay=seconds)

  @property
  def is_complete(self) -> bool:
    """Whether polling ends with this."""
    return (
        self.watermark is not None and
        self.watermark.micros >= MAX_TIMESTAMP.micros)

  def _stamp(self, timestamp) -> None:
    self._set('outputs', _stamped(self.outputs, Timestamp.now()))
    self._set('_of_the_clock', True)

  def _changed(self, **changes) -> 'PollResult[OutputT]':
    changed = dataclasses.replace(self, **changes)
    changed._set('_of_the_clock', self._of_the_clock)
    return changed

  def _set(self, name: str, value: Any) -> None:
    object.__setattr__(self, name, value)


def _gathered(outputs: Any) -> tuple:
  if (isinstance(outputs, (str, bytes, bytearray, collections.abc.Mapping)) or
      not isinstance(outputs, collections.abc.Iterable)):
    raise TypeError(
        f'outputs={outputs!r} must be an iterable of outputs. To give a single '
        'one, put it into a list.')
  return tuple(outputs)


def _stamped(outputs: tuple, timestamp: Timestamp) -> tuple:
  return tuple(
      output if isinstance(output, TimestampedValue) else TimestampedValue(
          output, timestamp) for output in outputs)


class PollFn:
  """A ``poll_fn`` with more to say; a plain function serves as well.

  Pickled with the pipeline: open connections when called, not before.
  """
  def __call__(self, element: Any) -> PollResult:
    """Looks what there is for an input.

    Called: for each input once in a ``poll_interval``; for different inputs
      possibly by several threads and processes at once. May take its time.
    Must: return a :class:`PollResult`. May raise
      :class:`~apache_beam.io.unbounded_source.RetryLater` for what will pass;
      any other exception fails the bundle.
    Not promised: that what it found is output. If the bundle fails, it is
      called again, with nothing noted of this call.
    """
    raise NotImplementedError(f'{type(self).__name__}.__call__')

  def default_output_coder(self) -> Optional[coders.Coder]:
    """The coder of the outputs; None: see ``Watch``.

    Called: once, when the pipeline is built.
    """
    return None


class NumberedPollFn(PollFn):
  """Internal: is told which poll it is, by the persisted state.

  For transforms of Beam that are made of a watch and have a budget of polls or
  a time table.
  """
  def __call__(self, element: Any) -> PollResult:
    return self.poll(element, 0, Timestamp.now())

  def poll(self, element: Any, number: int, now: Timestamp) -> PollResult:
    """Looks what there is for an input.

    Args:
      number: how many polls there were before that came to an end.
      now: by the clock of the watch.

    Raises:
      NotYet: it is not time for this poll.
    """
    raise NotImplementedError(f'{type(self).__name__}.poll')


class NotYet(RetryLater):
  """Internal: a poll that comes before its time; neither logged nor counted."""


for _class in (PollResult, PollFn):
  _class.__module__ = _PUBLIC_HOME
