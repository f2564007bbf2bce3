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

"""A source that gives what a script says."""

import dataclasses
import itertools
import threading
import uuid
from typing import Any
from typing import Iterable
from typing import Optional
from typing import Union

from apache_beam import coders
from apache_beam.io.unbounded_source import CheckpointMark
from apache_beam.io.unbounded_source import UnboundedReader
from apache_beam.io.unbounded_source import UnboundedSource
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp


class ScriptedError(Exception):
  """What a :class:`Crash` raises, unless it says otherwise."""


class Records:
  """Records that are there at once, one after the other.

  Args:
    values: a ``TimestampedValue`` has its own event time. The others are a
      second apart: the first record of a script is at 0, the next at 1.
  """
  def __init__(self, *values: Any) -> None:
    self.values = values

  def __repr__(self) -> str:
    return f'Records({", ".join(map(repr, self.values))})'


class Idle:
  """Nothing is there, for as many polls."""
  def __init__(self, polls: int = 1) -> None:
    if isinstance(polls, bool) or not isinstance(polls, int) or polls < 1:
      raise ValueError(f'Idle({polls!r}): polls must be an int, 1 or more.')
    self.polls = polls

  def __repr__(self) -> str:
    return f'Idle({self.polls})'


class Crash:
  """The reader raises, once; what follows is read when reading is resumed.

  FnApiRunner and Prism do not run a bundle again, so there the job fails. To
  go on there, give it a ``RetryLater``.

  Args:
    error: what to raise; None: a :class:`ScriptedError`.
  """
  def __init__(self, error: Optional[Exception] = None) -> None:
    if error is not None and not isinstance(error, Exception):
      raise TypeError(f'Crash({error!r}): error must be an exception.')
    self.error = error

  def __repr__(self) -> str:
    return f'Crash({"" if self.error is None else repr(self.error)})'


class End:
  """Nothing will ever follow; the watermark goes to the end of time."""
  def __repr__(self) -> str:
    return 'End()'


Step = Union[Records, Idle, Crash, End]


class _Nothing:
  """One poll that finds nothing."""


class ScriptedSource(UnboundedSource):
  """Gives what a script says, for tests of pipelines and of runners::

    from apache_beam.testing.unbounded_source import Crash
    from apache_beam.testing.unbounded_source import End
    from apache_beam.testing.unbounded_source import Idle
    from apache_beam.testing.unbounded_source import Records
    from apache_beam.testing.unbounded_source import ScriptedSource

    ScriptedSource([Records('a', 'b'), Idle(3), Crash(), Records('c'), End()])

  It keeps all promises of a source. Each poll that finds nothing has its place
  in the script, so a reader that resumes goes on at the very step. A crash
  comes once for a source (once in each worker process, if there are several),
  also if reading resumes before it.

  The watermark is the least event time of what is still to come. Behind the
  last record it stays until the ``End``; without one, the source stays open,
  and its watermark follows the clock.

  Args:
    script: its steps, in order; an ``End`` can only be the last.
  """
  def __init__(self, script: Iterable[Step]) -> None:
    self._script = list(script)
    self._name = uuid.uuid4().hex
    self._steps: list[Any] = []
    seconds = itertools.count()
    for number, step in enumerate(self._script):
      if isinstance(step, Records):
        for value in step.values:
          at = next(seconds)
          self._steps.append(
              value if isinstance(value, TimestampedValue) else
              TimestampedValue(value, at))
      elif isinstance(step, Idle):
        self._steps += [_Nothing()] * step.polls
      elif isinstance(step, (Crash, End)):
        self._steps.append(step)
      else:
        raise TypeError(
            f'script[{number}]={step!r} is no step. Give Records(...), '
            'Idle(...), Crash() or End(); these are instances, not classes.')
      if isinstance(step, End) and number < len(self._script) - 1:
        raise ValueError(
            f'script[{number}] is an End(), but '
            f'{self._script[number + 1]!r} follows.')

  def acknowledged(self) -> list[Any]:
    """The values up to the furthest mark that was finalized.

    Only what this process saw: call it where the pipeline's workers run.
    """
    return [
        step.value
        for step in self._steps[:_PROCESS.acknowledged(self._name)]
        if isinstance(step, TimestampedValue)
    ]

  def split(self, desired_num_splits, options=None):
    return [self]

  def create_reader(self, options, checkpoint_mark):
    return _ScriptReader(
        self, 0 if checkpoint_mark is None else checkpoint_mark.position)

  def get_checkpoint_mark_coder(self):
    return _ScriptMarkCoder(self._name)

  def get_total_backlog_bytes(self, options):
    return self._bytes_from()[0]

  def _bytes_from(self) -> list[int]:
    """How many bytes of records there are from each position."""
    coder = self.default_output_coder()
    sizes = [
        max(coder.estimate_size(step.value), 1)
        if isinstance(step, TimestampedValue) else 0 for step in self._steps
    ]
    return list(itertools.accumulate(reversed(sizes), initial=0))[::-1]

  def _watermarks_at(self) -> list[Optional[Timestamp]]:
    """The watermark at each position; None where it follows the clock."""
    times = [
        step.timestamp for step in self._steps
        if isinstance(step, TimestampedValue)
    ]
    ends = bool(self._steps) and isinstance(self._steps[-1], End)
    least = max(times, default=MIN_TIMESTAMP) if ends else None
    watermarks = [least]
    left = len(times)
    for step in reversed(self._steps):
      if isinstance(step, TimestampedValue):
        at = step.timestamp
        least = at if left == len(times) else min(least, at)
        left -= 1
      watermarks.append(MAX_TIMESTAMP if isinstance(step, End) else least)
    return watermarks[::-1]

  def __repr__(self) -> str:
    return f'ScriptedSource({self._script!r})'


class _ScriptReader(UnboundedReader):
  def __init__(self, source: ScriptedSource, position: int) -> None:
    self._source = source
    self._position = position
    self._watermarks = source._watermarks_at()
    self._bytes = source._bytes_from()
    self._current: Optional[TimestampedValue] = None

  def start(self) -> bool:
    return self.advance()

  def advance(self) -> bool:
    steps = self._source._steps
    self._current = None
    while self._position < len(steps):
      step = steps[self._position]
      if isinstance(step, End):
        return False
      self._position += 1
      if isinstance(step, TimestampedValue):
        self._current = step
        return True
      if isinstance(step, _Nothing):
        return False
      if _PROCESS.is_first_crash(self._source._name, self._position):
        raise step.error or ScriptedError(
            f'The script says so, at step {self._position} of {len(steps)}.')
    return False

  def get_current(self) -> Any:
    return self._current.value

  def get_current_timestamp(self) -> Timestamp:
    return self._current.timestamp

  def get_watermark(self) -> Timestamp:
    watermark = self._watermarks[self._position]
    if watermark is None:
      known = [one for one in self._watermarks if one is not None]
      watermark = max([Timestamp.now(), *known])
    return watermark

  def get_split_backlog_bytes(self) -> int:
    return self._bytes[self._position]

  def get_checkpoint_mark(self) -> CheckpointMark:
    return _ScriptMark(self._source._name, self._position)


@dataclasses.dataclass(frozen=True)
class _ScriptMark(CheckpointMark):
  """How many steps were done, polls that found nothing included."""
  name: str
  position: int

  def finalize_checkpoint(self) -> None:
    _PROCESS.acknowledge(self.name, self.position)


class _ScriptMarkCoder(coders.Coder):
  """The position as 8 bytes; the name goes with the source."""
  def __init__(self, name: str) -> None:
    self._name = name

  def encode(self, value: _ScriptMark) -> bytes:
    return value.position.to_bytes(8, 'big')

  def decode(self, encoded: bytes) -> _ScriptMark:
    return _ScriptMark(self._name, int.from_bytes(encoded, 'big'))

  def is_deterministic(self) -> bool:
    return True


class _Process:
  """What happened to scripts in this process, across pickles of the sources."""
  def __init__(self) -> None:
    self._lock = threading.Lock()
    self._crashes: set[tuple[str, int]] = set()
    self._acknowledged: dict[str, int] = {}

  def is_first_crash(self, name: str, position: int) -> bool:
    with self._lock:
      if (name, position) in self._crashes:
        return False
      self._crashes.add((name, position))
      return True

  def acknowledge(self, name: str, position: int) -> None:
    with self._lock:
      self._acknowledged[name] = max(
          position, self._acknowledged.get(name, 0))

  def acknowledged(self, name: str) -> int:
    return self._acknowledged.get(name, 0)


_PROCESS = _Process()
