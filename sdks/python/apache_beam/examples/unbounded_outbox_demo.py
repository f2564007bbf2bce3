#
# Licensed to the Apache Software Foundation (ASF) under one or more
# contributor license agreements.  See the NOTICE file distributed with
# this work for additional information regarding copyright ownership.
# The ASF licenses this file to You under the Apache License, Version 2.0
# (the "License"); you may not use this file except in compliance with
# the License.  You may obtain a copy of the License at
#
#    http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
#

"""Shows an unbounded source at work, and checks that it lost nothing.

A writer keeps adding orders to an outbox table. A pipeline reads them in two
splits, stores and counts them per window, and acknowledges them once they are
stored. Midway the writer is killed inside a transaction (kill -9), and another
one continues. At the end, the two databases are held against each other.

Exit codes: 0 all is well, 1 a check failed, 2 it could not run, 130 stopped
with Ctrl-C. No process stays behind, nor a file, unless with --keep or after
a failure.
"""

import argparse
import collections
import contextlib
import dataclasses
import datetime
import os
import pathlib
import queue
import shlex
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time

_WRITER = pathlib.Path(__file__).with_name('unbounded_outbox_writer.py')
_PIPELINE = 'apache_beam.examples.unbounded_outbox'

_WINDOW_SECONDS = 4
# From the kill to the next writer, so that one sees windows close meanwhile.
_WITHOUT_WRITER_SECONDS = 3
_LOOK_EVERY_SECONDS = 0.25
_PROGRESS_EVERY_SECONDS = 2
# For the pipeline to start, and to finish after the end marker.
_GRACE_SECONDS = 60
_SHOWN_PROBLEMS = 5


class CouldNotRun(Exception):
  """The demo cannot begin or go on; the text says why."""


# ---------------------------------------------------------------------------
# The check. It knows nothing of Beam: it computes from the outbox what the
# output has to be.


@dataclasses.dataclass
class Finding:
  """What a check came to.

  Attributes:
    name: the rule.
    figure: what was looked at, for a person.
    problems: one line for each breach; none if the rule holds.
  """
  name: str
  figure: str
  problems: list[str] = dataclasses.field(default_factory=list)


def _connect(path: str) -> sqlite3.Connection:
  uri = pathlib.Path(path).absolute().as_uri() + '?mode=ro'
  return sqlite3.connect(uri, uri=True, timeout=10, isolation_level=None)


def _query(path: str, query: str, *values) -> list[tuple]:
  with contextlib.closing(_connect(path)) as connection:
    return connection.execute(query, values).fetchall()


def _clock(micros: int, fraction: bool = False) -> str:
  moment = datetime.datetime.fromtimestamp(micros / 1e6, datetime.timezone.utc)
  return moment.strftime('%H:%M:%S.%f')[:12 if fraction else 8]


def _plural(count: int, noun: str) -> str:
  return f'{count:,} {noun}' + ('' if count == 1 else 's')


def check(
    outbox: str,
    output: str,
    window_seconds: float = _WINDOW_SECONDS) -> list[Finding]:
  """Compares the output with what the outbox says that it must be."""
  written = {
      order_id: (event_us, cents, acknowledged)
      for order_id,
      event_us,
      cents,
      acknowledged in _query(
          outbox,
          'SELECT id, event_us, cents, acknowledged FROM outbox '
          'WHERE shard >= 0 ORDER BY id')
  }
  stored = {
      order_id: (window_us, deliveries)
      for order_id,
      window_us,
      deliveries in _query(
          output, 'SELECT order_id, window_us, deliveries FROM orders')
  }
  windows = {
      window_us: (orders, cents)
      for window_us,
      orders,
      cents in _query(output, 'SELECT window_us, orders, cents FROM windows')
  }
  size_us = int(window_seconds * 1e6)

  once = Finding('every order once', f'{len(stored):,} of {len(written):,}')
  if not written:
    once.problems.append('no order was written, so nothing was shown')
  right = Finding('in the right window', _plural(len(windows), 'window'))
  expected = collections.defaultdict(lambda: (0, 0))
  for order_id, (event_us, cents, _) in written.items():
    window_us = event_us - event_us % size_us
    count, total = expected[window_us]
    expected[window_us] = count + 1, total + cents
    if order_id not in stored:
      once.problems.append(f'order {order_id} is missing')
      continue
    stored_us, deliveries = stored[order_id]
    if deliveries != 1:
      once.problems.append(f'order {order_id} came {deliveries} times')
    if stored_us != window_us:
      right.problems.append(
          f'order {order_id} of {_clock(event_us, fraction=True)} is in the '
          f'window of {_clock(stored_us)}')
  for order_id in sorted(stored.keys() - written.keys()):
    once.problems.append(f'order {order_id} was never written')

  cents = sum(total for _, total in windows.values())
  totals = Finding('window totals', f'{cents / 100:,.2f}')
  for window_us in sorted(expected.keys() | windows.keys()):
    must = expected.get(window_us, (0, 0))
    found = windows.get(window_us)
    if found is None:
      totals.problems.append(f'window {_clock(window_us)} never closed')
    elif found[0] != must[0]:
      totals.problems.append(
          f'window {_clock(window_us)} counts {_plural(found[0], "order")}, '
          f'not {must[0]:,}')
    elif found[1] != must[1]:
      totals.problems.append(
          f'window {_clock(window_us)} sums to {found[1] / 100:,.2f}, '
          f'not {must[1] / 100:,.2f}')

  acknowledged = [i for i, order in written.items() if order[2]]
  acks = Finding(
      'acknowledged', f'{len(acknowledged):,} of {len(written):,}')
  for order_id, (_, _, is_acknowledged) in written.items():
    if is_acknowledged and order_id not in stored:
      acks.problems.append(
          f'order {order_id} is acknowledged, but was never stored')
    elif not is_acknowledged:
      acks.problems.append(f'order {order_id} is not acknowledged')
  return [once, right, totals, acks]


class AcknowledgementWatch:
  """Looks, while all is running, for orders acknowledged before stored."""
  def __init__(self, outbox: str, output: str):
    self._outbox = outbox
    self._output = output
    # The last acknowledged order of each shard. Each look begins after the
    # least of them, so that it does not take longer and longer.
    self._through: dict[int, int] = {}
    self.looks = 0
    self.problems: list[str] = []

  def look(self) -> None:
    after = min(self._through.values(), default=0)
    # First the acknowledgements: what is stored can only have grown since.
    acknowledged = _query(
        self._outbox,
        'SELECT id, shard FROM outbox WHERE acknowledged = 1 AND id > ? '
        'ORDER BY id', after)
    stored = {
        row[0] for row in _query(
            self._output, 'SELECT order_id FROM orders WHERE order_id > ?',
            after)
    }
    news = False
    for order_id, shard in acknowledged:
      if order_id <= self._through.get(shard, 0):
        continue
      news = True
      self._through[shard] = order_id
      if order_id not in stored:
        self.problems.append(
            f'order {order_id} was acknowledged before it was stored')
    # A look at nothing new proves nothing.
    self.looks += news


# ---------------------------------------------------------------------------
# What the person sees.


class Screen:
  """Lines on stdout; on a terminal, the last one is kept up to date."""
  def __init__(self):
    self._started = time.monotonic()
    self._live = sys.stdout.isatty()

  def line(self, text: str = '') -> None:
    print(('\r\033[K' if self._live else '') + text, flush=True)

  def event(self, text: str) -> None:
    self.line(f'{time.monotonic() - self._started:6.1f} s  {text}')

  def progress(self, text: str) -> None:
    if self._live:
      # Cut, for a line that wraps cannot be overwritten.
      width = shutil.get_terminal_size().columns - 1
      print('\r\033[K' + f'{"":10}{text}'[:width], end='', flush=True)
    else:
      self.event(text)

  @property
  def progress_every(self) -> float:
    return _LOOK_EVERY_SECONDS if self._live else _PROGRESS_EVERY_SECONDS

  @property
  def elapsed(self) -> float:
    return time.monotonic() - self._started


def show_findings(screen: Screen, findings: list[Finding]) -> bool:
  """Prints the verdicts; returns whether all are good."""
  for finding in findings:
    verdict = 'FAILED' if finding.problems else 'ok'
    screen.line(
        f'{finding.name + " ":.<24} {verdict:<7} {finding.figure}'.rstrip())
    for problem in finding.problems[:_SHOWN_PROBLEMS]:
      screen.line(f'  {problem}')
    hidden = len(finding.problems) - _SHOWN_PROBLEMS
    if hidden > 0:
      screen.line(f'  and {hidden:,} more')
  return not any(finding.problems for finding in findings)


# ---------------------------------------------------------------------------
# The processes.


class Child:
  """A process in a group of its own, whose lines go to a queue.

  The group is stopped as a whole, since a pipeline may have started a runner.
  For that, the leader must not be waited for before: until then its number
  can belong to nobody else.
  """
  def __init__(self, name, command, log, events):
    self.name = name
    self._events = events
    self._process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True)
    self.pid = self._process.pid
    threading.Thread(target=self._read, daemon=True).start()

  def _read(self) -> None:
    for line in self._process.stdout:
      self._events.put((self, line.rstrip()))
    self._events.put((self, None))

  def kill(self) -> None:
    """kill -9."""
    os.kill(self.pid, signal.SIGKILL)
    self._process.wait()

  def stop(self) -> int:
    """Ends the group, if it has not ended; returns the exit code."""
    if self._process.returncode is None:
      try:
        os.killpg(self.pid, signal.SIGTERM)
      except ProcessLookupError:
        pass
      try:
        self._process.wait(timeout=5)
      except subprocess.TimeoutExpired:
        os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
    return self._process.returncode

  def wait(self) -> int:
    """Waits for one that has said its last line; returns the exit code."""
    try:
      return self._process.wait(timeout=10)
    except subprocess.TimeoutExpired:
      return self.stop()


class Demo:
  """One run: the writers, the pipeline, and who watches them."""
  def __init__(self, args: argparse.Namespace, folder: str, screen: Screen):
    self._args = args
    self._screen = screen
    self._outbox = os.path.join(folder, 'outbox.db')
    self._output = os.path.join(folder, 'output.db')
    self._log_path = os.path.join(folder, 'log.txt')
    self._events: queue.Queue = queue.Queue()
    self._children: list[Child] = []
    self._writer: Child | None = None
    self._pipeline: Child | None = None
    # The kill: how many orders were uncommitted, which was the first of them,
    # and after which order the next writer went on.
    self._lost = 0
    self._first_lost: int | None = None
    self._continued_after: int | None = None
    self._restart_at: float | None = None
    self._written_until = 0.0
    self._watch = AcknowledgementWatch(self._outbox, self._output)

  def run(self) -> bool:
    """Runs it; returns whether the checks are good."""
    with open(self._log_path, 'w') as self._log:
      try:
        self._start()
        self._follow()
      finally:
        # A second Ctrl-C must not cut this short.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for child in self._children:
          child.stop()
    return self._report()

  def _child(self, name: str, command: list[str]) -> Child:
    child = Child(name, command, self._log, self._events)
    self._children.append(child)
    return child

  def _start_writer(self, seconds: float, *more: str) -> None:
    # -I: the folder of the examples does not belong on the module path.
    self._writer = self._child(
        'writer',
        [
            sys.executable,
            '-I',
            str(_WRITER),
            self._outbox,
            f'--seconds={seconds:.1f}',
            f'--rate={self._args.rate}',
            '--stop-at-eof',
            *more
        ])

  def _start(self) -> None:
    seconds = self._args.seconds
    self._written_until = self._screen.elapsed + seconds
    self._start_writer(seconds, f'--slow-after={seconds * 0.45:.1f}')
    self._screen.event(
        f'writer started, pid {self._writer.pid}, '
        f'{self._args.rate:,} orders a second')
    self._wait_for_outbox()

    command = [
        sys.executable,
        '-m',
        _PIPELINE,
        f'--outbox={self._outbox}',
        f'--output={self._output}',
        f'--window-seconds={_WINDOW_SECONDS}',
        f'--runner={_RUNNERS[self._args.runner]}'
    ]
    if self._args.runner == 'prism':
      command += [
          f'--prism_location={self._args.prism}', '--environment_type=LOOPBACK'
      ]
    self._log.write(shlex.join(command) + '\n')
    self._log.flush()
    self._pipeline = self._child('pipeline', command)
    self._screen.event(
        f'pipeline started, pid {self._pipeline.pid}, '
        f'{_RUNNERS[self._args.runner]}')
    if self._args.runner == 'fnapi':
      self._screen.event(
          'this runner closes all windows at the end; see --prism')

  def _wait_for_outbox(self) -> None:
    # The pipeline says so if there is none. Here it only has to wait its turn.
    while True:
      try:
        child, line = self._events.get(timeout=10)
      except queue.Empty:
        raise CouldNotRun('the writer does not start')
      if line is None:
        child.wait()
        raise CouldNotRun('the writer ended before it had begun')
      if line.startswith('continues'):
        return

  def _follow(self) -> None:
    """Handles what happens, until the pipeline has ended."""
    next_look = next_progress = self._screen.elapsed
    deadline = self._written_until + _GRACE_SECONDS
    while True:
      try:
        child, line = self._events.get(timeout=0.05)
      except queue.Empty:
        pass
      else:
        if child is self._pipeline and line is None:
          break
        self._handle(child, line)
      now = self._screen.elapsed
      if now > deadline:
        raise CouldNotRun(
            f'the pipeline did not end within {_GRACE_SECONDS} s of the '
            'last order')
      if self._restart_at is not None and now >= self._restart_at:
        self._restart_at = None
        self._start_writer(max(self._written_until - now, 1))
      if now >= next_look and os.path.exists(self._output):
        next_look = now + _LOOK_EVERY_SECONDS
        self._look()
      if now >= next_progress:
        next_progress = now + self._screen.progress_every
        self._screen.progress(self._progress())
    if self._pipeline.wait() != 0:
      raise CouldNotRun(
          f'the pipeline failed: {_last_error(self._log_path)}')

  def _handle(self, child: Child, line: str | None) -> None:
    if child is self._pipeline:
      self._screen.event(line)
    elif child is not self._writer or line is None:
      # The last words of a writer that was killed, or its end.
      if child is self._writer and child.wait() != 0:
        raise CouldNotRun(f'the writer failed: {_last_error(self._log_path)}')
    elif line.startswith('open'):
      child.kill()
      self._writer = None
      self._first_lost, self._lost = map(int, line.split()[1:])
      self._screen.event(
          f'kill -9 of the writer, amid a transaction of {self._lost} orders '
          f'from {self._first_lost}')
      self._restart_at = self._screen.elapsed + _WITHOUT_WRITER_SECONDS
    elif line.startswith('continues'):
      self._continued_after = int(line.split()[-1])
      self._screen.event(f'writer started again, pid {child.pid}, {line}')
    elif line.startswith('end'):
      self._screen.event(f'writer ended, the last order is {line.split()[1]}')

  def _look(self) -> None:
    try:
      self._watch.look()
    except sqlite3.OperationalError as e:
      # The output is being made at this moment.
      if 'no such table' not in str(e):
        raise

  def _progress(self) -> str:
    acknowledged, written = _query(
        self._outbox,
        'SELECT COALESCE(SUM(acknowledged), 0), COUNT(*) FROM outbox '
        'WHERE shard >= 0')[0]
    stored = 0
    with contextlib.suppress(sqlite3.OperationalError):
      stored = _query(self._output, 'SELECT COUNT(*) FROM orders')[0][0]
    return (
        f'orders: {written:,} written, {stored:,} stored, '
        f'{acknowledged:,} acknowledged')

  def _report(self) -> bool:
    self._watch.look()
    findings = check(self._outbox, self._output)
    findings.append(
        Finding(
            'stored before the ack',
            _plural(self._watch.looks, 'look') + ' while running',
            self._watch.problems))
    killed = Finding(
        'kill -9 of the writer',
        f'{_plural(self._lost, "uncommitted order")} gone, none committed')
    if self._continued_after is None:
      killed.problems.append('it did not happen, so nothing was shown')
    elif self._continued_after != self._first_lost - 1:
      killed.problems.append(
          f'the next writer continued after {self._continued_after}, though '
          f'{self._first_lost} was the first not committed')
    findings.append(killed)
    self._screen.line()
    good = show_findings(self._screen, findings)
    delays = [
        closed_us / 1e6 - window_us / 1e6 - _WINDOW_SECONDS
        for window_us,
        closed_us in _query(
            self._output, 'SELECT window_us, closed_us FROM windows')
    ]
    # The last window is closed by the end marker, often before its time.
    late = statistics.median([d for d in delays if d > 0] or [0])
    self._screen.line()
    self._screen.line(
        ('All is well' if good else 'Something is wrong') +
        f', in {self._screen.elapsed:.0f} s. Windows closed {late:.1f} s after '
        'their end (median).')
    return good


def _last_error(log_path: str) -> str:
  """The line of a log that most likely says what went wrong."""
  lines = pathlib.Path(log_path).read_text(errors='replace').splitlines()
  errors = [line.strip() for line in lines if 'Error: ' in line]
  # The names of our errors tell more than a runner's around them.
  named = [line for line in errors if 'outbox' in line]
  return (named or errors or lines or ['nothing in its log'])[-1]


# ---------------------------------------------------------------------------

_RUNNERS = {'fnapi': 'FnApiRunner', 'prism': 'PrismRunner'}


def _parse(argv: list[str] | None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
      prog='unbounded_outbox_demo',
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument(
      '--seconds',
      type=float,
      default=20,
      help='how long orders are written, at least 8 (20)')
  parser.add_argument(
      '--rate', type=int, default=300, help='orders a second (300)')
  parser.add_argument(
      '--runner',
      choices=sorted(_RUNNERS),
      help='prism closes windows while orders come in, fnapi needs nothing '
      'but Python (prism if --prism is given, otherwise fnapi)')
  parser.add_argument(
      '--prism', metavar='PATH', help='the program of the Prism runner')
  parser.add_argument(
      '--keep', action='store_true', help='keep the databases and the log')
  args = parser.parse_args(argv)
  if args.runner is None:
    args.runner = 'prism' if args.prism else 'fnapi'
  if args.seconds < 8:
    parser.error(
        f'--seconds={args.seconds:g}: at least 8, to have some windows')
  if args.rate < 1:
    parser.error(f'--rate={args.rate}: at least 1')
  if args.runner == 'prism':
    if not args.prism:
      parser.error('--runner=prism: give the program too, --prism=PATH')
    if not os.access(args.prism, os.X_OK) or os.path.isdir(args.prism):
      parser.error(f'--prism={args.prism}: no program is there')
    args.prism = os.path.abspath(args.prism)
  return args


def _interrupt(signum, frame):
  raise KeyboardInterrupt


def main(argv: list[str] | None = None) -> int:
  args = _parse(argv)
  # SIGINT as well: whoever starts it in the background may have it ignored.
  for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(signum, _interrupt)
  screen = Screen()
  folder = tempfile.mkdtemp(prefix='outbox-demo-')
  keep = args.keep
  try:
    screen.line(
        f'{args.seconds:g} s of orders, 2 splits, windows of '
        f'{_WINDOW_SECONDS} s; folder {folder}')
    good = Demo(args, folder, screen).run()
    keep = keep or not good
    return 0 if good else 1
  except CouldNotRun as e:
    screen.line()
    print(f'could not run: {e}', file=sys.stderr)
    keep = True
    return 2
  except KeyboardInterrupt:
    screen.line()
    print('stopped', file=sys.stderr)
    return 130
  except BrokenPipeError:
    # The reader of our output is gone, as with `| head`. So that the exit does
    # not try to flush:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 2
  finally:
    if keep:
      screen.line(f'kept: {folder}')
    else:
      shutil.rmtree(folder, ignore_errors=True)


if __name__ == '__main__':
  sys.exit(main())
