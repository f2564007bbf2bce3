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

"""What ``WaitOn`` does where a signal is unbounded.

A runner is asked one thing only: that a ``GroupByKey`` gives a window when its
input's watermark has passed the end of it. The elements of the main input,
packed into batches, wait in such a grouping. Their window in it, the *gate's*,
ends when the last of the signals' windows that they wait for has closed; and
the signals, less all of their elements, are flattened into its input, so that
the watermark there is behind theirs. What is a signal's is neither stored nor
sent anywhere, and a window in which a signal has nothing closes like any other.

The timestamp of a batch is that of its earliest element. The grouping holds the
watermark there, so that nothing is late behind the gate that was not before.

A side input would not wait for the main input's own watermark and need no
shuffle; but only the runner can say when it is ready, and some say so early,
some never, and none in Python counts the allowed lateness.
"""

import logging
import random
import typing

from apache_beam import coders
from apache_beam import pvalue
from apache_beam.coders import coder_impl
from apache_beam.metrics import Metrics
from apache_beam.transforms import core
from apache_beam.transforms import trigger
from apache_beam.transforms import window
from apache_beam.transforms.ptransform import PTransform
from apache_beam.transforms.window import IntervalWindow
from apache_beam.transforms.window import TimestampCombiner
from apache_beam.transforms.window import WindowFn
from apache_beam.typehints import typehints
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import Timestamp

__all__ = []

_LOGGER = logging.getLogger(__name__)

# Windows of the gate last a millisecond, what all runners can tell apart.
_MICROS = 1000

# The last window of the gate ends with the global window, which closes when
# there is no more input.
_END_OF_TIME = (
    window.GlobalWindow().max_timestamp().micros // _MICROS * _MICROS)

# A batch is a few thousand small elements, so that what is done for each batch,
# in Python and in the runner, costs next to nothing an element.
_BATCH_BYTES = 128 << 10

# The first release of Beam in which there may be a gate.
_SINCE = '2.78.0'

# In how many windows a bundle may have open batches. (Windows of the main input
# may be as many as its elements.)
_OPEN_BATCHES = 1000

# The keys of the batches: on so many workers at once the elements go on.
_SHARDS = 512


def needs_gate(main, signals) -> bool:
  """Whether windows are to be released one by one, for a signal is unbounded.

  Raises:
    TypeError: if a signal is not a PCollection.
    ValueError: if a signal is of another pipeline, or never closes a window.
  """
  for number, signal in enumerate(signals, 1):
    if not isinstance(signal, pvalue.PCollection):
      raise TypeError(
          f'WaitOn waits for PCollections; its argument {number} is a '
          f'{type(signal).__name__}: {signal!r}')
    if signal.pipeline is not main.pipeline:
      raise ValueError(
          f'WaitOn cannot wait for a PCollection of another pipeline: its '
          f'argument {number}, {signal!r}')
  unbounded = [signal for signal in signals if not signal.is_bounded]
  for signal in unbounded:
    _check_closes(main, signal)
  return bool(unbounded) and not _keeps_its_form(main.pipeline)


def _check_closes(main, signal):
  windowing = signal.windowing
  if isinstance(windowing.windowfn, window.GlobalWindows):
    problem = (
        f'WaitOn waits for {signal!r}, which is unbounded and in the global '
        f'window: nothing is released before it ends, and if it never ends, '
        f'nothing is released at all. Put it into windows, with WindowInto.')
    unsafe = main.pipeline.allow_unsafe_triggers
    # A trigger says that its author knows that the window stays open.
    if isinstance(windowing.triggerfn, trigger.DefaultTrigger) and not unsafe:
      raise ValueError(
          problem + ' (If it ends, --allow_unsafe_triggers lets it pass.)')
    _LOGGER.warning(problem)
  elif isinstance(main.windowing.windowfn, window.GlobalWindows):
    _LOGGER.warning(
        'WaitOn holds %r, which is in the global window, until the unbounded '
        '%r ends. If that never ends, nothing is released at all. Put the '
        'former into windows, with WindowInto.',
        main,
        signal)


def wait(main, signals, wait_on):
  """Returns what ``main`` has, released window by window.

  Args:
    wait_on: the transform that waits for bounded signals.
  """
  bounded = [signal for signal in signals if signal.is_bounded]
  unbounded = [signal for signal in signals if not signal.is_bounded]
  released = main | 'Gate' >> Gate(unbounded)
  return released | 'Bounded' >> wait_on(*bounded) if bounded else released


def side_inputs(main, signals):
  """Makes of signals what a side input may be made of.

  With an unbounded main input that is one PCollection, in which nothing is
  ready before all signals have ended.
  """
  if main.is_bounded or _keeps_its_form(main.pipeline):
    return [
        signal
        | f'Global{index}' >> core.WindowInto(window.GlobalWindows())
        if _merges(signal.windowing.windowfn) else signal
        for (index, signal) in enumerate(signals)
    ]
  return [main.pipeline | 'Ended' >> _Ended(signals)] if signals else []


def _keeps_its_form(pipeline) -> bool:
  """Whether the pipeline may be one that an update takes over."""
  return pipeline.options.is_compat_version_prior_to(_SINCE)


def _merges(windowfn) -> bool:
  return not isinstance(windowfn, window.NonMergingWindowFn)


class Gate(PTransform):
  """Holds elements until all signals have closed the windows that match.

  Args:
    signals: PCollections; those that are bounded close all windows when they
      end.
  """
  def __init__(self, signals: typing.Sequence[pvalue.PCollection]):
    super().__init__()
    self._signals = signals

  def expand(self, main):
    windowing = main.windowing
    element_type = main.element_type or typehints.Any
    codec = BatchCodec(
        coders.registry.get_coder(element_type),
        windowing.windowfn.get_window_coder())
    closing = ClosingTimes([(signal.windowing.windowfn,
                             signal.windowing.allowed_lateness.micros)
                            for signal in self._signals])
    gate = core.Windowing(
        window.FixedWindows(_MICROS / 1e6),
        trigger.DefaultTrigger(),
        trigger.AccumulationMode.DISCARDING,
        TimestampCombiner.OUTPUT_AT_EARLIEST,
        windowing.allowed_lateness)
    batch_type = typehints.KV[int, bytes]
    batches = main | 'Pack' >> core.ParDo(_PackFn(
        codec, closing)).with_output_types(batch_type)
    inputs = [batches]
    for index, signal in enumerate(self._signals):
      inputs.append(
          signal
          | f'Drop{index}' >> core.ParDo(
              _DropFn()).with_output_types(batch_type))
    for pcoll in inputs:
      pcoll._windowing = gate
    released = (
        inputs
        | core.Flatten()
        | core.GroupByKey()
        | 'Unpack' >>
        core.ParDo(_UnpackFn(codec)).with_output_types(element_type))
    # What comes out is what went in.
    released._windowing = windowing
    released.is_bounded = main.is_bounded
    return released


class _Ended(PTransform):
  """Has nothing, and a watermark at the beginning until bounded signals end.

  A bounded signal has a watermark, too, which moves along the elements that
  still wait somewhere. Prism lets elements of the main input pass as long as
  the main input's watermark is not ahead of that, though the signal still has
  elements of their window. So there is one element that waits in a grouping
  from the beginning to the end of time.

  Args:
    signals: PCollections, at least one, all bounded.
  """
  def __init__(self, signals: typing.Sequence[pvalue.PCollection]):
    super().__init__()
    self._signals = signals

  def expand(self, pbegin):
    pair_type = typehints.KV[int, bytes]
    inputs = [
        pbegin
        | core.Impulse()
        | 'Key' >> core.Map(lambda empty:
                            (0, empty)).with_output_types(pair_type)
    ]
    for index, signal in enumerate(self._signals):
      inputs.append(
          signal
          | f'Drop{index}' >> core.ParDo(
              _DropFn()).with_output_types(pair_type))
    windowing = core.Windowing(
        window.GlobalWindows(),
        timestamp_combiner=TimestampCombiner.OUTPUT_AT_EARLIEST)
    for pcoll in inputs:
      pcoll._windowing = windowing
    return inputs | core.Flatten() | core.GroupByKey()


class ClosingTimes:
  """Tells when all signals have closed what a window waits for.

  The window of a signal that matches is that in which an element at the last
  instant of the window would be, the earliest of them if there are many: the
  same as of side inputs. With sessions it is the session that would begin at
  that instant.

  Args:
    signals: the window function and the allowed lateness, in microseconds, of
      each signal.
  """
  def __init__(self, signals: typing.Sequence[tuple[WindowFn, int]]):
    # Signals with the same windows and the same lateness are one.
    self._signals = []
    for signal in signals:
      if signal not in self._signals:
        self._signals.append(signal)

  def gate_window(self, main_window: window.BoundedWindow) -> IntervalWindow:
    """The window of the gate that closes then."""
    end = min(self._closes(main_window), _END_OF_TIME)
    # Up to the next of those that a runner can tell apart.
    end = -(-end // _MICROS) * _MICROS
    return IntervalWindow(
        Timestamp(micros=end - _MICROS), Timestamp(micros=end))

  def _closes(self, main_window) -> int:
    last = main_window.max_timestamp()
    closes = last.micros + 1
    for windowfn, lateness in self._signals:
      context = WindowFn.AssignContext(last, window=main_window)
      ends = [w.max_timestamp().micros + 1 for w in windowfn.assign(context)]
      closes = max(closes, min(ends) + lateness)
    return closes


class BatchCodec:
  """Packs elements of one window, with times and panes, into bytes.

  A batch is the window, and for each element its time in microseconds as 8
  bytes with the most significant first, its pane, and itself; all in the nested
  encoding of their coders. What reads it may be another build of the same
  pipeline, that an updated job runs: this format does not change.
  """
  def __init__(self, element_coder: coders.Coder, window_coder: coders.Coder):
    self._coders = (element_coder, window_coder)
    self._set_impls()

  def _set_impls(self):
    element_coder, window_coder = self._coders
    self.encode_element = element_coder.get_impl().encode_to_stream
    self.decode_element = element_coder.get_impl().decode_from_stream
    self.encode_window = window_coder.get_impl().encode_to_stream
    self.decode_window = window_coder.get_impl().decode_from_stream
    pane_impl = coders.coders.PaneInfoCoder().get_impl()
    self.encode_pane = pane_impl.encode_to_stream
    self.decode_pane = pane_impl.decode_from_stream

  def __getstate__(self):
    return self._coders

  def __setstate__(self, state):
    self._coders = state
    self._set_impls()

  def open(self, batch_window: window.BoundedWindow):
    """Returns a stream, to which ``add`` writes elements of that window."""
    stream = coder_impl.create_OutputStream()
    self.encode_window(batch_window, stream, True)
    return stream

  def add(self, stream, element, micros: int, pane: windowed_value.PaneInfo):
    stream.write_bigendian_int64(micros)
    self.encode_pane(pane, stream, True)
    self.encode_element(element, stream, True)

  def read(
      self, batch: bytes) -> typing.Iterator[windowed_value.WindowedValue]:
    """Yields the elements of a batch one by one."""
    stream = coder_impl.create_InputStream(batch)
    windows = (self.decode_window(stream, True), )
    while stream.size():
      micros = stream.read_bigendian_int64()
      pane = self.decode_pane(stream, True)
      element = self.decode_element(stream, True)
      yield windowed_value.create(element, micros, windows, pane)


class _Batch:
  """A batch that is open.

  Attributes:
    gate_window: the window of the gate in which it is to wait.
    stream: what it holds.
    count: of so many elements.
    earliest: the least time of them, in microseconds.
  """
  __slots__ = ('gate_window', 'stream', 'count', 'earliest')

  def __init__(self, gate_window, stream, earliest):
    self.gate_window = gate_window
    self.stream = stream
    self.count = 0
    self.earliest = earliest

  def pack(self) -> windowed_value.WindowedValue:
    # A key of its own for each batch, or a large bundle would go on on one
    # worker alone.
    keyed = (random.randrange(_SHARDS), self.stream.get())
    return windowed_value.create(keyed, self.earliest, (self.gate_window, ))


class _PackFn(core.DoFn):
  """Packs the elements of a bundle into batches, in windows of the gate."""
  def __init__(self, codec: BatchCodec, closing: ClosingTimes):
    self._codec = codec
    self._closing = closing
    self._held = Metrics.counter('WaitOn', 'held')

  def start_bundle(self):
    self._batches = {}

  def process(
      self,
      element,
      timestamp=core.DoFn.TimestampParam,
      main_window=core.DoFn.WindowParam,
      pane=core.DoFn.PaneInfoParam):
    micros = timestamp.micros
    batch = self._batches.get(main_window)
    full = ()
    if batch is None:
      if len(self._batches) == _OPEN_BATCHES:
        full = self._close_all()
      batch = self._batches[main_window] = _Batch(
          self._closing.gate_window(main_window),
          self._codec.open(main_window),
          micros)
    elif micros < batch.earliest:
      batch.earliest = micros
    stream = batch.stream
    self._codec.add(stream, element, micros, pane)
    batch.count += 1
    if stream.size() < _BATCH_BYTES:
      return full
    del self._batches[main_window]
    return (*full, self._close(batch))

  def finish_bundle(self):
    return self._close_all()

  def _close_all(self):
    batches, self._batches = self._batches, {}
    return [self._close(batch) for batch in batches.values()]

  def _close(self, batch):
    self._held.inc(batch.count)
    return batch.pack()


class _DropFn(core.DoFn):
  """Leaves the watermark of a signal, and none of its elements."""
  def process(self, element):
    pass


class _UnpackFn(core.DoFn):
  def __init__(self, codec: BatchCodec):
    self._codec = codec
    self._released = Metrics.counter('WaitOn', 'released')

  def process(self, keyed):
    for batch in keyed[1]:
      count = 0
      for element in self._codec.read(batch):
        count += 1
        yield element
      self._released.inc(count)
