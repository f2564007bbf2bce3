"""Gets the pinned artifacts with the ordinary clients, and checks them."""

import hashlib
import json
import pathlib
import shutil
import sys
import tempfile

from beamstack import bases
from beamstack import console
from beamstack import maven
from beamstack import parts
from beamstack import processes
from beamstack import venvs
from beamstack.errors import CannotRun
from beamstack.workspace import Workspace

# What pip calls the platforms of base.toml.
PIP_PLATFORMS = {
    'linux-x86_64': 'manylinux2014_x86_64',
    'linux-aarch64': 'manylinux2014_aarch64',
    'macos-arm64': 'macosx_11_0_arm64',
}


def sha256_of(path: pathlib.Path) -> str:
  return hashlib.sha256(path.read_bytes()).hexdigest()


def wheel(
    space: Workspace,
    pins: bases.Pins,
    version: str,
    python: str = '',
    platform: str = '') -> bases.WheelBase:
  """The wheel of a Beam release, fetched unless it is here already."""
  python = python or bases.this_python()
  platform = platform or bases.this_platform()
  pin = pins.wheel(version)
  expected = pin.sha256.get((python, platform))
  if expected is None:
    raise CannotRun(
        f'no wheel of Beam {version} is pinned for Python {python} on '
        f'{platform}',
        'use a pair that stack/base.toml pins, or pin this one')
  folder = space.work / 'base' / f'{version}-cp{python}-{platform}'
  with venvs.locked(folder):
    found = sorted(folder.glob('*.whl'))
    if not found:
      _download(space, pin, python, platform, folder, expected)
      found = sorted(folder.glob('*.whl'))
  actual = sha256_of(found[0])
  if actual != expected:
    raise CannotRun(
        f'{found[0]} has the sha256 {actual}, base.toml pins {expected}',
        f'rm -r {folder} and try again; if it stays so, do not use it')
  return bases.WheelBase(version, found[0])


def _download(
    space: Workspace,
    pin: bases.WheelPin,
    python: str,
    platform: str,
    folder: pathlib.Path,
    expected: str) -> None:
  what = f'{pin.package} {pin.version} for Python {python} on {platform}'
  log = space.logs / f'fetch-{folder.name}.log'
  folder.parent.mkdir(parents=True, exist_ok=True)
  with console.step(f'fetching {what}'), tempfile.TemporaryDirectory(
      dir=folder.parent) as partial:
    try:
      processes.must_run(
          [
              sys.executable, '-m', 'pip', 'download',
              '--disable-pip-version-check', '--no-input', '--no-deps',
              '--only-binary=:all:', '--implementation', 'cp',
              '--python-version', python, '--platform',
              PIP_PLATFORMS[platform], '--dest', partial,
              f'{pin.package}=={pin.version}'
          ],
          what=f'pip download of {what}',
          remedy='try again',
          log=log)
    except processes.ChildFailed as e:
      raise venvs.explained(e) from e
    files = sorted(pathlib.Path(partial).glob('*.whl'))
    if len(files) != 1 or sha256_of(files[0]) != expected:
      raise CannotRun(
          f'what pip served as {what} is not the pinned file',
          f'see {log}; check that the registry is the one you trust')
    if folder.exists():
      shutil.rmtree(folder)
    folder.mkdir()
    files[0].rename(folder / files[0].name)


def module(space: Workspace, pins: bases.Pins) -> bases.FolderBase:
  """The pinned Go module; Go keeps it in its own module cache."""
  pin = pins.modules[0]
  go = processes.find_tool('go')
  name = f'{pin.module}@v{pin.version}'
  log = space.logs / 'fetch-go-module.log'
  with console.step(f'fetching the Go module v{pin.version}'), \
      tempfile.TemporaryDirectory() as empty:
    answer = processes.must_run(
        [go, 'mod', 'download', '-json', name],
        what=f'go mod download {name}',
        remedy='check the network and `go env GOPROXY`, then try again',
        cwd=empty,
        log=log)
  # Progress lines may precede the answer.
  told = json.loads(answer[answer.index('{'):])
  for key, expected in (('Sum', pin.sum), ('GoModSum', pin.go_mod_sum)):
    if told.get(key) != expected:
      raise CannotRun(
          f'{name}: {key} is {told.get(key)}, base.toml pins {expected}',
          'go clean -modcache, and try again; if it stays so, do not use it')
  return bases.FolderBase(
      pin.version, parts.GO, pathlib.Path(told['Dir']))


def sources(space: Workspace, pins: bases.Pins) -> list[bases.SourcesBase]:
  """The sources of the pinned modules in Java, in the order of base.toml."""
  wanted = {
      maven.parse(f'{pin.artifact}:{pin.version}:sources', 'base.toml'): pin
      for pin in pins.sources
  }
  jars = maven.fetch_set(
      space,
      maven.ArtifactSet(
          'sources', tuple(wanted),
          {coordinates: pin.sha256
           for coordinates, pin in wanted.items()}, 'base.toml'))
  return [
      bases.SourcesBase(pin.version, pin.part, jar)
      for pin, jar in zip(wanted.values(), jars)
  ]


def all_bases(space: Workspace, pins: bases.Pins) -> list[bases.Base]:
  """One base for each part, at its pin."""
  return [
      wheel(space, pins, pins.pin),
      module(space, pins),
      *(sources(space, pins) if pins.sources else ())
  ]
