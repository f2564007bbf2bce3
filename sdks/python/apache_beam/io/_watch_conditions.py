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


"""When a watch stops polling: termination conditions."""

import inspect
import numbers
from typing import Any
from typing import Union

from apache_beam import coders
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Duration
from apache_beam.utils.timestamp import Timestamp

_PUBLIC_HOME = 'apache_beam.io.watch'

# What the protocol between runner and worker can say: 10,000 years.
_MAX_SECONDS = 315576000000


def time_span(
    name: str, value: Union[int, float, Duration]) -> Duration:
  """An argument that is a time span, at least 0, checked."""
  if isinstance(value, Duration):
    checked = value
  elif isinstance(value, bool) or not isinstance(value, numbers.Real):
    raise TypeError(
        f'{name}={value!r} must be a number of seconds or a Duration.')
  elif not 0 <= value <= _MAX_SECONDS:
    checked = None
  else:
    checked = Duration.of(float(value))
  if checked is None or not 0 <= checked.micros <= _MAX_SECONDS * 1000000:
    raise ValueError(
        f'{name}={value!r} must be 0 or more, and at most 10,000 years.')
  return checked


def time_of(name: str, value: Any) -> Timestamp:
  """An argument that is a time, checked."""
  number = value
  if isinstance(value, bool):
    number = None
  elif isinstance(value, numbers.Integral):  # NumPy's too.
    number = int(value)
  elif isinstance(value, numbers.Real):
    number = float(value)
  try:
    time = Timestamp.of(number)
  except (TypeError, ValueError, OverflowError) as exc:
    kind = TypeError if isinstance(exc, TypeError) else ValueError
    raise kind(
        f'{name}={value!r} is not a time: give a Timestamp, a number of '
        'seconds or a datetime in UTC.') from exc
  if not MIN_TIMESTAMP <= time <= MAX_TIMESTAMP:
    raise ValueError(
        f'{name}={value!r} is outside of what Beam can represent. Times are '
        'in seconds.')
  return time


class TerminationCondition:
  """Says when polling for one input ends.

  A condition has no memory of its own: what it needs to know it puts into a
  state, one for each input, which is persisted with the watch. A state is an
  immutable value that :meth:`state_coder` can encode; what a hook returns is
  the state from then on.

  Called: by one thread at a time, with the time of the workers' clocks (or of
    ``now_fn``). After each poll in this order: ``on_seen_new_output`` if it
    found something new, ``on_poll_complete``, ``can_stop_polling``.
  Must: return at once, and not change a state that was given.
  Not promised: that each call counts. After a failure a round is done again,
    beginning with the last committed state; and clocks of workers differ.
  """
  def for_new_input(self, now: Timestamp, element: Any) -> Any:
    """The state that the watch of an input begins with.

    Called: once, before the first poll.
    """
    raise NotImplementedError(f'{type(self).__name__}.for_new_input')

  def on_seen_new_output(self, now: Timestamp, state: Any) -> Any:
    """Told of a poll that found at least one new output."""
    return state

  def on_poll_complete(self, state: Any) -> Any:
    """Told of every poll, whether it found something or not."""
    return state

  def can_stop_polling(self, now: Timestamp, state: Any) -> bool:
    """Whether this poll was the last. Everything that it found is output."""
    raise NotImplementedError(f'{type(self).__name__}.can_stop_polling')

  def state_coder(self) -> coders.Coder:
    """Encodes the states.

    Called: when the pipeline is built, and on workers.
    """
    raise NotImplementedError(f'{type(self).__name__}.state_coder')

  def __repr__(self) -> str:
    return f'{type(self).__name__.lstrip("_")}()'


class _EmptyCoder(coders.Coder):
  """Of states that say nothing: no bytes."""
  def encode(self, value: None) -> bytes:
    return b''

  def decode(self, encoded: bytes) -> None:
    return None

  def is_deterministic(self) -> bool:
    return True


class _Never(TerminationCondition):
  def state_coder(self):
    return _EmptyCoder()

  def can_stop_polling(self, now, state):
    return False

  def for_new_input(self, now, element):
    return None

  def __repr__(self):
    return 'never()'


class _TimestampCoder(coders.Coder):
  """A time, or None, to the microsecond: ten bytes at most."""
  def encode(self, value):
    return b'' if value is None else coders.VarIntCoder().encode(value.micros)

  def decode(self, encoded):
    if not encoded:
      return None
    return Timestamp(micros=coders.VarIntCoder().decode(encoded))

  def is_deterministic(self):
    return True


class _AfterTotalOf(TerminationCondition):
  """The state is the time when the input was seen."""
  def __init__(self, total: Duration) -> None:
    self._total = total

  def for_new_input(self, now, element):
    return now

  def can_stop_polling(self, now, state):
    return now.micros - state.micros > self._total.micros

  def state_coder(self):
    return _TimestampCoder()

  def __repr__(self):
    return f'after_total_of({self._total.micros / 1e6:g})'


class _AfterTimeSinceNewOutput(TerminationCondition):
  """The state is the time of the last poll that found something."""
  def __init__(self, span: Duration) -> None:
    self._span = span

  def for_new_input(self, now, element):
    return None

  def on_seen_new_output(self, now, state):
    return now

  def can_stop_polling(self, now, state):
    return state is not None and now.micros - state.micros > self._span.micros

  def state_coder(self):
    return _TimestampCoder()

  def __repr__(self):
    return f'after_time_since_new_output({self._span.micros / 1e6:g})'


class _AfterIterations(TerminationCondition):
  """The state is how many polls are left."""
  def __init__(self, number: int) -> None:
    self._number = number

  def for_new_input(self, now, element):
    return self._number

  def on_poll_complete(self, state):
    return state - 1

  def can_stop_polling(self, now, state):
    return state <= 0

  def state_coder(self):
    return coders.VarIntCoder()

  def __repr__(self):
    return f'after_iterations({self._number})'


class _Combined(TerminationCondition):
  """The state is the pair of those of the two."""
  def __init__(
      self, first: TerminationCondition, second: TerminationCondition) -> None:
    self._conditions = (first, second)

  def for_new_input(self, now, element):
    return tuple(c.for_new_input(now, element) for c in self._conditions)

  def on_seen_new_output(self, now, state):
    return tuple(
        c.on_seen_new_output(now, part)
        for c, part in zip(self._conditions, state))

  def on_poll_complete(self, state):
    return tuple(
        c.on_poll_complete(part) for c, part in zip(self._conditions, state))

  def _can_stop(self, now, state):
    return [
        c.can_stop_polling(now, part)
        for c, part in zip(self._conditions, state)
    ]

  def state_coder(self):
    return coders.TupleCoder([c.state_coder() for c in self._conditions])


class _EitherOf(_Combined):
  def can_stop_polling(self, now, state):
    return any(self._can_stop(now, state))

  def __repr__(self):
    return 'either_of(%r, %r)' % self._conditions


class _AllOf(_Combined):
  def can_stop_polling(self, now, state):
    return all(self._can_stop(now, state))

  def __repr__(self):
    return 'all_of(%r, %r)' % self._conditions


def never() -> TerminationCondition:
  """Polls until ``poll_fn`` says that its list is complete."""
  return _Never()


def after_total_of(
    duration: Union[int, float, Duration]) -> TerminationCondition:
  """Stops with the first poll that ends more than this after the input came.

  Args:
    duration: seconds or a ``Duration``.
  """
  return _AfterTotalOf(time_span('duration', duration))


def after_time_since_new_output(
    duration: Union[int, float, Duration]) -> TerminationCondition:
  """Stops when polls found nothing new for more than this.

  Until there was a first output it does not stop; combine it with
  :func:`after_total_of` where there may be none.

  Args:
    duration: seconds or a ``Duration``.
  """
  return _AfterTimeSinceNewOutput(time_span('duration', duration))


def after_iterations(number: int) -> TerminationCondition:
  """Stops after so many polls; at least 1.

  A poll that raised ``RetryLater`` does not count.
  """
  if isinstance(number, bool) or not isinstance(number, int):
    raise TypeError(f'number={number!r} must be an int.')
  if not 1 <= number < 1 << 63:
    raise ValueError(f'number={number!r} must be 1 or more, below 2**63.')
  return _AfterIterations(number)


def either_of(
    first: TerminationCondition,
    second: TerminationCondition) -> TerminationCondition:
  """Stops when at least one of two conditions would."""
  return _EitherOf(checked('first', first), checked('second', second))


def all_of(
    first: TerminationCondition,
    second: TerminationCondition) -> TerminationCondition:
  """Stops when both of two conditions would, after the same poll."""
  return _AllOf(checked('first', first), checked('second', second))


def checked(name: str, condition: Any) -> TerminationCondition:
  """An argument that is a condition."""
  if isinstance(condition, TerminationCondition):
    return condition
  hint = (
      ' Give an instance, not the class.' if isinstance(condition, type) and
      issubclass(condition, TerminationCondition) else ' Call the function.'
      if inspect.isroutine(condition) else '')
  raise TypeError(f'{name}={condition!r} is not a TerminationCondition.{hint}')


TerminationCondition.__module__ = _PUBLIC_HOME
