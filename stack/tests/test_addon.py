"""The add-on holds the marked files alone, and says what it cannot do."""

import pytest

import made_up
from beamstack import addon
from beamstack import wheelfile
from beamstack.errors import ProblemsFound

IO = 'sdks/python/apache_beam/io/'


@pytest.fixture(name='series')
def _series(tmp_path):
  made_up.write(tmp_path, IO + 'source.py', 'import apache_beam.io._part\n')
  made_up.write(tmp_path, IO + '_part.py', 'x = 1\n')
  made_up.write(tmp_path, IO + 'source_test.py', 'import pytest\n')
  made_up.write(tmp_path, IO + 'hook.py', 'y = 1\n')
  made_up.write(tmp_path, 'LICENSE', 'A licence\n')
  return made_up.series(
      tmp_path,
      made_up.pull_request(
          name='source',
          files=(IO + 'source.py', IO + '_part.py', IO + 'source_test.py'),
          addon=True),
      made_up.pull_request(
          name='hook',
          title='[Python] Hook it in',
          files=(IO + 'hook.py', ),
          edits=(made_up.edit(), )),
      made_up.pull_request(
          name='other',
          title='[Prism] Hook it in',
          edits=(made_up.edit(file='sdks/go/a.go'), )))


def test_what_is_in_it(series, tmp_path):
  path = addon.build(series, '2.75.0', tmp_path / 'dist')
  version = f'2.75.0+{series.content_label()}'
  assert path.name == f'beam_unending-{version}-py3-none-any.whl'
  files = wheelfile.read(path)
  info = f'beam_unending-{version}.dist-info'
  assert sorted(files) == [
      'apache_beam/io/_part.py', 'apache_beam/io/source.py',
      f'{info}/METADATA', f'{info}/RECORD', f'{info}/WHEEL',
      f'{info}/licenses/LICENSE'
  ]
  assert wheelfile.check_record(path) == []


def test_it_asks_for_the_pinned_release_as_text(series, tmp_path):
  files = wheelfile.read(addon.build(series, '2.75.0', tmp_path))
  info = wheelfile.dist_info(list(files))
  told = files[f'{info}/METADATA'].decode()
  assert '\nRequires-Dist: apache-beam ===2.75.0\n' in told
  assert '- `apache_beam.io.source`' in told
  assert '- [Python] Hook it in' in told
  # No wheel of Beam has it.
  assert '[Prism]' not in told


def test_it_is_the_same_twice(series, tmp_path):
  first = addon.build(series, '2.75.0', tmp_path / 'a')
  second = addon.build(series, '2.75.0', tmp_path / 'b')
  assert first.read_bytes() == second.read_bytes()


def test_an_import_of_a_module_that_is_not_in_it(series, tmp_path):
  made_up.write(
      tmp_path, IO + '_part.py', 'from apache_beam.io import hook\n')
  with pytest.raises(ProblemsFound) as caught:
    addon.build(series, '2.75.0', tmp_path / 'dist')
  [problem] = caught.value.problems
  assert problem.where == IO + '_part.py'
  assert 'imports apache_beam.io.hook, which is not' in problem.what


def test_an_import_inside_of_a_function_is_its_own_affair(series, tmp_path):
  made_up.write(
      tmp_path, IO + '_part.py',
      'def f():\n  from apache_beam.io import hook\n')
  assert addon.problems(series) == []


def test_nothing_to_build_is_a_problem(tmp_path):
  [problem] = addon.problems(made_up.series(tmp_path, made_up.pull_request()))
  assert 'nothing to build' in problem.what
