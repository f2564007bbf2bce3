# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Measures how fast Kafka is read, beside a plain loop over the client.

usage: kafka.py --ours PYTHON --prism BINARY --classpath JARS --out FOLDER

Starts a broker, fills a topic for each kind of records, and has processes read
it one after another: the client's own loop, the same taking every field, the
source's reader alone, and pipelines on FnApiRunner and Prism. All begin anew in
each round. Writes kafka.jsonl and kafka.md to FOLDER.

Exit codes: 0 done, 1 a run failed, 2 could not run, 130 interrupted.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import statistics
import sys
import time

import _driver
import _measured_process

_CASE_PROGRAM = pathlib.Path(__file__).with_name('_kafka_case.py')
PARTITIONS = 4
WHATS = {
    'client': 'the client\'s loop',
    'client-fields': 'the same, every field taken',
    'reader': 'the reader alone',
    'fnapi': 'a pipeline on FnApiRunner',
    'prism': 'a pipeline on Prism',
}
# What the issue asked for, of the client's rate per CPU second.
AIM = 0.6


@dataclasses.dataclass(frozen=True)
class Kind:
  """A kind of records."""

  name: str
  size: int
  compression: str
  records: int


KINDS = (
    Kind('100 bytes', 100, 'none', 600_000),
    Kind('1,000 bytes, lz4', 1000, 'lz4', 300_000),
    Kind('10,000 bytes, zstd', 10_000, 'zstd', 60_000),
)


@dataclasses.dataclass(frozen=True)
class Case:
  """One run to make."""

  what: str
  kind: str
  size: int
  records: int
  topic: str
  address: str
  prism: str
  partitions: int = PARTITIONS


def fill(broker, kind: Kind, records: int) -> str:
  """Makes a topic of so many records; returns its name."""
  topic = broker.topic(PARTITIONS)
  # Compresses about as well as text does.
  text = json.dumps({'user': 'someone', 'n': 1, 'text': 'quick brown fox'})
  value = ((text + os.urandom(20).hex()) * (kind.size // 80 + 1)).encode()
  value = value[:kind.size]
  with broker.producer(
      linger_ms=20,
      batch_size=200_000,
      compression_type=kind.compression) as producer:
    for n in range(records):
      while True:
        try:
          producer.produce(
              topic, value, b'key-%d' % (n % 1000), partition=n % PARTITIONS)
          break
        except BufferError:
          producer.poll(0.1)
  return topic


def summary(runs: list[dict]) -> dict[tuple[str, str], dict]:
  """The medians of each kind and what was measured."""
  found = {}
  for key in dict.fromkeys((run['kind'], run['what']) for run in runs):
    own = [run for run in runs if (run['kind'], run['what']) == key]
    found[key] = {
        figure: statistics.median(run[figure] for run in own)
        for figure in (
            'records_per_cpu_s', 'records_per_wall_s', 'max_rss_mb')
    }
  return found


def markdown(runs: list[dict], about: dict[str, str]) -> str:
  """The page of results."""
  medians = summary(runs)
  repeats = max(
      sum((r['kind'], r['what']) == key for r in runs) for key in medians)
  lines = [
      '# Reading Kafka',
      '',
      'Written by `./beamstack bench kafka`; see [how](../README.md#kafka).',
      f'Medians of {repeats} interleaved runs on {about["date"]}: '
      f'{about["machine"]}; broker and client share it. Client library '
      f'{runs[0]["client"]}. {PARTITIONS} partitions, one consumer.',
  ]
  for kind in dict.fromkeys(run['kind'] for run in runs):
    client = medians[kind, 'client']['records_per_cpu_s']
    lines += [
        '',
        f'## {kind}',
        '',
        '| | thousand records per CPU second | of the client\'s loop '
        '| thousand per second | peak memory, MB |',
        '|---|---:|---:|---:|---:|',
    ]
    for what, name in WHATS.items():
      figures = medians.get((kind, what))
      if figures is None:
        continue
      lines.append(
          '| %s | %s | %d %% | %s | %d |' % (
              name,
              format(round(figures['records_per_cpu_s'] / 1000), ','),
              round(100 * figures['records_per_cpu_s'] / client),
              format(round(figures['records_per_wall_s'] / 1000), ','),
              figures['max_rss_mb']))
  return '\n'.join(lines) + '\n'


def verdicts(runs: list[dict]) -> list[str]:
  """How the aim was met, for people."""
  medians = summary(runs)
  lines = []
  for (kind, what), figures in medians.items():
    if what not in ('fnapi', 'prism'):
      continue
    share = (
        figures['records_per_cpu_s'] /
        medians[kind, 'client']['records_per_cpu_s'])
    lines.append(
        '%s, %s: %d %% of the client\'s rate per CPU second (aim: %d %%)' %
        (kind, WHATS[what], round(100 * share), round(100 * AIM)))
  return lines


def parse(arguments=None):
  parser = argparse.ArgumentParser(
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument(
      '--ours', required=True, metavar='PYTHON', help='has the dev wheel')
  parser.add_argument(
      '--prism', required=True, metavar='BINARY', help='for pipelines on it')
  parser.add_argument(
      '--classpath',
      required=True,
      metavar='JARS',
      help='of org.apache.kafka:kafka_2.13')
  parser.add_argument(
      '--out', type=pathlib.Path, required=True, metavar='FOLDER')
  parser.add_argument(
      '--repeats', type=int, default=3, metavar='R', help='default: 3')
  parser.add_argument(
      '--timeout',
      type=int,
      default=300,
      metavar='SECONDS',
      help='for one run (default: 300)')
  parser.add_argument(
      '--quick',
      action='store_true',
      help='a tenth of the records, one round: to see that it works')
  return parser.parse_args(arguments)


def measure(options, broker, write) -> list[dict]:
  topics = {}
  for kind in KINDS:
    records = kind.records // (10 if options.quick else 1)
    print('filling a topic: %s' % kind.name, file=sys.stderr)
    topics[kind] = (fill(broker, kind, records), records)
  cases = [
      Case(
          what,
          kind.name,
          kind.size,
          topics[kind][1],
          topics[kind][0],
          broker.address,
          options.prism)
      for _ in range(1 if options.quick else options.repeats) for kind in KINDS
      for what in WHATS
  ]
  runs = []
  for number, case in enumerate(cases):
    begun = time.monotonic()
    figures = _measured_process.measure(
        [options.ours, str(_CASE_PROGRAM), json.dumps(dataclasses.asdict(case))
         ],
        options.timeout)
    runs.append({'what': case.what, 'kind': case.kind, **figures})
    write(runs[-1])
    print(
        '[%d/%d] %s, %s: %d k/CPU s, %.0f s' % (
            number + 1,
            len(cases),
            case.kind,
            WHATS[case.what],
            figures['records_per_cpu_s'] / 1000,
            time.monotonic() - begun),
        file=sys.stderr)
  return runs


def bench(options) -> int:
  os.environ['KAFKA_CLASSPATH'] = options.classpath
  try:
    # Only now: it reads the variable.
    from apache_beam.io import _kafka_testing
  except ImportError as problem:
    raise _driver.CannotRun(str(problem)) from problem
  try:
    broker = _kafka_testing.Broker()
  except (FileNotFoundError, RuntimeError) as problem:
    raise _driver.CannotRun(str(problem)) from problem
  try:
    with _driver.results(options.out / 'kafka.jsonl') as write:
      runs = measure(options, broker, write)
  finally:
    broker.stop()
  about = {
      'date': datetime.date.today().isoformat(), 'machine': _driver.machine()
  }
  (options.out / 'kafka.md').write_text(markdown(runs, about))
  for line in verdicts(runs):
    print(line)
  return 0


def main(arguments=None) -> int:
  return _driver.run('kafka.py', bench, parse(arguments))


if __name__ == '__main__':
  sys.exit(main())
