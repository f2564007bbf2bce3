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

"""The public harness: what a test can do to the bundles of any source.

The tests of the DoFn itself, in ``apache_beam/io``, run by the same harness.
"""

import unittest

from apache_beam.io.unbounded_source import UnboundedReader
from apache_beam.testing._unbounded_harness import _WatchedReader
from apache_beam.testing._unbounded_harness import SplitInjectingHarness
from apache_beam.testing._unbounded_script import Crash
from apache_beam.testing._unbounded_script import End
from apache_beam.testing._unbounded_script import Idle
from apache_beam.testing._unbounded_script import Records
from apache_beam.testing._unbounded_script import ScriptedError
from apache_beam.testing._unbounded_script import ScriptedSource
from apache_beam.utils.timestamp import MAX_TIMESTAMP


def script(count=12):
  return ScriptedSource(
      [Records(*range(5)), Idle(2), Records(*range(5, count)), End()])


class Failure(Exception):
  pass


class HarnessTest(unittest.TestCase):
  def at(self, harness, number, action):
    def on_event(name, event):
      if event == number:
        action(name)

    harness.open(script())
    harness.on_event = on_event

  def test_a_split_at_every_event_is_exact(self):
    """Each event once, in a run of its own; the events name the moment."""
    harness = SplitInjectingHarness(script(), max_records=4)
    self.assertEqual(list(range(12)), harness.run())
    answers = {}
    for number in range(1, harness.events + 1):
      self.at(
          harness, number,
          lambda name: answers.setdefault(name, []).append(harness.split()))
      self.assertEqual(list(range(12)), harness.run(), number)
      self.assertEqual((1, 1), (harness.opened, harness.closed), number)
    # Before the first claim and between records; not within the reader, nor
    # when the bundle is over.
    self.assertIn(True, answers['begin'])
    self.assertIn(True, answers['output'])
    for name in ('start', 'advance', 'get_current', 'get_watermark', 'end',
                 'get_checkpoint_mark', 'close'):
      self.assertEqual({False}, set(answers[name]), name)

  def test_a_split_hands_on_what_is_left(self):
    harness = SplitInjectingHarness(script(), max_records=100)
    # The first record that is output: after begin, and the reader's calls.
    harness.on_event = lambda name, number: (
        name == 'output' and not harness.result.primaries and harness.split())
    result = harness.bundle(harness.initial()).raise_error()
    self.assertEqual(1, len(result.primaries))
    self.assertEqual(1, len(result.residuals))
    harness.on_event = lambda name, number: None
    self.assertEqual(
        list(range(12)), result.values + harness.run(result.residuals[0]))

  def test_a_failure_at_an_event_fails_that_bundle(self):
    def fail(name):
      raise Failure(name)

    harness = SplitInjectingHarness(script(), max_records=100)
    self.at(harness, 1, fail)
    result = harness.bundle(harness.initial())
    self.assertIsInstance(result.error, Failure)
    with self.assertRaises(Failure):
      result.raise_error()
    self.assertEqual(
        list(range(5)), harness.bundle(harness.initial()).values)

  def test_residuals_say_when_to_go_on_and_from_which_time(self):
    harness = SplitInjectingHarness(script(), poll_interval=30)
    result = harness.bundle(harness.initial()).raise_error()
    self.assertAlmostEqual(30, result.delays[0], delta=1)
    self.assertEqual([5], result.watermarks)
    self.assertGreater(result.sizes[0], 0)
    self.assertEqual([(n, n) for n in range(5)], result.records)

  def test_finalizing_is_up_to_the_test(self):
    harness = SplitInjectingHarness(source := script(), max_records=4)
    result = harness.bundle(harness.initial())
    self.assertEqual([], source.acknowledged())
    result.finalize()
    self.assertEqual([0, 1, 2, 3], source.acknowledged())
    harness.run(result.residuals[0], finalize=False)
    self.assertEqual([0, 1, 2, 3], source.acknowledged())

  def test_a_source_that_fails_does_so_in_its_bundle(self):
    harness = SplitInjectingHarness(
        ScriptedSource([Records('a'), Crash(), Records('b'), End()]))
    failed = harness.bundle(harness.initial())
    self.assertIsInstance(failed.error.__cause__, ScriptedError)
    self.assertEqual((1, 1), (harness.opened, harness.closed))
    self.assertEqual(['a', 'b'], harness.run())

  def test_a_source_without_an_end_is_told(self):
    harness = SplitInjectingHarness(ScriptedSource([Records('a')]))
    with self.assertRaisesRegex(AssertionError, 'no end after 20 bundles; 1'):
      harness.run(max_bundles=20)

  def test_the_reader_is_the_authors_in_all_that_it_is_asked(self):
    """A method that the base gets later is passed on as well."""
    source = script()
    reader = source.create_reader(None, None)
    harness = SplitInjectingHarness(source)
    asked = []
    harness.on_event = lambda name, number: asked.append(name)
    watched = _WatchedReader(reader, harness._number)
    self.assertTrue(watched.start())
    self.assertEqual(0, watched.get_current())
    self.assertEqual(reader.get_watermark(), watched.get_watermark())
    self.assertLess(watched.get_watermark(), MAX_TIMESTAMP)
    for name in dir(UnboundedReader):
      if not name.startswith('_'):
        self.assertIn(name, vars(type(watched)))
    self.assertEqual(
        ['start', 'get_current', 'get_watermark', 'get_watermark'], asked)


if __name__ == '__main__':
  unittest.main()
