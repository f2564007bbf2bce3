#!/usr/bin/env python3
# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Measures Flink with the released job server and with that of the series.

On a cluster of two TaskManagers: the size of checkpoints and the time that a
self-checkpoint takes, early and late in a job; the gap between polls against
the interval that was asked for; records per second; how the splits of a source
share two slots; how long a job pauses when its TaskManager is killed. Each run
is a process of its own, whose threads are the workers. Writes flink.md and
flink.jsonl (every run) into --out.

Exit code: 0 all targets met (or --no-targets), 1 a target missed or a run
failed, 2 could not run, 130 interrupted.
"""

import contextlib
import dataclasses
import json
import pathlib
import statistics
import sys
import tempfile

import _driver
import _measured_process
import _targets
from _targets import Verdict

sys.path.insert(
    0, str(pathlib.Path(__file__).resolve().parents[1] / 'stack'))

# pylint: disable=wrong-import-position
from beamstack import cluster as clusters
from beamstack import errors
from beamstack import flinkconf
# pylint: enable=wrong-import-position

_CASE_PROGRAM = pathlib.Path(__file__).with_name('_flink_case.py')
_NAMES = {'base': 'released', 'ours': 'ours'}
_BACKENDS = {'hashmap': 'heap', 'rocksdb': 'RocksDB'}
_INTERVALS = (0.5, 1.5)
_CAPS = (500, 10_000)
_SPLITS = (1, 2, 4)
# How long a record of a source that is divided takes to come: the splits of one
# subtask wait for each other's, whatever the processors do.
_PAUSE = 0.001
_GROWTH = 2.0
_GAP_SHARE = 0.1
_CASE_SECONDS = 600


@dataclasses.dataclass(frozen=True)
class Length:
  """How long to measure: seconds, self-checkpoints, and runs."""

  seconds: float = 10.0
  early: int = 100
  late: int = 800
  kills: int = 2


QUICK = Length(5.0, 30, 200, 1)


@dataclasses.dataclass(frozen=True)
class Case:
  """One run to make, on a cluster with a job server and a backend."""

  who: str
  backend: str
  what: str
  request: tuple

  def label(self) -> str:
    shown = ', '.join(
        '%s %s' % (name, value) for name, value in self.request
        if name in ('interval', 'cap', 'splits'))
    return '%s, %s, %s %s' % (
        _NAMES[self.who], _BACKENDS[self.backend], self.what, shown)


def plan(length) -> list[Case]:
  """All runs, in order; those on one cluster follow each other."""
  cases = []
  for backend in _BACKENDS:
    for who in _NAMES:

      def add(what, *, who=who, backend=backend, **request):
        cases.append(Case(who, backend, what, tuple(request.items())))

      add('state', early=length.early, late=length.late, seconds=400)
      if backend == 'hashmap':
        for interval in _INTERVALS:
          add('poll', interval=interval, seconds=length.seconds)
        for cap in _CAPS:
          add('rate', cap=cap, seconds=length.seconds, warm_up=5)
        for splits in _SPLITS:
          add(
              'rate', cap=100, splits=splits, pause=_PAUSE, parallelism=2,
              seconds=length.seconds, warm_up=5)
      if who == 'ours':
        for _ in range(length.kills):
          add('recovery')
  return cases


class Summary:
  """The figures of all runs, by what they measured."""
  def __init__(self, records):
    self.records = records

  def figures(self, who, backend, what, **request):
    return [
        record for record in self.records
        if (record['who'], record['backend'], record['what']) ==
        (who, backend, what) and
        all(record.get(name) == value for name, value in request.items())
    ]

  def figure(self, field, who, backend, what, **request):
    return statistics.median(
        record[field]
        for record in self.figures(who, backend, what, **request))

  def growth(self, who, backend, field):
    return (
        self.figure('late_' + field, who, backend, 'state') /
        self.figure('early_' + field, who, backend, 'state'))

  def rate(self, who, splits):
    return self.figure('per_s', who, 'hashmap', 'rate', splits=splits)

  def verdicts(self) -> list[Verdict]:
    verdicts = []
    for backend, name in _BACKENDS.items():
      for field, words in (('bytes', 'a checkpoint'),
                           ('gap_s', 'the time of a self-checkpoint')):
        growth = self.growth('ours', backend, field)
        verdicts.append(
            Verdict(
                '%s: %s grows by less than %g times' % (name, words, _GROWTH),
                '%.2f times' % growth,
                growth < _GROWTH))
    for interval in _INTERVALS:
      gap = self.figure('gap_s', 'ours', 'hashmap', 'poll', interval=interval)
      verdicts.append(
          Verdict(
              'asked every %g s, it polls within %.0f %% of that' %
              (interval, 100 * _GAP_SHARE),
              '%.3f s' % gap,
              abs(gap - interval) <= _GAP_SHARE * interval))
    ratio = self.rate('ours', 2) / self.rate('ours', 1)
    verdicts.append(
        Verdict(
            'two splits on two slots give 1.6 times the records of one',
            '%.2f times' % ratio,
            ratio >= 1.6))
    return verdicts


def table(head, rows) -> list[str]:
  lines = ['| %s |' % ' | '.join(head)]
  lines.append('|---|' + '---:|' * (len(head) - 1))
  lines += ['| %s |' % ' | '.join(row) for row in rows]
  return [*lines, '']


def markdown(summary, verdicts, about) -> str:
  lines = [
      '# Flink: results', '',
      'Written by `./beamstack bench flink` on %(date)s: %(machine)s; Flink '
      '1.19.3 with two TaskManagers of one slot and a checkpoint a second; the '
      'job server as released (2.70.0) and ours, both with Beam %(beam)s in '
      'Python; load %(load)s at the start and the end.%(note)s' % about, '',
      'What is measured, and how, is in [the README](../README.md). Every run '
      'is in `flink.jsonl`.', '', *_targets.section(verdicts)
  ]
  some = summary.figures('ours', 'hashmap', 'state')[0]
  lines += ['## Self-checkpoints', '']
  lines += table(
      ('job server, state', 'bytes after %d' % some['early'],
       'after %d' % some['late'], 'ms each after %d' % some['early'],
       'after %d' % some['late']),
      [('%s, %s' % (_NAMES[who], name), *(
          format(
              round(summary.figure(at + '_bytes', who, backend, 'state')), ',')
          for at in ('early', 'late')), *(
              '%.0f' %
              (1000 * summary.figure(at + '_gap_s', who, backend, 'state'))
              for at in ('early', 'late')))
       for backend, name in _BACKENDS.items() for who in _NAMES])
  lines += ['## Seconds between polls', '']
  lines += table(
      ('asked for', *_NAMES.values()),
      [('%g' % interval, *(
          '%.3f' %
          summary.figure('gap_s', who, 'hashmap', 'poll', interval=interval)
          for who in _NAMES)) for interval in _INTERVALS])
  lines += [
      '## Records per second', '',
      'A source in memory, in one stage; beside it, per CPU second of the '
      'process that submits the pipeline and has the workers.', ''
  ]
  lines += table(
      ('cap', 'released', 'ours', 'released, a CPU second',
       'ours, a CPU second'),
      [(format(cap, ','), *(
          format(
              round(summary.figure(field, who, 'hashmap', 'rate', cap=cap)),
              ',') for field in ('per_s', 'per_cpu_s') for who in _NAMES))
       for cap in _CAPS])
  lines += [
      '## Splits on two slots', '',
      'Records per second at parallelism 2, of a source whose records take '
      '%g ms each to come.' % (1000 * _PAUSE), ''
  ]
  lines += table(
      ('splits', *_NAMES.values()),
      [(str(splits), *(
          format(round(summary.rate(who, splits)), ',') for who in _NAMES))
       for splits in _SPLITS])
  lines += [
      '## Recovery', '',
      'Seconds from `kill -9` of the TaskManager that runs the job until it '
      'reads again in the spare slot, on another TaskManager: each run.', ''
  ]
  lines += table(
      ('state', 'seconds'),
      [(name, ', '.join(
          '%.1f' % record['recovery_s']
          for record in summary.figures('ours', backend, 'recovery')))
       for backend, name in _BACKENDS.items()])
  return '\n'.join(lines)


class Clusters:
  """The cluster that runs; the next case may need another."""
  def __init__(self, flink, job_servers, folder):
    self._flink = flink
    self._job_servers = job_servers
    self._folder = folder
    self._running = None
    self._kind = None
    self._whole = False

  def of(self, case) -> pathlib.Path:
    """The folder of the cluster that a case runs on; all of it runs then."""
    kind = case.who, case.backend
    if self._kind != kind:
      self.stop()
      self._kind = kind
      self._whole = False
      self._running = clusters.Cluster(self._folder / '-'.join(kind))
      self._settings = flinkconf.Settings(
          backend=case.backend,
          port=clusters.free_port(),
          job_port=clusters.free_port())
    if not self._whole:
      sys.stderr.write('\n')
      self._running.start(
          self._settings, self._flink, self._job_servers[case.who])
    self._whole = case.what != 'recovery'
    return self._running.folder

  def stop(self):
    if self._running:
      self._running.stop()


def run_case(case, python, folder):
  """Measures `case`; returns it and its figures as one flat record."""
  request = dict(case.request)
  figures = _measured_process.measure([
      str(python),
      str(_CASE_PROGRAM),
      json.dumps(dict(request, what=case.what, folder=str(folder)))
  ],
                                      _CASE_SECONDS)
  return dict(
      request, who=case.who, backend=case.backend, what=case.what, **figures)


def words_of(record) -> str:
  if record['what'] == 'state':
    return '%d, %d bytes' % (record['early_bytes'], record['late_bytes'])
  if record['what'] == 'poll':
    return '%.3f s' % record['gap_s']
  if record['what'] == 'rate':
    return '%d a second' % record['per_s']
  return '%.1f s' % record['recovery_s']


def parse(arguments):
  parser = _driver.parser(__doc__, quick='rough figures in a third the time')
  parser.add_argument(
      '--ours', required=True, metavar='PYTHON', help='has the dev wheel')
  parser.add_argument(
      '--flink', type=pathlib.Path, required=True, metavar='FOLDER',
      help='with lib and bin of Flink')
  for name, words in (('--job-server', 'with the series'),
                      ('--base-job-server', 'as released')):
    parser.add_argument(
        name, type=pathlib.Path, required=True, metavar='JAR', help=words)
  parser.add_argument(
      '--note', default='', help='a sentence about the run, for the page')
  return parser.parse_args(arguments)


def load() -> str:
  with open('/proc/loadavg') as averages:
    return averages.read().split()[0]


def bench(options) -> int:
  python = _driver.executable('--ours', options.ours)
  jars = {'base': options.base_job_server, 'ours': options.job_server}
  for name, path in (('--flink', options.flink / 'lib'),
                     ('--base-job-server', jars['base']),
                     ('--job-server', jars['ours'])):
    if not path.exists():
      raise _driver.CannotRun('%s: there is no %s' % (name, path))
  begin = load()
  with contextlib.ExitStack() as stack:
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    running = Clusters(options.flink, jars, pathlib.Path(folder))
    stack.callback(running.stop)
    write = stack.enter_context(_driver.results(options.out / 'flink.jsonl'))

    def measure(case):
      try:
        where = running.of(case)
      except errors.CannotRun as e:
        raise _driver.CannotRun('%s; %s' % (e.what, e.remedy)) from e
      return run_case(case, python, where)

    records = _driver.in_turn(
        plan(QUICK if options.quick else Length()), measure, words_of, write)
  summary = Summary(records)
  verdicts = summary.verdicts()
  notes = [' ' + options.note] if options.note else []
  if options.quick:
    notes.append(' A quick run: rough figures.')
  about = _driver.about(
      options,
      beam=records[0]['beam'],
      load='%s, %s' % (begin, load()),
      note=''.join(notes))
  (options.out / 'flink.md').write_text(markdown(summary, verdicts, about))
  return _targets.tell(verdicts, options.no_targets)


def main(arguments=None) -> int:
  return _driver.run('flink.py', bench, parse(arguments))


if __name__ == '__main__':
  sys.exit(main())
