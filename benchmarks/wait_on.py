#!/usr/bin/env python3
# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Measures WaitOn: upstream's and ours, a million elements on either side.

Elements of 14 bytes in windows of 1,000 seconds, 10,000 elements each, wait for
a signal of 10 elements, or the other way round; of sources that are bounded,
and of ones that do not say that they end. Each run is a process of its own; the
two take turns. Writes wait_on.md and wait_on.jsonl (every run) into --out.

Exit code: 0 all targets met (or --no-targets), 1 a target missed or a run
failed, 2 could not run, 130 interrupted.
"""

import dataclasses
import json
import pathlib
import statistics
import sys

import _driver
import _measured_process
import _targets
from _targets import Verdict

_CASE_PROGRAM = pathlib.Path(__file__).with_name('_wait_on_case.py')
_RUNNERS = {'fnapi': 'FnApiRunner', 'prism': 'Prism'}
_NAMES = {'rival': 'upstream', 'ours': 'ours'}
_FEW = 10


@dataclasses.dataclass(frozen=True)
class Case:
  """One run to make: so many elements wait for so many of the signal."""

  what: str
  runner: str
  unbounded: bool
  main: int
  signal: int

  @property
  def name(self) -> str:
    return '%s, %s elements wait for %s' % (
        'unbounded' if self.unbounded else 'bounded',
        format(self.main, ','),
        format(self.signal, ','))

  def label(self) -> str:
    return '%s, %s, %s ' % (
        _RUNNERS[self.runner], self.name, _NAMES[self.what])


def plan(repeats, number) -> list[Case]:
  """All runs, in order; those that show how memory grows, once."""
  cases = [
      Case(what, runner, unbounded, *numbers) for _ in range(repeats)
      for runner in _RUNNERS for unbounded in (False, True)
      for numbers in ((number, _FEW), (_FEW, number)) for what in _NAMES
  ]
  return cases + [
      Case('ours', runner, True, _FEW, number // 10) for runner in _RUNNERS
  ]


class Summary:
  """The runs of one benchmark, by what they measured."""
  def __init__(self, records):
    self.records = records
    self.number = max(record['main'] for record in records)

  def runs(self, what, runner, unbounded, main, signal):
    return [
        record for record in self.records if record['what'] == what and
        record['runner'] == runner and record['unbounded'] == unbounded and
        (record['main'], record['signal']) == (main, signal)
    ]

  def median(self, field, *of):
    return statistics.median(record[field] for record in self.runs(*of))

  def cpu(self, *of):
    """CPU seconds of the Python process and of Prism."""
    return statistics.median(
        record['cpu_s'] + record['prism_cpu_s'] for record in self.runs(*of))

  def sizes(self):
    return (self.number, _FEW), (_FEW, self.number)

  def verdicts(self) -> list[Verdict]:
    verdicts = []
    for runner, name in _RUNNERS.items():
      for unbounded, kind, at_most in ((False, 'bounded', 1.1),
                                       (True, 'unbounded', 2.0)):
        for sizes in self.sizes():
          of = (runner, unbounded, *sizes)
          ratio = self.cpu('ours', *of) / self.cpu('rival', *of)
          verdicts.append(
              Verdict(
                  '%s, %s, %s elements wait for %s: at most %.1f times '
                  'upstream\'s CPU' % (
                      name,
                      kind,
                      format(sizes[0], ','),
                      format(sizes[1], ','),
                      at_most),
                  '%.2f times' % ratio,
                  ratio <= at_most))
      growth = (
          self.median('peak_mb', 'ours', runner, True, _FEW, self.number) -
          self.median('peak_mb', 'ours', runner, True, _FEW, self.number // 10))
      verdicts.append(
          Verdict(
              '%s: ten times the signal takes no more memory (10 MB)' % name,
              '%+.1f MB' % growth,
              growth < 10))
    return verdicts


def markdown(summary, verdicts, about) -> str:
  beams = {record['what']: record['beam'] for record in summary.records}
  lines = [
      '# WaitOn: results',
      '',
      'Measured on %s: upstream is apache-beam %s, ours is %s; Prism binary '
      '%s; %s. Medians of %d runs.%s' % (
          about['date'],
          beams['rival'],
          beams['ours'],
          about['prism'],
          about['machine'],
          about['repeats'],
          ' A quick run: rough figures.' if about['quick'] else ''),
      '',
      'What is measured, and how, is in [the README](../README.md). Every run '
      'is in `wait_on.jsonl`.',
      '',
      *_targets.section(verdicts),
      '## CPU seconds',
      '',
      'Of the Python process and, behind the plus, of Prism, from the first '
      'element to the end of the pipeline.',
      '',
      '| runner | sources | wait | for | upstream | ours | ours / upstream '
      '| peak memory of Python, upstream | ours |',
      '| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |'
  ]
  for runner, name in _RUNNERS.items():
    for unbounded in (False, True):
      for sizes in summary.sizes():
        of = (runner, unbounded, *sizes)
        lines.append(
            '| %s | %s | %s | %s | %s | %s | %.2f | %.0f MB | %.0f MB |' % (
                name,
                'unbounded' if unbounded else 'bounded',
                format(sizes[0], ','),
                format(sizes[1], ','),
                _cpu(summary, 'rival', *of),
                _cpu(summary, 'ours', *of),
                summary.cpu('ours', *of) / summary.cpu('rival', *of),
                summary.median('peak_mb', 'rival', *of),
                summary.median('peak_mb', 'ours', *of)))
  return '\n'.join(lines) + '\n'


def _cpu(summary, *of) -> str:
  prism = summary.median('prism_cpu_s', *of)
  python = '%.1f' % summary.median('cpu_s', *of)
  return python + (' + %.1f' % prism if of[1] == 'prism' else '')


def run_case(case, pythons, prism, timeout_s):
  request = dict(dataclasses.asdict(case), prism=str(prism))
  command = [str(pythons[case.what]), str(_CASE_PROGRAM), json.dumps(request)]
  return dict(
      dataclasses.asdict(case),
      **_measured_process.measure(command, timeout_s))


def parse(arguments):
  parser = _driver.parser(
      __doc__,
      quick='100,000 elements and one run of each: rough figures',
      timeout=600)
  parser.add_argument(
      '--ours', required=True, metavar='PYTHON', help='has the dev wheel')
  parser.add_argument(
      '--rival',
      required=True,
      metavar='PYTHON',
      help='has an unmodified apache-beam')
  parser.add_argument(
      '--prism', required=True, metavar='BINARY', help='the one of both')
  return parser.parse_args(arguments)


def bench(options) -> int:
  pythons = {
      'ours': _driver.executable('--ours', options.ours),
      'rival': _driver.executable('--rival', options.rival),
  }
  prism = _driver.executable('--prism', options.prism)
  repeats = _driver.repeats_of(options)
  cases = plan(repeats, 100_000 if options.quick else 1_000_000)
  with _driver.results(options.out / 'wait_on.jsonl') as write:
    records = _driver.in_turn(
        cases,
        lambda case: run_case(case, pythons, prism, options.timeout),
        lambda record: '%.2f CPU s' % (record['cpu_s'] + record['prism_cpu_s']),
        write)
  summary = Summary(records)
  verdicts = summary.verdicts()
  about = _driver.about(
      options, prism=_driver.prism_version(prism), repeats=repeats)
  (options.out / 'wait_on.md').write_text(markdown(summary, verdicts, about))
  return _targets.tell(verdicts, options.no_targets)


def main(arguments=None) -> int:
  return _driver.run('wait_on.py', bench, parse(arguments))


if __name__ == '__main__':
  sys.exit(main())
