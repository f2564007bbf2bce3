#!/usr/bin/env python3
# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Measures reads of an unbounded source: upstream's, ours and the ceiling.

Each run is a process of its own. The three take turns, so that whatever else
the machine does meets them alike. Writes unbounded.md (tables), unbounded.svg
(plot) and unbounded.jsonl (every run) into --out. Progress goes to standard
error, the verdicts on the targets to standard output.

Exit code: 0 all targets met (or --no-targets), 1 a target missed or a run
failed, 2 could not run, 130 interrupted.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
import time

import _driver
import _measured_process
import _targets
import _unbounded_report as report
from _unbounded_report import Case

_CASE_PROGRAM = pathlib.Path(__file__).with_name('_unbounded_case.py')


@dataclasses.dataclass(frozen=True)
class Sizes:
  """How much is measured."""

  records: int
  repeats: int
  caps: tuple[int, ...]
  checkpoints: int


# How often a run of upstream is made again.
MORE_ATTEMPTS = 4

DEFAULT = Sizes(300_000, 5, (1_000, 10_000, 100_000), 3_000)
QUICK = Sizes(100_000, 1, (1_000, 10_000), 1_200)


def plan(sizes, runners, timestamps) -> list[Case]:
  """All runs, in the order in which they are made."""
  cases = []
  for _ in range(sizes.repeats):
    for runner in runners:
      for kind in timestamps:
        for cap in sizes.caps:
          for what in report.WHATS:
            cases.append(Case(what, runner, kind, cap, sizes.records))
  sample_at = tuple(
      sizes.checkpoints * part // 6 for part in (1, 2, 4, 6))
  memory_runners = list(runners)
  if 'fnapi' in runners:
    memory_runners.append('never-finalizing')
  for runner in memory_runners:
    for what in report.MEMORY_WHATS:
      # One more bundle than is sampled: the last does not checkpoint.
      records = report.MEMORY_CAP * (sizes.checkpoints + 1)
      cases.append(
          Case(what, runner, 'cached', report.MEMORY_CAP, records, sample_at))
  return cases


def run_case(case, pythons, prisms, timeout_s):
  """Measures `case` and returns it and its figures as one flat record."""
  what = 'ceiling' if case.what == 'ceiling' else 'read'
  side = 'rival' if case.what == 'rival' else 'ours'
  request = dict(
      dataclasses.asdict(case), what=what, prism=str(prisms.get(side)))
  python = pythons[side]
  figures = _measured_process.measure(
      [str(python), str(_CASE_PROGRAM), json.dumps(request)], timeout_s)
  return dict(dataclasses.asdict(case), **figures)


def run_once_more(case, pythons, prisms, timeout_s, progress):
  """As `run_case`, but a run of upstream that fails is made again.

  On a busy machine Prism asks upstream's read for a split before the read can
  say how far it is, which fails the job. Ours gets no second chance.
  """
  failed = 0
  while True:
    try:
      return dict(run_case(case, pythons, prisms, timeout_s), failed=failed)
    except _measured_process.RunFailed as failure:
      failed += 1
      if case.what != 'rival' or failed > MORE_ATTEMPTS:
        raise
      progress.again(failure)


class Progress:
  """A line a run, with the time left, on standard error."""
  def __init__(self, cases):
    self._cases = cases
    self._seconds = {}

  def begin(self, index):
    case = self._cases[index]
    sys.stderr.write(
        '[%*d/%d] %s ' % (
            len(str(len(self._cases))),
            index + 1,
            len(self._cases),
            case.label().ljust(48, '.')))
    sys.stderr.flush()

  def end(self, index, outcome, seconds):
    self._seconds.setdefault(self._cases[index].kind(), []).append(seconds)
    left = self._left(self._cases[index + 1:])
    sys.stderr.write(
        '%s  left %d:%02d\n' % (outcome.ljust(22), left // 60, left % 60))

  def again(self, outcome):
    sys.stderr.write('(%s, again) ' % outcome)
    sys.stderr.flush()

  def fail(self, outcome):
    sys.stderr.write(outcome + '\n')

  def _left(self, cases):
    # What is alike takes alike; of what is not yet known, the mean so far.
    known = {
        kind: sum(seconds) / len(seconds)
        for kind,
        seconds in self._seconds.items()
    }
    mean = sum(known.values()) / len(known)
    return round(sum(known.get(case.kind(), mean) for case in cases))


def measure_all(cases, pythons, prisms, timeout_s, write):
  """Runs `cases` in order, hands each record to `write`, returns them all."""
  progress = Progress(cases)
  records = []
  for index, case in enumerate(cases):
    progress.begin(index)
    started = time.monotonic()
    try:
      record = run_once_more(case, pythons, prisms, timeout_s, progress)
    except _measured_process.RunFailed as failure:
      progress.fail('FAILED: %s' % failure)
      raise
    except KeyboardInterrupt:
      progress.fail('interrupted')
      raise
    progress.end(
        index,
        '%.0f k/CPU s' % (record['records_per_cpu_s'] / 1000)
        if not case.sample_at else
        '%.0f MB' % max(record['rss_mb'].values()),
        time.monotonic() - started)
    write(record)
    records.append(record)
  return records


def _list_of(convert, allowed=None):
  def parse(text):
    try:
      values = tuple(convert(part) for part in text.split(','))
    except ValueError:
      raise argparse.ArgumentTypeError('%r is not a list of numbers' % text)
    for value in values:
      if allowed and value not in allowed:
        raise argparse.ArgumentTypeError(
            '%r is not one of %s' % (value, ', '.join(allowed)))
      if convert is int and value < 1:
        raise argparse.ArgumentTypeError('%d is less than 1' % value)
    return values

  return parse


def parse(arguments):
  parser = _driver.parser(
      __doc__,
      quick='two minutes instead of twenty: %d records, 1 repeat, caps %s' %
      (QUICK.records, ','.join(map(str, QUICK.caps))),
      timeout=300,
      repeats=DEFAULT.repeats)
  parser.add_argument(
      '--ours', required=True, metavar='PYTHON', help='has the dev wheel')
  parser.add_argument(
      '--rival',
      required=True,
      metavar='PYTHON',
      help='has an unmodified apache-beam with its own unbounded source')
  parser.add_argument(
      '--prism', metavar='BINARY', help='needed for the runner prism')
  parser.add_argument(
      '--rival-prism',
      metavar='BINARY',
      help='the Prism that upstream runs on; default: that of --prism')
  parser.add_argument(
      '--records',
      type=_driver.positive(int),
      metavar='N',
      help='records a run (default: %d)' % DEFAULT.records)
  parser.add_argument(
      '--caps',
      type=_list_of(int),
      metavar='CAPS',
      help='max_records_per_bundle (default: %s)' %
      ','.join(map(str, DEFAULT.caps)))
  parser.add_argument(
      '--runners',
      type=_list_of(str, ('fnapi', 'prism')),
      default=('fnapi', 'prism'),
      help='default: fnapi,prism')
  parser.add_argument(
      '--timestamps',
      type=_list_of(str, ('cached', 'new')),
      default=('cached', 'new'),
      help='whether the reader makes a Timestamp a record (new) or shares'
      ' one among 1,000 (cached); default: cached,new')
  options = parser.parse_args(arguments)
  base = QUICK if options.quick else DEFAULT
  options.sizes = Sizes(
      options.records or base.records,
      options.repeats or base.repeats,
      options.caps or base.caps,
      base.checkpoints)
  return options


def bench(options) -> int:
  pythons = {
      'ours': _driver.executable('--ours', options.ours),
      'rival': _driver.executable('--rival', options.rival),
  }
  prisms = {}
  about = {}
  if 'prism' in options.runners:
    if not options.prism:
      raise _driver.CannotRun('the runner prism needs --prism=BINARY')
    prisms['ours'] = _driver.executable('--prism', options.prism)
    about['prism'] = _driver.prism_version(prisms['ours'])
    prisms['rival'] = prisms['ours']
    if options.rival_prism:
      prisms['rival'] = _driver.executable(
          '--rival-prism', options.rival_prism)
      about['prism'] += ' (upstream: %s)' % _driver.prism_version(
          prisms['rival'])
  cases = plan(options.sizes, options.runners, options.timestamps)
  with _driver.results(options.out / 'unbounded.jsonl') as write:
    records = measure_all(cases, pythons, prisms, options.timeout, write)

  about = _driver.about(options, **about)
  summary = report.Summary(records)
  verdicts = report.verdicts(summary)
  (options.out / 'unbounded.md').write_text(
      report.markdown(summary, verdicts, about))
  (options.out / 'unbounded.svg').write_text(report.svg(summary, about))
  return _targets.tell(verdicts, options.no_targets)


def main(arguments=None) -> int:
  return _driver.run('unbounded.py', bench, parse(arguments))


if __name__ == '__main__':
  sys.exit(main())
