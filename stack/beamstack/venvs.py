"""Makes virtual environments, each once, whole or not at all.

A stamp file is written last: an environment without it was interrupted, and
is made anew. A lock file keeps two makers apart. Only the standard library is
used, since the launcher runs this before anything is installed.
"""

import contextlib
import fcntl
import hashlib
import pathlib
import shutil
import sys
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence

from beamstack import console
from beamstack import processes
from beamstack.errors import CannotRun

STAMP = 'beamstack-complete'
# How many environments of a kind are kept. Each state of the series has its
# own; an older one may be in use by a command that still runs.
KEEP = 3
UNREACHABLE = (
    'Temporary failure in name resolution',
    'Name or service not known',
    'nodename nor servname',
    'Failed to establish a new connection',
    'Connection refused',
    'Network is unreachable',
    'Read timed out',
    'ProxyError',
    'SSLError',
    'ConnectTimeoutError')


def python_of(venv: pathlib.Path) -> pathlib.Path:
  return venv / 'bin' / 'python'


def is_complete(venv: pathlib.Path) -> bool:
  return (venv / STAMP).is_file() and python_of(venv).exists()


def digest(*parts: str | bytes) -> str:
  """A short name for what an environment holds."""
  sha = hashlib.sha256()
  for part in parts:
    data = part.encode() if isinstance(part, str) else part
    sha.update(len(data).to_bytes(8, 'big') + data)
  return sha.hexdigest()[:12]


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
  """Holds the lock file beside `path`; the system frees it if we die."""
  path.parent.mkdir(parents=True, exist_ok=True)
  with open(path.with_name(path.name + '.lock'), 'w') as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield


def ensure(
    venv: pathlib.Path,
    pip_installs: Sequence[Sequence[str]],
    *,
    title: str,
    log: pathlib.Path,
    pip: bool = True,
    fill: Callable[[pathlib.Path], None] | None = None) -> pathlib.Path:
  """The Python of an environment, made now unless it is there already.

  Args:
    venv: where the environment lies. Its name should tell its content.
    pip_installs: the arguments of each `pip install`, in order.
    title: what the progress line calls it.
    log: the file that gets what pip says.
    pip: whether the environment gets a pip of its own.
    fill: does what else is needed, and gets the environment's Python.
  """
  with locked(venv):
    if is_complete(venv):
      return python_of(venv)
    with console.step(f'making {title}'):
      if venv.exists():
        shutil.rmtree(venv)
      processes.must_run(
          [
              sys.executable, '-m', 'venv',
              *([] if pip else ['--without-pip']), venv
          ],
          what=f'{sys.executable} -m venv',
          remedy='apt-get install python3-venv, then try again',
          log=log)
      for arguments in pip_installs:
        pip_install(python_of(venv), arguments, log=log)
      if fill is not None:
        fill(python_of(venv))
      (venv / STAMP).write_text(f'{title}\n')
      prune(venv)
  return python_of(venv)


def prune(venv: pathlib.Path) -> None:
  """Removes the oldest of the environments that differ in the digest only."""
  kind = venv.name.rpartition('-')[0]
  alike = [
      path for path in venv.parent.glob(f'{kind}-*')
      if path.name.rpartition('-')[0] == kind and is_complete(path)
  ]
  alike.sort(key=lambda path: (path / STAMP).stat().st_mtime)
  for old in alike[:-KEEP]:
    if old != venv:
      (old / STAMP).unlink()  # Whatever happens now, it is not used again.
      shutil.rmtree(old, ignore_errors=True)


def pip_install(
    python: pathlib.Path, arguments: Sequence[str], *, log: pathlib.Path):
  """Installs with pip; tells an unreachable registry from other failures."""
  try:
    processes.must_run(
        [
            python, '-m', 'pip', 'install', '--disable-pip-version-check',
            '--no-input', '--no-compile', *arguments
        ],
        what='pip install ' + ' '.join(arguments),
        log=log)
  except processes.ChildFailed as e:
    raise explained(e) from e


def explained(failure: processes.ChildFailed) -> CannotRun:
  """The failure of a pip call, with the reason if it is the network."""
  for sign in UNREACHABLE:
    if sign in failure.output:
      return CannotRun(
          f'pip could not reach its package registry ({sign})',
          'check the network and `python3 -m pip config list`, then try '
          f'again; {failure.remedy}')
  return failure
