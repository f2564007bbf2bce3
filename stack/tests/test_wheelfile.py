"""Wheels are written the same each time, and RECORD is held against them."""

import zipfile

import pytest

import made_up
from beamstack import devwheel
from beamstack import wheelfile
from beamstack.errors import ProblemsFound

INFO = 'apache_beam-2.75.0.dist-info'


def rewrite(path, change):
  """Lets `change` alter the files of a wheel, RECORD included."""
  files = wheelfile.read(path)
  change(files)
  with zipfile.ZipFile(path, 'w') as archive:
    for name, data in files.items():
      archive.writestr(name, data)


def problems(path):
  return [problem.what for problem in wheelfile.check_record(path)]


def test_a_written_wheel_is_sound(tmp_path):
  assert problems(made_up.wheel(tmp_path)) == []


def test_a_changed_file_is_found(tmp_path):
  path = made_up.wheel(tmp_path)
  rewrite(path, lambda f: f.update({'apache_beam/reader.py': b'other'}))
  found = problems(path)
  assert found[0] == 'RECORD has another hash for apache_beam/reader.py'
  assert found[1].endswith('for apache_beam/reader.py, it has 5')


def test_an_extra_file_is_found(tmp_path):
  path = made_up.wheel(tmp_path)
  rewrite(path, lambda f: f.update({'apache_beam/more.py': b''}))
  assert problems(path) == ['RECORD does not list apache_beam/more.py']


def test_a_missing_file_is_found(tmp_path):
  path = made_up.wheel(tmp_path)
  rewrite(path, lambda f: f.pop('apache_beam/reader.py'))
  assert problems(path) == [
      'RECORD lists apache_beam/reader.py, which is not in the archive'
  ]


def test_a_missing_record_is_found(tmp_path):
  path = made_up.wheel(tmp_path)
  rewrite(path, lambda f: f.pop(f'{INFO}/RECORD'))
  assert problems(path) == ['it has no RECORD']


def test_a_file_that_is_there_twice_is_found(tmp_path):
  path = made_up.wheel(tmp_path)
  with zipfile.ZipFile(path, 'a') as archive:
    with pytest.warns(UserWarning):
      archive.writestr('apache_beam/__init__.py', b'')
  assert problems(path) == ['apache_beam/__init__.py is in the archive twice']


def build(tmp_path, name, **pr):
  base = made_up.base(tmp_path)
  series = made_up.series(tmp_path, made_up.pull_request(**pr))
  return devwheel.build(series, base, tmp_path / name, pin=True), series


def test_the_dev_wheel_is_the_same_each_time(tmp_path):
  first, _ = build(tmp_path, 'one', edits=(made_up.edit(), ))
  second, _ = build(tmp_path, 'two', edits=(made_up.edit(), ))
  assert first.name == second.name
  assert first.read_bytes() == second.read_bytes()


def test_only_the_metadata_carries_the_label(tmp_path):
  path, series = build(tmp_path, 'one', edits=(made_up.edit(), ))
  label = series.content_label()
  assert path.name == (
      f'apache_beam-2.75.0+{label}-cp311-cp311-linux_x86_64.whl')
  files = wheelfile.read(path)
  info = f'apache_beam-2.75.0+{label}.dist-info'
  assert wheelfile.dist_info(list(files)) == info
  head, rest = files[f'{info}/METADATA'].decode().split('\n\n')
  assert f'Version: 2.75.0+{label}' in head.splitlines()
  assert rest == 'A description\nVersion: 2.75.0\n'
  assert files['apache_beam/fast.py'] == b'def go():\n  return 1\n'
  assert b'self.count += 1' in files['apache_beam/reader.py']


def test_the_label_follows_the_content_alone(tmp_path):
  made_up.write(tmp_path, 'sdks/python/apache_beam/new.py', 'x = 1\n')

  def label(**changes):
    pr = made_up.pull_request(
        files=('sdks/python/apache_beam/new.py', ), **changes)
    return made_up.series(tmp_path, pr).content_label()

  plain = label()
  assert label(description='other', title='other') == plain
  assert label(edits=(made_up.edit(why='other'), )) == label(
      edits=(made_up.edit(), )) != plain
  made_up.write(tmp_path, 'sdks/python/apache_beam/new.py', 'x = 2\n')
  assert label() != plain


def test_an_unsound_series_makes_no_wheel(tmp_path):
  bad = made_up.edit(rule={'rule': made_up.function('reed')})
  with pytest.raises(ProblemsFound):
    build(tmp_path, 'one', edits=(bad, ))
  assert not (tmp_path / 'one').exists()


def test_wheels_of_earlier_states_go(tmp_path):
  kept = [
      'apache_beam-2.75.0+stack.2-cp311-cp311-linux.whl',
      'apache_beam-2.75.0+stack.1-cp312-cp312-linux.whl',
      'apache_beam-2.77.0+stack.1-cp311-cp311-linux.whl',
      'beam_unending-2.75.0+stack.1-py3-none-any.whl',
  ]
  for name in [*kept, 'apache_beam-2.75.0+stack.1-cp311-cp311-linux.whl']:
    (tmp_path / name).touch()
  wheelfile.remove_other_labels(tmp_path / kept[0])
  assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)
