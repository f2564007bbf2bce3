"""Reads, checks and writes wheels, byte for byte the same each time."""

import base64
import csv
import hashlib
import io
import pathlib
import zipfile
from collections.abc import Collection
from collections.abc import Mapping

from beamstack.errors import Problem

# The earliest time that a zip entry can have.
TIMESTAMP = (1980, 1, 1, 0, 0, 0)
_MODES = {True: 0o100755, False: 0o100644}


def dist_info(names: list[str]) -> str:
  """The name of the .dist-info folder among the names in a wheel."""
  folders = {
      name.split('/')[0]
      for name in names
      if name.split('/')[0].endswith('.dist-info')
  }
  if len(folders) != 1:
    raise ValueError(f'a wheel has one .dist-info folder, not {len(folders)}')
  return folders.pop()


def read(path: pathlib.Path) -> dict[str, bytes]:
  """All files of a wheel, by their name, in the order of the archive."""
  with zipfile.ZipFile(path) as archive:
    return {
        info.filename: archive.read(info)
        for info in archive.infolist()
        if not info.is_dir()
    }


def sha256_of(data: bytes) -> str:
  """A hash as RECORD writes it."""
  raw = hashlib.sha256(data).digest()
  return 'sha256=' + base64.urlsafe_b64encode(raw).rstrip(b'=').decode()


def record_of(files: Mapping[str, bytes], record_name: str) -> bytes:
  """The content of RECORD for a wheel's files; it lists itself unhashed."""
  out = io.StringIO()
  writer = csv.writer(out, lineterminator='\n')
  for name in sorted(files):
    if name != record_name:
      writer.writerow([name, sha256_of(files[name]), len(files[name])])
  writer.writerow([record_name, '', ''])
  return out.getvalue().encode()


def write(
    path: pathlib.Path,
    files: Mapping[str, bytes],
    executable: Collection[str] = ()) -> None:
  """Writes a wheel; RECORD is made here, the order is fixed.

  The metadata comes last, as the wheel specification recommends.

  Args:
    path: where it goes.
    files: what it holds, by name.
    executable: names of programs. Compiled modules need not be named.
  """
  folder = dist_info(list(files))
  record_name = f'{folder}/RECORD'
  content = {**files, record_name: record_of(files, record_name)}
  names = sorted(content, key=lambda n: (n.startswith(folder + '/'), n))
  path.parent.mkdir(parents=True, exist_ok=True)
  partial = path.with_name(path.name + '.partial')
  with zipfile.ZipFile(partial, 'w') as archive:
    for name in names:
      info = zipfile.ZipInfo(name, TIMESTAMP)
      info.compress_type = zipfile.ZIP_DEFLATED
      info.create_system = 3
      runs = name.endswith('.so') or name in executable
      info.external_attr = _MODES[runs] << 16
      archive.writestr(info, content[name], compresslevel=6)
  partial.replace(path)


def check_record(path: pathlib.Path) -> list[Problem]:
  """Holds RECORD against the archive: nothing missing, extra or changed."""
  with zipfile.ZipFile(path) as archive:
    names = [i.filename for i in archive.infolist() if not i.is_dir()]
    twice = sorted({n for n in names if names.count(n) > 1}) if len(
        names) != len(set(names)) else []
    files = {name: archive.read(name) for name in names}
  where = path.name
  problems = [Problem(where, f'{name} is in the archive twice')
              for name in twice]
  record_name = f'{dist_info(names)}/RECORD'
  if record_name not in files:
    return problems + [Problem(where, 'it has no RECORD')]
  rows = [
      row for row in csv.reader(files[record_name].decode().splitlines())
      if row
  ]
  recorded = {row[0] for row in rows}
  if len(recorded) != len(rows):
    problems.append(Problem(where, 'RECORD lists a file twice'))
  for row in rows:
    problems += [Problem(where, what) for what in _wrong(row, files,
                                                         record_name)]
  for name in sorted(set(files) - recorded):
    problems.append(Problem(where, f'RECORD does not list {name}'))
  return problems


def _wrong(
    row: list[str], files: Mapping[str, bytes],
    record_name: str) -> list[str]:
  name, digest, size = (row + ['', ''])[:3]
  if name not in files:
    return [f'RECORD lists {name}, which is not in the archive']
  if name == record_name:
    return []
  wrong = []
  if digest != sha256_of(files[name]):
    wrong.append(f'RECORD has another hash for {name}')
  if size != str(len(files[name])):
    wrong.append(
        f'RECORD says {size} bytes for {name}, it has {len(files[name])}')
  return wrong


def remove_other_labels(path: pathlib.Path) -> None:
  """Removes what an earlier state of the series built in this one's place.

  With two of them, `pip install dist/NAME-2.75.0+*.whl` installs neither.
  """
  name, version, tags = path.name.split('-', 2)
  release = version.partition('+')[0]
  for other in path.parent.glob(f'{name}-{release}+*-{tags}'):
    if other != path:
      other.unlink()
