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

"""The check that runs a source through the DoFn that reads it in a pipeline.

Each run interferes once: it splits a bundle, or fails it, at one event of the
harness. Together the runs do both at each event, or at as many of them as the
number of schedules allows.
"""

import time
from typing import Any
from typing import Optional

from apache_beam.testing._unbounded_harness import SplitInjectingHarness
from apache_beam.testing._unbounded_properties import listed
from apache_beam.testing._unbounded_run import PLANNED
from apache_beam.testing._unbounded_world import Task
from apache_beam.testing._unbounded_world import new_world

_MAX_RECORDS = 2
_MIN_RUNS = 20
# Within a call of the reader a split is declined, whichever it is.
_SPLIT_AT = ('begin', 'advance', 'output', 'end')
# What else a reader is asked are hints; an error in them fails no bundle.
_FAIL_AT = (
    'begin',
    'start',
    'advance',
    'get_current',
    'get_current_timestamp',
    'get_checkpoint_mark',
    'get_watermark',
    'output',
    'end')


class _Injected(Exception):
  """The failure of a bundle that a run asked for."""


class _Run:
  """Reads one fresh input to its end, or until it has nothing.

  Args:
    harness: one of another source, or None.
    what: ``split`` or ``fail``; None: nothing.
    at: at which event, from 1.

  Attributes:
    steps: what it did to the bundles.
    names: of the events.
  """
  def __init__(
      self,
      task: Task,
      harness: Optional[SplitInjectingHarness],
      what: Optional[str] = None,
      at: int = 0) -> None:
    self.steps: list[str] = []
    self._task = task
    self._what = what
    self._at = at
    self.names: list[str] = []
    self._values: list[Any] = []
    with new_world(task) as world:
      part = world.only_part()
      if harness is None:
        harness = SplitInjectingHarness(
            part, max_records=_MAX_RECORDS, options=task.options)
      else:
        harness.open(part)
      self.harness = harness
      harness.on_event = self._on_event
      self._read()

  def _on_event(self, name: str, number: int) -> None:
    self.names.append(name)
    if number != self._at:
      return
    self.steps.append(f'{self._what}-at-{name}-{self.names.count(name)}')
    if self._what == 'split':
      self.harness.split()
    elif name in _FAIL_AT:
      raise _Injected()

  def _read(self) -> None:
    harness = self.harness
    restriction = harness.initial()
    deadline = time.monotonic() + self._task.patience_seconds
    while restriction is not None:
      result = harness.bundle(restriction)
      if result.error is not None:
        if not isinstance(_root(result.error), (*PLANNED, _Injected)):
          self._fail(
              f'A bundle failed: {result.error!r}. Committed so far: '
              f'{listed(self._values)}.',
              result.error)
      else:
        self._values += map(self._task.key, result.values)
        result.finalize()
        restriction = result.residuals[0] if result.residuals else None
      if result.values:
        deadline = time.monotonic() + self._task.patience_seconds
      elif not self._left() and result.error is None:
        break
      elif time.monotonic() > deadline:
        self._fail(
            f'{listed(self._left())} did not come within '
            f'{self._task.patience_seconds:g} s.')
    if restriction is not None:
      # A bundle that fails closes its reader; who could else?
      harness.on_event = self._fail_bundle
      harness.bundle(restriction)
    if self._left():
      self._fail(f'The source ended, and {listed(self._left())} did not come.')
    if self._task.replays:
      repeated = list(self._values)
      for record in self._task.expected:
        repeated.remove(record)
      if repeated:
        self._fail(f'{listed(repeated)} came twice.')

  def _left(self) -> list[Any]:
    left = list(self._task.expected)
    for value in self._values:
      if value in left:
        left.remove(value)
    return left

  def _fail_bundle(self, name: str, unused_number: int) -> None:
    if name == 'begin':
      raise _Injected()

  def _fail(self, seen: str, cause: Optional[BaseException] = None) -> None:
    raise self._task.error('bundles', seen, self.steps) from cause


def _root(error: BaseException) -> BaseException:
  while error.__cause__ is not None:
    error = error.__cause__
  return error


def check_bundles(task: Task) -> str:
  plain = _Run(task, None)
  runs = [(what, at) for at, name in enumerate(plain.names, 1)
          for what, names in (('split', _SPLIT_AT), ('fail', _FAIL_AT))
          if name in names]
  most = max(task.schedules // 10, _MIN_RUNS)
  if len(runs) > most:  # Evenly spread.
    runs = [runs[index * len(runs) // most] for index in range(most)]
  for what, at in runs:
    _Run(task, plain.harness, what, at)
  plain.harness.on_event = lambda name, number: None
  return f'{len(runs)} splits and failures of bundles'
