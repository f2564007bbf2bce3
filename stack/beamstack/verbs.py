"""The verbs of the command line: their options, and what they call."""

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable

from beamstack import bases
from beamstack import check
from beamstack import console
from beamstack import fetch
from beamstack import gobuild
from beamstack import pythons
from beamstack import series
from beamstack import tree
from beamstack.errors import CannotRun
from beamstack.workspace import Workspace


@dataclasses.dataclass(frozen=True)
class Verb:
  """One verb.

  Attributes:
    name: what one types.
    run: does it, and returns the exit code.
    help: one line, in lower case.
    details: more lines for `--help` of the verb.
    add_arguments: adds its options to a parser.
  """

  name: str
  run: Callable[[Workspace, argparse.Namespace], int]
  help: str
  details: str = ''
  add_arguments: Callable[[argparse.ArgumentParser], None] = lambda _: None


def _load(space: Workspace) -> tuple[series.Series, bases.Pins]:
  return (
      series.load(space.root), bases.load_pins(space.stack / 'base.toml'))


def _base(space: Workspace, options: argparse.Namespace) -> int:
  del options
  pins = bases.load_pins(space.stack / 'base.toml')
  for pin in pins.wheels:
    console.result(str(fetch.wheel(space, pins, pin.version).wheel))
  console.result(str(fetch.module(space, pins).folder))
  return 0


def _wheel(space: Workspace, options: argparse.Namespace) -> int:
  current, pins = _load(space)
  path = pythons.dev_wheel(space, current, pins, options.beam, options.python)
  console.result(str(path.relative_to(space.root)))
  return 0


def _wheel_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
      '--beam', default='', metavar='VERSION',
      help='the release to apply the series to: 2.75.0 (default) or 2.77.0')
  parser.add_argument(
      '--python', default='', choices=bases.PYTHONS,
      help='the Python that the wheel is for (default: the one that runs '
      'this)')


def _tree(space: Workspace, options: argparse.Namespace) -> int:
  del options
  current, pins = _load(space)
  _, commits = _lay_out(space, current, pins)
  for name, commit in commits.items():
    console.result(f'{commit[:12]} {name or "base"}')
  return 0


def _lay_out(space: Workspace, current: series.Series, pins: bases.Pins):
  all_bases = [
      fetch.wheel(space, pins, pins.pin), fetch.module(space, pins)
  ]
  folder = space.dist / 'tree'
  with console.step('laying out dist/tree'):
    return folder, tree.lay_out(current, all_bases, folder)


def _export(space: Workspace, options: argparse.Namespace) -> int:
  del options
  current, pins = _load(space)
  folder, commits = _lay_out(space, current, pins)
  patches = tree.export(current, folder, commits[''], space.dist / 'patches')
  for path in patches:
    console.result(str(path.relative_to(space.root)))
  return 0


def _check(space: Workspace, options: argparse.Namespace) -> int:
  current, pins = _load(space)
  run = check.Check(space, current, pins, options.names)
  return run.run(beam=options.beam, tests=not options.fast)


def _check_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
      'names', nargs='*', metavar='NAME',
      help='pull requests or edits to look at (default: the whole series)')
  parser.add_argument(
      '--beam', default='', metavar='VERSION',
      help='hold the edits against this release alone: 2.75.0 or 2.77.0')
  parser.add_argument(
      '--fast', action='store_true',
      help='leave out the tests of each prefix')


def _prism(space: Workspace, options: argparse.Namespace) -> int:
  current, pins = _load(space)
  if options.base:
    path = gobuild.prism(space, current.prefix(0), pins, 'prism-base')
  else:
    path = gobuild.prism(space, current, pins, 'prism')
  console.result(str(path.relative_to(space.root)))
  return 0


def _prism_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
      '--base', action='store_true',
      help='build the released Prism, without the series, to '
      'dist/prism-base')


def _python(space: Workspace, options: argparse.Namespace) -> int:
  current, pins = _load(space)
  python = pythons.with_series(space, current, pins)
  sys.stdout.flush()
  arguments = options.arguments
  if arguments[:1] == ['--']:
    arguments = arguments[1:]
  os.execv(python, [str(python), *arguments])
  raise CannotRun(f'{python} could not be started')


def _python_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
      'arguments', nargs=argparse.REMAINDER, metavar='ARGS',
      help='what Python gets, such as -m pytest or a script')


ALL = (
    Verb(
        'base', _base, 'fetch the pinned releases and check their hashes',
        'Uses pip and go, with the registries that they are set up for.'),
    Verb(
        'tree', _tree,
        'lay the series out as a git repository, dist/tree',
        'One commit holds the base, then each pull request has one. The ids '
        'are the\nsame each time.'),
    Verb(
        'export', _export, 'write the patches and a cover letter',
        'They go to dist/patches, and are the same byte for byte each time.'),
    Verb(
        'check', _check, 'hold the series against its rules and its bases',
        'Files and their owners, order, descriptions; edits at the pin and '
        'over newer\nreleases; each prefix compiles and passes the tests it '
        'names; the export is\nreproducible and applies.', _check_arguments),
    Verb(
        'wheel', _wheel, 'make the dev wheel: Beam with the series applied',
        'It goes to dist/, and is the same byte for byte each time.',
        _wheel_arguments),
    Verb(
        'prism', _prism, 'build Prism with the series applied, dist/prism',
        'Pipelines use it with --prism_location=dist/prism.',
        _prism_arguments),
    Verb(
        'python', _python, 'run a Python that has the dev wheel installed',
        'The environment is made when it is first asked for.',
        _python_arguments),
)
