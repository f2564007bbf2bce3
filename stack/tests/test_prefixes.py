"""Each prefix has what it imports, and runs the tests that it names."""

import made_up
from beamstack import prefixes

HOOK = 'sdks/python/apache_beam/hook.py'
USE = 'sdks/python/apache_beam/use.py'


def series(tmp_path, *pull_requests):
  made_up.write(tmp_path, HOOK, 'x = 1\n')
  made_up.write(tmp_path, USE, 'from apache_beam import hook\n')
  return made_up.series(tmp_path, *pull_requests)


def problems(tmp_path, *pull_requests):
  found = prefixes.compile_problems(
      series(tmp_path, *pull_requests), [made_up.base(tmp_path)])
  return {name: [p.what for p in many] for name, many in found.items()}


def test_a_hook_before_what_it_needs(tmp_path):
  late = problems(
      tmp_path,
      made_up.pull_request(name='a', files=(USE, )),
      made_up.pull_request(name='b', files=(HOOK, )))
  assert late == {
      'a': ['line 1 imports apache_beam.hook, which is not there'], 'b': []
  }
  good = problems(
      tmp_path,
      made_up.pull_request(name='b', files=(HOOK, )),
      made_up.pull_request(name='a', files=(USE, )))
  assert good == {'a': [], 'b': []}


def test_an_edit_that_imports_what_nobody_lists(tmp_path):
  edit = made_up.edit(
      place='before',
      rule={'rule': {'kind': 'class_definition'}},
      text='import apache_beam.hook\n')
  found = problems(tmp_path, made_up.pull_request(name='a', edits=(edit, )))
  assert found == {
      'a': ['line 4 imports apache_beam.hook, which is not there']
  }


def test_imports_that_the_base_has(tmp_path):
  made_up.write(
      tmp_path, USE,
      'import os\nimport apache_beam\nfrom apache_beam import fast\n'
      'from apache_beam.reader import Reader\nfrom apache_beam.fast import x\n'
      'def f():\n  from apache_beam import later\n')
  found = prefixes.compile_problems(
      made_up.series(
          tmp_path, made_up.pull_request(name='a', files=(USE, ))),
      [made_up.base(tmp_path)])
  assert found == {'a': []}


def test_tests_of_python_of_go_and_of_java():
  assert prefixes.split_tests(
      ('apache_beam.a_test', 'go:./go/pkg/a', 'java:org.a.BTest')) == (
          ['apache_beam.a_test'], ['./go/pkg/a'], ['org.a.BTest'])
