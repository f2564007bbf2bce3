"""The verb `demo`: runs the example that reads an outbox that grows.

On Prism, which closes windows while a source runs; on FnApiRunner, which does
not, if there is no Go to build Prism with or the user says so.
"""

import shutil

from beamstack import bases
from beamstack import console
from beamstack import gobuild
from beamstack import pythons
from beamstack.series import Series
from beamstack.workspace import Workspace

MODULE = 'apache_beam.examples.unbounded_outbox_demo'
SECONDS = 600.0


def command(
    space: Workspace, series: Series, pins: bases.Pins,
    arguments: list[str]) -> list[str]:
  """The command line of the demo; makes what it needs beforehand."""
  python = pythons.with_series(space, series, pins)
  if not chooses_runner(arguments):
    if shutil.which('go'):
      path = gobuild.prism(space, series, pins, 'prism')
      arguments = ['--prism', str(path), *arguments]
    else:
      console.note(
          'no Go to build Prism with (apt-get install golang): on '
          'FnApiRunner, where windows close when the source ends')
  return [str(python), '-m', MODULE, *arguments]


def chooses_runner(arguments: list[str]) -> bool:
  """Whether the user says where to run, or only wants to be told how to."""
  return any(
      argument.split('=')[0] in ('--runner', '--prism', '-h', '--help')
      for argument in arguments)
