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


"""Watch on real runners: FnApiRunner, DirectRunner, Prism.

Prism needs its binary: the tests for it run where ``PRISM_LOCATION`` names one.
Where ``OTHER_BEAM_PYTHON`` names a Python with Beam 2.76 or later, its worker
is given a pipeline of this release.
"""

import collections
import sys
import textwrap
import time
import unittest

import apache_beam as beam
from apache_beam import coders
from apache_beam.io import _watch_metrics
from apache_beam.io._runner_testing import OTHER_PYTHON
from apache_beam.io._runner_testing import needs_other_python
from apache_beam.io._runner_testing import needs_prism
from apache_beam.io._runner_testing import prism_options
from apache_beam.io._runner_testing import run_main_script
from apache_beam.io._unbounded_testing import CountingSource
from apache_beam.io._watch_dofn import OutputsFn
from apache_beam.io._watch_memory import MEMORIES
from apache_beam.io._watch_poll import NumberedPollFn
from apache_beam.io.unbounded_source import ReadAllFromUnboundedSource
from apache_beam.io.watch import PollResult
from apache_beam.io.watch import RetryLater
from apache_beam.io.watch import Watch
from apache_beam.io.watch import after_iterations
from apache_beam.io.watch import after_total_of
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.runners.portability import fn_api_runner
from apache_beam.testing.test_stream import TestStream
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to
from apache_beam.transforms.window import FixedWindows
from apache_beam.transforms.window import TimestampedValue


# The times of the polls, by the name of the test and the input.
POLLS = collections.defaultdict(list)


class Growing:
  """Lists again each time all that there is; it grows by so many a poll.

  What it lists depends on the number of a poll in this process, which is right
  for runs in which each poll counts.
  """
  def __init__(self, name, rounds, per_round=3, step=1, seconds=0.0):
    self.name = name
    self.rounds = rounds
    self.per_round = per_round
    self.step = step
    self.seconds = seconds

  def __call__(self, element) -> PollResult[str]:
    polls = POLLS[self.name, element]
    polls.append(time.monotonic())
    time.sleep(self.seconds)
    number = min(len(polls), self.rounds)
    outputs = [
        TimestampedValue(f'{element}-{n}', 1000 + n * self.step)
        for n in range(number * self.per_round)
    ]
    if number == self.rounds:
      return PollResult.complete(outputs)
    return PollResult.incomplete(outputs)

  def expected(self, *elements):
    return [(element, f'{element}-{n}') for element in elements
            for n in range(self.rounds * self.per_round)]


class RunnerTests:
  """What holds on every runner; subclasses make the pipeline."""
  def setUp(self):
    POLLS.clear()
    MEMORIES.close_all()

  def growing(self, *args, **kwargs):
    return Growing(self.id(), *args, **kwargs)

  def test_each_output_once_for_each_input(self):
    for cursor in (False, True):
      with self.subTest(cursor=cursor):
        POLLS.clear()
        poll_fn = self.growing(6)
        with self.pipeline() as p:
          outputs = (
              p
              | beam.Create(['a', 'b', 'c'])
              | Watch(poll_fn, 0.05, timestamp_cursor=cursor))
          assert_that(outputs, equal_to(poll_fn.expected('a', 'b', 'c')))
        self.assertEqual([6, 6, 6], list(map(len, POLLS.values())))

  def test_event_times_and_windows(self):
    """Windows of the event times close, and counts are right."""
    with self.pipeline() as p:
      counts = (
          p
          | beam.Create(['a', 'b'])
          | Watch(self.growing(5, per_round=4, step=5), 0)
          | beam.WindowInto(FixedWindows(10))
          | beam.Map(lambda kv: (kv[0], 1))
          | beam.CombinePerKey(sum)
          | beam.Map(
              lambda kv, window=beam.DoFn.WindowParam:
              (kv[0], int(window.start), kv[1])))
      assert_that(
          counts,
          equal_to([(key, start, 2) for key in 'ab'
                    for start in range(1000, 1100, 10)]))

  def test_inputs_in_windows(self):
    """Outputs get the window of their own times."""
    with self.pipeline() as p:
      windows = (
          p
          | beam.Create(['a'])
          | beam.Map(lambda element: TimestampedValue(element, 7))
          | beam.WindowInto(FixedWindows(10))
          | Watch(self.growing(2, per_round=2, step=5), 0)
          | beam.Map(
              lambda kv, window=beam.DoFn.WindowParam, at=beam.DoFn.
              TimestampParam: (kv[1], int(at), int(window.start))))
      assert_that(
          windows,
          equal_to([(f'a-{n}', 1000 + 5 * n, 1000 + 5 * n // 10 * 10)
                    for n in range(4)]))

  def test_polls_once_in_an_interval(self):
    """Case B32: a runner that ignores delays polled thousands of times."""
    with self.pipeline() as p:
      _ = (
          p
          | beam.Create(['a'])
          | Watch(self.growing(10**6), 0.5, after_total_of(1.7)))
    polls = POLLS[self.id(), 'a']
    # Fewer where the machine is busy.
    self.assertIn(len(polls), (2, 3, 4, 5))
    gaps = [after - before for before, after in zip(polls, polls[1:])]
    self.assertGreater(min(gaps), 0.47)

  def test_a_slow_poll_is_made_once(self):
    """Case B08: a poll of 1 s ran three times, as Prism asks to split it."""
    poll_fn = self.growing(2, seconds=1.0)
    with self.pipeline() as p:
      outputs = p | beam.Create(['a']) | Watch(poll_fn, 0)
      assert_that(outputs, equal_to(poll_fn.expected('a')))
    self.assertEqual(2, len(POLLS[self.id(), 'a']))

  def test_a_slow_consumer(self):
    """The runner may split a round off while it is being output."""
    poll_fn = self.growing(3, per_round=4)
    with self.pipeline() as p:
      outputs = (
          p | beam.Create(['a']) | Watch(poll_fn, 0) | beam.Map(slowly, 0.15))
      assert_that(outputs, equal_to(poll_fn.expected('a')))
    self.assertEqual(3, len(POLLS[self.id(), 'a']))

  def test_portions(self):
    poll_fn = self.growing(3, per_round=50)
    with self.pipeline() as p:
      outputs = (
          p
          | beam.Create(['a', 'b'])
          | Watch(poll_fn, 0, max_outputs_per_round=7))
      assert_that(outputs, equal_to(poll_fn.expected('a', 'b')))
    self.assertEqual([3, 3], list(map(len, POLLS.values())))

  def test_side_inputs(self):
    with self.pipeline() as p:
      prefixes = p | 'Prefixes' >> beam.Create(['x', 'y'])
      suffix = p | 'Suffix' >> beam.Create(['!'])
      outputs = (
          p
          | beam.Create(['a', 'b'])
          | Watch(
              list_prefixed,
              0,
              after_iterations(2),
              side_inputs={
                  'prefixes': beam.pvalue.AsList(prefixes),
                  'suffix': beam.pvalue.AsSingleton(suffix),
              }))
      assert_that(
          outputs,
          equal_to([(element, f'{prefix}{element}!') for element in 'ab'
                    for prefix in 'xy']))

  def test_discovers_sources(self):
    """Case B24: partitions that appear are read from then on."""
    with self.pipeline() as p:
      records = (
          p
          | beam.Create(['topic'])
          | Watch(list_partitions, 0.1, after_iterations(3))
          | beam.MapTuple(partition_source)
          | ReadAllFromUnboundedSource(poll_interval=0)
          | beam.Map(str))
      assert_that(records, equal_to([str(n) for n in range(30)]))

  def test_a_poll_that_raises_fails_the_pipeline_by_name(self):
    with self.assertRaisesRegex(Exception, "burn.*input 'forest', poll 1"):
      with self.pipeline() as p:
        _ = p | beam.Create(['forest']) | Watch(burn, 0)

  def test_metrics(self):
    pipeline = self.pipeline()
    _ = (
        pipeline
        | beam.Create(['a'])
        | Watch(Late(self.id()), 0, timestamp_cursor=True, allowed_lateness=5))
    result = pipeline.run()
    result.wait_until_finish()
    query = result.metrics().query(
        MetricsFilter().with_namespace(_watch_metrics.NAMESPACE))
    counts = {
        counter.key.metric.name: counter.committed
        for counter in query['counters']
    }
    self.assertEqual({
        'polls': 4,
        'outputs_new': 4,
        # What was dropped once counts as seen from then on.
        'outputs_seen': 11,
        'outputs_dropped_late': 1,
        'retries_later': 1,
    },
                     counts)
    spreads = {
        spread.key.metric.name: spread.committed
        for spread in query['distributions']
    }
    self.assertEqual(5, spreads['keys_kept'].count)
    self.assertEqual(2, spreads['keys_kept'].max)
    self.assertEqual(5, spreads['poll_millis'].count + 1)
    self.assertGreaterEqual(spreads['poll_millis'].max, 20)
    self.assertGreater(spreads['watermark_lag_millis'].min, 10**12)


def list_partitions(topic) -> PollResult[int]:
  POLLS['partitions', topic].append(0)
  number = len(POLLS['partitions', topic])
  return PollResult.incomplete(range(number), timestamp=5)


def partition_source(topic, partition):
  return CountingSource(topic, 30, first=partition, step=3)


def slowly(element, seconds):
  time.sleep(seconds)
  return element


def list_prefixed(element, prefixes, suffix) -> PollResult[str]:
  return PollResult.incomplete(
      (prefix + element + suffix for prefix in prefixes), timestamp=5)


def burn(element):
  raise RuntimeError('everything is on fire')


class Late:
  """Of its outputs one is late by less than 5 s, and one by more."""
  def __init__(self, name):
    self.name = name

  def __call__(self, element) -> PollResult[str]:
    polls = POLLS[self.name, element]
    polls.append(0)
    time.sleep(0.02)
    outputs = [TimestampedValue(f't{t}', t) for t in (1, 100)]
    if len(polls) == 2:
      raise RetryLater(0.01)
    if len(polls) > 2:
      outputs += [TimestampedValue(f't{t}', t) for t in (96, 94)]
    if len(polls) > 3:
      outputs.append(TimestampedValue('t103', 103))
    return (
        PollResult.complete
        if len(polls) > 4 else PollResult.incomplete)(outputs)


class FnApiRunnerTest(RunnerTests, unittest.TestCase):
  def pipeline(self, **kwargs):
    return beam.Pipeline(runner=fn_api_runner.FnApiRunner(**kwargs))

  def test_draining(self):
    """Case B44: nothing is polled any more."""
    with self.pipeline(is_drain=True) as p:
      outputs = p | beam.Create(['a']) | Watch(self.growing(2), 0)
      assert_that(outputs, equal_to([]))
    self.assertEqual({}, POLLS)

  def test_repeated_bundles_give_the_same(self):
    """Memory ahead of what is committed gave 0 of 15 outputs here."""
    for repeat in (2, 3):
      for cursor in (False, True):
        with self.subTest(repeat=repeat, cursor=cursor):
          with self.pipeline(bundle_repeat=repeat) as p:
            outputs = (
                p
                | beam.Create(['a'])
                | Watch(
                    ByNumber(),
                    0,
                    timestamp_cursor=cursor,
                    termination=after_iterations(5)))
            assert_that(
                outputs, equal_to([('a', f'a-{n}') for n in range(15)]))

  def test_with_runtime_type_checks(self):
    options = PipelineOptions(['--runtime_type_check'])
    poll_fn = self.growing(3)
    with beam.Pipeline(runner=fn_api_runner.FnApiRunner(),
                       options=options) as p:
      outputs = p | beam.Create(['a']) | Watch(poll_fn, 0)
      assert_that(outputs, equal_to(poll_fn.expected('a')))
    POLLS.clear()
    with beam.Pipeline(runner=fn_api_runner.FnApiRunner(),
                       options=options) as p:
      outputs = (
          p
          | beam.Create(['a'])
          | beam.WindowInto(FixedWindows(10))
          | Watch(poll_fn, 0))
      assert_that(outputs, equal_to(poll_fn.expected('a')))

  def test_chunks_pass_through_their_coder(self):
    """Where a runner does not fuse, or breaks the fusion here as a reshuffle.
    """
    class Unfused(Watch):
      def expand(self, pcoll):
        chunks = super().expand(pcoll).producer.inputs[0]
        return chunks | beam.Reshuffle() | beam.ParDo(OutputsFn())

    poll_fn = self.growing(3)
    with self.pipeline() as p:
      outputs = (
          p
          | beam.Create(['a'])
          | Unfused(poll_fn, 0)
          | beam.Map(lambda kv, at=beam.DoFn.TimestampParam: (kv[1], int(at))))
      assert_that(outputs, equal_to([(f'a-{n}', 1000 + n) for n in range(9)]))

  def test_a_poll_fn_of_the_main_script_on_another_process(self):
    self.assertIn(
        'all 25 outputs', run_main_script(MAIN_SCRIPT, sys.executable))

  @needs_other_python
  def test_a_worker_with_another_module_says_so(self):
    """2.76 and later have a module of this name that watches otherwise."""
    output = run_main_script(MAIN_SCRIPT, OTHER_PYTHON)
    self.assertNotIn('all 25 outputs', output)
    self.assertIn(
        'The apache_beam.io.watch on this worker is not the one that this '
        'pipeline was submitted',
        output)
    self.assertNotIn('apache_beam.io.unbounded_source on this', output)
    self.assertIn('Install the same wheel on the workers', output)


class ByNumber(NumberedPollFn):
  """Lists three more each round, by the number in the state."""
  def poll(self, element, number, now) -> PollResult:
    return PollResult.incomplete(
        TimestampedValue(f'{element}-{n}', n) for n in range(3 * number + 3))

  def default_output_coder(self):
    return coders.StrUtf8Coder()


MAIN_SCRIPT = textwrap.dedent(
    '''
    import sys

    import apache_beam as beam
    from apache_beam.io.watch import PollResult
    from apache_beam.io.watch import Watch
    from apache_beam.io.watch import after_iterations
    from apache_beam.runners.portability import fn_api_runner
    from apache_beam.testing.util import assert_that, equal_to
    from apache_beam.transforms import environments


    class Listing:
      def __init__(self, number):
        self.number = number

      def __call__(self, element) -> PollResult[int]:
        return PollResult.incomplete(range(self.number), timestamp=5)


    def number_of(item: int) -> str:
      return str(item)


    if __name__ == '__main__':
      runner = fn_api_runner.FnApiRunner(
          environments.SubprocessSDKEnvironment(
              f'{sys.argv[1]} -m apache_beam.runners.worker.sdk_worker_main'))
      with beam.Pipeline(runner=runner) as p:
        outputs = (
            p
            | beam.Create(['a'])
            | Watch(
                Listing(25), 0, after_iterations(3), output_key_fn=number_of)
            | beam.MapTuple(lambda element, item: item))
        assert_that(outputs, equal_to(list(range(25))))
      print('all 25 outputs')
    ''')


class DirectRunnerTest(RunnerTests, unittest.TestCase):
  def pipeline(self):
    return beam.Pipeline(runner='DirectRunner')

  def test_the_old_direct_runner_is_refused_by_name(self):
    """It asks whether a watch is done before it has run it."""
    with self.assertRaisesRegex(Exception, 'use FnApiRunner, or PrismRunner'):
      with beam.Pipeline(runner=BundleBasedDirectRunner()) as p:
        _ = p | beam.Create(['a']) | Watch(self.growing(2), 0)


@needs_prism
class PrismTest(RunnerTests, unittest.TestCase):
  def pipeline(self):
    return beam.Pipeline(options=self.options())

  def options(self):
    return prism_options()

  def test_under_a_test_stream_its_clock_is_followed(self):
    """Polls an hour apart, in a moment."""
    options = self.options()
    options.view_as(StandardOptions).streaming = True
    poll_fn = self.growing(3)
    begin = time.monotonic()
    with beam.Pipeline(options=options) as p:
      inputs = (
          p
          | TestStream().add_elements(['a']).advance_processing_time(
              3600).advance_processing_time(3600).advance_processing_time(
                  3600).advance_watermark_to_infinity())
      outputs = inputs | Watch(poll_fn, 3600)
      assert_that(outputs, equal_to(poll_fn.expected('a')))
    self.assertLess(time.monotonic() - begin, 60)
    self.assertEqual(3, len(POLLS[self.id(), 'a']))


if __name__ == '__main__':
  unittest.main()
