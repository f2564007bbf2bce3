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
from apache_beam.io.kafka_native import CreateTime
from apache_beam.io.kafka_native import KafkaSource
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
