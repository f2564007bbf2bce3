"""Builds and tests Go: the pinned module with the series' Go part laid over.

The module is copied out of Go's cache, which is read-only, and go builds it
there as its own main module.
"""

import os
import pathlib
import shutil

from beamstack import bases
from beamstack import console
from beamstack import fetch
from beamstack import overlay
from beamstack import parts
from beamstack import processes
from beamstack import venvs
from beamstack.errors import Problem
from beamstack.errors import ProblemsFound
from beamstack.series import Series
from beamstack.tree import write_files
from beamstack.workspace import Workspace

PRISM = './go/cmd/prism'
# How many layouts of the module are kept; a check has one a prefix. Each takes
# 11 MB.
KEEP = 20
# The variable of a file of the series that tells builds apart. The linker
# passes over it where that file is missing, as in the base's own Prism.
STAMP = 'main.build'
# Nothing of the machine or of this checkout gets into what is built: no
# folder, and no library in C, so that it runs wherever this kernel does.
# Packages that are compiled in one layout are not compiled again in the next.
ENVIRONMENT = {
    'GOFLAGS': '-mod=readonly -trimpath',
    'GOWORK': 'off',
    'CGO_ENABLED': '0',
}


def lay_out(
    space: Workspace, series: Series,
    base: bases.FolderBase) -> tuple[pathlib.Path, overlay.Overlay]:
  """A folder with the module and the series over it; made if it changed."""
  result = overlay.apply_series(series, [base]).must_be_sound()
  key = venvs.digest(
      str(base.folder),
      *(part for path in sorted(result.files)
        for part in (path, result.files[path])))
  folder = space.work / f'go-{key}'
  prune(space.work)
  with venvs.locked(folder):
    if not (folder / 'go.mod').is_file():
      if folder.exists():
        shutil.rmtree(folder)
      with console.step('laying out the Go module'):
        files = {path: base.read(path) or b'' for path in base.paths()}
        files.update(result.files)
        # go.mod is written last: it says that the folder is whole.
        for path in sorted(files, key=lambda p: p == 'sdks/go.mod'):
          write_files(folder, {base.part.artifact_path(path): files[path]})
    (folder / 'go.mod').touch()
  return folder, result


def prune(work: pathlib.Path) -> None:
  """Removes the layouts that were asked for longest ago, but for some."""
  found = [path.parent for path in work.glob('go-*/go.mod')]
  found.sort(key=lambda path: (path / 'go.mod').stat().st_mtime)
  for old in found[:-KEEP]:
    (old / 'go.mod').unlink(missing_ok=True)  # It is not whole any more.
    shutil.rmtree(old, ignore_errors=True)


def touched_packages(result: overlay.Overlay) -> list[str]:
  """The packages with files that are new or edited, as go names them."""
  folders = {
      os.path.dirname(parts.GO.artifact_path(path))
      for path in result.files if path.endswith('.go')
  }
  return sorted(f'./{folder}' for folder in folders)


def prism(
    space: Workspace, series: Series, pins: bases.Pins,
    name: str) -> pathlib.Path:
  """Builds Prism with a series over the base, to dist/ under a name.

  An empty series gives the base's own Prism.
  """
  go = processes.find_tool('go')
  base = fetch.module(space, pins)
  folder, result = lay_out(space, series, base)
  packages = touched_packages(result)
  target = space.dist / name
  target.parent.mkdir(exist_ok=True)
  if packages:
    with console.step('gofmt and go vet of the touched packages'):
      vet(space, folder, result, packages)
  with console.step(f'building dist/{name}'):
    processes.must_run(
        [
            go, 'build', '-buildvcs=false',
            f'-ldflags=-buildid= -X={STAMP}={series.content_label()}', '-o',
            target, PRISM
        ],
        what='go build of Prism',
        remedy='go version (1.26 or newer is needed)',
        cwd=folder,
        env=ENVIRONMENT,
        log=space.logs / f'go-build-{name}.log')
  return target


def vet(
    space: Workspace, folder: pathlib.Path, result: overlay.Overlay,
    packages: list[str]) -> None:
  """Holds the touched packages against gofmt and go vet."""
  files = [
      parts.GO.artifact_path(path)
      for path in result.files if path.endswith('.go')
  ]
  ill = processes.must_run(
      [processes.find_tool('gofmt'), '-l', *files], what='gofmt', cwd=folder)
  problems = [
      Problem(path, 'gofmt would format it otherwise', f'gofmt -w {path}')
      for path in ill.split()
  ]
  log = space.logs / 'go-vet.log'
  code, output = processes.run(
      [processes.find_tool('go'), 'vet', *packages],
      cwd=folder,
      env=ENVIRONMENT,
      log=log)
  if code:
    last = ' / '.join(processes.last_lines(output, 3))
    problems.append(Problem('go vet', last, f'see {log}'))
  if problems:
    raise ProblemsFound(problems)
