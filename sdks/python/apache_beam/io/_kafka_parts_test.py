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

"""Tests for the parts of the Kafka source that need no broker."""

# pytype: skip-file

import copy
import pickle
import unittest
import unittest.mock
import uuid

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from apache_beam import coders
from apache_beam.internal import cloudpickle_pickler
from apache_beam.io import _kafka_cluster
from apache_beam.io._kafka_cluster import ClientLog
from apache_beam.io._kafka_cluster import Patience
from apache_beam.io._kafka_commit import Committer
from apache_beam.io._kafka_config import ClientConfig
from apache_beam.io._kafka_errors import KafkaMarkError
from apache_beam.io._kafka_errors import KafkaSourceError
from apache_beam.io._kafka_errors import KafkaTimestampError
from apache_beam.io._kafka_mark import KafkaMark
from apache_beam.io._kafka_mark import KafkaMarkCoder
from apache_beam.io._kafka_mark import Layout
from apache_beam.io._kafka_partitions import Partition
from apache_beam.io._kafka_partitions import Partitions
from apache_beam.io._kafka_records import CREATE_TIME
from apache_beam.io._kafka_records import LOG_APPEND_TIME
from apache_beam.io._kafka_records import NO_TIME
from apache_beam.io._kafka_records import CreateTime
from apache_beam.io._kafka_records import KafkaHeader
from apache_beam.io._kafka_records import KafkaRecord
from apache_beam.io._kafka_records import LogAppendTime
from apache_beam.io._kafka_records import RecordTime
from apache_beam.io._kafka_records import kafka_time
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

NO_LIBRARY = 'pip install confluent-kafka'

_ID = uuid.UUID(int=0x0123456789abcdef0123456789abcdef)


class ConfigTest(unittest.TestCase):
  def test_options_that_would_make_the_read_inexact_are_refused(self):
    """Case B67: among them other ways to commit."""
    for option, instead in (
        ('enable.auto.commit', 'after the runner has committed'),
        ('enable.auto.offset.store', 'part of the checkpoint'),
        ('auto.offset.reset', 'on_expired_offset'),
        ('group.instance.id', 'assigned by the pipeline'),
        ('group.protocol', 'assigned by the pipeline'),
        ('partition.assignment.strategy', 'assigned by the pipeline'),
        ('enable.partition.eof', 'how far it has come'),
        ('allow.auto.create.topics', 'misspelt'),
        ('group.id', 'argument group_id'),
        ('isolation.level', 'argument isolation_level'),
        ('bootstrap.servers', 'argument bootstrap_servers'),
        ('metadata.broker.list', 'argument bootstrap_servers'),
        ('stats_cb', 'sets it itself'),
        ('error_cb', 'sets it itself')):
      with self.subTest(option):
        with self.assertRaises(ValueError) as caught:
          ClientConfig('a:1', options={option: 'x'})
        self.assertIn(f'consumer_config[{option!r}]', str(caught.exception))
        self.assertIn(instead, str(caught.exception))

  def test_wrong_arguments_are_named(self):
    for arguments, error, words in (
        (dict(bootstrap_servers=''), ValueError, "bootstrap_servers=''"),
        (dict(bootstrap_servers=['a:1', '']), ValueError, 'names nothing'),
        (dict(bootstrap_servers=7), TypeError, 'bootstrap_servers=7'),
        (dict(group_id=''), TypeError, "group_id=''"),
        (dict(group_id=3), TypeError, 'group_id=3'),
        (dict(isolation_level='serial'), ValueError, "='serial' must be"),
        (dict(options=['a']), TypeError, 'a dict of client options'),
        (dict(options={1: 'a'}), TypeError, 'the key 1'),
        (dict(options={'sasl.password': None}), TypeError, 'not a NoneType'),
        (dict(options={'sasl.password': b'hush'}), TypeError, 'not a bytes'),
        (dict(options={'oauth_cb': 'f'}), TypeError, 'must be a function')):
      with self.subTest(words):
        with self.assertRaises(error) as caught:
          ClientConfig(**{'bootstrap_servers': 'a:1', **arguments})
        self.assertIn(words, str(caught.exception))
        self.assertNotIn('hush', str(caught.exception))

  def test_what_makes_the_read_exact_is_set(self):
    consumer = ClientConfig(
        ['a:1', 'b:2'], options={'fetch.min.bytes': 7}).consumer(4)
    self.assertEqual('a:1,b:2', consumer['bootstrap.servers'])
    self.assertEqual(7, consumer['fetch.min.bytes'])
    self.assertIs(False, consumer['enable.auto.commit'])
    self.assertEqual('error', consumer['auto.offset.reset'])
    self.assertEqual('read_committed', consumer['isolation.level'])

  def test_memory_of_the_client_is_bounded_however_many_partitions(self):
    config = ClientConfig('a:1')
    for partitions in (0, 1, 3, 16, 32):
      each = config.consumer(partitions)['queued.max.messages.kbytes']
      self.assertLessEqual(each * partitions, 32 << 10)
    more = ClientConfig('a:1', options={'queued.max.messages.kbytes': 99})
    self.assertEqual(99, more.consumer(1)['queued.max.messages.kbytes'])

  def test_the_client_that_asks_gets_security_but_no_consumer_options(self):
    admin = ClientConfig(
        'a:1',
        options={
            'security.protocol': 'SASL_SSL',
            'sasl.password': 'hush',
            'ssl.ca.location': '/ca',
            'fetch.min.bytes': 7
        }).admin()
    self.assertEqual('hush', admin['sasl.password'])
    self.assertEqual('/ca', admin['ssl.ca.location'])
    self.assertNotIn('fetch.min.bytes', admin)

  def test_secrets_are_in_no_text(self):
    config = ClientConfig(
        'a:1',
        options={
            'sasl.password': 'hush1',
            'ssl.key.password': 'hush12',
            'sasl.oauthbearer.client.secret': 'hush3',
            'ssl.key.pem': 'hush4',
            'sasl.oauthbearer.config': 'hush5',
            'ssl.keystore.password': 'hush6'
        })
    self.assertNotIn('hush', repr(config) + str(config))
    text = ' '.join(
        f'<hush{n}>' for n in (1, 12, 3, 4, 5, 6))
    self.assertEqual(' '.join(['<***>'] * 6), config.scrub(text))
    told = str(config.refused(ValueError(f'no: {text}')))
    self.assertIn('consumer_config', told)
    self.assertNotIn('hush', told)


def _marks():
  names = st.text(min_size=1, max_size=8)
  topics = st.dictionaries(
      names,
      st.tuples(
          st.one_of(st.none(), st.uuids().filter(lambda u: u.int)),
          st.sets(st.integers(0, 2**31 - 1), max_size=5)),
      max_size=4)

  def with_offsets(parts):
    described, index, more = parts
    keys = tuple((t, p) for t, (_, ps) in described.items() for p in ps)
    layout = Layout(
        index,
        index + more,
        {t: identity
         for t, (identity, _) in described.items()},
        keys)
    return st.lists(
        st.integers(0, 2**63 - 1), min_size=len(keys),
        max_size=len(keys)).map(lambda o: KafkaMark(layout, tuple(o)))

  return st.tuples(topics, st.integers(0, 999),
                   st.integers(1, 999)).flatmap(with_offsets)


class MarkTest(unittest.TestCase):
  MARK = KafkaMark(
      Layout(1, 3, {
          'b': None, 'ä': _ID
      }, (('ä', 4), ('b', 1), ('b', 0))), (7, 2**40, 0))

  def test_bytes_are_those_of_the_first_release(self):
    encoded = bytes.fromhex(
        '01 00000001 00000003 0002'
        '0001 62 00000000000000000000000000000000 00000002 00000000 00000001'
        '0002 c3a4 0123456789abcdef0123456789abcdef 00000001 00000004'
        '0000000000000007 0000010000000000 0000000000000000')
    coder = KafkaMarkCoder()
    self.assertEqual(encoded, coder.encode(self.MARK))
    decoded = coder.decode(encoded)
    self.assertEqual(self.MARK, decoded)
    self.assertEqual({('b', 0): 7, ('b', 1): 2**40, ('ä', 4): 0},
                     decoded.positions)
    self.assertEqual({'b': None, 'ä': _ID}, decoded.layout.topics)
    self.assertTrue(coder.is_deterministic())

  @settings(deadline=None)
  @given(_marks())
  def test_every_mark_comes_back_as_it_was(self, mark):
    coder = KafkaMarkCoder()
    encoded = coder.encode(mark)
    decoded = coder.decode(encoded)
    self.assertEqual(mark, decoded)
    self.assertEqual(mark.positions, decoded.positions)
    self.assertEqual(mark.layout.topics, decoded.layout.topics)
    self.assertEqual(encoded, coder.encode(decoded))

  @settings(deadline=None)
  @given(_marks(), st.randoms())
  def test_equal_marks_have_equal_bytes(self, mark, random):
    topics = list(mark.layout.topics.items())
    keys = list(mark.layout.partitions)
    random.shuffle(topics)
    random.shuffle(keys)
    layout = Layout(
        mark.layout.index, mark.layout.count, dict(topics), tuple(keys))
    coder = KafkaMarkCoder()
    self.assertEqual(
        coder.encode(mark), coder.encode(KafkaMark(layout, mark.offsets)))

  @settings(deadline=None)
  @given(_marks(), st.data())
  def test_cut_off_or_prolonged_bytes_are_refused(self, mark, data):
    encoded = KafkaMarkCoder().encode(mark)
    cut = data.draw(st.integers(1, len(encoded) - 1))
    for wrong in (encoded[:cut], encoded + b'\0'):
      with self.assertRaises(KafkaMarkError):
        KafkaMarkCoder().decode(wrong)

  def test_an_unknown_version_is_refused(self):
    for wrong, words in ((b'\x02\0\0', 'begins with 02'),
                         (b'', 'begins with nothing')):
      with self.assertRaisesRegex(KafkaMarkError, words):
        KafkaMarkCoder().decode(wrong)

  def test_works_in_other_coders(self):
    """Case B50."""
    coder = coders.TupleCoder([KafkaMarkCoder(), coders.VarIntCoder()])
    self.assertEqual((self.MARK, 3), coder.decode(coder.encode((self.MARK, 3))))

  @unittest.skipIf(_kafka_cluster.confluent_kafka is None, NO_LIBRARY)
  def test_copies_have_no_connection(self):
    """Case B46: finalizing a decoded or copied mark does nothing."""
    sent = []
    mark = KafkaMark(
        self.MARK.layout, self.MARK.offsets, Committer(_Consumer(sent)))
    copies = (
        pickle.loads(pickle.dumps(mark)),
        copy.deepcopy(mark),
        KafkaMarkCoder().decode(KafkaMarkCoder().encode(mark)))
    for other in copies:
      other.finalize_checkpoint()
      self.assertEqual(mark, other)
    self.assertEqual([], sent)
    mark.finalize_checkpoint()
    self.assertEqual(1, len(sent))

  def test_its_text_is_short(self):
    self.assertEqual(
        'KafkaMark(split 2 of 3: b-0@7, b-1@1099511627776, ä-4@0)',
        repr(self.MARK))
    keys = tuple(('t', number) for number in range(500))
    many = KafkaMark(Layout(0, 1, {'t': None}, keys), tuple(range(500)))
    self.assertIn('t-19@19, and 480 more', repr(many))


class _Consumer:
  """Notes commits, as the client would send them."""
  def __init__(self, sent):
    self._sent = sent

  def commit(self, offsets, asynchronous):
    assert asynchronous
    self._sent.append({(o.topic, o.partition): o.offset for o in offsets})


@unittest.skipIf(_kafka_cluster.confluent_kafka is None, NO_LIBRARY)
class CommitterTest(unittest.TestCase):
  def test_never_goes_back(self):
    """Case B53: marks out of order, overlapping, twice."""
    sent = []
    committer = Committer(_Consumer(sent))
    for offsets in ((3, 3), (2, 9), (1, 1), (3, 9), (4, 9)):
      committer.commit({('t', n): offset for n, offset in enumerate(offsets)})
    self.assertEqual(
        [{('t', 0): 3, ('t', 1): 3}, {('t', 1): 9}, {('t', 0): 4}], sent)

  def test_does_nothing_once_closed(self):
    sent = []
    committer = Committer(_Consumer(sent))
    committer.close()
    committer.commit({('t', 0): 3})
    self.assertEqual([], sent)

  def test_failures_are_counted_and_told_once(self):
    committer = Committer(_Consumer([]))
    with self.assertLogs('apache_beam.io._kafka_commit', 'WARNING') as logs:
      committer.report('no coordinator', [])
      committer.report(None, [])
      committer.report('no coordinator', [])
    self.assertEqual(1, len(logs.output))
    self.assertIn('no coordinator', logs.output[0])
    self.assertEqual(2, committer.take_failures())
    self.assertEqual(0, committer.take_failures())


def _record(timestamp=Timestamp(5), value=b'v'):
  return KafkaRecord('t', 3, 77, timestamp, None, value, [])


class RecordsTest(unittest.TestCase):
  def test_the_coder_of_records_is_compact_and_deterministic(self):
    coder = coders.registry.get_coder(KafkaRecord)
    self.assertTrue(coder.is_deterministic())
    for record in (
        _record(),
        KafkaRecord('t', 0, 2**40, Timestamp(micros=1), b'', None, []),
        KafkaRecord(
            't', 1, 0, MIN_TIMESTAMP, None, None,
            [KafkaHeader('a', b'1'), KafkaHeader('a', None)])):
      encoded = coder.encode(record)
      decoded = coder.decode(encoded)
      self.assertEqual(record, decoded)
      self.assertIs(KafkaRecord, type(decoded))
      self.assertLess(len(encoded), 50)

  def test_policies_tell_what_is_missing(self):
    no_time = _record(MIN_TIMESTAMP)
    for policy, record, kind, words in (
        (CreateTime(), no_time, NO_TIME, 'the record has none.*RecordTime'),
        (LogAppendTime(), _record(), CREATE_TIME, 'no log-append time.*Create'),
        (RecordTime(lambda r: 1 / 0), _record(), CREATE_TIME, 'raised ZeroDiv'),
        (RecordTime(lambda r: 5.0), _record(), CREATE_TIME, 'returned a float'),
        (RecordTime(lambda r: MAX_TIMESTAMP), _record(), CREATE_TIME,
         'no window')):
      with self.subTest(words):
        with self.assertRaisesRegex(
            KafkaTimestampError, f't-3 at offset 77.*{words}'):
          policy.time_of(record, kind)

  def test_policies_give_times(self):
    for policy, kind, expected in (
        (CreateTime(), CREATE_TIME, 5), (CreateTime(), LOG_APPEND_TIME, 5),
        (LogAppendTime(), LOG_APPEND_TIME, 5),
        (RecordTime(lambda r: Timestamp(int(r.value))), NO_TIME, 9)):
      self.assertEqual(
          Timestamp(expected), policy.time_of(_record(value=b'9'), kind))

  def test_wrong_arguments_are_named(self):
    for make, error, words in (
        (lambda: CreateTime('a'), TypeError, "max_delay_seconds='a'"),
        (lambda: CreateTime(True), TypeError, 'max_delay_seconds=True'),
        (lambda: CreateTime(-1), ValueError, 'max_delay_seconds=-1'),
        (lambda: CreateTime(float('nan')), ValueError, 'seconds=nan'),
        (lambda: CreateTime(float('inf')), ValueError, 'seconds=inf'),
        (lambda: LogAppendTime(-1), ValueError, 'slack_seconds=-1'),
        (lambda: RecordTime('f'), TypeError, "function='f'"),
        (lambda: RecordTime(len, -1), ValueError, 'max_delay_seconds=-1')):
      with self.assertRaisesRegex(error, words):
        make()

  def test_a_timestamp_in_another_unit_is_none(self):
    self.assertEqual(Timestamp(1.5), kafka_time(1500))
    self.assertEqual(Timestamp(-1), kafka_time(-1000))
    # Now, in nanoseconds.
    self.assertIsNone(kafka_time(1_796_022_704_279_000_000))
    self.assertIsNone(kafka_time(-2**63))


class PartitionTest(unittest.TestCase):
  """Cases B57, B58 and B59, by the clock of the one who asked."""
  def setUp(self):
    self.partition = Partition(('t', 0), 10, CreateTime(2))

  def told(self, end, high, asked_at):
    self.partition.end = end
    self.partition.high = high
    self.partition.asked_at = asked_at

  def test_without_an_answer_nothing_is_known(self):
    self.assertIsNone(self.partition.lag)
    self.assertEqual(MIN_TIMESTAMP, self.partition.watermark())

  def test_never_delivered_and_caught_up_follows_the_clock(self):
    self.told(10, 10, 100.0)
    self.assertEqual(0, self.partition.lag)
    self.assertEqual(Timestamp(98), self.partition.watermark())

  def test_with_a_backlog_it_holds(self):
    self.told(11, 11, 100.0)
    self.assertEqual(1, self.partition.lag)
    self.assertEqual(MIN_TIMESTAMP, self.partition.watermark())

  def test_an_old_answer_is_good_for_its_own_time_only(self):
    self.told(10, 10, 100.0)
    self.partition.position = 15
    self.assertEqual(0, self.partition.lag)
    self.assertEqual(Timestamp(98), self.partition.watermark())

  def test_an_open_transaction_holds_it(self):
    self.told(10, 13, 100.0)
    self.assertEqual(0, self.partition.lag)
    self.assertEqual(MIN_TIMESTAMP, self.partition.watermark())

  def test_a_lost_position_holds_it(self):
    self.told(10, 10, 100.0)
    self.partition.lost = True
    self.assertEqual(MIN_TIMESTAMP, self.partition.watermark())

  def test_records_move_it_less_the_delay_and_never_back(self):
    seen = []
    for micros in (50_000_000, 40_000_000, 60_000_000):
      self.partition.observe(micros)
      seen.append(self.partition.watermark())
    self.told(10, 10, 55.0)
    seen.append(self.partition.watermark())
    self.assertEqual([48, 48, 58, 58], seen)

  def test_partitions_keep_their_order_and_what_they_know(self):
    partitions = Partitions(
        Layout(0, 1, {'t': None}, ()), {('t', 2): 5, ('t', 0): 7}, CreateTime())
    two = partitions[('t', 2)]
    partitions.add({('t', 1): 0})
    self.assertEqual([('t', 0), ('t', 1), ('t', 2)], partitions.keys())
    self.assertEqual((('t', 0), ('t', 1), ('t', 2)),
                     partitions.layout.partitions)
    self.assertEqual([7, 0, 5], [p.position for p in partitions])
    self.assertIs(two, partitions.find('t', 2))
    self.assertIsNone(partitions.find('t', 3))


class PatienceTest(unittest.TestCase):
  def test_a_trouble_becomes_an_error_when_it_lasts(self):
    now = [0.0]
    patience = Patience(lambda: now[0])
    patience.note('topic', KafkaSourceError('gone'))
    now[0] = _kafka_cluster.PATIENCE_SECONDS - 0.1
    patience.note('topic', KafkaSourceError('gone again'))
    patience.check()
    now[0] += 0.2
    with self.assertRaisesRegex(KafkaSourceError, 'gone$'):
      patience.check()
    patience.over('topic')
    patience.check()


class ClientLogTest(unittest.TestCase):
  def test_one_line_of_a_kind_in_a_while_without_secrets(self):
    log = ClientLog(ClientConfig('a:1', options={'sasl.password': 'hush'}))
    with self.assertLogs('apache_beam.io._kafka_cluster', 'DEBUG') as logs:
      for _ in range(5):
        log.log(40, '%s [%s] %s', 'FAIL', 'consumer-1', 'refused: hush')
        log.log(30, '%s [%s] %s', 'SASL', 'consumer-1', 'hush')
      with unittest.mock.patch.object(_kafka_cluster, 'LOG_SECONDS', -1):
        log.log(40, '%s [%s] %s', 'FAIL', 'consumer-1', 'refused')
    self.assertEqual(3, len(logs.output))
    self.assertIn('FAIL [consumer-1] refused: ***', logs.output[0])
    self.assertNotIn('hush', ''.join(logs.output))


class PickleTest(unittest.TestCase):
  def test_a_function_of_the_main_script_is_carried_along(self):
    policy = cloudpickle_pickler.loads(
        cloudpickle_pickler.dumps(RecordTime(lambda r: Timestamp(3))))
    self.assertEqual(Timestamp(3), policy.time_of(_record(), NO_TIME))


if __name__ == '__main__':
  unittest.main()
