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

"""Tests that FnApiRunner resumes a residual when it asked to be resumed.

The pipelines run in this process, so that their DoFns can note in `_EVENTS`
what happened when. Wall clock times are only ever compared with bounds that a
slow machine keeps, too; what can be told by order is told by order.
"""

import logging
import os
import resource
import signal
import threading
import time
import unittest
from unittest import mock

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.io.restriction_trackers import OffsetRestrictionTracker
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import _delayed
from apache_beam.runners.portability.fn_api_runner import _resume_delay
from apache_beam.runners.portability.fn_api_runner import execution
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import FixedWindows
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration

# What happened: (what, value, seconds on the monotonic clock).
_EVENTS: list[tuple[str, object, float]] = []


def _note(what, value):
  _EVENTS.append((what, value, time.monotonic()))
  return value


def _values(what):
  return [value for w, value, _ in _EVENTS if w == what]


def _times(what, of=lambda value: True):
  return [at for w, value, at in _EVENTS if w == what and of(value)]


def _noting(what):
  return f'Note {what}' >> beam.Map(lambda value: _note(what, value))


class _PollRestrictions(RestrictionProvider):
  def restriction_size(self, element, restriction):
    return restriction.size()

  def initial_restriction(self, element):
    return OffsetRange(0, element[1])

  def create_tracker(self, restriction):
    return OffsetRestrictionTracker(restriction)


class _Poll(beam.DoFn):
  """Emits one record a bundle, then asks to be resumed after a delay.

  An element is (name, number of records, delay in seconds). There is one poll
  a record, since the residual behind the last record is empty.
  """
  @beam.DoFn.unbounded_per_element()
  def process(
      self, element, tracker=beam.DoFn.RestrictionParam(_PollRestrictions())):
    name, _, delay = element
    position = tracker.current_restriction().start
    _note('poll', (name, position))
    if tracker.try_claim(position):
      yield TimestampedValue((name, position), position)
      tracker.defer_remainder(Duration.of(delay))


class ResumeDelayTest(unittest.TestCase):
  def setUp(self):
    _EVENTS.clear()

  def assertPolledApart(self, name, delay):
    """Each poll of a source came `delay` seconds after the last, or later."""
    times = _times('poll', lambda value: value[0] == name)
    self.assertGreater(len(times), 1, 'vacuous: it was never resumed')
    for earlier, later in zip(times, times[1:]):
      self.assertGreaterEqual(later - earlier, delay - 0.01)

  def test_a_residual_waits_for_its_delay(self):
    """A source is polled at the interval that it asks for, not in a loop."""
    with beam.Pipeline(fn_runner.FnApiRunner()) as p:
      _ = p | beam.Create([('a', 4, 0.3)]) | beam.ParDo(_Poll())
    self.assertEqual(_values('poll'), [('a', i) for i in range(4)])
    self.assertPolledApart('a', 0.3)

  def test_residuals_of_one_stage_keep_their_own_times(self):
    """A source with a short delay is not slowed by one with a long delay."""
    with beam.Pipeline(fn_runner.FnApiRunner()) as p:
      _ = (
          p | beam.Create([('slow', 2, 1.5), ('fast', 5, 0.2)])
          | beam.ParDo(_Poll()))
    self.assertPolledApart('slow', 1.5)
    self.assertPolledApart('fast', 0.2)
    order = [name for name, _ in _values('poll')]
    # All of the fast one's polls come before the slow one's second.
    self.assertEqual(order[2:], ['fast'] * 4 + ['slow'])

  def test_residuals_that_are_due_together_share_a_bundle(self):
    bundles = []
    run_bundle = fn_runner.FnApiRunner._execute_bundle

    def counting(self, context, bundle_context_manager, bundle_input):
      bundles.append(bundle_context_manager.stage.name)
      return run_bundle(self, context, bundle_context_manager, bundle_input)

    with mock.patch.object(fn_runner.FnApiRunner, '_execute_bundle', counting):
      with beam.Pipeline(fn_runner.FnApiRunner()) as p:
        _ = (
            p | beam.Create([('s%d' % i, 5, 0.3) for i in range(20)])
            | beam.ParDo(_Poll()))
    self.assertEqual(len(_values('poll')), 20 * 5)
    # Five at best. The due times may lie on both sides of a rounding.
    self.assertLessEqual(
        max(bundles.count(name) for name in bundles), 10, bundles)

  def test_other_work_goes_first(self):
    """A GroupByKey that does not depend on the source runs while it waits."""
    with beam.Pipeline(fn_runner.FnApiRunner()) as p:
      _ = p | beam.Create([('a', 3, 0.5)]) | beam.ParDo(_Poll())
      _ = (
          p | 'Other' >> beam.Create([(1, 2), (1, 3)])
          | beam.GroupByKey()
          | beam.MapTuple(lambda key, values: (key, sorted(values)))
          | _noting('grouped'))
    self.assertEqual(_values('grouped'), [(1, [2, 3])])
    grouped_at, = _times('grouped')
    self.assertLess(grouped_at, _times('poll')[1])

  def test_a_busy_source_does_not_keep_others_from_being_resumed(self):
    """A residual that is due is resumed though other work is always ready."""
    busy_for = 500
    with beam.Pipeline(fn_runner.FnApiRunner()) as p:
      _ = (
          p | 'Busy' >> beam.Create([('busy', busy_for, 0)])
          | 'Poll busy' >> beam.ParDo(_Poll()))
      _ = (
          p | 'Idle' >> beam.Create([('idle', 3, 0.1)])
          | 'Poll idle' >> beam.ParDo(_Poll()))
    order = [name for name, _ in _values('poll')]
    self.assertEqual(order.count('busy'), busy_for)
    last_idle = len(order) - 1 - order[::-1].index('idle')
    self.assertLess(last_idle, len(order) - 1, 'the idle one came last')

  def test_nothing_is_lost_and_groups_stay_whole(self):
    """Downstream of parked residuals nothing fires early or twice.

    Two sources of different delays meet in a Flatten, together with a bounded
    collection, and are grouped.
    Requires: each window of each key comes out once, with all its records.
    What reads the Flatten does not start before all sources have ended.
    """
    with beam.Pipeline(fn_runner.FnApiRunner()) as p:
      slow = (
          p | 'Slow' >> beam.Create([('k', 3, 0.4)])
          | 'Poll slow' >> beam.ParDo(_Poll()))
      fast = (
          p | 'Fast' >> beam.Create([('k', 6, 0.1), ('l', 2, 0.25)])
          | 'Poll fast' >> beam.ParDo(_Poll()))
      bounded = (
          p | 'Bounded' >> beam.Create([('k', 0), ('l', 5)])
          | beam.Map(lambda kv: TimestampedValue(kv, kv[1])))
      _ = (
          (slow, fast, bounded)
          | beam.Flatten()
          | _noting('flattened')
          | beam.WindowInto(FixedWindows(4))
          | beam.GroupByKey()
          | beam.MapTuple(lambda key, values: (key, sorted(values)))
          | _noting('grouped'))
    self.assertCountEqual(
        _values('grouped'),
        [('k', [0, 0, 0, 1, 1, 2, 2, 3]), ('k', [4, 5]), ('l', [0, 1]),
         ('l', [5])])
    self.assertGreater(min(_times('flattened')), max(_times('poll')))

  def test_a_second_consumer_does_not_complete_a_parked_input(self):
    """Another consumer of the source's own input does not end the hold.

    Requires: what joins both consumers' outputs is grouped once.
    """
    with beam.Pipeline(fn_runner.FnApiRunner()) as p:
      elements = p | beam.Create([('k', 3, 0.2)]) | beam.Reshuffle()
      polled = elements | beam.ParDo(_Poll())
      other = elements | beam.Map(
          lambda element: TimestampedValue((element[0], 'other'), 0))
      _ = ((polled, other)
           | beam.Flatten()
           | beam.WindowInto(FixedWindows(60))
           | beam.GroupByKey()
           | beam.MapTuple(lambda key, values: (key, len(list(values))))
           | _noting('grouped'))
    self.assertEqual(_values('grouped'), [('k', 4)])

  def test_a_side_input_is_complete_before_it_is_read(self):
    """A reader of the source's output as a side input waits for its end.

    The side input is also fed by a bounded collection that ends at once.
    """
    with beam.Pipeline(fn_runner.FnApiRunner()) as p:
      polled = (
          p | beam.Create([('k', 3, 0.2)])
          | beam.ParDo(_Poll())
          | beam.Reshuffle()
          | beam.Map(lambda kv: kv[1])
          | beam.WindowInto(beam.window.GlobalWindows()))
      bounded = p | 'Bounded' >> beam.Create([10, 11])
      side = (polled, bounded) | beam.Flatten()
      _ = (
          p | 'Main' >> beam.Create(['main'])
          | beam.Map(
              lambda x, side: sorted(side), side=beam.pvalue.AsIter(side))
          | _noting('side'))
    self.assertEqual(_values('side'), [[0, 1, 2, 10, 11]])

  def test_all_workers_residuals_are_kept(self):
    """With several workers each one's residuals are resumed.

    On a base without the fix, merging the responses lost them: of the records
    only the first of each source came out.
    """
    options = PipelineOptions(
        direct_num_workers=2, direct_running_mode='multi_threading')
    sources = [('s%d' % i, 3, 0.1 * (i % 3)) for i in range(6)]
    with beam.Pipeline(fn_runner.FnApiRunner(), options) as p:
      _ = (
          p | beam.Create(sources)
          | beam.Reshuffle()
          | beam.ParDo(_Poll())
          | _noting('record'))
    self.assertCountEqual(
        _values('record'), [(name, i) for name, count, _ in sources
                            for i in range(count)])

  def test_repeated_bundles_park_their_residuals_once(self):
    """The dry runs of bundle_repeat resume nothing of their own."""
    with beam.Pipeline(fn_runner.FnApiRunner(bundle_repeat=2)) as p:
      _ = (
          p | beam.Create([('a', 3, 0.2)])
          | beam.ParDo(_Poll())
          | beam.WindowInto(FixedWindows(60))
          | beam.GroupByKey()
          | beam.MapTuple(lambda key, values: (key, sorted(values)))
          | _noting('grouped'))
    self.assertEqual(set(map(str, _values('grouped'))), {"('a', [0, 1, 2])"})
    self.assertEqual(len(_values('poll')), 3 * 3)

  def test_waiting_costs_no_cpu(self):
    """While all that is left is parked, the process uses next to no CPU."""
    class TimedPoll(_Poll):
      def process(
          self,
          element,
          tracker=beam.DoFn.RestrictionParam(_PollRestrictions())):
        usage = resource.getrusage(resource.RUSAGE_SELF)
        _note('cpu', usage.ru_utime + usage.ru_stime)
        yield from super().process(element, tracker)

    with beam.Pipeline(fn_runner.FnApiRunner()) as p:
      _ = p | beam.Create([('a', 2, 3)]) | beam.ParDo(TimedPoll())
    before, after = _values('cpu')
    self.assertPolledApart('a', 3)
    self.assertLess(after - before, 0.3)

  def test_a_signal_ends_the_wait(self):
    """Ctrl-C is not held up by a residual that is due in an hour."""
    interrupt = threading.Timer(
        1.5, lambda: os.kill(os.getpid(), signal.SIGINT))

    def handler(signum, frame):
      raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handler)
    started = time.monotonic()
    interrupt.start()
    try:
      with self.assertRaises(KeyboardInterrupt):
        with beam.Pipeline(fn_runner.FnApiRunner()) as p:
          _ = p | beam.Create([('a', 2, 3600)]) | beam.ParDo(_Poll())
    finally:
      interrupt.cancel()
      signal.signal(signal.SIGINT, before)
    self.assertEqual(_values('poll'), [('a', 0)])
    self.assertLess(time.monotonic() - started, 60)

  def test_a_test_clock_is_moved_on_instead_of_waiting(self):
    """Under a test clock the hours between polls pass at once."""
    contexts = []

    class TestClockContext(execution.FnApiRunnerExecutionContext):
      def __init__(self, *args, **kwargs):
        super().__init__(*args, uses_teststream=True, **kwargs)
        contexts.append(self)

    started = time.monotonic()
    with mock.patch.object(
        execution, 'FnApiRunnerExecutionContext', TestClockContext):
      with beam.Pipeline(fn_runner.FnApiRunner()) as p:
        _ = (
            p | beam.Create([('a', 4, 3600), ('b', 2, 5000.0000001)])
            | beam.ParDo(_Poll()))
    self.assertEqual(
        _values('poll'), [('a', 0), ('b', 0), ('a', 1), ('b', 1), ('a', 2),
                          ('a', 3)])
    self.assertAlmostEqual(contexts[0].clock.time(), 3 * 3600, places=3)
    self.assertLess(time.monotonic() - started, 60)

  def test_a_test_clock_reaches_what_its_microseconds_cannot_tell(self):
    """A due time between two microseconds is passed, not approached."""
    context = mock.Mock()
    context.clock = execution.TestClock()
    context.delayed = _delayed.DelayedInputs()
    context.delayed.park(1.0000005, 'stage', 'read', b'')
    _resume_delay._wait_for_next(context)
    self.assertGreaterEqual(context.clock.time(), 1.0000005)

  def test_the_longest_possible_delay_can_be_slept(self):
    """A delay beyond what sleep() takes is slept in pieces."""
    context = mock.Mock()
    context.clock = execution.RealClock()
    context.delayed.next_due.return_value = time.monotonic() + 315576000000.0
    with mock.patch.object(_resume_delay.time, 'sleep') as sleep:
      _resume_delay._wait_for_next(context)
    (wait, ), _ = sleep.call_args
    self.assertEqual(wait, 3600)


class ManyBundlesTest(unittest.TestCase):
  def test_metrics_of_many_bundles_can_be_read(self):
    """A source may be polled for hours, and its metrics be read at the end.

    Requires: merging the metrics of each bundle with those before does not
    nest; the counter has counted each bundle.
    """
    num_bundles = 1200

    class CountingPoll(_Poll):
      polls = beam.metrics.Metrics.counter('many', 'polls')

      def process(
          self,
          element,
          tracker=beam.DoFn.RestrictionParam(_PollRestrictions())):
        self.polls.inc()
        yield from super().process(element, tracker)

    p = beam.Pipeline(fn_runner.FnApiRunner())
    _ = p | beam.Create([('a', num_bundles, 0)]) | beam.ParDo(CountingPoll())
    counter, = p.run().metrics().query()['counters']
    self.assertEqual(counter.committed, num_bundles)


class DueTest(unittest.TestCase):
  def test_delays_that_differ_a_little_are_due_together(self):
    """Of 1,000 close delays no more than two due times are left."""
    now = 1234.5678
    exact = [now + 1 - i * 1e-6 for i in range(1000)]
    due = [_resume_delay._due(now, 1 - i * 1e-6) for i in range(1000)]
    self.assertLessEqual(len(set(due)), 2)
    for e, d in zip(exact, due):
      self.assertGreaterEqual(d, e - 1e-9)
      self.assertLess(d, e + 0.0101)

  def test_short_delays_are_kept_as_they_are(self):
    self.assertEqual(_resume_delay._due(1234.5678, 0.001), 1234.5678 + 0.001)


class ParkDelayedTest(unittest.TestCase):
  def test_only_what_asks_for_a_delay_is_parked(self):
    """Residuals of splits and those without a delay stay where they were."""

    def root(element, millis):
      delayed = beam_fn_api_pb2.DelayedBundleApplication()
      delayed.application.transform_id = 'process'
      delayed.application.input_id = 'in'
      delayed.application.element = element
      if millis is not None:
        delayed.requested_time_delay.FromMilliseconds(millis)
      return delayed

    result = beam_fn_api_pb2.InstructionResponse()
    result.process_bundle.residual_roots.extend([
        root(b'none', None),
        root(b'long', 60000),
        root(b'zero', 0),
        root(b'short', 30000),
        root(b'negative', -1000)
    ])
    split = beam_fn_api_pb2.ProcessBundleSplitResponse()
    split.residual_roots.extend([root(b'split', None), root(b'later', 45000)])
    context = mock.Mock()
    context.clock = execution.RealClock()
    context.delayed = _delayed.DelayedInputs()
    manager = mock.Mock()
    manager.stage.name = 'stage'
    manager.input_for.return_value = 'read'

    now = time.monotonic()
    _resume_delay.park_delayed(context, manager, result, [split])

    self.assertEqual(
        [r.application.element for r in result.process_bundle.residual_roots],
        [b'none', b'zero', b'negative'])
    self.assertEqual([r.application.element for r in split.residual_roots],
                     [b'split'])
    self.assertEqual(
        context.delayed.take_due(now + 61),
        {'stage': {
            'read': [b'short', b'later', b'long']
        }})


if __name__ == '__main__':
  logging.getLogger().setLevel(logging.WARNING)
  unittest.main()
