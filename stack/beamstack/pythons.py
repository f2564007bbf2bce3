"""Environments with a Beam in them, made when they are first asked for.

What Beam needs takes most of the time and space, and changes seldom: it lies
in an environment of its own. One with a certain Beam holds that Beam alone
and looks there for the rest, so it is made within seconds.
"""

import pathlib

from beamstack import bases
from beamstack import devwheel
from beamstack import fetch
from beamstack import processes
from beamstack import venvs
from beamstack.series import Series
from beamstack.workspace import Workspace


def _requirements(space: Workspace) -> list[pathlib.Path]:
  """The pins of what Beam needs, and of the test tools."""
  return [
      space.requirements / 'beam.txt',
      space.requirements / 'test.txt',
  ]


def _key(space: Workspace, *wheels: pathlib.Path) -> str:
  files = (*_requirements(space), *wheels)
  return venvs.digest(
      bases.this_python(), *(path.read_bytes() for path in files))


def site_packages(python: pathlib.Path) -> pathlib.Path:
  """Where an environment keeps its packages."""
  return (
      python.parents[1] / 'lib' / f'python{bases.this_python()}' /
      'site-packages')


def dependencies(space: Workspace) -> pathlib.Path:
  """The Python of an environment with what Beam and the tests need."""
  arguments = [
      word for path in _requirements(space) for word in ('-r', str(path))
  ]
  return venvs.ensure(
      space.work / f'venv-dependencies-{_key(space)}', [arguments],
      title='an environment with what Beam needs',
      log=space.logs / 'venv-dependencies.log')


def layered(
    space: Workspace, name: str, *wheels: pathlib.Path) -> pathlib.Path:
  """The Python of an environment with wheels, over the dependencies."""
  below = dependencies(space)
  log = space.logs / f'venv-{name}.log'

  def fill(python: pathlib.Path) -> None:
    pth = site_packages(python) / 'beamstack-dependencies.pth'
    pth.write_text(f'{site_packages(below)}\n')
    venvs.pip_install(
        python, ['--no-deps', *(str(wheel) for wheel in wheels)], log=log)

  return venvs.ensure(
      space.work / f'venv-{name}-{_key(space, *wheels)}', [],
      title='an environment with ' + ' and '.join(map(_short, wheels)),
      log=log,
      pip=False,
      fill=fill)


def whole(
    space: Workspace, name: str, *wheels: pathlib.Path) -> pathlib.Path:
  """The Python of an environment for which pip resolves what is needed.

  It takes longer than `layered`, and shows that the wheels can be installed
  by people.
  """
  constraints, _ = _requirements(space)
  return venvs.ensure(
      space.work / f'venv-{name}-{_key(space, *wheels)}',
      [['--constraint', str(constraints), *(str(wheel) for wheel in wheels)]],
      title='an environment in which pip installs ' +
      ' and '.join(map(_short, wheels)),
      log=space.logs / f'venv-{name}.log')


def _short(wheel: pathlib.Path) -> str:
  return '-'.join(wheel.name.split('-')[:2])


def check(python: pathlib.Path) -> None:
  """Lets pip hold all that is installed against what it asks for."""
  processes.must_run(
      [python, '-m', 'pip', 'check'],
      what='pip check',
      without=('PYTHONPATH', ))


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
  return layered(space, f'dev-{version}', wheel)


def with_stock(
    space: Workspace, pins: bases.Pins, version: str) -> pathlib.Path:
  """The Python of an environment with Beam as released."""
  return layered(
      space, f'stock-{version}', fetch.wheel(space, pins, version).wheel)
