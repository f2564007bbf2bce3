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

"""One schedule, run over one fresh input, against a model.

The model is the list of expected records and how many of them were committed.
What a step shows to be wrong is told by the name of the property it breaks;
that records are missing or come twice, by the name that the caller gives.
"""

import time
from typing import Any
from typing import Callable
from typing import Optional
from typing import Sequence

from apache_beam.io.unbounded_source import UnboundedReader
from apache_beam.io.unbounded_source import UnboundedSource
from apache_beam.testing._unbounded_hints import Hints
from apache_beam.testing._unbounded_marks import Marks
from apache_beam.testing._unbounded_properties import listed
from apache_beam.testing._unbounded_properties import show
from apache_beam.testing._unbounded_script import ScriptedError
from apache_beam.testing._unbounded_world import Stuck
from apache_beam.testing._unbounded_world import Task
from apache_beam.testing._unbounded_world import World
from apache_beam.testing._unbounded_world import wait_until

try:
  from apache_beam.io.unbounded_source import RetryLater
  PLANNED: tuple[type[Exception], ...] = (ScriptedError, RetryLater)
except ImportError:  # Another release's module.
  PLANNED = (ScriptedError, )

_MAX_PLANNED_IN_A_ROW = 10


def _directly(function: Callable[[], Any]) -> Any:
  return function()


class LeftOut(Exception):
  """A property that was left out is broken, and there is no going on."""


class Run:
  """See the head of the module.

  Args:
    source: what to read, of the world's.
    blame: the property that is broken if records are missing or repeated.
    call: makes the calls to the reader.

  Attributes:
    steps: the schedule so far.
    marks: those of the run.
    reader: the one that is open.
    lives: how many readers there were.
    hints: what readers say besides records.
    values: the records as they came, whichever reader gave them.
  """
  def __init__(
      self,
      world: World,
      source: UnboundedSource,
      blame: str,
      call: Callable[[Callable[[], Any]], Any] = _directly) -> None:
    self.world = world
    self.task: Task = world.task
    self.source = source
    self.steps: list[str] = []
    self.lives = 0
    self.values: list[Any] = []
    self._blame = blame
    self._call = call
    self._expected = list(self.task.expected)
    self._pending: list[Any] = []  # Read since the last mark.
    self._own: list[Any] = []  # Given by the reader that is open.
    self._seen: list[Any] = []  # Given by any.
    self._errors_in_a_row = 0
    self.marks = Marks(self)
    self.hints = Hints(self)
    self._open()

  # -- Steps ------------------------------------------------------------------

  def run(self, steps: Sequence[str]) -> 'Run':
    """Does the steps, reads what is left, and closes."""
    for step in steps:
      self.step(step)
    self.read_on()
    self.close()
    left_open = self.world.left_open()
    if left_open:
      self.broken(
          'closing',
          f'{len(self.world.opened)} readers were opened; '
          f'{len(left_open)} of them, each a {type(left_open[0]).__name__}, '
          'were not closed by whoever opened them.')
    return self

  def step(self, step: str) -> None:
    """Does a step; if it makes no sense by now, nothing."""
    self.steps.append(step)
    if step == 'advance':
      if self.left():
        self._read_one()
    elif step == 'idle':
      self.read_on()
    elif step == 'append':
      self._expected.append(self.task.append(self.world.source))
    elif step == 'mark':
      self._cut()
    elif step == 'crash':
      self._reopen()
    elif step == 'close':
      if not self._pending:
        self.marks.commit()
        self._reopen()
    elif step.startswith('finalize'):
      self.marks.commit()
      self.marks.finalize(step)
    else:
      raise ValueError(f'{step!r} is no step')
    self.marks.look_after(step)

  def left(self) -> list[Any]:
    """The expected records that are neither committed nor read since."""
    left = list(self._expected)
    for record in self._read():
      if record in left:
        left.remove(record)
    return left

  def _read(self) -> list[Any]:
    last = self.marks.newest or self.marks.committed
    return (last.covers if last else []) + self._pending

  def read_on(self) -> None:
    """Reads all that is left, and then finds nothing."""
    for _ in range(10 * len(self._expected) + 10):
      while self.left():
        self._read_one()
      if self._advance():
        self._take()
      elif not self.left():  # There is, if it crashed.
        break
    else:
      self.broken(self._blame, 'Records come again and again, without an end.')
    self.hints.watermark_reported(bool(self._pending))
    self.hints.backlog_asked(idle=True)

  def poll(self) -> list[Any]:
    """The next record, if one is there, whether due or not; commits it."""
    if not self._advance():
      return []
    record = self.task.key(self.ask(self._blame, self.reader.get_current))
    self._own.append(record)
    self._pending.append(record)
    self._cut()
    self.marks.commit()
    return [record]

  def _cut(self) -> None:
    if self._pending:
      records, self._pending = self._pending, []
      self.marks.cut(records, self._own, self.hints.watermark)

  def close(self) -> None:
    self.ask('closing', self.reader.close)

  def reopen_here(self) -> None:
    """Commits what was read, and opens another reader behind it."""
    self._cut()
    self.marks.commit()
    self._reopen()

  # -- Reading ----------------------------------------------------------------

  def _open(self) -> None:
    mark = self.marks.decode_committed()
    if mark is not None:
      self.task.resumes += 1
    self.reader = self.ask(
        self._blame, lambda: self._create_reader(mark), 'create_reader')
    if not isinstance(self.reader, UnboundedReader):
      self.broken(
          self._blame,
          f'create_reader() gave a {type(self.reader).__name__}, which is no '
          'UnboundedReader.')
    self.task.name(UnboundedReader, self.reader)
    self._started = False
    self.lives += 1
    self._own = []
    self.hints.opened()

  def _create_reader(self, mark: Any) -> Any:
    for _ in range(_MAX_PLANNED_IN_A_ROW):
      try:
        return self.source.create_reader(self.task.options, mark)
      except PLANNED as exc:
        time.sleep(min(getattr(exc, 'seconds', 0.0), 0.1))
    return self.source.create_reader(self.task.options, mark)

  def _reopen(self) -> None:
    """Loses what was not committed, and goes on behind what was."""
    self.close()
    self._pending = []
    self.marks.lose_uncommitted()
    self._open()

  def _read_one(self) -> None:
    """Reads the next record, which is due."""
    if wait_until(self._advance, self.task.patience_seconds):
      self._take()
    else:
      self.broken(
          self._blame,
          f'{listed(self.left())} did not come within '
          f'{self.task.patience_seconds:g} s. Read so far: '
          f'{listed(self._read())}.')

  def _advance(self) -> bool:
    begun = time.monotonic()
    name = 'advance' if self._started else 'start'
    method = self.reader.advance if self._started else self.reader.start
    self._started = True
    try:
      there = self._call(method)
    except Stuck as exc:
      self.stuck(name, exc)
    except PLANNED as exc:
      # As on a runner: closed, resumed behind the last mark.
      self._errors_in_a_row += 1
      if self._errors_in_a_row > _MAX_PLANNED_IN_A_ROW:
        self.broken(
            self._blame, f'{name}() raised {exc!r}, and again each time.', exc)
      self._reopen()
      return False
    except Exception as exc:  # pylint: disable=broad-except
      self.broken(self._blame, f'{name}() raised {exc!r}.', exc)
    self._errors_in_a_row = 0
    seconds = time.monotonic() - begun
    if name == 'advance' and seconds > self.task.max_advance_seconds:
      self.broken(
          'no-blocking',
          f'advance() took {seconds:.2f} s; the bound is '
          f'{self.task.max_advance_seconds:g} s.')
    if not isinstance(there, bool):
      self.broken(
          self._blame, f'{name}() returned {there!r}, not True or False.')
    return there

  def _take(self) -> None:
    """Notes the record that is current."""
    value = self.ask(self._blame, self.reader.get_current)
    timestamp = self.ask('watermark', self.reader.get_current_timestamp)
    record = self.task.key(value)
    self.task.records += 1
    left = self.left()
    if record not in left and (self.task.replays or
                               record not in self._expected):
      again = ' a second time' if record in self._expected else ''
      due = f'{listed(left)} is still to come' if left else 'all was read'
      self.broken(self._blame, f'{record!r} came{again}, where {due}.')
    # One that is delivered again cannot come before it was promised away.
    first_time = self.task.replays or record not in self._seen
    if self.task.ordered and first_time and left and record != left[0]:
      if self.task.replays or self.lives == 1:
        self.broken(
            self._blame,
            f'{record!r} came, where {left[0]!r} is next. (ordered=False, if '
            'the source has no order.)')
    self.hints.record_came(record, timestamp, first_time)
    self._seen.append(record)
    self.values.append(value)
    self._own.append(record)
    self._pending.append(record)
    # What is delivered again may be in it.
    self.hints.backlog_asked(idle=self.task.replays and not self.left())
    self.hints.watermark_reported(has_unmarked=True)

  # -- Telling ----------------------------------------------------------------

  def ask(
      self,
      property: str,
      function: Callable[[], Any],
      name: Optional[str] = None) -> Any:
    """Calls what the author wrote; that it raises breaks a property."""
    name = name or function.__name__
    try:
      return self._call(function)
    except Stuck as exc:
      self.stuck(name, exc)
    except Exception as exc:  # pylint: disable=broad-except
      # Also if the property is left out: there is nothing to go on with.
      raise self.task.error(
          property, f'{name}() raised {exc!r}.', self.steps) from exc

  def stuck(self, what: str, error: Stuck) -> None:
    raise self.task.error(
        'no-blocking', f'{what}() did not return: {error}.', self.steps)

  def broken(
      self,
      property: str,
      seen: str,
      cause: Optional[BaseException] = None) -> None:
    """Tells, unless the property was left out."""
    if property not in self.task.leave_out:
      raise self.task.error(property, seen, self.steps) from cause
    if property == self._blame:
      raise LeftOut(property)

  def __repr__(self) -> str:
    return f'Run({show(self.steps)})'

