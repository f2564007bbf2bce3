"""Where things lie in a checkout."""

import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class Workspace:
  """A checkout of the repository and the folders that the program uses."""

  root: pathlib.Path

  @property
  def stack(self) -> pathlib.Path:
    return self.root / 'stack'

  @property
  def requirements(self) -> pathlib.Path:
    return self.stack / 'requirements'

  @property
  def work(self) -> pathlib.Path:
    return self.root / '.beamstack'

  @property
  def logs(self) -> pathlib.Path:
    return self.work / 'logs'

  @property
  def dist(self) -> pathlib.Path:
    return self.root / 'dist'


def here() -> Workspace:
  """The checkout that this program lies in."""
  return Workspace(pathlib.Path(__file__).resolve().parents[2])
