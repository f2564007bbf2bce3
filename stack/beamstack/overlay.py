"""Applies the series to a base: which files result, and what went wrong.

This is the one place that decides what a build holds. Wheels, trees and the
Go build write what it returns; `check` reports what it found.
"""

import dataclasses

from beamstack import edits
from beamstack import parts
from beamstack.bases import Base
from beamstack.errors import Problem
from beamstack.errors import ProblemsFound
from beamstack.errors import missing_file
from beamstack.series import Edit
from beamstack.series import PullRequest
from beamstack.series import Series

APPLIES = 'applies'
UPSTREAM = 'already upstream'
CONFLICTS = 'conflicts'


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What became of one edit on a base."""

  edit: Edit
  state: str
  reason: str = ''


@dataclasses.dataclass
class Overlay:
  """The result of applying a series to a base.

  Attributes:
    files: the new content by repository path: edited files and own ones.
    outcomes: one an edit, in the order of the series.
    replaced: own files that took the place of the base's.
    problems: everything that is wrong, edits that conflict included.
  """

  files: dict[str, bytes] = dataclasses.field(default_factory=dict)
  outcomes: list[Outcome] = dataclasses.field(default_factory=list)
  replaced: list[str] = dataclasses.field(default_factory=list)
  problems: list[Problem] = dataclasses.field(default_factory=list)

  def must_be_sound(self) -> 'Overlay':
    if self.problems:
      raise ProblemsFound(self.problems)
    return self


def apply_series(
    series: Series, bases: list[Base], *, pin: bool = True) -> Overlay:
  """Applies all pull requests, in order, to a base.

  Args:
    series: what to apply.
    bases: one base for each part that is wanted; files of other parts are
      left out.
    pin: whether the base is the release that the series is written against.
      There each edit must apply and nothing may be replaced; on a newer one,
      edits may be upstream already and declared files replace upstream's.
  """
  by_part = {base.part.name: base for base in bases}
  overlay = Overlay()
  for pr in series.pull_requests:
    for path in pr.files:
      part = parts.part_of(path)
      if part is not None and part.name in by_part:
        _add_file(overlay, series, pr, path, by_part[part.name], pin)
    for edit in pr.edits:
      part = parts.part_of(edit.file)
      if part is None:
        overlay.problems.append(
            _problem(edit, f'no base holds {edit.file}', pin, ''))
      elif part.name in by_part:
        _add_edit(overlay, series, edit, by_part[part.name], pin)
  overlay.problems += _syntax_problems(overlay)
  return overlay


def _add_file(
    overlay: Overlay,
    series: Series,
    pr: PullRequest,
    path: str,
    base: Base,
    pin: bool) -> None:
  content = series.read(path)
  if content is None:
    overlay.problems.append(missing_file(pr.name, path))
    return
  if base.read(path) is not None:
    if pin:
      overlay.problems.append(
          Problem(
              pr.name,
              f'{path} is a file of Beam {base.version}, the pinned base',
              'change it by an edit, or name the new file otherwise'))
    elif path not in pr.replaces:
      overlay.problems.append(
          Problem(
              pr.name,
              f'Beam {base.version} ships {path} itself, and the pull '
              'request does not say that it replaces it',
              f'add it to replaces of {pr.name} in series.toml'))
    else:
      overlay.replaced.append(path)
  overlay.files[path] = content


def _add_edit(
    overlay: Overlay, series: Series, edit: Edit, base: Base,
    pin: bool) -> None:

  def conflict(reason: str, remedy: str = '') -> None:
    overlay.outcomes.append(Outcome(edit, CONFLICTS, reason))
    overlay.problems.append(_problem(edit, reason, pin, base.version, remedy))

  if edit.file in series.files():
    conflict(
        f'{edit.file} is a file of the series, not of Beam',
        f'change {edit.file} itself, and remove the edit')
    return
  original = base.read(edit.file)
  if original is None:
    conflict(f'Beam {base.version} has no {edit.file}')
    return
  sibling = base.compiled_sibling(edit.file)
  if sibling:
    conflict(
        f'{edit.file} is hidden by its compiled sibling '
        f'{sibling.rsplit("/", 1)[-1]}: the edit would be ignored silently',
        'edit a module that is not compiled')
    return
  try:
    upstream = edits.is_upstream(original.decode(), base.part, edit)
    if upstream and not pin:
      overlay.outcomes.append(Outcome(edit, UPSTREAM))
      return
    if upstream:
      conflict(
          f'its upstream rule matches Beam {base.version}, the pinned base '
          'itself',
          f'narrow [edit.upstream] in {edit.source}')
      return
    current = overlay.files.get(edit.file, original).decode()
    overlay.files[edit.file] = edits.apply(current, base.part, edit).encode()
  except edits.EditError as e:
    conflict(str(e))
    return
  overlay.outcomes.append(Outcome(edit, APPLIES))


def _problem(
    edit: Edit, what: str, pin: bool, version: str,
    remedy: str = '') -> Problem:
  again = './beamstack check' + ('' if pin else f' --beam {version}')
  return Problem(
      f'{edit.pull_request}, edit {edit.name}',
      what,
      remedy or f'mend {edit.source}, then {again} {edit.pull_request}')


def _syntax_problems(overlay: Overlay) -> list[Problem]:
  found = []
  for path, content in overlay.files.items():
    part = parts.part_of(path)
    problem = part.syntax_problem(path, content.decode('utf-8', 'replace'))
    if problem:
      found.append(
          Problem(path, problem, 'mend the file, or the edits that change it'))
  return found
