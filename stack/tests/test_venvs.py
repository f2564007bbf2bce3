"""Environments are made whole or not at all; no child is left behind."""

import os
import signal
import subprocess
import sys
import time

import pytest

from beamstack import processes
from beamstack import venvs
from beamstack.errors import CannotRun


@pytest.fixture(name='ensure')
def _ensure(tmp_path, monkeypatch):
  """Makes an environment without pip, which takes most of the time."""
  real = processes.must_run

  def quick(command, **options):
    if '-m' in map(str, command) and 'venv' in command:
      command = [*command, '--without-pip']
    return real(command, **options)

  monkeypatch.setattr(processes, 'must_run', quick)

  def ensure(installs=()):
    return venvs.ensure(
        tmp_path / 'venv', installs, title='a test', log=tmp_path / 'log')

  return ensure


def test_an_environment_is_made_once(ensure, tmp_path):
  python = ensure()
  subprocess.run([python, '-c', 'import json'], check=True)
  (tmp_path / 'venv' / 'mark').touch()
  assert ensure() == python
  assert (tmp_path / 'venv' / 'mark').exists()


def test_an_interrupted_environment_is_made_anew(ensure, tmp_path):
  with pytest.raises(CannotRun):
    ensure([['--no-index', 'nothing-of-this-name']])  # No pip: this fails.
  assert (tmp_path / 'venv' / 'bin' / 'python').exists()
  assert not venvs.is_complete(tmp_path / 'venv')
  (tmp_path / 'venv' / 'half').touch()
  ensure()
  assert venvs.is_complete(tmp_path / 'venv')
  assert not (tmp_path / 'venv' / 'half').exists()


def test_the_oldest_of_a_kind_go(tmp_path):
  names = [f'venv-dev-2.75.0-{n:012x}' for n in range(6)]
  for age, name in enumerate(names):
    (tmp_path / name / 'bin').mkdir(parents=True)
    (tmp_path / name / 'bin' / 'python').touch()
    (tmp_path / name / venvs.STAMP).touch()
    os.utime(tmp_path / name / venvs.STAMP, (age, age))
  other = tmp_path / 'venv-dev-2.77.0-000000000000'
  other.mkdir()
  venvs.prune(tmp_path / names[-1])
  left = sorted(path.name for path in tmp_path.iterdir())
  assert left == names[-venvs.KEEP:] + [other.name]


def test_an_unreachable_registry_is_told_as_such():
  failure = processes.ChildFailed(
      'pip install x failed', 'see the log',
      'WARNING: Retrying: Temporary failure in name resolution\nERROR: No',
      1)
  told = venvs.explained(failure)
  assert 'could not reach its package registry' in told.what
  assert 'pip config list' in told.remedy and 'see the log' in told.remedy
  other = processes.ChildFailed('pip install x failed', '', 'ERROR: No', 1)
  assert venvs.explained(other) is other


def test_the_digest_tells_where_parts_end():
  assert venvs.digest('ab', 'c') != venvs.digest('a', 'bc')


def test_a_failing_child_shows_its_last_lines(tmp_path):
  script = 'import sys; print("why"); print("x" * 999); sys.exit(3)'
  with pytest.raises(processes.ChildFailed) as caught:
    processes.must_run(
        [sys.executable, '-c', script], what='a', log=tmp_path / 'log')
  assert 'exit code 3: why / xxx' in caught.value.what
  assert len(caught.value.what) < 300
  assert 'x' * 999 in (tmp_path / 'log').read_text()


def test_a_missing_tool_names_the_command_that_installs_it(monkeypatch):
  monkeypatch.setenv('PATH', '')
  with pytest.raises(CannotRun) as caught:
    processes.find_tool('go')
  assert 'apt-get install golang' in caught.value.remedy


def test_a_timeout_ends_grandchildren_too(tmp_path):
  pid_file = tmp_path / 'pid'
  script = (
      'import pathlib, subprocess, sys, time\n'
      'p = subprocess.Popen([sys.executable, "-c", '
      '"import time; time.sleep(60)"])\n'
      f'pathlib.Path({str(pid_file)!r}).write_text(str(p.pid))\n'
      'time.sleep(60)\n')
  code, _ = processes.run([sys.executable, '-c', script], timeout=2)
  assert code == 124
  assert_gone(int(pid_file.read_text()))


def test_ctrl_c_leaves_no_child(tmp_path):
  pid_file = tmp_path / 'pid'
  inner = (
      'import os, pathlib, time\n'
      f'pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))\n'
      'time.sleep(60)\n')
  outer = (
      'import sys\n'
      f'sys.path[:0] = {sys.path!r}\n'
      'from beamstack import processes\n'
      f'processes.run([sys.executable, "-c", {inner!r}])\n')
  program = subprocess.Popen(
      [sys.executable, '-c', outer], stderr=subprocess.DEVNULL)
  try:
    deadline = time.monotonic() + 20
    while not (pid_file.exists() and pid_file.read_text()):
      assert time.monotonic() < deadline
      time.sleep(0.02)
    program.send_signal(signal.SIGINT)
    assert program.wait(20) != 0
  finally:
    program.kill()
    program.wait()
  assert_gone(int(pid_file.read_text()))


def assert_gone(pid):
  deadline = time.monotonic() + 10
  while time.monotonic() < deadline:
    try:
      os.kill(pid, 0)
    except ProcessLookupError:
      return
    # An orphan that nobody has reaped yet is gone as well.
    stat = f'/proc/{pid}/stat'
    if os.path.exists(stat):
      with open(stat) as f:
        if f.read().rsplit(')', 1)[1].split()[0] == 'Z':
          return
    time.sleep(0.05)
  raise AssertionError(f'process {pid} still runs')
