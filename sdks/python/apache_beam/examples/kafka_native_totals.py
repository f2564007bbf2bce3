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

"""Adds up orders of a Kafka topic by customer and window, into another topic.

Made to be copied: it reads and writes Kafka from Python alone. An order is JSON
such as ``{"customer": "ada", "cents": 1250}``; what cannot be read as one goes
to a third topic, and the pipeline goes on::

  pip install confluent-kafka
  python -m apache_beam.examples.kafka_native_totals \\
      --bootstrap-servers=broker:9092 --orders=orders --totals=totals \\
      --rejected=rejected --group=totals-beam --runner=PrismRunner

The three topics must exist. Passwords and certificates belong into a file, not
on the command line, which others can see: ``--client-options=client.json``
names a JSON object of options by their names in librdkafka, such as
``{"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
"sasl.username": "beam", "sasl.password": "…"}``.

What to think about, and where it is in the code:

=============================  ===============================================
where a new job begins         ``start`` in ``build``: only for a job without
                               a checkpoint
which time counts              ``event_time`` in ``build``
when a window closes           once no record before its end is expected: idle
                               partitions do not hold it up, a backlog does
poison                         ``ParseOrder`` sets aside what it cannot read;
                               an exception would stop the pipeline there
writing once                   a bundle may be tried again, so ``WriteToKafka``
                               may write a line twice: with the same key, and
                               a compacted topic keeps the last
=============================  ===============================================
"""

import argparse
import json
import logging
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import apache_beam as beam
from apache_beam import coders
from apache_beam.io.kafka_native import CreateTime
from apache_beam.io.kafka_native import KafkaRecord
from apache_beam.io.kafka_native import ReadFromKafkaNative
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.transforms.window import FixedWindows

_REJECTED = 'rejected'


class Order(NamedTuple):
  """What the pipeline needs of an order."""
  customer: str
  cents: int


class Line(NamedTuple):
  """A record to write."""
  key: bytes | None
  value: bytes | None


# Schema coders, not pickle, for what crosses a shuffle.
coders.registry.register_coder(Order, coders.RowCoder)
coders.registry.register_coder(Line, coders.RowCoder)


class ParseOrder(beam.DoFn):
  """Orders; and as `rejected` the lines that are none, with where they lay.

  Nothing is dropped in silence: what is set aside is written and counted.
  """
  def __init__(self):
    self._rejected = Metrics.counter(ParseOrder, 'rejected')

  def process(self, record: KafkaRecord) -> Iterable[Any]:
    try:
      content = json.loads(record.value)
      order = Order(str(content['customer']), int(content['cents']))
    # A value of None (a tombstone), no JSON, no such fields.
    except (TypeError, ValueError, KeyError) as e:
      self._rejected.inc()
      why = json.dumps({
          'where': f'{record.topic}-{record.partition}@{record.offset}',
          'why': repr(e)
      })
      yield beam.pvalue.TaggedOutput(_REJECTED, Line(record.key, why.encode()))
      return
    yield order


class FormatTotal(beam.DoFn):
  """A line for each customer and window."""
  def process(
      self,
      total: tuple[str, int],
      window=beam.DoFn.WindowParam) -> Iterable[Line]:
    customer, cents = total
    start = window.start.to_utc_datetime().isoformat()
    # One key for a customer and window, however often it is written.
    yield Line(
        json.dumps([customer, start]).encode(),
        json.dumps({
            'customer': customer, 'window': start, 'cents': cents
        }).encode())


class WriteToKafka(beam.DoFn):
  """Writes lines; a bundle is done when the brokers have all of its lines.

  Args:
    client: settings of the client.
    topic: where to write.
  """
  def __init__(self, client: Mapping[str, Any], topic: str):
    self._client = dict(client)
    self._topic = topic

  def setup(self):
    # Here, not at the top: the pipeline can be described without the library.
    import confluent_kafka
    self._producer = confluent_kafka.Producer({
        **self._client,
        # Retries within the client do not write twice, nor change the order.
        'enable.idempotence': True,
        'linger.ms': 20,
    })

  def start_bundle(self):
    self._failed = []

  def _delivered(self, error, unused_message):
    if error is not None:
      self._failed.append(error)

  def process(self, line: Line) -> None:
    while True:
      try:
        self._producer.produce(
            self._topic, line.value, line.key, on_delivery=self._delivered)
        break
      except BufferError:
        # The client's buffer is full: wait until the brokers took some.
        self._producer.poll(0.5)
    self._producer.poll(0)

  def finish_bundle(self):
    # Only after this may the runner commit the bundle, and forget what the
    # lines were made of: so wait, and fail if any was not taken.
    left = self._producer.flush(60)
    if left or self._failed:
      raise RuntimeError(
          f'{left + len(self._failed)} lines for {self._topic} were not '
          f'written: {self._failed[:1] or "no answer from the brokers"}. The '
          'runner tries the bundle again.')


def build(
    pipeline: beam.Pipeline,
    bootstrap_servers: str,
    orders: str,
    totals: str,
    rejected: str,
    group: str | None,
    window_seconds: float,
    client_options: Mapping[str, Any]) -> None:
  """Applies the example's transforms."""
  parsed = (
      pipeline
      | 'ReadOrders' >> ReadFromKafkaNative(
          bootstrap_servers,
          orders,
          # Offsets are committed to it for monitoring; the pipeline itself
          # goes on from its checkpoint.
          group_id=group,
          # A new job without a checkpoint begins where the last one had
          # committed, or at the earliest record if there was none. Drain the
          # last one first: what it held in open windows goes with it.
          start='earliest' if group is None else 'committed',
          # An order counts when it was made. Up to five seconds may pass until
          # its producer has written it; later ones can be too late for their
          # window.
          event_time=CreateTime(max_delay_seconds=5),
          # Records that expired unread are missed: better stop than add up
          # too little.
          on_expired_offset='fail',
          consumer_config=client_options)
      | 'Parse' >> beam.ParDo(ParseOrder()).with_outputs(
          _REJECTED, main='orders'))

  client = {**client_options, 'bootstrap.servers': bootstrap_servers}
  _ = (
      parsed['orders']
      | 'Window' >> beam.WindowInto(FixedWindows(window_seconds))
      | 'Key' >> beam.Map(lambda order: (order.customer, order.cents)
                          ).with_output_types(tuple[str, int])
      | 'AddUp' >> beam.CombinePerKey(sum)
      | 'Format' >> beam.ParDo(FormatTotal()).with_output_types(Line)
      | 'WriteTotals' >> beam.ParDo(WriteToKafka(client, totals)))
  _ = (
      parsed[_REJECTED]
      | 'WriteRejected' >> beam.ParDo(WriteToKafka(client, rejected)))


def run(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(
      description='Adds up orders of a Kafka topic by customer and window. '
      'Other options go to the pipeline.')
  parser.add_argument('--bootstrap-servers', required=True)
  parser.add_argument('--orders', required=True, help='the topic to read')
  parser.add_argument('--totals', required=True, help='the topic of the sums')
  parser.add_argument(
      '--rejected', required=True, help='the topic of what is no order')
  parser.add_argument('--group', help='the consumer group to commit offsets to')
  parser.add_argument('--window-seconds', type=float, default=60)
  parser.add_argument(
      '--client-options',
      metavar='FILE',
      help='a JSON object of options of the client, such as passwords')
  args, pipeline_args = parser.parse_known_args(argv)
  client_options = {}
  if args.client_options:
    with open(args.client_options, encoding='utf-8') as f:
      client_options = json.load(f)

  options = PipelineOptions(pipeline_args)
  # Some runners choose another mode of execution for it.
  options.view_as(StandardOptions).streaming = True
  with beam.Pipeline(options=options) as pipeline:
    build(
        pipeline,
        args.bootstrap_servers,
        args.orders,
        args.totals,
        args.rejected,
        args.group,
        args.window_seconds,
        client_options)


if __name__ == '__main__':
  logging.getLogger().setLevel(logging.WARNING)
  run()
