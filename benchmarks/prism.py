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

import dataclasses
import json
import pathlib
import sys

import _driver
import _measured_process
import _prism_report as report
import _targets
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


def parse(arguments):
  parser = _driver.parser(
      __doc__,
      quick='%d elements and one run of each: rough figures' % QUICK.elements,
      timeout=600)
  parser.add_argument(
      '--ours', required=True, metavar='PYTHON', help='has the dev wheel')
  parser.add_argument(
      '--base', metavar='BINARY', help='Prism as released; not for --soak')
  parser.add_argument(
      '--prism', required=True, metavar='BINARY', help='our Prism')
  parser.add_argument(
      '--elements',
      type=_driver.positive(int),
      metavar='N',
      help='elements of a throughput run (default: %d)' % DEFAULT.elements)
  parser.add_argument(
      '--soak',
      type=_driver.positive(float),
      nargs='?',
      const=10.0,
      metavar='MINUTES',
      help='one long run instead (default: 10 minutes)')
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
  about = _driver.about(
      options,
      beam=records[0]['beam'],
      binaries={
          binary: _driver.prism_version(path)
          for binary, path in prisms.items()
      })
  if options.soak:
    verdicts = report.soak_verdicts(records[0])
    page = report.soak_markdown(records[0], verdicts, about)
  else:
    summary = report.Summary(records)
    verdicts = summary.verdicts()
    page = report.markdown(summary, verdicts, about)
  (options.out / (name + '.md')).write_text(page)
  return _targets.tell(verdicts, options.no_targets)


def main(arguments=None) -> int:
  return _driver.run('prism.py', bench, parse(arguments))


if __name__ == '__main__':
  sys.exit(main())
