"""Runs pytest in an environment, and counts what it really ran."""

import dataclasses
import pathlib
import re
import signal
import xml.etree.ElementTree

from beamstack import processes
from beamstack.errors import Problem

MODULE_SECONDS = 1800.0


@dataclasses.dataclass(frozen=True)
class Counts:
  """How many tests passed, failed and were skipped."""

  passed: int = 0
  failed: int = 0
  skipped: int = 0

  def __add__(self, other: 'Counts') -> 'Counts':
    return Counts(
        self.passed + other.passed,
        self.failed + other.failed,
        self.skipped + other.skipped)

  def __str__(self) -> str:
    text = f'{self.passed} passed, {self.failed} failed'
    return text + (f', {self.skipped} skipped' if self.skipped else '')


@dataclasses.dataclass(frozen=True)
class Result:
  """What a run of pytest gave.

  Attributes:
    counts: the totals.
    states: passed, failed or skipped by test, named `module::Class::test`.
    problems: failures, and modules of which no test ran.
    output: all that pytest printed.
    notes: what else should be told, though it is no problem.
  """

  counts: Counts
  states: dict[str, str]
  problems: list[Problem]
  output: str
  notes: tuple[str, ...] = ()


def run(
    python: pathlib.Path,
    modules: list[str],
    *,
    name: str,
    logs: pathlib.Path,
    cwd: pathlib.Path,
    rootdir: pathlib.Path,
    env: dict[str, str] | None = None,
    expected: list[str] | None = None,
    more: tuple[str, ...] = (),
    seconds: float = MODULE_SECONDS) -> Result:
  """Runs test modules, and holds pytest's own report against them.

  Args:
    python: the Python to run them with.
    modules: their dotted names, with `::` and a class if that alone is
      meant; or paths.
    name: what the log and the problems are named for.
    logs: the folder of the log.
    cwd: the folder to run in: one without modules that could be meant.
    rootdir: the folder that the modules lie in, as they are named.
    env: variables for the tests.
    expected: the modules of which tests must have run, if not `modules`.
    more: more options of pytest.
    seconds: how long all of it may take.
  """
  logs.mkdir(parents=True, exist_ok=True)
  report = logs / f'{name}.xml'
  log = logs / f'{name}.log'
  report.unlink(missing_ok=True)
  code, output = processes.run(
      [
          python, '-m', 'pytest', '--pyargs', *modules, '-v', '--tb=short',
          '-p', 'no:cacheprovider', f'--junitxml={report}',
          '-o', 'junit_family=xunit1', f'--rootdir={rootdir}', *more
      ],
      cwd=cwd,
      env=env,
      without=('PYTEST_ADDOPTS', 'PYTHONPATH'),
      log=log,
      timeout=seconds)
  states = read_report(report.read_text()) if report.is_file() else {}
  counts = count(states)
  problems = []
  if code == 124:
    problems.append(
        Problem(name, f'not done after {seconds:.0f} s', f'see {log}'))
  failed = [test for test, state in states.items() if state == 'failed']
  for test in failed:
    problems.append(Problem(name, f'{test} failed', f'see {log}'))
  if code < 0:
    # Nothing is known of the others then: the report is written at the end.
    problems.append(
        Problem(
            name, f'pytest was ended by {signal_name(-code)} in '
            f'{last_begun(output)}', f'see {log}'))
  elif code not in (0, 5, 124) and not failed:
    last = ' / '.join(processes.last_lines(output, 3))
    problems.append(
        Problem(name, f'pytest ended with {code}: {last}', f'see {log}'))
  if code >= 0:
    problems += absent(name, modules if expected is None else expected, states)
  if problems and not counts.failed:
    counts = counts + Counts(failed=1)
  return Result(counts, states, problems, output)


def joined(results: list[Result]) -> Result:
  """What several runs gave, as if they had been one."""
  return Result(
      sum((result.counts for result in results), Counts()),
      {test: s for result in results for test, s in result.states.items()},
      [problem for result in results for problem in result.problems],
      '\n'.join(result.output for result in results))


def signal_name(number: int) -> str:
  try:
    return signal.Signals(number).name
  except ValueError:
    return f'signal {number}'


def last_begun(output: str) -> str:
  """The test that pytest named last."""
  found = re.findall(r'(?m)^\S*?([^\s/]+\.py::\S+)', output)
  return found[-1] if found else 'none of its tests'


def read_report(text: str) -> dict[str, str]:
  """The state of each test in a JUnit report."""
  states = {}
  for case in xml.etree.ElementTree.fromstring(text).iter('testcase'):
    test = f'{case.get("classname")}::{case.get("name")}'
    kinds = {child.tag for child in case}
    if kinds & {'failure', 'error'}:
      states[test] = 'failed'
    elif states.get(test) != 'failed':
      states[test] = 'skipped' if 'skipped' in kinds else 'passed'
  return states


def count(states: dict[str, str]) -> Counts:
  values = list(states.values())
  return Counts(
      values.count('passed'), values.count('failed'),
      values.count('skipped'))


def absent(
    name: str, modules: list[str], states: dict[str, str]) -> list[Problem]:
  """Modules of which no test ran: an empty run must not look good."""
  found = []
  for module in modules:
    stem = module.rsplit('.', 1)[-1].replace('::', '.')
    if not any(f'.{stem}.' in f'.{test.split("::")[0]}.' for test in states):
      found.append(
          Problem(
              name,
              f'{module}: no test of it ran',
              'mend the name in stack/series.toml, or the module'))
  return found
