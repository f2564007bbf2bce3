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


"""Watches HTTP endpoints that list records, and counts the orders they list.

Made to be copied: ``HttpFeed`` turns an API with pages into an exact unbounded
input. To poll another API keep the shape and change ``_parse_page``::

  python -m apache_beam.examples.watch_http \\
      --url=http://localhost:8080/orders --runner=PrismRunner

The endpoint answers ``GET /orders?after=CURSOR`` with a page::

  {"records": [{"id": 7, "customer": "smith", "cents": 250,
                "time_ms": 1700000000000}, ...],
   "next": "7",                    # the cursor of the next page; null: none
   "complete_until_ms": 17000...,  # all older orders are listed; may be absent
   "closed": false}                # true: there will never be more

and an ``ETag``. What keeps which promise:

==========================  ==================================================
no order is lost            a poll lists all pages, from the first, and keeps
                            nothing that a later poll depends on; see below
no order is counted twice   ``Watch`` remembers the ids, with the job's state
windows close in time       ``complete_until_ms`` becomes the watermark
a poll is cheap             the ETag of each page is sent along: a page that is
                            as it was comes back as 304, without a body
trouble passes by           429, 5xx and lost connections become RetryLater
==========================  ==================================================

Do not keep the cursor of the last page in the ``PollFn`` to begin there the
next time. If the bundle fails after the poll, its outputs are thrown away, and
the retry would begin behind them: these orders would be lost. What an ETag
saves is safe to keep, for it changes what is transferred and not what a poll
returns.
"""

import argparse
import email.utils
import http.client
import json
import logging
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any
from typing import NamedTuple
from typing import Optional

import apache_beam as beam
from apache_beam import coders
from apache_beam.io.unbounded_source import RetryLater
from apache_beam.io.watch import PollFn
from apache_beam.io.watch import PollResult
from apache_beam.io.watch import Watch
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.transforms.window import FixedWindows
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

# How long to wait where the server does not say, and at most if it does: one
# that asks for a year is mistaken.
_RETRY_SECONDS = 5.0
_MAX_RETRY_SECONDS = 600.0

# So many pages are kept with their ETags; of others the body is sent again.
_MAX_CACHED_PAGES = 1000


class Order(NamedTuple):
  """One record of the endpoint."""
  order_id: int
  customer: str
  cents: int


# A schema coder, not pickle: what waits in the state of the job is readable by
# the next version of this program.
coders.registry.register_coder(Order, coders.RowCoder)


class Page(NamedTuple):
  """What one request gave."""
  orders: tuple[TimestampedValue, ...]
  next: Optional[str]
  complete_until: Optional[Timestamp]
  closed: bool


class FeedError(RuntimeError):
  """The endpoint answered what no waiting will mend."""


class HttpFeed(PollFn):
  """Lists the orders of an endpoint; the input is its URL.

  Args:
    timeout: seconds for each request. Without one, a server that falls silent
      would stop the watch for ever.
  """
  def __init__(self, timeout: float = 10.0) -> None:
    self._timeout = timeout
    self._forget()

  # A PollFn is pickled with the pipeline. Locks cannot be, and pages of the
  # submitting process are of no use on a worker.
  def __getstate__(self) -> dict[str, Any]:
    return {'_timeout': self._timeout}

  def __setstate__(self, state: dict[str, Any]) -> None:
    self._timeout = state['_timeout']
    self._forget()

  def _forget(self) -> None:
    # Several inputs may be polled at once, by several threads.
    self._lock = threading.Lock()
    self._cached: dict[str, tuple[str, Page]] = {}

  # The annotation gives Watch the coder of the orders.
  def __call__(self, url: str) -> PollResult[Order]:
    orders: list[TimestampedValue] = []
    cursor = None
    while True:
      page = self._page(_with_cursor(url, cursor))
      orders += page.orders
      if page.next is None:
        break
      if page.next == cursor:
        raise FeedError(
            f'{url}: the page after {cursor!r} names itself as the next.')
      cursor = page.next
    if page.closed:
      return PollResult.complete(orders)
    result = PollResult.incomplete(orders)
    if page.complete_until is not None:
      result = result.with_watermark(page.complete_until)
    return result

  def _page(self, url: str) -> Page:
    with self._lock:
      etag, cached = self._cached.get(url, (None, None))
    request = urllib.request.Request(
        url, headers={'Accept': 'application/json'})
    if etag is not None:
      request.add_header('If-None-Match', etag)
    try:
      with urllib.request.urlopen(request, timeout=self._timeout) as answer:
        body = answer.read()
        etag = answer.headers['ETag']
    except urllib.error.HTTPError as exc:
      with exc:
        if exc.code == 304 and cached is not None:
          return cached
        raise _trouble(url, exc) from exc
    except (OSError, http.client.HTTPException) as exc:
      # Refused, reset, timed out, ended in the middle: the server restarts, or
      # the network has a hiccup. URLError is an OSError.
      raise RetryLater(_RETRY_SECONDS, f'{url}: {exc!r}') from exc
    page = _parse_page(url, body)
    if etag is not None:
      with self._lock:
        self._cached.pop(url, None)
        self._cached[url] = etag, page
        if len(self._cached) > _MAX_CACHED_PAGES:
          del self._cached[next(iter(self._cached))]
    return page


def _with_cursor(url: str, cursor: Optional[str]) -> str:
  if cursor is None:
    return url
  joint = '&' if urllib.parse.urlsplit(url).query else '?'
  return f'{url}{joint}{urllib.parse.urlencode({"after": cursor})}'


def _trouble(url: str, error: urllib.error.HTTPError) -> Exception:
  """What to raise for an answer that is not a page."""
  what = f'{url}: {error.code} {error.reason}'
  if error.code in (408, 429) or error.code >= 500:
    return RetryLater(retry_seconds(error.headers['Retry-After']), what)
  # 401, 404 and the like: somebody has to look.
  return FeedError(what)


def retry_seconds(retry_after: Optional[str]) -> float:
  """Seconds to wait, of a header that has seconds or a date."""
  try:
    seconds = float(retry_after)
  except (TypeError, ValueError):
    try:
      date = email.utils.parsedate_to_datetime(retry_after)
      seconds = date.timestamp() - time.time()
    except (TypeError, ValueError):
      return _RETRY_SECONDS
  if seconds != seconds:  # Not a number.
    return _RETRY_SECONDS
  return min(max(seconds, 0.0), _MAX_RETRY_SECONDS)


def _parse_page(url: str, body: bytes) -> Page:
  """This is the part to change for another API."""
  try:
    content = json.loads(body)
    until = content.get('complete_until_ms')
    return Page(
        tuple(
            TimestampedValue(
                Order(
                    int(record['id']),
                    str(record['customer']),
                    int(record['cents'])),
                _timestamp(record['time_ms']))
            for record in content['records']),
        None if content.get('next') is None else str(content['next']),
        None if until is None else _timestamp(until),
        bool(content.get('closed', False)))
  except (AttributeError, KeyError, TypeError, ValueError) as exc:
    # Not RetryLater: nobody would notice that nothing comes any more. As it is,
    # the bundle fails, with this in the log, and the runner retries.
    raise FeedError(
        f'{url}: this is not a page of orders ({exc!r}): '
        f'{body[:200]!r}') from exc


def _timestamp(millis: Any) -> Timestamp:
  return Timestamp(micros=int(millis) * 1000)


def order_id(order: Order) -> int:
  return order.order_id


def watch_orders(poll_interval: float = 10.0) -> Watch:
  """From URLs to pairs of a URL and an order, each once for each URL.

  ``output_key_fn``: an order is its id. If its amount is corrected later, it is
  not given again; return the pair of id and version where it should be.
  Where a feed is never closed and has millions of orders, add
  ``timestamp_cursor=True`` and an ``allowed_lateness``, and the ids of old ones
  are forgotten.
  """
  return Watch(HttpFeed(), poll_interval, output_key_fn=order_id)


def count_orders(urls, poll_interval: float = 10.0, window: int = 60):
  """From URLs to (customer, start of the window, number, cents)."""
  return (
      urls
      | 'Orders' >> watch_orders(poll_interval)
      | 'Window' >> beam.WindowInto(FixedWindows(window))
      | 'ByCustomer' >> beam.MapTuple(
          lambda url, order: (order.customer, order.cents))
      | beam.GroupByKey()
      | 'Count' >> beam.MapTuple(_count))


def _count(customer, cents, window=beam.DoFn.WindowParam):
  cents = list(cents)
  return customer, int(window.start), len(cents), sum(cents)


def run(argv=None) -> None:
  parser = argparse.ArgumentParser(
      description=__doc__.splitlines()[0],
      epilog='Other options are those of the pipeline.')
  parser.add_argument(
      '--url', action='append', required=True, help='may be given repeatedly')
  parser.add_argument('--poll_interval', type=float, default=10.0)
  parser.add_argument('--window', type=int, default=60, help='seconds')
  known, others = parser.parse_known_args(argv)
  options = PipelineOptions(others)
  options.view_as(StandardOptions).streaming = True
  with beam.Pipeline(options=options) as pipeline:
    _ = (
        count_orders(
            pipeline | beam.Create(known.url),
            known.poll_interval,
            known.window)
        | beam.Map(print))


if __name__ == '__main__':
  logging.basicConfig(level=logging.INFO)
  run()
