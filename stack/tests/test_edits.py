"""An edit finds its place by structure, and its text fits in there."""

import pytest

import made_up
from beamstack import edits
from beamstack import parts

GO_TEXT = '''package a

func (m *M) run(b int) {
\tx := m.y
\tgo m.z(x)
}

func empty() {
}
'''


def python(source=made_up.READER, /, **changes):
  return edits.apply(source, parts.PYTHON, made_up.edit(**changes))


def go(**changes):
  return edits.apply(GO_TEXT, parts.GO, made_up.edit(**changes))


def added(before, after):
  """The lines of `after` that are new, with their numbers from 1 on."""
  rest = before.split('\n')
  new = []
  for number, line in enumerate(after.split('\n'), 1):
    if rest and line == rest[0]:
      rest.pop(0)
    else:
      new.append((number, line))
  assert not rest, f'lines were lost: {rest}'
  return new


def test_first_in_body_comes_after_the_docstring():
  assert added(made_up.READER, python()) == [(8, '    self.count += 1')]


def test_first_in_body_without_a_docstring():
  changed = python(rule={'rule': made_up.function('close')})
  assert added(made_up.READER, changed) == [(12, '    self.count += 1')]


def test_last_in_body():
  changed = python(
      place='last-in-body',
      rule={'rule': made_up.function('close')},
      text='if x:\n  y()\n')
  assert added(
      made_up.READER, changed) == [(13, '    if x:'), (14, '      y()')]


def test_before_and_after_take_the_margin_of_the_place():
  rule = {'rule': {'pattern': 'return data'}}
  assert added(made_up.READER, python(place='before', rule=rule)) == [
      (9, '    self.count += 1')
  ]
  assert added(made_up.READER, python(place='after', rule=rule)) == [
      (10, '    self.count += 1')
  ]


def test_empty_lines_of_a_text_get_no_margin():
  changed = python(text='a = 1\n\nb = 2\n')
  assert '    a = 1\n\n    b = 2\n' in changed


def test_after_goes_behind_a_comment_on_the_same_line():
  changed = python('x = 1  # one\n', rule={'rule': {'pattern': 'x = 1'}},
                   place='after', text='y = 2\n')
  assert changed == 'x = 1  # one\ny = 2\n'


def test_replace_fills_in_captures():
  changed = python(
      place='replace',
      rule={'rule': {'pattern': 'data = self.file.read($SIZE)'}},
      text='data = self.take(\n    $SIZE)\n')
  assert '    data = self.take(\n        size)\n' in changed


def test_a_capture_of_several_lines_keeps_its_margin():
  text = 'def f():\n  if a:\n    b(\n        1)\n'
  changed = python(
      text,
      place='replace',
      rule={'rule': {'pattern': 'b($X)'}},
      text='try:\n  c(\n      $X)\nfinally:\n  d()\n')
  assert changed == (
      'def f():\n  if a:\n    try:\n      c(\n          1)\n'
      '    finally:\n      d()\n')


def test_several_captures():
  changed = python(
      'f(a, b, 1)\n',
      place='replace',
      rule={'rule': {'pattern': 'f($$$ARGS)'}},
      text='g($$$ARGS)\n')
  assert changed == 'g(a, b, 1)\n'


def test_an_unknown_capture_is_refused():
  with pytest.raises(edits.EditError, match=r'captures no \$SIZE'):
    python(text='f($SIZE)\n')


def test_replace_by_nothing_removes_the_line():
  changed = python(
      place='replace', rule={'rule': {'pattern': 'self.file.close()'}},
      text='\n')
  assert changed.endswith('  def close(self):\n')


def test_other_characters_than_ascii_do_not_shift_the_place():
  text = made_up.READER.replace('Reads.', 'Größe – 読む 😀.')
  assert '    self.count += 1\n    data =' in python(text)


def test_a_missing_anchor_is_refused():
  with pytest.raises(
      edits.EditError,
      match='0 matches in sdks/python/apache_beam/reader.py, 1 expected'):
    python(rule={'rule': made_up.function('reed')})


def test_two_matches_are_refused():
  with pytest.raises(
      edits.EditError, match=r'2 matches in .* \(line 6, 11\), 1 expected'):
    python(rule={'rule': {'kind': 'function_definition'}})


def test_two_declared_matches_both_get_the_text():
  changed = python(rule={'rule': {'kind': 'function_definition'}}, matches=2)
  assert changed.count('self.count += 1') == 2


def test_overlapping_places_are_refused():
  with pytest.raises(edits.EditError, match='overlap'):
    python(
        'f(f(1))\n', place='replace', rule={'rule': {'pattern': 'f($X)'}},
        text='g($X)\n', matches=2)


def test_a_rule_that_ast_grep_does_not_know_is_refused():
  with pytest.raises(edits.EditError, match='unknown field `kindd`'):
    python(rule={'rule': {'kindd': 'function_definition'}})
  with pytest.raises(edits.EditError, match='`no_such` is invalid'):
    python(rule={'rule': {'kind': 'no_such'}})


def test_a_place_within_a_line_takes_no_lines():
  with pytest.raises(edits.EditError, match='line 8 does not begin its line'):
    python(place='before', rule={'rule': {'pattern': 'self.file.read($A)'}})


def test_go_bodies():
  rule = {'rule': {'kind': 'method_declaration'}}
  assert added(GO_TEXT, go(rule=rule, text='m.c++\nif a {\n\tb()\n}\n')) == [
      (4, '\tm.c++'), (5, '\tif a {'), (6, '\t\tb()'), (7, '\t}')
  ]
  assert added(GO_TEXT, go(rule=rule, text='m.c++', place='last-in-body')) == [
      (6, '\tm.c++')
  ]


@pytest.mark.parametrize('place', ['first-in-body', 'last-in-body'])
def test_an_empty_go_body(place):
  changed = go(
      rule={'rule': {'kind': 'function_declaration'}}, text='c++\n',
      place=place)
  assert added(GO_TEXT, changed) == [(9, '\tc++')]


def test_upstream_rule():
  edit = made_up.edit(upstream={'rule': {'pattern': 'self.file.close()'}})
  assert edits.is_upstream(made_up.READER, parts.PYTHON, edit)
  assert not edits.is_upstream('x = 1\n', parts.PYTHON, edit)
  assert not edits.is_upstream(made_up.READER, parts.PYTHON, made_up.edit())
