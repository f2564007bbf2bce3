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

"""What a source promises, by name, and how a broken promise is told."""

import dataclasses
import itertools
from typing import Any
from typing import Iterable
from typing import Mapping
from typing import Optional
from typing import Sequence


@dataclasses.dataclass(frozen=True)
class Property:
  """A promise of sources.

  Attributes:
    name: what ``leave_out`` and errors call it.
    promise: one sentence.
    look_at: methods of the public classes, whose docstrings say more.
    hint: what is most often wrong.
  """
  name: str
  promise: str
  look_at: tuple[str, ...]
  hint: str


PROPERTIES = (
    Property(
        'reads',
        'A reader that is opened without a mark gives the expected records.',
        ('UnboundedReader.start', 'UnboundedReader.advance'),
        'If the source is right, expected or make_source is not.'),
    Property(
        'no-blocking',
        'advance() returns at once, also if nothing is there.',
        ('UnboundedReader.advance', ),
        'Wait on a thread of the reader, or ask the client without a timeout.'),
    Property(
        'record-coder',
        'The output coder can encode the records.',
        ('UnboundedSource.default_output_coder', ),
        'Give out what the coder encodes, or name another coder.'),
    Property(
        'resume',
        'A reader that is opened with a mark gives what follows the mark.',
        ('UnboundedSource.create_reader', 'UnboundedReader.get_checkpoint_mark'
         ),
        'The classic slip is to begin with the record that the mark was cut '
        'at, or to count a record that was fetched and not given yet.'),
    Property(
        'frozen-marks',
        'A mark is a new object each time, and never changes.',
        ('UnboundedReader.get_checkpoint_mark', ),
        'Copy what the reader goes on changing, such as a list of ids.'),
    Property(
        'moving-marks',
        'A mark that covers more records has other bytes.',
        ('UnboundedReader.get_checkpoint_mark', ),
        'Put the position of the last record into the mark, and into its '
        'bytes.'),
    Property(
        'mark-coder',
        'The coder of marks is deterministic and gives back what it was given, '
        'within other coders too.',
        ('UnboundedSource.get_checkpoint_mark_coder', ),
        'Write each field by itself, sort what has no order, pickle nothing.'),
    Property(
        'finalization',
        'To finalize a mark acknowledges what it covers and nothing else, '
        'however often, late and from whatever thread.',
        ('CheckpointMark.finalize_checkpoint', ),
        'A mark covers all marks before it. One that was decoded has no '
        'connection: it does nothing.'),
    Property(
        'schedules',
        'Whatever fails or is closed in whatever order, each record comes.',
        ('UnboundedSource.create_reader', 'UnboundedReader.close',
         'CheckpointMark'),
        'Only finalize_checkpoint() may make the input forget a record; '
        'reading it and cutting a mark must not.'),
    Property(
        'bundles',
        'The DoFn that reads gives each record, wherever its bundles are split '
        'or fail.',
        ('UnboundedSource', 'UnboundedReader'),
        'The source is pickled on its way; what its readers share by another '
        'way is lost.'),
    Property(
        'splits',
        'The parts of a source together give each record once.',
        ('UnboundedSource.split', ),
        '[self] if it cannot be divided.'),
    Property(
        'watermark',
        'No record is older than a watermark that was reported before; the '
        'watermark never goes back, and is MAX_TIMESTAMP only at the end.',
        ('UnboundedReader.get_watermark',
         'UnboundedReader.get_current_timestamp'),
        'It bounds what is still to come, not what was read. Records that were '
        'fetched and not given yet are still to come.'),
    Property(
        'idle-watermark',
        'The watermark moves while nothing is there to be read.',
        ('UnboundedReader.get_watermark', ),
        'A source that knows that it is caught up follows the clock, less a '
        'slack; the records of this test have to be older than that.'),
    Property(
        'backlog',
        'The backlog is 0 if and only if nothing is left to read, never '
        'negative, and found without opening a reader.',
        ('UnboundedReader.get_split_backlog_bytes',
         'UnboundedSource.get_total_backlog_bytes'),
        'Count from the next record to be given; None if it is not known.'),
    Property(
        'closing',
        'As many readers are closed as are opened, and nothing of them stays.',
        ('UnboundedReader.close', ),
        'Stop threads and close connections, also when start() failed.'),
    Property(
        'not-vacuous',
        'The check tried something.',
        ('check_unbounded_source', ),
        'Give more records; leave out less.'),
)
BY_NAME = {one.name: one for one in PROPERTIES}


class ConformanceError(AssertionError):
  """A source breaks a promise. Its text says which, how and where to look.

  Attributes:
    property: the name of the promise.
    schedule: the steps that broke it, none of which can be left out.
    seen: what was seen.
    names: the classes that were checked, by the class that each is one of.
  """
  def __init__(
      self,
      property: str,
      seen: str,
      schedule: Iterable[str] = (),
      names: Optional[Mapping[str, str]] = None) -> None:
    self.property = property
    self.schedule = tuple(schedule)
    self.seen = seen
    self.names = dict(names or {})
    super().__init__(property, seen, self.schedule, self.names)

  def __str__(self) -> str:
    broken = BY_NAME[self.property]
    source = self.names.get('UnboundedSource', 'The source')
    lines = [f'{source} breaks "{broken.name}": {broken.promise}']
    if self.schedule:
      lines.append(f'schedule: {show(self.schedule)}')
    lines.append(f'seen: {self.seen}')
    where = []
    for public in broken.look_at:
      of, _, method = public.partition('.')
      where.append('.'.join(filter(None, [self.names.get(of, of), method])))
    lines.append(
        f'look at: {", ".join(where)}. {broken.hint} '
        f'More in help({broken.look_at[0]}).')
    return '\n  '.join(lines)


def show(schedule: Iterable[str]) -> str:
  """A schedule in a line: ``advance×2 mark close``."""
  steps = []
  for step, repeats in itertools.groupby(schedule):
    count = len(list(repeats))
    steps.append(step if count == 1 else f'{step}×{count}')
  return ' '.join(steps)


def listed(records: Sequence[Any]) -> str:
  """Some records in a line; never hundreds of them."""
  if not records:
    return 'nothing'
  shown = ', '.join(map(repr, records[:5]))
  return shown if len(records) <= 5 else f'{shown} and {len(records) - 5} more'


class Report:
  """What a check tried, property by property.

  Attributes:
    tried: for each property that was checked, what was done for it.
    left_out: for each that was not, why.
  """
  def __init__(self) -> None:
    self.source = 'The source'
    self.tried: dict[str, str] = {}
    self.left_out: dict[str, str] = {}

  def __str__(self) -> str:
    lines = [f'{self.source} keeps {len(self.tried)} properties']
    for one in PROPERTIES:
      dots = '.' * (20 - len(one.name))
      if one.name in self.tried:
        lines.append(f'  {one.name} {dots} ok  {self.tried[one.name]}')
      elif one.name in self.left_out:
        lines.append(
            f'  {one.name} {dots} --  not checked: {self.left_out[one.name]}')
    return '\n'.join(lines)


def checked_leave_out(leave_out: Optional[Mapping[str, str]]) -> dict[str, str]:
  """The argument, with names that are known and reasons that say something."""
  leave_out = dict(leave_out or {})
  for name, reason in leave_out.items():
    if name not in BY_NAME or name == 'not-vacuous':
      names = ', '.join(one for one in BY_NAME if one != 'not-vacuous')
      raise ValueError(
          f'leave_out={name!r} is no property. These are: {names}.')
    if not isinstance(reason, str) or not reason.strip():
      raise ValueError(
          f'leave_out={{{name!r}: {reason!r}}} needs a reason, in words.')
  return leave_out
