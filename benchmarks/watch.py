#!/usr/bin/env python3
# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Measures Watch: upstream's and ours, without a cursor and with one.

A poll lists everything again each round: 2,000 outputs in the first, 2,000 more
in each of 99 that follow; 10.1 million listings, 200,000 outputs, each once.
Beside it, what a million keys cost. Each run is a process of its own; the two
take turns. Writes watch.md and watch.jsonl (every run) into --out.

Exit code: 0 all targets met (or --no-targets), 1 a target missed or a run
failed, 2 could not run, 130 interrupted.
"""

import dataclasses
import json
import pathlib
import statistics
import sys
import time

import _driver
import _measured_process
import _targets
from _targets import Verdict

_CASE_PROGRAM = pathlib.Path(__file__).with_name('_watch_case.py')
_RUNNERS = {'fnapi': 'FnApiRunner', 'prism': 'Prism'}
_NAMES = {'rival': 'upstream', 'ours': 'ours'}
_MODES = {'hash': 'all keys', 'cursor': 'cursor'}
_MILLION = 1_000_000
_KEY_BYTES = 17
# How often a run of upstream is made again, if it did not take long. Prism asks
# its Watch for a split while it polls, and it answers that it is NaN of the
# way, which ends the job.
MORE_ATTEMPTS = 4
LONG_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Case:
  """One run to make: `first` outputs, and `more` in each round after it."""

  what: str
  mode: str
  runner: str
  first: int = 2_000
  more: int = 2_000
  rounds: int = 100

  @property
  def is_million(self) -> bool:
    return self.first > self.more

  def label(self) -> str:
    return '%s, %s, %s%s ' % (
        _RUNNERS[self.runner],
        _MODES[self.mode],
        _NAMES[self.what],
        ', a million' if self.is_million else '')


def plan(repeats, runners, rounds) -> list[Case]:
  """All runs, in order. Upstream without a cursor takes minutes: once."""
  cases = []
  for repeat in range(repeats):
    for runner in runners:
      for mode in _MODES:
        for what in _NAMES:
          if repeat == 0 or (what, mode) != ('rival', 'hash'):
            cases.append(Case(what, mode, runner, rounds=rounds))
  for runner in runners:
    for mode in _MODES:
      cases.append(Case('ours', mode, runner, _MILLION, 2_000, 10))
  return cases


class Summary:
  """The runs of one benchmark, by what they measured."""
  def __init__(self, records):
    self.records = records

  def runs(self, what, mode, runner, million=False):
    return [
        record for record in self.records
        if (record['what'], record['mode'], record['runner']) ==
        (what, mode, runner) and (record['first'] > record['more']) == million
    ]

  def runners(self):
    return list(dict.fromkeys(record['runner'] for record in self.records))

  def median(self, field, what, mode, runner):
    """None if none of the runs came to an end."""
    return statistics.median([
        record[field] for record in self.runs(what, mode, runner)
        if record['cpu_s'] is not None
    ] or [None])

  def cpu(self, what, mode, runner):
    return self.median('cpu_s', what, mode, runner)

  def failed(self):
    """How many runs of upstream failed, by runner and mode."""
    return {
        (runner, mode): sum(
            record['failed'] for record in self.runs('rival', mode, runner))
        for runner in self.runners() for mode in _MODES
    }

  def verdicts(self) -> list[Verdict]:
    verdicts = []
    for runner in self.runners():
      name = _RUNNERS[runner]
      ours = self.cpu('ours', 'hash', runner)
      for against, at_least in (('hash', 20), ('cursor', 1)):
        rival = self.cpu('rival', against, runner)
        if rival is None:
          continue
        ratio = rival / ours
        verdicts.append(
            Verdict(
                '%s: without a cursor, %s times less CPU than upstream\'s %s' %
                (name, at_least, _MODES[against]),
                '%.1f times' % ratio,
                ratio >= at_least))
      rival = self.cpu('rival', 'cursor', runner)
      if rival is not None:
        ratio = rival / self.cpu('ours', 'cursor', runner)
        verdicts.append(
            Verdict(
                '%s: with a cursor, 1.5 times less CPU than upstream' % name,
                '%.2f times' % ratio,
                ratio >= 1.5))
      size = max(
          record['state_bytes'] / record['outputs']
          for record in self.runs('ours', 'hash', runner))
      verdicts.append(
          Verdict(
              '%s: at most %d bytes of state a key' % (name, _KEY_BYTES),
              '%.2f bytes' % size,
              size <= _KEY_BYTES))
      flat = max(
          record['state_bytes']
          for record in self.runs('ours', 'cursor', runner))
      verdicts.append(
          Verdict(
              '%s: with a cursor the state stays flat' % name,
              '%d bytes' % flat,
              flat < 200))
    return verdicts


def markdown(summary, verdicts, about) -> str:
  lines = ['# Watch: results', '']
  beams = {
      record['what']: record['beam']
      for record in summary.records if record['cpu_s'] is not None
  }
  lines += [
      'Measured on %s: upstream is apache-beam %s, ours is %s; Prism binary '
      '%s; %s. Medians of %d runs, of upstream without a cursor one.%s' % (
          about['date'],
          beams.get('rival'),
          beams.get('ours'),
          about.get('prism', 'none'),
          about['machine'],
          about['repeats'],
          ' A quick run: rough figures.' if about['quick'] else ''),
      '',
      'What is measured, and how, is in [the README](../README.md). Every run '
      'is in `watch.jsonl`.',
      '',
      *_targets.section(verdicts),
  ]
  some = summary.runs('ours', 'hash', summary.runners()[0])[0]
  lines += [
      '## CPU seconds of the Python process',
      '',
      '%s listings in %d rounds, %s outputs.' % (
          format(some['listings'], ','),
          len(some['rounds']),
          format(some['outputs'], ',')),
      '',
      '| runner | history | upstream | ours | upstream / ours | wall s, '
      'upstream | wall s, ours | state, ours |',
      '| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |'
  ]
  for runner in summary.runners():
    for mode, mode_name in _MODES.items():
      cpu = {what: summary.cpu(what, mode, runner) for what in _NAMES}
      wall = {
          what: summary.median('wall_s', what, mode, runner)
          for what in _NAMES
      }
      state = summary.runs('ours', mode, runner)[0]['state_bytes']
      lines.append(
          '| %s | %s | %s | %.2f | %s | %s | %.1f | %s bytes |' % (
              _RUNNERS[runner],
              mode_name,
              'fails' if cpu['rival'] is None else '%.2f' % cpu['rival'],
              cpu['ours'],
              '–' if cpu['rival'] is None else '%.1f ×' %
              (cpu['rival'] / cpu['ours']),
              '–' if wall['rival'] is None else '%.1f' % wall['rival'],
              wall['ours'],
              format(state, ',')))
  lines += [
      '',
      *(
          'Upstream failed %d times on %s (%s): Prism asks it for a split '
          'while it polls, and it answers NaN.' %
          (number, _RUNNERS[runner], _MODES[mode]) for (runner, mode),
          number in summary.failed().items() if number)
  ]
  lines += [
      '',
      '## A million keys',
      '',
      'A first list of 1,000,000, all of it listed again each round with 2,000 '
      'more. Time is that of a later round, the list itself included; memory '
      'is that of the process after the last, with what it lists.',
      '',
      '| runner | history | first round, s | a round, wall s | a round, CPU s '
      '| state | memory before | memory after |',
      '| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |'
  ]
  for runner in summary.runners():
    for mode, mode_name in _MODES.items():
      for record in summary.runs('ours', mode, runner, million=True):
        later = record['rounds'][1:]
        lines.append(
            '| %s | %s | %.1f | %.2f | %.2f | %s bytes | %.0f MB | %.0f MB |' %
            (
                _RUNNERS[runner],
                mode_name,
                record['rounds'][0][0],
                statistics.median(wall for wall, _ in later),
                statistics.median(cpu for _, cpu in later),
                format(record['state_bytes'], ','),
                record['rss_mb'][0],
                record['rss_mb'][-1]))
  return '\n'.join(lines) + '\n'


def run_case(case, pythons, prisms, timeout_s):
  """Measures a case; upstream gets more attempts on Prism, where it may fail.
  """
  side = 'rival' if case.what == 'rival' else 'ours'
  request = dict(dataclasses.asdict(case), prism=str(prisms[side]))
  command = [str(pythons[case.what]), str(_CASE_PROGRAM), json.dumps(request)]
  figures = {'cpu_s': None, 'wall_s': None}
  begin = time.monotonic()
  failed = 0
  while figures['cpu_s'] is None and failed <= MORE_ATTEMPTS and (
      time.monotonic() - begin < LONG_SECONDS):
    try:
      figures = _measured_process.measure(command, timeout_s)
    except _measured_process.RunFailed as failure:
      if case.what != 'rival' or case.runner != 'prism':
        raise
      failed += 1
      sys.stderr.write('(FAILED: %s) ' % failure)
  return dict(dataclasses.asdict(case), failed=failed, **figures)


def figure(record) -> str:
  if record['cpu_s'] is None:
    return 'no result'
  return '%.2f CPU s' % record['cpu_s']


def parse(arguments):
  parser = _driver.parser(
      __doc__,
      quick='30 rounds and one run of each: rough figures in minutes',
      timeout=900)
  parser.add_argument(
      '--ours', required=True, metavar='PYTHON', help='has the dev wheel')
  parser.add_argument(
      '--rival',
      required=True,
      metavar='PYTHON',
      help='has an unmodified apache-beam with its own Watch')
  parser.add_argument('--prism', required=True, metavar='BINARY')
  parser.add_argument(
      '--rival-prism',
      metavar='BINARY',
      help='the Prism that upstream runs on; default: that of --prism')
  return parser.parse_args(arguments)


def bench(options) -> int:
  pythons = {
      'ours': _driver.executable('--ours', options.ours),
      'rival': _driver.executable('--rival', options.rival),
  }
  prisms = {'ours': _driver.executable('--prism', options.prism)}
  prisms['rival'] = prisms['ours']
  if options.rival_prism:
    prisms['rival'] = _driver.executable('--rival-prism', options.rival_prism)
  repeats = _driver.repeats_of(options)
  cases = plan(repeats, tuple(_RUNNERS), 30 if options.quick else 100)
  with _driver.results(options.out / 'watch.jsonl') as write:
    records = _driver.in_turn(
        cases,
        lambda case: run_case(case, pythons, prisms, options.timeout),
        figure,
        write)
  summary = Summary(records)
  verdicts = summary.verdicts()
  about = _driver.about(
      options,
      prism=', upstream on '.join(
          _driver.prism_version(prisms[side]) for side in prisms),
      repeats=repeats)
  (options.out / 'watch.md').write_text(markdown(summary, verdicts, about))
  return _targets.tell(verdicts, options.no_targets)


def main(arguments=None) -> int:
  return _driver.run('watch.py', bench, parse(arguments))


if __name__ == '__main__':
  sys.exit(main())
