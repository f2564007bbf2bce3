"""How the program says that something is wrong.

A `Problem` is something wrong with the series: checks collect them and go on.
`ProblemsFound` ends a verb because of some (exit 1). `CannotRun` ends a verb
that could not do its work for a reason outside of the series, such as a
missing tool (exit 2).
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Problem:
  """One thing wrong: where, what, and the command or act to go on with."""

  where: str
  what: str
  next: str = ''

  def lines(self) -> list[str]:
    found = [f'{self.where}: {self.what}']
    if self.next:
      found.append(f'next: {self.next}')
    return found


def missing_file(pull_request: str, path: str) -> Problem:
  return Problem(
      pull_request,
      f'{path} is listed, but missing',
      f'add the file, or take it out of {pull_request} in stack/series.toml')


class BeamstackError(Exception):
  """Base of the errors that are shown in a few lines, without a traceback."""

  exit_code = 2


class CannotRun(BeamstackError):
  """The verb could not do its work; says what to do about it."""

  exit_code = 2

  def __init__(self, what: str, remedy: str = ''):
    super().__init__(what)
    self.what = what
    self.remedy = remedy


class ProblemsFound(BeamstackError):
  """The verb stopped at problems of the series."""

  exit_code = 1

  def __init__(self, problems: list[Problem]):
    super().__init__(f'{len(problems)} problems')
    self.problems = problems
