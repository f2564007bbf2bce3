"""Runs other programs, and leaves none of them behind.

Each child gets a session of its own, so that it and its own children can be
ended by the id of their group, whatever ended the wait for it.
"""

import collections
import os
import pathlib
import shutil
import signal
import subprocess
from collections.abc import Mapping
from collections.abc import Sequence

from beamstack.errors import CannotRun

# How to get the tools that the program calls.
INSTALL = {
    'git': 'apt-get install git (macOS: xcode-select --install)',
    'go': 'apt-get install golang, or brew install go (1.26 or newer)',
    'mvn': 'apt-get install maven, or brew install maven',
    'javac': 'apt-get install openjdk-17-jdk, or brew install openjdk@17',
    'java': 'apt-get install openjdk-17-jdk, or brew install openjdk@17',
}
GRACE_SECONDS = 5.0


class ChildFailed(CannotRun):
  """A child ended with an exit code other than zero."""

  def __init__(self, what: str, remedy: str, output: str, code: int):
    super().__init__(what, remedy)
    self.output = output
    self.code = code


def find_tool(name: str) -> str:
  """The path of a program, or the command that installs it as an error."""
  found = shutil.which(name)
  if not found:
    raise CannotRun(
        f'{name} is not on the PATH',
        INSTALL.get(name, f'install {name}') + ', then try again')
  return found


def end(child: subprocess.Popen) -> None:
  """Ends a child and all of its group: asks first, then kills."""
  for number in (signal.SIGTERM, signal.SIGKILL):
    try:
      os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
      pass
    try:
      child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
      continue
    if not _group_alive(child.pid):
      return


def _group_alive(group: int) -> bool:
  try:
    os.killpg(group, 0)
  except (ProcessLookupError, PermissionError):
    return False
  return True


def run(
    command: Sequence[str | os.PathLike],
    *,
    cwd: str | os.PathLike | None = None,
    env: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
    log: pathlib.Path | None = None,
    show: bool = False,
    timeout: float | None = None) -> tuple[int, str]:
  """Runs a program to its end; returns its exit code and its output.

  Args:
    command: the program and its arguments.
    cwd: the folder to run it in.
    env: variables to set on top of this process's own.
    without: variables of this process that the child does not get.
    log: a file that gets the output as well.
    show: lets the output through to this process's own stdout and stderr;
      nothing is returned or logged then.
    timeout: seconds after which the child is ended; the code is 124 then.
  """
  words = [os.fspath(word) for word in command]
  inherited = {k: v for k, v in os.environ.items() if k not in without}
  sink = None if show else subprocess.PIPE
  with subprocess.Popen(
      words,
      cwd=cwd,
      env={**inherited, **(env or {})},
      stdin=subprocess.DEVNULL,
      stdout=sink,
      stderr=None if show else subprocess.STDOUT,
      start_new_session=True) as child:
    try:
      output, _ = child.communicate(timeout=timeout)
      code = child.returncode
    except subprocess.TimeoutExpired:
      end(child)
      output, _ = child.communicate()
      code = 124
    except BaseException:
      end(child)
      raise
  text = (output or b'').decode('utf-8', 'replace')
  if log is not None:
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f'$ {" ".join(words)}\n{text}\nexit code {code}\n')
  return code, text


def must_run(
    command: Sequence[str | os.PathLike],
    *,
    what: str,
    remedy: str = '',
    log: pathlib.Path | None = None,
    **options) -> str:
  """Like `run`, but a failing child is an error that says what failed."""
  code, output = run(command, log=log, **options)
  if code:
    last = ' / '.join(last_lines(output, 3)) or 'it printed nothing'
    hints = [remedy] if remedy else []
    if log is not None:
      hints.append(f'the whole output is in {log}')
    raise ChildFailed(
        f'{what} failed with exit code {code}: {last}',
        '; '.join(hints),
        output,
        code)
  return output


def last_lines(text: str, count: int, width: int = 200) -> list[str]:
  """The last lines that say something; pip's list of versions is long."""
  lines = (line.strip() for line in text.splitlines())
  lines = (
      line if len(line) <= width else line[:width] + '…' for line in lines)
  return list(collections.deque((line for line in lines if line), count))
