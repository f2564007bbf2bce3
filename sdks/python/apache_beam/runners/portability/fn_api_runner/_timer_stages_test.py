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

"""Tests that timers fire after what their source still has to give."""

import unittest

import apache_beam as beam
from apache_beam import coders
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.io.restriction_trackers import OffsetRestrictionTracker
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to
from apache_beam.transforms import userstate
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration


class _Ten(beam.transforms.core.RestrictionProvider):
  def restriction_size(self, element, restriction):
    return 10

  def create_tracker(self, restriction):
    tracker = OffsetRestrictionTracker(restriction)
    return tracker

  def initial_restriction(self, element):
    return OffsetRange(0, 10)


class _CountInBundles(beam.DoFn):
  """Gives 0 to 9 at as many seconds, three a bundle."""
  def __init__(self, delay):
    self._delay = delay

  def process(self, element, tracker=beam.DoFn.RestrictionParam(_Ten())):
    start = tracker.current_restriction().start
    for i in range(start, min(start + 3, 10)):
      if not tracker.try_claim(i):
        return
      yield TimestampedValue(('key', i), i)
    tracker.defer_remainder(Duration(self._delay))


class _SumAtTimer(beam.DoFn):
  """Gives what it has seen when the timer fires that the first sets."""
  SEEN = userstate.BagStateSpec('seen', coders.VarIntCoder())
  TIMER = userstate.TimerSpec('timer', userstate.TimeDomain.WATERMARK)

  def process(
      self,
      element,
      seen=beam.DoFn.StateParam(SEEN),
      timer=beam.DoFn.TimerParam(TIMER)):
    seen.add(element[1])
    timer.set(100)

  @userstate.on_timer(TIMER)
  def fire(self, seen=beam.DoFn.StateParam(SEEN)):
    yield sorted(seen.read())
    seen.clear()


class TimerStagesTest(unittest.TestCase):
  def check(self, delay):
    with beam.Pipeline(runner=FnApiRunner(),
                       options=PipelineOptions(['--streaming'])) as pipeline:
      sums = (
          pipeline
          | beam.Create([None], reshuffle=False)
          | beam.ParDo(_CountInBundles(delay))
          | beam.Map(lambda pair: pair).with_output_types(tuple[str, int])
          | beam.ParDo(_SumAtTimer()))
      assert_that(sums, equal_to([list(range(10))]))

  def test_a_timer_fires_after_the_rest_of_its_source(self):
    self.check(delay=0)

  def test_a_timer_fires_after_a_source_that_pauses(self):
    self.check(delay=0.01)

  def test_two_that_have_the_same_input(self):
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      pairs = pipeline | beam.Create([('key', 1), ('key', 2)])
      for label in 'ab':
        sums = pairs | label >> beam.ParDo(_SumAtTimer())
        assert_that(sums, equal_to([[1, 2]]), 'sums ' + label)

  def test_one_behind_the_other(self):
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
      sums = (
          pipeline | beam.Create([('a', 1), ('b', 2), ('a', 3)])
          | 'first' >> beam.ParDo(_SumAtTimer())
          | beam.Map(lambda sums: ('key', sum(sums)))
          | 'second' >> beam.ParDo(_SumAtTimer()))
      assert_that(sums, equal_to([[2, 4]]))


if __name__ == '__main__':
  unittest.main()
