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

"""Tests for the example that adds up orders, with a real broker."""

# pytype: skip-file

import functools
import json
import os
import tempfile
import unittest
import uuid
from unittest import mock

import apache_beam as beam
from apache_beam.examples import kafka_native_totals as totals
from apache_beam.io import kafka_native
from apache_beam.io._kafka_testing import PASSWORD
from apache_beam.io._kafka_testing import USER
from apache_beam.io._kafka_testing import BrokerTestCase
from apache_beam.io._kafka_testing import EndingSource


def setUpModule():
  BrokerTestCase.start_broker()


def tearDownModule():
  BrokerTestCase.stop_broker()


class TotalsTest(BrokerTestCase):
  def setUp(self):
    self.orders = self.broker.topic(2)
    self.totals = self.broker.topic(1)
    self.rejected = self.broker.topic(1)

  def order(self, customer, cents, second, partition=0):
    self.broker.produce(
        self.orders, [json.dumps({
            'customer': customer, 'cents': cents
        })],
        partition,
        timestamp=second * 1000)

  def ending(self, ends):
    """A source that ends, where the example's would go on for ever."""
    return mock.patch.object(
        kafka_native, 'KafkaSource', functools.partial(EndingSource, ends=ends))

  def written(self, topic):
    """All records of a topic."""
    source = kafka_native.KafkaSource(self.broker.address, topic)
    reader = source.create_reader(None, None)
    found = []
    more = reader.start()
    while more or reader.get_split_backlog_bytes() != 0:
      if more:
        found.append(reader.get_current())
      reader.get_watermark()
      more = reader.advance()
    reader.close()
    return found

  def test_adds_up_and_sets_aside(self):
    self.order('ada', 100, 1000)
    self.order('ada', 50, 1009, partition=1)
    self.order('bob', 7, 1003)
    self.order('ada', 5, 1010)
    self.broker.produce(self.orders, [b'no order'], key=b'k')
    self.broker.produce(self.orders, [None], 1)
    group = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder:
      path = os.path.join(folder, 'client.json')
      with open(path, 'w', encoding='utf-8') as f:
        json.dump({
            'security.protocol': 'SASL_PLAINTEXT',
            'sasl.mechanism': 'PLAIN',
            'sasl.username': USER,
            'sasl.password': PASSWORD
        }, f)
      with self.ending({0: 4, 1: 2}):
        totals.run([
            f'--bootstrap-servers={self.broker.sasl_address}',
            f'--orders={self.orders}',
            f'--totals={self.totals}',
            f'--rejected={self.rejected}',
            f'--group={group}',
            '--window-seconds=10',
            f'--client-options={path}',
            '--runner=FnApiRunner'
        ])
    sums = {
        (line['customer'], line['window']): line['cents']
        for line in (json.loads(r.value) for r in self.written(self.totals))
    }
    self.assertEqual({
        ('ada', '1970-01-01T00:16:40'): 150,
        ('bob', '1970-01-01T00:16:40'): 7,
        ('ada', '1970-01-01T00:16:50'): 5
    },
                     sums)
    rejected = sorted(
        json.loads(r.value)['where'] for r in self.written(self.rejected))
    self.assertEqual([f'{self.orders}-0@3', f'{self.orders}-1@1'], rejected)
    self.assert_committed({0: 4, 1: 2}, group, self.orders)

  def test_fails_if_the_sums_cannot_be_written(self):
    """Rather than lose them: the runner keeps what they are made of."""
    self.order('ada', 100, 1000)
    group = uuid.uuid4().hex
    with self.ending({0: 1}):
      with self.assertRaisesRegex(Exception, 'lines for no-such-topic were'):
        with beam.Pipeline(runner='FnApiRunner') as p:
          totals.build(
              p,
              self.broker.address,
              self.orders,
              'no-such-topic',
              self.rejected,
              group,
              window_seconds=10,
              client_options={'message.timeout.ms': 2000})


if __name__ == '__main__':
  unittest.main()
