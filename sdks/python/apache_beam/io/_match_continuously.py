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


"""MatchContinuously with deduplication: a watch of the files of a pattern.

Purpose: ``fileio.MatchContinuously`` polls by the ``Watch`` that
  :func:`watch_files` makes. :class:`TimeTable` says when, :class:`FilePolls`
  looks.
Guarantees:
  * No poll comes before its time. Polls come once an interval and may be late;
    those that were missed are made up for.
  * Polling ends by the clock: with the last tick before the stop, or with the
    first poll that is later than the stop.
  * How many polls there were is in the state of the watch; nothing is kept
    here. A restarted job goes on where it was.
  * A clock that is set back by more than an interval does not stop the polls.
"""

import dataclasses
import time
from typing import Any
from typing import Callable
from typing import Iterable
from typing import Optional

import apache_beam as beam
from apache_beam import coders
from apache_beam.io._watch_conditions import time_of
from apache_beam.io._watch_conditions import time_span
from apache_beam.io._watch_cursor import CLOCK_SKEW
from apache_beam.io._watch_poll import NotYet
from apache_beam.io._watch_poll import NumberedPollFn
from apache_beam.io._watch_poll import PollResult
from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.watch import Watch
from apache_beam.transforms.window import FixedWindows
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

# Those of fileio.EmptyMatchTreatment, which imports this module.
_TREATMENTS = ('ALLOW', 'DISALLOW', 'ALLOW_IF_WILDCARD')


@dataclasses.dataclass(frozen=True)
class TimeTable:
  """When to poll: at each tick of [start, stop); times in microseconds.

  Polls are numbered from 0. Number n is due at tick n. The clock is given.
  """
  start: int
  stop: int
  interval: int

  @property
  def ticks(self) -> int:
    """How many there are."""
    return max(0, -((self.start - self.stop) // self.interval))

  def due(self, number: int) -> int:
    """The tick of a poll; beyond the last, the last."""
    return self.start + min(number, self.ticks - 1) * self.interval

  def early(self, number: int, now: int) -> int:
    """How long to wait before a poll; 0: it is due.

    A poll that comes an interval after the last one cannot be further ahead of
    the clock than another interval, unless the clock was set back. Then it is
    made: what a clock does must not make files wait for an hour.
    """
    early = max(0, self.due(number) - now)
    return 0 if number and early > self.interval else early

  def is_last(self, number: int, now: int) -> bool:
    """Whether nothing follows a poll that begins now."""
    if now >= self.stop:
      # One late poll finds all that several would. It is the second at least,
      # for what is written because of what the first one found.
      return number > 0 or self.ticks <= 1
    return number >= self.ticks - 1 and now >= self.due(number)

  def pause(self, number: int, now: int) -> int:
    """How long to wait after a poll."""
    return min(max(0, self.due(number + 1) - now), self.interval)


class FilePolls(NumberedPollFn):
  """Lists the files of a pattern; the pattern is the input.

  Args:
    match: lists the files of a pattern.
    by_time: whether the event time of a file is its modification time; else it
      is the tick of the poll.
    lateness: how far behind the newest file others may be, in microseconds.
  """
  def __init__(
      self,
      match: Callable[[str], Iterable[FileMetadata]],
      table: TimeTable,
      by_time: bool,
      lateness: int) -> None:
    self._match = match
    self._table = table
    self._by_time = by_time
    self._lateness = lateness

  def poll(self, element: str, number: int, now: Timestamp) -> PollResult:
    table = self._table
    if not table.ticks:
      return PollResult.complete(())
    early = table.early(number, now.micros)
    if early:
      raise NotYet(early / 1e6)
    begin = time.monotonic()
    files = self._match(element)
    outputs: Iterable[Any]
    if self._by_time:
      outputs, watermark = self._by_modification(files, now.micros)
    else:
      tick = Timestamp(micros=table.due(number))
      outputs = [TimestampedValue(file, tick) for file in files]
      # What a later poll finds gets the time of that one.
      watermark = table.due(number + 1)
    if table.is_last(number, now.micros):
      return PollResult.complete(outputs)
    took = round((time.monotonic() - begin) * 1e6)
    return PollResult(
        outputs,
        None if watermark is None else Timestamp(micros=watermark),
        table.pause(number, now.micros + took) / 1e6)

  def default_output_coder(self) -> coders.Coder:
    return coders.registry.get_coder(FileMetadata)

  def _by_modification(self, files: Iterable[FileMetadata], now: int):
    """Files at their modification times, and a watermark.

    The watch drops what is behind the newest by more than the lateness, so the
    watermark may be there. Like its cursor it leaves out times that lie in the
    future.
    """
    outputs = [
        TimestampedValue(file, Timestamp.of(modified(file))) for file in files
    ]
    newest: Optional[int] = max(
        (micros for micros in (output.timestamp.micros for output in outputs)
         if micros <= now + CLOCK_SKEW),
        default=None)
    return outputs, None if newest is None else newest - self._lateness


def modified(file: FileMetadata) -> float:
  """The modification time of a file, in seconds.

  Raises:
    ValueError: if its file system does not tell.
  """
  seconds = file.last_updated_in_seconds
  if not seconds:
    raise ValueError(
        f'The file system gives no modification time for {file.path}. '
        'MatchContinuously needs one with match_updated_files or '
        'timestamp_cursor: turn them off, or keep this file out of the '
        'pattern.')
  return float(seconds)


def path_of(file: FileMetadata) -> str:
  return file.path


def version_of(file: FileMetadata) -> str:
  """What tells a file from others and from itself before it was changed."""
  # A number has no space, so that no two pairs make the same text.
  return f'{modified(file)!r} {file.path}'


def check(
    file_pattern: Any,
    interval: Any,
    has_deduplication: bool,
    start_timestamp: Any,
    stop_timestamp: Any,
    empty_match_treatment: Any,
    timestamp_cursor: Any,
    allowed_lateness: Any) -> None:
  """Raises TypeError or ValueError, naming an argument that cannot be."""
  if not isinstance(file_pattern, str):
    raise TypeError(f'file_pattern={file_pattern!r} must be a str.')
  if not file_pattern:
    raise ValueError('file_pattern is empty: no file could ever match.')
  try:
    positive = time_span('interval', interval).micros > 0
  except ValueError:
    positive = False
  if not positive:
    raise ValueError(
        f'interval={interval!r} must be more than 0, and at most 10,000 years.')
  time_of('start_timestamp', start_timestamp)
  time_of('stop_timestamp', stop_timestamp)
  if empty_match_treatment not in _TREATMENTS:
    raise ValueError(
        f'empty_match_treatment={empty_match_treatment!r} must be one of '
        f'EmptyMatchTreatment: {", ".join(_TREATMENTS)}.')
  if not isinstance(timestamp_cursor, bool):
    raise TypeError(f'timestamp_cursor={timestamp_cursor!r} must be a bool.')
  if timestamp_cursor and not has_deduplication:
    raise ValueError(
        'timestamp_cursor=True bounds what deduplication remembers; it needs '
        'has_deduplication=True.')
  lateness = time_span('allowed_lateness', allowed_lateness)
  if lateness.micros and not timestamp_cursor:
    raise ValueError(
        f'allowed_lateness={allowed_lateness!r} says how far behind the newest '
        'file others may be; it needs timestamp_cursor=True.')


def watch_files(
    match: Callable[[str], Iterable[FileMetadata]],
    interval: Any,
    start_timestamp: Any,
    stop_timestamp: Any,
    match_updated_files: bool,
    timestamp_cursor: bool,
    allowed_lateness: Any,
    now_fn: Optional[Callable[[], float]] = None) -> Watch:
  """From patterns to pairs of a pattern and a file, each once.

  Args:
    match: lists the files of a pattern, or raises.
    interval: this and what follows as for MatchContinuously.
    now_fn: for tests: the clock.
  """
  table = TimeTable(
      time_of('start_timestamp', start_timestamp).micros,
      time_of('stop_timestamp', stop_timestamp).micros,
      time_span('interval', interval).micros)
  lateness = time_span('allowed_lateness', allowed_lateness)
  by_version = match_updated_files or timestamp_cursor
  return Watch(
      FilePolls(match, table, timestamp_cursor, lateness.micros),
      interval,
      output_key_fn=version_of if by_version else path_of,
      output_key_coder=coders.StrUtf8Coder(),
      timestamp_cursor=timestamp_cursor,
      allowed_lateness=lateness,
      now_fn=now_fn)


def match_files(
    pbegin, file_pattern: str, apply_windowing: bool, interval: float,
    watch: Watch) -> beam.PCollection[FileMetadata]:
  """What MatchContinuously is with deduplication."""
  files = (
      pbegin
      | 'Pattern' >> beam.Create([file_pattern])
      | 'Watch' >> watch
      | 'File' >> beam.Values().with_output_types(FileMetadata))
  if apply_windowing:
    files = files | beam.WindowInto(FixedWindows(interval))
  return files
