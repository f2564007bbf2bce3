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

"""The check that a closed reader leaves nothing behind."""

import os
import threading

from apache_beam.testing._unbounded_run import Run
from apache_beam.testing._unbounded_world import Task
from apache_beam.testing._unbounded_world import new_world
from apache_beam.testing._unbounded_world import wait_until

_OPENINGS = 5


def check_closing(task: Task) -> str:
  """Opens and closes some, and looks whether threads or files get more."""
  with new_world(task) as world:
    part = world.only_part()
    before: tuple[int, int] = (0, 0)
    for number in range(_OPENINGS + 1):
      run = Run(world, part, 'resume')
      for _ in range(number % 3):
        run.poll()
      run.close()
      if not number:
        before = _held()
    for index, what in enumerate(('threads', 'open files')):
      if not wait_until(lambda: _held()[index] - before[index] < _OPENINGS,
                        task.patience_seconds):
        raise task.error(
            'closing',
            f'{_OPENINGS} readers were opened and closed, and there are '
            f'{_held()[index] - before[index]} {what} more.',
            ['advance', 'close'])
  return f'{_OPENINGS} readers leave nothing'


def _held() -> tuple[int, int]:
  try:
    files = len(os.listdir('/proc/self/fd'))
  except OSError:  # Not on this system.
    files = 0
  return threading.active_count(), files
