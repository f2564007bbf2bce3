"""Gets from the launcher into the program. Standard library only."""

import os
import pathlib
import platform
import sys

from beamstack import console
from beamstack import venvs
from beamstack.errors import BeamstackError


def program_venv(root: pathlib.Path) -> pathlib.Path:
  """Where the program's own environment lies, named for its content."""
  pins = (root / 'stack' / 'requirements' / 'program.txt').read_bytes()
  name = venvs.digest(pins, platform.python_version(), sys.prefix)
  return root / '.beamstack' / f'program-{name}'


def main(root: str, arguments: list[str]) -> int:
  folder = pathlib.Path(root)
  try:
    python = venvs.ensure(
        program_venv(folder),
        [['-r', str(folder / 'stack' / 'requirements' / 'program.txt')]],
        title='the environment of the program',
        log=folder / '.beamstack' / 'logs' / 'program-venv.log')
  except BeamstackError as e:
    console.note(f'beamstack: {e}')
    if getattr(e, 'remedy', ''):
      console.note(f'  next: {e.remedy}')
    return e.exit_code
  except KeyboardInterrupt:
    console.note('beamstack: interrupted')
    return 130
  # Becoming the program lets Ctrl-C and signals reach it directly.
  # The program is run by its path: a PYTHONPATH would reach its children too.
  program = str(folder / 'stack' / 'beamstack')
  os.execv(python, [str(python), '-B', program, *arguments])
