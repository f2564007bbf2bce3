"""Runs the tests that a newer Beam ships for a module of ours, against ours.

The file of tests is taken from the released wheel into a temporary folder,
under another name, and run with a Python that has the dev wheel. A list says
which of its tests may fail, and why; the list is held to strictly.
"""

import dataclasses
import os
import pathlib
import shutil
import tempfile
import zipfile

from beamstack import bases
from beamstack import fetch
from beamstack import pytests
from beamstack import tomlfile
from beamstack.errors import CannotRun
from beamstack.errors import Problem
from beamstack.workspace import Workspace


@dataclasses.dataclass(frozen=True)
class Rival:
  """One file of tests, and those of them that may fail.

  Attributes:
    name: the name of the list.
    beam: the release that ships the tests.
    file: where they lie in its wheel.
    module: the module of the wheel that they test, dotted.
    lent: names of that module that say nothing about what is tested (test
      data), and so are lent to the tests where ours has none.
    left_out: the reason by `Class::test`, or by `Class` for all of it.
  """

  name: str
  beam: str
  file: str
  module: str
  lent: tuple[str, ...]
  left_out: dict[str, str]


def load(space: Workspace) -> list[Rival]:
  """Reads all lists of a checkout."""
  found = []
  for path in sorted((space.stack / 'rival').glob('*.toml')):
    table = tomlfile.Table(path.name, tomlfile.load(path))
    left_out = {}
    for raw in table.take('leave-out', list, []):
      row = tomlfile.Table(f'{path.name} [[leave-out]]', raw)
      reason = row.take('reason', str)
      for test in row.take_strings('tests'):
        left_out[test] = reason
      row.done()
    found.append(
        Rival(
            path.stem, table.take('beam', str), table.take('file', str),
            table.take('module', str), tuple(table.take_strings('lent')),
            left_out))
    table.done()
  if not found:
    raise CannotRun('stack/rival holds no list', 'git status')
  return found


def run(
    space: Workspace, pins: bases.Pins, rival: Rival,
    python: pathlib.Path) -> pytests.Result:
  """Runs the tests of one file against the Beam that `python` has."""
  wheel = fetch.wheel(space, pins, rival.beam).wheel
  with tempfile.TemporaryDirectory() as temporary:
    # Another name: the module of that name in the dev wheel is not meant.
    name = f'rival_{pathlib.PurePosixPath(rival.file).name}'
    folder = pathlib.Path(temporary)
    target = folder / name
    module = rival.module.replace('.', '/') + '.py'
    with zipfile.ZipFile(wheel) as archive:
      target.write_bytes(archive.read(rival.file))
      (folder / 'rival_module.py').write_bytes(archive.read(module))
    shutil.copy(space.stack / 'rival' / 'conftest.py', folder)
    result = pytests.run(
        python, [os.fspath(target)],
        name=f'rival-{rival.name}',
        logs=space.logs,
        cwd=pathlib.Path(temporary),
        rootdir=pathlib.Path(temporary),
        expected=[target.stem],
        more=('--import-mode=importlib', ),
        env={
            'PYTHONPATH': temporary,
            'RIVAL_OURS': rival.module,
            'RIVAL_LENT': ','.join(rival.lent),
            'RIVAL_TESTS': os.fspath(target),
        })
  problems = judge(rival, result.states)
  if not result.states:
    problems += result.problems
  counts = pytests.count(judged_states(rival, result.states))
  if problems and not counts.failed:
    counts = counts + pytests.Counts(failed=1)
  return pytests.Result(counts, result.states, problems, result.output)


def short(test: str) -> str:
  """`Class::test` of a test as a report names it: `module.Class::test`."""
  owner, _, name = test.partition('::')
  return f'{owner.rsplit(".", 1)[-1]}::{name}'


def reason_of(rival: Rival, test: str) -> str:
  named = short(test)
  return rival.left_out.get(
      named, rival.left_out.get(named.split('::')[0], ''))


def judged_states(rival: Rival, states: dict[str, str]) -> dict[str, str]:
  """The states, but a failure with a reason counts as skipped."""
  return {
      test: 'skipped'
      if state == 'failed' and reason_of(rival, test) else state
      for test, state in states.items()
  }


def judge(rival: Rival, states: dict[str, str]) -> list[Problem]:
  """Holds what happened against the list, strictly in both directions."""
  where = f'stack/rival/{rival.name}.toml'
  problems = []
  seen = set()
  for test, state in sorted(states.items()):
    named = short(test)
    reason = reason_of(rival, test)
    seen |= {named, named.split('::')[0]}
    if state == 'failed' and not reason:
      problems.append(
          Problem(
              where,
              f'{named} of Beam {rival.beam} fails and is not named',
              'mend our module, or name the test with a reason'))
    if state == 'passed' and reason:
      problems.append(
          Problem(
              where,
              f'{named} is named ({reason}), but passes',
              'take it out of the list'))
  for named in sorted(set(rival.left_out) - seen):
    problems.append(
        Problem(where, f'{named} is named, but not there', 'mend the name'))
  return problems
