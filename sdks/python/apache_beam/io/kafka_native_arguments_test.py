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

"""Tests for what the Kafka source says before it has met a broker."""

# pytype: skip-file

import subprocess
import sys
import textwrap
import unittest

from apache_beam.io import _kafka_cluster
from apache_beam.io._kafka_config import ClientConfig
from apache_beam.io._kafka_mark import Layout
from apache_beam.io._kafka_reader import KafkaReader
from apache_beam.io._kafka_records import CREATE_TIME
from apache_beam.io.kafka_native import CreateTime
from apache_beam.io.kafka_native import KafkaSource
from apache_beam.io.kafka_native import KafkaTimestampError
from apache_beam.io.kafka_native import ReadFromKafkaNative


@unittest.skipIf(
    _kafka_cluster.confluent_kafka is None, 'pip install confluent-kafka')
class ArgumentsTest(unittest.TestCase):
  def test_wrong_arguments_are_named(self):
    for arguments, error, words in (
        (dict(topics=[]), ValueError, 'topics=\\[\\] names nothing'),
        (dict(topics=None), TypeError, 'topics=None'),
        (dict(topics=['a', 'a']), ValueError, 'a topic twice'),
        (dict(start='oldest'), ValueError, "start='oldest' must be"),
        (dict(start=17), ValueError, 'start=17'),
        (dict(start='committed'), ValueError, 'needs a group_id'),
        (dict(event_time='create'), TypeError, "event_time='create'"),
        (dict(event_time=CreateTime), TypeError, 'CreateTime\\(\\)'),
        (dict(on_expired_offset='skip'), ValueError, "offset='skip' must"),
        (dict(num_splits=0), ValueError, 'num_splits=0'),
        (dict(num_splits=True), TypeError, 'num_splits=True'),
        (dict(num_splits='2'), TypeError, "num_splits='2'"),
        (dict(isolation_level=None), ValueError, 'isolation_level=None'),
        (dict(poll_interval=-1), ValueError, 'poll_interval=-1'),
        (dict(max_records_per_bundle=0), ValueError, 'max_records_per_bun')):
      with self.subTest(words):
        with self.assertRaisesRegex(error, words):
          ReadFromKafkaNative(
              **{
                  'bootstrap_servers': 'a:1', 'topics': 't', **arguments
              })

  def test_topics_and_servers_are_one_or_several(self):
    for topics in ('a, b', ['a', 'b'], ('a', 'b')):
      source = KafkaSource(['x:1', 'y:2'], topics)
      self.assertEqual(('a', 'b'), source.topics)
      self.assertEqual("KafkaSource('x:1,y:2', ['a', 'b'])", repr(source))


class _Message:
  """What the client would give."""
  def __init__(self, offset, partition=0, time=1000):
    self._offset = offset
    self._partition = partition
    self._time = time

  def error(self):
    return None

  def topic(self):
    return 't'

  def partition(self):
    return self._partition

  def offset(self):
    return self._offset

  def timestamp(self):
    return CREATE_TIME, self._time

  def key(self):
    return None

  def value(self):
    return b'%d' % self._offset

  def headers(self):
    return None


class BatchTest(unittest.TestCase):
  def setUp(self):
    self.reader = KafkaReader(
        ClientConfig('a:1'),
        CreateTime(),
        'fail',
        Layout(0, 1, {'t': None}, ()),
        {('t', 0): 5, ('t', 1): 0},
        lambda topic, number: True)

  def take(self, *messages):
    self.reader._take(list(messages))
    return [(r.partition, r.offset) for r in self.reader._records]

  def test_what_the_client_gives_again_is_left_out(self):
    """Its position goes back to the last call, if partitions are assigned."""
    self.assertEqual([(0, 5), (0, 6)],
                     self.take(_Message(4), _Message(5), _Message(6)))
    self.assertEqual([(1, 0), (0, 7)],
                     self.take(
                         _Message(5),
                         _Message(6),
                         _Message(0, partition=1),
                         _Message(6),
                         _Message(7)))

  def test_an_idle_reader_keeps_no_records(self):
    self.take(_Message(5))
    self.assertEqual([], self.take())

  def test_partitions_that_are_not_ours_are_left_out(self):
    self.assertEqual([(0, 5)], self.take(_Message(0, 7), _Message(5)))

  def test_a_timestamp_in_another_unit_is_told(self):
    self.take(_Message(5), _Message(6, time=10**18))
    with self.assertRaisesRegex(
        KafkaTimestampError, 't-0 at offset 6.*another unit'):
      self.reader._raise_error()


class MissingLibraryTest(unittest.TestCase):
  def test_without_the_client_library_the_command_is_told(self):
    """The module can be imported; the constructor says what is missing."""
    program = textwrap.dedent(
        '''
        import sys
        sys.modules['confluent_kafka'] = None
        from apache_beam.io import kafka_native
        for make in kafka_native.KafkaSource, kafka_native.ReadFromKafkaNative:
          try:
            make('a:1', 't')
          except ImportError as e:
            print(e)
        ''')
    done = subprocess.run([sys.executable, '-c', program],
                          capture_output=True,
                          text=True,
                          check=True)
    self.assertEqual(2, done.stdout.count('pip install confluent-kafka'))


if __name__ == '__main__':
  unittest.main()
