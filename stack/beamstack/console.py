"""What the program prints: results on stdout, progress on stderr."""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence

from beamstack.errors import Problem

NAME_WIDTH = 26
VERDICT_WIDTH = 9


def result(line: str = '') -> None:
  print(line, flush=True)


def note(line: str) -> None:
  _close_line()
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


class Report:
  """A table of verdicts: the name is there before the wait for its verdict.

  On a terminal the name and dots come first and the rest of the row follows,
  unless progress lines came in between. Elsewhere rows are printed whole.
  """

  def __init__(self):
    self.rows: list[str] = []
    self.problems: list[Problem] = []

  def row(self, name: str, run: Callable[[], 'Verdict']) -> 'Verdict':
    """Runs one check and prints its row; problems are kept for the end."""
    _open_line(dotted(name) + ' ')
    verdict = run()
    line = table_row(name, verdict.word, verdict.details)
    if _line.open:
      _line.open = False
      result(line.removeprefix(dotted(name) + ' '))
    else:
      result(line)
    for extra in verdict.lines:
      result(f'  {extra}')
    self.rows.append(line)
    # Several checks may meet the same problem; it is told once.
    self.problems += [
        problem for problem in verdict.problems
        if problem not in self.problems
    ]
    return verdict

  def finish(self) -> int:
    """Prints all problems; returns the exit code."""
    for line in problem_lines(self.problems):
      result(line)
    return 1 if self.problems else 0


@dataclasses.dataclass(frozen=True)
class Verdict:
  """What a check found: a word, what it looked at, more lines, problems."""

  word: str
  details: str = ''
  lines: Sequence[str] = ()
  problems: Sequence[Problem] = ()


def verdict(details: str, problems: Sequence[Problem]) -> Verdict:
  """The verdict of a check that is good if it found no problem."""
  word = 'PROBLEM' if problems else 'ok'
  return Verdict(word, details, (), tuple(problems))


class _Line:
  open = False


_line = _Line()


def _open_line(text: str) -> None:
  if sys.stdout.isatty():
    print(text, end='', flush=True)
    _line.open = True


def _close_line() -> None:
  if _line.open:
    print(flush=True)
    _line.open = False


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
  """Shows that something long goes on, and how long it took.

  On a terminal the line is there before the wait. Elsewhere too: the end of
  the line follows it.
  """
  _close_line()
  print(f'{what} …', end='', file=sys.stderr, flush=True)
  start = time.monotonic()
  try:
    yield
  except BaseException:
    note(' failed')
    raise
  note(f' {time.monotonic() - start:.1f} s')
