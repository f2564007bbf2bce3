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

"""What a check of a source is given, and one fresh input for each schedule."""

import contextlib
import dataclasses
import functools
import sys
import threading
import time
import traceback
from typing import Any
from typing import Callable
from typing import Iterable
from typing import Iterator
from typing import Mapping
from typing import Optional
from typing import Sequence

from apache_beam.io.unbounded_source import UnboundedReader
from apache_beam.io.unbounded_source import UnboundedSource
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing._unbounded_properties import ConformanceError


@dataclasses.dataclass
class Task:
  """The arguments of ``check_unbounded_source``, and what was done so far.

  Attributes:
    worlds: how many inputs were made.
    records: how many records were read.
    resumes: how many readers were opened with a mark.
    marks: how many marks were cut.
    finalized: how many marks were finalized.
    names: the classes that are checked, by the class that each is one of.
  """
  make_source: Callable[[], Any]
  expected: Sequence[Any]
  key: Callable[[Any], Any]
  ordered: bool
  replays: bool
  acked: Optional[Callable[[UnboundedSource], Iterable[Any]]]
  append: Optional[Callable[[UnboundedSource], Any]]
  options: PipelineOptions
  schedules: int
  max_advance_seconds: float
  patience_seconds: float
  leave_out: Mapping[str, str]
  worlds: int = 0
  records: int = 0
  resumes: int = 0
  marks: int = 0
  finalized: int = 0
  names: dict[str, str] = dataclasses.field(default_factory=dict)

  def name(self, what: type, checked: Any) -> None:
    """Notes what the author calls their class, for errors."""
    self.names[what.__name__] = type(checked).__name__

  def error(self, property: str, seen: str, schedule=()) -> ConformanceError:
    return ConformanceError(property, seen, schedule, self.names)


class World:
  """An input that nobody has read yet, and the readers that are opened on it.

  Attributes:
    source: what ``make_source`` gave.
    opened: the readers that it opened, for whomever; see :meth:`watch`.
    closed: those that were closed.
  """
  def __init__(
      self, task: Task, source: UnboundedSource,
      stack: contextlib.ExitStack) -> None:
    self.task = task
    self.source = source
    self.opened: list[UnboundedReader] = []
    self.closed: list[UnboundedReader] = []
    self._stack = stack
    self._patched: set[tuple[type, str]] = set()

  def watch(self, source: UnboundedSource) -> UnboundedSource:
    """Notes the readers that sources of this class open, also for themselves.

    The class is patched, as a source may copy itself. Until the world ends,
    such sources are not to be pickled.
    """
    def create_reader(original):
      def watched(this, options, checkpoint_mark):
        reader = original(this, options, checkpoint_mark)
        if isinstance(reader, UnboundedReader):
          if not any(reader is one for one in self.opened):
            self.opened.append(reader)
          self._patch(type(reader), 'close', close)
        return reader

      return watched

    def close(original):
      def watched(this):
        self.closed.append(this)
        return original(this)

      return watched

    self._patch(type(source), 'create_reader', create_reader)
    return source

  def _patch(self, cls: type, name: str, wrap: Callable) -> None:
    if (cls, name) in self._patched:
      return
    self._patched.add((cls, name))
    wrapped = functools.wraps(getattr(cls, name))(wrap(getattr(cls, name)))
    if name in cls.__dict__:
      self._stack.callback(setattr, cls, name, cls.__dict__[name])
    else:
      self._stack.callback(delattr, cls, name)
    setattr(cls, name, wrapped)

  def left_open(self) -> list[UnboundedReader]:
    return [
        reader for reader in self.opened
        if not any(reader is one for one in self.closed)
    ]

  def only_part(self) -> UnboundedSource:
    """What a pipeline reads if there is to be one part."""
    try:
      parts = list(self.source.split(1, self.task.options))
    except Exception as exc:
      raise self.task.error('splits', f'split(1) raised {exc!r}.') from exc
    if len(parts) != 1 or not isinstance(parts[0], UnboundedSource):
      raise self.task.error(
          'splits', f'split(1) gave {parts!r}, not exactly one source.')
    return parts[0]

  def acked(self) -> list[Any]:
    return list(self.task.acked(self.source))


@contextlib.contextmanager
def new_world(task: Task) -> Iterator[World]:
  """A fresh input."""
  task.worlds += 1
  made = task.make_source()
  with contextlib.ExitStack() as stack:
    if not isinstance(made, UnboundedSource) and hasattr(made, '__enter__'):
      made = stack.enter_context(made)
    if not isinstance(made, UnboundedSource):
      raise TypeError(
          f'make_source={task.make_source!r} gave a {type(made).__name__}; an '
          'UnboundedSource is needed, or a context manager that gives one.')
    task.name(UnboundedSource, made)
    yield World(task, made, stack)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
  """Whether it came to be true in time; looks often at first, then less."""
  if any(condition() for _ in range(5)):
    return True
  deadline = time.monotonic() + seconds
  pause = 0.0005
  while not condition():
    if time.monotonic() >= deadline:
      return condition()
    time.sleep(pause)
    pause = min(2 * pause, 0.05)
  return True


class Stuck(Exception):
  """A call did not return; its text says where it stands."""


class Helper:
  """Makes calls on a thread of its own, and gives up on those that hang.

  The thread is left behind if one does: nothing can end it.
  """
  def __init__(self) -> None:
    self._todo: Optional[tuple[Callable, list]] = None
    self._turn = threading.Condition()
    self._ends = False
    self._thread = threading.Thread(
        target=self._work, name='check_unbounded_source', daemon=True)
    self._thread.start()

  def call(self, function: Callable[[], Any], seconds: float) -> Any:
    answer: list[tuple[bool, Any]] = []
    with self._turn:
      self._todo = (function, answer)
      self._turn.notify_all()
      if not self._turn.wait_for(lambda: answer, seconds):
        frame = sys._current_frames().get(self._thread.ident)
        where = traceback.extract_stack(frame)[-3:] if frame else []
        raise Stuck(
            'it stands in ' + ' < '.join(
                f'{entry.name} ({entry.filename}:{entry.lineno})'
                for entry in reversed(where)))
    succeeded, value = answer[0]
    if succeeded:
      return value
    raise value

  def end(self) -> None:
    with self._turn:
      self._ends = True
      self._turn.notify_all()

  def _work(self) -> None:
    while True:
      with self._turn:
        self._turn.wait_for(lambda: self._todo or self._ends)
        if self._todo is None:
          return
        (function, answer), self._todo = self._todo, None
      try:
        outcome = (True, function())
      except BaseException as exc:  # pylint: disable=broad-except
        outcome = (False, exc)
      with self._turn:
        answer.append(outcome)
        self._turn.notify_all()
