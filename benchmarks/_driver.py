# Licensed under the Apache License, Version 2.0: see LICENSE.
"""What the drivers of all benchmarks do around their measuring."""

import argparse
import contextlib
import datetime
import hashlib
import json
import os
import pathlib
import platform
import shutil
import signal
import sys
import time

import _measured_process


class CannotRun(Exception):
  """What is missing, and what to do about it."""


def executable(name, value) -> pathlib.Path:
  """The program that an option names."""
  found = shutil.which(value)
  if not found:
    raise CannotRun('%s=%s: no such program' % (name, value))
  # Not resolved: a virtual environment's python is a link out of it.
  return pathlib.Path(found).absolute()


def machine() -> str:
  """This machine in a few words."""
  model = platform.machine()
  with open('/proc/cpuinfo') as cpuinfo:
    for line in cpuinfo:
      if line.startswith('model name'):
        model = line.partition(':')[2].strip()
        break
  memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
  return '%s, %d cores, %d GiB, Linux %s' % (
      model,
      os.cpu_count(),
      round(memory / 2**30),
      platform.release().partition('-')[0])


def prism_version(binary) -> str:
  """What tells a binary from others: the released one knows no version."""
  return 'sha256 ' + hashlib.sha256(binary.read_bytes()).hexdigest()[:12]


def positive(convert):
  """A type of options: numbers above 0, which `convert` makes of text."""
  def parse(text):
    value = convert(text)
    if value <= 0:
      raise argparse.ArgumentTypeError('%s is not more than 0' % text)
    return value

  # What argparse calls it if it is no number at all.
  parse.__name__ = convert.__name__
  return parse


def parser(
    doc, *, quick, timeout=None, repeats=3) -> argparse.ArgumentParser:
  """A parser with the options that all benchmarks have.

  Args:
    doc: what --help begins with.
    quick: what --quick means.
    timeout: the default of --timeout; None: no --timeout and no --repeats.
    repeats: what is made without --repeats.
  """
  made = argparse.ArgumentParser(
      description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
  made.add_argument(
      '--out', type=pathlib.Path, required=True, metavar='FOLDER')
  if timeout:
    made.add_argument(
        '--repeats',
        type=positive(int),
        metavar='R',
        help='runs of each case (default: %d)' % repeats)
    made.add_argument(
        '--timeout',
        type=positive(int),
        default=timeout,
        metavar='SECONDS',
        help='for one run (default: %d)' % timeout)
  made.add_argument('--quick', action='store_true', help=quick)
  made.add_argument(
      '--no-targets',
      action='store_true',
      help='only measure: a missed target does not fail the run')
  return made


def repeats_of(options) -> int:
  return options.repeats or (1 if options.quick else 3)


def about(options, **more) -> dict:
  """When, where and how was measured, for a page."""
  return {
      'date': datetime.date.today().isoformat(),
      'machine': machine(),
      'quick': options.quick,
      **more
  }


@contextlib.contextmanager
def results(path):
  """Gives a function that writes a record as a line of a file.

  They are kept apart until all are there: a run that is cut short spoils no
  earlier results.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  partial = path.with_name(path.name + '.part')
  try:
    with open(partial, 'w') as lines:

      def write(record):
        lines.write(json.dumps(record) + '\n')
        lines.flush()

      yield write
  except BaseException:
    partial.unlink(missing_ok=True)
    raise
  partial.replace(path)


def in_turn(cases, measure, tell_of, write) -> list:
  """Measures cases one after the other, a line for each on standard error.

  `measure` makes a record of a case, `tell_of` the words that its line ends
  with, and `write` gets each record. Gives all of them.
  """
  records = []
  for index, case in enumerate(cases, 1):
    sys.stderr.write(
        '[%*d/%d] %s ' % (
            len(str(len(cases))), index, len(cases),
            (case.label() + ' ').ljust(44, '.')))
    sys.stderr.flush()
    started = time.monotonic()
    try:
      record = measure(case)
    except _measured_process.RunFailed as failure:
      sys.stderr.write('FAILED: %s\n' % failure)
      raise
    sys.stderr.write(
        '%s in %.0f s\n' % (tell_of(record), time.monotonic() - started))
    write(record)
    records.append(record)
  return records


def tell(verdicts, no_targets) -> int:
  """Prints pairs of a line and whether its target is met; the exit code."""
  for line, _ in verdicts:
    print(line)
  missed = sum(not met for _, met in verdicts)
  print('%d of %d targets met' % (len(verdicts) - missed, len(verdicts)))
  return 1 if missed and not no_targets else 0


def run(name, bench, options) -> int:
  """The exit code of `bench(options)`, whatever becomes of it."""
  # Ended by a signal, too, what is measured is ended first.
  signal.signal(signal.SIGTERM, signal.default_int_handler)
  try:
    return bench(options)
  except CannotRun as problem:
    print('%s: %s' % (name, problem), file=sys.stderr)
    return 2
  except _measured_process.RunFailed as failure:
    print(failure.output, file=sys.stderr)
    print('%s: %s' % (name, failure), file=sys.stderr)
    return 1
  except KeyboardInterrupt:
    return 130
