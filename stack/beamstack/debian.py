"""Installs programs that tests need from Debian's packages.

Only what is missing is installed, with `apt-get`, as root or by a `sudo` that
asks nothing. On other systems, or without these rights, the error names the
package, and a variable can name a program that is elsewhere.
"""

import dataclasses
import os
import pathlib
import shutil

from beamstack import console
from beamstack import processes
from beamstack.errors import CannotRun
from beamstack.workspace import Workspace

SECONDS = 600.0


@dataclasses.dataclass(frozen=True)
class Program:
  """A program that a test runs.

  Attributes:
    name: what it is called.
    package: the package of Debian that has it.
    variable: of the environment; tells tests, and us, where it is.
  """

  name: str
  package: str
  variable: str


REDIS_SERVER = Program('redis-server', 'redis-server', 'REDIS_SERVER')
JAVAC = Program('javac', 'openjdk-17-jdk-headless', 'JAVAC')
MVN = Program('mvn', 'maven', 'MVN')
PROGRAMS = (REDIS_SERVER, JAVAC, MVN)


def find(space: Workspace, program: Program) -> pathlib.Path:
  """Where the program is; installs it if it is nowhere."""
  named = os.environ.get(program.variable)
  if named:
    found = shutil.which(named)
    if not found:
      raise CannotRun(
          f'{program.variable}={named} is no program',
          f'mend it, or unset {program.variable}')
    return pathlib.Path(found).absolute()
  found = shutil.which(program.name)
  if not found:
    _install(space, program)
    found = shutil.which(program.name)
  if not found:
    raise CannotRun(
        f'{program.package} is installed, but {program.name} is not on the '
        'PATH',
        f'set {program.variable} to where it is')
  return pathlib.Path(found).absolute()


def environment(space: Workspace) -> dict[str, str]:
  """The variables that tell tests where all the programs are."""
  return {
      program.variable: str(find(space, program)) for program in PROGRAMS
  }


def _install(space: Workspace, program: Program) -> None:
  by_hand = (
      f'apt-get install {program.package} as root, or set '
      f'{program.variable} to where {program.name} is')
  apt = shutil.which('apt-get')
  if not apt:
    raise CannotRun(
        f'{program.name} is missing, and so is apt-get',
        f'install {program.name}, or set {program.variable} to where it is')
  prefix = []
  if os.geteuid():
    sudo = shutil.which('sudo')
    if not sudo or processes.run([sudo, '-n', 'true'])[0]:
      raise CannotRun(
          f'{program.name} is missing, and only root can install it', by_hand)
    prefix = [sudo, '-n']
  log = space.logs / f'debian-{program.package}.log'
  # The lists of a new container may be empty, or those of last year.
  steps = (
      ['update'],
      ['install', '-y', '--no-install-recommends', program.package])
  with console.step(f'installing {program.package}'):
    for step in steps:
      processes.must_run(
          [
              *prefix, 'env', 'DEBIAN_FRONTEND=noninteractive',
              # What the package would start as a service is not wanted.
              'RUNLEVEL=1', apt, '-o', 'DPkg::Lock::Timeout=120', *step
          ],
          what=f'apt-get {step[0]} for {program.package}',
          remedy=by_hand,
          log=log,
          timeout=SECONDS)
