"""Compiles the Java that pages under website/ show.

A block of Java on a page is a few statements, or a class; a file in stack/docs/
has what is around them. A line in it says where a block comes:

    // block 2 of website/www/site/content/en/documentation/some-page.md

Each block of each page has one place. What javac says is told with the file and
line that a reader of the documentation sees.
"""

import dataclasses
import pathlib
import re

from beamstack import docs
from beamstack import javabuild
from beamstack import pytests
from beamstack.errors import Problem
from beamstack.errors import ProblemsFound
from beamstack.products import Product
from beamstack.workspace import Workspace

_PLACE = re.compile(r'\s*// block (\d+) of (\S+)')


@dataclasses.dataclass(frozen=True)
class Unit:
  """One file to compile: its lines, and where each stands."""

  file: str
  lines: tuple[str, ...]
  places: tuple[str, ...]

  def source(self) -> bytes:
    return ''.join(f'{line}\n' for line in self.lines).encode()


def units(root: pathlib.Path) -> tuple[list[Unit], list[Problem]]:
  """Fills the files of stack/docs/; tells of blocks without a place."""
  blocks = {}
  for path in sorted(root.glob('website/**/*.md')):
    page = path.relative_to(root).as_posix()
    script = docs.page_script(page, path.read_text(encoding='utf-8'), 'java')
    for number, piece in enumerate(script.pieces, 1):
      blocks[number, page] = piece
  found = []
  problems = []
  for path in sorted(root.glob('stack/docs/*.java')):
    file = path.relative_to(root).as_posix()
    lines = []
    places = []
    text = path.read_text(encoding='utf-8')
    for number, line in enumerate(text.splitlines(), 1):
      here = f'{file}:{number}'
      place = _PLACE.fullmatch(line)
      piece = blocks.pop((int(place[1]), place[2]), None) if place else None
      if piece:
        code = piece.code.splitlines()
        lines += code
        places += [f'{piece.file}:{piece.line + i}' for i in range(len(code))]
        continue
      if place:
        problems.append(
            Problem(
                here, f'{place[2]} has no block {place[1]}, or it has a place',
                'mend the number, or the path'))
      lines.append(line)
      places.append(here)
    found.append(Unit(file, tuple(lines), tuple(places)))
  problems += [
      Problem(
          f'{piece.file}:{piece.line}',
          'no file of stack/docs/ compiles this block of Java',
          f'write where it belongs: // block {number} of {page}')
      for (number, page), piece in blocks.items()
  ]
  return found, problems


def at_reader(problem: Problem, found: list[Unit]) -> Problem:
  """A problem of javac, where the line stands that it is about."""
  file, _, line = problem.where.rpartition(':')
  for unit in found:
    if unit.file == file and line.isdecimal():
      return dataclasses.replace(problem, where=unit.places[int(line) - 1])
  return problem


def check(
    space: Workspace, product: Product,
    jar: pathlib.Path) -> pytests.Result:
  """Compiles the blocks of all pages; each file of stack/docs/ is one test.

  Args:
    space: the checkout.
    product: on whose jars.
    jar: what the pages tell of; goes before those.
  """
  found, problems = units(space.root)
  try:
    javabuild.compile_all(
        space, product, {unit.file: unit.source() for unit in found},
        name='docs', first=[jar])
  except ProblemsFound as e:
    problems += [at_reader(problem, found) for problem in e.problems]
  state = 'failed' if problems else 'passed'
  states = {unit.file: state for unit in found} or {'stack/docs': state}
  return pytests.Result(pytests.count(states), states, problems, '')
