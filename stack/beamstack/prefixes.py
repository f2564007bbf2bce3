"""Tries each prefix of the series: does it compile, do its tests pass?

The released wheel is unpacked into a folder, the first k pull requests are
laid over it, and Python is told to look there first.
"""

import os
import pathlib
import tempfile
import zipfile
from collections.abc import Iterable
from collections.abc import Iterator
from typing import NamedTuple

from beamstack import bases
from beamstack import gotests
from beamstack import imports
from beamstack import javabuild
from beamstack import overlay
from beamstack import pytests
from beamstack.errors import Problem
from beamstack.errors import ProblemsFound
from beamstack.parts import PYTHON
from beamstack.series import Series
from beamstack.tree import write_files
from beamstack.workspace import Workspace

GO_TEST = 'go:'
JAVA_TEST = 'java:'


class Tests(NamedTuple):
  """The tests that pull requests name, without what tells them apart."""

  python: list[str]
  go: list[str]
  java: list[str]


def split_tests(tests: Iterable[str]) -> Tests:
  """Python modules, Go packages after `go:`, Java classes after `java:`."""
  found = Tests([], [], [])
  for test in tests:
    if test.startswith(GO_TEST):
      found.go.append(test.removeprefix(GO_TEST))
    elif test.startswith(JAVA_TEST):
      found.java.append(test.removeprefix(JAVA_TEST))
    else:
      found.python.append(test)
  return found


def compile_problems(
    series: Series, all_bases: list[bases.Base]) -> dict[str, list[Problem]]:
  """What is wrong with each prefix on the pin, by its last pull request.

  A problem is told once, at the first prefix that has it.
  """
  found = {}
  told = set()
  shipped = {path for base in all_bases for path in base.paths()}
  for count, pr in enumerate(series.pull_requests, 1):
    result = overlay.apply_series(series.prefix(count), all_bases)
    problems = result.problems + import_problems(result, all_bases, shipped)
    found[pr.name] = [p for p in problems if p not in told]
    told |= set(problems)
  return found


def import_problems(
    result: overlay.Overlay, all_bases: list[bases.Base],
    shipped: set[str]) -> list[Problem]:
  """Imports of Beam modules that neither the base nor the series has."""

  def read(path: str) -> bytes | None:
    if path in result.files:
      return result.files[path]
    return next(
        (b.read(path) for b in all_bases if b.part.holds(path)), None)

  return imports.problems(
      result.files, imports.existence(shipped | set(result.files)), read)


def run_tests(
    space: Workspace,
    series: Series,
    wheel: bases.WheelBase,
    python: pathlib.Path,
    names: set[str]) -> Iterator[tuple[str, pytests.Result]]:
  """Runs the tests of each named pull request on the prefix it ends.

  Args:
    space: the checkout.
    series: the whole series.
    wheel: the pinned release.
    python: a Python with what Beam and the tests need.
    names: the pull requests to try; the others are only laid over.

  Yields:
    The name of each pull request that names tests, and their result.
  """
  space.work.mkdir(exist_ok=True)
  with tempfile.TemporaryDirectory(
      prefix='prefix-', dir=space.work) as temporary:
    folder = pathlib.Path(temporary) / 'beam'
    with zipfile.ZipFile(wheel.wheel) as archive:
      archive.extractall(folder)
    elsewhere = pathlib.Path(temporary) / 'cwd'
    elsewhere.mkdir()
    for count, pr in enumerate(series.pull_requests, 1):
      if names.isdisjoint(p.name for p in series.pull_requests[count - 1:]):
        return
      lay_over(series.prefix(count), wheel, folder)
      modules, packages, classes = split_tests(pr.tests)
      if pr.name not in names:
        continue
      if packages:
        # What stands outside of its package runs with the whole series.
        yield pr.name, gotests.run_patiently(
            gotests.lay_out(space, series.prefix(count), inner=True),
            gotests.lay_out(space, series.prefix(0), inner=True), packages,
            f'prefix-go-{pr.name}', races=False)
      if classes:
        yield pr.name, javabuild.run_tests(
            space, series.prefix(count),
            bases.load_pins(space.stack / 'base.toml'), classes,
            f'prefix-java-{pr.name}')
      if modules:
        yield pr.name, pytests.run(
            python,
            modules,
            name=f'prefix-{pr.name}',
            logs=space.logs,
            cwd=elsewhere,
            rootdir=folder,
            env={'PYTHONPATH': os.fspath(folder)})


def lay_over(
    series: Series, wheel: bases.WheelBase, folder: pathlib.Path) -> None:
  """Puts a series over an unpacked wheel."""
  result = overlay.apply_series(series, [wheel])
  if result.problems:
    raise ProblemsFound(result.problems)
  write_files(
      folder,
      {PYTHON.artifact_path(path): d for path, d in result.files.items()})
