"""Code of the documentation runs as it stands, or is told with its line."""

import pathlib
import sys

import made_up
import pytest
from beamstack import docs

PAGE = 'website/page.md'
MODULE = 'sdks/python/apache_beam/counting.py'
EXAMPLES = 'stack/docs/counting.py'

MODULE_TEXT = '''\
"""Counts.

Twice as much::

  class Two(One):
    def give(self):

      return 2 * super().give()

And that is all.
"""

def shell():
  """In a shell::

    two = Two()

  No code.
  """

def short():
  """Shorter::

    two"""
'''

EXAMPLES_TEXT = '''\
class One:
  def give(self):
    return 1
# examples of sdks/python/apache_beam/counting.py
assert two.give() == 2
'''


def told(script):
  return [(problem.where, problem.what) for problem in script.problems]


def code_of(text):
  script = docs.page_script(PAGE, text)
  assert not script.problems
  return [(piece.line, piece.code) for piece in script.pieces]


def run(tmp_path, **options):
  return docs.run(
      tmp_path, pathlib.Path(sys.executable), tmp_path / 'logs', **options)


def run_page(tmp_path, text, **options):
  made_up.write(tmp_path, PAGE, text)
  result = run(tmp_path, **options)
  return result.counts, [(p.where, p.what) for p in result.problems]


def test_blocks_have_the_lines_of_their_page():
  assert code_of('one\n```python\na = 1\n\nb = 2\n```\n~~~py\nc\n~~~\n') == [
      (3, 'a = 1\n\nb = 2\n'), (8, 'c\n')
  ]


def test_a_block_in_a_list_loses_its_margin():
  assert code_of('* one\n\n  ```python\n  if a:\n    b\n  ```\n') == [
      (4, 'if a:\n  b\n')
  ]


def test_other_languages_are_left_alone():
  assert code_of('```\na\n```\n```go\nb\n```\n') == []
  # A block that shows how to write a block.
  assert code_of('````\n```python\na\n```\n````\n') == []
  assert code_of('~~~\n```python\na\n~~~\n') == []


def test_a_block_with_a_reason_is_left_out():
  text = (
      '<!-- not run: it wants a cluster -->\n\n```python\na\n```\n'
      '```python\nb\n```\n')
  assert code_of(text) == [(7, 'b\n')]


@pytest.mark.parametrize(
    'marker', ['<!-- not run -->', '<!-- not run: -->', '<!-- not run:'])
def test_the_reason_is_mandatory(marker):
  script = docs.page_script(PAGE, f'{marker}\n```python\na\n```\n')
  assert told(script) == [(f'{PAGE}:1', '"not run" gives no reason')]


def test_a_reason_without_a_block_is_a_problem():
  for text in ('<!-- not run: x -->\n',
               '<!-- not run: x -->\ntext\n```python\na\n```\n',
               '<!-- not run: x -->\n<!-- not run: y -->\n```py\na\n```\n'):
    where, what = told(docs.page_script(PAGE, text))[0]
    assert (where, what[:24]) == (f'{PAGE}:1', '"not run" has no block o')


def test_what_would_escape_is_a_problem():
  assert told(docs.page_script(PAGE, 'x\n```python\na\n')) == [
      (f'{PAGE}:2', 'the block has no end')
  ]
  assert told(docs.page_script(PAGE, '{{< highlight py >}}\n')) == [
      (f'{PAGE}:1', 'a highlight shortcode, whose code is not run')
  ]


def test_a_page_is_one_script(tmp_path):
  counts, problems = run_page(
      tmp_path,
      '```python\nclass A:\n  pass\n```\n```python\n'
      'assert A.__module__ == __name__ == "__main__"\n```\n')
  assert (counts.passed, counts.failed, problems) == (1, 0, [])


def test_pages_share_nothing(tmp_path):
  made_up.write(tmp_path, 'website/a.md', '```python\na = 1\n```\n')
  made_up.write(tmp_path, 'website/b.md', '```python\na\n```\n')
  assert run(tmp_path).states == {
      'website/a.md': 'passed', 'website/b.md': 'failed'
  }


def test_a_page_has_its_own_imports_only(tmp_path):
  _, problems = run_page(tmp_path, '```python\njson\n```\n')
  assert problems == [(
      f'{PAGE}:2', "NameError: name 'json' is not defined")]


@pytest.mark.parametrize(
    'code, line, what',
    [
        ('def f():\n  1 / 0\n\nf()', 7, 'ZeroDivisionError: division by zero'),
        ('a = 1\nb = = 2', 7, 'SyntaxError: invalid syntax'),
        ('import ast\nast.parse(1)', 7, 'TypeError: compile() arg 1 must be a '
         'string, bytes or AST object'),
        # Nothing behind it would have run.
        ('import sys\nsys.exit(0)', 7, 'SystemExit: 0'),
    ])
def test_a_failure_names_the_line(tmp_path, code, line, what):
  counts, problems = run_page(
      tmp_path, f'text\n```python\nok = 1\n```\n```python\n{code}\n```\n')
  assert (counts.passed, counts.failed) == (0, 1)
  assert problems == [(f'{PAGE}:{line}', what)]


def test_a_page_that_kills_its_process_fails(tmp_path):
  counts, problems = run_page(
      tmp_path, '```python\nimport os\nos._exit(0)\n```\n')
  assert counts.failed == 1
  assert problems == [(PAGE, 'ended with 0: it printed nothing')]


def test_what_goes_wrong_at_the_end_counts(tmp_path):
  _, problems = run_page(
      tmp_path,
      '```python\nimport atexit, os\natexit.register(os._exit, 3)\n```\n')
  assert problems == [(PAGE, 'ended with 3: it printed nothing')]


def test_a_page_leaves_no_files_and_meets_no_arguments(tmp_path):
  _, problems = run_page(
      tmp_path,
      '```python\nimport os\nimport sys\nimport tempfile\n'
      'assert os.path.samefile(tempfile.gettempdir(), os.getcwd())\n'
      'assert sys.argv == [""], sys.argv\n```\n')
  assert problems == []


def test_a_page_that_does_not_end_fails(tmp_path):
  counts, problems = run_page(
      tmp_path, '```python\nwhile True: pass\n```\n', timeout=1.0)
  assert counts.failed == 1
  assert problems == [(PAGE, 'not done after 1 s')]


def test_a_page_with_a_problem_is_not_run(tmp_path):
  made_up.write(
      tmp_path, PAGE, '```python\nprint("ran")\n```\n<!-- not run: -->\n')
  result = run(tmp_path)
  assert result.counts.failed == 1 and result.output == ''


def test_pages_without_code_are_not_counted(tmp_path):
  counts, problems = run_page(tmp_path, 'Text alone.\n')
  assert (counts.passed, counts.failed, problems) == (0, 0, [])


def test_examples_of_docstrings_have_their_lines():
  pieces = docs.docstring_pieces(MODULE, MODULE_TEXT)
  assert [(piece.line, piece.code) for piece in pieces] == [
      (4, '\nclass Two(One):\n  def give(self):\n\n'
       '    return 2 * super().give()\n'),
      (15, '\ntwo = Two()\n'),
      (23, '\ntwo\n'),
  ]


def run_examples(tmp_path, module=MODULE_TEXT, examples=EXAMPLES_TEXT):
  made_up.write(tmp_path, MODULE, module)
  made_up.write(tmp_path, EXAMPLES, examples)
  result = run(tmp_path)
  assert list(result.states) == [EXAMPLES]
  return [(problem.where, problem.what) for problem in result.problems]


def test_examples_run_between_what_they_need_and_a_look(tmp_path):
  assert run_examples(tmp_path) == []


def test_a_failing_example_names_the_line_in_the_module(tmp_path):
  broken = MODULE_TEXT.replace('2 * super().give()', '2 * super().take()')
  (where, what), = run_examples(tmp_path, broken)
  assert where == f'{MODULE}:8' and what.startswith('AttributeError')


def test_a_failing_look_names_its_line(tmp_path):
  broken = EXAMPLES_TEXT.replace('== 2', '== 3')
  assert run_examples(tmp_path, examples=broken) == [
      (f'{EXAMPLES}:5', 'AssertionError')
  ]


@pytest.mark.parametrize('text', ['Counts.', 'Counts::', 'Counts::\n\nSo.'])
def test_examples_that_are_gone_are_a_problem(tmp_path, text):
  assert run_examples(tmp_path, module=f'"""{text}"""\n') == [(
      f'{EXAMPLES}:4',
      f'{MODULE} has no example in a docstring (after ::)')]


def test_the_place_of_examples_must_be_right(tmp_path):
  assert run_examples(tmp_path, examples='a = 1\n') == [
      (EXAMPLES, '0 lines say where examples come; 1 must')
  ]
  wrong = EXAMPLES_TEXT.replace('counting.py', 'gone.py')
  assert run_examples(tmp_path, examples=wrong) == [(
      f'{EXAMPLES}:4', 'sdks/python/apache_beam/gone.py is not there')]
