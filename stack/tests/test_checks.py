"""How the series hangs together, on made-up series."""

import pytest

import made_up
from beamstack import checks

ONE = 'sdks/python/apache_beam/one.py'
TWO = 'sdks/python/apache_beam/two.py'


@pytest.fixture(name='root')
def _root(tmp_path):
  made_up.write(tmp_path, ONE, f'# {checks.LICENCE}\n')
  made_up.write(tmp_path, TWO, 'x = 1\n')
  return tmp_path


def pr(name='counting', **changes):
  return made_up.pull_request(name=name, **changes)


def said(problems):
  return [f'{problem.where}: {problem.what}' for problem in problems]


def test_owned_once(root):
  series = made_up.series(root, pr(files=(ONE, )), pr('b', files=(TWO, )))
  assert checks.check_owned_once(series, [ONE, TWO, 'README.md']) == []


def test_an_unlisted_file(root):
  series = made_up.series(root, pr(files=(ONE, )))
  assert said(checks.check_owned_once(series, [ONE, TWO])) == [
      f'{TWO}: no pull request lists it'
  ]


def test_a_file_that_is_owned_twice(root):
  series = made_up.series(
      root, pr('a', files=(ONE, )), pr('b', files=(ONE, )))
  assert said(checks.check_owned_once(series, [ONE])) == [
      f'{ONE}: owned twice, by a and b'
  ]


def test_a_file_that_one_pull_request_lists_twice(root):
  series = made_up.series(root, pr('a', files=(ONE, ONE)))
  assert len(checks.check_owned_once(series, [ONE])) == 1


def test_missing_and_untracked_files(root):
  gone = 'sdks/python/apache_beam/gone.py'
  series = made_up.series(root, pr(files=(ONE, TWO, gone)))
  found = checks.check_owned_once(series, [ONE])
  assert said(found) == [
      f'counting: {gone} is listed, but missing',
      f'counting: {TWO} is listed, but not tracked',
  ]


def test_a_file_outside_of_beam(root):
  made_up.write(root, 'README.md', '')
  series = made_up.series(root, pr(files=(ONE, 'README.md')))
  assert said(checks.check_owned_once(series, [ONE, 'README.md'])) == [
      'counting: README.md is not a path inside Beam'
  ]


def test_nothing_to_check_is_a_problem(root):
  found = checks.check_owned_once(made_up.series(root, pr()), ['README.md'])
  assert 'nothing to check' in found[0].what


def test_names_used_twice(root):
  edits = (made_up.edit(), made_up.edit())
  found = checks.check_names(made_up.series(root, pr(edits=edits), pr()))
  assert said(found) == [
      'pull request counting: the name is used 2 times',
      'edit count-reads: the name is used 2 times',
  ]
  assert checks.check_names(made_up.series(root, pr(), pr('b'))) == []


def test_needs_of_a_later_one(root):
  series = made_up.series(root, pr('a', needs=('b', )), pr('b'))
  assert said(checks.check_needs(series)) == [
      'a: it needs b, which does not come before it'
  ]


def test_needs_of_itself_and_of_an_unknown_one(root):
  series = made_up.series(root, pr('a', needs=('a', 'z')))
  assert said(checks.check_needs(series)) == [
      'a: it needs a, which does not come before it',
      'a: it needs z, which is not in the series',
  ]


def test_needs_of_an_earlier_one(root):
  assert checks.check_needs(
      made_up.series(root, pr('a'), pr('b', needs=('a', )))) == []


@pytest.mark.parametrize(
    'text, words',
    [
        ('', 'missing or empty'),
        (made_up.PR_MD.replace('# Look at', '# See'), 'no head Look at'),
        (made_up.PR_MD.replace('By a test.\n', ''), 'under the head How'),
        (made_up.PR_MD + '---\n', 'git am would end'),
    ])
def test_descriptions_that_lack_something(root, text, words):
  found = checks.check_described(made_up.series(root, pr(description=text)))
  assert len(found) == 1 and words in found[0].what
  assert found[0].where == 'stack/counting/PR.md'


def test_heads_in_another_order(root):
  text = '# What\nb\n' + made_up.PR_MD.replace('# What\nIt gets right.\n', '')
  found = checks.check_described(made_up.series(root, pr(description=text)))
  assert 'order' in found[0].what


def test_a_whole_description(root):
  assert checks.check_described(made_up.series(root, pr())) == []


def test_folders_without_a_pull_request(root):
  tracked = [
      'stack/counting/PR.md', 'stack/old/PR.md', 'stack/old/edits/a.toml',
      'stack/beamstack/cli.py'
  ]
  assert said(checks.check_folders(made_up.series(root, pr()), tracked)) == [
      'stack/old/PR.md: the series has no pull request old',
      'stack/old/edits/a.toml: the series has no pull request old',
  ]


def test_edits_that_are_not_tracked(root):
  series = made_up.series(root, pr(edits=(made_up.edit(), )))
  assert said(checks.check_folders(series, ['stack/counting/PR.md'])) == [
      'stack/counting/edits/reader.toml: it is not tracked'
  ]


def test_an_empty_pull_request(root):
  found = checks.check_not_empty(made_up.series(root, pr()))
  assert said(found) == ['counting: it is empty: no files and no edits']


def test_code_without_tests(root):
  assert said(
      checks.check_not_empty(made_up.series(
          root, pr(files=(ONE, ))))) == ['counting: it names no tests']
  page = 'website/www/site/a.md'
  assert checks.check_not_empty(made_up.series(root, pr(files=(page, )))) == []


def test_a_file_without_the_licence_header(root):
  series = made_up.series(root, pr(files=(ONE, TWO)))
  assert said(
      checks.check_licence(series)) == [f'{TWO}: it has no licence header']


def test_replaces(root):
  shipped = {'2.77.0': {ONE}}
  good = made_up.series(root, pr(files=(ONE, TWO), replaces=(ONE, )))
  assert checks.check_replaces(good, shipped) == []
  bad = made_up.series(root, pr(files=(ONE, TWO), replaces=(TWO, 'x')))
  assert said(checks.check_replaces(bad, shipped)) == [
      f'counting: it replaces {TWO}, which no newer base ships (2.77.0)',
      'counting: it replaces x, which is not among its files',
      f'counting: Beam 2.77.0 ships {ONE} itself',
  ]
