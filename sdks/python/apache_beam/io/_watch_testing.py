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


"""What the tests of Watch share: scripted polls, a clock, and a harness.

The harness runs the DoFn of a watch by the SDK's own invoker, tracker and
watermark estimator wrappers, one bundle at a time, and plays the runner.
"""

from typing import Any
from typing import Callable
from typing import Optional

from apache_beam import coders
from apache_beam.io._watch_dofn import OutputsFn
from apache_beam.io._watch_memory import MEMORIES
from apache_beam.io.watch import PollFn
from apache_beam.io.watch import PollResult
from apache_beam.io.watch import Watch
from apache_beam.testing._unbounded_harness import SplitInjectingHarness
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp


class FakeClock:
  """The time in seconds; goes only where a test says."""
  def __init__(self, now: float = 0.0) -> None:
    self.now = now

  def __call__(self) -> float:
    return self.now


def at(seconds: float, value: Any) -> TimestampedValue:
  return TimestampedValue(value, Timestamp(seconds))


class Script(PollFn):
  """Gives one result after another, and then the last for ever.

  A result may be a ``PollResult``, an exception to raise, or a function to
  call for one of them.
  """
  def __init__(self, *results: Any, coder=coders.StrUtf8Coder()) -> None:
    self.results = list(results)
    self.coder = coder
    self.polls: list[Any] = []
    # Called with the name of an event; set by the harness.
    self.event: Callable[[str], None] = lambda name: None

  def __call__(self, element: Any) -> PollResult:
    self.event('poll')
    result = self.results[min(len(self.polls), len(self.results) - 1)]
    self.polls.append(element)
    if callable(result):
      result = result()
    if isinstance(result, BaseException):
      raise result
    self.event('polled')
    return result

  def default_output_coder(self):
    return self.coder


class WatchHarness(SplitInjectingHarness):
  """Runs the watch of one input.

  Args:
    watch: the transform, or else its ``poll_fn`` with further arguments.
    element: the input.
    on_event: as of SplitInjectingHarness; ``poll`` before a :class:`Script`
      polls and ``polled`` after it.
  """
  def __init__(
      self,
      watch: Any,
      element: Any = 'in',
      on_event: Callable[[str, int], None] = lambda name, number: None,
      **kwargs) -> None:
    if not isinstance(watch, Watch):
      watch = Watch(watch, kwargs.pop('poll_interval', 0), **kwargs)
    self._watch = watch
    self._input = element
    MEMORIES.close_all()
    super().__init__(None, on_event=on_event)
    if isinstance(watch._polls.poll_fn, Script):
      watch._polls.poll_fn.event = self.event

  def _fns(self, caps, options):
    return [self._watch._fn(), OutputsFn()]

  def _element(self):
    return self._input

  def steps(
      self,
      number: Optional[int] = None,
      restriction: Any = None,
      restart: bool = False) -> list[Any]:
    """Runs bundles, and returns their results, until nothing is left.

    Args:
      number: of bundles; None: until nothing is left.
      restart: whether each bundle runs in a process that knows nothing.
    """
    results = []
    todo = [self.initial() if restriction is None else restriction]
    while todo and len(results) != number:
      if restart:
        MEMORIES.close_all()
      results.append(self.bundle(todo.pop()).raise_error())
      todo = list(results[-1].residuals)
      assert len(results) < 10000, 'it does not end'
    return results


def found(result: Any) -> list[Any]:
  """What was output, without the input."""
  return [value for _, value in result.values]
