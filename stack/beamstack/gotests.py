"""Runs Go's tests on the base with a series over it, and counts what ran.

A test that began and did not end counts as failed: so it goes when a test
panics, ends the process, or hangs until go stops it.
"""

import collections
import dataclasses
import json
import pathlib
import re
import shutil
import tempfile
from collections.abc import Sequence

from beamstack import bases
from beamstack import fetch
from beamstack import gobuild
from beamstack import processes
from beamstack import pytests
from beamstack.errors import Problem
from beamstack.series import Series
from beamstack.workspace import Workspace

# go ends a package's tests after this time, and shows where they hang.
PACKAGE_SECONDS = 900
# How much of a failing test's output is shown; its log has all.
LAST_LINES = 4

# Lines of go's own, which do not say what is wrong.
_FRAME = ('=== ', '--- ', 'FAIL')
_WORDS = {'pass': 'passed', 'fail': 'failed', 'skip': 'skipped'}


@dataclasses.dataclass
class Events:
  """What `go test -json` said.

  Attributes:
    states: passed, failed or skipped by test, named `package::Test/subtest`.
    outputs: what each test printed. What a package printed outside of its
      tests stands under its own name.
    packages: how each package ended.
    broken_off: packages that ended before all of their tests had run.
    text: all output, as go prints it without -json.
  """

  states: dict[str, str] = dataclasses.field(default_factory=dict)
  outputs: dict[str, list[str]] = dataclasses.field(
      default_factory=lambda: collections.defaultdict(list))
  packages: dict[str, str] = dataclasses.field(default_factory=dict)
  broken_off: set[str] = dataclasses.field(default_factory=set)
  text: str = ''

  def failed(self) -> list[str]:
    """The failing tests; of a test with subtests, those that failed."""
    found = [t for t, state in self.states.items() if state == 'failed']
    return [
        test for test in found
        if not any(other.startswith(f'{test}/') for other in found)
    ]

  def failed_of(self, package: str) -> list[str]:
    return [t for t in self.failed() if t.startswith(f'{package}::')]

  def raced(self, package: str) -> bool:
    """Whether the race detector spoke up in a package."""
    return any(
        'WARNING: DATA RACE' in line
        for name, output in self.outputs.items()
        if name.split('::')[0] == package for line in output)

  def failed_packages(self) -> list[str]:
    return [p for p, state in self.packages.items() if state == 'failed']

  def take_over(
      self, again: 'Events', package: str, tests: Sequence[str]) -> None:
    """Takes what another run says of tests of a package; of all, if none."""
    tops = {_top(test) for test in tests}

    def concerned(test: str) -> bool:
      return test.startswith(f'{package}::') and (
          not tops or _top(test) in tops)

    for test in [t for t in self.states if concerned(t)]:
      del self.states[test]
    self.states.update(again.states)
    self.outputs.update(again.outputs)
    self.broken_off = self.broken_off - {package} | again.broken_off
    self._judge(package, again.packages.get(package, 'failed'))

  def excuse(self, package: str, stock: 'Events') -> None:
    """Takes out what fails in a run of the base as well."""
    for test, state in self.states.items():
      if state == stock.states.get(test) == 'failed':
        self.states[test] = 'skipped'
    if package not in self.broken_off and stock.failed_of(package):
      self._judge(package, 'passed')

  def _judge(self, package: str, otherwise: str) -> None:
    self.packages[package] = (
        'failed' if self.failed_of(package) else otherwise)


def read_events(output: str) -> Events:
  """Reads the events; lines that are none of them are kept as text."""
  events = Events()
  lines = []
  for line in output.splitlines():
    event = _event(line)
    if event is None:
      lines.append(line + '\n')
      continue
    # What the compiler says comes under another key.
    package = event.get('Package') or event.get('ImportPath', '').split(' ')[0]
    action, test = event.get('Action'), event.get('Test')
    name = f'{package}::{test}' if test else package
    if action in ('output', 'build-output'):
      lines.append(event['Output'])
      events.outputs[name].append(event['Output'])
    elif action == 'run':
      events.states[name] = 'failed'
    elif action in _WORDS and test:
      events.states[name] = _WORDS[action]
    elif action in _WORDS:
      events.packages[package] = _WORDS[action]
      # go ends the output of a package that ran to its end with this line.
      if action == 'fail' and 'FAIL\n' not in events.outputs[package]:
        events.broken_off.add(package)
  events.text = ''.join(lines)
  return events


def _event(line: str) -> dict | None:
  try:
    event = json.loads(line) if line.startswith('{') else None
  except ValueError:
    return None
  return event if isinstance(event, dict) and 'Action' in event else None


def can_race() -> bool:
  """Whether the race detector can be used: it is linked by a C compiler."""
  return any(shutil.which(name) for name in ('gcc', 'clang', 'cc'))


@dataclasses.dataclass(frozen=True)
class Module:
  """A module that is laid out, and how to run its tests.

  Attributes:
    folder: where it lies.
    logs: the folder of the logs.
    race: whether to look for races.
    inner: whether to leave out the tests that stand outside of their package
      (`package x_test`), where others stand inside. Prism's are pipelines, and
      to compile them takes minutes.
  """

  folder: pathlib.Path
  logs: pathlib.Path
  race: bool = False
  inner: bool = False

  def test(
      self, packages: Sequence[str], name: str, only: str = '') -> Events:
    """Runs tests, those that `only` matches, and writes their log."""
    more = (['-race'] if self.race else []) + (
        [f'-run={only}'] if only else [])
    with tempfile.NamedTemporaryFile('w', suffix='.json') as overlay:
      if self.inner:
        # For go, a file that is replaced by nothing is not there.
        without = dict.fromkeys(self._outer(packages), '')
        json.dump({'Replace': without}, overlay)
        overlay.flush()
        more.append(f'-overlay={overlay.name}')
      command = [
          processes.find_tool('go'), 'test', '-json', '-count=1',
          f'-timeout={PACKAGE_SECONDS}s', *more, *packages
      ]
      code, output = processes.run(
          command,
          cwd=self.folder,
          env={
              **gobuild.ENVIRONMENT,
              'CGO_ENABLED': '1' if self.race else '0'
          },
          timeout=pytests.MODULE_SECONDS)
    events = read_events(output)
    if code and 'failed' not in events.packages.values():
      # Nothing else says that go itself failed, such as on a wrong flag.
      events.packages['go test'] = 'failed'
      events.outputs['go test'].append(events.text)
    self.logs.mkdir(parents=True, exist_ok=True)
    self.log(name).write_text(
        f'$ {" ".join(command)}\n{events.text}\nexit code {code}\n')
    return events

  def with_tests(self, patterns: Sequence[str]) -> list[str]:
    """The packages that patterns stand for, those that have tests."""
    if not patterns:
      return []
    return self._listed(
        '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}', patterns)

  def _outer(self, packages: Sequence[str]) -> list[str]:
    """The test files outside of packages that have some inside."""
    return self._listed(
        '{{if .TestGoFiles}}{{range .XTestGoFiles}}{{$.Dir}}/{{.}}\n{{end}}'
        '{{end}}', packages)

  def _listed(self, template: str, patterns: Sequence[str]) -> list[str]:
    listed = processes.must_run(
        [processes.find_tool('go'), 'list', '-f', template, *patterns],
        what='go list',
        remedy='mend the packages in stack/series.toml',
        cwd=self.folder,
        env=gobuild.ENVIRONMENT)
    return listed.splitlines()

  def log(self, name: str) -> pathlib.Path:
    return self.logs / f'{name}.log'


def lay_out(
    space: Workspace,
    series: Series,
    *,
    race: bool = False,
    inner: bool = False) -> Module:
  pins = bases.load_pins(space.stack / 'base.toml')
  folder, _ = gobuild.lay_out(space, series, fetch.module(space, pins))
  return Module(folder, space.logs, race, inner)


def run(module: Module, packages: Sequence[str], name: str) -> pytests.Result:
  """Runs the tests of packages once."""
  return judge(module.test(packages, name), packages, name, module.log(name))


def run_patiently(
    module: Module,
    base: Module,
    packages: Sequence[str],
    name: str,
    *,
    races: bool) -> pytests.Result:
  """Runs tests, some of which depend on how busy the machine is.

  What fails is tried once more, alone: the test, or its whole package if that
  broke off. What fails again is tried on the base: what fails there too is no
  fault of the series, and counts as skipped. Both are told.

  Args:
    module: the base with the series.
    base: the base without it.
    packages: whose tests to run.
    name: what logs and problems are named for.
    races: whether to try again where a race was found. It is one even if it
      does not show the next time.
  """
  events = module.test(packages, name)
  failed = events.failed()
  for package in events.failed_packages():
    if not races and events.raced(package):
      continue
    whole = package in events.broken_off
    tests = [] if whole else events.failed_of(package)
    again = module.test([package], _log_name(name, 'again', package),
                        _only(tests))
    events.take_over(again, package, tests)
  notes = [
      f'{_short(test)} passed when tried again' for test in failed
      if events.states.get(test) == 'passed'
  ]
  for package in events.failed_packages():
    tests = events.failed_of(package)
    stock = base.test([package], _log_name(name, 'base', package),
                      _only(tests))
    for test in tests:
      if stock.states.get(test) == 'failed':
        notes.append(f'{_short(test)} fails on the base too')
    events.excuse(package, stock)
  result = judge(events, packages, name, module.log(name))
  return dataclasses.replace(result, notes=tuple(notes))


def _log_name(name: str, what: str, package: str) -> str:
  return f'{name}-{what}-{package.rsplit("/", 1)[-1]}'


def _only(tests: Sequence[str]) -> str:
  """What go's -run gets to run tests, with all of their subtests."""
  names = sorted({_top(test).split('::')[1] for test in tests})
  return '^(' + '|'.join(map(re.escape, names)) + ')$' if names else ''


def _top(test: str) -> str:
  """The test that a subtest is of. The path of a package has slashes too."""
  package, _, name = test.partition('::')
  return f'{package}::{name.split("/")[0]}'


def judge(
    events: Events, packages: Sequence[str], name: str,
    log: pathlib.Path) -> pytests.Result:
  """The counts of a run, and what is wrong with it."""
  problems = [
      Problem(
          name, f'{_short(test)} failed: ' + _last(events.outputs[test]),
          f'see {log}') for test in events.failed()
  ]
  blamed = {test.split('::')[0] for test in events.failed()}
  for package, state in events.packages.items():
    if state == 'failed' and package not in blamed:
      said = events.outputs[package]
      problems.append(
          Problem(name, f'{package} failed: ' + _last(said), f'see {log}'))
  problems += _absent(events, packages, name, log)
  counts = pytests.count(events.states)
  if problems and not counts.failed:
    counts = counts + pytests.Counts(failed=1)
  return pytests.Result(counts, events.states, problems, events.text)


def _absent(
    events: Events, packages: Sequence[str], name: str,
    log: pathlib.Path) -> list[Problem]:
  """Packages of which no test ran: an empty run must not look good."""
  # Packages may also be named as go names them, from the module's own path.
  ran = {'/' + test.split('::')[0] for test in events.states}
  found = []
  for package in packages:
    wanted = package.removeprefix('./')
    inside = wanted.endswith('/...')
    wanted = '/' + wanted.removesuffix('/...')
    if not any(
        r.endswith(wanted) or inside and f'{wanted}/' in r for r in ran):
      found.append(
          Problem(name, f'{package}: no Go test of it ran', f'see {log}'))
  return found


def _last(output: Sequence[str]) -> str:
  """What to show of a test's output: the head of a panic, or its end."""
  said = [
      line for line in ''.join(output).splitlines()
      if not line.strip().startswith(_FRAME)
  ]
  for number, line in enumerate(said):
    if line.startswith('panic: '):
      said = said[number:number + LAST_LINES]
      break
  lines = processes.last_lines('\n'.join(said), LAST_LINES)
  return ' / '.join(lines) or 'it printed nothing'


def _short(test: str) -> str:
  """A test by the last part of its package, and its name."""
  package, _, name = test.partition('::')
  return f'{package.rsplit("/", 1)[-1]}.{name}'
