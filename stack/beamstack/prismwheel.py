"""Makes the companion wheel: Prism, built for this machine, as a package.

Its version is the dev wheel's. Beam finds it by an entry point that is named
for the platform, in Go's words. The tags hold because the program is linked
statically, which is checked.
"""

import dataclasses
import pathlib
import struct

from beamstack import bases
from beamstack import devwheel
from beamstack import gobuild
from beamstack import wheelfile
from beamstack.errors import CannotRun
from beamstack.errors import Problem
from beamstack.errors import ProblemsFound
from beamstack.series import Series
from beamstack.workspace import Workspace

NAME = 'beam-unending-prism'
DIST = 'beam_unending_prism'
PROGRAM = f'{DIST}/prism'
GROUP = 'apache_beam.prism'

DESCRIPTION = '''\
# {name}

Prism, the local runner of Apache Beam {version}, with a series of pull
requests applied. This one is for {platform}.

With the dev wheel of the same series, `--runner=PrismRunner` runs it without
a download or an option, and so does the default runner where it takes Prism.
An unmodified Beam {version} does not look for it:

    python pipeline.py --runner=PrismRunner \\
        --prism_location=$(python -m {module})
'''


@dataclasses.dataclass(frozen=True)
class Platform:
  """A platform, as Go and as pip call it.

  Attributes:
    go: its system and its architecture.
    tag: its tag in the name of a wheel. Go's own programs need no library of
      the system on Linux, and the named release on macOS.
  """

  go: str
  tag: str


PLATFORMS = {
    'linux-x86_64': Platform('linux-amd64', 'manylinux_2_17_x86_64'),
    'linux-aarch64': Platform('linux-arm64', 'manylinux_2_17_aarch64'),
    'macos-arm64': Platform('darwin-arm64', 'macosx_12_0_arm64'),
}


def this_platform() -> Platform:
  name = bases.this_platform()
  if name not in PLATFORMS:
    raise CannotRun(
        f'there is no companion wheel for {name}',
        'pass the binary with --prism_location=dist/prism')
  return PLATFORMS[name]


def interpreter(program: bytes) -> str:
  """The loader that an ELF program asks for; empty if it needs none."""
  if program[:5] != b'\x7fELF\x02':
    return ''
  order = '<' if program[5] == 1 else '>'
  offset, = struct.unpack_from(order + 'Q', program, 32)
  size, count = struct.unpack_from(order + 'HH', program, 54)
  for at in range(offset, offset + size * count, size):
    kind, = struct.unpack_from(order + 'I', program, at)
    if kind == 3:  # PT_INTERP
      start, = struct.unpack_from(order + 'Q', program, at + 8)
      length, = struct.unpack_from(order + 'Q', program, at + 32)
      return program[start:start + length].rstrip(b'\0').decode()
  return ''


def content(
    series: Series, version: str, platform: Platform, program: bytes,
    package: pathlib.Path) -> dict[str, bytes]:
  """The files of the wheel, but for its RECORD."""
  labelled = devwheel.labelled_version(series, version)
  info = f'{DIST}-{labelled}.dist-info'
  description = DESCRIPTION.format(
      name=NAME, version=version, platform=platform.go, module=DIST)
  files = {
      f'{DIST}/{path.name}': path.read_bytes()
      for path in sorted(package.glob('*.py'))
  }
  files[PROGRAM] = program
  files[f'{info}/METADATA'] = (
      'Metadata-Version: 2.1\n'
      f'Name: {NAME}\n'
      f'Version: {labelled}\n'
      f'Summary: Prism of Apache Beam {version} with the series applied\n'
      'License: Apache-2.0\n'
      'Requires-Python: >=3.10\n'
      f'Requires-Dist: apache-beam =={version}\n'
      'Description-Content-Type: text/markdown\n'
      f'\n{description}').encode()
  files[f'{info}/WHEEL'] = (
      'Wheel-Version: 1.0\nGenerator: beamstack\nRoot-Is-Purelib: false\n'
      f'Tag: py3-none-{platform.tag}\n').encode()
  files[f'{info}/entry_points.txt'] = (
      f'[{GROUP}]\n{platform.go} = {DIST}:binary\n').encode()
  licence = series.root / 'LICENSE'
  if licence.is_file():
    files[f'{info}/licenses/LICENSE'] = licence.read_bytes()
  return files


def pack(
    series: Series, version: str, platform: Platform, program: bytes,
    package: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
  """Writes the wheel of a program into a folder, and checks it.

  Args:
    series: gives the label.
    version: the release of Beam that it is for.
    platform: what the program runs on.
    program: the program.
    package: the folder of the Python files around it.
    folder: where the wheel goes.
  """
  loader = interpreter(program)
  if loader:
    raise ProblemsFound([
        Problem(
            'companion wheel',
            f'the program asks for {loader}, so it does not run wherever '
            f'{platform.tag} does',
            'build it with CGO_ENABLED=0')
    ])
  labelled = devwheel.labelled_version(series, version)
  path = folder / f'{DIST}-{labelled}-py3-none-{platform.tag}.whl'
  wheelfile.write(
      path,
      content(series, version, platform, program, package),
      executable=[PROGRAM])
  wrong = wheelfile.check_record(path)
  if wrong:
    raise ProblemsFound(wrong)
  wheelfile.remove_other_labels(path)
  return path


def build(
    space: Workspace, series: Series, pins: bases.Pins) -> pathlib.Path:
  """Builds Prism and its wheel, to dist/."""
  platform = this_platform()
  program = gobuild.prism(space, series, pins, 'prism')
  return pack(
      series,
      pins.pin,
      platform,
      program.read_bytes(),
      space.stack / 'prism_package' / DIST,
      space.dist)
