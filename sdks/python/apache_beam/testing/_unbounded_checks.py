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

"""The checks, a function for each group of properties."""

import itertools
import time
from typing import Any
from typing import Callable
from typing import Optional
from typing import Sequence

from apache_beam import coders
from apache_beam.testing import _unbounded_schedules
from apache_beam.testing._unbounded_bundles import check_bundles
from apache_beam.testing._unbounded_closing import check_closing
from apache_beam.testing._unbounded_properties import ConformanceError
from apache_beam.testing._unbounded_properties import Report
from apache_beam.testing._unbounded_run import LeftOut
from apache_beam.testing._unbounded_run import Run
from apache_beam.testing._unbounded_splits import check_splits
from apache_beam.testing._unbounded_world import Helper
from apache_beam.testing._unbounded_world import Task
from apache_beam.testing._unbounded_world import new_world
from apache_beam.testing._unbounded_world import wait_until
from apache_beam.utils.timestamp import MAX_TIMESTAMP

_SHRINK_SECONDS = 30.0
_IDLE_SECONDS = 1.0
_RANDOM_LENGTH = 25
_RECORDS_OF_SCHEDULES = 3

FINALIZATIONS = (
    'advance mark finalize',
    'advance mark advance finalize',
    'advance mark advance mark finalize',
    'advance mark finalize advance mark finalize',
    'advance mark finalize finalize-again',
    'advance mark finalize-elsewhere',
    'advance mark finalize-twice-at-once',
    'advance mark advance mark finalize finalize-first',
    'advance mark finalize-decoded',
    'advance mark finalize finalize-decoded',
    'advance mark close finalize',
    'advance mark finalize close finalize-again',
    'idle mark finalize',
)


def attempt(task: Task, steps: Sequence[str], blame: str) -> Run:
  """Runs a schedule over a fresh input."""
  with new_world(task) as world:
    world.watch(world.source)
    part = world.watch(world.only_part())
    return Run(world, part, blame).run(steps)


def attempt_and_shrink(task: Task, steps: Sequence[str], blame: str) -> None:
  """The same; if it fails, what is told is a schedule without needless steps.
  """
  try:
    attempt(task, steps, blame)
    return
  except ConformanceError as exc:
    shortest = exc
  deadline = time.monotonic() + _SHRINK_SECONDS

  def fails(fewer: list[str]) -> bool:
    nonlocal shortest
    if time.monotonic() > deadline:
      return False
    try:
      attempt(task, fewer, blame)
    except ConformanceError as exc:
      if exc.property == shortest.property:
        shortest = exc
        return True
    return False

  _unbounded_schedules.shrink(shortest.schedule, fails)
  raise shortest


def check_reads(task: Task) -> str:
  """Reads all, on a thread that may hang."""
  count = len(task.expected)
  hang = max(10 * task.max_advance_seconds, 2.0)
  helper = Helper()
  try:
    with new_world(task) as world:
      run = Run(
          world,
          world.only_part(),
          'reads',
          call=lambda function: helper.call(function, hang))
      run.run(['advance'] * count + ['idle'] * 3)
      coder = world.source.default_output_coder()
      for value in run.values:
        _check_record_coder(task, coder, value)
  finally:
    helper.end()
  return f'{count} records, then none'


def _check_record_coder(task: Task, coder: coders.Coder, value: Any) -> None:
  if 'record-coder' in task.leave_out:
    return
  try:
    decoded = coder.decode(coder.encode(value))
  except Exception as exc:
    raise task.error(
        'record-coder', f'{coder!r} raised {exc!r} for {value!r}.') from exc
  if task.key(decoded) != task.key(value):
    raise task.error(
        'record-coder', f'{value!r}, encoded and decoded, is {decoded!r}.')


def check_resume(task: Task) -> str:
  for count in range(len(task.expected) + 1):
    steps = ['advance'] * count + ['mark'] * (count > 0) + ['close']
    attempt_and_shrink(task, steps, 'resume')
  if task.append is not None:
    attempt_and_shrink(
        task, ['idle', 'append', 'advance', 'mark', 'close'], 'resume')
  return f'behind each of {len(task.expected)} records'


def check_marks(task: Task) -> str:
  count = len(task.expected)
  attempt_and_shrink(
      task, ['advance', 'mark'] * min(count, 4) + ['idle'], 'resume')
  return f'{task.marks} marks'


def check_mark_coder(task: Task) -> str:
  """Marks after 1, 2, ... records, each also within other coders."""
  with new_world(task) as world:
    run = Run(world, world.only_part(), 'resume')
    coder = run.marks.coder
    try:
      deterministic = coder.is_deterministic()
    except Exception as exc:
      raise task.error(
          'mark-coder', f'is_deterministic() raised {exc!r}.') from exc
    if deterministic is not True:
      run.broken('mark-coder', f'is_deterministic() returned {deterministic}.')
    nested = coders.TupleCoder([coder, coders.BytesCoder(), coder])
    for _ in task.expected:
      run.step('advance')
      run.step('mark')
      mark, encoded = run.marks.newest.mark, run.marks.newest.encoded
      try:
        first, middle, last = nested.decode(nested.encode((mark, b'-', mark)))
        same = (coder.encode(first), middle, coder.encode(last)) == (
            encoded, b'-', encoded)
      except Exception as exc:
        raise task.error(
            'mark-coder',
            f'Within a TupleCoder it raised {exc!r}; by itself it did not. '
            'Read no further than what was written.',
            run.steps) from exc
      if not same:
        run.broken(
            'mark-coder', 'Within a TupleCoder it does not give back the mark.')
    run.close()
  return f'{len(task.expected)} marks, also nested'


def check_finalization(task: Task) -> str:
  for schedule in FINALIZATIONS:
    attempt_and_shrink(task, schedule.split(), 'schedules')
  seen = '' if task.acked else '; acknowledgements not seen: no acked='
  return f'{len(FINALIZATIONS)} schedules{seen}'


def check_schedules(task: Task) -> str:
  """Most of them short, in order; then some that are long."""
  count = min(len(task.expected), _RECORDS_OF_SCHEDULES)
  short = task.schedules - task.schedules // 10
  longest = 0
  for steps in itertools.islice(
      _unbounded_schedules.all_schedules(count), short):
    longest = len(steps)
    attempt(task, steps, 'schedules')  # The first that fails is a shortest.
  for steps in itertools.islice(
      _unbounded_schedules.random_schedules(
          len(task.expected), _RANDOM_LENGTH),
      task.schedules - short):
    attempt_and_shrink(task, steps, 'schedules')
  return (
      f'{task.schedules}: {short} of up to {longest} steps, the others of '
      f'{_RANDOM_LENGTH}')


def check_watermark(task: Task) -> str:
  count = len(task.expected)
  with new_world(task) as world:
    run = Run(world, world.only_part(), 'reads')
    for step in ['advance'] * count + ['idle'] * 2:
      run.step(step)
    ends = run.hints.watermark >= MAX_TIMESTAMP
    if ends:
      run.step('mark')
      run.step('close')
      if not wait_until(lambda: _idle_watermark(run) >= MAX_TIMESTAMP,
                        _IDLE_SECONDS):
        run.broken(
            'watermark',
            'It was MAX_TIMESTAMP at the end, and is not for a reader that is '
            'opened with a mark there. A pipeline that restarts would not end.')
    run.close()
  if task.append is None or ends:
    return f'{count} records' + (' and the end' if ends else '')
  attempt_and_shrink(task, ['idle', 'append', 'advance'], 'reads')
  return f'{count} records, and one after an idle time'


def _idle_watermark(run: Run):
  run.read_on()
  return run.hints.watermark


def check_idle_watermark(task: Task) -> str:
  with new_world(task) as world:
    run = Run(world, world.only_part(), 'reads')
    for step in ['advance'] * len(task.expected):
      run.step(step)
    for which in ('', ' of a reader that was opened at the end'):
      busy = run.hints.watermark
      if not wait_until(
          lambda: _idle_watermark(run) > busy or busy >= MAX_TIMESTAMP,
          _IDLE_SECONDS):
        run.steps.append('idle')
        run.broken(
            'idle-watermark',
            f'The watermark{which} stayed at {busy} for {_IDLE_SECONDS:g} s, '
            'though all was read. It holds back every window downstream.')
      if not which:
        run.reopen_here()
    run.close()
  return 'moves'


def check_backlog(task: Task) -> Optional[str]:
  """Of the source, unread; of readers, at the end and opened there."""
  with new_world(task) as world:
    world.watch(world.source)
    ask = getattr(
        world.source, 'get_total_backlog_bytes', lambda unused_options: None)
    try:
      total = ask(task.options)
    except Exception as exc:
      raise task.error(
          'backlog',
          f'get_total_backlog_bytes() raised {exc!r}.') from exc
    if world.opened:
      raise task.error(
          'backlog', 'get_total_backlog_bytes() opened a reader.')
    run = Run(world, world.only_part(), 'reads')
    run.hints.check_backlog('get_total_backlog_bytes()', total, idle=False)
    for step in ['advance'] * len(task.expected) + ['idle'] * 3:
      run.step(step)
    run.reopen_here()
    run.step('idle')
    run.close()
  if not run.hints.knows_backlog:
    return None
  return f'{len(task.expected)} records, down to 0'


CHECKS: tuple[tuple[tuple[str, ...], Callable[[Task], Optional[str]]], ...] = (
    (('reads', 'no-blocking', 'record-coder'), check_reads),
    (('frozen-marks', 'moving-marks'), check_marks),
    (('mark-coder', ), check_mark_coder),
    (('resume', ), check_resume),
    (('watermark', ), check_watermark),
    (('idle-watermark', ), check_idle_watermark),
    (('backlog', ), check_backlog),
    (('finalization', ), check_finalization),
    (('closing', ), check_closing),
    (('splits', ), check_splits),
    (('schedules', ), check_schedules),
    (('bundles', ), check_bundles),
)


def run_checks(task: Task) -> Report:
  """All of them, those on which others build first."""
  if all(record == task.expected[0] for record in task.expected):
    raise task.error(
        'not-vacuous',
        f'expected={task.expected!r}: it takes two records to resume between '
        'them, and two that differ to see which is missing or repeated.')
  report = Report()
  report.left_out.update(task.leave_out)
  for names, check in CHECKS:
    names = [name for name in names if name not in task.leave_out]
    if not names:
      continue
    try:
      done = check(task)
    except LeftOut as exc:
      done = f'as far as can be seen without "{exc}"'
    if done is None:
      report.left_out.update(dict.fromkeys(names, 'the source does not know'))
    else:
      report.tried.update(dict.fromkeys(names, done))
  report.source = task.names['UnboundedSource']
  if not task.resumes or not {'resume', 'schedules', 'bundles'} & set(
      report.tried):
    raise task.error(
        'not-vacuous',
        f'{task.resumes} readers were opened with a mark. Only '
        f'{", ".join(report.tried)} checked; all else was left out.')
  return report
