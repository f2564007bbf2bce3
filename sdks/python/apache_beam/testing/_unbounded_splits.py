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

"""The check that the parts of a source together are the whole."""

import itertools

from apache_beam.io.unbounded_source import UnboundedSource
from apache_beam.testing._unbounded_harness import dump
from apache_beam.testing._unbounded_harness import load_here
from apache_beam.testing._unbounded_properties import listed
from apache_beam.testing._unbounded_run import Run
from apache_beam.testing._unbounded_world import Task
from apache_beam.testing._unbounded_world import new_world
from apache_beam.testing._unbounded_world import wait_until

_SPLITS = (1, 2, 7, 100)


def check_splits(task: Task) -> str:
  counts = []
  for desired in _SPLITS:
    with new_world(task) as world:
      parts = _parts(task, world.source, desired)
      counts.append(len(parts))
      _read_parts(task, [Run(world, part, 'splits') for part in parts], desired)
  return 'into ' + ', '.join(map(str, counts))


def _parts(
    task: Task, source: UnboundedSource, desired: int) -> list[UnboundedSource]:
  """As workers get them."""
  what = f'split({desired})'
  try:
    parts = list(
        itertools.islice(source.split(desired, task.options), desired + 1))
  except Exception as exc:
    raise task.error('splits', f'{what} raised {exc!r}.') from exc
  if not 1 <= len(parts) <= desired:
    raise task.error(
        'splits',
        f'{what} gave {"more than that" if parts else "nothing"}.',
        [what])
  received = []
  for number, part in enumerate(parts, 1):
    if not isinstance(part, UnboundedSource):
      raise task.error(
          'splits', f'{what} gave {part!r}, which is no UnboundedSource.',
          [what])
    try:
      received.append(load_here(dump(part)))
    except Exception as exc:
      raise task.error(
          'splits',
          f'Part {number} cannot be pickled: {exc!r}. Open connections in the '
          'reader.',
          [what]) from exc
  return received


def _read_parts(task: Task, runs: list[Run], desired: int) -> None:
  """Reads the parts in turn, a record from each."""
  left = list(task.expected)

  def poll(run: Run) -> bool:
    record = run.poll()
    for one in record:
      if one not in left:
        again = 'a second time' if one in task.expected else 'unexpectedly'
        raise task.error(
            'splits', f'{one!r} came {again}.', [f'split({desired})'])
      left.remove(one)
    return bool(record)

  wait_until(
      lambda: [poll(run) for run in runs] and not left, task.patience_seconds)
  if left:
    raise task.error(
        'splits',
        f'{listed(left)} came from none of {len(runs)} parts.',
        [f'split({desired})'])
  for run in runs:
    poll(run)
    run.close()
