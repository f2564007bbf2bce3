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

"""Unbounded reads on real runners: FnApiRunner, DirectRunner, Prism.

Prism needs its binary: the tests for it run where ``PRISM_LOCATION`` names one.
Where ``OTHER_BEAM_PYTHON`` names a Python with Beam 2.76 or later, its worker
is given a pipeline of this release.
"""

import collections
import sys
import tempfile
import textwrap
import time
import unittest

import apache_beam as beam
from apache_beam.io import _unbounded_dofn
from apache_beam.io._runner_testing import OTHER_PYTHON
from apache_beam.io._runner_testing import needs_other_python
from apache_beam.io._runner_testing import needs_prism
from apache_beam.io._runner_testing import prism_pipeline
from apache_beam.io._runner_testing import run_main_script
from apache_beam.io._unbounded_readers import READERS
from apache_beam.io._unbounded_testing import T0
from apache_beam.io._unbounded_testing import CountingReader
from apache_beam.io._unbounded_testing import CountingSource
from apache_beam.io._unbounded_testing import Journal
from apache_beam.io._unbounded_testing import JournalTest
from apache_beam.io.unbounded_source import ReadFromUnboundedSource
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.runners.portability import fn_api_runner
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to
from apache_beam.transforms.window import FixedWindows
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp


class RunnerTests(JournalTest):
  """What holds on every runner; subclasses make the pipeline."""
  def test_every_record_once_from_1_2_and_7_splits(self):
    """Cases B62 and B65."""
    for parts in (1, 2, 7):
      with self.subTest(parts):
        self.journal = Journal.new(self.id())
        with self.pipeline() as p:
          records = p | ReadFromUnboundedSource(
              self.source(500, parts=parts, idle_every=60),
              poll_interval=0,
              max_records_per_bundle=30)
          assert_that(records, equal_to(list(range(500))))
        READERS.close_all()
        self.assertEqual(parts, self.journal.opened)
        self.assertEqual(parts, self.journal.closed)

  def test_windows_close_and_counts_are_right(self):
    """Case B38: an unbounded read, fixed windows, a GroupByKey."""
    with self.pipeline() as p:
      counts = (
          p
          | ReadFromUnboundedSource(
              self.source(100, parts=3),
              poll_interval=0,
              max_records_per_bundle=10)
          | beam.WindowInto(FixedWindows(10))
          | beam.Map(lambda value: (value % 2, 1))
          | beam.CombinePerKey(sum)
          | beam.Map(
              lambda kv, window=beam.DoFn.WindowParam:
              (int(window.start) - T0, kv[0], kv[1])))
      assert_that(
          counts,
          equal_to([(start, key, 5) for start in range(0, 100, 10)
                    for key in (0, 1)]))

  def test_two_reads_flattened(self):
    with self.pipeline() as p:
      reads = [
          p | f'Read{n}' >> ReadFromUnboundedSource(
              self.source(2000, parts=2, first=n),
              poll_interval=0,
              max_records_per_bundle=50) for n in range(2)
      ]
      assert_that(
          reads | beam.Flatten(), equal_to(sorted(list(range(2000)) * 2)))

  def test_last_marks_are_finalized(self):
    with self.pipeline() as p:
      _ = p | ReadFromUnboundedSource(
          self.source(95), poll_interval=0, max_records_per_bundle=10)
    self.assertEqual(94, self.journal.finalized[-1])
    self.assertEqual(sorted(set(self.journal.finalized)),
                     self.journal.finalized)

  def test_nothing_is_acknowledged_if_the_pipeline_cannot_work(self):
    """Case B67: a DoFn downstream whose setup raises."""
    with self.assertRaisesRegex(Exception, 'no licence'):
      with self.pipeline() as p:
        _ = (
            p
            | ReadFromUnboundedSource(self.source(10))
            | beam.ParDo(FailingSetup()))
    self.assertEqual([], self.journal.finalized)

  def test_a_source_that_raises_fails_the_pipeline_by_name(self):
    with self.assertRaisesRegex(Exception, 'split 1 of 1.*disk on fire'):
      with self.pipeline() as p:
        _ = p | ReadFromUnboundedSource(BurningSource(self.id(), 10))


  def test_is_asked_once_in_a_poll_interval(self):
    """Case B32: a runner that ignores delays asked thousands of times.

    One record after 1.3 s, asked for every 0.4 s.
    """
    with self.pipeline() as p:
      _ = p | ReadFromUnboundedSource(
          TricklingSource(self.id(), 1, seconds=1.3), poll_interval=0.4)
    self.assertIn(self.journal.idle_polls, (3, 4, 5))
    self.assertEqual(1, self.journal.opened)

  def test_each_record_arrives_when_it_comes(self):
    """Cases B33 and B76: behind a shuffle, while the watermark stands still.

    Five records, 0.4 s apart. Passes if none waits for the source to end.
    """
    with self.pipeline() as p:
      _ = (
          p
          | ReadFromUnboundedSource(
              TricklingSource(self.id(), 5, seconds=0.4), poll_interval=0.1)
          | beam.Reshuffle()
          | beam.Map(note_arrival, self.id()))
    arrived = [at for _, at in sorted(ARRIVALS.pop(self.id()))]
    self.assertEqual(5, len(arrived))
    gaps = [after - before for before, after in zip(arrived, arrived[1:])]
    self.assertTrue(all(gap > 0.1 for gap in gaps), gaps)


ARRIVALS = collections.defaultdict(list)


class PartlyEmptySource(CountingSource):
  """Three parts, of which one never has anything.

  They end when the journal was told something, or after a minute.
  """
  def split(self, desired_num_splits, options=None):
    return [
        PartlyEmptySource(self.name, count, first=first, step=2)
        for first, count in enumerate((40, 40, 0))
    ]

  def create_reader(self, options, checkpoint_mark):
    return PartlyEmptyReader(
        self, None if checkpoint_mark is None else checkpoint_mark.last)


class PartlyEmptyReader(CountingReader):
  """While it has nothing, its watermark goes on by 10 s with each poll."""
  def __init__(self, source, last):
    super().__init__(source, last)
    self._end = time.monotonic() + 60
    self._idle = 0

  def _advance(self, call):
    read = super()._advance(call)
    self._idle += not read
    if time.monotonic() > self._end:
      self._journal.told.append('too late')
    return read

  def get_watermark(self):
    if self._journal.told:
      return MAX_TIMESTAMP
    last = self._last if self._source.count else 0
    return Timestamp(T0 + last + 10 * self._idle)


def note_arrival(value, name):
  ARRIVALS[name].append((value, time.monotonic()))


class TricklingSource(CountingSource):
  """Gives a record every so many seconds; its watermark does not move."""
  def __init__(self, name, count, seconds):
    super().__init__(name, count)
    self.seconds = seconds

  def create_reader(self, options, checkpoint_mark):
    return TricklingReader(
        self, None if checkpoint_mark is None else checkpoint_mark.last)


class TricklingReader(CountingReader):
  def __init__(self, source, last):
    super().__init__(source, last)
    self._next = time.monotonic() + source.seconds

  def _advance(self, call):
    if time.monotonic() < self._next:
      self._journal.idle_polls += 1
      return False
    self._next += self._source.seconds
    return super()._advance(call)

  def get_watermark(self):
    watermark = super().get_watermark()
    return watermark if watermark == MAX_TIMESTAMP else Timestamp(T0)


class UntilSeenSource(CountingSource):
  """Has always more, until what both of two gave was seen, or for a minute."""
  def create_reader(self, options, checkpoint_mark):
    return UntilSeenReader(
        self, None if checkpoint_mark is None else checkpoint_mark.last)


class UntilSeenReader(CountingReader):
  # Of all readers, as one may be opened after another.
  end: dict[str, float] = {}

  def _over(self):
    late = time.monotonic() + 60
    if time.monotonic() > self.end.setdefault(self._source.name, late):
      self._journal.told.append('too late')
      return True
    return len(set(self._journal.told)) > 1

  def _advance(self, call):
    time.sleep(0.001)
    return not self._over() and super()._advance(call)

  def get_watermark(self):
    return MAX_TIMESTAMP if self._over() else super().get_watermark()


class FailingSetup(beam.DoFn):
  def setup(self):
    raise RuntimeError('no licence')

  def process(self, element):
    yield element


class BurningSource(CountingSource):
  def create_reader(self, options, checkpoint_mark):
    raise IOError('disk on fire')


class FnApiRunnerTest(RunnerTests, unittest.TestCase):
  def pipeline(self, **kwargs):
    return beam.Pipeline(runner=fn_api_runner.FnApiRunner(**kwargs))

  @unittest.expectedFailure
  def test_each_record_arrives_when_it_comes(self):
    # FnApiRunner gives a stage its input when all that leads there has ended.
    super().test_each_record_arrives_when_it_comes()

  def test_draining(self):
    """Case B44: nothing new is read, and what is bounded, to its end."""
    with tempfile.NamedTemporaryFile('w') as file:
      file.write('a\nb\n')
      file.flush()
      with self.pipeline(is_drain=True) as p:
        numbers = p | ReadFromUnboundedSource(self.source(10), poll_interval=0)
        lines = (
            p
            | beam.io.ReadFromText(file.name)
            | beam.Map(
                lambda line, numbers:
                (line, numbers), beam.pvalue.AsList(numbers)))
        assert_that(lines, equal_to([('a', []), ('b', [])]))
    self.assertEqual(0, self.journal.opened)

  def test_repeated_bundles_give_the_same(self):
    """A cache ahead of what is committed gave 0 of 15 records here."""
    for repeat in (2, 3):
      with self.subTest(repeat):
        with self.pipeline(bundle_repeat=repeat) as p:
          records = p | ReadFromUnboundedSource(
              self.source(95, parts=2, idle_every=15),
              poll_interval=0,
              max_records_per_bundle=10)
          assert_that(records, equal_to(list(range(95))))

  def test_500_splits_open_500_readers(self):
    class Read(ReadFromUnboundedSource):
      _DESIRED_NUM_SPLITS = 500

    with self.pipeline() as p:
      records = p | Read(
          self.source(2000, parts=500),
          poll_interval=0,
          max_records_per_bundle=2)
      assert_that(records, equal_to(list(range(2000))))
    self.assertEqual(500, self.journal.opened)
    self.assertEqual(500, self.journal.closed)

  def test_failed_finalizations_are_counted(self):
    def fail(last):
      if last % 2:
        raise IOError('broker gone')

    class Finalized(list):
      append = staticmethod(fail)

    self.journal.finalized = Finalized()
    pipeline = self.pipeline()
    _ = pipeline | ReadFromUnboundedSource(
        self.source(40), poll_interval=0, max_records_per_bundle=10)
    result = pipeline.run()
    result.wait_until_finish()
    counter, = result.metrics().query(
        MetricsFilter().with_name('failed_finalizations'))['counters']
    # Marks 9, 19, 29 and 39, each counted by the bundle after it.
    self.assertEqual(4, counter.committed)

  def test_with_runtime_type_checks(self):
    options = PipelineOptions(['--runtime_type_check'])
    with beam.Pipeline(runner=fn_api_runner.FnApiRunner(),
                       options=options) as p:
      records = p | ReadFromUnboundedSource(self.source(20), poll_interval=0)
      assert_that(records, equal_to(list(range(20))))

  def test_a_source_of_the_main_script_on_another_process(self):
    """The classes of the script exist nowhere else: they travel by value."""
    self.assertIn(
        'all 25 records', run_main_script(MAIN_SCRIPT, sys.executable))

  @needs_other_python
  def test_a_worker_with_another_module_says_so(self):
    """2.76 and later have a module of this name that reads otherwise."""
    output = run_main_script(MAIN_SCRIPT, OTHER_PYTHON)
    self.assertNotIn('all 25 records', output)
    self.assertIn('is not the one that this pipeline was submitted', output)
    self.assertIn('Install the same wheel on the workers', output)


MAIN_SCRIPT = textwrap.dedent(
    '''
    import sys

    import apache_beam as beam
    from apache_beam.io._unbounded_testing import CountingSource
    from apache_beam.io._unbounded_testing import CountingReader
    from apache_beam.runners.portability import fn_api_runner
    from apache_beam.testing.util import assert_that, equal_to
    from apache_beam.transforms import environments


    class ScriptReader(CountingReader):
      def get_current(self):
        return super().get_current() * 10


    class ScriptSource(CountingSource):
      def create_reader(self, options, mark):
        return ScriptReader(self, None if mark is None else mark.last)


    if __name__ == '__main__':
      runner = fn_api_runner.FnApiRunner(
          environments.SubprocessSDKEnvironment(
              f'{sys.argv[1]} -m apache_beam.runners.worker.sdk_worker_main'))
      with beam.Pipeline(runner=runner) as p:
        records = p | beam.io.unbounded_source.ReadFromUnboundedSource(
            ScriptSource('script', 25), poll_interval=0,
            max_records_per_bundle=10)
        assert_that(records, equal_to(list(range(0, 250, 10))))
      print('all 25 records')
    ''').replace(
        'import apache_beam as beam\n',
        'import apache_beam as beam\nimport apache_beam.io.unbounded_source\n')


class DirectRunnerTest(RunnerTests, unittest.TestCase):
  def pipeline(self):
    return beam.Pipeline(runner='DirectRunner')

  @unittest.expectedFailure
  def test_each_record_arrives_when_it_comes(self):
    # Runs such a pipeline on FnApiRunner; see there.
    super().test_each_record_arrives_when_it_comes()


class UnfusedTest(unittest.TestCase):
  def test_chunks_pass_through_their_coder(self):
    """Where a runner does not fuse, or breaks the fusion here as a reshuffle.
    """
    class Read(ReadFromUnboundedSource):
      def expand(self, pbegin):
        records = super().expand(pbegin)
        chunks = records.producer.inputs[0]
        return (
            chunks
            | beam.Reshuffle()
            | beam.ParDo(_unbounded_dofn.ChunkRecordsFn()))

    with beam.Pipeline(runner=fn_api_runner.FnApiRunner()) as p:
      records = (
          p
          | Read(CountingSource(self.id(), 300), poll_interval=0)
          | beam.Map(lambda x, at=beam.DoFn.TimestampParam: (x, at.micros)))
      assert_that(
          records, equal_to([(n, (T0 + n) * 1000000) for n in range(300)]))

  def test_the_old_direct_runner_is_refused_by_name(self):
    """It asks whether a read is done before it has run it."""
    with self.assertRaisesRegex(Exception, 'use FnApiRunner, or PrismRunner'):
      with beam.Pipeline(runner=BundleBasedDirectRunner()) as p:
        _ = p | ReadFromUnboundedSource(CountingSource(self.id(), 10))


@needs_prism
class PrismTest(RunnerTests, unittest.TestCase):
  def pipeline(self):
    return prism_pipeline()

  def test_windows_close_while_a_split_is_empty(self):
    """Case B41: all other splits have to wait for its watermark."""
    with self.pipeline() as p:
      _ = (
          p
          | ReadFromUnboundedSource(
              PartlyEmptySource(self.id(), 0), poll_interval=0.1)
          | beam.WindowInto(FixedWindows(10))
          | beam.Map(lambda value: (None, 1))
          | beam.CombinePerKey(sum)
          | beam.Map(
              lambda kv, name: tell(f'{kv[1]} in a window', name), self.id()))
    self.assertEqual(['10 in a window'] * 4, self.journal.told[:4])

  def test_two_reads_that_always_have_more(self):
    """Case B34: nobody asks them to pause, and what is behind waits."""
    with self.pipeline() as p:
      reads = [
          p | f'Read{n}' >> ReadFromUnboundedSource(
              UntilSeenSource(self.id(), 10**9, first=n, step=2),
              max_records_per_bundle=50) for n in range(2)
      ]
      _ = (
          reads
          | beam.Flatten()
          | beam.Reshuffle()
          | beam.Map(lambda value, name: tell(value % 2, name), self.id()))
    self.assertEqual({0, 1}, set(self.journal.told))


def tell(what, name):
  Journal.of(name).told.append(what)


if __name__ == '__main__':
  unittest.main()
