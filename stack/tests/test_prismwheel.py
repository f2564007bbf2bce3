"""The companion wheel holds a program that runs where its tag says."""

import os
import pathlib
import struct
import subprocess
import sys
import zipfile

import pytest

import made_up
from beamstack import prismwheel
from beamstack import wheelfile
from beamstack.errors import CannotRun
from beamstack.errors import ProblemsFound
from beamstack.prismwheel import Platform

LINUX = Platform('linux-amd64', 'manylinux_2_17_x86_64')
PACKAGE = (
    pathlib.Path(__file__).resolve().parents[1] / 'prism_package' /
    prismwheel.DIST)
SCRIPT = b'#!/bin/sh\necho it runs\n'


def pack(tmp_path, program=SCRIPT, name='dist'):
  series = made_up.series(tmp_path, made_up.pull_request())
  made_up.write(tmp_path, 'LICENSE', 'A licence\n')
  path = prismwheel.pack(
      series, '2.75.0', LINUX, program, PACKAGE, tmp_path / name)
  return path, series.content_label()


def elf(loader=b''):
  """The head of a program for 64 bits, which asks for a loader or does not."""
  kinds = [1, 3] if loader else [1]
  head = b'\x7fELF\x02\x01'.ljust(16, b'\0')
  head += struct.pack('<HHIQQQIHHH', 2, 62, 1, 0, 64, 0, 0, 64, 56, len(kinds))
  head = head.ljust(64, b'\0')
  at = 64 + 56 * len(kinds)
  for kind in kinds:
    head += struct.pack('<IIQQQQQQ', kind, 4, at, 0, 0, len(loader), 0, 1)
  return head + loader


def test_what_is_in_it(tmp_path):
  path, label = pack(tmp_path)
  assert path.name == (
      f'beam_unending_prism-2.75.0+{label}-py3-none-{LINUX.tag}.whl')
  info = f'beam_unending_prism-2.75.0+{label}.dist-info'
  files = wheelfile.read(path)
  assert sorted(files) == [
      f'{info}/METADATA', f'{info}/RECORD', f'{info}/WHEEL',
      f'{info}/entry_points.txt', f'{info}/licenses/LICENSE',
      'beam_unending_prism/__init__.py', 'beam_unending_prism/__main__.py',
      'beam_unending_prism/prism'
  ]
  told = files[f'{info}/METADATA'].decode()
  assert f'\nVersion: 2.75.0+{label}\n' in told
  assert '\nRequires-Dist: apache-beam ==2.75.0\n' in told
  assert b'\nTag: py3-none-manylinux_2_17_x86_64\n' in files[f'{info}/WHEEL']
  assert wheelfile.check_record(path) == []


def test_it_is_the_same_twice(tmp_path):
  first, _ = pack(tmp_path, name='a')
  second, _ = pack(tmp_path, name='b')
  assert first.read_bytes() == second.read_bytes()


def test_the_program_alone_may_be_executed(tmp_path):
  path, _ = pack(tmp_path)
  with zipfile.ZipFile(path) as archive:
    modes = {i.filename: i.external_attr >> 16 for i in archive.infolist()}
  programs = [name for name, mode in modes.items() if mode & 0o111]
  assert programs == ['beam_unending_prism/prism']


def test_an_earlier_label_goes_and_the_add_on_stays(tmp_path):
  old = 'beam_unending_prism-2.75.0+stack.0-py3-none-manylinux_2_17_x86_64.whl'
  addon = 'beam_unending-2.75.0+stack.0-py3-none-any.whl'
  made_up.write(tmp_path, f'dist/{old}', '')
  made_up.write(tmp_path, f'dist/{addon}', '')
  path, _ = pack(tmp_path)
  names = sorted(p.name for p in (tmp_path / 'dist').iterdir())
  assert names == [addon, path.name]


def test_a_program_that_asks_for_a_loader_is_refused(tmp_path):
  loader = b'/lib64/ld-linux-x86-64.so.2\0'
  with pytest.raises(ProblemsFound) as caught:
    pack(tmp_path, elf(loader))
  [problem] = caught.value.problems
  assert 'asks for /lib64/ld-linux-x86-64.so.2' in problem.what
  assert 'CGO_ENABLED=0' in problem.next
  assert not list(tmp_path.glob('dist/*.whl'))


def test_a_static_program_asks_for_none(tmp_path):
  pack(tmp_path, elf())


def test_the_loader_of_a_real_program():
  program = pathlib.Path(sys.executable).resolve().read_bytes()
  if program[:5] != b'\x7fELF\x02':
    pytest.skip('this Python is no ELF program')
  assert prismwheel.interpreter(program).startswith('/lib')


def test_other_platforms_are_told(monkeypatch):
  monkeypatch.setattr(
      prismwheel.bases, 'this_platform', lambda: 'plan9-mips')
  with pytest.raises(CannotRun, match='no companion wheel for plan9-mips'):
    prismwheel.this_platform()


def test_pip_leaves_a_program_that_its_package_finds(tmp_path):
  path, label = pack(tmp_path)
  site = tmp_path / 'site'
  # The tag is of Linux on x86-64; where this runs does not matter here.
  subprocess.run([
      sys.executable, '-m', 'pip', 'install', '-q', '--no-deps', '--no-index',
      '--only-binary=:all:', f'--platform={LINUX.tag}', f'--target={site}',
      path
  ], check=True)
  env = {**os.environ, 'PYTHONPATH': str(site)}
  found = subprocess.run([sys.executable, '-m', 'beam_unending_prism'],
                         env=env, check=True, capture_output=True, text=True)
  program = found.stdout.strip()
  assert program == str(site / 'beam_unending_prism' / 'prism')
  ran = subprocess.run([program], check=True, capture_output=True, text=True)
  assert ran.stdout == 'it runs\n'
  entries = subprocess.run([
      sys.executable, '-c',
      'import importlib.metadata as m\n'
      f'[e] = m.entry_points(group="{prismwheel.GROUP}")\n'
      'print(e.name, e.dist.version, e.load()())'
  ], env=env, check=True, capture_output=True, text=True)
  assert entries.stdout.split() == ['linux-amd64', f'2.75.0+{label}', program]
