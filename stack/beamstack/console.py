"""What the program prints: results on stdout, progress on stderr."""

import contextlib
import sys
import time
from collections.abc import Iterator
from collections.abc import Sequence

from beamstack.errors import Problem

NAME_WIDTH = 26
VERDICT_WIDTH = 9


def result(line: str = '') -> None:
  print(line, flush=True)


def note(line: str) -> None:
  print(line, file=sys.stderr, flush=True)


def table_row(name: str, verdict: str, details: str) -> str:
  """One row of a report: the name, dots, the verdict, the details."""
  return (
      f'{dotted(name)} {verdict:<{VERDICT_WIDTH}} {details}').rstrip()


def dotted(name: str) -> str:
  return f'{name} '.ljust(NAME_WIDTH, '.')


def problem_lines(problems: Sequence[Problem]) -> list[str]:
  return [
      f'  {line}' for problem in problems for line in problem.lines()
  ]


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
  """Shows that something long goes on, and how long it took.

  On a terminal the line is there before the wait. Elsewhere too: the end of
  the line follows it.
  """
  print(f'{what} …', end='', file=sys.stderr, flush=True)
  start = time.monotonic()
  try:
    yield
  except BaseException:
    note(' failed')
    raise
  note(f' {time.monotonic() - start:.1f} s')
