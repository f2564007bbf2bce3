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

"""What a script says is what comes, in bundles and in pipelines."""

import pickle
import unittest

import hypothesis
from hypothesis import given
from hypothesis import strategies as st

import apache_beam as beam
from apache_beam.io._runner_testing import needs_prism
from apache_beam.io._runner_testing import prism_pipeline
from apache_beam.io.unbounded_source import ReadFromUnboundedSource
from apache_beam.testing._unbounded_harness import SplitInjectingHarness
from apache_beam.testing._unbounded_script import Crash
from apache_beam.testing._unbounded_script import End
from apache_beam.testing._unbounded_script import Idle
from apache_beam.testing._unbounded_script import Records
from apache_beam.testing._unbounded_script import ScriptedError
from apache_beam.testing._unbounded_script import ScriptedSource
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to
from apache_beam.transforms.window import FixedWindows
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp


def committed(harness):
  """Runs bundles, each until it succeeds; what they gave, how many failed."""
  values = []
  failed = 0
  todo = [harness.initial()]
  while todo and failed < 100:
    result = harness.bundle(todo[0])
    if result.error is not None:
      failed += 1
      continue
    values += result.values
    todo = result.residuals
    result.finalize()
  return values, failed


class ScriptTest(unittest.TestCase):
  @hypothesis.settings(max_examples=60, deadline=None)
  @given(
      script=st.lists(
          st.one_of(
              st.integers(1, 5).map(lambda n: Records(*'x' * n)),
              st.integers(1, 3).map(Idle),
              st.just(Crash())),
          max_size=8))
  def test_any_script_is_exact(self, script):
    """However it pauses and crashes, each record comes once, in order.

    A crash fails one bundle, once, though reading resumes before it.
    """
    values = iter(range(100))
    script = [
        Records(*[next(values) for _ in step.values]) if isinstance(
            step, Records) else step for step in script
    ]
    source = ScriptedSource(script + [End()])
    _HARNESS.open(source)
    got, failed = committed(_HARNESS)
    self.assertEqual(list(range(next(values))), got)
    self.assertEqual(
        sum(isinstance(step, Crash) for step in script), failed)
    self.assertEqual(got, source.acknowledged())

  def test_each_idle_poll_has_its_place(self):
    """A pause that does not count in the position would repeat a record."""
    source = ScriptedSource(
        [Records('a'), Idle(2), Records('b'), Idle(), Records('c'), End()])
    reader = source.create_reader(None, None)
    polls = [reader.start()] + [reader.advance() for _ in range(6)]
    self.assertEqual([True, False, False, True, False, True, False], polls)
    coder = source.get_checkpoint_mark_coder()
    for read in range(1, 7):
      reader = source.create_reader(None, None)
      reader.start()
      for _ in range(read - 1):
        reader.advance()
      mark = coder.decode(coder.encode(reader.get_checkpoint_mark()))
      resumed = source.create_reader(None, mark)
      self.assertEqual(
          polls[read:],
          [resumed.start()] + [resumed.advance() for _ in range(6 - read)],
          f'after {read} polls')

  def test_a_crash_comes_once_for_a_source(self):
    source = ScriptedSource([Records('a'), Crash(KeyError('k')), End()])
    reader = source.create_reader(None, None)
    self.assertTrue(reader.start())
    with self.assertRaises(KeyError):
      reader.advance()
    again = pickle.loads(pickle.dumps(source)).create_reader(None, None)
    self.assertEqual([True, False], [again.start(), again.advance()])
    other = ScriptedSource([Records('a'), Crash(), End()])
    reader = other.create_reader(None, None)
    reader.start()
    with self.assertRaisesRegex(ScriptedError, 'step 2 of 3'):
      reader.advance()

  def test_the_watermark_is_the_least_of_what_is_to_come(self):
    source = ScriptedSource([
        Records(TimestampedValue('a', 5), TimestampedValue('b', 3)),
        Idle(2),
        Records(TimestampedValue('c', 9)),
        Idle(),
        End()
    ])
    reader = source.create_reader(None, None)
    seen = [reader.get_watermark()]
    reader.start()
    seen.append(reader.get_watermark())
    for _ in range(6):
      reader.advance()
      seen.append(reader.get_watermark())
    self.assertEqual([3, 3, 9, 9, 9, 9, MAX_TIMESTAMP, MAX_TIMESTAMP], seen)

  def test_without_an_end_the_watermark_follows_the_clock(self):
    source = ScriptedSource([Records('a')])
    reader = source.create_reader(None, None)
    before = Timestamp.now()
    reader.start()
    self.assertLessEqual(before, reader.get_watermark())
    self.assertLess(reader.get_watermark(), MAX_TIMESTAMP)

  def test_the_backlog_is_what_is_to_come(self):
    source = ScriptedSource([Records('a', 'bbb'), Idle(), End()])
    total = source.get_total_backlog_bytes(None)
    reader = source.create_reader(None, None)
    seen = [reader.get_split_backlog_bytes()]
    reader.start()
    seen.append(reader.get_split_backlog_bytes())
    reader.advance()
    seen.append(reader.get_split_backlog_bytes())
    self.assertEqual(total, seen[0])
    self.assertEqual(sorted(seen, reverse=True), seen)
    self.assertEqual(0, seen[-1])
    self.assertGreater(seen[1], 0)

  def test_what_is_no_script_is_refused(self):
    for script, error, words in (
        ([Records('a'), 'b'], TypeError, r"script\[1\]='b' is no step"),
        ([End], TypeError, 'instances, not classes'),
        ([End(), Records('a')], ValueError, r'script\[0\] is an End'),
    ):
      with self.subTest(script), self.assertRaisesRegex(error, words):
        ScriptedSource(script)
    for wrong in (0, -1, 1.5, True):
      with self.assertRaisesRegex(ValueError, 'polls'):
        Idle(wrong)
    with self.assertRaisesRegex(TypeError, 'error'):
      Crash('boom')

  def test_it_says_what_it_is(self):
    self.assertEqual(
        "ScriptedSource([Records('a', 1), Idle(2), Crash(), End()])",
        repr(ScriptedSource([Records('a', 1), Idle(2), Crash(), End()])))


class PipelineTest(unittest.TestCase):
  def assert_counts(self, pipeline):
    with pipeline:
      counts = (
          pipeline
          | ReadFromUnboundedSource(
              ScriptedSource([
                  Records(*'abc'),
                  Idle(2),
                  Records(TimestampedValue('d', 60)),
                  End()
              ]),
              poll_interval=0.01)
          | beam.WindowInto(FixedWindows(60))
          | beam.CombineGlobally(
              beam.combiners.CountCombineFn()).without_defaults())
      assert_that(counts, equal_to([3, 1]))

  def test_on_fn_api_runner(self):
    self.assert_counts(beam.Pipeline(runner='FnApiRunner'))

  @needs_prism
  def test_on_prism(self):
    self.assert_counts(prism_pipeline())

  def test_a_crash_fails_a_job_that_is_not_retried(self):
    with self.assertRaisesRegex(Exception, 'The script says so, at step 2'):
      with beam.Pipeline(runner='FnApiRunner') as pipeline:
        _ = pipeline | ReadFromUnboundedSource(
            ScriptedSource([Records('a'), Crash(), End()]), poll_interval=0.01)


_HARNESS = SplitInjectingHarness(
    ScriptedSource([End()]), max_records=3)

if __name__ == '__main__':
  unittest.main()
