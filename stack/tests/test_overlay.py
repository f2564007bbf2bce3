"""Applying a series to a base: what results, and what is refused."""

import pytest

import made_up
from beamstack import overlay

NEW = 'sdks/python/apache_beam/new.py'


def apply(tmp_path, *edits, more=None, pin=True, **pr):
  version = '2.75.0' if pin else '2.77.0'
  base = made_up.base(tmp_path, version, **(more or {}))
  series = made_up.series(
      tmp_path, made_up.pull_request(edits=tuple(edits), **pr))
  return overlay.apply_series(series, [base], pin=pin)


def one_problem(result):
  assert len(result.problems) == 1, result.problems
  return result.problems[0]


def test_an_edit_and_a_new_file(tmp_path):
  made_up.write(tmp_path, NEW, 'x = 1\n')
  result = apply(tmp_path, made_up.edit(), files=(NEW, ))
  assert result.problems == []
  assert result.files[NEW] == b'x = 1\n'
  assert b'self.count += 1' in result.files[made_up.edit().file]
  assert [o.state for o in result.outcomes] == [overlay.APPLIES]


def test_a_second_edit_sees_the_result_of_the_first(tmp_path):
  second = made_up.edit(
      name='count-more', place='after', text='self.count += 2\n',
      rule={'rule': {'pattern': 'self.count += 1'}})
  result = apply(tmp_path, made_up.edit(), second)
  assert result.problems == []
  assert (
      b'    self.count += 1\n    self.count += 2\n'
      in result.files[second.file])


def test_a_conflict_names_pull_request_edit_and_next_command(tmp_path):
  bad = made_up.edit(rule={'rule': made_up.function('reed')})
  problem = one_problem(apply(tmp_path, bad))
  assert problem.where == 'counting, edit count-reads'
  assert '0 matches' in problem.what and '1 expected' in problem.what
  assert problem.next == (
      'mend stack/counting/edits/reader.toml, then ./beamstack check counting')


def test_a_conflict_over_a_newer_base_names_it(tmp_path):
  bad = made_up.edit(rule={'rule': made_up.function('reed')})
  result = apply(tmp_path, bad, pin=False)
  assert 'check --beam 2.77.0 counting' in one_problem(result).next
  assert [o.state for o in result.outcomes] == [overlay.CONFLICTS]


def test_an_edit_that_a_newer_base_has_is_left_out(tmp_path):
  known = made_up.edit(upstream={'rule': made_up.function('close')})
  result = apply(tmp_path, known, pin=False)
  assert result.problems == [] and result.files == {}
  assert [o.state for o in result.outcomes] == [overlay.UPSTREAM]


def test_an_upstream_rule_may_not_match_the_pin(tmp_path):
  known = made_up.edit(upstream={'rule': made_up.function('close')})
  assert 'the pinned base' in one_problem(apply(tmp_path, known)).what


def test_an_edit_to_a_compiled_module_is_refused(tmp_path):
  hidden = made_up.edit(
      file='sdks/python/apache_beam/fast.py',
      rule={'rule': made_up.function('go')})
  problem = one_problem(apply(tmp_path, hidden))
  assert 'fast.cpython-311-x86_64-linux-gnu.so' in problem.what
  assert 'ignored' in problem.what


@pytest.mark.parametrize(
    'file, words',
    [
        ('sdks/python/apache_beam/none.py', 'has no sdks/python'),
        ('website/www/site/a.md', 'no base holds'),
        (NEW, 'a file of the series'),
    ])
def test_edits_of_what_is_no_upstream_file(tmp_path, file, words):
  made_up.write(tmp_path, NEW, 'x = 1\n')
  problem = one_problem(
      apply(tmp_path, made_up.edit(file=file), files=(NEW, )))
  assert words in problem.what


def test_a_listed_file_that_is_missing(tmp_path):
  problem = one_problem(apply(tmp_path, files=(NEW, )))
  assert problem.what == f'{NEW} is listed, but missing'


def test_a_file_of_the_pin_may_not_be_replaced(tmp_path):
  path = 'sdks/python/apache_beam/reader.py'
  made_up.write(tmp_path, path, 'x = 1\n')
  result = apply(tmp_path, files=(path, ), replaces=(path, ))
  assert 'the pinned base' in one_problem(result).what


def test_replacing_a_file_of_a_newer_base_must_be_declared(tmp_path):
  made_up.write(tmp_path, NEW, 'x = 1\n')
  more = {'new_py': 'x = 2\n'}
  silent = apply(tmp_path, more=more, pin=False, files=(NEW, ))
  assert 'does not say that it replaces it' in one_problem(silent).what
  declared = apply(
      tmp_path, more=more, pin=False, files=(NEW, ), replaces=(NEW, ))
  assert declared.problems == []
  assert declared.replaced == [NEW] and declared.files[NEW] == b'x = 1\n'


def test_an_edit_that_breaks_the_syntax(tmp_path):
  problem = one_problem(apply(tmp_path, made_up.edit(text='if x\n')))
  assert problem.where == made_up.edit().file
  assert 'line 8 does not compile' in problem.what


def test_a_go_file_that_does_not_parse(tmp_path):
  path = 'sdks/go/a.go'
  made_up.write(tmp_path, path, 'package a\nfunc f( {\n')
  base = made_up.go_base(tmp_path / 'go-base', b_go='package a\n')
  series = made_up.series(tmp_path, made_up.pull_request(files=(path, )))
  result = overlay.apply_series(series, [base])
  assert 'does not parse' in one_problem(result).what
