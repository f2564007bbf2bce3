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

"""Tests for the Kafka source and its reader, against a real broker.

They need Java and ``KAFKA_CLASSPATH``; see ``_kafka_testing``.
"""

# pytype: skip-file

import contextlib
import logging
import threading
import time
import unittest
import uuid
from unittest import mock

from apache_beam.internal import pickler
from apache_beam.io import _kafka_cluster
from apache_beam.io import _kafka_tending
from apache_beam.io import kafka_native
from apache_beam.io._kafka_testing import PASSWORD
from apache_beam.io._kafka_testing import USER
from apache_beam.io._kafka_testing import BrokerTestCase
from apache_beam.io.kafka_native import CreateTime
from apache_beam.io.kafka_native import KafkaHeader
from apache_beam.io.kafka_native import KafkaSource
from apache_beam.io.kafka_native import LogAppendTime
from apache_beam.io.kafka_native import ReadFromKafkaNative
from apache_beam.io.kafka_native import RecordTime
from apache_beam.metrics.execution import MetricsContainer
from apache_beam.runners.worker import statesampler
from apache_beam.testing.unbounded_source import check_unbounded_source
from apache_beam.transforms.display import DisplayData
from apache_beam.utils.counters import CounterFactory
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

# Long enough for a busy machine; nothing waits so long when all is well.
_WAIT_SECONDS = 180.0


def setUpModule():
  BrokerTestCase.start_broker()


def tearDownModule():
  BrokerTestCase.stop_broker()


def until(condition, what):
  """Waits for a condition, and returns what made it true."""
  deadline = time.monotonic() + _WAIT_SECONDS
  while time.monotonic() < deadline:
    found = condition()
    if found:
      return found
    time.sleep(0.01)
  raise AssertionError(f'{what}: not within {_WAIT_SECONDS} s')


class Driver:
  """Drives a reader as the pipeline does, and keeps what it gave."""
  def __init__(self, reader):
    self.reader = reader
    self.records = []
    self.times = []
    self._started = False
    self.slowest = 0.0

  def step(self):
    begin = time.monotonic()
    if self._started:
      more = self.reader.advance()
    else:
      self._started = True
      more = self.reader.start()
    self.slowest = max(self.slowest, time.monotonic() - begin)
    if more:
      self.records.append(self.reader.get_current())
      self.times.append(self.reader.get_current_timestamp())
    return more

  def read(self, count):
    """Reads until there are so many records in all; never one more."""
    def enough():
      while len(self.records) < count and self.step():
        pass
      return len(self.records) >= count

    until(enough, f'{count} records')
    return self

  def idle(self, condition, what='a condition'):
    """Polls until something holds; records may come meanwhile."""
    def poll():
      while self.step():
        pass
      self.reader.get_watermark()
      return condition()

    return until(poll, what)

  def caught_up(self):
    return self.idle(
        lambda: self.reader.get_split_backlog_bytes() == 0, 'caught up')

  @property
  def values(self):
    return [record.value for record in self.records]


def values(count, first=0):
  return [b'%d' % n for n in range(first, first + count)]


class KafkaTestCase(BrokerTestCase):
  def source(self, *topics, **kwargs):
    kwargs.setdefault('bootstrap_servers', self.broker.address)
    return KafkaSource(topics=list(topics), **kwargs)

  def drive(self, source, mark=None):
    driver = Driver(source.create_reader(None, mark))
    self.addCleanup(driver.reader.close)
    return driver

  def patch(self, module, name, value):
    patcher = mock.patch.object(module, name, value)
    patcher.start()
    self.addCleanup(patcher.stop)

  @contextlib.contextmanager
  def counters(self):
    """Gives what is counted, by name, once the block is done."""
    container = MetricsContainer('test')
    sampler = statesampler.StateSampler('', CounterFactory())
    statesampler.set_current_tracker(sampler)
    found = {}
    try:
      with sampler.scoped_state('test', 'test', metrics_container=container):
        yield found
    finally:
      statesampler.set_current_tracker(None)
    found.update({
        key.metric.name: value
        for key, value in container.get_cumulative().counters.items()
    })


class RecordsTest(KafkaTestCase):
  def test_all_of_a_record_arrives(self):
    topic = self.broker.topic()
    with self.broker.producer() as producer:
      producer.produce(
          topic, b'v', b'k', headers=[('a', b'1'), ('a', b''), ('b', None)],
          timestamp=1500)
      producer.produce(topic, None, 'key')
      producer.produce(topic, b'', None)
    records = self.drive(self.source(topic)).read(3).records
    self.assertEqual((topic, 0, 0, Timestamp(1.5), b'k', b'v'), records[0][:-1])
    self.assertEqual([
        KafkaHeader('a', b'1'), KafkaHeader('a', b''), KafkaHeader('b', None)
    ],
                     records[0].headers)
    self.assertEqual((b'key', None, []), records[1][4:])
    self.assertEqual((None, b'', []), records[2][4:])
    self.assertEqual([0, 1, 2], [record.offset for record in records])

  def test_every_record_is_in_one_split(self):
    one, two = self.broker.topic(4), self.broker.topic(3)
    for topic, partitions in ((one, 4), (two, 3)):
      for partition in range(partitions):
        self.broker.produce(
            topic, [f'{topic}-{partition}-{n}' for n in range(5)], partition)
    everything = sorted(
        f'{topic}-{partition}-{n}'.encode()
        for topic, partitions in ((one, 4), (two, 3))
        for partition in range(partitions) for n in range(5))
    for desired, expected in ((1, 1), (2, 2), (5, 5), (100, 7)):
      with self.subTest(desired):
        splits = self.source(one, two).split(desired)
        self.assertEqual(expected, len(splits))
        found = []
        for split in splits:
          driver = self.drive(pickler.loads(pickler.dumps(split)))
          driver.caught_up()
          self.assertTrue(driver.values)
          found += driver.values
          driver.reader.close()
        self.assertEqual(everything, sorted(found))

  def test_the_number_of_splits_can_be_chosen(self):
    topic = self.broker.topic(2)
    for num_splits, desired, expected in ((1, 20, 1), (5, 20, 5), (50, 20, 20)):
      splits = self.source(topic, num_splits=num_splits).split(desired)
      self.assertEqual(expected, len(splits))
      self.assertEqual(
          2, sum(len(split.create_reader(None, None)._partitions)
                 for split in splits))


class PositionTest(KafkaTestCase):
  def test_resumes_strictly_after_every_position(self):
    """Case B74: read k, mark, encode, decode: a new reader gives the rest."""
    topic = self.broker.topic(2)
    for partition in (0, 1):
      self.broker.produce(
          topic, values(4, first=10 * partition), partition)
    source = self.source(topic).split(1)[0]
    coder = source.get_checkpoint_mark_coder()
    for k in range(9):
      with self.subTest(k):
        first = self.drive(source).read(k)
        if not k:
          first.step()
          del first.records[:]
          first.reader.close()
          mark = None
        else:
          mark = coder.decode(coder.encode(first.reader.get_checkpoint_mark()))
        rest = self.drive(source, mark).read(8 - k)
        rest.caught_up()
        self.assertEqual(
            sorted(values(4) + values(4, first=10)),
            sorted(first.values + rest.values))
        first.reader.close()
        rest.reader.close()

  def test_a_mark_does_not_move_with_its_reader(self):
    """Cases B48 and B49."""
    topic = self.broker.topic()
    self.broker.produce(topic, values(6))
    driver = self.drive(self.source(topic)).read(3)
    coder = driver.reader.get_checkpoint_mark
    mark = coder()
    self.assertIsNot(mark, coder())
    driver.read(6)
    self.assertEqual({(topic, 0): 3}, mark.positions)
    self.assertEqual({(topic, 0): 6}, coder().positions)

  def test_a_position_is_the_next_offset_to_read(self):
    """Case B59: the backlog is 1 with one record left, and 0 with none."""
    topic = self.broker.topic()
    self.broker.produce(topic, [b'x' * 100] * 5)
    driver = self.drive(self.source(topic)).read(4)
    until(
        lambda: driver.reader.get_watermark() and driver.reader.
        get_split_backlog_bytes(),
        'an answer')
    self.assertEqual(100, driver.reader.get_split_backlog_bytes())
    driver.read(5)
    driver.reader.get_checkpoint_mark()
    self.assertEqual(0, driver.reader.get_split_backlog_bytes())

  def test_the_mark_of_another_split_is_refused(self):
    topic = self.broker.topic(2)
    self.broker.produce(topic, values(1))
    one, two = self.source(topic).split(2)
    mark = self.drive(one).read(1).reader.get_checkpoint_mark()
    with self.assertRaisesRegex(
        kafka_native.KafkaMarkError, 'split 2 of 2.*mark of split 1 of 2'):
      two.create_reader(None, mark)
    other = self.source(self.broker.topic(2)).split(2)[0]
    with self.assertRaisesRegex(kafka_native.KafkaMarkError, topic):
      other.create_reader(None, mark)

  def test_offsets_that_compaction_left_out_are_no_backlog(self):
    """Case B71."""
    topic = self.broker.topic(
        cleanup_policy='compact',
        segment_ms=100,
        min_cleanable_dirty_ratio=0.01,
        min_compaction_lag_ms=0)
    for batch in range(3):
      self.broker.produce(topic, values(20, first=20 * batch), key=b'same')
      time.sleep(0.15)
    self.broker.produce(topic, [b'last'], key=b'last')

    def compacted():
      driver = self.drive(self.source(topic)).read(1)
      driver.caught_up()
      driver.reader.close()
      return len(driver.records) < 61 and driver

    driver = until(compacted, 'compaction')
    self.assertEqual(b'last', driver.values[-1])

  def test_begins_where_it_is_told(self):
    """Case B68."""
    topic = self.broker.topic(2)
    for n in range(4):
      self.broker.produce(topic, values(1, first=n), timestamp=1000 * (n + 1))
    self.broker.produce(topic, [b'a'], 1, timestamp=1000)
    for start, expected in (
        ('earliest', [b'0', b'1', b'2', b'3', b'a']),
        ('latest', []),
        (Timestamp(3), [b'2', b'3']),
        (Timestamp(2.5), [b'2', b'3']),
        (Timestamp(9), [])):
      with self.subTest(start):
        source = self.source(topic, start=start).split(1)[0]
        driver = self.drive(source)
        driver.caught_up()
        self.assertEqual(expected, sorted(driver.values))

  def test_latest_is_decided_once(self):
    """What comes between the split and the first mark is not lost."""
    topic = self.broker.topic()
    self.broker.produce(topic, values(3))
    split = self.source(topic, start='latest').split(1)[0]
    self.broker.produce(topic, values(3, first=3))
    split = pickler.loads(pickler.dumps(split))
    self.assertEqual(values(3, first=3), self.drive(split).read(3).values)

  def test_memory_that_waits_is_bounded(self):
    """Twice the bound is produced; the client fetches no more than it."""
    topic = self.broker.topic()
    value = bytes(10_000)
    self.broker.produce(topic, [value] * 2000)
    driver = self.drive(
        self.source(
            topic, consumer_config={
                'queued.max.messages.kbytes': 1024,
                'fetch.message.max.bytes': 200_000
            })).read(1)
    time.sleep(0.5)
    # All that the client has now, it gives without a further fetch.
    waiting = driver.reader._consumer.consume(2000, timeout=0)
    self.assertLess(len(waiting), 1000)


class TransactionsTest(KafkaTestCase):
  def setUp(self):
    self.topic = self.broker.topic()
    stack = contextlib.ExitStack()
    self.addCleanup(stack.close)
    self.producer = stack.enter_context(
        self.broker.producer(transactional_id=uuid.uuid4().hex))
    self.producer.init_transactions(120)

  def write(self, what):
    self.producer.begin_transaction()
    for value in what:
      self.producer.produce(self.topic, value, partition=0)
    self.producer.flush(120)

  def test_aborted_records_are_left_out_and_the_mark_moves_over_them(self):
    self.write(values(3))
    self.producer.commit_transaction()
    self.write([b'aborted'] * 4)
    self.producer.abort_transaction()
    driver = self.drive(self.source(self.topic)).read(3)
    driver.caught_up()
    # Three records and a marker, four records and a marker.
    driver.idle(
        lambda: driver.reader.get_checkpoint_mark().offsets == (9, ),
        'offset 9')
    driver.idle(
        lambda: driver.reader.get_watermark() > Timestamp(1), 'the clock')
    self.assertEqual(values(3), driver.values)
    self.write(values(2, first=3))
    self.producer.commit_transaction()
    mark = driver.reader.get_checkpoint_mark()
    self.assertEqual(
        values(2, first=3), self.drive(self.source(self.topic),
                                       mark).read(2).values)

  def test_with_read_uncommitted_all_are_read(self):
    self.write([b'aborted'] * 2)
    self.producer.abort_transaction()
    driver = self.drive(
        self.source(self.topic, isolation_level='read_uncommitted')).read(2)
    driver.caught_up()
    self.assertEqual([b'aborted'] * 2, driver.values)

  def test_an_open_transaction_is_no_backlog_but_holds_the_watermark(self):
    """Its records have been written, with the times that they have."""
    driver = self.drive(
        self.source(self.topic, event_time=CreateTime(0)))
    driver.caught_up()
    self.write(values(1))
    written = Timestamp(time.time())
    # What was asked before the record was written may still be heard.
    asked = time.monotonic()
    driver.idle(lambda: time.monotonic() > asked + 2, 'two seconds')
    self.assertEqual(0, driver.reader.get_split_backlog_bytes())
    self.assertLess(driver.reader.get_watermark(), written)
    self.producer.commit_transaction()
    driver.read(1)
    driver.idle(
        lambda: driver.reader.get_watermark() > written + 2, 'the clock')


class WatermarkTest(KafkaTestCase):
  def setUp(self):
    self.patch(_kafka_tending, 'DISCOVERY_SECONDS', 0.2)
    self.patch(_kafka_tending, 'ENDS_SECONDS', 0.1)

  def test_each_policy_gives_its_times(self):
    created = self.broker.topic()
    appended = self.broker.topic(message_timestamp_type='LogAppendTime')
    for topic in created, appended:
      self.broker.produce(topic, [b'77'], timestamp=5000)
    now = Timestamp(time.time())

    def time_of(topic, policy):
      return self.drive(self.source(topic,
                                    event_time=policy)).read(1).times[0]

    self.assertEqual(Timestamp(5), time_of(created, None))
    self.assertEqual(Timestamp(5), time_of(created, CreateTime(3)))
    self.assertGreater(time_of(appended, LogAppendTime()), now - 10)
    self.assertEqual(
        Timestamp(77),
        time_of(created, RecordTime(lambda r: Timestamp(int(r.value)))))

  def test_a_record_without_a_time_fails_the_read_by_name(self):
    topic = self.broker.topic()
    self.broker.produce(topic, values(2))
    with self.assertRaisesRegex(
        kafka_native.KafkaTimestampError, f'{topic}-0 at offset 0.*log-append'):
      self.drive(self.source(topic, event_time=LogAppendTime())).read(1)

  def test_records_before_one_without_a_time_are_delivered(self):
    topic = self.broker.topic()
    self.broker.produce(topic, [b'1', b'2', b'x', b'4'])
    driver = self.drive(
        self.source(
            topic, event_time=RecordTime(lambda r: Timestamp(int(r.value)))))
    with self.assertRaisesRegex(
        kafka_native.KafkaTimestampError, f'{topic}-0 at offset 2.*ValueErr'):
      driver.read(4)
    self.assertEqual([b'1', b'2'], driver.values)
    self.assertEqual((2, ), driver.reader.get_checkpoint_mark().offsets)

  def test_is_that_of_the_slowest_partition(self):
    topic = self.broker.topic(2)
    self.broker.produce(topic, [b'a'], 0, timestamp=5_000_000)
    self.broker.produce(topic, [b'b'] * 2, 1, timestamp=3_000_000)
    driver = self.drive(self.source(topic, event_time=CreateTime(10)))
    # As long as the cluster does not answer.
    with mock.patch.object(
        _kafka_tending.Tending, '_hear_ends', lambda tending: None):
      driver.read(3)
      driver.idle(
          lambda: driver.reader.get_watermark() > MIN_TIMESTAMP, 'a watermark')
      self.assertEqual(Timestamp(2990), driver.reader.get_watermark())

  def test_only_delivered_records_count(self):
    topic = self.broker.topic()
    for n in (1, 2, 3):
      self.broker.produce(topic, [b'a'], timestamp=1000 * n)
    driver = self.drive(self.source(topic, event_time=CreateTime(0)))
    driver.read(2)
    self.assertEqual(3, len(driver.reader._records), 'The third was fetched.')
    until(
        lambda: driver.reader.get_watermark() > MIN_TIMESTAMP, 'a watermark')
    self.assertEqual(Timestamp(2), driver.reader.get_watermark())

  def test_an_idle_partition_follows_the_clock_if_caught_up(self):
    """Cases B57 and B58: never delivered anything, and nothing is there."""
    topic = self.broker.topic(2)
    driver = self.drive(self.source(topic, event_time=CreateTime(1)))
    begun = Timestamp(time.time())
    driver.idle(
        lambda: driver.reader.get_watermark() >= begun - 0.5, 'the clock')
    watermark = driver.reader.get_watermark()
    self.assertLessEqual(watermark, Timestamp(time.time()) - 1)

  def test_a_backlog_holds_the_watermark_of_an_idle_reader(self):
    """Records are there, and the reader is not asked for them."""
    topic = self.broker.topic()
    driver = self.drive(self.source(topic, event_time=CreateTime(0)))
    self.assertFalse(driver.step())
    written = Timestamp(time.time())
    self.broker.produce(topic, values(1))
    until(
        lambda: driver.reader.get_watermark() and
        driver.reader._partitions[topic, 0].lag, 'a backlog')
    # Nothing that was asked for before the record was there is heard any more.
    asked = time.monotonic()
    until(
        lambda: driver.reader.get_watermark() and time.monotonic() > asked + 1,
        'a second')
    self.assertLess(driver.reader.get_watermark(), written)

  def test_a_time_in_the_future_does_not_make_others_late(self):
    """It counts as now: with a backlog, the clock does not go on from there."""
    topic = self.broker.topic()
    future = int(time.time() * 1000) + 3_600_000
    self.broker.produce(topic, [b'a', b'b'], timestamp=future)
    driver = self.drive(self.source(topic, event_time=CreateTime(0))).read(1)
    driver.reader.get_checkpoint_mark()
    delivered = Timestamp(time.time())
    begin = time.monotonic()
    until(
        lambda: driver.reader.get_watermark() and time.monotonic() > begin + 2
        and driver.reader._partitions[topic, 0].lag is not None,
        'two seconds, and an answer')
    self.assertEqual(1, driver.reader._partitions[topic, 0].lag)
    self.assertGreater(driver.reader.get_watermark(), MIN_TIMESTAMP)
    self.assertLessEqual(driver.reader.get_watermark(), delivered)

  def test_an_answer_counts_as_of_when_it_was_asked_for(self):
    """What was written while it was under way may be missing from it."""
    self.patch(_kafka_tending, 'ENDS_SECONDS', 1000.0)
    self.patch(_kafka_tending, 'DISCOVERY_SECONDS', 1000.0)
    topic = self.broker.topic()
    driver = self.drive(self.source(topic, event_time=CreateTime(1)))
    now = [1000.0]
    driver.reader._clock = lambda: now[0]
    driver.step()
    now[0] = 5000.0
    until(
        lambda: driver.reader.get_watermark() > MIN_TIMESTAMP, 'a watermark')
    self.assertEqual(1000.0, driver.reader._partitions[topic, 0].asked_at)
    self.assertEqual(1000.0, driver.reader._tending.complete_at)
    self.assertEqual(Timestamp(999), driver.reader.get_watermark())

  def test_is_not_beyond_the_last_look_for_new_partitions(self):
    """One that was made since then may hold records of that time."""
    self.patch(_kafka_tending, 'DISCOVERY_SECONDS', 1000.0)
    topic = self.broker.topic()
    driver = self.drive(self.source(topic, event_time=CreateTime(0)))
    driver.idle(
        lambda: driver.reader.get_watermark() > MIN_TIMESTAMP, 'a watermark')
    looked = driver.reader.get_watermark()
    self.broker.produce(topic, [b'a'])
    driver.read(1)
    driver.caught_up()
    self.assertEqual(looked, driver.reader.get_watermark())


class CommitTest(KafkaTestCase):
  def test_offsets_are_committed_when_marks_are_finalized(self):
    topic = self.broker.topic(2)
    for partition in (0, 1):
      self.broker.produce(topic, values(3), partition)
    group = uuid.uuid4().hex
    source = self.source(topic, group_id=group)
    driver = self.drive(source).read(2)
    early = driver.reader.get_checkpoint_mark()
    driver.read(6)
    late = driver.reader.get_checkpoint_mark()
    driver.caught_up()
    self.assertEqual({}, self.broker.committed(group, topic))
    late.finalize_checkpoint()
    driver.idle(
        lambda: self.broker.committed(group, topic) == {
            0: 3, 1: 3
        }, 'a commit')
    early.finalize_checkpoint()
    late.finalize_checkpoint()
    driver.idle(lambda: True)
    driver.reader.close()
    self.assertEqual({0: 3, 1: 3}, self.broker.committed(group, topic))
    late.finalize_checkpoint()

    # A new job begins there, and at the earliest where nothing is committed.
    self.broker.produce(topic, values(1, first=3))
    again = self.drive(self.source(topic, group_id=group, start='committed'))
    self.assertEqual([b'3'], again.read(1).values)
    again.caught_up()
    self.assertEqual([b'3'], again.values)
    fresh = self.source(topic, group_id=uuid.uuid4().hex, start='committed')
    self.assertEqual(7, len(self.drive(fresh).read(7).values))

  def test_a_commit_that_was_sent_is_not_cut_off_by_the_close(self):
    topic = self.broker.topic()
    self.broker.produce(topic, values(3))
    group = uuid.uuid4().hex
    driver = self.drive(self.source(topic, group_id=group)).read(3)
    driver.reader.get_checkpoint_mark().finalize_checkpoint()
    driver.reader.close()
    self.assertEqual({0: 3}, self.broker.committed(group, topic))

  def test_a_group_that_others_subscribe_with_is_left_alone(self):
    topic = self.broker.topic()
    self.broker.produce(topic, values(3))
    group = uuid.uuid4().hex
    import confluent_kafka
    other = confluent_kafka.Consumer({
        'bootstrap.servers': self.broker.address, 'group.id': group
    })
    self.addCleanup(other.close)
    other.subscribe([topic])
    until(lambda: other.poll(0.1) or other.assignment(), 'an assignment')
    driver = self.drive(self.source(topic, group_id=group)).read(3)
    with self.counters() as counted:
      with self.assertLogs('apache_beam.io._kafka_commit', 'WARNING') as logs:
        driver.reader.get_checkpoint_mark().finalize_checkpoint()
        driver.idle(
            lambda: driver.reader._committer._failures, 'a failed commit')
        time.sleep(0.6)
        driver.idle(lambda: not driver.reader._committer._failures)
    self.assertIn('a group of its own', logs.output[0])
    self.assertEqual(1, counted['failed_commits'])


class ExpiredTest(KafkaTestCase):
  """Case B56."""
  def setUp(self):
    self.topic = self.broker.topic()
    self.broker.produce(self.topic, values(10))
    driver = self.drive(self.source(self.topic)).read(2)
    self.mark = driver.reader.get_checkpoint_mark()
    driver.reader.close()
    self.broker.delete_records(self.topic, 0, 7)

  def resume(self, policy):
    return self.drive(
        self.source(self.topic, on_expired_offset=policy), self.mark)

  def test_fail_tells_what_is_gone(self):
    driver = self.resume('fail')
    with self.assertRaisesRegex(
        kafka_native.KafkaOffsetExpiredError,
        f'{self.topic}-0: offset 2 is the next to read.*left is 7'):
      driver.read(1)
    self.assertEqual([], driver.records)

  def test_earliest_goes_on_with_what_is_left(self):
    with self.counters() as counted:
      driver = self.resume('earliest').read(3)
      driver.caught_up()
    self.assertEqual(values(3, first=7), driver.values)
    self.assertEqual(5, counted['expired_offsets'])

  def test_latest_goes_on_with_what_comes(self):
    with self.counters() as counted:
      driver = self.resume('latest')
      driver.caught_up()
      self.broker.produce(self.topic, [b'new'])
      driver.read(1)
    self.assertEqual([b'new'], driver.values)
    self.assertEqual(8, counted['expired_offsets'])

  def test_records_fetched_before_they_expired_are_delivered(self):
    driver = self.drive(
        self.source(
            self.topic,
            on_expired_offset='earliest',
            start=Timestamp(0)))
    self.broker.produce(self.topic, values(3, first=10))
    driver.read(2)
    self.broker.delete_records(self.topic, 0, 12)
    driver.caught_up()
    self.assertEqual(values(6, first=7), driver.values)

  def test_a_position_beyond_the_end_is_an_error(self):
    topic = self.broker.topic()
    source = self.source(topic, on_expired_offset='latest').split(1)[0]
    source._part.starts[(topic, 0)] = 5
    with self.assertRaisesRegex(
        kafka_native.KafkaOffsetBeyondEndError,
        f'{topic}-0 was read up to offset 5, but ends at 0'):
      self.drive(source).read(1)


class GrowthTest(KafkaTestCase):
  def setUp(self):
    self.patch(_kafka_tending, 'DISCOVERY_SECONDS', 0.2)
    self.patch(_kafka_tending, 'ENDS_SECONDS', 0.1)

  def test_new_partitions_are_read_from_their_begin_by_their_split(self):
    topic = self.broker.topic(2)
    self.broker.produce(topic, values(50), 0)
    splits = self.source(topic).split(2)
    drivers = [self.drive(split) for split in splits]
    # In the middle of what was fetched.
    drivers[0].read(20)
    drivers[1].caught_up()
    self.broker.add_partitions(topic, 5)
    for partition in (2, 3, 4):
      until(
          lambda p=partition: self.broker.admin.list_topics(topic).topics[
              topic].partitions.get(p),
          'the partition')
      self.broker.produce(topic, [b'new-%d' % partition] * 3, partition)
    with self.counters() as counted:
      drivers[0].idle(lambda: len(drivers[0].records) >= 56, '56 records')
      drivers[1].idle(lambda: len(drivers[1].records) >= 3, '3 records')
    self.assertEqual(
        sorted(values(50) + [b'new-2', b'new-4'] * 3),
        sorted(drivers[0].values))
    self.assertEqual([b'new-3'] * 3, drivers[1].values)
    self.assertEqual(3, counted['partitions_added'])
    mark = drivers[0].reader.get_checkpoint_mark()
    self.assertEqual({(topic, 0): 50, (topic, 2): 3, (topic, 4): 3},
                     mark.positions)

    # Found again, or in the mark: each once.
    self.broker.produce(topic, [b'more'], 4)
    again = self.drive(splits[0], mark).read(1)
    again.caught_up()
    self.assertEqual([b'more'], again.values)

  def test_a_split_that_had_no_partition_gets_one(self):
    topic = self.broker.topic(1)
    split = self.source(topic, num_splits=2).split(2)[1]
    driver = self.drive(split)
    self.assertFalse(driver.step())
    self.broker.add_partitions(topic, 2)
    self.broker.produce(topic, values(3), 1)
    driver.read(3)
    driver.idle(
        lambda: driver.reader._partitions[topic, 1].lag == 0, 'its end')

  def test_a_partition_found_after_a_restart_is_read_whole(self):
    topic = self.broker.topic(1)
    self.broker.produce(topic, values(3))
    split = self.source(topic).split(1)[0]
    driver = self.drive(split).read(3)
    mark = driver.reader.get_checkpoint_mark()
    driver.reader.close()
    self.broker.add_partitions(topic, 2)
    self.broker.produce(topic, [b'new'] * 2, 1)
    self.assertEqual([b'new'] * 2, self.drive(split, mark).read(2).values)

  def test_adding_one_in_mid_read_neither_loses_nor_repeats(self):
    topic = self.broker.topic(1)
    self.broker.produce(topic, values(30_000))
    driver = self.drive(self.source(topic)).read(700)
    self.broker.add_partitions(topic, 2)
    driver.idle(
        lambda: len(driver.reader._partitions) == 2 and
        driver.reader.get_split_backlog_bytes() == 0,
        'both partitions')
    self.assertEqual(values(30_000), driver.values)


class TroubleTest(KafkaTestCase):
  def setUp(self):
    self.patch(_kafka_tending, 'DISCOVERY_SECONDS', 0.2)
    self.patch(_kafka_cluster, 'PATIENCE_SECONDS', 0.5)

  def test_a_missing_topic_is_told(self):
    with self.assertRaisesRegex(
        kafka_native.KafkaTopicMissingError, 'no-such.*never does'):
      self.source(self.broker.topic(), 'no-such').split(3)

  def test_a_topic_that_is_deleted_is_told(self):
    topic = self.broker.topic()
    self.broker.produce(topic, values(3))
    driver = self.drive(self.source(topic)).read(3)
    self.broker.delete_topic(topic)
    # Of the topic, or of its partition: whichever is noticed first.
    with self.assertRaisesRegex(kafka_native.KafkaTopicMissingError, topic):
      driver.idle(lambda: False)

  def test_a_topic_that_was_made_anew_is_told(self):
    """Also if it has more records than the position: nothing would fail."""
    topic = self.broker.topic()
    self.broker.produce(topic, values(3))
    split = self.source(topic).split(1)[0]
    driver = self.drive(split).read(3)
    mark = driver.reader.get_checkpoint_mark()
    driver.reader.close()
    self.broker.delete_topic(topic)
    until(
        lambda: topic not in self.broker.admin.list_topics().topics, 'deletion')
    self.broker.topic(name=topic)
    self.broker.produce(topic, values(9))
    # Not even a broker that still says that there is none may hide it.
    self.patch(_kafka_cluster, 'PATIENCE_SECONDS', _WAIT_SECONDS)
    with self.assertRaisesRegex(
        kafka_native.KafkaTopicReplacedError, f'{topic} was deleted and made'):
      self.drive(split, mark).idle(lambda: False)

  def test_nobody_there_is_told(self):
    self.patch(_kafka_cluster, 'CONNECT_SECONDS', 1.0)
    with self.assertRaisesRegex(
        kafka_native.KafkaConnectionError, '127.0.0.1:9.*bootstrap_servers'):
      self.source('t', bootstrap_servers='127.0.0.1:9').split(1)

  def test_an_option_that_the_client_does_not_know_is_told(self):
    with self.assertRaisesRegex(
        kafka_native.KafkaConfigError, 'sasl.passwort'):
      self.source('t', consumer_config={'sasl.passwort': 'hush'}).split(1)
    source = self.source(
        self.broker.topic(), consumer_config={'fetch.min.bites': 1})
    with self.assertRaisesRegex(
        kafka_native.KafkaConfigError, 'fetch.min.bites'):
      self.drive(source).step()


class SecurityTest(KafkaTestCase):
  def setUp(self):
    self.patch(_kafka_cluster, 'PATIENCE_SECONDS', 0.5)
    self.logged = []
    handler = logging.Handler()
    handler.emit = lambda record: self.logged.append(record.getMessage())
    logging.getLogger().addHandler(handler)
    self.addCleanup(logging.getLogger().removeHandler, handler)

  def secured(self, topic, password=PASSWORD):
    return self.source(
        topic,
        bootstrap_servers=self.broker.sasl_address,
        consumer_config={
            'security.protocol': 'SASL_PLAINTEXT',
            'sasl.mechanism': 'PLAIN',
            'sasl.username': USER,
            'sasl.password': password
        })

  def test_a_password_is_taken_and_never_shown(self):
    topic = self.broker.topic()
    self.broker.produce(topic, values(3))
    source = self.secured(topic)
    driver = self.drive(source).read(3)
    self.assertEqual(values(3), driver.values)
    read = ReadFromKafkaNative(
        self.broker.sasl_address, topic, consumer_config={
            'sasl.password': PASSWORD
        })
    shown = [
        repr(source), repr(source.split(1)), repr(driver.reader),
        repr(driver.reader.get_checkpoint_mark()), repr(read), str(read),
        repr(DisplayData.create_from(source).to_proto()),
        repr(DisplayData.create_from(read).to_proto()), *self.logged
    ]
    for text in shown:
      self.assertNotIn(PASSWORD, text)
    self.assertIn(topic, repr(DisplayData.create_from(read).to_proto()))

  def test_a_wrong_password_is_told_and_not_shown(self):
    topic = self.broker.topic()
    wrong = 'a-wrong-password'
    with self.assertRaises(kafka_native.KafkaAuthenticationError) as caught:
      self.secured(topic, wrong).split(1)
    self.assertIn('sasl.*', str(caught.exception))
    # And while it runs: the password was changed, perhaps.
    right = self.secured(topic).split(1)[0]
    other = self.secured(topic, wrong)._with_part(right._part)
    with self.assertRaises(kafka_native.KafkaAuthenticationError) as again:
      self.drive(other).idle(lambda: False)
    for text in (str(caught.exception), str(again.exception), *self.logged):
      self.assertNotIn(wrong, text)
    self.assertTrue(self.logged, 'The client logs failures.')

  def test_a_topic_that_may_not_be_read_is_told(self):
    from confluent_kafka import admin
    topic = self.broker.topic()
    self.broker.produce(topic, values(1))
    source = self.secured(topic)
    split = source.split(1)[0]

    def rule(permission):
      binding = admin.AclBinding(
          admin.ResourceType.TOPIC, topic, admin.ResourcePatternType.LITERAL,
          f'User:{USER}', '*', admin.AclOperation.DESCRIBE, permission)
      for future in self.broker.admin.create_acls([binding]).values():
        future.result(120)

    # Once there is a rule for a topic, what none allows is forbidden.
    rule(admin.AclPermissionType.ALLOW)
    with self.assertRaisesRegex(
        kafka_native.KafkaAuthorizationError, f'{topic}-0.*Describe and Read'):
      self.drive(split).idle(lambda: False)
    # The broker hears of a rule some time after it was made.
    rule(admin.AclPermissionType.DENY)
    with self.assertRaisesRegex(
        kafka_native.KafkaAuthorizationError, f'{topic}.*Describe and Read'):
      until(lambda: not source.split(1), 'the rule')
    with self.assertRaises(kafka_native.KafkaAuthorizationError):
      self.drive(split).idle(lambda: False)


class CrashTest(KafkaTestCase):
  def test_does_not_make_requests_that_crash_the_client(self):
    """See the docstrings of Offsets and Cluster.committed."""
    from confluent_kafka import admin
    topic = self.broker.topic(2)
    self.broker.produce(topic, values(3))
    for name in ('list_offsets', 'list_consumer_group_offsets'):
      self.patch(
          admin.AdminClient, name, mock.Mock(side_effect=AssertionError(name)))
    for start in 'earliest', 'latest', 'committed', Timestamp(0):
      self.drive(self.source(topic, group_id='g', start=start)).caught_up()


  def test_no_thread_is_left_of_a_reader_that_was_closed(self):
    def threads():
      return {
          thread for thread in threading.enumerate()
          if thread.name.startswith('kafka-offsets')
      }

    before = threads()
    driver = self.drive(self.source(self.broker.topic()))
    driver.caught_up()
    self.assertTrue(threads() - before)
    driver.reader.close()
    until(lambda: not threads() - before, 'its end')


class KitTest(KafkaTestCase):
  """What every source has to promise, by the conformance kit."""
  # As a busy machine needs it.
  PATIENT = {'patience_seconds': 120.0, 'max_advance_seconds': 15.0}

  def setUp(self):
    self.patch(_kafka_tending, 'ENDS_SECONDS', 0.02)
    self.patch(_kafka_tending, 'DISCOVERY_SECONDS', 0.02)

  @contextlib.contextmanager
  def make_source(self, partitions=1):
    topic = self.broker.topic(partitions)
    for partition in range(partitions):
      self.broker.produce(topic, values(4, first=10 * partition), partition)
    yield self.source(
        topic, group_id=topic, event_time=CreateTime(max_delay_seconds=0.1))
    self.broker.delete_topic(topic)

  def acked(self, source):
    offsets = self.broker.committed(source.topics[0], source.topics[0])
    return values(offsets.get(0, 0))

  def append(self, source):
    # Never late, however long it takes to write it.
    later = int(time.time() * 1000) + 3_600_000
    self.broker.produce(source.topics[0], [b'more'], timestamp=later)
    return b'more'

  def test_one_partition(self):
    report = str(check_unbounded_source(
        self.make_source,
        expected=values(4),
        key=lambda record: record.value,
        acked=self.acked,
        append=self.append,
        schedules=15,
        **self.PATIENT))
    self.assertIn('finalization ........ ok', report)
    self.assertNotIn('not seen', report)

  def test_three_partitions_in_one_reader(self):
    check_unbounded_source(
        lambda: self.make_source(3),
        expected=values(4) + values(4, first=10) + values(4, first=20),
        key=lambda record: record.value,
        ordered=False,
        append=self.append,
        schedules=8,
        **self.PATIENT)


class BrokerGoneTest(KafkaTestCase):
  """The broker is killed: last, as the others wait for it to come back."""
  def setUp(self):
    self.patch(_kafka_tending, 'ENDS_SECONDS', 0.1)
    self.patch(_kafka_tending, 'DISCOVERY_SECONDS', 0.2)
    self.patch(_kafka_cluster, 'PATIENCE_SECONDS', 2.0)
    self.addCleanup(self.broker.start)

  def test_goes_on_when_the_broker_is_back(self):
    topic = self.broker.topic(2)
    for partition in (0, 1):
      self.broker.produce(topic, values(2000, first=10_000 * partition),
                          partition)
    group = uuid.uuid4().hex
    source = self.source(
        topic, event_time=CreateTime(0), group_id=group,
        consumer_config={'fetch.message.max.bytes': 2000})
    split = source.split(1)[0]
    driver = self.drive(split).read(1200)
    mark = driver.reader.get_checkpoint_mark()
    self.broker.kill()
    killed = Timestamp(time.time())
    # Nothing of this may wait for the broker.
    mark.finalize_checkpoint()
    begin = time.monotonic()
    other = self.drive(split, mark)
    driver.slowest = 0.0
    for _ in range(150):
      while driver.step():
        pass
      other.step()
      for reader in driver.reader, other.reader:
        self.assertLess(reader.get_watermark(), killed)
      time.sleep(0.01)
    closing = time.monotonic()
    other.reader.close()
    # What waits for the broker does so for all of the client's timeout.
    self.assertLess(time.monotonic() - closing, 20)
    self.assertLess(driver.slowest, 4)
    self.assertLess(other.slowest, 4)
    self.assertGreater(time.monotonic() - begin, 1.5)
    self.broker.start()
    self.broker.produce(topic, [b'after'])
    driver.read(4001)
    self.assertEqual(
        sorted(values(2000) + values(2000, first=10_000) + [b'after']),
        sorted(driver.values))
    driver.idle(
        lambda: driver.reader.get_watermark() > killed, 'the clock')


if __name__ == '__main__':
  unittest.main()
