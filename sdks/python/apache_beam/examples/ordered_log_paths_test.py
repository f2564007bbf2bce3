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

"""Tests of the example of ordered processing, on logs in disorder."""

import collections
import datetime
import glob
import json
import os
import random
import tempfile
import unittest

import apache_beam as beam
from apache_beam import coders
from apache_beam.examples import ordered_log_paths
from apache_beam.io._runner_testing import needs_prism
from apache_beam.io._runner_testing import prism_pipeline
from apache_beam.io.unbounded_source import ReadFromUnboundedSource
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.testing.unbounded_source import End
from apache_beam.testing.unbounded_source import Idle
from apache_beam.testing.unbounded_source import Records
from apache_beam.testing.unbounded_source import ScriptedSource
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to
from apache_beam.transforms.window import TimestampedValue

BEGIN = datetime.datetime(
    2026, 11, 30, 23, 59, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))


def line(user, second, path, end='" 200 512'):
  time = (BEGIN + datetime.timedelta(seconds=second)).strftime(
      '%d/%b/%Y:%H:%M:%S %z')
  return '10.0.0.7 - %s [%s] "GET %s HTTP/1.1%s' % (user, time, path, end)


def log(users, number):
  """Requests of users, each answered up to 20 seconds later: as triples."""
  rng = random.Random(9)
  answered = []
  for user in users:
    for i in range(number):
      second = 3 * i + rng.randrange(3)
      request = (user, second, '/%s/%d' % (user, i))
      answered.append((second + rng.random() * 20, request))
  return [request for _, request in sorted(answered)]


def expected(requests):
  before = collections.defaultdict(list)
  for user, second, path in sorted(requests, key=lambda r: r[1]):
    time = BEGIN + datetime.timedelta(seconds=second)
    own = before[user]
    yield {
        'user': user,
        'time': time.astimezone(datetime.timezone.utc).isoformat(),
        'path': path,
        'before': [earlier for _, earlier in own[-2:]],
        'seconds': float(second - own[-1][0]) if own else None,
    }
    own.append((second, path))


def by_path(found):
  return sorted(found, key=lambda one: one['path'])


class FilesTest(unittest.TestCase):
  def test_logs_of_two_servers(self):
    requests = log(['ada', 'bob', 'eve'], 60)
    self.assertNotEqual(requests, sorted(requests, key=lambda r: r[1]))
    bad = ['', '#Fields: x', line('ada', 1, '/x').replace('Nov', 'Brumaire')]
    with tempfile.TemporaryDirectory() as folder:
      for i in range(2):
        with open(os.path.join(folder, f'access_log.{i}'), 'w') as f:
          f.writelines(
              text + '\n'
              for text in [*(line(*r) for r in requests[i::2]), *bad])
      output = os.path.join(folder, 'paths')
      ordered_log_paths.main([
          '--input', os.path.join(folder, 'access_log*'), '--output', output
      ])
      found, refused = (
          [text for name in glob.glob(output + pattern) for text in open(name)]
          for pattern in ('-0*', '-bad*'))
    self.assertEqual(
        by_path(expected(requests)), by_path(map(json.loads, found)))
    self.assertEqual(
        sorted(text + '\n' for text in 2 * bad), sorted(refused))


class LinesTest(unittest.TestCase):
  def parse(self, text):
    return list(ordered_log_paths.ParseLine().process(text))

  def test_what_is_read(self):
    for text, user, path in (
        (line('ada', 0, '/a?b=1'), 'ada', '/a?b=1'),
        (line('-', 0, '/'), '10.0.0.7', '/'),
        (line('ada', 0, '/', '" 304 -'), 'ada', '/'),
        (line('ada', 0, '/', '" 200 5 "http://x/" "Browser 1"'), 'ada', '/')):
      with self.subTest(text):
        request, = self.parse(text)
        self.assertEqual((user, path), request.value)
        self.assertEqual(BEGIN.timestamp(), float(request.timestamp))

  def test_what_is_not(self):
    good = line('ada', 0, '/')
    for text in ('', good[:-9], good.replace('200', 'OK'),
                 good.replace(' +0200', ''), good.replace('30/', '31/')):
      with self.subTest(text):
        output, = self.parse(text)
        self.assertEqual((ordered_log_paths.BAD, text),
                         (output.tag, output.value))


class UnboundedTest(unittest.TestCase):
  def stream(self):
    begin = BEGIN.timestamp()
    stream = TestStream(coder=coders.StrUtf8Coder())
    stream.advance_watermark_to(begin)
    stream.add_elements([TimestampedValue(line('ada', 5, '/on-time'), begin)])
    stream.advance_watermark_to(begin + 9)
    stream.add_elements([
        TimestampedValue(line('ada', second, path), begin + 9)
        for second, path in ((4, '/late'), (12, '/next'))
    ])
    # DirectRunner's timers hold no watermark: what comes at the very end is
    # late for an assertion.
    stream.advance_watermark_to(begin + 1000)
    return stream.advance_watermark_to_infinity()

  def test_a_request_that_is_late(self):
    options = PipelineOptions(['--streaming'])
    for lateness, paths, bad in (
        (0, ['/on-time', '/next'], ['late: ada /late']),
        (5, ['/late', '/on-time', '/next'], [])):
      with beam.Pipeline(options=options) as pipeline:
        result = (
            pipeline | self.stream()
            | ordered_log_paths.RequestPaths(lateness))
        assert_that(
            result['paths'] | beam.Map(lambda text: json.loads(text)['path']),
            equal_to(paths),
            'paths')
        assert_that(result[ordered_log_paths.BAD], equal_to(bad), 'bad')

  @needs_prism
  def test_a_log_that_grows(self):
    requests = log(['ada', 'bob'], 30)
    script = []
    least = [
        min(second for _, second, _ in requests[i:])
        for i in range(len(requests))
    ]
    # The time of a line is as far as all before it are known.
    for i in range(0, len(requests), 10):
      script += [
          Records(
              *(
                  TimestampedValue(line(*r), BEGIN.timestamp() + low)
                  for r, low in zip(requests[i:i + 10], least[i:i + 10]))),
          Idle()
      ]
    with prism_pipeline() as pipeline:
      result = (
          pipeline
          | ReadFromUnboundedSource(
              ScriptedSource([*script, End()]), 0.01, max_records_per_bundle=3)
          | ordered_log_paths.RequestPaths())
      found = result['paths'] | beam.Map(
          lambda text: sorted(json.loads(text).items()))
      assert_that(
          found,
          equal_to([sorted(one.items()) for one in expected(requests)]),
          'paths')
      assert_that(result[ordered_log_paths.BAD], equal_to([]), 'bad')


if __name__ == '__main__':
  unittest.main()
