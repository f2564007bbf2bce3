"""The released Beam that the series stands on: what is pinned, what is in it.

`Pins` is base.toml. A `Base` answers what a release holds, by repository
path. How the artifacts get here is in `fetch`.
"""

import dataclasses
import pathlib
import platform
import sys
import zipfile
from typing import Protocol

from beamstack import parts
from beamstack import tomlfile
from beamstack.errors import CannotRun

PYTHONS = ('3.10', '3.11', '3.12', '3.13')


@dataclasses.dataclass(frozen=True)
class WheelPin:
  """The wheels of one release, by Python version and platform."""

  version: str
  package: str
  sha256: dict[tuple[str, str], str]


@dataclasses.dataclass(frozen=True)
class ModulePin:
  """A release of a Go module and its two sums."""

  version: str
  module: str
  sum: str
  go_mod_sum: str


@dataclasses.dataclass(frozen=True)
class SourcesPin:
  """A release of a module in Java: the jar of its sources."""

  part: parts.Part
  version: str
  artifact: str
  sha256: str


@dataclasses.dataclass(frozen=True)
class Pins:
  """base.toml: the releases of each part, the first one being the pin."""

  wheels: tuple[WheelPin, ...]
  modules: tuple[ModulePin, ...]
  sources: tuple[SourcesPin, ...] = ()

  @property
  def pin(self) -> str:
    """The version of Python Beam that the series is written against."""
    return self.wheels[0].version

  @property
  def newer(self) -> list[str]:
    return [wheel.version for wheel in self.wheels[1:]]

  def wheel(self, version: str) -> WheelPin:
    for pin in self.wheels:
      if pin.version == version:
        return pin
    raise CannotRun(
        f'Beam {version} is not pinned in stack/base.toml',
        'use one of ' + ', '.join(pin.version for pin in self.wheels))


def load_pins(path: pathlib.Path) -> Pins:
  """Reads base.toml."""
  content = tomlfile.Table('base.toml', tomlfile.load(path))
  by_name = {part.name: part for part in parts.ALL}
  wheels, modules, sources = [], [], []
  for raw in content.take('base', list):
    table = tomlfile.Table('base.toml [[base]]', raw)
    kind = table.take('kind', str)
    part = table.take('part', str)
    table.where = f'base.toml, the {kind} of part {part}'
    if part not in by_name:
      raise CannotRun(f'{table.where}: the part is unknown', 'mend it')
    if kind == 'wheel':
      wheels.append(_wheel_pin(table))
    elif kind == 'module':
      modules.append(
          ModulePin(
              table.take('version', str),
              table.take('module', str),
              table.take('sum', str),
              table.take('go-mod-sum', str)))
    elif kind == 'sources':
      sources.append(
          SourcesPin(
              by_name[part],
              table.take('version', str),
              table.take('artifact', str),
              table.take('sha256', str)))
    else:
      raise CannotRun(f'{table.where}: the kind is unknown', 'mend it')
    table.done()
  content.done()
  if not wheels or not modules:
    raise CannotRun('base.toml pins no wheel or no Go module', 'git status')
  return Pins(tuple(wheels), tuple(modules), tuple(sources))


def _wheel_pin(table: tomlfile.Table) -> WheelPin:
  hashes = {}
  for raw in table.take('wheel', list):
    row = tomlfile.Table(f'{table.where} [[base.wheel]]', raw)
    key = (row.take('python', str), row.take('platform', str))
    hashes[key] = row.take('sha256', str)
    row.done()
  return WheelPin(
      table.take('version', str), table.take('package', str), hashes)


def this_python() -> str:
  return f'{sys.version_info[0]}.{sys.version_info[1]}'


def this_platform() -> str:
  """This machine, as base.toml names platforms."""
  system = {'Darwin': 'macos'}.get(
      platform.system(), platform.system().lower())
  machine = {'amd64': 'x86_64'}.get(
      platform.machine().lower(), platform.machine().lower())
  if system == 'linux' and machine == 'arm64':
    machine = 'aarch64'
  return f'{system}-{machine}'


class Base(Protocol):
  """What a release holds of one part."""

  version: str
  part: parts.Part

  def paths(self) -> list[str]:
    """All of its repository paths, sorted."""

  def read(self, path: str) -> bytes | None:
    """A file's content; None if the release does not have it."""

  def compiled_sibling(self, path: str) -> str:
    """The compiled module that hides a source file; empty if none does."""


class WheelBase:
  """A released wheel as a base."""

  def __init__(self, version: str, wheel: pathlib.Path):
    self.version = version
    self.part = parts.PYTHON
    self.wheel = wheel
    self._archive = zipfile.ZipFile(wheel)
    self._names = {
        self.part.repository_path(info.filename): info.filename
        for info in self._archive.infolist() if not info.is_dir()
    }

  def paths(self) -> list[str]:
    return sorted(path for path in self._names if self.part.holds(path))

  def read(self, path: str) -> bytes | None:
    name = self._names.get(path)
    return None if name is None else self._archive.read(name)

  def compiled_sibling(self, path: str) -> str:
    if not path.endswith('.py'):
      return ''
    stem = path.removesuffix('.py') + '.'
    for other in self._names:
      if other.startswith(stem) and other.endswith(('.so', '.pyd')):
        return other
    return ''


class FolderBase:
  """An unpacked artifact as a base, such as a Go module's folder."""

  def __init__(self, version: str, part: parts.Part, folder: pathlib.Path):
    self.version = version
    self.part = part
    self.folder = folder

  def paths(self) -> list[str]:
    found = (
        self.part.repository_path(path.relative_to(self.folder).as_posix())
        for path in self.folder.rglob('*') if path.is_file())
    return sorted(path for path in found if self.part.holds(path))

  def read(self, path: str) -> bytes | None:
    file = self.folder / self.part.artifact_path(path)
    return file.read_bytes() if file.is_file() else None

  def compiled_sibling(self, path: str) -> str:
    del path  # Nothing is compiled beforehand in a source folder.
    return ''


class SourcesBase:
  """The sources jar of a released module in Java as a base."""

  def __init__(self, version: str, part: parts.Part, jar: pathlib.Path):
    self.version = version
    self.part = part
    self.jar = jar
    self._archive = zipfile.ZipFile(jar)
    # What else is in there, such as META-INF, is not of the repository.
    self._names = {
        part.repository_path(name): name
        for name in self._archive.namelist() if name.endswith(part.suffix)
    }

  def paths(self) -> list[str]:
    return sorted(self._names)

  def read(self, path: str) -> bytes | None:
    name = self._names.get(path)
    return None if name is None else self._archive.read(name)

  def compiled_sibling(self, path: str) -> str:
    del path  # A jar of sources holds no classes.
    return ''
