"""The verbs of the command line: their options, and what they call."""

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable

from beamstack import bases
from beamstack import console
from beamstack import fetch
from beamstack import pythons
from beamstack import series
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
        'wheel', _wheel, 'make the dev wheel: Beam with the series applied',
        'It goes to dist/, and is the same byte for byte each time.',
        _wheel_arguments),
    Verb(
        'python', _python, 'run a Python that has the dev wheel installed',
        'The environment is made when it is first asked for.',
        _python_arguments),
)
