#!/usr/bin/env python3
# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Measures the read of Redis Streams beside a plain loop of the client.

Each run is a process of its own, on a server of its own; the two take turns.
Writes redis_streams.md (a table) and redis_streams.jsonl (every run) into
--out. Progress goes to standard error, the verdicts to standard output.

Exit code: 0 all targets met (or --no-targets), 1 a target missed or a run
failed, 2 could not run, 130 interrupted.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import _driver
import _measured_process

_CASE_PROGRAM = pathlib.Path(__file__).with_name('_redis_streams_case.py')
MIN_SHARE = 0.6
WHATS = ('client', 'ours')
_START_SECONDS = 20


@dataclasses.dataclass(frozen=True)
class Case:
  """One run: what reads, how many entries, of how many bytes."""

  what: str
  entries: int
  bytes: int
  count: int
  cap: int

  def kind(self):
    return self.bytes, self.count, self.cap

  def label(self) -> str:
    return '%d bytes, COUNT %d, cap %d, %s ' % (
        self.bytes, self.count, self.cap, self.what)


def plan(entries, repeats) -> list[Case]:
  """All runs, in the order in which they are made."""
  kinds = ((20, 1000, 10_000), (20, 1000, 1000), (20, 100, 10_000),
           (1000, 1000, 10_000))
  return [
      Case(what, entries, size, count, cap)
      for _ in range(repeats)
      for size, count, cap in kinds
      for what in WHATS
  ]


@contextlib.contextmanager
def server(program):
  """A Redis server without persistence; gives its port."""
  with socket.create_server(('127.0.0.1', 0)) as free:
    port = free.getsockname()[1]
  with tempfile.TemporaryDirectory() as folder:
    process = subprocess.Popen(
        [
            program, '--port', str(port), '--bind', '127.0.0.1', '--dir',
            folder, '--save', '', '--appendonly', 'no'
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL)
    try:
      deadline = time.monotonic() + _START_SECONDS
      while True:
        try:
          socket.create_connection(('127.0.0.1', port), 1).close()
          break
        except OSError:
          if process.poll() is not None or time.monotonic() > deadline:
            raise _driver.CannotRun('%s does not start' % program)
          time.sleep(0.02)
      yield port
    finally:
      process.kill()
      process.wait()


def run_case(case, python, program, timeout_s):
  """Measures `case`; returns it and its figures as one flat record."""
  with server(program) as port:
    request = dict(dataclasses.asdict(case), port=port)
    figures = _measured_process.measure(
        [str(python), str(_CASE_PROGRAM), json.dumps(request)], timeout_s)
  return dict(dataclasses.asdict(case), **figures)


def rates(records):
  """Median entries per CPU second, by kind and by what reads."""
  found = {}
  for record in records:
    case = Case(**{
        field.name: record[field.name] for field in dataclasses.fields(Case)
    })
    found.setdefault(case.kind(), {}).setdefault(case.what, []).append(
        record['entries_per_cpu_s'])
  return {
      kind: {what: statistics.median(runs) for what, runs in by_what.items()}
      for kind, by_what in found.items()
  }


def markdown(records, about) -> str:
  lines = [
      '# Reading Redis Streams', '',
      'Written by `./beamstack bench redis` on %(date)s: %(machine)s; Python '
      '%(python)s, redis %(redis)s without hiredis, Beam %(beam)s.' % about, '',
      'Thousands of entries per CPU second of the Python process, medians of '
      '%d runs that took turns. The client is a loop of `xreadgroup` and '
      '`xack` with the same COUNT; ours is `ReadFromRedisStreams` on '
      'FnApiRunner with a DoFn behind it that does what the loop does. Bytes '
      'are those of one field of an entry; cap is `max_records_per_bundle`.' %
      about['repeats'], '',
      '| bytes | COUNT | cap | client | ours | ours / client |',
      '|---:|---:|---:|---:|---:|---:|'
  ]
  for (size, count, cap), rate in rates(records).items():
    lines.append(
        '| %d | %s | %s | %.1f | %.1f | %.0f %% |' % (
            size, format(count, ','), format(cap, ','), rate['client'] / 1000,
            rate['ours'] / 1000, 100 * rate['ours'] / rate['client']))
  lines += [
      '', 'The target is %.0f %%. Each run fails unless every entry arrives '
      'once. Acknowledging is within the measured time, but for the last '
      'bundle of ours.' % (100 * MIN_SHARE), ''
  ]
  return '\n'.join(lines)


def verdicts(records):
  """(line, whether it was met) for each kind."""
  found = []
  for (size, count, cap), rate in rates(records).items():
    share = rate['ours'] / rate['client']
    met = share >= MIN_SHARE
    target = '%d bytes, COUNT %d, cap %d: at least %.0f %% of the client ' % (
        size, count, cap, 100 * MIN_SHARE)
    found.append((
        '%s %s %.0f %%' %
        (target.ljust(62, '.'), 'ok    ' if met else 'MISSED', 100 * share),
        met))
  return found


def parse(arguments):
  parser = argparse.ArgumentParser(
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument(
      '--ours',
      required=True,
      metavar='PYTHON',
      help='has the dev wheel, and the package redis')
  parser.add_argument(
      '--redis-server', default='redis-server', metavar='PROGRAM')
  parser.add_argument(
      '--out', type=pathlib.Path, required=True, metavar='FOLDER')
  parser.add_argument(
      '--entries', type=int, default=200_000, metavar='N', help='a run')
  parser.add_argument('--repeats', type=int, default=3, metavar='R')
  parser.add_argument('--timeout', type=int, default=300, metavar='SECONDS')
  parser.add_argument(
      '--no-targets',
      action='store_true',
      help='only measure: a missed target does not fail the run')
  options = parser.parse_args(arguments)
  for name in ('entries', 'repeats', 'timeout'):
    if getattr(options, name) < 1:
      parser.error('--%s must be 1 or more' % name)
  return options


def bench(options) -> int:
  python = _driver.executable('--ours', options.ours)
  program = shutil.which(options.redis_server)
  if not program:
    raise _driver.CannotRun(
        '--redis-server=%s: no such program; apt-get install redis-server' %
        options.redis_server)
  cases = plan(options.entries, options.repeats)
  records = []
  with _driver.results(options.out / 'redis_streams.jsonl') as write:
    for index, case in enumerate(cases):
      sys.stderr.write(
          '[%*d/%d] %s ' % (
              len(str(len(cases))),
              index + 1,
              len(cases),
              case.label().ljust(48, '.')))
      sys.stderr.flush()
      record = run_case(case, python, program, options.timeout)
      sys.stderr.write('%.1f k/CPU s\n' % (record['entries_per_cpu_s'] / 1000))
      records.append(record)
      write(record)
  about = dict(
      date=datetime.date.today().isoformat(),
      machine=_driver.machine(),
      repeats=options.repeats,
      **{name: records[0][name] for name in ('python', 'redis')},
      beam=next(r['beam'] for r in records if r['what'] == 'ours'))
  (options.out / 'redis_streams.md').write_text(markdown(records, about))
  return _driver.tell(verdicts(records), options.no_targets)


def main(arguments=None) -> int:
  return _driver.run('redis_streams.py', bench, parse(arguments))


if __name__ == '__main__':
  sys.exit(main())
