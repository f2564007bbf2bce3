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

"""Pipelines that read Redis Streams from a real server.

The server is ``redis-server`` of the path, or of the variable ``REDIS_SERVER``.
Prism needs its binary: the tests for it run where ``PRISM_LOCATION`` names one.
"""

import contextlib
import itertools
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import apache_beam as beam
from apache_beam.io._redis_testing import EndingSource
from apache_beam.io._redis_testing import RedisServer
from apache_beam.io._redis_testing import needs_redis
from apache_beam.io._runner_testing import needs_prism
from apache_beam.io._runner_testing import prism_pipeline
from apache_beam.io._unbounded_readers import READERS
from apache_beam.io.redisstreams import ReadFromRedisStreams
from apache_beam.io.redisstreams import RedisStreamsSource
from apache_beam.io.unbounded_source import ReadFromUnboundedSource
from apache_beam.metrics import MetricsFilter
from apache_beam.runners.portability import fn_api_runner
from apache_beam.testing.unbounded_source import check_unbounded_source
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to
from apache_beam.transforms.window import FixedWindows


# Numbers that arrived, by test; workers are threads here.
SEEN = {}


def number_of(entry):
  return int(entry.fields[b'n'])


def note(number, test):
  SEEN[test].append(number)
  return number


def slow(number):
  time.sleep(0.0002)
  return number


def fail_from(number, limit):
  if number >= limit:
    raise ValueError(f'cannot work on {number}')
  return number


class ServerTest(unittest.TestCase):
  @classmethod
  def setUpClass(cls):
    cls.server = RedisServer()
    cls.addClassCleanup(cls.server.stop)

  def setUp(self):
    READERS.close_all()
    self.addCleanup(READERS.close_all)
    self.client = self.server.client()
    self.addCleanup(self.client.close)
    self.client.flushall()
    self.seen = SEEN[self.id()] = []
    self.addCleanup(SEEN.pop, self.id(), None)

  def add(self, numbers, stream='s'):
    pipeline = self.client.pipeline(transaction=False)
    for number in numbers:
      pipeline.xadd(stream, {'n': str(number)})
    pipeline.execute()

  def end(self):
    self.client.set('end', 1)

  def read(self, streams='s', **kwargs):
    """A read that ends; numbers as elements."""
    caps = {
        name: kwargs.pop(name)
        for name in ('max_records_per_bundle', ) if name in kwargs
    }
    kwargs.setdefault('batch_size', 100)
    return (
        'Read' >> ReadFromUnboundedSource(
            EndingSource(self.server.url, streams, 'g', **kwargs),
            poll_interval=0.05,
            **caps)
        | 'Number' >> beam.Map(number_of)
        | 'Note' >> beam.Map(note, self.id()))

  def pending(self, stream='s'):
    return self.client.xpending(stream, 'g')['pending']

  def wait_until(self, condition, seconds=180):
    deadline = time.monotonic() + seconds
    while not condition():
      self.assertLess(time.monotonic(), deadline, 'it takes too long')
      time.sleep(0.01)


class PipelineTests:
  """What holds on every runner; subclasses make the pipeline."""
  def test_each_entry_once_from_1_and_3_splits(self):
    for splits in (1, 3):
      with self.subTest(splits):
        self.setUp()
        self.add(range(2000))
        self.end()
        with self.pipeline() as p:
          numbers = p | self.read(num_splits=splits, max_records_per_bundle=150)
          assert_that(numbers, equal_to(list(range(2000))))
        self.wait_until(lambda: not self.pending())

  def test_several_streams(self):
    for at, stream in enumerate('abc'):
      self.add(range(at, 300, 3), stream)
    self.end()
    with self.pipeline() as p:
      numbers = p | self.read(['a', 'b', 'c'])
      assert_that(numbers, equal_to(list(range(300))))

  def test_windows_close_and_counts_are_right(self):
    """Case B38: fixed windows and a GroupByKey behind the read."""
    for number in range(100):
      self.client.xadd('s', {'n': number}, id=f'{1000 * number + 1}-0')
    self.end()
    with self.pipeline() as p:
      counts = (
          p | self.read()
          | beam.WindowInto(FixedWindows(10))
          | beam.Map(lambda number: (number % 2, 1))
          | beam.CombinePerKey(sum)
          | beam.Map(
              lambda kv, window=beam.DoFn.WindowParam:
              (int(window.start), *kv)))
      assert_that(
          counts,
          equal_to([(start, key, 5) for start in range(0, 100, 10)
                    for key in (0, 1)]))

  def test_nothing_is_acknowledged_if_the_pipeline_fails(self):
    """Case B67: neither in its first bundle nor in a later one."""
    self.add(range(300))
    for limit, acknowledged in ((0, 0), (250, 200)):
      with self.subTest(limit):
        with self.assertRaisesRegex(Exception, f'cannot work on {limit}'):
          with self.pipeline() as p:
            _ = (
                p | self.read(max_records_per_bundle=100)
                | beam.Map(fail_from, limit))
        READERS.close_all()
        groups = self.client.xinfo_groups('s')
        self.assertGreaterEqual(groups[0]['entries-read'], limit + 1)
        self.assertLessEqual(
            groups[0]['entries-read'] - self.pending(), acknowledged)
        self.client.xgroup_destroy('s', 'g')

  def test_the_server_is_killed_and_started_in_mid_read(self):
    self.add(range(5000))
    self.end()

    def kill_twice():
      for at in (1000, 3000):
        self.wait_until(lambda at=at: len(self.seen) > at)
        self.server.kill()
        time.sleep(0.4)
        self.server.start()

    killer = threading.Thread(target=kill_twice)
    killer.start()
    with self.pipeline() as p:
      numbers = (
          p | self.read(num_splits=2, max_records_per_bundle=200)
          | 'Slow' >> beam.Map(slow))
      assert_that(numbers, equal_to(list(range(5000))))
    killer.join()
    self.wait_until(lambda: not self.pending())

  def test_a_new_pipeline_gets_what_the_last_one_left(self):
    """At least once; what was acknowledged does not come again."""
    self.add(range(600))
    with self.assertRaisesRegex(Exception, 'cannot work'):
      with self.pipeline() as p:
        _ = (
            p | self.read(max_records_per_bundle=100)
            | beam.Map(fail_from, 450))
    READERS.close_all()
    acknowledged = (
        self.client.xinfo_groups('s')[0]['entries-read'] - self.pending())
    time.sleep(0.3)
    self.end()
    self.seen.clear()
    with self.pipeline() as p:
      numbers = p | self.read(claim_idle_seconds=0.2)
      assert_that(numbers, equal_to(list(range(acknowledged, 600))))
    self.wait_until(lambda: not self.pending())


@needs_redis
class FnApiRunnerTest(PipelineTests, ServerTest):
  def pipeline(self):
    return beam.Pipeline(runner=fn_api_runner.FnApiRunner())

  def test_entries_come_while_it_runs(self):
    def write():
      for start in range(0, 500, 50):
        self.wait_until(lambda start=start: len(self.seen) >= start)
        self.add(range(start, start + 50))
      self.end()

    self.client.xgroup_create('s', 'g', '0', mkstream=True)
    writer = threading.Thread(target=write)
    writer.start()
    with self.pipeline() as p:
      numbers = p | self.read()
      assert_that(numbers, equal_to(list(range(500))))
    writer.join()

  def test_counts_what_was_claimed_and_what_was_lost(self):
    self.add(range(10))
    self.client.xgroup_create('s', 'g', '0')
    self.client.xreadgroup('g', 'dead', {'s': '>'}, count=6)
    self.client.xtrim('s', maxlen=7, approximate=False)
    time.sleep(0.1)
    self.end()
    p = self.pipeline()
    numbers = p | self.read(claim_idle_seconds=0.05, on_trimmed='skip')
    assert_that(numbers, equal_to(list(range(3, 10))))
    counters = p.run().metrics().query(
        MetricsFilter().with_namespace('apache_beam.io.redisstreams'))
    self.assertEqual({
        'claimed_entries': 3, 'lost_entries': 3
    }, {
        counter.key.metric.name: counter.committed
        for counter in counters['counters']
    })

  def test_read_takes_the_source_too(self):
    self.add(range(10))
    self.end()
    with self.pipeline() as p:
      numbers = (
          p
          | beam.io.Read(EndingSource(self.server.url, 's', 'g'))
          | beam.Map(number_of))
      assert_that(numbers, equal_to(list(range(10))))

  def test_what_fails_it_is_named(self):
    self.client.set('s', 'no stream')
    with self.assertRaisesRegex(Exception, 'given as a stream is not one'):
      with self.pipeline() as p:
        _ = p | ReadFromRedisStreams(self.server.url, 's', 'g')


@needs_prism
@needs_redis
class PrismTest(PipelineTests, ServerTest):
  def pipeline(self):
    return prism_pipeline()


# Reads bundle by bundle, as a worker whose runner keeps what is committed in a
# file: a line with the records of a bundle, and where to go on. Finalizes after
# that. To be killed at any moment.
WORKER = '''
import json, os, pickle, sys
from apache_beam.testing.unbounded_source import SplitInjectingHarness
split = pickle.load(open(sys.argv[1], 'rb'))
harness = SplitInjectingHarness(split, max_records=40)
with open(sys.argv[2], 'r+b') as journal:
  restriction = harness.initial()
  end = 0
  for line in journal:
    if line.endswith(b'\\n'):
      end += len(line)
      restriction = harness._coder.decode(
          bytes.fromhex(json.loads(line)['restriction']))
  journal.truncate(end)
  journal.seek(end)
  print('ready', flush=True)
  while True:
    result = harness.bundle(restriction).raise_error()
    restriction, = result.residuals
    if result.records:
      journal.write(json.dumps({
          'numbers': [int(entry.fields[b'n']) for entry in result.values],
          'restriction': harness._coder.encode(restriction).hex()
      }).encode() + b'\\n')
      journal.flush()
      os.fsync(journal.fileno())
    result.finalize()
'''


@needs_redis
class KilledWorkerTest(ServerTest):
  def test_the_next_worker_gives_each_entry_once(self):
    """Killed by the operating system at no moment in particular.

    Also between the commit and the acknowledgement, where the mark alone knows
    that the entries were given.
    """
    split, = RedisStreamsSource(
        self.server.url, 's', 'g', batch_size=30).split(1)
    with tempfile.TemporaryDirectory() as folder:
      split_path = os.path.join(folder, 'split')
      journal_path = os.path.join(folder, 'journal')
      with open(split_path, 'wb') as file:
        pickle.dump(split, file)
      open(journal_path, 'wb').close()
      total = 0
      left = []
      for kill in range(5):
        self.add(range(total, total + 5000))
        total += 5000
        worker = subprocess.Popen(
            [sys.executable, '-c', WORKER, split_path, journal_path],
            stdout=subprocess.PIPE)
        self.addCleanup(worker.wait)
        self.addCleanup(worker.kill)
        self.assertEqual(b'ready\n', worker.stdout.readline())
        before = self.committed(journal_path)
        self.wait_until(
            lambda: len(self.committed(journal_path)) > len(before) + 100)
        if kill == 4:
          self.wait_until(
              lambda: len(self.committed(journal_path)) >= total and
              not self.pending())
        worker.kill()
        worker.wait()
        worker.stdout.close()
        left.append(self.pending())
      # They were at work.
      self.assertTrue(any(left[:4]), left)
      self.assertEqual(list(range(total)), self.committed(journal_path))

  def committed(self, path):
    with open(path, 'rb') as journal:
      lines = journal.read().split(b'\n')[:-1]
    return list(
        itertools.chain.from_iterable(
            json.loads(line)['numbers'] for line in lines))


@needs_redis
class ConformanceTest(ServerTest):
  """The source keeps what sources promise, says the kit."""
  # As a busy machine needs it.
  PATIENT = {'patience_seconds': 120.0, 'max_advance_seconds': 15.0}
  names = itertools.count()

  @contextlib.contextmanager
  def make_source(self):
    name = f'kit-{next(self.names)}'
    self.add(range(5), name)
    yield RedisStreamsSource(
        self.server.url, name, 'g', batch_size=2, idle_slack_seconds=0)
    self.client.delete(name)

  def acked(self, source):
    """Those that the group was given and that are not pending."""
    name, = source.streams
    groups = self.client.xinfo_groups(name)
    if not groups:
      return []
    given = self.client.xrange(name, max=groups[0]['last-delivered-id'])
    pending = {
        entry['message_id']
        for entry in self.client.xpending_range(name, 'g', '-', '+', 100)
    }
    return [
        int(fields[b'n']) for entry_id, fields in given
        if entry_id not in pending
    ]

  def append(self, source):
    self.add([99], source.streams[0])
    return 99

  def test_a_stream(self):
    report = check_unbounded_source(
        self.make_source,
        range(5),
        key=number_of,
        acked=self.acked,
        append=self.append,
        schedules=80,
        **self.PATIENT)
    self.assertIn('resume', str(report))

  def test_two_streams_in_one_split(self):
    @contextlib.contextmanager
    def make_source():
      name = f'kit-{next(self.names)}'
      self.add([0, 2, 4], name + 'a')
      self.add([1, 3], name + 'b')
      yield RedisStreamsSource(
          self.server.url, [name + 'a', name + 'b'],
          'g',
          num_splits=1,
          batch_size=2,
          idle_slack_seconds=0)
      self.client.delete(name + 'a', name + 'b')

    check_unbounded_source(
        make_source,
        range(5),
        key=number_of,
        ordered=False,
        schedules=30,
        **self.PATIENT)


if __name__ == '__main__':
  unittest.main()
