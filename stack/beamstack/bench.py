"""The verb `bench`: measures the series against upstream's own."""

import pathlib

from beamstack import bases
from beamstack import gobuild
from beamstack import pythons
from beamstack.errors import CannotRun
from beamstack.series import Series
from beamstack.workspace import Workspace

SUBJECTS = ('unbounded', )


def command(
    space: Workspace, series: Series, pins: bases.Pins, subject: str,
    arguments: list[str]) -> list[str]:
  """The command line of a benchmark; makes what it needs beforehand.

  The rival is the newest pinned release as it was released.
  """
  script = space.root / 'benchmarks' / f'{subject}.py'
  if not script.is_file():
    raise CannotRun(f'{script} is not there', 'git status')
  if not pins.newer:
    raise CannotRun('base.toml pins no newer release to compare with')
  ours = pythons.with_series(space, series, pins)
  rival = pythons.with_stock(space, pins, pins.newer[-1])
  prism = gobuild.prism(space, series.prefix(0), pins, 'prism-base')
  results: pathlib.Path = space.root / 'benchmarks' / 'results'
  return [
      str(ours), str(script), '--ours', str(ours), '--rival', str(rival),
      '--prism', str(prism), '--out', str(results), *arguments
  ]
