"""Calls git so that nobody's own settings change the result.

What git makes here must be the same on each machine, so each setting that
could change bytes or ids is given, and the user's and the system's settings
are not read.
"""

import os
import pathlib

from beamstack import processes

# Author, committer and time of all commits that the program makes.
NAME = 'beamstack'
EMAIL = 'beamstack@localhost'
DATE = '2026-01-01T00:00:00+00:00'

FIXED = {
    'GIT_CONFIG_GLOBAL': os.devnull,
    'GIT_CONFIG_SYSTEM': os.devnull,
    'GIT_CONFIG_NOSYSTEM': '1',
    'GIT_AUTHOR_NAME': NAME,
    'GIT_AUTHOR_EMAIL': EMAIL,
    'GIT_AUTHOR_DATE': DATE,
    'GIT_COMMITTER_NAME': NAME,
    'GIT_COMMITTER_EMAIL': EMAIL,
    'GIT_COMMITTER_DATE': DATE,
    'GIT_TERMINAL_PROMPT': '0',
    'LC_ALL': 'C',
    'TZ': 'UTC',
}
# Variables of a git that called us (a hook, say) point it elsewhere.
REMOVED = (
    'GIT_DIR', 'GIT_WORK_TREE', 'GIT_INDEX_FILE', 'GIT_OBJECT_DIRECTORY',
    'GIT_DIFF_OPTS', 'GIT_EXTERNAL_DIFF')
OPTIONS = (
    '-c', 'core.autocrlf=false', '-c', 'core.eol=lf', '-c',
    'core.fileMode=true', '-c', 'core.abbrev=12', '-c', 'core.quotePath=true',
    '-c', 'core.safecrlf=false', '-c', 'core.attributesFile=' + os.devnull,
    '-c', 'core.hooksPath=' + os.devnull, '-c', 'commit.gpgSign=false', '-c',
    'gc.auto=0', '-c', 'init.defaultBranch=series', '-c',
    'i18n.commitEncoding=UTF-8', '-c', 'i18n.logOutputEncoding=UTF-8')


def git(folder: pathlib.Path, *arguments: str, what: str = '') -> str:
  """Runs git in a folder with all settings fixed; returns its output."""
  tool = processes.find_tool('git')
  return processes.must_run(
      [tool, *OPTIONS, '-C', folder, *arguments],
      what=what or f'git {arguments[0]}',
      env=FIXED,
      without=REMOVED)


def tracked(root: pathlib.Path) -> list[str]:
  """All files that the checkout tracks, by repository path."""
  out = git(root, 'ls-files', '-z', what='listing the tracked files with git')
  return sorted(path for path in out.split('\0') if path)


def commit_all(folder: pathlib.Path, message: str) -> str:
  """Commits all that lies in a repository's folder; returns the id."""
  git(folder, 'add', '--all', '--force')
  git(
      folder, 'commit', '--quiet', '--no-verify', '--cleanup=verbatim',
      f'--message={message}')
  return git(folder, 'rev-parse', 'HEAD').strip()


def tree_id(folder: pathlib.Path) -> str:
  """The id of what HEAD holds: the same for the same files."""
  return git(folder, 'rev-parse', 'HEAD^{tree}').strip()
