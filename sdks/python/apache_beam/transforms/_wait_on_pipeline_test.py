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

"""WaitOn on real runners: FnApiRunner, DirectRunner, Prism.

Prism needs its binary: the tests for it run where ``PRISM_LOCATION`` names one.
"""

import time
import unittest
import unittest.mock

import apache_beam as beam
from apache_beam.io._runner_testing import needs_prism
from apache_beam.io._runner_testing import prism_options
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import _wait_on
from apache_beam.transforms import trigger
from apache_beam.transforms import window
from apache_beam.transforms._wait_on_testing import STAGE
from apache_beam.transforms._wait_on_testing import Element
from apache_beam.transforms._wait_on_testing import End
from apache_beam.transforms._wait_on_testing import Released
from apache_beam.transforms._wait_on_testing import Watermark
from apache_beam.transforms._wait_on_testing import play
from apache_beam.transforms._wait_on_testing import record
from apache_beam.transforms.util import WaitOn
from apache_beam.utils.windowed_value import PaneInfoTiming


class Counts(beam.PTransform):
  """Counts elements in windows of ten seconds, with that trigger and lateness.
  """
  def __init__(self, **windowing):
    super().__init__()
    self._windowing = windowing

  def expand(self, pcoll):
    return (
        pcoll
        | beam.WindowInto(window.FixedWindows(10), **self._windowing)
        | beam.WithKeys(lambda value: 'key')
        | beam.combiners.Count.PerKey())


class Breaks(beam.PTransform):
  def expand(self, pcoll):
    return (
        pcoll | beam.WindowInto(window.FixedWindows(10))
        | beam.Map(self.check))

  @staticmethod
  def check(value):
    if value == 'broken':
      raise ValueError('the signal broke')
    return value


class After(beam.DoFn):
  """Passes elements on a while after a step has come to pass."""
  def __init__(self, index):
    self._index = index

  def process(self, value):
    while not STAGE.is_turn(self._index + 1):
      time.sleep(0.05)
    time.sleep(0.5)
    yield value


class RunnerTests:
  """What holds on every runner; subclasses say which."""

  on = None

  def options(self):
    raise NotImplementedError

  def play(self, *steps, main=None, after=None, **signals):
    """Plays a story; returns what was seen, in order."""
    main = main or beam.WindowInto(window.FixedWindows(10))
    signals = signals or {'s': beam.WindowInto(window.FixedWindows(10))}
    with beam.Pipeline(options=self.options()) as p:
      sources = play(p, steps, self.on)
      waited_on = [
          sources[name] | f'Make {name}' >> transform | record(name)
          for name, transform in signals.items()
      ]
      released = (
          sources['main'] | 'Make main' >> main | WaitOn(*waited_on)
          | record('released'))
      if after:
        _ = released | 'After' >> after | record('after')
    self.result = p.result
    return list(STAGE.seen)

  def counter(self, name):
    counters = self.result.metrics().query(
        MetricsFilter().with_namespace('WaitOn').with_name(name))['counters']
    return sum(counter.result for counter in counters)

  def check(self, seen, *released, matches=None):
    """Checks what was released, and that nothing of its windows came later."""
    matches = matches or (lambda signal, window: signal.window == window)
    self.assertCountEqual(
        released, [s.value for s in seen if s.name == 'released'])
    closed = set()
    values = set()
    expected = set()
    for each in seen:
      if each.name == 'released':
        closed.add(each.window)
        values.add(each.value)
      elif each.name == 'step':
        expected |= each.value.values
        self.assertEqual(expected, values, seen)
      elif each.name not in ('after', 'main'):
        for w in closed:
          self.assertFalse(matches(each, w), (each, w, seen))

  def test_releases_windows_one_by_one(self):
    seen = self.play(
        Element('main', 'm1', 1),
        Element('main', 'm12', 12),
        Watermark('main', 30),
        Element('s', 's2', 2),
        Watermark('s', 9.9),
        Element('s', 's9', 9.95),
        Watermark('s', 10),
        Released('m1'),
        Element('s', 's15', 15),
        Watermark('s', 19),
        Element('s', 's19', 19.5),
        Watermark('s', 25),
        Released('m12'),
        Element('main', 'm31', 31),
        Element('s', 's39', 39),
        End('main'),
        End('s'))
    self.check(seen, 'm1', 'm12', 'm31')


  def test_windows_without_a_signal(self):
    """Also the first, the last, and all of them."""
    seen = self.play(
        Element('main', 'm1', 1),
        Element('main', 'm11', 11),
        Element('main', 'm21', 21),
        Element('main', 'm41', 41),
        Watermark('main', 60),
        Watermark('s', 10),
        Released('m1'),
        Element('s', 's15', 15),
        Watermark('s', 20),
        Released('m11'),
        Watermark('s', 49),
        Released('m21'),
        Watermark('s', 50),
        Released('m41'),
        End('main'),
        End('s'))
    self.check(seen, 'm1', 'm11', 'm21', 'm41')

  def test_a_signal_that_is_empty(self):
    seen = self.play(
        Element('main', 'm1', 1), End('main'), Released(), End('s'))
    self.check(seen, 'm1')

  def test_a_main_input_that_is_empty(self):
    seen = self.play(
        Element('s', 's1', 1), Watermark('s', 20), End('main'), End('s'))
    self.check(seen)

  def test_nothing_at_all(self):
    self.check(self.play(End('main'), End('s')))

  def test_waits_for_the_last_of_several_signals(self):
    windows = beam.WindowInto(window.FixedWindows(10))
    seen = self.play(
        Element('main', 'm1', 1),
        Element('main', 'm11', 11),
        Watermark('main', 60),
        Element('s1', 's1', 1),
        Watermark('s1', 20),
        Element('s2', 't1', 1),
        Watermark('s3', 60),
        Released(),
        Element('s2', 't2', 2),
        Watermark('s2', 10),
        Released('m1'),
        Element('s2', 't11', 12),
        Watermark('s2', 40),
        Released('m11'),
        End('s3'),
        End('s1'),
        End('main'),
        End('s2'),
        s1=windows,
        s2=windows,
        s3=windows)
    self.check(seen, 'm1', 'm11')

  def test_larger_windows_of_a_signal(self):
    seen = self.play(
        Element('main', 'm1', 1),
        Element('main', 'm11', 11),
        Element('main', 'm21', 21),
        Watermark('main', 60),
        Element('s', 's2', 2),
        Watermark('s', 19),
        Released(),
        Element('s', 's19', 19),
        Watermark('s', 20),
        Released('m1', 'm11'),
        Watermark('s', 39),
        Released(),
        Watermark('s', 40),
        Released('m21'),
        End('main'),
        End('s'),
        s=beam.WindowInto(window.FixedWindows(20)))
    self.check(
        seen,
        'm1',
        'm11',
        'm21',
        matches=lambda signal,
        w: signal.window.start <= w.start < signal.window.end)

  def test_smaller_windows_of_a_signal(self):
    """A window waits for the one in which its last instant is."""
    seen = self.play(
        Element('main', 'm1', 1),
        Element('main', 'm11', 11),
        Watermark('main', 60),
        Element('s', 's2', 2),
        Watermark('s', 5),
        Released(),
        Element('s', 's9', 9),
        Watermark('s', 10),
        Released('m1'),
        End('main'),
        Element('s', 's19', 19),
        End('s'),
        s=beam.WindowInto(window.FixedWindows(2)))
    self.check(
        seen,
        'm1',
        'm11',
        matches=lambda signal,
        w: w.start <= signal.window.start < w.end)

  def test_sliding_windows(self):
    """Of both; and of the signal alone: the earliest that has the last instant.
    """
    sliding = beam.WindowInto(window.SlidingWindows(10, 5))
    steps = (
        Element('main', 'm1', 1),
        Element('main', 'm7', 7),
        Watermark('main', 60),
        Element('s', 's2', 2),
        Watermark('s', 9),
        Element('s', 's9', 9),
        Watermark('s', 10),
        Element('s', 's14', 14),
        Watermark('s', 30),
        End('main'),
        End('s'))
    seen = self.play(*steps, main=sliding, s=sliding)
    self.check(seen, 'm1', 'm1', 'm7', 'm7')
    released = [(s.value, int(s.window.start))
                for s in seen if s.name == 'released']
    self.assertCountEqual([('m1', -5), ('m1', 0), ('m7', 0), ('m7', 5)],
                          released)
    if self.on != 'fnapi':
      self.assertEqual(('m1', -5), released[0])
      self.assertEqual(('m7', 5), released[3])
    self.check(self.play(*steps, s=sliding), 'm1', 'm7')

  def test_sessions_of_a_signal(self):
    """A window waits for the session that would begin at its end."""
    seen = self.play(
        Element('main', 'm1', 1),
        Element('main', 'm11', 11),
        Watermark('main', 60),
        Element('s', 's2', 2),
        Element('s', 's8', 8),
        Watermark('s', 14),
        Released(),
        Element('s', 's14', 14),
        Watermark('s', 15),
        Released('m1'),
        Element('s', 's18', 18),
        Watermark('s', 40),
        Released('m11'),
        End('main'),
        End('s'),
        s=beam.WindowInto(window.Sessions(5)))
    self.check(
        seen, 'm1', 'm11', matches=lambda signal, w: signal.time < float(w.end))

  def test_sessions_of_the_main_input(self):
    seen = self.play(
        Element('main', 'm1', 1),
        Element('main', 'm2', 2),
        Element('main', 'm11', 11),
        Watermark('main', 60),
        Element('s', 's2', 2),
        Watermark('s', 9),
        Released(),
        Element('s', 's9', 9),
        Watermark('s', 11),
        Released('m1', 'm2'),
        Watermark('s', 20),
        Released('m11'),
        End('main'),
        End('s'),
        main=beam.WindowInto(window.Sessions(5)))
    self.check(seen, 'm1', 'm2', 'm11', matches=lambda signal, w: False)
    self.assertEqual(
        {window.IntervalWindow(1, 6),
         window.IntervalWindow(2, 7),
         window.IntervalWindow(11, 16)},
        {s.window for s in seen if s.name == 'released'})

  def test_early_panes_of_a_signal_do_not_release(self):
    seen = self.play(
        Element('main', 'm1', 1),
        Watermark('main', 60),
        Element('s', 's2', 2),
        Released(),
        Element('s', 's3', 3),
        Released(),
        Watermark('s', 9),
        Released(),
        Watermark('s', 10),
        Released('m1'),
        End('main'),
        End('s'),
        s=Counts(
            trigger=trigger.AfterWatermark(
                early=trigger.Repeatedly(trigger.AfterCount(1))),
            accumulation_mode=trigger.AccumulationMode.ACCUMULATING))
    self.check(seen, 'm1')
    self.assertIn(2, [s.value[1] for s in seen if s.name == 's'])

  def test_allowed_lateness_of_a_signal_counts(self):
    """So late panes come before what waits for them."""
    seen = self.play(
        Element('main', 'm1', 1),
        Element('main', 'm11', 11),
        Watermark('main', 60),
        Element('s', 's2', 2),
        Watermark('s', 11),
        Released(),
        Element('s', 'late', 3),
        Released(),
        Watermark('s', 24),
        Released(),
        Element('s', 'too late to change the window', 24),
        Watermark('s', 25),
        Released('m1'),
        End('main'),
        End('s'),
        s=Counts(
            allowed_lateness=15,
            accumulation_mode=trigger.AccumulationMode.ACCUMULATING))
    self.check(seen, 'm1', 'm11')
    self.assertEqual(
        2,
        max(
            s.value[1] for s in seen
            if s.name == 's' and s.window == window.IntervalWindow(0, 10)))

  def test_a_signal_that_fails_releases_nothing(self):
    with self.assertRaisesRegex(Exception, 'the signal broke'):
      self.play(
          Element('main', 'm1', 1),
          Watermark('main', 60),
          Element('s', 'broken', 2),
          Watermark('s', 10),
          Released('m1'),
          End('main'),
          End('s'),
          s=Breaks())
    self.assertEqual([], [s for s in STAGE.seen if s.name == 'released'])

  def test_a_global_window_is_released_when_the_signal_ends(self):
    """There may be a trigger that says that it stays open."""
    seen = self.play(
        Element('main', 'm1', 1),
        End('main'),
        Element('s', 's2', 2),
        Watermark('s', 1e9),
        Released(),
        Element('s', 's3', 1e9),
        End('s'),
        s=beam.WindowInto(
            window.GlobalWindows(),
            trigger=trigger.Repeatedly(trigger.AfterCount(1)),
            accumulation_mode=trigger.AccumulationMode.DISCARDING))
    self.check(seen, 'm1', matches=lambda signal, w: True)

  def test_times_windows_and_panes_stay(self):
    """Into smaller windows, too, behind a signal that closes much later."""
    seen = self.play(
        Element('main', 'm1', 1.001),
        Element('main', 'm2', 2.5),
        Element('main', 'm-', -17.25),
        Watermark('main', 11),
        Element('s', 's2', 2),
        Watermark('s', 80),
        Watermark('main', 80),
        Element('main', 'm81', 81),
        End('s'),
        End('main'),
        main=beam.WindowInto(window.FixedWindows(10)) | record('main'),
        s=beam.WindowInto(window.FixedWindows(10), allowed_lateness=60),
        after=beam.WindowInto(window.FixedWindows(1))
        | beam.WithKeys(lambda value: 'key')
        | beam.GroupByKey()
        | beam.FlatMapTuple(lambda key, values: values))
    self.check(seen, 'm1', 'm2', 'm-', 'm81')
    self.assertCountEqual(
        [s[1:] for s in seen if s.name == 'main'],
        [s[1:] for s in seen if s.name == 'released'])
    after = [s for s in seen if s.name == 'after']
    self.assertCountEqual([('m1', 1), ('m2', 2), ('m-', -18), ('m81', 81)],
                          [(s.value, int(s.window.start)) for s in after])
    self.assertEqual({PaneInfoTiming.ON_TIME}, {s.pane.timing for s in after})

  def test_panes_of_groups_stay(self):
    """So does each pane of a group of the main input."""
    seen = self.play(
        Element('main', 'a', 1),
        Element('main', 'b', 2),
        Watermark('main', 20),
        Watermark('s', 20),
        End('main'),
        End('s'),
        main=Counts(
            trigger=trigger.AfterWatermark(
                early=trigger.Repeatedly(trigger.AfterCount(1))),
            accumulation_mode=trigger.AccumulationMode.ACCUMULATING)
        | record('main'))
    groups = [s[1:] for s in seen if s.name == 'main']
    self.assertGreater(len(groups), 1)
    self.assertCountEqual(
        groups, [s[1:] for s in seen if s.name == 'released'])

  @unittest.mock.patch.object(_wait_on, '_SHARDS', 1)
  def test_late_elements_pass_within_their_lateness(self):
    """And nothing passes twice, also if they have the key of earlier ones."""
    seen = self.play(
        Element('main', 'm1', 1),
        Watermark('main', 11),
        Watermark('s', 12),
        Released('m1'),
        Element('main', 'late', 2),
        Watermark('s', 41),
        Watermark('main', 40),
        Released('late'),
        End('main'),
        End('s'),
        main=beam.WindowInto(window.FixedWindows(10), allowed_lateness=20))
    self.check(seen, 'm1', 'late')

  def test_tells_of_elements_that_are_dropped_as_too_late(self):
    """Whether they are is up to the runner."""
    seen = self.play(
        Element('main', 'm1', 1),
        Watermark('main', 11),
        Watermark('s', 12),
        Released('m1'),
        Element('main', 'too late', 2),
        Watermark('s', 41),
        Watermark('main', 40),
        Element('main', 'm41', 41),
        End('main'),
        End('s'))
    released = [s.value for s in seen if s.name == 'released']
    self.assertLessEqual({'m1', 'm41'}, set(released))
    self.assertEqual(3 if self.on == 'fnapi' else 2, len(released))
    # The direct runner does not count what a DoFn counts at the end of bundles.
    if self.on != 'direct':
      self.assertEqual(3, self.counter('held'))
      self.assertEqual(len(released), self.counter('released'))

  def test_one_after_the_other(self):
    """What waits is itself waited for."""
    with beam.Pipeline(options=self.options()) as p:
      sources = play(
          p,
          [
              Element('main', 'm1', 1),
              Element('first', 'f1', 1),
              Watermark('main', 60),
              Watermark('second', 60),
              Watermark('first', 9),
              Released(),
              Watermark('first', 10),
              Released('m1'),
              End('main'),
              End('first'),
              End('second')
          ],
          self.on)
      windows = window.FixedWindows(10)
      main, first, second = (
          sources[name] | f'Window {name}' >> beam.WindowInto(windows)
          for name in ('main', 'first', 'second'))
      second = second | 'Second' >> WaitOn(first)
      _ = main | WaitOn(second) | record('released')
    self.check(list(STAGE.seen), 'm1')

  def test_a_bounded_main_input(self):
    with beam.Pipeline(options=self.options()) as p:
      signal = play(
          p,
          [
              Element('s', 's1', 1),
              Watermark('s', 10),
              Element('s', 's11', 11),
              End('s')
          ],
          self.on)['s'] | beam.WindowInto(window.FixedWindows(10)) | record('s')
      main = (
          p
          | beam.Create([window.TimestampedValue(n, n) for n in range(20)])
          | beam.Map(lambda value: value)
          | 'Window main' >> beam.WindowInto(window.FixedWindows(10)))
      released = main | WaitOn(signal) | record('released')
      self.assertTrue(released.is_bounded)
    self.check(list(STAGE.seen), *range(20))

  def test_bounded_and_unbounded_signals(self):
    with beam.Pipeline(options=self.options()) as p:
      sources = play(
          p,
          [
              Element('main', 'm1', 1),
              Watermark('main', 20),
              Element('s', 's1', 1),
              Watermark('s', 10),
              End('s'),
              End('main')
          ],
          self.on)
      windows = window.FixedWindows(10)
      bounded = p | beam.Create([1, 2, 3]) | record('bounded')
      signal = (
          sources['s'] | 'Window s' >> beam.WindowInto(windows) | record('s'))
      _ = (
          sources['main']
          | 'Window main' >> beam.WindowInto(windows)
          | WaitOn(bounded, signal)
          | record('released'))
    self.check(
        list(STAGE.seen),
        'm1',
        matches=lambda signal,
        w: signal.name == 'bounded' or signal.window == w)
    self.assertIn('bounded', {s.name for s in STAGE.seen})

  def test_an_unbounded_main_input_and_a_bounded_signal(self):
    """It waits for the end, whatever the signal's watermark is before that."""
    steps = [
        Watermark('main', 5),
        Element('main', 'm6', 6),
        Watermark('main', 5.5),
        Element('main', 'm7', 7),
        Released('m6', 'm7'),
        Element('main', 'm13', 13),
        Watermark('main', 30),
        End('main')
    ]

    windows = window.FixedWindows(10)
    with beam.Pipeline(options=self.options()) as p:
      main = (
          play(p, steps, self.on)['main']
          # Else Prism reads it when the signal has ended.
          | 'Shuffle main' >> beam.Reshuffle()
          | 'Window main' >> beam.WindowInto(windows))
      signal = (
          p
          | beam.Create([window.TimestampedValue(f's{n}', n) for n in (8, 9)])
          | 'Shuffle signal' >> beam.Reshuffle()
          | beam.ParDo(After(3))
          | 'Window signal' >> beam.WindowInto(windows)
          | record('s'))
      released = main | WaitOn(signal) | record('released')
      self.assertFalse(released.is_bounded)
    seen = list(STAGE.seen)
    self.check(seen, 'm6', 'm7', 'm13', matches=lambda signal, window: True)
    self.assertCountEqual(['s8', 's9'], [s.value for s in seen if s.name == 's'])

  def test_slow_signals_as_in_the_catalogue_of_transforms(self):
    """One signal, and two, whose elements take a while."""
    STAGE.open([], False)

    def slowly(value):
      time.sleep(0.2)
      return value

    with beam.Pipeline(options=self.options()) as p:
      for case, signals in enumerate([['a'], ['b', 'c']]):
        slow = [
            p | f'Create {name}' >> beam.Create([f'{name}1', f'{name}2'])
            | f'Process {name}' >> beam.Map(slowly)
            | f'{case} {name}' >> record(str(case)) for name in signals
        ]
        _ = (
            p | f'Main {case}' >> beam.Create([1, 2, 3])
            | f'Wait {case}' >> WaitOn(*slow)
            | f'Record {case}' >> record(str(case)))
    for case, expected in (('0', ['a1', 'a2']),
                           ('1', ['b1', 'b2', 'c1', 'c2'])):
      values = [s.value for s in STAGE.seen if s.name == case]
      self.assertCountEqual(expected, values[:-3])
      self.assertCountEqual([1, 2, 3], values[-3:])

  def test_bounded_signals(self):
    """In all windows, and any number of them; sessions, too."""
    STAGE.open([], False)
    cases = {}
    with beam.Pipeline(options=self.options()) as p:
      for name, windows in [('global', window.GlobalWindows()),
                            ('fixed', window.FixedWindows(3)),
                            ('sliding', window.SlidingWindows(10, 5)),
                            ('sessions', window.Sessions(5))]:
        for signals in ([], [[]], [[1, 2]], [[3], [], [4]]):
          case = f'{name} {signals}'
          cases[case] = set(sum(signals, []))
          waited_on = [
              p | f'Create {case} {i}' >> beam.Create(
                  [window.TimestampedValue(n, n) for n in numbers])
              | f'Window {case} {i}' >> beam.WindowInto(windows)
              | f'{case} {i}' >> record(case)
              for i, numbers in enumerate(signals)
          ]
          _ = (
              p | f'Create {case}' >> beam.Create(['released'])
              | f'Wait {case}' >> WaitOn(*waited_on)
              | f'Record {case}' >> record(case))
    for case, expected in cases.items():
      with self.subTest(case):
        values = [s.value for s in STAGE.seen if s.name == case]
        self.assertEqual({*expected, 'released'}, set(values))
        self.assertEqual('released', values[-1])
        self.assertEqual(1, values.count('released'))


class FnApiRunnerTest(RunnerTests, unittest.TestCase):
  on = 'fnapi'

  def options(self):
    return PipelineOptions(['--runner=FnApiRunner'])


class DirectRunnerTest(RunnerTests, unittest.TestCase):
  on = 'direct'

  def options(self):
    return PipelineOptions(['--runner=DirectRunner', '--streaming'])


@needs_prism
class PrismRunnerTest(RunnerTests, unittest.TestCase):
  on = 'prism'

  def options(self):
    return prism_options()


if __name__ == '__main__':
  unittest.main()
