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

"""For the tests of those who write an unbounded source.

:func:`check_unbounded_source` tells whether a source keeps what
:mod:`apache_beam.io.unbounded_source` asks of it, and if not, which promise
it breaks, and by which few steps::

  from apache_beam.testing.unbounded_source import End
  from apache_beam.testing.unbounded_source import Idle
  from apache_beam.testing.unbounded_source import Records
  from apache_beam.testing.unbounded_source import ScriptedSource
  from apache_beam.testing.unbounded_source import check_unbounded_source

  def make_source():
    return ScriptedSource([Records('a', 'b'), Idle(2), Records('c'), End()])

  print(check_unbounded_source(make_source, expected=['a', 'b', 'c']))

:class:`ScriptedSource` gives what a script says, for tests of pipelines.
:class:`SplitInjectingHarness` runs a source through the DoFn that reads it, and
splits or fails it wherever a test says.
"""

from typing import Any
from typing import Callable
from typing import ContextManager
from typing import Iterable
from typing import Mapping
from typing import Optional
from typing import Sequence
from typing import Union

from apache_beam.io.unbounded_source import UnboundedSource
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing._unbounded_checks import run_checks
from apache_beam.testing._unbounded_harness import BundleResult
from apache_beam.testing._unbounded_harness import SplitInjectingHarness
from apache_beam.testing._unbounded_properties import ConformanceError
from apache_beam.testing._unbounded_properties import Report
from apache_beam.testing._unbounded_properties import checked_leave_out
from apache_beam.testing._unbounded_script import Crash
from apache_beam.testing._unbounded_script import End
from apache_beam.testing._unbounded_script import Idle
from apache_beam.testing._unbounded_script import Records
from apache_beam.testing._unbounded_script import ScriptedError
from apache_beam.testing._unbounded_script import ScriptedSource
from apache_beam.testing._unbounded_world import Task

__all__ = [
    'BundleResult',
    'ConformanceError',
    'Crash',
    'End',
    'Idle',
    'Records',
    'Report',
    'ScriptedError',
    'ScriptedSource',
    'SplitInjectingHarness',
    'check_unbounded_source',
]


def check_unbounded_source(
    make_source: Callable[[], Union[UnboundedSource,
                                    ContextManager[UnboundedSource]]],
    expected: Sequence[Any],
    *,
    key: Optional[Callable[[Any], Any]] = None,
    ordered: bool = True,
    replays: bool = True,
    acked: Optional[Callable[[UnboundedSource], Iterable[Any]]] = None,
    append: Optional[Callable[[UnboundedSource], Any]] = None,
    options: Optional[PipelineOptions] = None,
    schedules: int = 1000,
    max_advance_seconds: float = 1.0,
    patience_seconds: float = 5.0,
    leave_out: Optional[Mapping[str, str]] = None) -> Report:
  """Checks a source against everything that a source has to promise.

  A source is driven as runners do, and worse: through every short schedule of
  reads, polls, marks, finalizations, crashes and closes, and through the DoFn
  that reads it in a pipeline. A check of a source in memory takes a second or
  two.

  Args:
    make_source: gives a source over an input of its own, which holds exactly
      the expected records, none of them read. Called some hundred times, once
      for each schedule, since acknowledgements change the input: with a server,
      make another stream, topic or table each time, not another server. May
      return a context manager that gives the source, to clean up after it
      (a function under ``contextlib.contextmanager``).
    expected: the records, in order. Four to eight serve best: more show
      nothing new, and take longer.
    key: what of a record to compare with ``expected``, for records that carry
      an id or a time that is not known before.
    ordered: whether one reader gives the records in the order of ``expected``.
      False for a source that reads several partitions at once.
    replays: True if a reader that is opened with a mark gives exactly what
      follows the mark (a log with offsets). Then every record has to come
      exactly once. False for a queue that delivers again what was not
      acknowledged: every record has to come at least once.
    acked: for a source whose marks acknowledge. Called with what
      ``make_source`` gave; returns the keys of the records that its input has
      seen acknowledged so far. One that is listed twice was acknowledged
      twice. Without it, that nothing is acknowledged too early cannot be seen.
    append: puts one more record into the input of the source that it is called
      with, and returns its key. Without it, what happens to a record that
      comes after an idle time cannot be seen.
    options: handed to ``split`` and ``create_reader``.
    schedules: at most so many schedules are tried of the many that there are,
      the shortest first. Some 100 serve a server.
    max_advance_seconds: longer than that ``advance`` must not take.
    patience_seconds: how long to wait for a record that is due, or for an
      acknowledgement to arrive. Sources that read on a thread need it; it
      costs time only where something is missing.
    leave_out: properties that are not to hold, each with the reason, such as
      ``{'idle-watermark': 'a file never says that it is complete'}``.

  Returns:
    A report of what was tried; its text has a line for each property.

  Raises:
    ConformanceError: names the property, the schedule, what was seen, and
      where to look.
  """
  task = Task(
      make_source=make_source,
      expected=list(expected),
      key=key or (lambda record: record),
      ordered=ordered,
      replays=replays,
      acked=acked,
      append=append,
      options=options or PipelineOptions([]),
      schedules=_positive('schedules', schedules, int),
      max_advance_seconds=_positive('max_advance_seconds', max_advance_seconds),
      patience_seconds=_positive('patience_seconds', patience_seconds),
      leave_out=checked_leave_out(leave_out))
  return run_checks(task)


def _positive(name: str, value: Any, *types: type) -> Any:
  if isinstance(value, bool) or not isinstance(value, types or (int, float)):
    raise TypeError(
        f'{name}={value!r} must be {"an int" if types else "a number"}.')
  if not value > 0:
    raise ValueError(f'{name}={value!r} must be above 0.')
  return value
