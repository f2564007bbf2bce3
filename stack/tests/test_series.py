"""The files that declare the series are read strictly."""

import pathlib

import pytest

import made_up
from beamstack import bases
from beamstack import check
from beamstack import series
from beamstack.errors import CannotRun

SERIES = '''
[series]
title = "T"
label = "stack"

[[pull-request]]
name = "a"
title = "[Python] A"
files = ["sdks/python/apache_beam/a.py"]
upstream-tests = ["apache_beam.b_test"]
'''
EDIT = '''
file = "sdks/python/apache_beam/reader.py"

[[edit]]
name = "e"
why = "W."
place = "before"
text = "x"
[edit.rule]
kind = "function_definition"
[edit.upstream]
pattern = "x"
'''


def load(root, declared=SERIES, edit=EDIT):
  made_up.write(root, 'stack/series.toml', declared)
  made_up.write(root, 'stack/a/edits/reader.toml', edit)
  made_up.write(root, 'stack/a/PR.md', made_up.PR_MD)
  return series.load(root)


def refused(root, **content):
  with pytest.raises(CannotRun) as caught:
    load(root, **content)
  return caught.value.what


def test_a_series(tmp_path):
  [pr] = load(tmp_path).pull_requests
  assert pr.files == ('sdks/python/apache_beam/a.py', )
  assert pr.upstream_tests == ('apache_beam.b_test', ) and not pr.addon
  assert not pr.alone
  assert pr.description == made_up.PR_MD
  [edit] = pr.edits
  assert edit.rule == {'rule': {'kind': 'function_definition'}}
  assert edit.upstream == {'rule': {'pattern': 'x'}}
  assert edit.matches == 1 and edit.source == 'stack/a/edits/reader.toml'


@pytest.mark.parametrize(
    'old, new, words',
    [
        ('files =', 'file =', 'pull request a has unknown keys: file'),
        ('title = "[Python] A"', '', 'pull request a has no title'),
        ('files = [', 'files = [1, ', 'files holds 1, which is not a string'),
        ('name = "a"', 'name = 3', "name = 3 is not a str"),
        ('[series]', '[series', 'series.toml is not TOML'),
        ('[[pull-request]]', '[[pull]]', 'series.toml has unknown keys: pull'),
    ])
def test_mistakes_in_the_series(tmp_path, old, new, words):
  assert words in refused(tmp_path, declared=SERIES.replace(old, new))


@pytest.mark.parametrize(
    'old, new, words',
    [
        ('"before"', '"behind"', 'edit e: place = "behind" is unknown'),
        ('text = "x"', 'text = "x"\nmatches = 0', 'it must be 1 or more'),
        ('text = "x"', 'text = "x"\nmatches = true', 'is not a int'),
        ('[edit.rule]', '[edit.rules]', 'edit e has no rule'),
        ('why = "W."', '', 'edit e has no why'),
    ])
def test_mistakes_in_an_edit(tmp_path, old, new, words):
  told = refused(tmp_path, edit=EDIT.replace(old, new))
  assert words in told and 'stack/a/edits/reader.toml' in told


def test_names_that_check_is_asked_for(tmp_path):
  loaded = load(tmp_path)
  assert check.selected(loaded, []) == {'a'}
  assert check.selected(loaded, ['e']) == {'a'}
  with pytest.raises(CannotRun, match='z is neither'):
    check.selected(loaded, ['z'])


def test_the_pins_of_this_checkout():
  root = pathlib.Path(__file__).resolve().parents[1]
  pins = bases.load_pins(root / 'base.toml')
  assert pins.pin == '2.75.0' and pins.newer == ['2.77.0']
  for version in ('2.75.0', '2.77.0'):
    found = pins.wheel(version).sha256
    assert {python for python, _ in found} == set(bases.PYTHONS)
    assert all(len(value) == 64 for value in found.values())
  with pytest.raises(CannotRun, match='2.70.0 is not pinned'):
    pins.wheel('2.70.0')


def test_a_compiled_sibling_is_found(tmp_path):
  base = made_up.base(tmp_path)
  assert base.compiled_sibling('sdks/python/apache_beam/fast.py')
  assert not base.compiled_sibling('sdks/python/apache_beam/reader.py')
  assert not base.compiled_sibling('sdks/python/apache_beam/fas.py')
