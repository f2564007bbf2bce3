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

"""Which schedules there are: what can happen to the readers of one source.

A schedule is a list of steps:

* ``advance``: the next record is read;
* ``idle``: all that is left is read, and then there is nothing;
* ``mark``: a mark is cut, as after each chunk;
* ``finalize``: the runner has committed up to the newest mark, and says so;
* ``crash``: the bundle fails. What was read, and the marks that were cut, since
  the last commit are lost; the reader is closed, another one opened;
* ``close``: the runner has committed up to the newest mark, but the reader is
  closed meanwhile, unused; another one is opened.

What is left after the last step is read, too.
"""

import random
from typing import Callable
from typing import Iterator
from typing import NamedTuple
from typing import Sequence

STEPS = ('advance', 'idle', 'mark', 'finalize', 'close', 'crash')


class State(NamedTuple):
  """How far things are, in records.

  Attributes:
    read: given by the reader that is open.
    marked: covered by the newest mark.
    committed: where another reader would begin after a crash.
    finalized: whether the newest mark was.
    last: the step before.
  """
  read: int = 0
  marked: int = 0
  committed: int = 0
  finalized: bool = True
  last: str = ''

  def allows(self, step: str, count: int) -> bool:
    """Whether the step makes sense here, and is not known to change nothing."""
    if step == 'advance':
      return self.read < count
    if step == 'idle':
      return self.last != 'idle'
    if step == 'mark':
      return self.read > self.marked
    if step == 'finalize':
      return not self.finalized
    if step == 'close':
      fresh = self.last in ('', 'close', 'crash')
      return self.read == self.marked and not fresh
    return self.read > self.committed

  def after(self, step: str, count: int) -> 'State':
    if step == 'advance':
      return self._replace(read=self.read + 1, last=step)
    if step == 'mark':
      return self._replace(marked=self.read, finalized=False, last=step)
    if step == 'finalize':
      return self._replace(committed=self.marked, finalized=True, last=step)
    if step == 'close':
      return self._replace(committed=self.marked, last=step)
    if step == 'crash':
      # A mark that was committed and not finalized yet still may be.
      lost = self.marked > self.committed
      return self._replace(
          read=self.committed,
          marked=self.committed,
          finalized=self.finalized or lost,
          last=step)
    return self._replace(read=count, last=step)


def all_schedules(count: int) -> Iterator[list[str]]:
  """All that make sense over ``count`` records, the shorter ones first.

  Those that end with reading are left out, since what is left is read anyway.
  """
  level: list[tuple[list[str], State]] = [([], State())]
  while level:
    longer = []
    for steps, state in level:
      for step in STEPS:
        if state.allows(step, count):
          longer.append((steps + [step], state.after(step, count)))
    for steps, _ in longer:
      if steps[-1] not in ('advance', 'idle'):
        yield steps
    level = longer


def random_schedules(count: int, length: int) -> Iterator[list[str]]:
  """Long ones, always the same."""
  chance = random.Random(length)
  while True:
    steps: list[str] = []
    state = State()
    for _ in range(length):
      allowed = [step for step in STEPS if state.allows(step, count)]
      if not allowed:
        break
      steps.append(chance.choice(allowed))
      state = state.after(steps[-1], count)
    yield steps


def shrink(
    steps: Sequence[str],
    fails: Callable[[list[str]], bool]) -> list[str]:
  """Leaves out steps, as long as it still fails without them."""
  steps = list(steps)
  shorter = True
  while shorter:
    shorter = False
    for at in reversed(range(len(steps))):
      fewer = steps[:at] + steps[at + 1:]
      if fails(fewer):
        steps, shorter = fewer, True
  return steps
