"""Builds, checks and tests the series of pull requests against Apache Beam.

Results go to stdout, progress to stderr. Exit codes: 0 good, 1 problems
found, 2 could not run, 130 interrupted.
"""

import argparse
import signal
import sys
import time
import traceback

from beamstack import console
from beamstack import verbs
from beamstack import workspace
from beamstack.errors import BeamstackError
from beamstack.errors import CannotRun
from beamstack.errors import ProblemsFound


def parser() -> argparse.ArgumentParser:
  """The parser of the whole command line."""
  top = argparse.ArgumentParser(
      prog='./beamstack',
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  subparsers = top.add_subparsers(
      dest='verb', metavar='VERB', required=True, title='verbs')
  for verb in verbs.ALL:
    sub = subparsers.add_parser(
        verb.name,
        help=verb.help,
        description=verb.help[0].upper() + verb.help[1:] + '.\n\n' +
        verb.details,
        epilog='Exit codes: 0 good, 1 problems found, 2 could not run.',
        formatter_class=argparse.RawDescriptionHelpFormatter)
    verb.add_arguments(sub)
    sub.set_defaults(run=verb.run)
  return top


def main(arguments: list[str]) -> int:
  """Runs one verb; returns the exit code."""
  signal.signal(signal.SIGTERM, _interrupt)
  if arguments[:1] == ['python']:
    # All that follows is for Python, `--help` of a script of yours included.
    arguments = ['python', '--', *arguments[1:]] if arguments[1:2] not in (
        ['-h'], ['--help'], ['--']) else arguments
  options = parser().parse_args(arguments)
  space = workspace.here()
  try:
    return options.run(space, options)
  except ProblemsFound as e:
    for line in console.problem_lines(e.problems):
      console.result(line)
    return e.exit_code
  except CannotRun as e:
    console.note(f'beamstack {options.verb}: {e.what}')
    if e.remedy:
      console.note(f'  next: {e.remedy}')
    return e.exit_code
  except BeamstackError as e:
    console.note(f'beamstack {options.verb}: {e}')
    return e.exit_code
  except KeyboardInterrupt:
    console.note(f'beamstack {options.verb}: interrupted')
    return 130
  except BrokenPipeError:
    # Whoever read our output has gone; closing must not complain again.
    sys.stderr.close()
    return 1
  except Exception as e:  # pylint: disable=broad-except
    log = space.logs / f'error-{time.strftime("%Y%m%d-%H%M%S")}.log'
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(traceback.format_exc())
    console.note(
        f'beamstack {options.verb}: a fault of the program: '
        f'{type(e).__name__}: {e}')
    console.note(f'  next: report it with the traceback in {log}')
    return 2


def _interrupt(number, frame):
  del number, frame
  raise KeyboardInterrupt
