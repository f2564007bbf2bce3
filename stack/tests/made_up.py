"""Made-up series, wheels and bases, small enough to read in a test."""

import dataclasses
import pathlib

from beamstack import bases
from beamstack import parts
from beamstack import wheelfile
from beamstack.series import Edit
from beamstack.series import PullRequest
from beamstack.series import Series

READER = '''"""Reads."""


class Reader:
  """A reader."""
  def read(self, size):
    """Reads some."""
    data = self.file.read(size)
    return data

  def close(self):
    self.file.close()
'''

PR_MD = '''# Why
It is wrong.
# What
It gets right.
# How tested
By a test.
# Look at
The file.
# Gone when
Upstream has it.
'''


def edit(**changes) -> Edit:
  """An edit of READER that puts a line at the start of `read`."""
  standard = Edit(
      name='count-reads',
      why='Reads are counted.',
      file='sdks/python/apache_beam/reader.py',
      rule={'rule': function('read')},
      place='first-in-body',
      text='self.count += 1\n',
      matches=1,
      upstream=None,
      pull_request='counting',
      source='stack/counting/edits/reader.toml')
  return dataclasses.replace(standard, **changes)


def function(name: str) -> dict:
  return {
      'kind': 'function_definition',
      'has': {
          'field': 'name', 'regex': f'^{name}$'
      }
  }


def pull_request(**changes) -> PullRequest:
  standard = PullRequest(
      name='counting', title='[Python] Count', description=PR_MD)
  return dataclasses.replace(standard, **changes)


def series(root: pathlib.Path, *pull_requests: PullRequest) -> Series:
  return Series('A made-up series', 'stack', root, tuple(pull_requests))


def write(root: pathlib.Path, path: str, content: str) -> None:
  target = root / path
  target.parent.mkdir(parents=True, exist_ok=True)
  target.write_text(content)


def wheel(
    folder: pathlib.Path,
    version: str = '2.75.0',
    **more: bytes | str) -> pathlib.Path:
  """A small wheel of Beam; keyword `a__b_py` adds the file a/b.py."""
  info = f'apache_beam-{version}.dist-info'
  files = {
      'apache_beam/__init__.py': b'',
      'apache_beam/reader.py': READER.encode(),
      'apache_beam/fast.py': b'def go():\n  return 1\n',
      'apache_beam/fast.cpython-311-x86_64-linux-gnu.so': b'\x7fELF\0\xff',
      f'{info}/METADATA': (
          f'Metadata-Version: 2.4\nName: apache-beam\nVersion: {version}\n'
          '\nA description\nVersion: 2.75.0\n').encode(),
      f'{info}/WHEEL': b'Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n',
  }
  for name, content in more.items():
    data = content.encode() if isinstance(content, str) else content
    stem, _, suffix = name.rpartition('_')
    files['apache_beam/' + stem.replace('__', '/') + '.' + suffix] = data
  path = folder / f'apache_beam-{version}-cp311-cp311-linux_x86_64.whl'
  wheelfile.write(path, files)
  return path


def base(
    folder: pathlib.Path,
    version: str = '2.75.0',
    **more: bytes | str) -> bases.WheelBase:
  return bases.WheelBase(version, wheel(folder, version, **more))


def go_base(folder: pathlib.Path, **files: str) -> bases.FolderBase:
  for name, content in files.items():
    write(folder, 'go/' + name.replace('_go', '.go'), content)
  write(folder, 'go.mod', 'module example.test/sdks\n')
  return bases.FolderBase('2.75.0', parts.GO, folder)
