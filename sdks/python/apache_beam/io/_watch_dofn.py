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


"""The DoFn that polls, and its restrictions and watermarks.

Guarantees: why each step of :meth:`_Bundle.outputs` stands where it stands:

  1. A poll that comes before its time waits, or goes back; ``poll_fn`` is not
     called.
  2. ``WORK`` is claimed before polling, so that what was split off before is
     left alone, and nothing is split off while a poll is under way.
  3. Polling happens outside of the SDK's lock.
  4. The round is claimed before its outputs are given: a residual never lacks
     what was output, nor holds what was not.
  5. The watermark is set after the outputs; a residual that was split off
     between them brings its own.
  6. Memory is handed to the cache last, when nothing can fail any more.
"""

import dataclasses
import functools
import logging
import operator
import time
from typing import Any
from typing import Callable
from typing import Iterator
from typing import Mapping
from typing import Optional

from apache_beam import coders
from apache_beam.io._unbounded_chunk import GLOBAL_WINDOWS
from apache_beam.io._unbounded_chunk import Chunk
from apache_beam.io._unbounded_dofn import WatermarkProvider
from apache_beam.io._unbounded_errors import RetryLater
from apache_beam.io._unbounded_guard import Guarded
from apache_beam.io._watch_errors import PollError
from apache_beam.io._watch_errors import WatchStateError
from apache_beam.io._watch_errors import short
from apache_beam.io._watch_memory import MEMORIES
from apache_beam.io._watch_memory import Memory
from apache_beam.io._watch_metrics import BundleMetrics
from apache_beam.io._watch_poll import NotYet
from apache_beam.io._watch_poll import NumberedPollFn
from apache_beam.io._watch_poll import PollResult
from apache_beam.io._watch_restriction import Polling
from apache_beam.io._watch_restriction import Replay
from apache_beam.io._watch_restriction import Restriction
from apache_beam.io._watch_restriction import RestrictionCoder
from apache_beam.io._watch_round import Found
from apache_beam.io._watch_round import Rules
from apache_beam.io._watch_round import cut
from apache_beam.io._watch_round import sift
from apache_beam.io._watch_tracker import WORK
from apache_beam.io._watch_tracker import Round
from apache_beam.io._watch_tracker import WatchTracker
from apache_beam.transforms.core import DoFn
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import TimestampedValue
from apache_beam.transforms.window import WindowFn
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import Duration
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

_LOGGER = logging.getLogger(__name__)

# How much before its time a poll may come: runners keep time in milliseconds.
_EARLY_SECONDS = 0.02
# How long a bundle may wait for a poll that came early. Not longer, as other
# inputs may wait for this bundle to end.
_WAIT_SECONDS = 0.1

_micros = operator.attrgetter('timestamp.micros')
# With the type, for those who have types checked while the pipeline runs.
_ChunkAt = TimestampedValue[Chunk]


@dataclasses.dataclass(frozen=True)
class Polls:
  """How to poll.

  Attributes:
    poll_fn: what the author gave.
    interval: seconds between polls.
    now_fn: the clock, in seconds; None: that of the worker.
  """
  poll_fn: Callable[..., PollResult]
  interval: float
  now_fn: Optional[Callable[[], float]] = None

  def now(self) -> Timestamp:
    return Timestamp.of((self.now_fn or time.time)())

  @property
  def name(self) -> str:
    function = self.poll_fn
    while isinstance(function, functools.partial):
      function = function.func
    return getattr(function, '__qualname__', type(function).__qualname__)


class _Provider(RestrictionProvider):
  """What the SDK asks about restrictions; part of the DoFn."""

  _polls: Polls
  _rules: Rules
  _output_coder: coders.Coder

  def initial_restriction(self, element: Any) -> Polling:
    condition = self._rules.condition
    state = condition.for_new_input(self._polls.now(), element)
    return Polling.initial(
        self._rules.by_time, condition.state_coder().encode(state))

  def create_tracker(self, restriction: Restriction) -> WatchTracker:
    return WatchTracker(restriction)

  def restriction_size(self, element: Any, restriction: Restriction) -> float:
    """How many outputs are known to wait; none while a watch just waits."""
    if isinstance(restriction, Replay):
      return float(len(restriction.outputs))
    return float(restriction.size)

  def restriction_coder(self) -> coders.Coder:
    return RestrictionCoder(self._output_coder)

  def truncate(self, element: Any,
               restriction: Restriction) -> Optional[Restriction]:
    """Drain: polls no more. A replay is finite, and has to be output."""
    return restriction if isinstance(restriction, Replay) else None


class WatchFn(Guarded, _Provider, DoFn):
  """Polls for an input, outputs what is new, and waits for the next poll.

  Args:
    output_coder: encodes outputs that are to be replayed.

  Attributes:
    foreign_clock: whether the runner keeps a time of its own (a TestStream),
      so that the time of a poll cannot be judged by the clock here.
  """
  public = 'apache_beam.io.watch'

  def __init__(
      self, polls: Polls, rules: Rules, output_coder: coders.Coder) -> None:
    self.foreign_clock = False
    self._polls = polls
    self._rules = rules
    self._output_coder = output_coder

  @DoFn.unbounded_per_element()
  def process(
      self,
      element,
      tracker=DoFn.RestrictionParam(),
      watermark=DoFn.WatermarkEstimatorParam(WatermarkProvider()),
      **side_inputs):
    return _Bundle(
        self._polls, self._rules, element, tracker, watermark,
        side_inputs).outputs(self.foreign_clock)


class OutputsFn(Guarded, DoFn):
  """Takes the chunks of a :class:`WatchFn` apart.

  Args:
    windowfn: of the inputs, and so of the outputs; None: the global window,
      which the SDK would otherwise make anew for each output.
  """
  public = 'apache_beam.io.watch'

  def __init__(self, windowfn: Optional[WindowFn] = None) -> None:
    self._windowfn = windowfn

  def process(self, chunk):  # Unannotated: the type of a chunk is a ChunkOf.
    if self._windowfn is None:
      return chunk.records
    # A list: who checks types at run time goes through it twice.
    return [self._in_window(record) for record in chunk.records]

  def _in_window(self, record: WindowedValue) -> WindowedValue:
    context = WindowFn.AssignContext(record.timestamp, record.value)
    return WindowedValue(
        record.value, record.timestamp, self._windowfn.assign(context))


class _Bundle:
  """One round of one watch. See the head of the module."""
  def __init__(
      self,
      polls: Polls,
      rules: Rules,
      element: Any,
      tracker,
      watermark,
      side_inputs: Mapping[str, Any]) -> None:
    self._polls = polls
    self._rules = rules
    self._element = element
    self._tracker = tracker
    self._watermark = watermark
    self._side_inputs = side_inputs
    self._restriction: Restriction = tracker.current_restriction()
    self._memory: Optional[Memory] = None
    self._metrics = BundleMetrics()

  def outputs(self, foreign_clock: bool) -> Iterator[TimestampedValue]:
    # Before anything can end the bundle: the runner must hear of a watermark
    # in each.
    self._watermark.advance_to(self._restriction.watermark)
    if isinstance(self._restriction, Replay):
      if self._tracker.try_claim(WORK):
        yield from self._given(self._restriction.outputs)
        self._watermark.advance_to(MAX_TIMESTAMP)
      return
    self._memory = MEMORIES.take(self._restriction.generation)
    if not foreign_clock and self._goes_back():
      return
    if not self._tracker.try_claim(WORK):
      self._keep_memory(0.0)
      return
    try:
      try:
        found = self._found()
      except RetryLater as exc:
        self._put_off(exc)
        return
      now = self._polls.now()
      round_ = cut(self._rules, self._memory, self._restriction, found, now)
    except PollError as exc:
      raise self._error(exc.args[0]) from exc.__cause__
    except WatchStateError:
      raise
    except Exception as exc:
      raise self._error(f'what it gave cannot be taken: {exc!r}') from exc
    self._tracker.try_claim(round_)
    yield from self._given(round_.outputs)
    after = round_.after
    self._watermark.advance_to(after.watermark)
    self._metrics.new = len(round_.outputs)
    self._metrics.tell(after.key_count, after.watermark, now)
    if not after.finished:
      waits = self._memory.waiting is not None
      usual = found.delay is None
      self._pause(
          0.0 if waits else self._polls.interval if usual else found.delay)

  def _given(self, outputs) -> Iterator[TimestampedValue]:
    """Outputs on their way to :class:`OutputsFn`, which takes them apart."""
    if outputs:
      element = self._element
      chunk = Chunk([
          WindowedValue((element, output.value),
                        output.timestamp,
                        GLOBAL_WINDOWS) for output in outputs
      ])
      # None of them lies before it, should the chunk have to wait somewhere.
      yield _ChunkAt(chunk, min(outputs, key=_micros).timestamp)

  def _goes_back(self) -> bool:
    """Waits if the poll came early, and defers it again if it came far so.

    A runner that ignores the delay that it was asked for would otherwise have
    polls made one after another.
    """
    if self._memory is None:
      return False
    early = self._memory.poll_due - time.monotonic()
    if early <= _EARLY_SECONDS:
      return False
    time.sleep(min(early, _WAIT_SECONDS))
    early = self._memory.poll_due - time.monotonic()
    if early <= _EARLY_SECONDS:
      return False
    self._tracker.defer_remainder(Duration.of(early))
    self._keep_memory(early)
    return True

  def _found(self) -> Found:
    """What is to be output: what waits, or what a poll finds."""
    if self._restriction.by_time != self._rules.by_time:
      raise self._state_error()
    if self._memory is None:
      self._memory = Memory.of(self._restriction)
    if self._memory.waiting is not None:
      return self._memory.waiting
    begin = self._polls.now()
    result = self._poll(begin)
    found = sift(
        self._rules, self._memory.keys, self._restriction, result, begin)
    self._metrics.polls = 1
    self._metrics.seen = found.seen
    self._metrics.dropped = found.dropped
    return found

  def _poll(self, now: Timestamp) -> PollResult:
    begin = time.monotonic()
    poll_fn = self._polls.poll_fn
    try:
      if isinstance(poll_fn, NumberedPollFn):
        result = poll_fn.poll(self._element, self._restriction.polls, now)
      else:
        result = poll_fn(self._element, **self._side_inputs)
    except RetryLater:
      raise
    except Exception as exc:
      raise PollError(f'it raised {exc!r}') from exc
    self._metrics.poll_seconds = time.monotonic() - begin
    if not isinstance(result, PollResult):
      raise PollError(
          f'it returned {short(result)}, where a PollResult is needed: '
          'PollResult.incomplete([...]), or PollResult.complete([...])')
    if result._of_the_clock and not result.is_complete and (
        self._rules.by_time or self._rules.settle):
      raise PollError(
          'it gave outputs without an event time, which so have another one in '
          'every list; timestamp_cursor and settle_time need event times of '
          'the outputs themselves: give TimestampedValue objects, or a '
          'timestamp')
    return result

  def _put_off(self, retry: RetryLater) -> None:
    """Leaves the poll to a later bundle, as if it had not been made."""
    self._tracker.try_claim(Round((), self._restriction))
    if not isinstance(retry, NotYet):
      _LOGGER.warning(
          'poll_fn %s asks to be called for input %s later, %s.',
          self._polls.name,
          short(self._element),
          retry)
      self._metrics.put_off = True
    self._metrics.tell(
        self._restriction.key_count,
        self._restriction.watermark,
        self._polls.now())
    self._pause(retry.seconds)

  def _pause(self, delay: float) -> None:
    """Leaves the rest to a bundle after this one."""
    self._memory.poll_due = time.monotonic() + delay
    # Does nothing if the runner split the rest off in the meantime.
    self._tracker.defer_remainder(Duration.of(delay) if delay else None)
    self._keep_memory(delay)

  def _keep_memory(self, idle: float) -> None:
    """Leaves the memory to the residual."""
    memory, self._memory = self._memory, None
    current = self._tracker.current_restriction()
    if memory is not None and current.successor is not None:
      MEMORIES.keep(current.watch_id, current.successor, memory, idle)

  def _error(self, what: str) -> PollError:
    return PollError(
        f'poll_fn {self._polls.name} failed for input {short(self._element)}, '
        f'poll {self._restriction.polls + 1}: {what}. Nothing is lost where '
        'the runner retries: the poll is then made again, with the state '
        'after the last round that was committed.')

  def _state_error(self) -> WatchStateError:
    was, is_ = self._restriction.by_time, self._rules.by_time
    return WatchStateError(
        f'The watch of input {short(self._element)} ran with '
        f'timestamp_cursor={was} before, and its state does not serve one with '
        f'timestamp_cursor={is_}. Set it as it was, or start a new job.')
