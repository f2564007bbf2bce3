#!/usr/bin/env python3
# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Measures Prism: the released binary, and ours.

The two take turns, run by run, each in a process of its own: what elements cost
them, what a source that pauses costs, and how long its records are on their
way. Writes prism.md and prism.jsonl (every run) into --out. With --soak, ours
alone runs for minutes; that writes prism_soak.md and prism_soak.jsonl.

Exit code: 0 all targets met (or --no-targets), 1 a target missed or a run
failed, 2 could not run, 130 interrupted.
"""

import argparse
import dataclasses
import datetime
import json
import pathlib
import sys

import _driver
import _measured_process
import _prism_report as report
from _prism_report import Case

_CASE_PROGRAM = pathlib.Path(__file__).with_name('_prism_case.py')
MILLION = 1_000_000


@dataclasses.dataclass(frozen=True)
class Sizes:
  """How much is measured."""

  elements: int
  repeats: int
  idle_s: int


DEFAULT = Sizes(MILLION, 3, 40)
QUICK = Sizes(100_000, 1, 12)


def plan(sizes) -> list[Case]:
  """All runs, in the order in which they are made."""
  cases = []
  for _ in range(sizes.repeats):
    for what in report.THROUGHPUT:
      for binary in report.BINARIES:
        cases.append(Case(what, binary, elements=sizes.elements))
    for consumer in report.CONSUMERS:
      for binary in report.BINARIES:
        cases.append(Case('delivery', binary, consumer, seconds=9))
    for what, seconds in (('polls', 9), ('idle', sizes.idle_s)):
      for binary in report.BINARIES:
        cases.append(Case(what, binary, seconds=seconds))
  return cases


def run_case(case, python, prisms, timeout_s):
  """Measures a case, and returns it and its figures as one record."""
  request = dict(
      dataclasses.asdict(case), prism=str(prisms[case.binary]))
  figures = _measured_process.measure(
      [str(python), str(_CASE_PROGRAM), json.dumps(request)],
      timeout_s + case.seconds)
  return dict(dataclasses.asdict(case), **figures)


def _positive(convert):
  def parse(text):
    value = convert(text)
    if value <= 0:
      raise argparse.ArgumentTypeError('%s is not more than 0' % text)
    return value

  return parse


def parse(arguments):
  parser = argparse.ArgumentParser(
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument(
      '--ours', required=True, metavar='PYTHON', help='has the dev wheel')
  parser.add_argument(
      '--base', metavar='BINARY', help='Prism as released; not for --soak')
  parser.add_argument(
      '--prism', required=True, metavar='BINARY', help='our Prism')
  parser.add_argument(
      '--out', type=pathlib.Path, required=True, metavar='FOLDER')
  parser.add_argument(
      '--repeats',
      type=_positive(int),
      metavar='R',
      help='runs of each case (default: %d)' % DEFAULT.repeats)
  parser.add_argument(
      '--elements',
      type=_positive(int),
      metavar='N',
      help='elements of a throughput run (default: %d)' % DEFAULT.elements)
  parser.add_argument(
      '--timeout',
      type=_positive(int),
      default=600,
      metavar='SECONDS',
      help='for one run, beyond what it waits (default: 600)')
  parser.add_argument(
      '--soak',
      type=_positive(float),
      nargs='?',
      const=10.0,
      metavar='MINUTES',
      help='one long run instead (default: 10 minutes)')
  parser.add_argument(
      '--quick',
      action='store_true',
      help='%d elements and one run of each: rough figures' % QUICK.elements)
  parser.add_argument(
      '--no-targets',
      action='store_true',
      help='only measure: a missed target does not fail the run')
  options = parser.parse_args(arguments)
  if options.soak is None and not options.base:
    parser.error('--base is needed to compare with')
  base = QUICK if options.quick else DEFAULT
  options.sizes = Sizes(
      options.elements or base.elements,
      options.repeats or base.repeats,
      base.idle_s)
  return options


def bench(options) -> int:
  python = _driver.executable('--ours', options.ours)
  prisms = {'ours': _driver.executable('--prism', options.prism)}
  name = 'prism_soak' if options.soak else 'prism'
  if options.soak:
    cases = [Case('soak', 'ours', seconds=round(60 * options.soak))]
  else:
    prisms['base'] = _driver.executable('--base', options.base)
    cases = plan(options.sizes)
  with _driver.results(options.out / (name + '.jsonl')) as write:
    records = _driver.in_turn(
        cases,
        lambda case: run_case(case, python, prisms, options.timeout),
        report.figure,
        write)
  about = {
      'date': datetime.date.today().isoformat(),
      'machine': _driver.machine(),
      'quick': options.quick,
      'beam': records[0]['beam'],
      'binaries': {
          binary: _driver.prism_version(path)
          for binary, path in prisms.items()
      },
  }
  if options.soak:
    verdicts = report.soak_verdicts(records[0])
    page = report.soak_markdown(records[0], verdicts, about)
  else:
    summary = report.Summary(records)
    verdicts = summary.verdicts()
    page = report.markdown(summary, verdicts, about)
  (options.out / (name + '.md')).write_text(page)
  return _driver.tell([(v.line(), v.met) for v in verdicts],
                      options.no_targets)


def main(arguments=None) -> int:
  return _driver.run('prism.py', bench, parse(arguments))


if __name__ == '__main__':
  sys.exit(main())
