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

import dataclasses
import threading
import time
from typing import Any
from typing import Callable
from typing import Optional
from typing import Sequence

from apache_beam import coders
from apache_beam.io.unbounded_source import CheckpointMark
from apache_beam.io.unbounded_source import UnboundedReader
from apache_beam.io.unbounded_source import UnboundedSource
from apache_beam.testing._unbounded_properties import show
from apache_beam.testing._unbounded_script import ScriptedError
from apache_beam.testing._unbounded_world import Stuck
from apache_beam.testing._unbounded_world import Task
from apache_beam.testing._unbounded_world import World
from apache_beam.testing._unbounded_world import wait_until
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

try:
  from apache_beam.io.unbounded_source import RetryLater
  _PLANNED: tuple[type[Exception], ...] = (ScriptedError, RetryLater)
except ImportError:  # Another release's module.
  _PLANNED = (ScriptedError, )

_MAX_PLANNED_IN_A_ROW = 10


@dataclasses.dataclass
class Cut:
  """A mark, and what the model knows about it.

  Attributes:
    reader: the one that cut it.
    covers: all records up to it, whichever reader gave them.
    own: those of them that its reader gave.
    watermark: what was reported before anything behind it was read.
    committed: whether the runner committed so far.
    finalized: whether the mark was finalized.
    decoded_finalized: whether another one, made of its bytes, was.
  """
  mark: CheckpointMark
  encoded: bytes
  reader: UnboundedReader
  covers: list[Any]
  own: list[Any]
  watermark: Timestamp
  committed: bool = False
  finalized: bool = False
  decoded_finalized: bool = False


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
    cuts: the marks so far.
    watermark: what the reader that is open reported last.
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
    self.blame = blame
    self.call = call
    self.steps: list[str] = []
    self.cuts: list[Cut] = []
    self.expected = list(self.task.expected)
    self.watermark = MIN_TIMESTAMP
    self._committed: Optional[Cut] = None
    self._covered: list[Any] = []  # Committed, and read since, up to a mark.
    self._own: list[Any] = []  # Given by the reader that is open.
    self._pending: list[Any] = []  # Read since the last mark.
    self._resumed_at: Optional[bytes] = None
    self._seen: list[Any] = []  # Whatever any reader gave.
    self.values: list[Any] = []  # The same, as they came.
    self.knows_backlog = False
    self._lives = 0
    self._promised = MIN_TIMESTAMP  # The watermark of what is committed.
    self._errors_in_a_row = 0
    self.coder: coders.Coder = self._ask(
        'mark-coder', source.get_checkpoint_mark_coder)
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
      record = self.task.append(self.world.source)
      self.expected.append(record)
    elif step == 'mark':
      self._cut()
    elif step == 'crash':
      self._reopen()
    elif step == 'close':
      if not self._pending:
        self._commit()
        self._reopen()
    elif step.startswith('finalize'):
      self._commit()
      self._finalize(step)
    else:
      raise ValueError(f'{step!r} is no step')
    self._look_after(step)

  def left(self) -> list[Any]:
    """The expected records that are neither committed nor read since."""
    left = list(self.expected)
    for record in self._covered + self._pending:
      if record in left:
        left.remove(record)
    return left

  def read_on(self) -> None:
    """Reads all that is left, and then finds nothing."""
    for _ in range(10 * len(self.expected) + 10):
      while self.left():
        self._read_one()
      if self._advance():
        self._take()
      elif not self.left():  # There is, if it crashed.
        break
    else:
      self.broken(self.blame, 'Records come again and again, without an end.')
    self._observe_watermark()
    self._look_at_backlog()

  def poll(self) -> list[Any]:
    """The next record, if one is there, whether due or not; commits it."""
    if not self._advance():
      return []
    record = self.task.key(self._ask(self.blame, self.reader.get_current))
    self._own.append(record)
    self._pending.append(record)
    self._cut()
    self._commit()
    return [record]

  def close(self) -> None:
    self._ask('closing', self.reader.close)

  def reopen_here(self) -> None:
    """Commits what was read, and opens another reader behind it."""
    self._cut()
    self._commit()
    self._reopen()

  # -- Reading ----------------------------------------------------------------

  def _open(self) -> None:
    mark = None
    if self._committed is not None:
      mark = self._ask(
          'mark-coder', lambda: self.coder.decode(self._committed.encoded))
      self._resumed_at = self._committed.encoded
      self._promised = self._committed.watermark
      self.task.resumes += 1
    self.reader = self._ask(
        self.blame,
        lambda: self.source.create_reader(self.task.options, mark))
    if not isinstance(self.reader, UnboundedReader):
      self.broken(
          self.blame,
          f'create_reader() gave a {type(self.reader).__name__}, which is no '
          'UnboundedReader.')
    self._started = False
    self._lives += 1
    self._own = []
    self.watermark = MIN_TIMESTAMP

  def _reopen(self) -> None:
    """Loses what was not committed, and goes on behind what was."""
    self.close()
    self._pending = []
    self.cuts = [cut for cut in self.cuts if cut.committed]
    self._covered = list(self._committed.covers) if self._committed else []
    self._open()

  def _read_one(self) -> None:
    """Reads the next record, which is due."""
    if wait_until(self._advance, self.task.patience_seconds):
      self._take()
    else:
      self.broken(
          self.blame,
          f'{_list(self.left())} did not come within '
          f'{self.task.patience_seconds:g} s. Read so far: '
          f'{_list(self._covered + self._pending)}.')

  def _advance(self) -> bool:
    begun = time.monotonic()
    name = 'advance' if self._started else 'start'
    method = self.reader.advance if self._started else self.reader.start
    self._started = True
    try:
      there = self.call(method)
    except Stuck as exc:
      self.stuck(f'{name}()', exc)
    except _PLANNED as exc:
      # As on a runner: closed, resumed behind the last mark.
      self._errors_in_a_row += 1
      if self._errors_in_a_row > _MAX_PLANNED_IN_A_ROW:
        self.broken(
            self.blame, f'{name}() raised {exc!r}, and again each time.', exc)
      self._reopen()
      return False
    except Exception as exc:  # pylint: disable=broad-except
      self.broken(self.blame, f'{name}() raised {exc!r}.', exc)
    self._errors_in_a_row = 0
    seconds = time.monotonic() - begun
    if name == 'advance' and seconds > self.task.max_advance_seconds:
      self.broken(
          'no-blocking',
          f'advance() took {seconds:.2f} s; the bound is '
          f'{self.task.max_advance_seconds:g} s.')
    if not isinstance(there, bool):
      self.broken(
          self.blame, f'{name}() returned {there!r}, not True or False.')
    return there

  def _take(self) -> None:
    """Notes the record that is current."""
    value = self._ask(self.blame, self.reader.get_current)
    timestamp = self._ask('watermark', self.reader.get_current_timestamp)
    record = self.task.key(value)
    self.task.records += 1
    left = self.left()
    if record not in left and (self.task.replays or
                               record not in self.expected):
      again = ' a second time' if record in self.expected else ''
      due = f'{_list(left)} is still to come' if left else 'all was read'
      self.broken(self.blame, f'{record!r} came{again}, where {due}.')
    # One that is delivered again cannot come before it was promised away.
    first_time = self.task.replays or record not in self._seen
    if self.task.ordered and first_time and left and record != left[0]:
      if self.task.replays or self._lives == 1:
        self.broken(
            self.blame,
            f'{record!r} came, where {left[0]!r} is next. (ordered=False, if '
            'the source has no order.)')
    bound = max(self.watermark, self._promised)
    if first_time and timestamp < bound:
      self.broken(
          'watermark',
          f'{record!r} has the time {timestamp}, after a watermark of {bound} '
          'was reported.')
    self._seen.append(record)
    self.values.append(value)
    self._own.append(record)
    self._pending.append(record)
    self._look_at_backlog()
    self._observe_watermark()

  # -- What each step has to keep ---------------------------------------------

  def _observe_watermark(self) -> None:
    watermark = self._ask('watermark', self.reader.get_watermark)
    if not isinstance(watermark, Timestamp):
      self.broken(
          'watermark', f'get_watermark() returned {watermark!r}, no Timestamp.')
    elif watermark < self.watermark:
      self.broken(
          'watermark', f'It went back from {self.watermark} to {watermark}.')
    elif watermark >= MAX_TIMESTAMP and self.left():
      self.broken(
          'watermark',
          f'It is MAX_TIMESTAMP, while {_list(self.left())} is still to come.')
    else:
      self.watermark = watermark
      if not self._pending:
        if self.cuts and self.cuts[-1].reader is self.reader:
          self.cuts[-1].watermark = watermark
        else:
          self._promised = max(self._promised, watermark)

  def _look_at_backlog(self) -> None:
    ask = getattr(self.reader, 'get_split_backlog_bytes', lambda: None)
    opened = len(self.world.opened)
    backlog = self._ask('backlog', ask)
    if len(self.world.opened) > opened:
      self.broken('backlog', 'get_split_backlog_bytes() opened a reader.')
    self.check_backlog('get_split_backlog_bytes()', backlog, self.left())

  def check_backlog(
      self, method: str, backlog: Any, left: Sequence[Any]) -> None:
    if backlog is None:
      return
    self.knows_backlog = True
    if (isinstance(backlog, bool) or not isinstance(backlog, int) or
        backlog < 0):
      self.broken(
          'backlog', f'{method} returned {backlog!r}, not an int of 0 or more.')
    elif left and not backlog:
      self.broken(
          'backlog',
          f'{method} returned 0, while {_list(left)} is still to come.')
    elif backlog and not left:
      self.broken(
          'backlog', f'{method} returned {backlog}, when all was read.')

  def _cut(self) -> None:
    if not self._pending:
      return
    mark = self._ask('frozen-marks', self.reader.get_checkpoint_mark)
    self.task.marks += 1
    for index, cut in enumerate(self.cuts):
      if mark is cut.mark:
        self.broken(
            'frozen-marks',
            f'Mark {index + 1} was returned again, as the same object.')
    encoded = self._encode(mark)
    before = self._resumed_at
    if self.cuts and self.cuts[-1].reader is self.reader:
      before = self.cuts[-1].encoded
    if encoded == before:
      self.broken(
          'moving-marks',
          f'The mark after {_list(self._pending)} encodes as the one before: '
          f'{encoded.hex() or "no bytes"}. A restart would repeat them.')
    self._covered += self._pending
    self._pending = []
    self.cuts.append(
        Cut(
            mark,
            encoded,
            self.reader,
            list(self._covered),
            list(self._own),
            self.watermark))

  def _encode(self, mark: Any) -> bytes:
    encoded = self._ask('mark-coder', lambda: self.coder.encode(mark))
    if not isinstance(encoded, bytes):
      self.broken('mark-coder', f'encode() returned {encoded!r}, not bytes.')
    again = self._ask('mark-coder', lambda: self.coder.encode(mark))
    if again != encoded:
      self.broken(
          'mark-coder',
          f'One mark was encoded as {encoded.hex()}, then as {again.hex()}.')
    decoded = self._ask('mark-coder', lambda: self.coder.decode(encoded))
    again = self._ask('mark-coder', lambda: self.coder.encode(decoded))
    if again != encoded:
      self.broken(
          'mark-coder',
          f'{encoded.hex()}, decoded and encoded again, is {again.hex()}.')
    return encoded

  def _commit(self) -> None:
    """The runner commits up to the newest mark."""
    if self.cuts and self.cuts[-1].reader is self.reader:
      self._committed = self.cuts[-1]
      for cut in self.cuts:
        cut.committed = True

  def _finalize(self, step: str) -> None:
    """One of the ways in which a runner may finalize a committed mark."""
    if self._committed is None:
      return
    if step == 'finalize' and self._committed.finalized:
      return
    cut = self.cuts[0] if step == 'finalize-first' else self._committed
    self.task.finalized += 1
    if step == 'finalize-decoded':
      cut.decoded_finalized = True
      mark = self._ask('mark-coder', lambda: self.coder.decode(cut.encoded))
      self._ask('finalization', mark.finalize_checkpoint)
      return
    cut.finalized = True
    if step == 'finalize-elsewhere':
      self._on_threads(cut.mark, 1)
    elif step == 'finalize-twice-at-once':
      self._on_threads(cut.mark, 2)
    else:
      self._ask('finalization', cut.mark.finalize_checkpoint)

  def _on_threads(self, mark: CheckpointMark, count: int) -> None:
    errors: list[BaseException] = []
    together = threading.Barrier(count)

    def finalize():
      try:
        together.wait()
        mark.finalize_checkpoint()
      except BaseException as exc:  # pylint: disable=broad-except
        errors.append(exc)

    threads = [threading.Thread(target=finalize) for _ in range(count)]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
    if errors:
      self.broken(
          'finalization',
          f'finalize_checkpoint() on another thread raised {errors[0]!r}.',
          errors[0])

  def _look_after(self, step: str) -> None:
    for number, cut in enumerate(self.cuts, 1):
      if cut.finalized or cut.reader is not self.reader:
        continue
      encoded = self._ask('frozen-marks', lambda: self.coder.encode(cut.mark))
      if encoded != cut.encoded:
        self.broken(
            'frozen-marks',
            f'Mark {number} was {cut.encoded.hex()} when it was cut, and is '
            f'{encoded.hex()} after {step}.')
    if self.task.acked is not None:
      self._look_at_acks(step)

  def _look_at_acks(self, step: str) -> None:
    finalized = [cut for cut in self.cuts if cut.finalized]
    allowed = max((
        cut.covers
        for cut in self.cuts if cut.finalized or cut.decoded_finalized),
                  key=len,
                  default=[])
    acked = self.world.acked()
    for record in acked:
      if record not in allowed:
        self.broken(
            'finalization',
            f'{record!r} was acknowledged, when no mark that covers it was '
            'finalized.')
      if self._lives == 1 and acked.count(record) > allowed.count(record):
        self.broken('finalization', f'{record!r} was acknowledged twice.')
    if not step.startswith('finalize'):
      return
    # Of a mark whose reader is closed, nothing is asked.
    due = [
        record for cut in finalized if cut.reader is self.reader
        for record in cut.own
    ]

    def missing():
      acked = self.world.acked()
      return [record for record in due if record not in acked]

    if not wait_until(lambda: not missing(), self.task.patience_seconds):
      self.broken(
          'finalization',
          f'{_list(missing())} is covered by a mark that was finalized, and '
          'was not acknowledged within '
          f'{self.task.patience_seconds:g} s.')

  # -- Telling ----------------------------------------------------------------

  def _ask(self, property: str, function: Callable[[], Any]) -> Any:
    """Calls what the author wrote."""
    try:
      return self.call(function)
    except Stuck as exc:
      self.stuck(getattr(function, '__name__', 'a call'), exc)
    except Exception as exc:  # pylint: disable=broad-except
      # Also if the property is left out: there is nothing to go on with.
      name = getattr(function, '__name__', '')
      what = 'a call' if name in ('<lambda>', '') else f'{name}()'
      raise self.task.error(
          property, f'{what} raised {exc!r}.', self.steps) from exc

  def stuck(self, what: str, error: Stuck) -> None:
    raise self.task.error(
        'no-blocking', f'{what} did not return: {error}.', self.steps)

  def broken(
      self,
      property: str,
      seen: str,
      cause: Optional[BaseException] = None) -> None:
    """Tells, unless the property was left out."""
    if property not in self.task.leave_out:
      raise self.task.error(property, seen, self.steps) from cause
    if property == self.blame:
      raise LeftOut(property)

  def __repr__(self) -> str:
    return f'Run({show(self.steps)})'


def _list(records: Sequence[Any]) -> str:
  if not records:
    return 'nothing'
  shown = ', '.join(map(repr, records[:5]))
  return shown if len(records) <= 5 else f'{shown} and {len(records) - 5} more'
