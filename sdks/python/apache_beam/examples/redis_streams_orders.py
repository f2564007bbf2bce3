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

"""Sums the orders of a Redis Stream per customer and window, as they come.

Made to be copied. The input is a stream of orders, written by any client::

  redis-cli XADD orders '*' customer alice cents 1250

The output are hashes, one for each window, in the same server::

  redis-cli HGETALL totals:2026-11-30T12:00:00+00:00

Run it with::

  python -m apache_beam.examples.redis_streams_orders \\
      --url=redis://localhost:6379/0 --runner=PrismRunner

A password comes from the variable ``REDIS_PASSWORD`` of the workers, and is
no part of the pipeline.

What keeps what:

=============================  ===============================================
no order is lost               Redis keeps an entry pending until it is
                               acknowledged; it is when the runner has
                               committed it. From then on the runner has it,
                               in the state of the windows: if the runner's
                               state is not durable (Prism, FnApiRunner), a
                               crash loses what is in open windows.
no order is summed twice       the pipeline's checkpoint says which of the
                               pending entries were output
a total is written as often    HSET of the same total changes nothing
as the runner likes
a bad order holds up nothing   it goes to another stream, to be looked at
=============================  ===============================================
"""

import argparse
import logging
import os
from collections.abc import Iterator
from typing import NamedTuple

import redis

import apache_beam as beam
from apache_beam import pvalue
from apache_beam.io.redisstreams import ReadFromRedisStreams
from apache_beam.io.redisstreams import RedisStreamEntry
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import FixedWindows

BAD = 'bad'


def password() -> str | None:
  """Called on the workers."""
  return os.environ.get('REDIS_PASSWORD')


class Order(NamedTuple):
  customer: str
  cents: int


class ParseOrder(beam.DoFn):
  """Gives orders; entries that are none go to the output ``bad``.

  To raise here would fail the bundle. The runner would try it again, and again:
  one bad entry would hold up the stream for ever.
  """
  def process(self, entry: RedisStreamEntry):
    try:
      yield Order(
          entry.fields[b'customer'].decode(), int(entry.fields[b'cents']))
    except (KeyError, ValueError) as exc:
      yield pvalue.TaggedOutput(BAD, (entry, repr(exc)))


class WithRedis(beam.DoFn):
  """A DoFn with a connection, which it opens on the worker."""
  def __init__(self, url: str) -> None:
    self._url = url

  def setup(self) -> None:
    self._client = redis.Redis.from_url(self._url, password=password())

  def teardown(self) -> None:
    self._client.close()


class KeepBadOrder(WithRedis):
  """Adds bad entries to a stream of their own, under the id that they had.

  So an entry that comes again is not added again: its id is not above the last.
  Trimmed to about the last 10,000, since nobody may ever look.
  """
  def __init__(self, url: str, stream: str) -> None:
    super().__init__(url)
    self._stream = stream

  def process(self, bad: tuple[RedisStreamEntry, str]) -> None:
    entry, reason = bad
    try:
      self._client.xadd(
          self._stream, {
              **entry.fields, b'reason': reason
          },
          id=entry.id,
          maxlen=10_000)
    except redis.ResponseError as exc:
      if 'equal or smaller' not in str(exc):
        raise


class WriteTotal(WithRedis):
  """Writes the sum of a customer in a window."""
  def process(
      self,
      total: tuple[str, int],
      window=beam.DoFn.WindowParam) -> Iterator[str]:
    customer, cents = total
    key = f'totals:{window.start.to_utc_datetime(has_tz=True).isoformat()}'
    self._client.hset(key, customer, cents)
    yield f'{key} {customer} {cents}'


class SumOrders(beam.PTransform):
  """From entries to totals in Redis; gives a line of text for each."""
  def __init__(self, url: str, stream: str, seconds: int) -> None:
    super().__init__()
    self._url = url
    self._stream = stream
    self._seconds = seconds

  def expand(self, entries):
    parsed = entries | beam.ParDo(ParseOrder()).with_outputs(
        BAD, main='orders')
    _ = parsed[BAD] | 'KeepBad' >> beam.ParDo(
        KeepBadOrder(self._url, self._stream + ':bad'))
    return (
        parsed.orders
        | beam.WindowInto(FixedWindows(self._seconds))
        | beam.Map(lambda order: (order.customer, order.cents))
        | beam.CombinePerKey(sum)
        | beam.ParDo(WriteTotal(self._url)))


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(
      description='Sums the orders of a Redis Stream.')
  parser.add_argument('--url', default='redis://localhost:6379/0')
  parser.add_argument('--stream', default='orders')
  parser.add_argument('--group', default='beam-totals')
  parser.add_argument(
      '--seconds', type=int, default=10, help='of a window (default: 10)')
  args, others = parser.parse_known_args(argv)
  with beam.Pipeline(options=PipelineOptions(others)) as p:
    _ = (
        p
        | ReadFromRedisStreams(
            args.url,
            args.stream,
            args.group,
            password=password if password() else None,
            # Two consumers share the stream. A customer's orders may then come
            # out of order, which a sum does not mind.
            num_splits=2,
            # An order is summed within this time of its arrival, and the
            # window's end.
            poll_interval=0.2,
            # These ids are made by the server, so its clock bounds them.
            idle_slack_seconds=1)
        | SumOrders(args.url, args.stream, args.seconds)
        | beam.Map(print))


if __name__ == '__main__':
  logging.getLogger().setLevel(logging.WARNING)
  main()
