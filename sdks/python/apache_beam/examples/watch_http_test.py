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


"""The example against a real server, on real sockets, that misbehaves."""

import email.utils
import http.server
import json
import pickle
import socket
import subprocess
import sys
import threading
import time
import unittest

import apache_beam as beam
from apache_beam.examples import watch_http
from apache_beam.examples.watch_http import FeedError
from apache_beam.examples.watch_http import HttpFeed
from apache_beam.examples.watch_http import Order
from apache_beam.io._runner_testing import needs_prism
from apache_beam.io._runner_testing import prism_pipeline
from apache_beam.io._watch_metrics import NAMESPACE
from apache_beam.io.unbounded_source import RetryLater
from apache_beam.metrics import MetricsFilter
from apache_beam.runners.portability import fn_api_runner
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp


class Endpoint:
  """Orders over HTTP, in pages of three.

  Attributes:
    orders: (id, customer, cents, time_ms).
    trouble: for each of the next requests a function that answers it, or None.
    after_request: called with how many answers there were.
    log: (path and query, status, bytes of the body) of each answer.
  """
  def __init__(self, test, port=0):
    self.orders = []
    self.complete_until_ms = None
    self.closed = False
    self.trouble = []
    self.log = []
    self.after_request = lambda number: None
    endpoint = self

    class Handler(http.server.BaseHTTPRequestHandler):
      def do_GET(self):
        endpoint.answer(self)

      def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        pass

    self.server = http.server.ThreadingHTTPServer(('127.0.0.1', port), Handler)
    self.server.daemon_threads = True
    self.port = self.server.server_address[1]
    self.url = f'http://127.0.0.1:{self.port}/orders'
    self.thread = threading.Thread(
        target=self.server.serve_forever, kwargs={'poll_interval': 0.02})
    self.thread.start()
    self.running = True
    test.addCleanup(self.stop)

  def stop(self):
    if self.running:
      self.running = False
      self.server.shutdown()
      self.thread.join()
      self.server.server_close()

  def add(self, *numbers, customer='smith'):
    for number in numbers:
      self.orders.append((number, customer, 10 * number, 1000 * number))

  def answer(self, handler):
    trouble = self.trouble.pop(0) if self.trouble else None
    if trouble is not None:
      trouble(handler)
      self.log.append((handler.path, 'trouble', 0))
      self.after_request(len(self.log))
      return
    query = handler.path.partition('?')[2]
    begin = int(query.removeprefix('after=') or 0)
    part = self.orders[begin:begin + 3]
    more = begin + 3 < len(self.orders)
    body = json.dumps({
        'records': [
            dict(zip(('id', 'customer', 'cents', 'time_ms'), order))
            for order in part
        ],
        'next': str(begin + 3) if more else None,
        'complete_until_ms': self.complete_until_ms,
        'closed': self.closed,
    }).encode()
    etag = f'"{hash(body):x}"'
    if handler.headers['If-None-Match'] == etag:
      status, body = 304, b''
    else:
      status = 200
    # Noted first: the client may go on as soon as it has the answer.
    self.log.append((handler.path, status, len(body)))
    send(status, body, ETag=etag)(handler)
    self.after_request(len(self.log))


def send(status, body=b'', **headers):
  """A function that answers a request with this."""
  def answer(handler):
    handler.send_response(status)
    for name, value in headers.items():
      handler.send_header(name.replace('_', '-'), value)
    if 'Content_Length' not in headers:
      handler.send_header('Content-Length', str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)

  return answer


def hang_up(handler):
  handler.connection.shutdown(socket.SHUT_RDWR)


def ids(result):
  return [output.value.order_id for output in result.outputs]


class HttpFeedTest(unittest.TestCase):
  def setUp(self):
    self.endpoint = Endpoint(self)
    self.feed = HttpFeed(timeout=2)

  def poll(self):
    return self.feed(self.endpoint.url)

  def statuses(self):
    statuses = [status for _, status, _ in self.endpoint.log]
    self.endpoint.log.clear()
    return statuses

  def test_all_pages(self):
    for number in 0, 1, 3, 4, 9, 10:
      self.endpoint.orders.clear()
      self.endpoint.add(*range(1, number + 1))
      result = self.poll()
      self.assertEqual(list(range(1, number + 1)), ids(result))
      self.assertFalse(result.is_complete)
      self.assertEqual(max(1, (number + 2) // 3), len(self.statuses()))

  def test_an_order_and_its_time(self):
    self.endpoint.orders.append((7, 'müller', 250, 1700000000123))
    output, = self.poll().outputs
    self.assertEqual(
        TimestampedValue(
            Order(7, 'müller', 250), Timestamp(micros=1700000000123000)),
        output)

  def test_a_query_of_its_own(self):
    self.assertEqual(
        'http://h/o?shop=1&after=a%26b',
        watch_http._with_cursor('http://h/o?shop=1', 'a&b'))

  def test_the_watermark_and_the_end(self):
    self.assertIsNone(self.poll().watermark)
    self.endpoint.complete_until_ms = 5000
    self.assertEqual(Timestamp(5), self.poll().watermark)
    self.endpoint.closed = True
    self.assertTrue(self.poll().is_complete)
    self.assertEqual(MAX_TIMESTAMP, self.poll().watermark)

  def test_unchanged_pages_are_not_sent_again(self):
    self.endpoint.add(*range(1, 8))
    self.poll()
    self.assertEqual([200] * 3, self.statuses())
    self.assertEqual(list(range(1, 8)), ids(self.poll()))
    self.assertEqual([0] * 3, [size for _, _, size in self.endpoint.log])
    self.assertEqual([304] * 3, self.statuses())
    self.endpoint.add(8, 9, 10)
    self.assertEqual(list(range(1, 11)), ids(self.poll()))
    self.assertEqual([304, 304, 200, 200], self.statuses())
    # Something changed in the middle.
    self.endpoint.orders[4] = (5, 'jones', 1, 5000)
    self.assertEqual('jones', self.poll().outputs[4].value.customer)
    self.assertEqual([304, 200, 304, 304], self.statuses())

  def test_a_poll_does_not_depend_on_the_one_before(self):
    """The bundle of a poll may fail; the next one must list the same."""
    self.endpoint.add(*range(1, 8))
    first = self.poll()
    self.assertEqual(first, self.poll())
    self.assertEqual(first, HttpFeed()(self.endpoint.url))

  def test_pages_are_kept_up_to_a_number(self):
    self.endpoint.add(*range(1, 8))
    before = watch_http._MAX_CACHED_PAGES
    self.addCleanup(setattr, watch_http, '_MAX_CACHED_PAGES', before)
    watch_http._MAX_CACHED_PAGES = 2
    self.poll()
    self.assertEqual(2, len(self.feed._cached))
    self.assertEqual(list(range(1, 8)), ids(self.poll()))

  def test_is_pickled_without_pages_and_lock(self):
    self.endpoint.add(1)
    self.poll()
    self.statuses()
    self.feed = pickle.loads(pickle.dumps(self.feed))
    self.assertEqual([1], ids(self.poll()))
    self.assertEqual([200], self.statuses())
    self.assertEqual(2, self.feed._timeout)

  def assert_retry(self, seconds, reason):
    with self.assertRaises(RetryLater) as caught:
      self.poll()
    self.assertAlmostEqual(seconds, caught.exception.seconds, delta=1.5)
    self.assertIn(reason, caught.exception.reason)
    self.assertIn(self.endpoint.url, caught.exception.reason)

  def test_too_many_requests_and_unavailable(self):
    for status in 429, 503:
      for retry_after, seconds in (
          ('7', 7), ('0', 0), ('0.5', 0.5), ('31536000', 600), ('-3', 0),
          ('soon', 5), ('nan', 5), (None, 5),
          (email.utils.formatdate(time.time() + 90, usegmt=True), 90),
          (email.utils.formatdate(time.time() - 90, usegmt=True), 0)):
        with self.subTest(status=status, retry_after=retry_after):
          headers = {} if retry_after is None else {'Retry_After': retry_after}
          self.endpoint.trouble = [send(status, **headers)]
          self.assert_retry(seconds, str(status))
    self.endpoint.add(1)
    self.assertEqual([1], ids(self.poll()))

  def test_trouble_on_a_later_page(self):
    """Half a list is no list."""
    self.endpoint.add(*range(1, 8))
    self.endpoint.trouble = [None, send(503, Retry_After='3')]
    self.assert_retry(3, '503')
    self.assertEqual(list(range(1, 8)), ids(self.poll()))

  def test_other_server_errors(self):
    for status in 408, 500, 502, 504:
      self.endpoint.trouble = [send(status)]
      self.assert_retry(5, str(status))

  def test_connection_refused(self):
    self.endpoint.add(1)
    self.endpoint.stop()
    self.assert_retry(5, 'refused')
    self.endpoint = Endpoint(self, self.endpoint.port)
    self.endpoint.add(1)
    self.assertEqual([1], ids(self.poll()))

  def test_connections_that_break(self):
    self.endpoint.trouble = [hang_up]
    self.assert_retry(5, '')
    self.endpoint.trouble = [send(200, b'{"rec', Content_Length='100')]
    self.assert_retry(5, 'IncompleteRead')

  def test_a_server_that_falls_silent(self):
    awake = threading.Event()
    self.addCleanup(awake.set)
    self.feed = HttpFeed(timeout=0.2)
    self.endpoint.trouble = [lambda handler: awake.wait(30)]
    self.assert_retry(5, 'timed out')

  def test_what_is_not_a_page(self):
    good = {'id': 1, 'customer': 'a', 'cents': 1, 'time_ms': 1}
    for body in (b'', b'{"records": [', b'\xff', b'[]', b'{}', b'null',
                 b'{"records": 5}', b'{"records": [5]}',
                 json.dumps({'records': [good | {'cents': 'many'}]}).encode(),
                 json.dumps({'records': [good | {'time_ms': None}]}).encode(),
                 b'{"records": [{"id": 1}]}'):
      with self.subTest(body=body):
        self.endpoint.trouble = [send(200, body)]
        with self.assertRaisesRegex(FeedError,
                                    'is not a page of orders') as caught:
          self.poll()
        self.assertIn(self.endpoint.url, str(caught.exception))
        self.assertIn(repr(body[:50])[:-1], str(caught.exception))

  def test_what_waiting_does_not_mend(self):
    for status in 400, 401, 404:
      self.endpoint.trouble = [send(status)]
      with self.assertRaisesRegex(FeedError, f'{self.endpoint.url}: {status}'):
        self.poll()
    # Not asked for: there is nothing that it could be the same as.
    self.endpoint.trouble = [send(304)]
    with self.assertRaisesRegex(FeedError, '304'):
      self.poll()

  def test_a_page_that_is_its_own_next(self):
    page = send(200, b'{"records": [], "next": "3"}')
    self.endpoint.trouble = [page, page, page]
    with self.assertRaisesRegex(FeedError, "page after '3' names itself"):
      self.poll()


class RunnerTests:
  """The pipeline, while the endpoint grows and has trouble."""
  def run_to_the_end(self, **kwargs):
    endpoint = Endpoint(self)
    endpoint.add(1, 2, 3, 4)
    endpoint.add(5, customer='jones')
    # Two polls with two pages each; then trouble of each kind; then more.
    endpoint.trouble = [
        None,
        None,
        None,
        send(429, Retry_After='0.3'),
        hang_up,
        send(503, Retry_After='0'),
        None,
        None
    ]

    def after_request(number):
      if number == 6:
        endpoint.add(6, 7, customer='jones')
        endpoint.add(11, 12)
        endpoint.complete_until_ms = 10000
      elif number > 12:
        endpoint.closed = True

    endpoint.after_request = after_request
    before = watch_http._RETRY_SECONDS
    self.addCleanup(setattr, watch_http, '_RETRY_SECONDS', before)
    watch_http._RETRY_SECONDS = 0.1
    pipeline = self.pipeline(**kwargs)
    counts = watch_http.count_orders(
        pipeline | beam.Create([endpoint.url]), 0.1, 10)
    assert_that(
        counts,
        equal_to([
            ('smith', 0, 4, 100),
            ('jones', 0, 3, 180),
            ('smith', 10, 2, 230),
        ]))
    result = pipeline.run()
    result.wait_until_finish()
    retries, = result.metrics().query(
        MetricsFilter().with_namespace(NAMESPACE).with_name(
            'retries_later'))['counters']
    return endpoint, retries.committed

  def test_each_order_once(self):
    endpoint, retries = self.run_to_the_end()
    self.assertEqual(3, retries)
    statuses = [status for _, status, _ in endpoint.log]
    self.assertEqual(3, statuses.count('trouble'))
    self.assertGreater(statuses.count(304), 2)


class FnApiRunnerTest(RunnerTests, unittest.TestCase):
  def pipeline(self, **kwargs):
    return beam.Pipeline(runner=fn_api_runner.FnApiRunner(**kwargs))

  def test_bundles_that_are_run_twice(self):
    """What a cursor in the PollFn would lose."""
    self.run_to_the_end(bundle_repeat=2)

  def test_an_answer_that_is_wrong_fails_the_job_by_name(self):
    endpoint = Endpoint(self)
    endpoint.trouble = [send(200, b'<html>')]
    with self.assertRaisesRegex(Exception, 'FeedError.*not a page.*<html>'):
      with self.pipeline() as pipeline:
        _ = pipeline | beam.Create([endpoint.url]) | watch_http.watch_orders()

  def test_as_a_person_runs_it(self):
    endpoint = Endpoint(self)
    endpoint.add(1, 2, 61)
    endpoint.closed = True
    done = subprocess.run([
        sys.executable, '-m', 'apache_beam.examples.watch_http',
        f'--url={endpoint.url}', '--poll_interval=0.1', '--runner=FnApiRunner'
    ],
                          capture_output=True,
                          text=True,
                          timeout=120,
                          check=False)
    self.assertEqual(0, done.returncode, done.stderr)
    self.assertEqual({"('smith', 0, 2, 30)", "('smith', 60, 1, 610)"},
                     set(done.stdout.splitlines()))


@needs_prism
class PrismTest(RunnerTests, unittest.TestCase):
  def pipeline(self):
    return prism_pipeline()


if __name__ == '__main__':
  unittest.main()
