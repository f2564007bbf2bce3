"""Checks of how the series hangs together. Pure functions, without a base.

Each takes the series, and what the checkout tracks where it matters, and
returns all problems that it finds.
"""

import collections
import re

from beamstack import parts
from beamstack.errors import Problem
from beamstack.errors import missing_file
from beamstack.series import PullRequest
from beamstack.series import Series

HEADS = ('Why', 'What', 'How tested', 'Look at', 'Gone when')
LICENSED_SUFFIXES = ('.py', '.go', '.java', '.md')
LICENCE = 'Licensed to the Apache Software Foundation'
SERIES = 'stack/series.toml'


def owned_paths(tracked: list[str]) -> list[str]:
  """The tracked files that must belong to a pull request."""
  return [
      path for path in tracked if path.split('/')[0] in parts.OWNED_FOLDERS
  ]


def check_owned_once(series: Series, tracked: list[str]) -> list[Problem]:
  """Each tracked file of Beam's folders belongs to one pull request."""
  owners = collections.defaultdict(list)
  for pr in series.pull_requests:
    for path in pr.files:
      owners[path].append(pr.name)
  owned = owned_paths(tracked)
  problems = []
  if not owned:
    problems.append(
        Problem(
            SERIES,
            'nothing to check: no tracked file under ' +
            ', '.join(f'{f}/' for f in parts.OWNED_FOLDERS),
            'git add the files of the series'))
  for path in owned:
    if path not in owners:
      problems.append(
          Problem(
              path,
              'no pull request lists it',
              f'add it to the files of one in {SERIES}'))
  for path, names in sorted(owners.items()):
    if len(names) > 1:
      problems.append(
          Problem(
              path,
              'owned twice, by ' + ' and '.join(names),
              f'leave it to one of them in {SERIES}'))
    problems += _unfit(series, path, names[0], path in owned)
  return problems


def _unfit(
    series: Series, path: str, name: str, tracked: bool) -> list[Problem]:
  if path.split('/')[0] not in parts.OWNED_FOLDERS:
    return [
        Problem(
            name,
            f'{path} is not a path inside Beam',
            f'files in {SERIES} lie under ' +
            ', '.join(f'{f}/' for f in parts.OWNED_FOLDERS))
    ]
  if tracked:
    return []
  if series.read(path) is None:
    return [missing_file(name, path)]
  return [
      Problem(name, f'{path} is listed, but not tracked', f'git add {path}')
  ]


def check_names(series: Series) -> list[Problem]:
  """Names of pull requests and of edits are each used once."""
  problems = []
  for kind, names in (
      ('pull request', [pr.name for pr in series.pull_requests]),
      ('edit', [edit.name for edit in series.edits()])):
    for name, count in collections.Counter(names).items():
      if count > 1:
        problems.append(
            Problem(
                f'{kind} {name}',
                f'the name is used {count} times',
                'give each a name of its own'))
  return problems


def check_needs(series: Series) -> list[Problem]:
  """What a pull request needs comes before it."""
  problems = []
  names = [pr.name for pr in series.pull_requests]
  for position, pr in enumerate(series.pull_requests):
    for need in pr.needs:
      if need not in names:
        problems.append(
            Problem(
                pr.name,
                f'it needs {need}, which is not in the series',
                f'mend needs of {pr.name} in {SERIES}'))
      elif need not in names[:position]:
        problems.append(
            Problem(
                pr.name,
                f'it needs {need}, which does not come before it',
                f'move {need} up in {SERIES}, or {pr.name} down'))
  return problems


def check_described(series: Series) -> list[Problem]:
  """Each pull request has a title and a PR.md with all heads filled in."""
  problems = []
  for pr in series.pull_requests:
    path = f'stack/{pr.name}/PR.md'
    if not pr.title.strip():
      problems.append(Problem(pr.name, 'it has no title', f'see {SERIES}'))
    if not pr.description.strip():
      problems.append(
          Problem(
              path,
              'it is missing or empty',
              'write it, with the heads ' + ', '.join(HEADS)))
      continue
    for what in _head_problems(pr.description):
      problems.append(Problem(path, what, 'mend it'))
  return problems


def _head_problems(text: str) -> list[str]:
  sections = re.split(r'(?m)^#+[ \t]+(.*?)[ \t#]*$', text)
  found = dict(zip(sections[1::2], sections[2::2]))
  wrong = []
  missing = [head for head in HEADS if head not in found]
  if missing:
    wrong.append('it has no head ' + ', '.join(missing))
  wrong += [
      f'nothing stands under the head {head}' for head in HEADS
      if head in found and not found[head].strip()
  ]
  order = [head for head in found if head in HEADS]
  if not missing and order != list(HEADS):
    wrong.append('its heads are not in the order ' + ', '.join(HEADS))
  if re.search(r'(?m)^(---|diff -|Index: )', text):
    wrong.append(
        'a line begins with ---, diff - or Index:, where git am would end '
        'the message')
  return wrong


def check_folders(series: Series, tracked: list[str]) -> list[Problem]:
  """Descriptions and edits belong to the series, and git tracks them."""
  names = {pr.name for pr in series.pull_requests}
  problems = []
  for path in tracked:
    match = re.fullmatch(r'stack/([^/]+)/(PR\.md|edits/.+)', path)
    if match and match.group(1) not in names:
      problems.append(
          Problem(
              path,
              f'the series has no pull request {match.group(1)}',
              f'add one to {SERIES}, or remove the folder'))
  used = {edit.source for edit in series.edits()}
  used |= {
      f'stack/{pr.name}/PR.md' for pr in series.pull_requests
      if pr.description
  }
  for path in sorted(used - set(tracked)):
    problems.append(Problem(path, 'it is not tracked', f'git add {path}'))
  return problems


def check_not_empty(series: Series) -> list[Problem]:
  """Each pull request brings something, and names tests if it is code."""
  problems = []
  for pr in series.pull_requests:
    if not pr.files and not pr.edits:
      problems.append(
          Problem(
              pr.name,
              'it is empty: no files and no edits',
              f'list its files in {SERIES}, or add stack/{pr.name}/edits'))
    elif is_code(pr) and not pr.tests:
      problems.append(
          Problem(
              pr.name,
              'it names no tests',
              f'list its test modules as tests in {SERIES}'))
    if pr.addon and not any(parts.PYTHON.holds(path) for path in pr.files):
      problems.append(
          Problem(
              pr.name,
              'addon = true, but it has no Python file',
              f'list its files, or remove addon from {SERIES}'))
  return problems


def is_code(pr: PullRequest) -> bool:
  """Whether a pull request changes more than documents."""
  return bool(pr.edits) or any(parts.part_of(path) for path in pr.files)


def check_licence(series: Series) -> list[Problem]:
  """Each file meant for upstream has the licence header."""
  problems = []
  for path in series.files():
    data = series.read(path)
    if path.endswith(LICENSED_SUFFIXES) and data is not None:
      if LICENCE not in data[:1500].decode('utf-8', 'replace'):
        problems.append(
            Problem(
                path,
                'it has no licence header',
                'put the header of the Apache Software Foundation atop'))
  return problems


def check_replaces(
    series: Series, shipped: dict[str, set[str]]) -> list[Problem]:
  """What `replaces` names is a file of the pull request that a base ships.

  Args:
    series: the series.
    shipped: the paths that each newer release holds, by its version.
  """
  problems = []
  for pr in series.pull_requests:
    for path in pr.replaces:
      if path not in pr.files:
        problems.append(
            Problem(
                pr.name,
                f'it replaces {path}, which is not among its files',
                f'mend replaces of {pr.name} in {SERIES}'))
      elif not any(path in paths for paths in shipped.values()):
        problems.append(
            Problem(
                pr.name,
                f'it replaces {path}, which no newer base ships '
                f'({", ".join(shipped)})',
                f'remove it from replaces of {pr.name} in {SERIES}'))
    for path in pr.files:
      versions = [v for v, paths in shipped.items() if path in paths]
      if versions and path not in pr.replaces:
        problems.append(
            Problem(
                pr.name,
                f'Beam {", ".join(versions)} ships {path} itself',
                f'add it to replaces of {pr.name} in {SERIES}'))
  return problems
