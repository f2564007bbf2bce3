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

"""Plays a story to a pipeline on any runner, and tells who saw what, and when.

A story is a list of steps. Each is of one source, ``'main'`` or a signal, and
comes to pass when those before it have, all their consequences included. On the
direct runner that is a ``TestStream``. Prism and Flink get for each source a
splittable DoFn that waits for its turn; FnApiRunner, which runs one stage after
the other, gets the same, but nobody waits.
"""

import dataclasses
import threading
import time
import typing

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.io.restriction_trackers import OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import Duration
from apache_beam.utils.timestamp import Timestamp

# So long a release may take, on a machine that is busy with other things.
PATIENCE_SECONDS = 60
# So long the runner may take a wrong turn before the next step.
SETTLE_SECONDS = 0.3


@dataclasses.dataclass(frozen=True)
class Element:
  """The source gives an element."""
  source: str
  value: str
  seconds: float


@dataclasses.dataclass(frozen=True)
class Watermark:
  """The source's watermark goes on to this."""
  source: str
  seconds: float


@dataclasses.dataclass(frozen=True)
class End:
  """The source has ended."""
  source: str


@dataclasses.dataclass(frozen=True)
class Released:
  """Just these, and those of earlier steps, have passed the gate."""
  values: frozenset

  def __init__(self, *values):
    object.__setattr__(self, 'values', frozenset(values))


Step = typing.Union[Element, Watermark, End, Released]


class Seen(typing.NamedTuple):
  """What a recorder saw.

  Attributes:
    name: of the recorder, or 'step' when a ``Released`` comes to pass, which is
      the value then.
    value: the element.
    time: its event time in seconds.
    window: its window.
    pane: its pane.
  """
  name: str
  value: object
  time: typing.Optional[float] = None
  window: object = None
  pane: object = None


class _Stage:
  """What is going on, in the process of the test."""
  def __init__(self):
    self._lock = threading.Lock()
    self.open([], False)

  def open(self, steps, in_turn):
    with self._lock:
      self.steps = steps
      self.in_turn = in_turn
      self.done = set()
      self.seen = []
      self.waited_since = time.monotonic()

  def see(self, seen):
    with self._lock:
      self.seen.append(seen)

  def released(self):
    with self._lock:
      return {seen.value for seen in self.seen if seen.name == 'released'}

  def is_turn(self, index):
    return not self.in_turn or len(self.done) >= index

  def finish(self, index):
    if index not in self.done:
      self.done.add(index)
      self.waited_since = time.monotonic()

  def waited(self):
    return time.monotonic() - self.waited_since


STAGE = _Stage()


class _Recorder(beam.DoFn):
  def __init__(self, name):
    self._name = name

  def process(
      self,
      value,
      timestamp=beam.DoFn.TimestampParam,
      window=beam.DoFn.WindowParam,
      pane=beam.DoFn.PaneInfoParam):
    STAGE.see(Seen(self._name, value, timestamp.micros / 1e6, window, pane))
    yield value


def record(name: str) -> beam.PTransform:
  """Records all elements that pass."""
  return f'Record {name}' >> beam.ParDo(_Recorder(name))


class _WholeTracker(OffsetRestrictionTracker):
  def try_split(self, fraction_of_remainder):
    if fraction_of_remainder == 0:
      return super().try_split(0)


class _Whole(RestrictionProvider):
  def initial_restriction(self, source):
    # The last position is that at which all steps have had their effect.
    return OffsetRange(0, len(_own_steps(source)) + 1)

  def create_tracker(self, restriction):
    return _WholeTracker(restriction)

  def restriction_size(self, source, restriction):
    return restriction.size()


def _own_steps(source):
  # The first source waits for what is released.
  others = {getattr(step, 'source', None) for step in STAGE.steps} - {None}
  return [(index, step) for index, step in enumerate(STAGE.steps)
          if getattr(step, 'source', min(others)) == source]


class _SourceFn(beam.DoFn):
  """Plays the steps of one source, a bundle each.

  What a bundle says of the watermark has reached the runner when the next one
  begins.
  """
  @beam.DoFn.unbounded_per_element()
  def process(
      self,
      source,
      tracker=beam.DoFn.RestrictionParam(_Whole()),
      estimator=beam.DoFn.WatermarkEstimatorParam(
          ManualWatermarkEstimator.default_provider())):
    position = tracker.current_restriction().start
    steps = _own_steps(source)
    for index, _ in steps[:position]:
      STAGE.finish(index)
    if position == len(steps):
      tracker.try_claim(position)
      return
    index, step = steps[position]
    if not STAGE.is_turn(index) or not self._can(step):
      tracker.defer_remainder(Duration(seconds=0.02))
      return
    if not tracker.try_claim(position):
      return
    if isinstance(step, Element):
      yield TimestampedValue(step.value, step.seconds)
    elif isinstance(step, Watermark):
      estimator.set_watermark(Timestamp(step.seconds))
    elif isinstance(step, End):
      estimator.set_watermark(MAX_TIMESTAMP)
    elif isinstance(step, Released) and STAGE.in_turn:
      STAGE.see(Seen('step', step))
    tracker.defer_remainder(Duration(seconds=0.02))

  def _can(self, step):
    if not STAGE.in_turn:
      return True
    if isinstance(step, Released):
      missing = step.values - STAGE.released()
      if missing and STAGE.waited() > PATIENCE_SECONDS:
        raise RuntimeError(f'not released: {sorted(missing)}')
      if missing:
        return False
    return STAGE.waited() > SETTLE_SECONDS or not isinstance(
        step, (Element, Released))


def play(pipeline, steps: typing.Sequence[Step], on: str) -> dict:
  """Returns the PCollections of all sources of a story, by name.

  Args:
    on: 'direct', 'fnapi', 'prism', or 'flink', whose workers have to be threads
      of this process.
  """
  sources = sorted({getattr(step, 'source', None) for step in steps} - {None},
                   key=str)
  STAGE.open(list(steps), on in ('prism', 'flink'))
  if on != 'direct':
    return {
        source: pipeline
        | f'Name {source}' >> beam.Create([source], reshuffle=False)
        | f'Play {source}' >> beam.ParDo(_SourceFn()).with_output_types(str)
        for source in sources
    }
  stream = TestStream(output_tags={*sources, 'steps'})
  for step in steps:
    if isinstance(step, Element):
      stream.add_elements([TimestampedValue(step.value, step.seconds)],
                          tag=step.source)
    elif isinstance(step, Watermark):
      stream.advance_watermark_to(step.seconds, tag=step.source)
    elif isinstance(step, End):
      stream.advance_watermark_to_infinity(tag=step.source)
    elif isinstance(step, Released):
      stream.add_elements([TimestampedValue(step, 0)], tag='steps')
  stream.advance_watermark_to_infinity(tag='steps')
  outputs = pipeline | stream
  _ = outputs['steps'] | record('step')
  return {source: outputs[source] for source in sources}
