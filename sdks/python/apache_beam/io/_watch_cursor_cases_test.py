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


"""The cursor of Python's Watch against the table that Java's reads, too."""

import json
import os
import unittest
from unittest import mock

import apache_beam as beam
from apache_beam.io import _watch_metrics
from apache_beam.io._watch_testing import FakeClock
from apache_beam.io._watch_testing import Script
from apache_beam.io._watch_testing import WatchHarness
from apache_beam.io._watch_testing import found
from apache_beam.io.watch import PollResult
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Duration
from apache_beam.utils.timestamp import Timestamp

_TABLE = os.path.join(
    os.path.dirname(beam.__file__), 'testing', 'data', 'watch_cursor_cases.json')


def _time(millis):
  return None if millis is None else Timestamp(micros=millis * 1000)


def _result(poll):
  result = PollResult.incomplete([
      TimestampedValue(output, _time(millis))
      for millis, output in poll['lists']
  ])
  return (
      result.with_watermark(_time(poll['says'])) if 'says' in poll else result)


class CasesTest(unittest.TestCase):
  def test_table(self):
    with open(_TABLE, encoding='utf-8') as lines:
      table = json.load(lines)
    self.assertGreater(len(table['cases']), 20)
    for case in table['cases']:
      with self.subTest(case['name']):
        self.run_case(case, table['now'])

  def run_case(self, case, common_now):
    clock = FakeClock()
    polls = case['polls']
    harness = WatchHarness(
        Script(*map(_result, polls)),
        poll_interval=0,
        timestamp_cursor=True,
        allowed_lateness=Duration(micros=case['allowed_lateness'] * 1000),
        now_fn=clock)
    restriction = None
    for number, poll in enumerate(polls):
      where = f'poll {number}'
      clock.now = poll.get('now', common_now) / 1000
      with mock.patch.object(_watch_metrics, '_DROPPED') as dropped:
        result, = harness.steps(
            1, restriction, restart=poll.get('restart', False))
      restriction, = result.residuals
      self.assertEqual(poll['gives'], sorted(found(result)), where)
      self.assertEqual(
          poll['drops'],
          sum(call.args[0] for call in dropped.inc.call_args_list),
          where)
      cursor = _time(poll['cursor'])
      self.assertEqual(
          None if cursor is None else cursor.micros, restriction.cursor, where)
      self.assertEqual(poll['keeps'], restriction.key_count, where)
      self.assertEqual(
          _time(poll['watermark']) or MIN_TIMESTAMP,
          restriction.watermark,
          where)


if __name__ == '__main__':
  unittest.main()
