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

"""Reads of Kafka on real runners, and by a process that is killed.

They need Java and ``KAFKA_CLASSPATH``, see ``_kafka_testing``; those on Prism
also its binary, which ``PRISM_LOCATION`` names.
"""

# pytype: skip-file

import base64
import collections
import contextlib
import functools
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import uuid
from unittest import mock

import apache_beam as beam
from apache_beam.internal import pickler
from apache_beam.io import _kafka_cluster
from apache_beam.io import _kafka_tending
from apache_beam.io import kafka_native
from apache_beam.io._kafka_testing import BrokerTestCase
from apache_beam.io._kafka_testing import EndingSource
from apache_beam.io._runner_testing import needs_prism
from apache_beam.io._runner_testing import prism_pipeline
from apache_beam.io._unbounded_restriction import RestrictionCoder
from apache_beam.io.kafka_native import CreateTime
from apache_beam.io.kafka_native import KafkaSource
from apache_beam.io.kafka_native import ReadFromKafkaNative
from apache_beam.metrics import MetricsFilter
from apache_beam.testing.unbounded_source import SplitInjectingHarness
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to
from apache_beam.transforms.window import FixedWindows


# Long enough for a busy machine; nothing waits so long when all is well.
_WAIT_SECONDS = 180.0


def setUpModule():
  BrokerTestCase.start_broker()


def tearDownModule():
  BrokerTestCase.stop_broker()


class Note(beam.DoFn):
  """Appends a line for each element to a file, at once."""
  def __init__(self, path):
    self._path = path

  def process(self, element):
    with open(self._path, 'a', encoding='utf-8') as f:
      f.write(f'{element}\n')
    yield element


class FailingSetup(beam.DoFn):
  def setup(self):
    raise RuntimeError('no licence')

  def process(self, element):
    yield element


class FailAt(beam.DoFn):
  def __init__(self, value):
    self._value = value

  def process(self, record):
    if record.value == self._value:
      raise RuntimeError('a poisoned record')
    yield record


def values(count, first=0):
  return [b'%d' % n for n in range(first, first + count)]


class RunnerTests:
  """What holds on every runner; subclasses make the pipeline."""
  def setUp(self):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)

  def read(self, topic, ends, **kwargs):
    """The transform as users make it, of a source that ends."""
    kwargs.setdefault('poll_interval', 0.05)
    with mock.patch.object(
        kafka_native, 'KafkaSource', functools.partial(EndingSource,
                                                       ends=ends)):
      return ReadFromKafkaNative(self.broker.address, topic, **kwargs)

  def filled(self, partitions, each):
    """A topic with so many records in each partition; what they are."""
    topic = self.broker.topic(partitions)
    found = []
    for partition in range(partitions):
      what = values(each, first=partition * each)
      self.broker.produce(topic, what, partition)
      found += what
    return topic, {p: each for p in range(partitions)}, found

  def lines(self, name):
    with contextlib.suppress(FileNotFoundError):
      return (self.folder / name).read_text(encoding='utf-8').splitlines()
    return []

  def until(self, condition, what):
    deadline = time.monotonic() + _WAIT_SECONDS
    while not condition():
      self.assertLess(time.monotonic(), deadline, f'waited for {what}')
      time.sleep(0.05)

  @contextlib.contextmanager
  def running(self, pipeline):
    """Runs a pipeline in the background; at the end waits for its end."""
    failures = []
    wait = self.start(pipeline)

    def run():
      try:
        wait()
      except BaseException as exc:  # pylint: disable=broad-except
        failures.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    thread.join(_WAIT_SECONDS)
    self.assertFalse(thread.is_alive(), 'The pipeline does not end.')
    if failures:
      raise failures[0]

  def test_every_record_once_with_any_splits_and_partitions(self):
    """Case B65."""
    for num_splits in (1, 3):
      for partitions in (1, 4):
        with self.subTest(num_splits=num_splits, partitions=partitions):
          topic, ends, expected = self.filled(partitions, 300)
          with self.pipeline() as p:
            found = (
                p
                | self.read(
                    topic,
                    ends,
                    num_splits=num_splits,
                    max_records_per_bundle=70)
                | beam.Map(lambda record: record.value))
            assert_that(found, equal_to(expected))

  def test_records_cross_a_shuffle_as_they_are(self):
    topic, ends, expected = self.filled(2, 20)
    with self.pipeline() as p:
      found = (
          p
          | self.read(topic, ends)
          | beam.Reshuffle()
          | beam.Map(lambda r: (r.topic, r.partition, r.offset, r.value)))
      assert_that(
          found,
          equal_to([(topic, n // 20, n % 20, value)
                    for n, value in enumerate(expected)]))

  def test_offsets_are_committed_after_the_records(self):
    topic, ends, _ = self.filled(2, 100)
    group = uuid.uuid4().hex
    with self.pipeline() as p:
      _ = p | self.read(topic, ends, group_id=group, max_records_per_bundle=30)
    self.assert_committed({0: 100, 1: 100}, group, topic)

  def test_nothing_is_committed_if_the_pipeline_cannot_work(self):
    """Case B67: a DoFn downstream whose setup raises."""
    topic, ends, _ = self.filled(1, 10)
    group = uuid.uuid4().hex
    with self.assertRaisesRegex(Exception, 'no licence'):
      with self.pipeline() as p:
        _ = (
            p
            | self.read(topic, ends, group_id=group)
            | beam.ParDo(FailingSetup()))
    self.assertEqual({}, self.broker.committed(group, topic))

  def test_no_offset_is_committed_beyond_a_bundle_that_failed(self):
    topic, ends, _ = self.filled(1, 100)
    group = uuid.uuid4().hex
    with self.assertRaisesRegex(Exception, 'a poisoned record'):
      with self.pipeline() as p:
        _ = (
            p
            | self.read(topic, ends, group_id=group, max_records_per_bundle=20)
            | beam.ParDo(FailAt(b'75')))
    self.assertLessEqual(
        self.broker.committed(group, topic).get(0, 0), 60)

  def test_goes_on_after_the_broker_was_killed(self):
    self.addCleanup(self.broker.start)
    # A broker that is just starting may not know its topics yet.
    patience = mock.patch.object(
        _kafka_cluster, 'PATIENCE_SECONDS', _WAIT_SECONDS)
    patience.start()
    self.addCleanup(patience.stop)
    topic, ends, expected = self.filled(2, 100)
    ends = {partition: 200 for partition in ends}
    p = self.pipeline()
    _ = (
        p
        | self.read(topic, ends, max_records_per_bundle=30)
        | beam.Map(lambda record: record.value.decode())
        | beam.ParDo(Note(str(self.folder / 'seen'))))
    with self.running(p):
      self.until(lambda: len(self.lines('seen')) == 200, 'the first 200')
      self.broker.kill()
      time.sleep(1)
      self.broker.start()
      for partition in (0, 1):
        more = values(100, first=1000 + partition * 100)
        self.broker.produce(topic, more, partition)
        expected += more
    self.assertEqual(
        sorted(value.decode() for value in expected),
        sorted(self.lines('seen')))

  def test_a_partition_that_is_added_is_read(self):
    topic, ends, expected = self.filled(1, 50)
    stop = str(self.folder / 'stop')
    p = self.pipeline()
    _ = (
        p
        | self.read(topic, stop)
        | beam.Map(lambda record: record.value.decode())
        | beam.ParDo(Note(str(self.folder / 'seen'))))
    with mock.patch.object(_kafka_tending, 'DISCOVERY_SECONDS', 0.3):
      with self.running(p):
        self.until(lambda: len(self.lines('seen')) == 50, 'the first 50')
        self.broker.add_partitions(topic, 2)
        more = values(50, first=1000)
        self.broker.produce(topic, more, 1)
        self.until(lambda: len(self.lines('seen')) == 100, 'the others')
        pathlib.Path(stop).touch()
    self.assertEqual(
        sorted(value.decode() for value in expected + more),
        sorted(self.lines('seen')))


class FnApiRunnerTest(RunnerTests, BrokerTestCase):
  def pipeline(self):
    return beam.Pipeline(runner='FnApiRunner')

  def start(self, pipeline):
    """To run is to wait, here."""
    return pipeline.run

  def test_lag_is_told(self):
    """Prism of 2.75 has no gauges."""
    topic, ends, _ = self.filled(1, 10)
    p = self.pipeline()
    _ = p | self.read(topic, ends)
    result = p.run()
    result.wait_until_finish()
    gauges = result.metrics().query(
        MetricsFilter().with_namespace(_kafka_tending.NAMESPACE))['gauges']
    self.assertEqual([f'lag_records_{topic}-0'],
                     [gauge.key.metric.name for gauge in gauges])


@needs_prism
class PrismTest(RunnerTests, BrokerTestCase):
  def pipeline(self):
    return prism_pipeline()

  def start(self, pipeline):
    """In the main thread: the SDK sets a handler for signals."""
    return pipeline.run().wait_until_finish

  def windows(self, topic, stop):
    """Counts of 2-second windows, as they close."""
    p = self.pipeline()
    _ = (
        p
        # So long may pass between a record's time and its being there.
        | self.read(topic, stop, event_time=CreateTime(max_delay_seconds=3))
        | beam.WindowInto(FixedWindows(2))
        | beam.Map(lambda record: ('all', 1))
        | beam.CombinePerKey(sum)
        | beam.Map(lambda kv: kv[1])
        | beam.ParDo(Note(str(self.folder / 'counts'))))
    return p

  def test_windows_close_while_partitions_are_idle(self):
    """Cases B41 and B58: three partitions never have a record.

    FnApiRunner closes windows at the end only, so this is for Prism.
    """
    topic = self.broker.topic(4)
    self.broker.produce(topic, values(7))
    stop = str(self.folder / 'stop')
    with mock.patch.object(_kafka_tending, 'DISCOVERY_SECONDS', 0.3):
      with self.running(self.windows(topic, stop)):
        self.until(
            lambda: sum(map(int, self.lines('counts'))) == 7, 'the windows')
        self.assertFalse(os.path.exists(stop))
        pathlib.Path(stop).touch()

  def test_no_window_closes_over_a_backlog(self):
    """A transaction is open for longer than a window: its records count.

    They are read seconds after they were written.
    """
    topic = self.broker.topic(1)
    stop = str(self.folder / 'stop')
    p = self.windows(topic, stop)
    with mock.patch.object(_kafka_tending, 'DISCOVERY_SECONDS', 0.3):
      with self.broker.producer(transactional_id=uuid.uuid4().hex) as producer:
        producer.init_transactions(120)
        with self.running(p):
          producer.begin_transaction()
          for value in values(5):
            producer.produce(topic, value, partition=0)
          producer.flush(120)
          # Not an event but the passing of time is what must not matter.
          time.sleep(6)
          self.assertEqual([], self.lines('counts'))
          producer.commit_transaction()
          self.until(
              lambda: sum(map(int, self.lines('counts'))) == 5, 'the windows')
          pathlib.Path(stop).touch()


class KilledWorkerTest(BrokerTestCase):
  _WORKER = textwrap.dedent(
      '''
      import base64, sys, time
      from apache_beam.internal import pickler
      from apache_beam.io._unbounded_restriction import RestrictionCoder
      from apache_beam.testing.unbounded_source import SplitInjectingHarness

      source, journal = sys.argv[1:]
      source = pickler.loads(base64.b64decode(source))
      harness = SplitInjectingHarness(source, max_records=50)
      todo = harness.initial()
      with open(journal, 'ab', buffering=0) as f:
        while True:
          result = harness.bundle(todo).raise_error()
          todo, = result.residuals
          # Committed: what was output, and where to go on, in one write.
          rest = base64.b64encode(RestrictionCoder().encode(todo))
          f.write(b' '.join([rest, *(v.value for v in result.values)]) + b'\\n')
          result.finalize()
          # To be killed in mid-read, however late that comes.
          while f.tell() > 150_000:
            time.sleep(1)
      ''')

  def test_resumes_where_a_killed_process_had_committed(self):
    """Case B68: SIGKILL in mid-read; a new process goes on by the mark."""
    topic = self.broker.topic(2)
    for partition in (0, 1):
      self.broker.produce(
          topic, values(20_000, first=20_000 * partition), partition)
    group = uuid.uuid4().hex
    source = EndingSource(
        self.broker.address, topic, group_id=group, ends={
            0: 20_000, 1: 20_000
        }).split(1)[0]
    plain = KafkaSource(
        self.broker.address, topic, group_id=group)._with_part(source._part)
    with tempfile.TemporaryDirectory() as folder:
      journal = os.path.join(folder, 'journal')
      pathlib.Path(journal).touch()
      worker = subprocess.Popen([
          sys.executable, '-c', self._WORKER,
          base64.b64encode(pickler.dumps(plain)).decode(), journal
      ])
      try:
        deadline = time.monotonic() + _WAIT_SECONDS
        while os.path.getsize(journal) < 20_000:
          self.assertLess(time.monotonic(), deadline)
          self.assertIsNone(worker.poll())
          time.sleep(0.005)
      finally:
        worker.kill()
        worker.wait()
      whole, _, _ = pathlib.Path(journal).read_bytes().rpartition(b'\n')
    bundles = [line.split(b' ') for line in whole.split(b'\n')]
    first = [value for bundle in bundles for value in bundle[1:]]
    self.assertLess(len(first), 40_000, 'It was done before it was killed.')
    harness = SplitInjectingHarness(source)
    rest = harness.run(
        RestrictionCoder().decode(base64.b64decode(bundles[-1][0])))
    counts = collections.Counter(first + [record.value for record in rest])
    self.assertEqual(collections.Counter(values(40_000)), counts)


if __name__ == '__main__':
  unittest.main()
