"""Makes the dev wheel: upstream's wheel with the series applied.

Only the metadata carries the series' label. `version.py` stays as it is,
since container tags, Prism's download and Dataflow's checks read it.
"""

import pathlib
import re

from beamstack import bases
from beamstack import overlay
from beamstack import wheelfile
from beamstack.errors import ProblemsFound
from beamstack.series import Series

DIST = 'apache_beam'


def labelled_version(series: Series, version: str) -> str:
  return f'{version}+{series.content_label()}'


def file_name(series: Series, base: bases.WheelBase) -> str:
  """The dev wheel's name: upstream's, with the labelled version."""
  tags = base.wheel.name.split('-', 2)[2]
  return f'{DIST}-{labelled_version(series, base.version)}-{tags}'


def content(
    upstream: dict[str, bytes], version: str, labelled: str,
    changed: dict[str, bytes]) -> dict[str, bytes]:
  """The files of the dev wheel, but for its RECORD.

  Args:
    upstream: the files of upstream's wheel.
    version: upstream's version.
    labelled: the version that the dev wheel's metadata gets.
    changed: files that are new or other than upstream's.
  """
  old = wheelfile.dist_info(list(upstream))
  new = f'{DIST}-{labelled}.dist-info'
  files = {**upstream, **changed}
  result = {}
  for name, data in files.items():
    if name == f'{old}/RECORD':
      continue
    if name == f'{old}/METADATA':
      data = with_version(data, version, labelled)
    if name.startswith(old + '/'):
      name = new + name[len(old):]
    result[name] = data
  return result


def with_version(metadata: bytes, version: str, labelled: str) -> bytes:
  """The metadata with another version; nothing else changes."""
  head, blank, rest = metadata.decode().partition('\n\n')
  changed, count = re.subn(
      rf'(?m)^Version: {re.escape(version)}$',
      lambda _: f'Version: {labelled}',
      head)
  if count != 1:
    raise ValueError(f'METADATA gives the version {version} {count} times')
  return (changed + blank + rest).encode()


def build(
    series: Series, base: bases.WheelBase, folder: pathlib.Path,
    *, pin: bool) -> pathlib.Path:
  """Builds the dev wheel into a folder, and checks what was written."""
  applied = overlay.apply_series(series, [base], pin=pin).must_be_sound()
  changed = {
      base.part.artifact_path(path): data
      for path, data in applied.files.items()
  }
  path = folder / file_name(series, base)
  wheelfile.write(
      path,
      content(
          wheelfile.read(base.wheel),
          base.version,
          labelled_version(series, base.version),
          changed))
  problems = wheelfile.check_record(path)
  if problems:
    raise ProblemsFound(problems)
  wheelfile.remove_other_labels(path)
  return path
