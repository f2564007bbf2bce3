"""Lays the series out as a git repository, and exports it as patches.

The repository holds one commit with the base and one for each pull request.
Both it and the patches are build products: they hold upstream's text, and are
never committed to this repository.
"""

import pathlib
import shutil

from beamstack import gitrepo
from beamstack import overlay
from beamstack import parts
from beamstack.bases import Base
from beamstack.errors import Problem
from beamstack.errors import ProblemsFound
from beamstack.series import PullRequest
from beamstack.series import Series

BRANCH = 'series'
# Each option is given, so that no git changes the bytes of an export.
FORMAT_PATCH = (
    '--no-signature',  # git's version would be in each file
    '--zero-commit',  # ids depend on more than the content
    '--numbered',
    '--no-renames',
    '--no-color',
    '--no-ext-diff',
    '--no-textconv',
    '--patch',
    '--stat=72,50',  # the width would follow the terminal
    '--no-attach',
    '--no-thread',
    '--no-cover-letter',  # written by us
    '--no-notes',
    '--no-base',
    '--no-encode-email-headers',
    '--no-indent-heuristic',
    '--diff-algorithm=myers',
    '--unified=3',
    '--src-prefix=a/',
    '--dst-prefix=b/',
    '--full-index',
    '--binary',
    '--suffix=.patch',
    '--subject-prefix=PATCH',
    '--filename-max-length=64',
)


def is_text(data: bytes) -> bool:
  if b'\0' in data:
    return False
  try:
    data.decode('utf-8')
  except UnicodeDecodeError:
    return False
  return True


def base_files(bases: list[Base]) -> dict[str, bytes]:
  """The text files of all bases, by repository path."""
  files = {}
  for base in bases:
    for path in base.paths():
      data = base.read(path)
      if data is not None and is_text(data):
        files[path] = data
  return files


def own_files(series: Series) -> dict[str, bytes]:
  """Files that lie in no part of the base, such as the website's pages."""
  found = {}
  for path in series.files():
    data = series.read(path)
    if parts.part_of(path) is None and data is not None:
      found[path] = data
  return found


def message(pr: PullRequest) -> str:
  """The commit message of a pull request: its title and description."""
  return f'{pr.title}\n\n{pr.description.strip()}\n'


def base_message(bases: list[Base]) -> str:
  lines = [f'{base.part.name}: Beam {base.version}' for base in bases]
  return 'Released Apache Beam\n\n' + '\n'.join(lines) + '\n'


def write_files(folder: pathlib.Path, files: dict[str, bytes]) -> None:
  for path, data in files.items():
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def lay_out(
    series: Series, bases: list[Base],
    folder: pathlib.Path) -> dict[str, str]:
  """Makes the repository anew; returns the commit of each pull request.

  The commit of the base has the key ''.
  """
  if folder.exists():
    shutil.rmtree(folder)
  folder.mkdir(parents=True)
  gitrepo.git(folder, 'init', '--quiet', f'--initial-branch={BRANCH}')
  write_files(folder, base_files(bases))
  commits = {'': gitrepo.commit_all(folder, base_message(bases))}
  for count, pr in enumerate(series.pull_requests, 1):
    prefix = series.prefix(count)
    result = overlay.apply_series(prefix, bases).must_be_sound()
    write_files(folder, {**result.files, **own_files(prefix)})
    gitrepo.git(folder, 'add', '--all', '--force')
    if not gitrepo.git(folder, 'diff', '--cached', '--name-only'):
      raise ProblemsFound([
          Problem(
              pr.name,
              'it changes nothing: no file and no edit',
              f'list its files in series.toml, or add stack/{pr.name}/edits')
      ])
    commits[pr.name] = gitrepo.commit_all(folder, message(pr))
  return commits


def export(
    series: Series, repository: pathlib.Path, base_commit: str,
    folder: pathlib.Path) -> list[pathlib.Path]:
  """Writes the patches and a cover letter into a folder, made anew."""
  if folder.exists():
    shutil.rmtree(folder)
  folder.mkdir(parents=True)
  gitrepo.git(
      repository, 'format-patch', '--quiet', *FORMAT_PATCH,
      f'--output-directory={folder}', f'{base_commit}..{BRANCH}')
  (folder / '0000-cover-letter.patch').write_text(cover_letter(series))
  return sorted(folder.iterdir())


def cover_letter(series: Series) -> str:
  """What a reviewer reads first, in the form of a mail like the patches."""
  count = len(series.pull_requests)
  lines = [
      'From ' + '0' * 40 + ' Mon Sep 17 00:00:00 2001',
      f'From: {gitrepo.NAME} <{gitrepo.EMAIL}>',
      'Date: Thu, 1 Jan 2026 00:00:00 +0000',
      f'Subject: [PATCH 0/{count}] {series.title}',
      '',
      f'{count} pull requests, in the order in which they apply. `git am '
      '--keep-non-patch`',
      'keeps the [Part] in front of their titles.',
      '',
  ]
  for number, pr in enumerate(series.pull_requests, 1):
    lines.append(f'{number}. {pr.title}')
    lines.append(f'   name: {pr.name}')
    if pr.needs:
      lines.append(f'   needs: {", ".join(pr.needs)}')
    lines.append(
        f'   {len(pr.files)} new files, {len(pr.edits)} edits of upstream '
        'files')
    lines.append('')
  return '\n'.join(lines)


def apply_patches(
    repository: pathlib.Path, base_commit: str, patches: list[pathlib.Path],
    folder: pathlib.Path) -> str:
  """The id of the tree that `git am` of the patches onto the base gives."""
  if folder.exists():
    shutil.rmtree(folder)
  gitrepo.git(
      repository, 'clone', '--quiet', '--shared', '--no-checkout',
      str(repository), str(folder))
  gitrepo.git(folder, 'checkout', '--quiet', '-b', 'applied', base_commit)
  gitrepo.git(
      folder, 'am', '--quiet', '--keep-cr', '--keep-non-patch',
      '--whitespace=nowarn', *(str(path) for path in patches),
      what='git am of the export onto the base')
  return gitrepo.tree_id(folder)
