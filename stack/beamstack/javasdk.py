"""Builds the jar that goes before Beam's Java SDK on a class path.

It holds only what the series changes or adds, so that it can be read and
dropped; its manifest says which series that is. It is tested as people use it:
before the released jars, with Beam's own tests of what it changes.
"""

import pathlib
import shutil
import tempfile
from collections.abc import Callable

from beamstack import bases
from beamstack import jars
from beamstack import javabuild
from beamstack import javadocs
from beamstack import jobserver
from beamstack import prefixes
from beamstack import products
from beamstack import pytests
from beamstack.errors import CannotRun
from beamstack.errors import ProblemsFound
from beamstack.products import JAVA_SDK
from beamstack.series import Series
from beamstack.tree import write_files
from beamstack.workspace import Workspace


def build(space: Workspace, series: Series, pins: bases.Pins) -> pathlib.Path:
  """Builds the jar into dist."""
  problems = javabuild.format_problems(space, series)
  if problems:
    raise ProblemsFound(problems)
  compiled = javabuild.compile_all(
      space, JAVA_SDK, javabuild.sources(space, series, pins, JAVA_SDK),
      name=JAVA_SDK.name)
  if not compiled:
    raise CannotRun('the series has nothing for the Java SDK')
  target = space.dist / f'{JAVA_SDK.name}.jar'
  target.parent.mkdir(exist_ok=True)
  with tempfile.TemporaryDirectory(dir=space.dist) as temporary:
    partial = pathlib.Path(temporary) / target.name
    jars.write(
        compiled, partial,
        {jobserver.STAMP: javabuild.label(series, compiled)})
    partial.replace(target)
  return target


def bench_classes(
    space: Workspace, series: Series, pins: bases.Pins, jar: pathlib.Path,
    folder: pathlib.Path) -> pathlib.Path:
  """Compiles a folder of benchmarks, with the tests that they use.

  What the jar has is left out: they run with it, and without.
  """
  found = javabuild.sources(space, series, pins, JAVA_SDK)
  for path in sorted(folder.glob('*.java')):
    found[path.relative_to(space.root).as_posix()] = path.read_bytes()
  target = space.work / f'{folder.name}-classes'
  shutil.rmtree(target, ignore_errors=True)
  write_files(target, _beside(jar, space, found, folder.name))
  return target


def _beside(
    jar: pathlib.Path, space: Workspace, found: dict[str, bytes],
    name: str) -> dict[str, bytes]:
  """The classes of sources, without those that the jar has."""
  compiled = javabuild.compile_all(
      space, JAVA_SDK, found, tests=True, name=name)
  inside = set(jars.names(jar))
  return {
      name: data for name, data in compiled.items() if name not in inside
  }


def test_classes(series: Series) -> tuple[list[str], list[str]]:
  """The classes of tests: ours, and Beam's own of what the series changes."""
  ours, others = [], []
  for pr in series.pull_requests:
    for name in prefixes.split_tests(pr.tests).java:
      if products.of_test(series, name) is JAVA_SDK:
        ours.append(name)
    if any(map(JAVA_SDK.holds, pr.files)):
      others += prefixes.split_tests(pr.upstream_tests).java
  return ours, sorted(set(others))


def test(
    space: Workspace, series: Series, pins: bases.Pins) -> pytests.Result:
  """Runs ours and Beam's own tests with the jar before the released ones.

  And compiles the Java of pages with it.
  """
  jar = build(space, series, pins)
  pages = javadocs.check(space, JAVA_SDK, jar)
  ours, others = test_classes(series)
  tests = _beside(
      jar, space, javabuild.sources(space, series, pins, JAVA_SDK),
      f'{JAVA_SDK.name}-tests')

  def run(
      classes: list[str], name: str, released: bool = False) -> pytests.Result:
    return javabuild.run_junit(
        space, JAVA_SDK, {} if released else tests, [] if released else [jar],
        classes, f'{JAVA_SDK.name}{name}')

  return pytests.joined([pages, run(ours, ''), patiently(run, others)])


def patiently(
    run: Callable[..., pytests.Result], classes: list[str]) -> pytests.Result:
  """Runs Beam's own tests; those that fail once more, and on the released Beam.

  Some end a watch that finds nothing for a second, which is soon over on a busy
  machine. What fails on the released Beam just so counts as skipped.
  """
  result = run(classes, '-theirs')
  if not result.problems:
    return result
  bad = [
      one for one in classes
      if any(problem.what.startswith(one) for problem in result.problems)
  ] or classes
  again = run(bad, '-theirs-again')
  states = {**result.states, **again.states}
  problems = again.problems
  failed = {test for test, state in again.states.items() if state == 'failed'}
  if failed:
    released = run(bad, '-theirs-released', released=True)
    for test in failed:
      if released.states.get(test) == 'failed':
        states[test] = 'skipped'
        problems = [p for p in problems if p.what != f'{test} failed']
  counts = pytests.count(states)
  if problems and not counts.failed:
    counts = counts + pytests.Counts(failed=1)
  return pytests.Result(counts, states, problems, again.output)
