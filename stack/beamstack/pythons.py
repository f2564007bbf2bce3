"""Environments with a Beam in them, made when they are first asked for."""

import pathlib

from beamstack import bases
from beamstack import devwheel
from beamstack import fetch
from beamstack import venvs
from beamstack.series import Series
from beamstack.workspace import Workspace


def _pins(space: Workspace) -> list[pathlib.Path]:
  return [
      space.requirements / 'beam.txt',
      space.requirements / 'test.txt',
  ]


def with_wheel(
    space: Workspace,
    wheel: pathlib.Path,
    name: str,
    *,
    others: tuple[pathlib.Path, ...] = ()) -> pathlib.Path:
  """The Python of an environment with a wheel of Beam and the test tools.

  Args:
    space: the checkout.
    wheel: the wheel of Beam.
    name: what the environment is called.
    others: wheels to install after it.
  """
  constraints, tools = _pins(space)
  key = venvs.digest(
      *(path.read_bytes() for path in (wheel, *others, constraints, tools)),
      bases.this_python())
  common = ['--constraint', str(constraints)]
  installs = [[*common, str(wheel), '-r', str(tools)]]
  if others:
    installs.append([*common, *(str(other) for other in others)])
  return venvs.ensure(
      space.work / f'venv-{name}-{key}',
      installs,
      title=f'an environment with {"-".join(wheel.name.split("-")[:2])}',
      log=space.logs / f'venv-{name}.log')


def dev_wheel(
    space: Workspace, series: Series, pins: bases.Pins,
    version: str = '', python: str = '') -> pathlib.Path:
  """Builds the dev wheel, for this Python unless told otherwise."""
  version = version or pins.pin
  base = fetch.wheel(space, pins, version, python)
  return devwheel.build(series, base, space.dist, pin=version == pins.pin)


def with_series(
    space: Workspace, series: Series, pins: bases.Pins,
    version: str = '') -> pathlib.Path:
  """The Python of an environment with the dev wheel."""
  version = version or pins.pin
  wheel = dev_wheel(space, series, pins, version)
  return with_wheel(space, wheel, f'dev-{version}')


def with_stock(
    space: Workspace, pins: bases.Pins, version: str) -> pathlib.Path:
  """The Python of an environment with Beam as released."""
  base = fetch.wheel(space, pins, version)
  return with_wheel(space, base.wheel, f'stock-{version}')
