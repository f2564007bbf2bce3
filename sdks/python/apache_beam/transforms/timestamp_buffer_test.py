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

"""Tests of ordered processing in pipelines.

One story, on each runner and with each storage: elements of several keys, each
key for one thing that ordered processing may get wrong. What is expected is
sorted by hand; each output has its context, so it tells the order, too.
"""

import collections
import logging
import unittest
from typing import Iterator
from unittest import mock

import hypothesis
from hypothesis import strategies as st

import apache_beam as beam
from apache_beam import coders
from apache_beam.io._runner_testing import needs_prism
from apache_beam.io._runner_testing import prism_options
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.io.restriction_trackers import OffsetRestrictionTracker
from apache_beam.io.unbounded_source import ReadFromUnboundedSource
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.worker import bundle_processor
from apache_beam.testing.test_stream import TestStream
from apache_beam.testing.unbounded_source import End
from apache_beam.testing.unbounded_source import Idle
from apache_beam.testing.unbounded_source import Records
from apache_beam.testing.unbounded_source import ScriptedSource
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to
from apache_beam.transforms import _ordered_grouping
from apache_beam.transforms import window
from apache_beam.transforms._ordered_buffer import FRONT
from apache_beam.transforms._ordered_buffer_test import small_sizes
from apache_beam.transforms.timestamp_buffer import BufferState
from apache_beam.transforms.timestamp_buffer import OrderedProcess
from apache_beam.transforms.timestamp_buffer import TimestampBufferDoFn
from apache_beam.transforms.timestamp_buffer import TimestampBufferDoFnBag
from apache_beam.transforms.timestamp_buffer import TimestampBufferDoFnOLS
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration
from apache_beam.utils.timestamp import Timestamp

CONTEXT = 2


def tell(key, timestamp, value, context):
  """What a function of these tests gives: all that it gets."""
  yield (
      key,
      float(timestamp),
      value, [(float(earlier), previous) for earlier, previous in context])


def by_hand(elements, context_size=CONTEXT, sort_key=lambda value: 0):
  """What `tell` gives for (key, time, value), told without Beam."""
  by_key = collections.defaultdict(list)
  for key, time, value in elements:
    by_key[key].append((time, value))
  for key, pairs in by_key.items():
    pairs.sort(key=lambda pair: (pair[0], sort_key(pair[1])))
    for i, (time, value) in enumerate(pairs):
      yield key, time, value, pairs[max(0, i - context_size):i]


# Steps: a watermark in seconds, or elements (key, time, value).
STORY = [
    -100,
    [('before 1970', -50, 'b'), ('before 1970', -60, 'a')],
    -55,
    [('before 1970', -52.5, 'c')],
    0,
    [('ties', 3, value) for value in 'abc'],
    [('ties', 4, value) for value in 'abcdef'],
    [('late', 3, 'a')],
    [('at the watermark', 4, 'a')],
    [('spread', time / 8, time) for time in (80, 16, 79, 17, 40, 41, 39)],
    4.001,
    [('at the watermark', 4.001, 'b')],
    [('late', 1, 'too late'), ('ties', 5, 'a'), ('spread', 5, 'later')],
    [('late', 8, 'b')],
    9,
    [('late', 2, 'also'), ('late', 12, 'd'), ('late', 11, 'c')],
    [('ties', 30, 'a')],
]
LATE = [('late', 1, 'too late'), ('late', 2, 'also')]
IN_TIME = [
    element for step in STORY if isinstance(step, list) for element in step
    if element not in LATE
]


def timestamped(step):
  return [TimestampedValue((key, value), time) for key, time, value in step]


def as_stream(steps=STORY):
  stream = TestStream(
      coder=coders.FastPrimitivesCoder()).advance_watermark_to(-1000)
  for step in steps:
    if isinstance(step, list):
      stream.add_elements(timestamped(step))
    else:
      stream.advance_watermark_to(step)
  # DirectRunner's timers do not hold its watermark: what it gives out at the
  # very end is late for an assertion.
  stream.advance_watermark_to(10_000)
  return stream.advance_watermark_to_infinity()


def as_source():
  """The elements in time; FnApiRunner has no TestStream."""
  script = []
  for step in STORY:
    if isinstance(step, list):
      step = [element for element in step if element not in LATE]
      script += [Records(*timestamped(step)), Idle()]
  return ReadFromUnboundedSource(
      ScriptedSource([*script, End()]), 0.01, max_records_per_bundle=3)


def as_bounded(pipeline):
  return (
      pipeline
      | beam.Create(IN_TIME)
      | beam.Map(lambda e: TimestampedValue(
          (e[0], e[2]), e[1])).with_output_types(tuple[str, object]))


def counter(result, name):
  return sum(
      counter.committed for counter in result.metrics().query(
          MetricsFilter().with_namespace('OrderedProcess').with_name(name))
      ['counters'])


class KeyAndTime(beam.DoFn):
  def process(
      self, element, timestamp=beam.DoFn.TimestampParam,
      window=beam.DoFn.WindowParam):
    yield element, float(timestamp), float(window.start)


def check_windows(told, label, expected):
  """Outputs, grouped in windows of a second: of their own time, none lost."""
  grouped = (
      told
      | label + 'Seconds' >> beam.WindowInto(window.FixedWindows(1))
      | label + 'Pair' >> beam.Map(
          lambda one: (one[0], (one[1], one[2]))).with_output_types(
              tuple[str, tuple[float, object]])
      | label + 'Group' >> beam.GroupByKey()
      | label + 'Windows' >> beam.ParDo(KeyAndTime())
      | label + 'Flat' >> beam.FlatMap(
          lambda group: [(group[0][0], time, value, group[2])
                         for time, value in group[0][1]]))
  assert_that(
      grouped,
      equal_to([(key, time, value, float(time // 1))
                for key, time, value in expected]),
      label + 'in windows')


def check_story(elements, backends, expected, late, holds=True):
  for ordered_list in backends:
    label = 'list' if ordered_list else 'bag'
    for interval in (0, 7):
      tag = '%s %d ' % (label, interval)
      told = elements | tag + 'OrderedProcess' >> OrderedProcess(
          tell,
          CONTEXT,
          sort_key=str,
          batch_interval=interval,
          late_tag='late',
          ordered_list_state=ordered_list)
      if not interval:
        # With an interval less is late: less was released.
        assert_that(
            told.main,
            equal_to(list(by_hand(expected, sort_key=str))),
            tag + 'main')
        assert_that(
            told.late,
            equal_to([(key, value) for key, _, value in late]),
            tag + 'late')
        if holds:
          check_windows(told.main, tag, expected)
      else:
        everything = (told.main | tag + 'value' >> beam.Map(
            lambda one: (one[0], one[2])), told.late) | (
                tag + 'all' >> beam.Flatten())
        assert_that(
            everything,
            equal_to([(key, value) for key, _, value in [*expected, *late]]),
            tag + 'main and late')


class StoryTest(unittest.TestCase):
  """The story, with both storages where a runner has them."""
  def check_stream(self, options, backends, holds):
    with self.assertNoLogs('apache_beam.transforms', logging.INFO):
      pipeline = beam.Pipeline(options=options)
      # A step of its own: Prism gives a TestStream's elements no keys.
      elements = pipeline | as_stream() | beam.Map(
          lambda pair: pair).with_output_types(tuple[str, object])
      check_story(elements, backends, IN_TIME, LATE, holds)
      result = pipeline.run()
      result.wait_until_finish()
    return result

  def test_direct_runner(self):
    self.check_stream(PipelineOptions(['--streaming']), [False], False)

  @needs_prism
  def test_prism(self):
    result = self.check_stream(prism_options(), [False, True], True)
    self.assertGreaterEqual(counter(result, 'late_elements'), 2 * 2)
    self.assertGreaterEqual(
        counter(result, 'released_elements'), 2 * len(IN_TIME))

  def test_fn_api_runner(self):
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      elements = pipeline | as_source() | beam.Map(
          lambda pair: pair).with_output_types(tuple[str, object])
      check_story(elements, [False, True], IN_TIME, [])

  def test_repeated_bundles(self):
    with beam.Pipeline(runner=FnApiRunner(bundle_repeat=2)) as pipeline:
      elements = as_bounded(pipeline)
      elements.is_bounded = False
      check_story(elements, [False, True], IN_TIME, [])

  def test_bounded_input(self):
    for runner in (FnApiRunner(), FnApiRunner(bundle_repeat=1), None):
      with beam.Pipeline(runner=runner) as pipeline:
        elements = as_bounded(pipeline)
        self.assertTrue(elements.is_bounded)
        check_story(elements, [False], IN_TIME, [])

  @needs_prism
  def test_bounded_input_on_prism(self):
    with beam.Pipeline(options=prism_options()) as pipeline:
      check_story(as_bounded(pipeline), [False], IN_TIME, [])


class PropertyTest(unittest.TestCase):
  """Whatever comes, in whatever bundles, repeated or not: as sorting."""
  @hypothesis.settings(max_examples=12, deadline=None)
  @hypothesis.given(
      st.lists(
          st.tuples(
              st.sampled_from('ab'), st.integers(-9, 9), st.integers(0, 9)),
          max_size=30),
      st.integers(1, 9),
      st.integers(0, 2),
      st.booleans(),
      st.sampled_from([0, 0.004]),
      st.integers(0, 3))
  def test_on_fn_api_runner(
      self, elements, in_bundle, repeat, ordered_list, interval, context_size):
    elements = [(key, time / 1000, value) for key, time, value in elements]
    source = ScriptedSource([Records(*timestamped(elements)), End()])
    # So small that the storage has a part, whatever its real size is.
    with small_sizes(), beam.Pipeline(
        runner=FnApiRunner(bundle_repeat=repeat)) as pipeline:
      told = (
          pipeline
          | ReadFromUnboundedSource(
              source, 0.01, max_records_per_bundle=in_bundle)
          | beam.Map(lambda pair: pair).with_output_types(tuple[str, object])
          | OrderedProcess(
              tell,
              context_size,
              sort_key=lambda value: value,
              batch_interval=interval,
              ordered_list_state=ordered_list))
      assert_that(
          told,
          equal_to(
              list(
                  by_hand(
                      elements, context_size, sort_key=lambda value: value))))


class HoldTest(unittest.TestCase):
  """What waits holds the watermark: it is not late when it comes out."""
  ELEMENTS = [('k', time, time) for time in (3, 1, 2.5, 12)]
  # Far from where an element is safe to the next watermark, and over windows.
  STEPS = [0, ELEMENTS[:3], 4, 5.5, 6.5, ELEMENTS[3:], 7, 8.5, 20]

  @needs_prism
  def test_prism(self):
    with beam.Pipeline(options=prism_options()) as pipeline:
      elements = pipeline | as_stream(self.STEPS) | beam.Map(
          lambda pair: pair).with_output_types(tuple[str, object])
      for ordered_list in (False, True):
        for lateness, interval in ((5, 0), (0, 10)):
          tag = '%s %d %d ' % (ordered_list, lateness, interval)
          told = elements | tag + 'OrderedProcess' >> OrderedProcess(
              tell,
              CONTEXT,
              allowed_lateness=lateness,
              batch_interval=interval,
              ordered_list_state=ordered_list)
          check_windows(told, tag, self.ELEMENTS)


class _AtHand(beam.transforms.core.RestrictionProvider):
  """A source without an end; drained, it gives what it has at hand."""
  def __init__(self, number):
    self._number = number

  def initial_restriction(self, element):
    return OffsetRange(0, 10**9)

  def create_tracker(self, restriction):
    return OffsetRestrictionTracker(restriction)

  def restriction_size(self, element, restriction):
    return 1

  def truncate(self, element, restriction):
    return OffsetRange(restriction.start, self._number)


# What came out of a pipeline in this process, with a tag of where.
_CAME_OUT = []


def _came_out(told, tag):
  _CAME_OUT.append((tag, told))


class DrainTest(unittest.TestCase):
  """A drain, and the end of a source, give out all that waits."""
  ELEMENTS = [('k', time, '%s' % time)
              for time in (28.5, 3, 1, 12, 2.5, 19.75, 11, 9.999)]

  @staticmethod
  def endless(elements):
    """Three elements a bundle; the watermark stands before them all."""
    class Endless(beam.DoFn):
      @beam.DoFn.unbounded_per_element()
      def process(
          self,
          element,
          tracker=beam.DoFn.RestrictionParam(_AtHand(len(elements))),
          estimator=beam.DoFn.WatermarkEstimatorParam(
              ManualWatermarkEstimator.default_provider())):
        estimator.set_watermark(Timestamp(0))
        start = tracker.current_restriction().start
        for index in range(start, start + 3):
          if not tracker.try_claim(index):
            return
          yield timestamped([elements[index]])[0]
        tracker.defer_remainder(Duration(0.01))

    return Endless()

  def all_that_waits(self, elements, backends):
    """Yields a tag, what comes out, and what should."""
    expected = {
        'global': list(by_hand(self.ELEMENTS)),
        'fixed': [
            told for start in (0, 10, 20)
            for told in by_hand(
                element for element in self.ELEMENTS
                if start <= element[1] < start + 10)
        ]
    }
    for ordered_list in backends:
      for name, windowing in (('global', window.GlobalWindows()),
                              ('fixed', window.FixedWindows(10))):
        # Nothing of it is due before a thousand seconds, or ever.
        for interval, lateness in ((1000, 0), (0, 10**9)):
          tag = '%s %s %d ' % (name, ordered_list, interval)
          told = (
              elements | tag + 'window' >> beam.WindowInto(
                  windowing, allowed_lateness=100)
              | tag >> OrderedProcess(
                  tell,
                  CONTEXT,
                  batch_interval=interval,
                  allowed_lateness=lateness,
                  ordered_list_state=ordered_list))
          yield tag, told, expected[name]

  def check_all_comes_out(self, elements, backends):
    for tag, told, expected in self.all_that_waits(elements, backends):
      assert_that(told, equal_to(expected), tag + 'told')

  def test_drain(self):
    for repeat in (0, 1):
      pipeline = beam.Pipeline(
          runner=FnApiRunner(is_drain=True, bundle_repeat=repeat),
          options=PipelineOptions(['--streaming']))
      elements = (
          pipeline | beam.Create([None], reshuffle=False)
          | beam.ParDo(self.endless(self.ELEMENTS)).with_output_types(
              tuple[str, object]))
      self.assertFalse(elements.is_bounded)
      self.check_all_comes_out(elements, [False, True])
      result = pipeline.run()
      result.wait_until_finish()
      if not repeat:
        self.assertEqual(
            8 * len(self.ELEMENTS), counter(result, 'released_elements'))
      self.assertEqual(0, counter(result, 'late_elements'))

  def stream(self, pipeline):
    return pipeline | as_stream([0, self.ELEMENTS]) | beam.Map(
        lambda pair: pair).with_output_types(tuple[str, object])

  def test_end_on_direct_runner(self):
    """What comes at the very end is late for an assertion there."""
    _CAME_OUT.clear()
    expected_in_all = []
    with beam.Pipeline(options=PipelineOptions(['--streaming'])) as pipeline:
      for tag, told, expected in self.all_that_waits(
          self.stream(pipeline), [False]):
        _ = told | tag + 'out' >> beam.Map(_came_out, tag)
        expected_in_all += [(tag, each) for each in expected]
    self.assertCountEqual(expected_in_all, _CAME_OUT)

  @needs_prism
  def test_end_on_prism(self):
    with beam.Pipeline(options=prism_options()) as pipeline:
      self.check_all_comes_out(self.stream(pipeline), [False, True])


class WindowTest(unittest.TestCase):
  """Windows are apart, and nothing is left in them at their end."""
  STEPS = [
      0,
      [('k', time, time) for time in (9.5, 1, 12, 8, 19.999, 10)],
      9,
      [('k', time, time) for time in (9, 9.999, 10)],
      25,
      [('k', 26, 26)],
  ]

  def check(self, options, backends, windowing, windows_of):
    elements = [e for step in self.STEPS if isinstance(step, list)
                for e in step]
    expected = []
    for name, (begin, end) in windows_of.items():
      expected += [(told, name) for told in by_hand(
          e for e in elements if begin <= e[1] < end)]
    with beam.Pipeline(options=options) as pipeline:
      windowed = (
          pipeline | as_stream(self.STEPS)
          | beam.Map(lambda pair: pair).with_output_types(tuple[str, object])
          | beam.WindowInto(windowing))
      for ordered_list in backends:
        label = 'list' if ordered_list else 'bag'
        # An interval beyond the windows: their ends release all.
        told = windowed | label >> OrderedProcess(
            tell,
            CONTEXT,
            batch_interval=1000,
            allowed_lateness=50,
            ordered_list_state=ordered_list)
        self.assertEqual(windowed.windowing, told.windowing)
        placed = (
            told | label + 'KeyAndTime' >> beam.ParDo(KeyAndTime())
            | label + 'check' >> beam.Map(
                lambda one: (one[0], one[2]) if one[0][1] == one[1] else one))
        assert_that(placed, equal_to(expected), label + 'told')

  FIXED = (
      window.FixedWindows(10), {0.: (0, 10), 10.: (10, 20), 20.: (20, 30)})
  SLIDING = (
      window.SlidingWindows(20, 10), {
          -10.: (-10, 10), 0.: (0, 20), 10.: (10, 30), 20.: (20, 40)
      })

  def test_direct_runner(self):
    for case in (self.FIXED, self.SLIDING):
      self.check(PipelineOptions(['--streaming']), [False], *case)

  @needs_prism
  def test_prism(self):
    for case in (self.FIXED, self.SLIDING):
      self.check(prism_options(), [False, True], *case)


  def check_late(self, steps, lateness, expected, **arguments):
    """In windows of ten seconds, which are open for elements a while longer."""
    with beam.Pipeline(options=PipelineOptions(['--streaming'])) as pipeline:
      told = (
          pipeline | as_stream(steps)
          | beam.Map(lambda pair: pair).with_output_types(tuple[str, object])
          | beam.WindowInto(
              window.FixedWindows(10), allowed_lateness=lateness)
          | OrderedProcess(tell, CONTEXT, **arguments))
      assert_that(told, equal_to(expected))

  def test_a_window_waits_as_long_as_it_may_get_elements(self):
    elements = [('k', 9, 'b'), ('k', 8, 'a')]
    self.check_late([0, elements[:1], 11, elements[1:], 16],
                    5,
                    list(by_hand(elements)),
                    allowed_lateness=5)

  def test_nothing_is_left_of_a_window_that_has_expired(self):
    """This runner does not drop what comes then: it is a first element."""
    self.check_late([0, [('k', 5, 'a')], 15, [('k', 4, 'b')], 16],
                    0, [('k', 5, 'a', []), ('k', 4, 'b', [])])


class OptionsTest(unittest.TestCase):
  """Single arguments, on the runner that is quickest for it."""
  def tell_stream(
      self, steps, expected, late=(), context_size=CONTEXT, **arguments):
    with beam.Pipeline(options=PipelineOptions(['--streaming'])) as pipeline:
      told = (
          pipeline | as_stream(steps)
          | beam.Map(lambda pair: pair).with_output_types(tuple[str, object])
          | OrderedProcess(tell, context_size, late_tag='late', **arguments))
      assert_that(told.main, equal_to(list(expected)), 'main')
      assert_that(told.late, equal_to(list(late)), 'late')

  def test_lateness(self):
    elements = [('k', 5, 'b'), ('k', 1, 'a'), ('k', 9, 'c')]
    steps = [0, elements[:1], 6, elements[1:2], 8, elements[2:]]
    self.tell_stream(steps, by_hand(elements), allowed_lateness=Duration(5))
    self.tell_stream(
        steps,
        by_hand(elements[:1] + elements[2:]),
        late=[('k', 'a')])

  def test_contexts_of_any_size_go_on_in_the_next_release(self):
    elements = [('k', time, time) for time in range(FRONT + 10)]
    steps = [0, elements[5:1:-1], 5, elements[:1:-1], FRONT, elements[:2]]
    in_time = elements[2:6] + elements[5:]
    # In the value of the buffer, and in a state of its own.
    for context_size in (FRONT, FRONT + 1):
      with self.subTest(context_size):
        self.tell_stream(
            steps,
            by_hand(in_time, context_size),
            late=[('k', value) for value in (4, 3, 2, 1, 0)],
            context_size=context_size)

  def test_sort_key_is_by_value(self):
    elements = [('k', 5, value) for value in (3, 1, 2)]
    steps = [0, elements[:2], 5, elements[2:]]
    self.tell_stream(
        steps,
        by_hand(elements, sort_key=lambda value: -value),
        sort_key=lambda value: -value)

  def test_values_that_cannot_be_compared(self):
    elements = [('k', 5, value) for value in ({}, None, 1j, 'a')]
    self.tell_stream([0, elements[:2], elements[2:]], by_hand(elements))

  def test_outputs_keep_what_they_say(self):
    def several(key, timestamp, value, context):
      yield beam.pvalue.TaggedOutput('late', 'tagged')
      yield TimestampedValue('later', timestamp + 5)

    with beam.Pipeline() as pipeline:
      told = (
          pipeline | beam.Create([TimestampedValue(('k', 1), 7)])
          | beam.Map(lambda one: one)
          | OrderedProcess(several, late_tag='late'))
      for tag in ('main', 'late'):
        times = told[tag] | tag >> beam.ParDo(KeyAndTime()) | (
            tag + 'time' >> beam.Map(lambda one: (one[0], one[1])))
        assert_that(
            times,
            equal_to([('later', 12)] if tag == 'main' else [('tagged', 7)]),
            tag + 'checked')

  def test_elements_of_one_bundle_keep_their_arrival(self):
    """Also if they are more than are kept in a bundle."""
    elements = [('k', number) for number in range(25)]
    with mock.patch.object(_ordered_grouping, '_ELEMENTS_IN_BUNDLE', 10):
      with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        told = (
            pipeline | beam.Create([elements], reshuffle=False)
            | beam.FlatMap(lambda one: one).with_output_types(tuple[str, int])
            | OrderedProcess(
                lambda key, timestamp, value, context:
                [(value, [earlier for _, earlier in context])], 1))
        assert_that(
            told,
            equal_to([(number, [number - 1] if number else [])
                      for number in range(25)]))

  def test_a_function_may_return_nothing(self):
    with beam.Pipeline() as pipeline:
      told = pipeline | beam.Create([('k', 1)]) | OrderedProcess(
          lambda key, timestamp, value, context: None)
      assert_that(told, equal_to([]))

  @needs_prism
  def test_timers_of_a_bundle_read_the_state_once(self):
    read = bundle_processor.ReadModifyWriteRuntimeState.read
    handles = []

    def counted(state):
      handles.append(state)
      return read(state)

    elements = [('k', time, 'v') for time in range(200)]
    steps = [0, elements, 1, 100, 150]
    with mock.patch.object(bundle_processor.ReadModifyWriteRuntimeState,
                           'read',
                           counted):
      with beam.Pipeline(options=prism_options()) as pipeline:
        values = (
            pipeline | as_stream(steps)
            | beam.Map(lambda pair: pair).with_output_types(tuple[str, str])
            | OrderedProcess(lambda *args: [args[2]]))
        assert_that(values, equal_to(['v'] * 200))
    self.assertGreater(len(handles), 3)
    # Each handle is of one bundle, in which a dozen timers may fire.
    self.assertEqual(len(handles), len(set(map(id, handles))))

  def test_keys_that_are_equal_in_python_only(self):
    with beam.Pipeline() as pipeline:
      told = pipeline | beam.Create([(1, 'a'), (True, 'b')]) | OrderedProcess(
          lambda key, timestamp, value, context: [(value, len(context))], 1)
      assert_that(told, equal_to([('a', 0), ('b', 0)]))

  def test_types(self):
    def lengths(key, timestamp, value, context) -> Iterator[tuple[str, int]]:
      yield key, len(value)

    pipeline = beam.Pipeline()
    pairs = pipeline | beam.Create([('k', 'v')])
    self.assertEqual(
        beam.typehints.Tuple[str, int],
        (pairs | 'typed' >> OrderedProcess(lengths)).element_type)
    self.assertEqual(
        beam.typehints.Any,
        (pairs | 'untyped' >> OrderedProcess(tell)).element_type)


class _Told(TimestampBufferDoFnBag):
  def process_element(self, key, element_ts, value, context, **extra_state):
    number = extra_state['extra_state'].read() or 0
    extra_state['extra_state'].write(number + 1)
    for told in tell(key, element_ts, value, context):
      yield told, number


class _ToldOLS(TimestampBufferDoFnOLS):
  process_element = _Told.process_element

  def extract_kv(self, element):
    key, value = element
    return key, value * 2


class DoFnTest(unittest.TestCase):
  """The classes that are used with ParDo, by the names of Beam's example.

  They are told the same story.
  """
  def check(self, options, do_fn, steps, elements):
    with beam.Pipeline(options=options) as pipeline:
      self.check_told(pipeline | as_stream(steps), do_fn, elements)

  def check_told(self, pairs, do_fn, elements):
    expected = []
    numbers = collections.Counter()
    for told in by_hand(elements):
      expected.append((told, numbers[told[0]]))
      numbers[told[0]] += 1
    told = (
        pairs
        | beam.Map(lambda pair: pair).with_output_types(tuple[str, object])
        | beam.ParDo(do_fn))
    assert_that(told, equal_to(expected))

  @staticmethod
  def without_ties(elements):
    """Prism gives those of one bundle to a DoFn in any order."""
    return [element for element in elements if element[0] != 'ties']

  def steps_without_ties(self):
    return [
        self.without_ties(step) if isinstance(step, list) else step
        for step in STORY
    ]

  def test_bag_on_direct_runner(self):
    self.check(
        PipelineOptions(['--streaming']), _Told(CONTEXT, 0), STORY, IN_TIME)

  def test_both_on_fn_api_runner(self):
    for do_fn, elements in (
        (_Told(CONTEXT, 0), IN_TIME),
        (_ToldOLS(CONTEXT, 0), [(key, time, value * 2)
                                for key, time, value in IN_TIME])):
      for repeat in (0, 1):
        with self.subTest((do_fn, repeat)):
          with beam.Pipeline(
              runner=FnApiRunner(bundle_repeat=repeat)) as pipeline:
            # Not shuffled: ties come in this order.
            pairs = pipeline | beam.Create(timestamped(IN_TIME), False)
            self.check_told(pairs, do_fn, elements)

  @needs_prism
  def test_bag_on_prism(self):
    self.check(
        prism_options(),
        _Told(CONTEXT, 0),
        self.steps_without_ties(),
        self.without_ties(IN_TIME))

  @needs_prism
  def test_ordered_list_on_prism(self):
    self.check(
        prism_options(),
        _ToldOLS(CONTEXT, batch_interval_sec=0),
        self.steps_without_ties(), [
            (key, time, value * 2)
            for key, time, value in self.without_ties(IN_TIME)
        ])

  def test_an_interval_of_five_seconds_is_the_default(self):
    steps = [0, [('k', 1, 'a')], 4, [('k', 0.5, 'b')], 5, [('k', 4, 'late')]]
    self.check(
        PipelineOptions(['--streaming']),
        _Told(CONTEXT),
        steps, [('k', 1, 'a'), ('k', 0.5, 'b')])

  def test_the_state_of_a_buffer(self):
    state = BufferState(safe_watermark=1, min_event_time=2, max_event_time=3)
    self.assertTrue(state.batch_pending)
    self.assertIsNone(state.last_processed)

  def test_what_cannot_be(self):
    with self.assertRaisesRegex(TypeError, 'extend TimestampBufferDoFnBag or'):
      TimestampBufferDoFn(1)
    with self.assertRaisesRegex(TypeError, 'context_size is how many'):
      _Told('1')
    with self.assertRaisesRegex(ValueError, 'batch_interval_sec must be fin'):
      _Told(1, float('nan'))


class ArgumentsTest(unittest.TestCase):
  def test_what_cannot_be(self):
    def generator():
      yield

    for error, message, arguments, named in [
        (TypeError, 'process is a function of .key, timestamp', (3, ), {}),
        (TypeError, 'process is a function', (generator(), ), {}),
        (TypeError, 'which .* does not take', (lambda key: [], ), {}),
        (TypeError, 'context_size is how many', (tell, 1.5), {}),
        (TypeError, 'context_size is how many', (tell, True), {}),
        (TypeError, 'context_size is how many', (tell, None), {}),
        (ValueError, 'context_size must be from 0 to 100000, it is -1',
         (tell, -1), {}),
        (ValueError, 'it is 100001', (tell, 100_001), {}),
        (TypeError, 'sort_key is a function of a value; it is .time.',
         (tell, ), {'sort_key': 'time'}),
        (TypeError, 'allowed_lateness is a number of seconds or a Duration',
         (tell, ), {'allowed_lateness': '1'}),
        (ValueError, 'allowed_lateness must be finite, it is nan',
         (tell, ), {'allowed_lateness': float('nan')}),
        (ValueError, 'allowed_lateness must not be negative, it is -1.0 s',
         (tell, ), {'allowed_lateness': Duration(-1)}),
        (ValueError, 'batch_interval must be finite, it is inf',
         (tell, ), {'batch_interval': float('inf')}),
        (TypeError, 'batch_interval is a number', (tell, ),
         {'batch_interval': Timestamp(1)}),
        (TypeError, 'late_tag is a str; it is 1', (tell, ), {'late_tag': 1}),
        (ValueError, "late_tag must not be ''", (tell, ), {'late_tag': ''}),
        (ValueError, "late_tag must not be 'main'", (tell, ),
         {'late_tag': 'main'}),
        (TypeError, 'ordered_list_state is True or False; it is .bag.',
         (tell, ), {'ordered_list_state': 'bag'}),
    ]:
      with self.subTest(message):
        with self.assertRaisesRegex(error, message):
          OrderedProcess(*arguments, **named)

  def test_inputs_that_cannot_be(self):
    pipeline = beam.Pipeline()
    with self.assertRaisesRegex(TypeError, 'takes pairs of a key and a value; '
                                'its input has .*int'):
      _ = pipeline | 'a' >> beam.Create([1]) | OrderedProcess(tell)
    with self.assertRaisesRegex(ValueError, 'windows of Sessions merge'):
      _ = (
          pipeline | 'b' >> beam.Create([('k', 1)])
          | beam.WindowInto(window.Sessions(5)) | 's' >> OrderedProcess(tell))


if __name__ == '__main__':
  unittest.main()
