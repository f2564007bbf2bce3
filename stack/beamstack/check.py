"""The verb `check`: is the series sound, here and on newer releases?"""

import pathlib
import tempfile

from beamstack import bases
from beamstack import checks
from beamstack import console
from beamstack import fetch
from beamstack import gitrepo
from beamstack import overlay
from beamstack import prefixes
from beamstack import pytests
from beamstack import pythons
from beamstack import tree
from beamstack.console import Verdict
from beamstack.console import verdict
from beamstack.errors import CannotRun
from beamstack.errors import Problem
from beamstack.errors import ProblemsFound
from beamstack.series import Series
from beamstack.workspace import Workspace


def selected(series: Series, names: list[str]) -> set[str]:
  """The pull requests that names (of them, or of edits) stand for."""
  if not names:
    return {pr.name for pr in series.pull_requests}
  known = {edit.name: edit.pull_request for edit in series.edits()}
  known.update({pr.name: pr.name for pr in series.pull_requests})
  for name in names:
    if name not in known:
      raise CannotRun(
          f'{name} is neither a pull request nor an edit of the series',
          'use one of ' + ', '.join(p.name for p in series.pull_requests))
  return {known[name] for name in names}


class Check:
  """One run of `check`, with what its rows share."""

  def __init__(
      self,
      space: Workspace,
      series: Series,
      pins: bases.Pins,
      names: list[str]):
    self.space = space
    self.pins = pins
    self.names = selected(series, names)
    self.whole = not names
    # Pull requests after the last one that is asked for do not matter.
    self.series = series.prefix(1 + max(
        number for number, pr in enumerate(series.pull_requests)
        if pr.name in self.names))
    self.report = console.Report()
    self.counts = pytests.Counts()
    self._fetched: list[bases.Base] = []

  def run(self, *, beam: str = '', tests: bool = True) -> int:
    """Prints the rows; returns the exit code.

    Args:
      beam: hold the edits against this release alone.
      tests: whether to run the tests of each prefix.
    """
    if beam == self.pins.pin:
      self._pin_row()
    elif beam:
      self.pins.wheel(beam)
      self._newer_row(beam)
    else:
      self.all_rows(tests=tests)
    return self.report.finish()

  def all_rows(self, *, tests: bool) -> None:
    """Prints all rows; the report keeps the problems."""
    if self.whole:
      self._static_rows()
    pin_good = self._pin_row()
    for version in self.pins.newer:
      self._newer_row(version)
    if self.whole:
      self._replaces_row()
    compile_good = self._compile_row()
    if not pin_good or not compile_good:
      self._blocked(tests)
      return
    if tests:
      self._tests_row()
    if self.whole:
      self._export_rows()

  def _static_rows(self) -> None:
    series = self.series
    tracked = gitrepo.tracked(self.space.root)
    owned = len(checks.owned_paths(tracked))
    count = f'{len(series.pull_requests)} pull requests'
    for name, details, run in (
        ('owned once', f'{owned} files',
         lambda: checks.check_owned_once(series, tracked)),
        ('names', f'{count}, {len(series.edits())} edits',
         lambda: checks.check_names(series)),
        ('order', count, lambda: checks.check_needs(series)),
        ('descriptions', f'{count}, {len(checks.HEADS)} heads each',
         lambda: checks.check_described(series)),
        ('folders', 'descriptions and edits are listed and tracked',
         lambda: checks.check_folders(series, tracked)),
        ('nothing empty', count, lambda: checks.check_not_empty(series)),
        ('licence headers', f'{len(series.files())} files',
         lambda: checks.check_licence(series))):
      self.report.row(
          name, lambda run=run, details=details: verdict(details, run()))

  def _wheel(self, version: str) -> bases.WheelBase:
    return fetch.wheel(self.space, self.pins, version)

  def _pin_bases(self) -> list[bases.Base]:
    if not self._fetched:
      self._fetched = fetch.all_bases(self.space, self.pins)
    return self._fetched

  def _mine(self, result: overlay.Overlay) -> list[overlay.Outcome]:
    return [
        o for o in result.outcomes if o.edit.pull_request in self.names
    ]

  def _pin_row(self) -> bool:

    def run() -> Verdict:
      result = overlay.apply_series(self.series, self._pin_bases())
      outcomes = self._mine(result)
      problems = list(result.problems)
      if self.whole and not outcomes:
        problems.append(
            Problem(
                'edits', 'nothing to check: the series has no edit',
                'add the first to stack/<pull request>/edits'))
      good = sum(o.state == overlay.APPLIES for o in outcomes)
      places = sum(
          o.edit.matches for o in outcomes if o.state == overlay.APPLIES)
      details = f'{good} of {len(outcomes)} edits apply, {places} places'
      lines = [] if self.whole else outcome_lines(outcomes)
      return Verdict(
          _word(outcomes, problems), details, lines, tuple(problems))

    row = self.report.row(f'edits on {self.pins.pin}', run)
    return not row.problems

  def _newer_row(self, version: str) -> None:

    def run() -> Verdict:
      result = overlay.apply_series(
          self.series, [self._wheel(version)], pin=False)
      outcomes = self._mine(result)
      states = [o.state for o in outcomes]
      details = (
          f'{states.count(overlay.APPLIES)} apply, '
          f'{states.count(overlay.UPSTREAM)} already upstream, '
          f'{states.count(overlay.CONFLICTS)} conflict; '
          f'{len(result.replaced)} files replaced')
      return Verdict(
          _word(outcomes, result.problems),
          details,
          outcome_lines(outcomes),
          tuple(result.problems))

    self.report.row(f'edits on {version}', run)

  def _replaces_row(self) -> None:

    def run() -> Verdict:
      shipped = {
          version: set(self._wheel(version).paths())
          for version in self.pins.newer
      }
      named = sum(len(pr.replaces) for pr in self.series.pull_requests)
      return verdict(
          f'{named} files',
          checks.check_replaces(self.series, shipped))

    self.report.row('replaces', run)

  def _compile_row(self) -> bool:

    def run() -> Verdict:
      found = prefixes.compile_problems(self.series, self._pin_bases())
      problems = [problem for many in found.values() for problem in many]
      bad = [name for name, many in found.items() if many]
      details = f'{len(found) - len(bad)} of {len(found)} compile'
      return Verdict(
          'PROBLEM' if bad else 'ok', details, (), tuple(problems))

    return not self.report.row('prefixes', run).problems

  def _blocked(self, tests: bool) -> None:
    rows = ['tests of prefixes'] if tests else []
    if self.whole:
      rows += ['export twice the same', 'git am gives the same']
    for name in rows:
      self.report.row(
          name,
          lambda: Verdict('not run', 'first mend the rows above'))

  def _tests_row(self) -> None:

    def run() -> Verdict:
      python = pythons.with_stock(self.space, self.pins, self.pins.pin)
      problems = []
      ran = []
      results = prefixes.run_tests(
          self.space, self.series, self._wheel(self.pins.pin), python,
          self.names)
      for name, result in results:
        ran.append(name)
        self.counts += result.counts
        problems += result.problems
        said = '; '.join((str(result.counts), *result.notes))
        console.note(f'  {name}: {said}')
      if not ran:
        problems.append(
            Problem(
                'tests of prefixes',
                'nothing to check: no pull request names tests',
                f'name test modules in {checks.SERIES}'))
      return Verdict(
          'PROBLEM' if problems else 'ok',
          f'{len(ran)} pull requests, {self.counts}', (),
          tuple(problems))

    self.report.row('tests of prefixes', run)

  def _export_rows(self) -> None:
    self.space.work.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix='export-', dir=self.space.work) as temporary:
      folder = pathlib.Path(temporary)
      made: dict[str, str] = {}

      def twice() -> Verdict:
        return _export_twice(self.series, self._pin_bases(), folder, made)

      row = self.report.row('export twice the same', twice)
      if row.problems:
        return

      def again() -> Verdict:
        return _git_am(folder, made)

      self.report.row('git am gives the same', again)


def _export_twice(
    series: Series, all_bases: list[bases.Base], folder: pathlib.Path,
    made: dict[str, str]) -> Verdict:
  contents = []
  try:
    for name in ('one', 'two'):
      with console.step(f'laying out the series as commits, {name} of two'):
        commits = tree.lay_out(series, all_bases, folder / name)
      patches = tree.export(
          series, folder / name, commits[''], folder / f'{name}-patches')
      made[name] = commits['']
      contents.append({path.name: path.read_bytes() for path in patches})
  except ProblemsFound as e:
    return Verdict('PROBLEM', '', (), tuple(e.problems))
  problems = [
      Problem('export', f'{name} is not the same twice', 'report it')
      for name in sorted(set(contents[0]) | set(contents[1]))
      if contents[0].get(name) != contents[1].get(name)
  ]
  if len(contents[0]) != len(series.pull_requests) + 1:
    problems.append(
        Problem('export', f'{len(contents[0])} files', 'report it'))
  size = sum(map(len, contents[0].values()))
  return verdict(f'{len(contents[0])} files, {size:,} bytes', problems)


def _git_am(folder: pathlib.Path, made: dict[str, str]) -> Verdict:
  patches = sorted((folder / 'one-patches').iterdir())[1:]
  applied = tree.apply_patches(
      folder / 'one', made['one'], patches, folder / 'applied')
  expected = gitrepo.tree_id(folder / 'one')
  problems = []
  if applied != expected:
    problems.append(
        Problem(
            'git am', f'it gives the tree {applied}, not {expected}',
            'report it'))
  return verdict(f'{len(patches)} patches, tree {expected[:12]}', problems)


def outcome_lines(outcomes: list[overlay.Outcome]) -> list[str]:
  """What became of each edit, one a line."""
  return [
      f'{o.edit.name}: {o.state}' + (f', {o.reason}' if o.reason else '')
      for o in outcomes
  ]


def _word(outcomes: list[overlay.Outcome], problems) -> str:
  if any(o.state == overlay.CONFLICTS for o in outcomes):
    return 'CONFLICT'
  return 'PROBLEM' if problems else 'ok'
