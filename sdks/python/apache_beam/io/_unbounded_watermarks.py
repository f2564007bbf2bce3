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

"""Watermarks that follow from what a reader has seen.

Purpose: to say which time no future record lies before, from the timestamps of
  those that were read, for sources that are in order, nearly so, or idle.
Guarantees: values never go back. None of them is ``MAX_TIMESTAMP``, which would
  end the split: that is for the reader to say, not for a record's timestamp.
Threads: the one that reads. There is no lock and no clock; the time is an
  argument.
"""

import math
from typing import Any

from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

_MIN_MICROS = MIN_TIMESTAMP.micros
_LAST_MICROS = MAX_TIMESTAMP.micros - 1


class MonotonicWatermark:
  """For sources whose timestamps never go back: the latest one::

    from apache_beam.io.unbounded_source import MonotonicWatermark
    from apache_beam.utils.timestamp import Timestamp

    watermark = MonotonicWatermark()
    watermark.observe(Timestamp(20))
    watermark.observe(Timestamp(20))
    assert watermark.value() == Timestamp(20)

  Args:
    initial: the value before anything was observed. A reader that goes on after
      a mark need not restore it: the wrapper keeps the last value.
  """
  def __init__(self, initial: Timestamp = MIN_TIMESTAMP) -> None:
    self._micros = _micros('initial', initial)

  def observe(self, timestamp: Timestamp) -> None:
    """Notes the timestamp of a record that became current."""
    try:
      micros = timestamp.micros
    except AttributeError:
      micros = _micros('timestamp', timestamp)
    if micros > self._micros:
      self._micros = micros

  def value(self) -> Timestamp:
    """The watermark."""
    return _timestamp(self._micros)


class OutOfOrdernessWatermark:
  """For sources where a record may come some time after later ones::

    from apache_beam.io.unbounded_source import OutOfOrdernessWatermark
    from apache_beam.utils.timestamp import Timestamp

    watermark = OutOfOrdernessWatermark(max_delay_seconds=5)
    watermark.observe(Timestamp(20))
    watermark.observe(Timestamp(17))
    assert watermark.value() == Timestamp(15)

  A record that is further behind than that is late. One whose timestamp lies
  in the far future makes all that follow late: where the clocks of producers
  cannot be trusted, let the record's timestamp be at most the current time.

  Args:
    max_delay_seconds: how far behind the latest record another may be; 0 or
      more.
  """
  def __init__(self, max_delay_seconds: float) -> None:
    self._delay = _seconds('max_delay_seconds', max_delay_seconds)
    self._latest = _MIN_MICROS

  def observe(self, timestamp: Timestamp) -> None:
    """Notes the timestamp of a record that became current."""
    try:
      micros = timestamp.micros
    except AttributeError:
      micros = _micros('timestamp', timestamp)
    if micros > self._latest:
      self._latest = micros

  def value(self) -> Timestamp:
    """The watermark: the latest timestamp less the delay."""
    return _timestamp(self._latest - self._delay)


class IdleWatermark:
  """Lets a watermark follow the clock while there is nothing to read::

    from apache_beam.io.unbounded_source import IdleWatermark
    from apache_beam.io.unbounded_source import OutOfOrdernessWatermark
    from apache_beam.utils.timestamp import Timestamp

    watermark = IdleWatermark(
        OutOfOrdernessWatermark(max_delay_seconds=5), slack_seconds=30)
    watermark.observe(Timestamp(1000))
    now = Timestamp(2000)
    assert watermark.value(now, caught_up=False) == Timestamp(995)
    assert watermark.value(now, caught_up=True) == Timestamp(1970)
    # It does not go back when something comes.
    watermark.observe(Timestamp(1980))
    assert watermark.value(now, caught_up=False) == Timestamp(1975)

  Without that, a partition where nothing happens, or never did, holds back
  every window of the pipeline. But nothing to read *now* is not enough: a
  consumer that was cut off from its broker, and reads on after an hour, would
  find all that was written in that hour late.

  Args:
    inner: what the watermark is while there are records: one of the others, or
      an object with their two methods.
    slack_seconds: how long a record may take from its event to this reader; 0
      or more. That includes the time that one poll takes, and the difference
      of the clocks.
  """
  def __init__(self, inner: Any, slack_seconds: float) -> None:
    if isinstance(inner, (type, IdleWatermark)) or not (
        callable(getattr(inner, 'observe', None)) and
        callable(getattr(inner, 'value', None))):
      raise TypeError(
          f'inner={inner!r} is not a watermark to be made idle. An '
          'OutOfOrdernessWatermark(max_delay_seconds) would be one.')
    self._inner = inner
    self._slack = _seconds('slack_seconds', slack_seconds)
    self._reported = _MIN_MICROS

  def observe(self, timestamp: Timestamp) -> None:
    """Notes the timestamp of a record that became current."""
    self._inner.observe(timestamp)

  def value(self, now: Timestamp, caught_up: bool) -> Timestamp:
    """The watermark at a time.

    Args:
      now: the current time.
      caught_up: whether it is known that the reader has given all there is:
        the system said so (no lag, the end of the log), and nothing is
        buffered.
    """
    if not isinstance(caught_up, bool):
      raise TypeError(
          f'caught_up={caught_up!r} must be a bool: whether all was read. For '
          'a backlog that is caught_up=backlog == 0.')
    micros = _micros('inner.value()', self._inner.value())
    if caught_up:
      micros = max(micros, _micros('now', now) - self._slack)
    if micros > self._reported:
      self._reported = micros
    return _timestamp(self._reported)


def _timestamp(micros: int) -> Timestamp:
  return Timestamp(micros=min(max(micros, _MIN_MICROS), _LAST_MICROS))


def _micros(name: str, timestamp: Any) -> int:
  if not isinstance(timestamp, Timestamp):
    raise TypeError(
        f'{name}={timestamp!r} must be a Timestamp: Timestamp(seconds), '
        'Timestamp(micros=…) or Timestamp.from_utc_datetime(…).')
  return timestamp.micros


def _seconds(name: str, seconds: Any) -> int:
  """Microseconds of an argument in seconds."""
  if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
    raise TypeError(f'{name}={seconds!r} must be a number of seconds.')
  if not 0 <= seconds < math.inf:
    raise ValueError(
        f'{name}={seconds!r} must be a number of seconds, 0 or more.')
  return round(seconds * 1_000_000)
