"""Gets a whole Flink: the Python package with its libraries has all of it.

It is a source distribution without code to build: it is downloaded, held
against its hash, and unpacked.
"""

import pathlib
import shutil
import sys
import tarfile
import tempfile

from beamstack import console
from beamstack import processes
from beamstack import venvs
from beamstack.errors import CannotRun
from beamstack.workspace import Workspace

SECONDS = 900.0


def distribution(space: Workspace) -> pathlib.Path:
  """The folder with lib, opt, plugins and bin of Flink; fetched once."""
  requirements = space.requirements / 'flink.txt'
  key = venvs.digest(requirements.read_bytes())
  folder = space.work / f'flink-{key}'
  with venvs.locked(folder):
    if not folder.is_dir():
      with console.step('fetching Flink (250 MB)'):
        _fill(space, requirements, folder)
  return folder


def _fill(
    space: Workspace, requirements: pathlib.Path,
    folder: pathlib.Path) -> None:
  with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
    partial = pathlib.Path(temporary)
    try:
      processes.must_run(
          [
              sys.executable, '-m', 'pip', 'download',
              '--disable-pip-version-check', '--no-input', '--no-deps',
              '--no-binary=:all:', '--require-hashes', '--dest', partial,
              '-r', requirements
          ],
          what='pip download of Flink',
          remedy='try again',
          log=space.logs / 'fetch-flink.log',
          timeout=SECONDS)
    except processes.ChildFailed as e:
      raise venvs.explained(e) from e
    found = sorted(partial.glob('*.tar.gz'))
    if len(found) != 1:
      raise CannotRun(
          f'pip served {len(found)} archives as Flink',
          f'see {space.logs / "fetch-flink.log"}')
    with tarfile.open(found[0]) as archive:
      if hasattr(tarfile, 'data_filter'):
        archive.extractall(partial, filter='data')
      else:
        archive.extractall(partial)
    inner = next(partial.glob('*/deps'), None)
    if inner is None or not list((inner / 'lib').glob('flink-dist*.jar')):
      raise CannotRun(
          'the package of Flink has no deps/lib/flink-dist*.jar',
          'its layout changed: mend stack/beamstack/flinkdist.py')
    shutil.move(str(inner), folder)
