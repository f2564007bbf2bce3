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

"""The example on a real server; see ``apache_beam.io.redisstreams_test``."""

import os
import signal
import subprocess
import sys
import time
import unittest

import apache_beam as beam
from apache_beam.examples import redis_streams_orders as example
from apache_beam.io._redis_testing import PASSWORD
from apache_beam.io._redis_testing import EndingSource
from apache_beam.io._redis_testing import RedisServer
from apache_beam.io._redis_testing import needs_redis
from apache_beam.io.unbounded_source import ReadFromUnboundedSource
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to

PRISM = os.environ.get('PRISM_LOCATION')


@needs_redis
class RedisStreamsOrdersTest(unittest.TestCase):
  def setUp(self):
    self.server = RedisServer()
    self.addCleanup(self.server.stop)
    self.client = self.server.client()
    self.addCleanup(self.client.close)

  def test_sums_per_customer_and_window(self):
    for at, customer, cents in ((1, 'alice', 100), (9, 'alice', 20),
                                (9, 'bob', 3), (12, 'alice', 5)):
      self.client.xadd(
          'orders', {
              'customer': customer, 'cents': cents
          }, id=f'{1000 * at}-*')
    self.client.xadd('orders', {'customer': 'eve', 'cents': 'x'}, id='13000-0')
    self.client.xadd('orders', {'other': '1'}, id='13000-1')
    self.client.set('end', 1)
    for _ in range(2):  # A second pipeline writes the same once more.
      with beam.Pipeline(runner='FnApiRunner') as p:
        lines = (
            p
            | ReadFromUnboundedSource(
                EndingSource(self.server.url, 'orders', 'g'), poll_interval=0.1)
            | example.SumOrders(self.server.url, 'orders', 10))
        assert_that(
            lines,
            equal_to([
                'totals:1970-01-01T00:00:00+00:00 alice 120',
                'totals:1970-01-01T00:00:00+00:00 bob 3',
                'totals:1970-01-01T00:00:10+00:00 alice 5',
            ]))
      self.assertEqual({b'alice': b'120', b'bob': b'3'},
                       self.client.hgetall('totals:1970-01-01T00:00:00+00:00'))
      bad = self.client.xrange('orders:bad')
      self.assertEqual([b'13000-0', b'13000-1'], [key for key, _ in bad])
      self.assertIn(b"invalid literal", bad[0][1][b'reason'])
      self.assertEqual(b"KeyError(b'customer')", bad[1][1][b'reason'])
      self.client.xgroup_destroy('orders', 'g')

  @unittest.skipUnless(PRISM, 'PRISM_LOCATION is not set')
  def test_windows_close_while_it_runs(self):
    """As a person runs it, with a password that it finds in the environment."""
    self.client.config_set('requirepass', PASSWORD)
    client = self.server.client(password=PASSWORD)
    self.addCleanup(client.close)
    process = subprocess.Popen(
        [
            sys.executable, '-m', example.__name__, f'--url={self.server.url}',
            '--seconds=1', '--runner=PrismRunner', f'--prism_location={PRISM}',
            '--environment_type=LOOPBACK'
        ],
        env={
            **os.environ,
            'REDIS_PASSWORD': PASSWORD,
            'PYTHONUNBUFFERED': '1',
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # A group of its own, with Prism in it.
        start_new_session=True)
    try:
      deadline = time.monotonic() + 240
      sums, sent = [], 0
      while not sums and time.monotonic() < deadline:
        self.assertIsNone(process.poll())
        client.xadd('orders', {'customer': 'alice', 'cents': 7})
        sent += 7
        time.sleep(0.1)
        sums = [
            int(client.hget(key, 'alice'))
            for key in client.keys('totals:*')
        ]
      self.assertTrue(sums, 'no window closed')
      while sum(sums) < sent and time.monotonic() < deadline:
        time.sleep(0.1)
        sums = [
            int(client.hget(key, 'alice'))
            for key in client.keys('totals:*')
        ]
      self.assertEqual(sent, sum(sums))
      self.assertEqual(0, client.xpending('orders', 'beam-totals')['pending'])
    finally:
      os.killpg(process.pid, signal.SIGKILL)
      output, _ = process.communicate()
    self.assertNotIn(PASSWORD.encode(), output)
    self.assertIn(b'totals:', output)


if __name__ == '__main__':
  unittest.main()
