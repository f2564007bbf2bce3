# Licensed under the Apache License, Version 2.0: see LICENSE.
"""What a benchmark promises, and whether it held: for the page and the screen.
"""

import dataclasses

import _driver


@dataclasses.dataclass(frozen=True)
class Verdict:
  """One target: what was wanted, what was found."""

  target: str
  found: str
  met: bool

  def line(self) -> str:
    return '%s %s %s' % (
        (self.target + ' ').ljust(68, '.'),
        'ok    ' if self.met else 'MISSED',
        self.found)


def section(verdicts) -> list[str]:
  """The lines of a page's section, in Markdown."""
  return [
      '## Targets',
      '',
      '| target | verdict | found |',
      '| --- | --- | ---: |',
      *(
          '| %s | %s | %s |' % (
              verdict.target,
              'met' if verdict.met else '**missed**',
              verdict.found) for verdict in verdicts),
      '',
  ]


def tell(verdicts, no_targets) -> int:
  """Prints verdicts; returns the exit code."""
  return _driver.tell([(verdict.line(), verdict.met) for verdict in verdicts],
                      no_targets)
