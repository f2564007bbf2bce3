# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Runs one measurement in a process of its own, and leaves nothing behind.

The process gets its own session, so that its process group is exactly what
it started (Prism, too): however the run ends, that group is ended by its id.
Its standard input is a pipe that we hold: if we are killed, it sees the end.
"""

import json
import os
import signal
import subprocess
import tempfile
import time


class RunFailed(Exception):
  """A measured process that gave no result; `output` is what it printed."""
  def __init__(self, reason, output):
    super().__init__(reason)
    self.output = output


def measure(command, timeout_s):
  """Returns the object that `command` prints as its line `RESULT {json}`.

  Raises:
    RunFailed: it took too long, failed, printed no result, or left behind
      a process that could not be ended.
  """
  with tempfile.TemporaryFile() as output:
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True)
    reason = None
    try:
      process.wait(timeout_s)
    except subprocess.TimeoutExpired:
      reason = 'no result after %d s' % timeout_s
    finally:
      _end_group(process)
      process.stdin.close()
    output.seek(0)
    printed = output.read().decode(errors='backslashreplace')
  if reason is None and process.returncode != 0:
    reason = 'exit code %d' % process.returncode
  if reason is None:
    for line in printed.splitlines():
      if line.startswith('RESULT '):
        return json.loads(line[len('RESULT '):])
    reason = 'no RESULT line'
  raise RunFailed(reason, printed)


def _end_group(process, patience_s=5):
  deadline = time.monotonic() + patience_s
  while time.monotonic() < deadline:
    try:
      os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
      break
    process.poll()
    time.sleep(0.01)
  process.wait()
