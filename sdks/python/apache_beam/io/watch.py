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


"""Watches anything that can be polled: folders, tables, feeds, partitions.

:class:`Watch` takes a PCollection of inputs and a function that lists what
there is for one. It calls the function for each input again and again, and
outputs what it had not seen before::

  import apache_beam as beam
  from apache_beam.io.watch import PollResult
  from apache_beam.io.watch import Watch
  from apache_beam.transforms.window import TimestampedValue

  def list_reports(customer) -> PollResult[str]:
    folder = archive.folder_of(customer)
    outputs = [
        TimestampedValue(report.name, report.created)
        for report in folder.list()
    ]
    if folder.is_closed():
      return PollResult.complete(outputs)
    return PollResult.incomplete(outputs)

  with beam.Pipeline() as p:
    _ = (
        p
        | beam.Create(['smith', 'jones'])
        | Watch(list_reports, poll_interval=0.5)
        | beam.Map(print))  # ('smith', 'january'), …

What is guaranteed: each output is given once for each input, with the event
time that it was first listed with, whatever fails or restarts in between; an
output that was listed and could not be given because a bundle failed is given
when the runner retries.
"""

import functools
import inspect
import typing
from typing import Any
from typing import Callable
from typing import Mapping
from typing import Optional
from typing import Union

from apache_beam import coders
from apache_beam import pvalue
from apache_beam.io._unbounded_chunk import ChunkOf
from apache_beam.io._unbounded_errors import RetryLater
from apache_beam.io._unbounded_transforms import ClockAwareParDo
from apache_beam.io._watch_conditions import TerminationCondition
from apache_beam.io._watch_conditions import after_iterations
from apache_beam.io._watch_conditions import after_time_since_new_output
from apache_beam.io._watch_conditions import after_total_of
from apache_beam.io._watch_conditions import all_of
from apache_beam.io._watch_conditions import checked as checked_condition
from apache_beam.io._watch_conditions import either_of
from apache_beam.io._watch_conditions import never
from apache_beam.io._watch_conditions import time_of
from apache_beam.io._watch_conditions import time_span
from apache_beam.io._watch_dofn import OutputsFn
from apache_beam.io._watch_dofn import Polls
from apache_beam.io._watch_dofn import WatchFn
from apache_beam.io._watch_errors import PollError
from apache_beam.io._watch_errors import WatchError
from apache_beam.io._watch_errors import WatchStateError
from apache_beam.io._watch_poll import PollFn
from apache_beam.io._watch_poll import PollResult
from apache_beam.io._watch_round import Rules
from apache_beam.transforms.core import ParDo
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.transforms.ptransform import PTransform
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints import native_type_compatibility
from apache_beam.typehints import typehints
from apache_beam.utils.timestamp import Duration
from apache_beam.utils.timestamp import Timestamp

__all__ = [
    'PollError',
    'PollFn',
    'PollResult',
    'RetryLater',
    'TerminationCondition',
    'Watch',
    'WatchError',
    'WatchStateError',
    'after_iterations',
    'after_time_since_new_output',
    'after_total_of',
    'all_of',
    'either_of',
    'never',
]

_Seconds = Union[int, float, Duration]


class Watch(PTransform):
  """Polls for each input, and outputs ``(input, output)`` for what is new.

  The watches of different inputs know nothing of each other. One of them polls,
  outputs what was never seen, asks its condition whether to stop, waits and
  polls again; it ends with :meth:`PollResult.complete` or the condition.

  Args:
    poll_fn: from an input to a :class:`PollResult`; a function or a
      :class:`PollFn`. It may raise :class:`RetryLater`.
    poll_interval: seconds or a ``Duration`` between a poll, with the outputs it
      led to, and the next.
    termination: when to stop polling for an input; by default :func:`never`.
    output_coder: encodes outputs in the state of the watch. By default that of
      ``PollFn.default_output_coder``, or that of ``V`` where ``poll_fn`` is
      annotated to return ``PollResult[V]``, or that of ``Any``. Its type is
      that of the outputs.
    output_key_fn: what tells an output from others; by default the output
      itself.
    output_key_coder: encodes the keys. By default that of the annotated result
      of ``output_key_fn``, or ``output_coder``. Keys are the same if their
      encodings are, so it must be deterministic, or have such a form.
    timestamp_cursor: lets history expire by event time, so that the state does
      not grow: see below.
    allowed_lateness: seconds or a ``Duration``; with a cursor only.
    now_fn: for tests: the time in seconds, instead of the clock.
    start_cursor: only outputs with a later event time than this are given.
    settle_time: seconds or a ``Duration``. Outputs whose event time is less
      than that ago are left to a later poll, for lists that still change at
      their end. What has not settled when a condition ends the watch is not
      output; the outputs of ``PollResult.complete`` are, at once.
    max_outputs_per_round: of a poll that finds more, the oldest are output
      first and committed, then the next; without polling again, unless the
      work moves to another process in between.
    side_inputs: given to ``poll_fn`` as keyword arguments:
      ``{'prefixes': beam.pvalue.AsList(prefixes)}``.

  Raises:
    TypeError, ValueError: at construction, for anything else than that. The
      message names the argument.

  **State.** Without a cursor the watch keeps 16 bytes for every key it ever
  saw, and they travel with every poll. That is right for some hundred thousand
  of them. With ``timestamp_cursor=True`` it keeps the keys whose event time is
  at most ``allowed_lateness`` below the greatest that was output. What is
  listed with an older event time is taken for seen: an output that appears so
  late is dropped, and counted (metric ``outputs_dropped_late``). An event time
  that is ahead of the clock by more than a minute counts when it has come. A
  cursor needs event times that are the same in every list.

  **Event times and windows.** Outputs have the event times that they were
  listed with, in windows of the input's windowing. The watermark of a watch is
  the least that could still come: what ``PollResult.with_watermark`` promised,
  or else the earliest of the outputs that the last poll with any found. The
  latter makes outputs late that are found by a later poll and are older.

  **Metrics**, in the namespace ``apache_beam.io.watch``: ``polls``,
  ``outputs_new``, ``outputs_seen``, ``outputs_dropped_late``,
  ``retries_later``, ``poll_millis``, ``keys_kept``, ``watermark_lag_millis``.

  Errors while the pipeline runs are :class:`PollError` and
  :class:`WatchStateError`.
  """
  def __init__(
      self,
      poll_fn: Callable[..., PollResult],
      poll_interval: _Seconds,
      termination: Optional[TerminationCondition] = None,
      output_coder: Optional[coders.Coder] = None,
      output_key_fn: Optional[Callable[[Any], Any]] = None,
      output_key_coder: Optional[coders.Coder] = None,
      timestamp_cursor: bool = False,
      allowed_lateness: _Seconds = 0,
      now_fn: Optional[Callable[[], float]] = None,
      *,
      start_cursor: Optional[Timestamp] = None,
      settle_time: _Seconds = 0,
      max_outputs_per_round: int = 10000,
      side_inputs: Optional[Mapping[str, pvalue.AsSideInput]] = None) -> None:
    super().__init__()
    self._side_inputs = _checked_side_inputs(side_inputs)
    _check_poll_fn(poll_fn, self._side_inputs)
    for name, function in (('output_key_fn', output_key_fn),
                           ('now_fn', now_fn)):
      if function is not None:
        _check_function(name, function)
    if not isinstance(timestamp_cursor, bool):
      raise TypeError(f'timestamp_cursor={timestamp_cursor!r} must be a bool.')
    lateness = time_span('allowed_lateness', allowed_lateness)
    if lateness.micros and not timestamp_cursor:
      raise ValueError(
          f'allowed_lateness={allowed_lateness!r} says how far behind the '
          'cursor outputs may be; it needs timestamp_cursor=True.')
    if (isinstance(max_outputs_per_round, bool) or
        not isinstance(max_outputs_per_round, int)):
      raise TypeError(
          f'max_outputs_per_round={max_outputs_per_round!r} must be an int.')
    if max_outputs_per_round < 1:
      raise ValueError(
          f'max_outputs_per_round={max_outputs_per_round!r} must be 1 or more.')
    self._polls = Polls(
        poll_fn,
        time_span('poll_interval', poll_interval).micros / 1e6,
        now_fn)
    self._output_coder, self._output_type = _kind_of_outputs(
        poll_fn, output_coder)
    self._key_fn = output_key_fn
    self._key_coder = output_key_coder
    condition = (
        never() if termination is None else checked_condition(
            'termination', termination))
    _check_coder(
        f'termination={condition!r}: state_coder()', condition.state_coder())
    self._rules = Rules(
        output_key_fn,
        self._deterministic_key_coder(),
        condition,
        lateness.micros if timestamp_cursor else None,
        None if start_cursor is None else time_of(
            'start_cursor', start_cursor).micros,
        time_span('settle_time', settle_time).micros,
        max_outputs_per_round)

  def expand(self, pcoll: pvalue.PCollection) -> pvalue.PCollection:
    if not isinstance(pcoll, pvalue.PCollection):
      raise TypeError(
          'Watch polls for each element of a PCollection, but was applied to '
          f'{pcoll!r}. For a single input: pipeline | beam.Create([input]) | '
          'Watch(...).')
    output_type = typehints.Tuple[pcoll.element_type or typehints.Any,
                                  self._output_type]
    poll = ClockAwareParDo(self._fn(), pcoll.pipeline, **self._side_inputs)
    windowfn = pcoll.windowing.windowfn
    if isinstance(windowfn, GlobalWindows):
      windowfn = None
    return (
        pcoll
        | 'Poll' >> poll.with_output_types(ChunkOf(output_type, WatchFn.public))
        | 'Outputs' >> ParDo(
            OutputsFn(windowfn)).with_output_types(output_type))

  def display_data(self):
    return {
        'poll_fn': DisplayDataItem(self._polls.name, label='Poll Function'),
        'poll_interval': DisplayDataItem(
            self._polls.interval, label='Poll Interval Seconds'),
        'termination': DisplayDataItem(
            repr(self._rules.condition), label='Termination'),
        'timestamp_cursor': DisplayDataItem(
            self._rules.by_time, label='Timestamp Cursor'),
    }

  def _fn(self) -> WatchFn:
    return WatchFn(self._polls, self._rules, self._output_coder)

  def _deterministic_key_coder(self) -> coders.Coder:
    coder = self._key_coder
    if coder is not None:
      name = 'output_key_coder'
      _check_coder(name, coder)
    elif self._key_fn is None:
      name = 'the coder of the outputs'
      coder = self._output_coder
    else:
      name = 'the coder of what output_key_fn returns'
      coder = coders.registry.get_coder(_return_type(self._key_fn))
    try:
      return coder.as_deterministic_coder('Watch')
    except ValueError as exc:
      raise ValueError(
          f'Keys are told apart by their encoding, but {name}, {coder!r}, is '
          'not deterministic and has no deterministic form. Give an '
          'output_key_coder that is, or an output_key_fn that takes from an '
          f'output what identifies it, a str for example. ({exc})') from exc


def _check_function(name: str, function: Any) -> None:
  if not callable(function):
    raise TypeError(f'{name}={function!r} is not callable.')


def _check_poll_fn(poll_fn: Any, side_inputs: Mapping[str, Any]) -> None:
  _check_function('poll_fn', poll_fn)
  if isinstance(poll_fn, type):
    raise TypeError(f'poll_fn={poll_fn!r} is a class: give an instance of it.')
  function = _function_of(poll_fn)
  if (inspect.isgeneratorfunction(function) or
      inspect.isasyncgenfunction(function) or
      inspect.iscoroutinefunction(function)):
    raise TypeError(
        f'poll_fn={poll_fn!r} yields or awaits, but must return a PollResult. '
        'The outputs of that may be a generator.')
  try:
    # Not of what a decorator wraps: that may be given more than its wrapper.
    signature = inspect.signature(poll_fn, follow_wrapped=False)
  except (TypeError, ValueError):  # It has none: not written in Python.
    return
  try:
    signature.bind(None, **side_inputs)
  except TypeError as exc:
    given = ', '.join(['an input', *map('{}=…'.format, side_inputs)])
    raise TypeError(
        f'poll_fn={poll_fn!r} cannot be called with ({given}): {exc}.') from exc


def _check_coder(name: str, coder: Any) -> None:
  if not isinstance(coder, coders.Coder):
    hint = (
        ' Give an instance, not the class.' if isinstance(coder, type) and
        issubclass(coder, coders.Coder) else '')
    raise TypeError(f'{name}={coder!r} is not a Coder.{hint}')


def _checked_side_inputs(side_inputs: Any) -> dict[str, pvalue.AsSideInput]:
  if side_inputs is None:
    return {}
  if not isinstance(side_inputs, Mapping):
    raise TypeError(
        f'side_inputs={side_inputs!r} must map the names of arguments of '
        'poll_fn to side inputs.')
  for name, side_input in side_inputs.items():
    if not isinstance(side_input, pvalue.AsSideInput):
      raise TypeError(
          f'side_inputs[{name!r}]={side_input!r} is not a side input, such as '
          'beam.pvalue.AsList(pcollection).')
    if not isinstance(name, str) or name in ('element', 'tracker', 'watermark'):
      raise ValueError(
          f'side_inputs: {name!r} cannot be the name of an argument.')
  return dict(side_inputs)


def _kind_of_outputs(poll_fn: Any, given: Any) -> tuple[coders.Coder, Any]:
  """The coder and the type of the outputs."""
  if given is not None:
    _check_coder('output_coder', given)
    return given, _type_of(given)
  if isinstance(poll_fn, PollFn):
    coder = poll_fn.default_output_coder()
    if coder is not None:
      _check_coder(f'{type(poll_fn).__name__}.default_output_coder()', coder)
      return coder, _type_of(coder)
  returned = _return_type(poll_fn)
  if typing.get_origin(returned) is PollResult:
    output, = typing.get_args(returned)
    if not isinstance(output, typing.TypeVar):
      output = native_type_compatibility.convert_to_beam_type(output)
      return coders.registry.get_coder(output), output
  return coders.registry.get_coder(typehints.Any), typehints.Any


def _function_of(function: Any) -> Any:
  """What a partial, or an object that can be called, calls."""
  while isinstance(function, functools.partial):
    function = function.func
  if inspect.isroutine(function) or isinstance(function, type):
    return function
  return type(function).__call__


def _return_type(function: Any) -> Any:
  """The annotated type of what a function returns; Any if there is none."""
  try:
    returned = typing.get_type_hints(_function_of(function)).get('return')
  except Exception:  # pylint: disable=broad-except
    # An annotation that cannot be resolved here says nothing.
    returned = None
  if returned is None or isinstance(returned, typing.TypeVar):
    return typehints.Any
  if typing.get_origin(returned) is PollResult or returned is PollResult:
    return returned
  return native_type_compatibility.convert_to_beam_type(returned)


def _type_of(coder: coders.Coder) -> Any:
  try:
    hint = coder.to_type_hint()
  except NotImplementedError:
    hint = None
  return typehints.Any if hint in (None, Any, object) else hint
