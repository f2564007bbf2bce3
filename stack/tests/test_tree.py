"""The series as a git repository and as patches, with real git."""

import os

import pytest

import made_up
from beamstack import gitrepo
from beamstack import tree
from beamstack.errors import ProblemsFound

NEW = 'sdks/python/apache_beam/new.py'
PAGE = 'website/www/site/content/en/page.md'


@pytest.fixture(name='made')
def _made(tmp_path):
  made_up.write(tmp_path, NEW, 'x = "größe"\n')
  made_up.write(tmp_path, PAGE, 'A page\n')
  base = made_up.base(tmp_path, windows_txt='a\r\nb\r\n')
  go = made_up.go_base(tmp_path / 'go', a_go='package a\n')
  series = made_up.series(
      tmp_path,
      made_up.pull_request(edits=(made_up.edit(), )),
      made_up.pull_request(
          name='new', title='[Python] New', files=(NEW, PAGE)))
  return series, [base, go]


def export(made, folder):
  series, bases = made
  commits = tree.lay_out(series, bases, folder / 'tree')
  patches = tree.export(
      series, folder / 'tree', commits[''], folder / 'patches')
  return commits, {p.name: p.read_bytes() for p in patches}


def test_one_commit_a_pull_request(made, tmp_path):
  commits, _ = export(made, tmp_path / 'a')
  log = gitrepo.git(
      tmp_path / 'a' / 'tree', 'log', '--reverse', '--format=%H %s')
  assert log.splitlines() == [
      f'{commits[""]} Released Apache Beam',
      f'{commits["counting"]} [Python] Count',
      f'{commits["new"]} [Python] New',
  ]
  changed = gitrepo.git(
      tmp_path / 'a' / 'tree', 'show', '--format=', '--name-only', 'HEAD')
  assert changed.split() == [NEW, PAGE]


def test_the_base_holds_no_compiled_file_and_no_metadata(made, tmp_path):
  export(made, tmp_path / 'a')
  paths = gitrepo.tracked(tmp_path / 'a' / 'tree')
  assert 'sdks/python/apache_beam/fast.py' in paths
  assert 'sdks/go/a.go' in paths and 'sdks/go.mod' in paths
  assert not [p for p in paths if p.endswith('.so') or 'dist-info' in p]


def test_the_export_is_the_same_twice(made, tmp_path, monkeypatch):
  commits, first = export(made, tmp_path / 'a')
  # Settings of another user, which git would follow if we let it.
  home = tmp_path / 'home'
  made_up.write(
      home,
      '.gitconfig',
      '[user]\nname = X\nemail = x@x\n[diff]\nnoprefix = true\ncontext = 9\n'
      'renames = copies\nalgorithm = patience\nmnemonicPrefix = true\n'
      'orderFile = /x\n[core]\nautocrlf = true\nabbrev = 5\n'
      '[format]\nsignature = hello\nsubjectPrefix = X\nattach = true\n'
      'coverLetter = true\n[commit]\ngpgSign = true\n')
  monkeypatch.setenv('HOME', os.fspath(home))
  monkeypatch.setenv('GIT_AUTHOR_NAME', 'Someone')
  monkeypatch.setenv('GIT_DIR', os.fspath(tmp_path / 'nowhere'))
  monkeypatch.setenv('TZ', 'Asia/Tokyo')
  monkeypatch.setenv('COLUMNS', '40')
  again, second = export(made, tmp_path / 'b')
  assert again == commits
  assert second == first
  assert list(first) == [
      '0000-cover-letter.patch',
      '0001-Python-Count.patch',
      '0002-Python-New.patch',
  ]


def test_git_am_gives_the_same_tree_and_messages(made, tmp_path):
  commits, _ = export(made, tmp_path)
  patches = sorted((tmp_path / 'patches').iterdir())[1:]
  applied = tree.apply_patches(
      tmp_path / 'tree', commits[''], patches, tmp_path / 'applied')
  assert applied == gitrepo.tree_id(tmp_path / 'tree')
  messages = [
      gitrepo.git(tmp_path / name, 'log', '--format=%B')
      for name in ('tree', 'applied')
  ]
  assert messages[0] == messages[1]
  assert '[Python] Count\n\n# Why\nIt is wrong.' in messages[1]


def test_the_cover_letter_lists_the_series(made):
  series, _ = made
  letter = tree.cover_letter(series)
  assert 'Subject: [PATCH 0/2] A made-up series' in letter
  assert '1. [Python] Count' in letter and '2. [Python] New' in letter


def test_a_pull_request_that_changes_nothing(made, tmp_path):
  series, bases = made
  empty = made_up.series(tmp_path, made_up.pull_request(name='empty'))
  with pytest.raises(ProblemsFound) as caught:
    tree.lay_out(empty, bases, tmp_path / 'tree')
  assert caught.value.problems[0].where == 'empty'
