#!/usr/bin/env python3
# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Measures Java's Watch: as Beam released it and ours, all keys and a cursor.

A poll lists everything again each round: 2,000 outputs in the first, 2,000 more
in each of 99 that follow; 10.1 million listings, 200,000 outputs, each once.
Twice: the DoFn alone, its state through its bytes each round, as each runner
has it; and a pipeline on the DirectRunner. Each run is a process of its own;
they take turns. Writes java_watch.md and java_watch.jsonl (every run) into
--out.

Exit code: 0 measured, 1 a target missed or a run failed, 2 could not run, 130
interrupted.
"""

import dataclasses
import statistics
import sys

import _driver
import _measured_process
import _targets
from _targets import Verdict

_MAIN = 'org.apache.beam.sdk.transforms.WatchBench'
_HOW = {'rounds': 'the DoFn alone', 'pipeline': 'DirectRunner'}
_NAMES = {
    ('base', 'keys'): 'released, all keys',
    ('ours', 'keys'): 'ours, all keys',
    ('ours', 'cursor'): 'ours, cursor',
}


@dataclasses.dataclass(frozen=True)
class Case:
  """One run to make."""

  how: str
  what: str
  mode: str
  outputs: int = 2_000
  rounds: int = 100

  def label(self) -> str:
    return '%s, %s' % (_HOW[self.how], _NAMES[self.what, self.mode])


def plan(repeats, rounds) -> list[Case]:
  """All runs, in order."""
  return [
      Case(how, what, mode, rounds=rounds) for _ in range(repeats)
      for how in _HOW for what, mode in _NAMES
  ]


class Summary:
  """The runs of one benchmark, by what they measured."""
  def __init__(self, records):
    self.records = records

  def median(self, field, how, what, mode):
    return statistics.median(
        record[field] for record in self.records
        if (record['how'], record['what'], record['mode']) == (how, what, mode))

  def verdicts(self) -> list[Verdict]:
    found = []
    for how, name in _HOW.items():
      base = self.median('cpu_s', how, 'base', 'keys')
      for mode, at_most in (('keys', 1.25), ('cursor', 1.0)):
        ratio = self.median('cpu_s', how, 'ours', mode) / base
        found.append(
            Verdict(
                '%s, %s: at most %.2f times the CPU of the released' %
                (name, _NAMES['ours', mode], at_most),
                '%.2f times' % ratio,
                ratio <= at_most))
    size = self.median('state_bytes', 'rounds', 'ours', 'cursor')
    found.append(
        Verdict(
            'with a cursor the state has at most 200 bytes',
            '%d bytes' % size,
            size <= 200))
    return found


def markdown(summary, verdicts, about) -> str:
  some = summary.records[0]
  rounds, outputs = some['rounds'], some['outputs']
  lines = [
      '# Watch in Java: results',
      '',
      'Measured on %s: beam-sdks-java-core 2.73.0 as it was released, and with '
      'our jar before it; Java %s; %s. %s.%s' % (
          about['date'],
          some['java'],
          about['machine'],
          'Medians of %d runs' % about['repeats']
          if about['repeats'] > 1 else 'One run of each',
          ' A quick run: rough figures.' if about['quick'] else ''),
      '',
      '%s listings in %d rounds, %s outputs. What is measured, and how, is in '
      '[the README](../README.md).' % (
          format(outputs * rounds * (rounds + 1) // 2, ','),
          rounds,
          format(outputs * rounds, ',')),
      '',
      *_targets.section(verdicts),
      '## Seconds and state',
      '',
      '| | | CPU s | wall s | state |',
      '| --- | --- | ---: | ---: | ---: |'
  ]
  for how, name in _HOW.items():
    for (what, mode), words in _NAMES.items():
      size = summary.median('state_bytes', how, what, mode)
      lines.append(
          '| %s | %s | %.1f | %.1f | %s |' % (
              name,
              words,
              summary.median('cpu_s', how, what, mode),
              summary.median('wall_s', how, what, mode),
              format(size, ',.0f') + ' bytes' if how == 'rounds' else ''))
  return '\n'.join(lines) + '\n'


def run_case(case, options):
  classpath = options.released
  if case.what == 'ours':
    classpath = '%s:%s' % (options.jar, classpath)
  command = [
      str(_driver.executable('--java', options.java)), '-Xmx2g', '-cp',
      '%s:%s' % (options.classes, classpath), _MAIN, case.how, case.mode,
      str(case.outputs), str(case.rounds)
  ]
  return dict(
      dataclasses.asdict(case),
      **_measured_process.measure(command, options.timeout))


def parse(arguments):
  parser = _driver.parser(
      __doc__,
      quick='20 rounds and one run of each: rough figures in a minute',
      timeout=1800)
  parser.add_argument('--java', required=True, metavar='PROGRAM')
  parser.add_argument(
      '--classes', required=True, metavar='FOLDER', help='has WatchBench')
  parser.add_argument(
      '--jar', required=True, metavar='JAR', help='ours, before the released')
  parser.add_argument(
      '--released', required=True, metavar='CLASSPATH',
      help='Beam as it was released, and what WatchBench needs')
  return parser.parse_args(arguments)


def bench(options) -> int:
  repeats = _driver.repeats_of(options)
  with _driver.results(options.out / 'java_watch.jsonl') as write:
    records = _driver.in_turn(
        plan(repeats, 20 if options.quick else 100),
        lambda case: run_case(case, options),
        lambda record: '%.1f CPU s' % record['cpu_s'],
        write)
  summary = Summary(records)
  verdicts = summary.verdicts()
  about = _driver.about(options, repeats=repeats)
  (options.out / 'java_watch.md').write_text(
      markdown(summary, verdicts, about))
  return _targets.tell(verdicts, options.no_targets)


def main(arguments=None) -> int:
  return _driver.run('java_watch.py', bench, parse(arguments))


if __name__ == '__main__':
  sys.exit(main())
