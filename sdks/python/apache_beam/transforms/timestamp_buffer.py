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

"""Ordered processing: the elements of a key in the order of their event times.

Elements of a key arrive in any order. `OrderedProcess` buffers them until the
watermark says that nothing earlier comes, then hands each to a function,
together with the few before it::

  def distance(car, timestamp, position, before):
    if before:
      previous_time, previous = before[-1]
      yield car, position - previous

  positions | OrderedProcess(distance, context_size=1)

A bounded input is grouped and sorted, without state. For an unbounded one a
stateful DoFn keeps what is not safe yet: `TimestampBufferDoFnBag`, which needs
bags and values, or `TimestampBufferDoFnOLS`, which needs OrderedListState. Both
can be used directly, with `beam.ParDo`.

Metrics, of the namespace `OrderedProcess`:

  late_elements: elements that came too late for their place in the order.
  released_elements: elements that were given to the function.
  waiting_elements: a distribution of how many of a key still wait, after some
    were released.
"""

import inspect
import math
import numbers
import typing
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import Optional

import apache_beam as beam
from apache_beam import coders
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms import userstate
from apache_beam.transforms import window as windows
from apache_beam.transforms._held_timers import set_held
from apache_beam.transforms._ordered_buffer import FRONT
from apache_beam.transforms._ordered_buffer import BufferState
from apache_beam.transforms._ordered_buffer import KeyBuffer
from apache_beam.transforms._ordered_buffer import Saved
from apache_beam.transforms._ordered_grouping import NAMESPACE
from apache_beam.transforms._ordered_grouping import GroupInBundle
from apache_beam.transforms._ordered_grouping import ProcessGrouped
from apache_beam.transforms._ordered_grouping import items_of
from apache_beam.transforms._ordered_grouping import outputs
from apache_beam.transforms._ordered_records import RecordOrder
from apache_beam.transforms._ordered_records import decode_run
from apache_beam.transforms._ordered_records import encode_run
from apache_beam.transforms._ordered_runs import LEVELS
from apache_beam.transforms._ordered_runs import BagRuns
from apache_beam.transforms._ordered_runs import ListRuns
from apache_beam.transforms._ordered_schedule import Schedule
from apache_beam.transforms._ordered_state import SavedCoder
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import TimestampCombiner
from apache_beam.typehints import typehints
from apache_beam.utils.timestamp import Duration
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

__all__ = [
    'BufferState',
    'OrderedProcess',
    'TimestampBufferDoFn',
    'TimestampBufferDoFnBag',
    'TimestampBufferDoFnOLS',
]

# The context of a function and the elements of a batch both have to fit into
# memory, and the context is read and written with each batch.
_MOST_CONTEXT = 100_000

# The states that both kinds of buffer have. A timer is of one DoFn alone.
_SAVED = userstate.ReadModifyWriteStateSpec('buffer', SavedCoder())
_CONTEXT = userstate.ReadModifyWriteStateSpec('context', coders.BytesCoder())
_EXTRA = userstate.ReadModifyWriteStateSpec(
    'extra', coders.FastPrimitivesCoder())


def _checked_context_size(context_size):
  if isinstance(context_size, bool) or not isinstance(
      context_size, numbers.Integral):
    raise TypeError(
        'context_size is how many elements before each one the function gets, '
        'an int; it is %r' % (context_size, ))
  if not 0 <= context_size <= _MOST_CONTEXT:
    raise ValueError(
        'context_size must be from 0 to %d, it is %d' %
        (_MOST_CONTEXT, context_size))
  return int(context_size)


def _checked_millis(name, seconds):
  """Milliseconds, rounded up, of a number of seconds or a Duration."""
  if isinstance(seconds, Duration):
    micros = seconds.micros
  elif isinstance(seconds, bool) or not isinstance(seconds, numbers.Real):
    raise TypeError(
        '%s is a number of seconds or a Duration; it is %r' % (name, seconds))
  elif not math.isfinite(seconds):
    raise ValueError('%s must be finite, it is %r' % (name, seconds))
  else:
    micros = math.ceil(seconds * 1_000_000)
  if micros < 0:
    raise ValueError(
        '%s must not be negative, it is %s s' % (name, micros / 1_000_000))
  return -(-micros // 1000)


def _record_order(sort_key, value_coder):
  if sort_key is None:
    return RecordOrder()
  decode = value_coder.decode
  return RecordOrder(lambda encoded: sort_key(decode(encoded)))


class TimestampBufferDoFn(beam.DoFn):
  """Gives `process_element` the elements of each key in event-time order.

  Extend one of the two that have states, `TimestampBufferDoFnBag` or
  `TimestampBufferDoFnOLS`, and write `process_element`::

    class Gaps(TimestampBufferDoFnBag):
      def process_element(self, key, element_ts, value, context, **extra_state):
        if context:
          yield key, element_ts - context[-1][0]

    keyed | beam.ParDo(Gaps(context_size=1, batch_interval_sec=0))

  Input elements are pairs, the first of which is the key to the runner. The
  order is by event time, elements of one event time in the order of arrival.
  What `process_element` yields has the time of its element, unless it is a
  TimestampedValue.

  An element that is earlier than what the runner has said of the watermark is
  late: it is counted in `late_elements` and left out. Windows must not merge.

  `OrderedProcess` does more: it takes late elements, sort keys and bounded
  inputs, and calls the state once a bundle rather than once an element.

  Args:
    context_size: how many elements before each one to give it, at most. There
      are fewer for the first elements of a key (in its window).
    batch_interval_sec: in seconds of event time. Elements are released when the
      watermark is at a multiple of it, many at once. 0 or None: as soon as they
      are safe. At the end of a window or of the input nothing waits for it.
  """

  # How values are encoded in states. A subclass may have a coder that suits its
  # values better.
  value_coder: coders.Coder = coders.FastPrimitivesCoder()

  # The state that was read or written last, and what it holds: timers that fire
  # in one bundle read it once. A handle of a state is of one bundle alone.
  _known: tuple[Any, Optional[Saved]] = (None, None)

  _late_tag: Optional[str] = None
  _sort_key: Optional[Callable[[Any], Any]] = None
  _lateness = 0
  _window_lateness = 0

  def __init__(
      self, context_size: int, batch_interval_sec: Optional[float] = 5):
    if type(self).process is TimestampBufferDoFn.process:
      raise TypeError(
          '%s has no states: extend TimestampBufferDoFnBag or '
          'TimestampBufferDoFnOLS' % type(self).__name__)
    self._context_size = _checked_context_size(context_size)
    self._interval = _checked_millis(
        'batch_interval_sec', batch_interval_sec or 0)
    self._late = Metrics.counter(NAMESPACE, 'late_elements')
    self._released = Metrics.counter(NAMESPACE, 'released_elements')
    self._waiting = Metrics.distribution(NAMESPACE, 'waiting_elements')

  def extract_kv(self, element: Any) -> tuple[Any, Any]:
    """Makes a key and a value of an input element.

    The key should be the element's first, which is the runner's.
    """
    key, value = element
    return key, value

  def process_element(
      self,
      key: Any,
      element_ts: Timestamp,
      value: Any,
      context: list[tuple[Timestamp, Any]],
      **extra_state: Any) -> Iterable[Any]:
    """Processes one element; a generator.

    Called in the order of event times, for each element once, as far as bundles
    are not repeated.

    Args:
      key: its key.
      element_ts: its event time.
      value: its value.
      context: the elements before it, with their times, the latest last.
      **extra_state: `extra_state` is a state of this key and window for one
        value, with `read()` (None at first), `write(value)` and `clear()`. It
        is cleared at the end of the window.
    """
    raise NotImplementedError(
        '%s has to have a process_element' % type(self).__name__)

  def process(self, element):
    raise NotImplementedError

  def _records(self, element, timestamp):
    _, value = self.extract_kv(element)
    return [(timestamp.micros, self.value_coder.encode(value))]

  def _schedule(self, window, saved):
    end = None
    if not isinstance(window, windows.GlobalWindow):
      # The whole millisecond that the window ends with; its end itself would
      # be too late for runners that clear states there.
      end = window.max_timestamp().micros // 1000 + self._window_lateness
    return Schedule(self._lateness, self._interval, end, saved.timers)

  def _set_timers(self, timers, timer):
    for tag, fire, hold in timers:
      set_held(timer, tag, fire, hold)

  def __getstate__(self):
    return {**self.__dict__, '_known': (None, None)}

  def _read(self, saved_state) -> Saved:
    state, saved = self._known
    if state is not saved_state:
      saved = saved_state.read() or Saved()
      self._known = saved_state, saved
    return saved

  def _write(self, saved_state, saved):
    saved_state.write(saved)
    self._known = saved_state, saved

  def _add(self, element, timestamp, window, saved_state, make_back, timer):
    """Takes in an element; yields what is late of it."""
    order = _record_order(self._sort_key, self.value_coder)
    saved = self._read(saved_state)
    buffer = KeyBuffer(saved, make_back(order, saved.marks), order)
    arrivals = self._records(element, timestamp)
    late = buffer.add(arrivals)
    if len(late) < len(arrivals):
      schedule = self._schedule(window, saved)
      self._set_timers(schedule.plan(buffer.state), timer)
      self._write(saved_state, buffer.save(schedule.memory))
    if late:
      self._late.inc(len(late))
      if self._late_tag is not None:
        for micros, value in late:
          yield TaggedOutput(
              self._late_tag,
              WindowedValue((element[0], self.value_coder.decode(value)),
                            Timestamp(micros=micros), (window, )))

  def _fire(
      self, key, fired, window, saved_state, make_back, timer, context, extra):
    """Releases what is safe now that a timer has fired."""
    saved = self._read(saved_state)
    schedule = self._schedule(window, saved)
    bound = schedule.bound(fired.micros // 1000)
    safe = saved.state.safe_watermark
    if bound is not None and safe is not None and bound <= safe:
      return  # A later timer of the bundle came first.
    order = _record_order(self._sort_key, self.value_coder)
    buffer = KeyBuffer(saved, make_back(order, saved.marks), order)
    records = buffer.release(bound)
    if records:
      self._released.inc(len(records))
      self._waiting.update(buffer.count)
      yield from self._process_all(
          key, window, buffer, records, context, extra)
    if bound is None:
      buffer.clear()
      for state in (saved_state, context, extra):
        state.clear()
      self._known = None, None
    else:
      self._set_timers(schedule.plan(buffer.state, buffer.ahead), timer)
      self._write(saved_state, buffer.save(schedule.memory))

  def _process_all(
      self, key, window, buffer, records, context, extra) -> Iterator[Any]:
    before = list(buffer.context)
    if self._context_size and not before:
      run = context.read()
      before = decode_run(run) if run else []

    def process(*args):
      return self.process_element(*args, extra_state=extra)

    yield from outputs(
        process,
        key,
        window,
        items_of(before, self.value_coder),
        items_of(records, self.value_coder),
        self._context_size)
    if not self._context_size:
      return
    after = (before + records)[-self._context_size:]
    # A state of its own costs three requests a release, the buffer's own value
    # is read and written with elements that come, too.
    if self._context_size <= FRONT:
      buffer.context = after
    else:
      buffer.context = ()
      context.write(encode_run(after))


class TimestampBufferDoFnBag(TimestampBufferDoFn):
  """A TimestampBufferDoFn on values and bags, which every runner has.

  For the arguments, and what to write, see `TimestampBufferDoFn`.
  """
  _RUNS = tuple(
      userstate.BagStateSpec('runs%d' % level, coders.BytesCoder())
      for level in range(LEVELS))
  _TIMER = userstate.TimerSpec('release', userstate.TimeDomain.WATERMARK)

  def process(
      self,
      element,
      timestamp=beam.DoFn.TimestampParam,
      window=beam.DoFn.WindowParam,
      saved=beam.DoFn.StateParam(_SAVED),
      runs0=beam.DoFn.StateParam(_RUNS[0]),
      runs1=beam.DoFn.StateParam(_RUNS[1]),
      runs2=beam.DoFn.StateParam(_RUNS[2]),
      timer=beam.DoFn.TimerParam(_TIMER)):
    return self._add(
        element,
        timestamp,
        window,
        saved,
        lambda order, marks: BagRuns((runs0, runs1, runs2), order, marks),
        timer)

  @userstate.on_timer(_TIMER)
  def release(
      self,
      key=beam.DoFn.KeyParam,
      fired=beam.DoFn.TimestampParam,
      window=beam.DoFn.WindowParam,
      saved=beam.DoFn.StateParam(_SAVED),
      runs0=beam.DoFn.StateParam(_RUNS[0]),
      runs1=beam.DoFn.StateParam(_RUNS[1]),
      runs2=beam.DoFn.StateParam(_RUNS[2]),
      timer=beam.DoFn.TimerParam(_TIMER),
      context=beam.DoFn.StateParam(_CONTEXT),
      extra=beam.DoFn.StateParam(_EXTRA)):
    """Not to be overridden: runs when a timer fires."""
    return self._fire(
        key,
        fired,
        window,
        saved,
        lambda order, marks: BagRuns((runs0, runs1, runs2), order, marks),
        timer,
        context,
        extra)


class TimestampBufferDoFnOLS(TimestampBufferDoFn):
  """A TimestampBufferDoFn on OrderedListState, for runners that have it.

  Those are FnApiRunner and Prism. For the arguments, and what to write, see
  `TimestampBufferDoFn`.
  """
  _RUNS = userstate.OrderedListStateSpec('runs', coders.BytesCoder())
  _TIMER = userstate.TimerSpec('release', userstate.TimeDomain.WATERMARK)

  def process(
      self,
      element,
      timestamp=beam.DoFn.TimestampParam,
      window=beam.DoFn.WindowParam,
      saved=beam.DoFn.StateParam(_SAVED),
      runs=beam.DoFn.StateParam(_RUNS),
      timer=beam.DoFn.TimerParam(_TIMER)):
    return self._add(
        element,
        timestamp,
        window,
        saved,
        lambda order, marks: ListRuns(runs, order, marks),
        timer)

  @userstate.on_timer(_TIMER)
  def release(
      self,
      key=beam.DoFn.KeyParam,
      fired=beam.DoFn.TimestampParam,
      window=beam.DoFn.WindowParam,
      saved=beam.DoFn.StateParam(_SAVED),
      runs=beam.DoFn.StateParam(_RUNS),
      timer=beam.DoFn.TimerParam(_TIMER),
      context=beam.DoFn.StateParam(_CONTEXT),
      extra=beam.DoFn.StateParam(_EXTRA)):
    """Not to be overridden: runs when a timer fires."""
    return self._fire(
        key,
        fired,
        window,
        saved,
        lambda order, marks: ListRuns(runs, order, marks),
        timer,
        context,
        extra)


class _OfRuns:
  """What OrderedProcess adds to a TimestampBufferDoFn: elements are runs."""
  def __init__(self, transform, value_coder, window_lateness):
    super().__init__(transform._context_size, 0)
    self._interval = transform._interval
    self._process = transform._process
    self._sort_key = transform._sort_key
    self._lateness = transform._lateness
    self._late_tag = transform._late_tag
    self._window_lateness = window_lateness
    self.value_coder = value_coder

  def process_element(self, key, element_ts, value, context, **extra_state):
    return self._process(key, element_ts, value, context)

  def _records(self, element, timestamp):
    return [(time, value) for time, _, value in decode_run(element[1])]


class _OfRunsBag(_OfRuns, TimestampBufferDoFnBag):
  pass


class _OfRunsOLS(_OfRuns, TimestampBufferDoFnOLS):
  pass


def _type_of_outputs(process):
  """What a function yields, by its annotation; Any if it has none."""
  try:
    returned = typing.get_type_hints(process).get('return')
  except (NameError, TypeError):
    return Any
  arguments = typing.get_args(returned)
  origin = typing.get_origin(returned)
  if not arguments or not isinstance(origin, type) or not issubclass(
      origin, Iterable):
    return Any
  return arguments[0]


class OrderedProcess(beam.PTransform):
  """Calls a function for the elements of each key in event-time order.

  The input are pairs of a key and a value; what the function yields is the
  output, in the window and at the time of the element it was called for::

    def speed(car, timestamp, position, before):
      if before:
        earlier, previous = before[-1]
        yield car, (position - previous) / float(timestamp - earlier)

    speeds = positions | OrderedProcess(speed, context_size=1)

  The order is by event time, then by sort key if there is one, then by arrival.
  Each element is processed once, in its window, elements of one event time and
  even equal ones, too.

  An unbounded input waits in the state of its key until the watermark has
  passed an element, by `allowed_lateness`, and then `batch_interval`. The
  output's watermark is held at the earliest that waits, so outputs are not
  late, unless their elements were late already when they came or the function
  gives them earlier times. All that waits comes out when its window expires or
  the input ends, also by a drain, and then the state of the window is cleared.
  The state of a key in the global window stays: the last `context_size`
  elements and a few numbers.

  An element is late if it is earlier than what has been released, or could have
  been: it is counted in the metric `late_elements`, and is left out or goes to
  the output of `late_tag`. An element whose window has expired is the runner's
  to drop; runners that do not have it processed as if it were the first.

  A bounded input is grouped by key and window, and sorted in memory; the
  elements of one key and window have to fit into it. Nothing is late then, and
  elements of one time that come from several bundles have no order of arrival.

  Not for merging windows, as sessions are: which window an element is in is not
  known before all its elements are there. Group them and sort the groups.

  DirectRunner runs a TestStream with an older engine, whose timers cannot hold
  the watermark: outputs may be late there.

  Args:
    process: called as `process(key, timestamp, value, context)`; returns what
      it outputs as an iterable, or is a generator, or returns None. `timestamp`
      is a Timestamp; `context` a list of pairs of Timestamp and value, the
      elements before this one, the latest last.
    context_size: how many elements `context` has, at most: it has fewer for the
      first elements of a key in a window. At most 100,000, and what is kept of
      a key is read and written with each release.
    sort_key: a function of a value. Of elements with one event time (in
      milliseconds on most runners) those with lower results come first.
    allowed_lateness: seconds, or a Duration: how much an element may be behind
      the watermark and still find its place. Everything waits that much longer.
      To windows it adds nothing: they expire as their own allowed lateness
      says.
    batch_interval: seconds of event time, or a Duration; elements are released
      when the watermark passes a multiple of it, together. It saves the runner
      work. By default they are released as soon as they are safe.
    late_tag: the tag of an output of late elements, as pairs of key and value
      at their own times. With it the result has two outputs, this and `main`.
    ordered_list_state: whether to keep elements in OrderedListState, which only
      some runners have, rather than in bags. Bags cost no more.

  Raises:
    TypeError, ValueError: for arguments, or an input, that cannot be.
  """
  def __init__(
      self,
      process: Callable[[Any, Timestamp, Any, list[tuple[Timestamp, Any]]],
                        Optional[Iterable[Any]]],
      context_size: int = 0,
      *,
      sort_key: Optional[Callable[[Any], Any]] = None,
      allowed_lateness: Any = 0,
      batch_interval: Any = 0,
      late_tag: Optional[str] = None,
      ordered_list_state: bool = False):
    super().__init__()
    if not callable(process):
      raise TypeError(
          'process is a function of (key, timestamp, value, context); it is '
          '%r' % (process, ))
    try:
      inspect.signature(process).bind(None, None, None, None)
    except ValueError:
      pass  # A builtin does not tell.
    except TypeError:
      raise TypeError(
          'process is called with (key, timestamp, value, context), which %r '
          'does not take' % (process, )) from None
    if sort_key is not None and not callable(sort_key):
      raise TypeError(
          'sort_key is a function of a value; it is %r' % (sort_key, ))
    if late_tag is not None and not isinstance(late_tag, str):
      raise TypeError('late_tag is a str; it is %r' % (late_tag, ))
    if late_tag in ('', 'main'):
      raise ValueError('late_tag must not be %r' % late_tag)
    if not isinstance(ordered_list_state, bool):
      raise TypeError(
          'ordered_list_state is True or False; it is %r' %
          (ordered_list_state, ))
    self._process = process
    self._context_size = _checked_context_size(context_size)
    self._sort_key = sort_key
    self._lateness = _checked_millis('allowed_lateness', allowed_lateness)
    self._interval = _checked_millis('batch_interval', batch_interval)
    self._late_tag = late_tag
    self._ordered_list_state = ordered_list_state

  def expand(self, pcoll):
    windowing = pcoll.windowing
    if windowing.windowfn.is_merging():
      raise ValueError(
          '%s: windows of %s merge, so it is not known which window an element '
          'is in before all are there. Window into something else first, or '
          'group by key and sort the groups.' %
          (self.label, type(windowing.windowfn).__name__))
    key_type, value_type = self._types(pcoll)
    key_coder, value_coder = (
        coders.registry.get_coder(some) for some in (key_type, value_type))
    runs = pcoll | 'GroupInBundle' >> beam.ParDo(
        GroupInBundle(key_coder, value_coder)).with_output_types(
            typehints.Tuple[key_type, bytes])
    if pcoll.is_bounded:
      # One group a window, at the end, whatever the triggers are.
      runs._windowing = Windowing(
          windowing.windowfn,
          timestamp_combiner=TimestampCombiner.OUTPUT_AT_EARLIEST)
      runs = runs | 'GroupByKey' >> beam.GroupByKey()
      do_fn = ProcessGrouped(
          self._process,
          self._context_size,
          _record_order(self._sort_key, value_coder),
          value_coder)
    else:
      of_runs = _OfRunsOLS if self._ordered_list_state else _OfRunsBag
      do_fn = of_runs(
          self, value_coder, windowing.allowed_lateness.micros // 1000)
    process = beam.ParDo(do_fn)
    if self._late_tag is None:
      result = runs | 'InOrder' >> process.with_output_types(
          _type_of_outputs(self._process))
      result._windowing = windowing
    else:
      result = runs | 'InOrder' >> process.with_outputs(
          self._late_tag, main='main')
      for output in result:
        output._windowing = windowing
    return result

  def _types(self, pcoll):
    try:
      pair = typehints.coerce_to_kv_type(pcoll.element_type)
    except ValueError:
      raise TypeError(
          '%s takes pairs of a key and a value; its input has %s' %
          (self.label, pcoll.element_type)) from None
    return pair.tuple_types

  def display_data(self):
    return {
        'context_size': self._context_size,
        'allowed_lateness_ms': self._lateness,
        'batch_interval_ms': self._interval,
    }
