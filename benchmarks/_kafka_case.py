# Licensed under the Apache License, Version 2.0: see LICENSE.
"""One measured consumption of a topic, in a process of its own.

usage: _kafka_case.py CASE      (a JSON object: see kafka.Case)

Prints one line, `RESULT {json}`, if exactly what was produced has arrived. It
ends itself and Prism when its standard input ends, that is, when the driver is
gone.
"""

import json
import logging
import os
import signal
import sys
import threading
import time

import apache_beam as beam
import confluent_kafka
from apache_beam.io import kafka_native
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.utils.timestamp import MAX_TIMESTAMP


class Count:
  """What has arrived, and the clocks at the first and the last of it."""

  records = 0
  total = 0
  begun = None
  ended = None

  @classmethod
  def begin(cls):
    if cls.begun is None:
      cls.begun = (time.monotonic(), time.process_time())

  @classmethod
  def end(cls):
    cls.ended = (time.monotonic(), time.process_time())


def client(case, every_field):
  """A loop over the client library, as one would write it by hand."""
  Count.begin()
  consumer = confluent_kafka.Consumer({
      'bootstrap.servers': case['address'],
      'group.id': 'benchmark',
      'enable.auto.commit': False,
      'auto.offset.reset': 'error',
  })
  consumer.assign([
      confluent_kafka.TopicPartition(case['topic'], partition, 0)
      for partition in range(case['partitions'])
  ])
  records = total = 0
  while records < case['records']:
    for message in consumer.consume(500, timeout=1):
      if message.error():
        raise RuntimeError(message.error())
      message.timestamp()
      if every_field:
        message.topic()
        message.partition()
        message.offset()
        message.key()
        message.headers()
      records += 1
      total += len(message.value())
  Count.records, Count.total = records, total
  Count.end()
  consumer.close()


class EndingSource(kafka_native.KafkaSource):
  """Ends when the last record has been read."""
  def __init__(self, case):
    super().__init__(case['address'], case['topic'], num_splits=1)
    self._end = case['records']

  def create_reader(self, options, checkpoint_mark):
    reader = super().create_reader(options, checkpoint_mark)
    watermark = reader.get_watermark

    def get_watermark():
      done = sum(p.position for p in reader._partitions) >= self._end
      return MAX_TIMESTAMP if done else watermark()

    reader.get_watermark = get_watermark
    return reader


def reader(case):
  """The source's reader, asked as the pipeline asks it."""
  Count.begin()
  source = EndingSource(case)
  coder = source.get_checkpoint_mark_coder()
  one = source.create_reader(None, None)
  records = total = 0
  more = one.start()
  while records < case['records']:
    if more:
      one.get_current_timestamp()
      total += len(one.get_current().value)
      records += 1
      if records % 150 == 0:
        coder.encode(one.get_checkpoint_mark())
        one.get_watermark()
    else:
      time.sleep(0.001)
    more = one.advance()
  Count.records, Count.total = records, total
  Count.end()
  one.close()


class Sink(beam.DoFn):
  def __init__(self, records):
    self._records = records

  def process(self, record):
    Count.records += 1
    Count.total += len(record.value)
    if Count.records == self._records:
      Count.end()


def pipeline(case):
  """The source in a pipeline."""
  options = ['--runner=FnApiRunner']
  if case['what'] == 'prism':
    options = [
        '--runner=PrismRunner', '--prism_location=' + case['prism'],
        '--environment_type=LOOPBACK'
    ]
  source = EndingSource(case)
  start = kafka_native.KafkaReader.start

  def begin_and_start(self):
    Count.begin()
    return start(self)

  kafka_native.KafkaReader.start = begin_and_start
  p = beam.Pipeline(options=PipelineOptions(options))
  _ = (
      p
      | beam.io.Read(source)
      | beam.ParDo(Sink(case['records'])))
  p.run().wait_until_finish()


def run(case):
  what = case['what']
  if what in ('client', 'client-fields'):
    client(case, what == 'client-fields')
  elif what == 'reader':
    reader(case)
  else:
    pipeline(case)
  expected = (case['records'], case['records'] * case['size'])
  if (Count.records, Count.total) != expected:
    raise SystemExit(
        '%d records of %d bytes arrived, not %d of %d' %
        (Count.records, Count.total, *expected))
  wall, cpu = (
      last - first for first, last in zip(Count.begun, Count.ended))
  return {
      'wall_s': round(wall, 4),
      'cpu_s': round(cpu, 4),
      'records_per_wall_s': round(case['records'] / wall),
      'records_per_cpu_s': round(case['records'] / cpu),
      'max_rss_mb': peak_memory_mb(),
      'client': '%s, librdkafka %s' % (
          confluent_kafka.version(), confluent_kafka.libversion()[0]),
  }


def peak_memory_mb():
  # Not from getrusage(): that begins with what the driver had when it forked.
  with open('/proc/self/status') as status:
    for line in status:
      if line.startswith('VmHWM:'):
        return round(int(line.split()[1]) / 1000)
  return 0


def _die_with_driver():
  sys.stdin.read()
  os.killpg(0, signal.SIGKILL)


def main():
  case = json.loads(sys.argv[1])
  if not sys.stdin.isatty():
    threading.Thread(target=_die_with_driver, daemon=True).start()
  logging.getLogger().setLevel(logging.ERROR)
  print('RESULT ' + json.dumps(run(case)), flush=True)


if __name__ == '__main__':
  main()
