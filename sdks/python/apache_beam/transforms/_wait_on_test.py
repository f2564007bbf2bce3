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

"""The parts of WaitOn's gate, and what it says at construction."""

import logging
import pickle
import random
import unittest

from hypothesis import given
from hypothesis import strategies as st

import apache_beam as beam
from apache_beam import coders
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms import _wait_on
from apache_beam.transforms import trigger
from apache_beam.transforms import window
from apache_beam.transforms._wait_on import BatchCodec
from apache_beam.transforms._wait_on import ClosingTimes
from apache_beam.transforms.util import WaitOn
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfo
from apache_beam.utils.windowed_value import PaneInfoTiming

SECOND = 1_000_000


def closes(main_window, *signals):
  """When, in seconds, for signals as window functions and seconds late."""
  closing = ClosingTimes([(fn, int(late * SECOND)) for fn, late in signals])
  gate_window = closing.gate_window(main_window)
  return gate_window.end.micros / SECOND


class ClosingTimesTest(unittest.TestCase):
  def test_is_the_end_of_the_matching_window(self):
    ten = window.IntervalWindow(0, 10)
    for expected, *signals in [
        (10, (window.FixedWindows(10), 0)),
        (25, (window.FixedWindows(10), 15)),
        (10, (window.FixedWindows(1), 0)),
        (10.5, (window.FixedWindows(2, 0.5), 0)),
        (60, (window.FixedWindows(60), 0)),
        (10, (window.SlidingWindows(10, 5), 0)),
        (15, (window.SlidingWindows(60, 5), 5)),
        (15, (window.Sessions(5), 0)),
        (18, (window.Sessions(5), 3)),
        (20, (window.FixedWindows(20), 0), (window.FixedWindows(10), 9)),
        (21, (window.FixedWindows(20), 0), (window.FixedWindows(10), 11)),
    ]:
      with self.subTest(signals):
        self.assertAlmostEqual(expected, closes(ten, *signals), 4)

  def test_windows_of_the_gate_last_a_millisecond(self):
    """And each is one of those of FixedWindows, which runners know."""
    gate_window = ClosingTimes([(window.FixedWindows(10), 0)
                                ]).gate_window(window.IntervalWindow(0, 3.2))
    self.assertEqual(window.IntervalWindow(9.999, 10), gate_window)
    self.assertEqual([gate_window],
                     window.FixedWindows(0.001).assign(
                         window.WindowFn.AssignContext(Timestamp(9.9995))))

  def test_global_windows_close_at_the_end_of_time(self):
    last = window.GlobalWindow().max_timestamp()
    for main_window, windowfn in [
        (window.GlobalWindow(), window.GlobalWindows()),
        (window.GlobalWindow(), window.FixedWindows(10)),
        (window.GlobalWindow(), window.Sessions(10**9)),
        (window.IntervalWindow(0, 10), window.GlobalWindows()),
    ]:
      with self.subTest(main=main_window, signal=windowfn):
        end = ClosingTimes([(windowfn, 86400 * SECOND)
                            ]).gate_window(main_window).end
        self.assertLessEqual(end, last)
        self.assertLess(last.micros - end.micros, 1000)

  @given(
      st.integers(-10**16, 10**16),
      st.integers(1, 10**12),
      st.integers(1, 10**12),
      st.integers(0, 10**12))
  def test_never_before_either_window_has_closed(
      self, start, length, size, lateness):
    main_window = window.IntervalWindow(
        Timestamp(micros=start), Timestamp(micros=start + length))
    windowfn = window.FixedWindows(1)
    windowfn.size = windowfn.size.__class__(micros=size)
    match, = windowfn.assign(
        window.WindowFn.AssignContext(main_window.max_timestamp()))
    gate_window = ClosingTimes([(windowfn, lateness)]).gate_window(main_window)
    end = gate_window.end.micros
    self.assertGreaterEqual(end, main_window.end.micros)
    self.assertGreaterEqual(end, match.end.micros + lateness)
    # And as soon as it can be.
    self.assertLess(
        end,
        max(main_window.end.micros, match.end.micros + lateness) + 1000)
    self.assertEqual(0, end % 1000)
    self.assertEqual(1000, end - gate_window.start.micros)


PANES = st.one_of(
    st.just(windowed_value.PANE_INFO_UNKNOWN),
    st.builds(
        lambda is_last,
        index: PaneInfo(index == 0, is_last, PaneInfoTiming.EARLY, index, -1),
        st.booleans(),
        st.integers(0, 300)),
    st.builds(
        lambda is_last,
        index,
        before: PaneInfo(
            index == 0,
            is_last,
            PaneInfoTiming.LATE if index > before else PaneInfoTiming.ON_TIME,
            index,
            max(0, index - before)),
        st.booleans(),
        st.integers(0, 300),
        st.integers(0, 300)))


class BatchCodecTest(unittest.TestCase):
  @given(
      st.lists(
          st.tuples(
              st.text(),
              st.integers(MIN_TIMESTAMP.micros, MAX_TIMESTAMP.micros),
              PANES)))
  def test_gives_back_what_it_was_given(self, elements):
    codec = BatchCodec(
        coders.StrUtf8Coder(), window.FixedWindows(10).get_window_coder())
    batch_window = window.IntervalWindow(-10, 0)
    stream = codec.open(batch_window)
    for element in elements:
      codec.add(stream, *element)
    read = list(pickle.loads(pickle.dumps(codec)).read(stream.get()))
    self.assertEqual(
        elements, [(v.value, v.timestamp.micros, v.pane_info) for v in read])
    self.assertEqual([(batch_window, )] * len(elements),
                     [v.windows for v in read])

  def test_the_bytes_of_a_batch(self):
    codec = BatchCodec(
        coders.StrUtf8Coder(), window.FixedWindows(10).get_window_coder())
    stream = codec.open(window.IntervalWindow(10, 20))
    codec.add(stream, 'ab', 12_345_678, windowed_value.PANE_INFO_UNKNOWN)
    codec.add(
        stream, '', -1, PaneInfo(False, True, PaneInfoTiming.LATE, 5, 2))
    self.assertEqual(
        # The window: its end and its length, in milliseconds.
        '8000000000004e20' '904e'
        # Microseconds, the pane, the element.
        '0000000000bc614e' '0f' '026162'
        'ffffffffffffffff' '2a0502' '00',
        stream.get().hex())
    other = BatchCodec(
        coders.VarIntCoder(), window.GlobalWindows().get_window_coder())
    stream = other.open(window.GlobalWindow())
    other.add(stream, 300, 0, windowed_value.PANE_INFO_UNKNOWN)
    self.assertEqual('0000000000000000' '0f' 'ac02', stream.get().hex())


class PackTest(unittest.TestCase):
  def setUp(self):
    self.codec = BatchCodec(
        coders.BytesCoder(), window.FixedWindows(10).get_window_coder())
    self.pack = _wait_on._PackFn(
        self.codec, ClosingTimes([(window.FixedWindows(10), 0)]))

  def bundle(self, elements):
    """Packs (value, seconds, window) as one bundle; the batches, in order."""
    batches = []
    self.pack.start_bundle()
    for value, seconds, main_window in elements:
      batches += self.pack.process(
          value,
          Timestamp(seconds),
          main_window,
          windowed_value.PANE_INFO_UNKNOWN)
    in_time = len(batches)
    return batches + self.pack.finish_bundle(), in_time

  def test_a_batch_for_each_window_of_a_bundle(self):
    one, two = window.IntervalWindow(0, 10), window.IntervalWindow(10, 20)
    batches, in_time = self.bundle([(b'a', 5, one), (b'b', 3, one),
                                    (b'c', 17, two), (b'd', 9, one)])
    self.assertEqual(0, in_time)
    self.assertEqual(
        # The time of each is that of its earliest, which holds the watermark.
        [(3, window.IntervalWindow(9.999, 10), [b'a', b'b', b'd']),
         (17, window.IntervalWindow(19.999, 20), [b'c'])],
        [(
            batch.timestamp,
            batch.windows[0],
            [v.value for v in self.codec.read(batch.value[1])])
         for batch in batches])

  def test_nothing_of_a_bundle_is_in_the_next(self):
    one = window.IntervalWindow(0, 10)
    self.assertEqual(1, len(self.bundle([(b'a', 1, one)])[0]))
    self.assertEqual(([], 0), self.bundle([]))

  def test_batches_are_closed_when_they_are_large(self):
    one = window.IntervalWindow(0, 10)
    number = 1000
    batches, in_time = self.bundle([(b'x' * 1000, 1, one)] * number)
    sizes = [len(batch.value[1]) for batch in batches]
    self.assertGreater(in_time, 1)
    self.assertLess(max(sizes), _wait_on._BATCH_BYTES + 2000)
    self.assertEqual(
        number,
        sum(len(list(self.codec.read(batch.value[1]))) for batch in batches))
    # They are spread over workers.
    self.assertGreater(len({batch.value[0] for batch in batches}), 1)

  def test_the_number_of_open_batches_is_bounded(self):
    number = 3 * _wait_on._OPEN_BATCHES + 1
    elements = [(b'%d' % n, n, window.IntervalWindow(n, n + 5))
                for n in range(number)]
    random.Random(1).shuffle(elements)
    batches, in_time = self.bundle(elements)
    self.assertEqual(3 * _wait_on._OPEN_BATCHES, in_time)
    self.assertCountEqual([value for value, _, _ in elements],
                          [
                              v.value for batch in batches
                              for v in self.codec.read(batch.value[1])
                          ])

  def test_a_large_element_when_too_many_batches_are_open(self):
    number = _wait_on._OPEN_BATCHES + 1
    elements = [(b'x', n, window.IntervalWindow(n, n + 5))
                for n in range(number - 1)]
    large = b'x' * _wait_on._BATCH_BYTES
    batches, in_time = self.bundle(
        elements + [(large, 1, window.IntervalWindow(-5, 0))])
    self.assertEqual((number, number), (in_time, len(batches)))


class ConstructionTest(unittest.TestCase):
  def setUp(self):
    self.pipeline = beam.Pipeline()
    self.main = self.pipeline | 'Main' >> beam.Create([1])

  def signal(self, windowing=None, pipeline=None):
    stream = (pipeline or self.pipeline) | TestStream()
    return stream | windowing if windowing else stream

  def test_what_is_no_pcollection(self):
    for bad, kind in [(5, 'int'), ([self.main], 'list'), (None, 'NoneType'),
                      (beam.Create([1]), 'Create')]:
      with self.subTest(kind):
        with self.assertRaisesRegex(
            TypeError, f'waits for PCollections; its argument 2 is a {kind}'):
          _ = self.main | kind >> WaitOn(self.main, bad)

  def test_another_pipeline(self):
    other = self.signal(pipeline=beam.Pipeline())
    with self.assertRaisesRegex(ValueError, 'another pipeline: its argument 1'):
      _ = self.main | WaitOn(other)

  def test_an_unbounded_signal_in_the_global_window(self):
    with self.assertRaisesRegex(
        ValueError, 'unbounded and in the global window.*WindowInto'):
      _ = self.main | WaitOn(self.signal())

  def test_it_may_be_meant(self):
    triggered = beam.WindowInto(
        window.GlobalWindows(),
        trigger=trigger.Repeatedly(trigger.AfterCount(1)),
        accumulation_mode=trigger.AccumulationMode.DISCARDING)
    with self.assertLogs('apache_beam.transforms', logging.WARNING) as logs:
      _ = self.main | WaitOn(self.signal(triggered))
    self.assertRegex(logs.output[0], 'nothing is released before it ends')

    self.pipeline = beam.Pipeline(
        options=PipelineOptions(allow_unsafe_triggers=True))
    self.main = self.pipeline | 'Main' >> beam.Create([1])
    with self.assertLogs('apache_beam.transforms', logging.WARNING) as logs:
      _ = self.main | WaitOn(self.signal())
    self.assertRegex(logs.output[0], 'nothing is released before it ends')

  def test_a_main_input_in_the_global_window(self):
    signal = self.signal(beam.WindowInto(window.FixedWindows(10)))
    with self.assertLogs('apache_beam.transforms', logging.WARNING) as logs:
      _ = self.main | WaitOn(signal)
    self.assertRegex(logs.output[0], 'If that never ends, nothing is released')

  def test_no_warning_where_windows_close(self):
    signal = self.signal(beam.WindowInto(window.FixedWindows(10)))
    main = self.main | 'Main windows' >> beam.WindowInto(window.Sessions(10))
    with self.assertNoLogs('apache_beam.transforms', logging.WARNING):
      _ = main | 'Stream' >> WaitOn(signal)
      _ = self.main | 'Bounded' >> WaitOn(self.main)

  def test_types_windows_and_bounds_stay(self):
    signal = self.signal(beam.WindowInto(window.FixedWindows(10)))
    sliding = window.SlidingWindows(10, 5)
    main = (
        self.main | 'Main windows' >> beam.WindowInto(
            sliding,
            allowed_lateness=7,
            trigger=trigger.Repeatedly(trigger.AfterCount(3)),
            accumulation_mode=trigger.AccumulationMode.ACCUMULATING))
    released = main | WaitOn(signal)
    self.assertEqual(int, released.element_type)
    self.assertEqual(main.windowing, released.windowing)
    self.assertTrue(released.is_bounded)
    self.assertFalse((signal | 'Other' >> WaitOn(signal)).is_bounded)

  def test_bounded_and_unbounded_signals(self):
    """The former are waited for behind the gate of the latter."""
    signal = self.signal(beam.WindowInto(window.FixedWindows(10)))
    _ = self.main | WaitOn(self.main, signal, self.main)
    labels = {
        transform.unique_name
        for transform in
        self.pipeline.to_runner_api().components.transforms.values()
    }
    self.assertLessEqual({
        'WaitOn/Gate/Drop0',
        'WaitOn/Bounded/WaitOn0',
        'WaitOn/Bounded/WaitOn1'
    },
                         labels)
    self.assertNotIn('WaitOn/Gate/Drop1', labels)

  def labels(self, *arguments):
    pipeline = beam.Pipeline(options=PipelineOptions(arguments))
    signal = (
        self.signal(pipeline=pipeline)
        | beam.WindowInto(window.FixedWindows(10)))
    main = pipeline | 'Main' >> beam.Create([1])
    _ = main | WaitOn(signal)
    _ = main | 'Bounded' >> WaitOn(main)
    _ = signal | 'Stream' >> WaitOn(main, main)
    return {
        transform.unique_name
        for transform in
        pipeline.to_runner_api().components.transforms.values()
    }

  def test_jobs_that_are_updated_keep_their_form(self):
    plain = {'WaitOn/WaitOn0', 'WaitOn/Map(<lambda at util.py:1886>)'}
    for arguments, gate in [((), True),
                            (('--update_compatibility_version=2.77.0', ),
                             False)]:
      with self.subTest(arguments):
        labels = self.labels(*arguments)
        self.assertEqual(gate, 'WaitOn/Gate/GroupByKey' in labels)
        self.assertEqual(not gate, plain <= labels)
        self.assertIn('Bounded/WaitOn0', labels)
        self.assertIn('Bounded/Map(<lambda at util.py:1886>)', labels)
        self.assertEqual(gate, 'Stream/Ended/GroupByKey' in labels)
        self.assertEqual(not gate, 'Stream/WaitOn1' in labels)


if __name__ == '__main__':
  unittest.main()
