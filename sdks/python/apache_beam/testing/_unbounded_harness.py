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

"""A runner for one split of an unbounded source, one bundle at a time.

Purpose: what a runner may do to a bundle at any moment (split it, fail it,
  repeat it, finalize it late or never), on demand and in one thread.
Guarantees: the DoFn that reads is the one of the pipeline, taken from the
  transform as it expands; it is run by the SDK's own invoker, with its tracker
  and watermark wrappers, and what is left over goes through its coder.
"""

import base64
import collections
import io
import itertools
import pickle
import time
import weakref
import zlib
from typing import Any
from typing import Callable
from typing import Iterator
from typing import Optional

from apache_beam import pvalue
from apache_beam.internal import cloudpickle_pickler
from apache_beam.io.unbounded_source import ReadFromUnboundedSource
from apache_beam.io.unbounded_source import UnboundedReader
from apache_beam.io.unbounded_source import UnboundedSource
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pipeline import Pipeline
from apache_beam.pipeline import PipelineVisitor
from apache_beam.runners import common
from apache_beam.runners.sdf_utils import SplitResultResidual
from apache_beam.transforms.core import DoFn
from apache_beam.transforms.core import ParDo
from apache_beam.transforms.window import GlobalWindow
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

# How long threads of a reader get when a bundle found nothing.
_TURN_SECONDS = 0.001


class BundleResult:
  """What one bundle left behind; counts for nothing unless committed.

  Attributes:
    records: (value, timestamp) of what was output.
    residuals: restrictions, as decoded from their bytes.
    primaries: likewise, of splits.
    watermarks: the output watermark of each residual.
    delays: the seconds after which each residual asks to be resumed.
    sizes: how much work each residual says it is.
    error: what the bundle failed with.
    finalize: what the runner calls when the bundle is committed.
  """
  def __init__(self) -> None:
    self.records: list[tuple[Any, Timestamp]] = []
    self.residuals: list[Any] = []
    self.primaries: list[Any] = []
    self.watermarks: list[Timestamp] = []
    self.delays: list[float] = []
    self.sizes: list[float] = []
    self.error: Optional[BaseException] = None
    self.finalize: Callable[[], Any] = lambda: None

  @property
  def values(self) -> list[Any]:
    return [value for value, _ in self.records]

  def raise_error(self) -> 'BundleResult':
    """Raises what the bundle failed with, if it did."""
    if self.error is not None:
      raise self.error
    return self


class SplitInjectingHarness:
  """Runs a source bundle by bundle, and splits or fails it where a test says.

  Each moment at which a runner can interfere is an event with a name and a
  number; here a split after each record that is output::

    from apache_beam.testing.unbounded_source import End
    from apache_beam.testing.unbounded_source import Records
    from apache_beam.testing.unbounded_source import ScriptedSource
    from apache_beam.testing.unbounded_source import SplitInjectingHarness

    def split_after_output(name, number):
      if name == 'output':
        harness.split()

    source = ScriptedSource([Records(*range(100)), End()])
    harness = SplitInjectingHarness(source, on_event=split_after_output)
    assert harness.run() == list(range(100))

  To interfere once at every moment, repeat the run with the number of the event
  one higher each time, until it is higher than :attr:`events`.

  Args:
    source: read as one split; ``split`` is not called.
    poll_interval: as of ``ReadFromUnboundedSource``; so are the next two.
    max_records: a bundle's.
    max_seconds: a bundle's.
    on_event: called with the name and the number of each event: ``begin``
      before the DoFn gets to run, the name of each method of the reader that
      is called, before the call, ``output`` before a record is output, ``end``
      when the DoFn is done. It may call :meth:`split`, or raise to fail the
      bundle there.
    options: the pipeline's.

  Attributes:
    events: how many there were.
    opened: how many readers were opened.
    closed: how many were closed.
    result: of the bundle that runs, so far.
  """
  def __init__(
      self,
      source: UnboundedSource,
      poll_interval: float = 0.0,
      max_records: int = 10000,
      max_seconds: float = 10.0,
      on_event: Callable[[str, int], None] = lambda name, number: None,
      options: Optional[PipelineOptions] = None) -> None:
    self.on_event = on_event
    self.events = 0
    self.opened = 0
    self.closed = 0
    self.result = BundleResult()
    self._number = next(_NUMBERS)
    _WATCHERS[self._number] = self
    caps = (poll_interval, max_records, max_seconds)
    self._source = source
    fns = self._fns(caps, options)
    at, = [
        at for at, fn in enumerate(fns)
        if common.DoFnSignature(fn).is_splittable_dofn()
    ]
    self._head = fns[:at]
    self.element = self._element()
    self.fn = fns[at]
    self._tail = fns[at + 1:]
    signature = common.DoFnSignature(self.fn)
    self._provider = signature.get_restriction_provider()
    self._estimators = signature.get_watermark_estimator_provider()
    self._coder = self._provider.restriction_coder()
    self._finalizer = DoFn.BundleFinalizerParam()
    self._invoker = common.DoFnInvoker.create_invoker(
        signature,
        _Outputs(self),
        common.DoFnContext('Read'),
        side_inputs=[],
        input_args=[],
        input_kwargs={},
        bundle_finalizer_param=self._finalizer)
    self.fn.setup()

  def open(self, source: UnboundedSource) -> None:
    """Goes on with another source; to make a harness takes some 50 ms."""
    self._source = source
    self.element = self._element()
    self.events = self.opened = self.closed = 0

  def _fns(self, caps, options: Optional[PipelineOptions]) -> list[DoFn]:
    """The DoFns that read, in their order, from the pipeline's first."""
    return _expand(
        ReadFromUnboundedSource(
            _WatchedSource(self._source, self._number), *caps),
        options)

  def _element(self) -> Any:
    """What the DoFn that reads is given."""
    element, = _run(self._head, [None])
    return element

  def _output(self, unused_output: Any, record: Any) -> None:
    """Takes a record, and what the DoFn that reads gave for it."""
    self.result.records.append((record.value, record.timestamp))

  def event(self, name: str) -> None:
    self.events += 1
    self.on_event(name, self.events)

  def initial(self) -> Any:
    """The restriction that the first bundle begins with."""
    return self._provider.initial_restriction(self.element)

  def bundle(
      self,
      restriction: Any,
      estimator_state: Optional[Any] = None) -> BundleResult:
    """Runs one bundle; an error is noted, as a runner would.

    Args:
      restriction: the initial one, or a residual of an earlier bundle. Giving
        one twice is what a runner does that retries.
      estimator_state: what the runner has for the watermark estimator, if not
        what goes with the restriction.
    """
    result = self.result = BundleResult()
    self._finalizer.reset()
    state = estimator_state
    if state is None:
      state = self._estimators.initial_estimator_state(
          self.element, restriction)
    element = WindowedValue(self.element, MIN_TIMESTAMP, (GlobalWindow(), ))
    try:
      self.fn.start_bundle()
      for residual in self._invoker.invoke_process(
          element, restriction=restriction, watermark_estimator_state=state):
        self._note(residual)
      self.fn.finish_bundle()
    except BaseException as exc:  # pylint: disable=broad-except
      result.error = exc
      self.fn.teardown()
    callbacks = list(self._finalizer._callbacks)
    result.finalize = lambda: [callback() for callback in callbacks]
    return result

  def split(self, fraction: float = 0.0) -> bool:
    """Asks the bundle that is running to split; returns whether it did."""
    answer = self._invoker.try_split(fraction)
    if not answer:
      return False
    primaries, residuals = answer
    for primary in primaries:
      (_, (restriction, _)), _ = primary.primary_value.value
      self.result.primaries.append(self._through_bytes(restriction))
    for residual in residuals:
      self._note(residual)
    return True

  def progress(self):
    """What the bundle that is running answers when it is asked how far it is.
    """
    return self._invoker.current_element_progress()

  def run(
      self,
      restriction: Optional[Any] = None,
      finalize: bool = True,
      max_bundles: int = 10000) -> list[Any]:
    """Runs bundles until nothing is left, and returns what was output.

    Raises:
      AssertionError: the source did not end within ``max_bundles``.
    """
    values = []
    todo = collections.deque([
        self.initial() if restriction is None else restriction
    ])
    for _ in range(max_bundles):
      if not todo:
        return values
      result = self.bundle(todo.popleft()).raise_error()
      values.extend(result.values)
      todo.extend(result.residuals)
      if finalize:
        result.finalize()
      if not result.values and any(result.delays):
        # The delay is not kept, but a thread that fetches gets its turn: else
        # all bundles may be over before it has looked once.
        time.sleep(_TURN_SECONDS)
    raise AssertionError(
        f'no end after {max_bundles} bundles; {len(values)} records were read')

  def _note(self, residual: SplitResultResidual) -> None:
    (_, (restriction, _)), size = residual.residual_value.value
    assert size >= 0, f'a size of {size}'
    self.result.residuals.append(self._through_bytes(restriction))
    self.result.watermarks.append(residual.current_watermark)
    self.result.sizes.append(size)
    delay = residual.deferred_timestamp
    self.result.delays.append(0.0 if delay is None else delay.micros / 1e6)

  def _through_bytes(self, restriction: Any) -> Any:
    return self._coder.decode(self._coder.encode(restriction))


class _Outputs(common.OutputHandler):
  """Runs what is fused to the DoFn, and counts the events."""
  def __init__(self, harness: SplitInjectingHarness) -> None:
    self._harness = harness

  def handle_process_outputs(self, element, results, watermark_estimator=None):
    harness = self._harness
    harness.event('begin')
    for output in results or ():
      watermark_estimator.observe_timestamp(output.timestamp)
      for record in _run(harness._tail, [output]):
        harness.event('output')
        harness._output(output, record)
    harness.event('end')


def _expand(transform, options: Optional[PipelineOptions]) -> list[DoFn]:
  """The DoFns of a transform, in their order."""
  pipeline = Pipeline(options=options or PipelineOptions([]))
  output = pipeline | transform
  assert isinstance(output, pvalue.PCollection)
  found = []

  class Visitor(PipelineVisitor):
    def visit_transform(self, applied):
      if isinstance(applied.transform, ParDo):
        found.append(applied.transform.fn)

  pipeline.visit(Visitor())
  return found


def _run(fns: list[DoFn], values: list[Any]) -> Iterator[Any]:
  """Runs DoFns one after another on each value."""
  if not fns:
    yield from values
    return
  for value in values:
    bare = isinstance(value, (WindowedValue, TimestampedValue))
    outputs = fns[0].process(value.value if bare else value)
    yield from _run(fns[1:], outputs or ())


_NUMBERS = itertools.count()
# By number, since the source that reports to a harness is pickled on its way.
_WATCHERS: 'weakref.WeakValueDictionary[int, SplitInjectingHarness]' = (
    weakref.WeakValueDictionary())


class _Unpickler(pickle.Unpickler):
  """Leaves classes as they are.

  A class of the main script or of a function is pickled by value. To unpickle
  it where it was defined would put copies of its methods into it, which see
  copies of the module's variables: a fake server in a test's dict would be lost
  from sight.
  """
  def find_class(self, module, name):
    if name == '_class_setstate':
      return lambda cls, unused_state, **unused_options: cls
    return super().find_class(module, name)


def dump(source: UnboundedSource) -> bytes:
  """As a pipeline pickles it."""
  return cloudpickle_pickler.dumps(source, use_zlib=True)


def load_here(pickled: bytes) -> UnboundedSource:
  """The copy that a worker would get, in the process that pickled it."""
  raw = zlib.decompress(base64.b64decode(pickled))
  return _Unpickler(io.BytesIO(raw)).load()


def _load_watched(pickled: bytes, number: int) -> '_WatchedSource':
  return _WatchedSource(load_here(pickled), number)


class _WatchedSource(UnboundedSource):
  """Another source, whose readers report what is called."""
  def __init__(self, source: UnboundedSource, number: int) -> None:
    self._source = source
    self._number = number

  def __reduce__(self):
    return _load_watched, (dump(self._source), self._number)

  def split(self, desired_num_splits, options=None):
    # Not this one but what the harness reads by now: see open().
    return [_WatchedSource(_WATCHERS[self._number]._source, self._number)]

  def create_reader(self, options, checkpoint_mark):
    reader = self._source.create_reader(options, checkpoint_mark)
    if not isinstance(reader, UnboundedReader):
      return reader
    harness = _WATCHERS.get(self._number)
    if harness is not None:
      harness.opened += 1
    return _WatchedReader(reader, self._number)

  def get_checkpoint_mark_coder(self):
    return self._source.get_checkpoint_mark_coder()

  def default_output_coder(self):
    return self._source.default_output_coder()


class _WatchedReader(UnboundedReader):
  """Another reader. Its methods are made below, from those of the base."""
  def __init__(self, reader: UnboundedReader, number: int) -> None:
    self._reader = reader
    self._number = number


def _watched_method(name: str) -> Callable:
  def call(self, *args):
    harness = _WATCHERS.get(self._number)
    if harness is not None:
      harness.event(name)
      harness.closed += name == 'close'
    return getattr(self._reader, name)(*args)

  call.__name__ = name
  return call


for _name in dir(UnboundedReader):
  if not _name.startswith('_'):
    setattr(_WatchedReader, _name, _watched_method(_name))
