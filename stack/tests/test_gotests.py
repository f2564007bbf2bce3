"""Go's own `go test` on small modules: what ran, what failed, what is told."""

import json
import os

import pytest

import made_up
from beamstack import gobuild
from beamstack import gotests

HEAD = 'package {package}\n\nimport (\n{imports}\t"testing"\n)\n\n'


@pytest.fixture(name='module')
def _module(tmp_path):
  return a_module(tmp_path, 'series')


def a_module(tmp_path, name):
  folder = tmp_path / name
  made_up.write(folder, 'go.mod', 'module example.test/sdks\n\ngo 1.26\n')
  return gotests.Module(folder, tmp_path / 'logs')


def write(module, package, body, *imports):
  head = HEAD.format(
      package=package, imports=''.join(f'\t"{name}"\n' for name in imports))
  made_up.write(module.folder, f'go/{package}/{package}_test.go', head + body)


def go_test(name, body):
  return f'func Test{name}(t *testing.T) {{\n{body}\n}}\n\n'


GOOD = go_test('Good', '')
BAD = go_test('Bad', '\tt.Log("first")\n\tt.Error("it is wrong")')
# Fails the first time that it runs in a folder.
ONCE = (
    '\tif _, err := os.Stat("mark"); err != nil {\n'
    '\t\tos.WriteFile("mark", nil, 0o644)\n\t\t%s\n\t}')


def whats(result):
  return [problem.what for problem in result.problems]


def test_all_pass(module):
  write(module, 'a', GOOD + go_test('Left', '\tt.Skip("for now")'))
  result = gotests.run(module, ['./go/a'], 'name')
  assert result.problems == []
  assert result.states == {
      'example.test/sdks/go/a::TestGood': 'passed',
      'example.test/sdks/go/a::TestLeft': 'skipped',
  }
  assert str(result.counts) == '1 passed, 0 failed, 1 skipped'


def test_a_failing_test_is_named_with_what_it_said_last(module):
  write(module, 'a', GOOD + BAD)
  result = gotests.run(module, ['./go/...'], 'name')
  [problem] = result.problems
  assert problem.what == (
      'a.TestBad failed: a_test.go:12: first / a_test.go:13: it is wrong')
  log = module.logs / 'name.log'
  assert problem.next == f'see {log}'
  assert '--- FAIL: TestBad' in log.read_text()
  assert result.counts.failed == 1


def test_of_subtests_those_that_failed_are_named(module):
  write(
      module, 'a',
      go_test(
          'All', '\tt.Run("x", func(t *testing.T) { t.Error("bad x") })\n'
          '\tt.Run("y", func(t *testing.T) {})'))
  [what] = whats(gotests.run(module, ['./go/a'], 'name'))
  assert what == 'a.TestAll/x failed: a_test.go:8: bad x'


@pytest.mark.parametrize(
    'end,said', [('panic("ouch")', 'panic: ouch'), ('os.Exit(3)', 'nothing')])
def test_a_test_that_does_not_end_failed(module, end, said):
  write(module, 'a', go_test('Ends', f'\tif os.Getpid() > 0 {{\n\t\t{end}\n'
                               '\t}'), 'os')
  [what] = whats(gotests.run(module, ['./go/a'], 'name'))
  assert what.startswith('a.TestEnds failed: ') and said in what


def test_what_does_not_compile_is_named(module):
  write(module, 'a', GOOD)
  write(module, 'b', go_test('Bad', '\treturn 1'))
  result = gotests.run(module, ['./go/...'], 'name')
  assert any(
      'go/b' in what and 'too many return values' in what
      for what in whats(result))
  assert result.counts.passed == 1 and result.counts.failed == 1


def test_a_package_without_tests_is_a_problem(module):
  write(module, 'a', GOOD)
  made_up.write(module.folder, 'go/b/b.go', 'package b\n')
  result = gotests.run(module, ['./go/a', './go/b', './go/a/...'], 'name')
  assert whats(result) == ['./go/b: no Go test of it ran']


def test_a_package_that_is_missing_is_a_problem(module):
  write(module, 'a', GOOD)
  assert whats(gotests.run(module, ['./go/a', './go/c'], 'name'))


def test_a_name_that_only_ends_alike_does_not_stand_in():
  events = gotests.Events(states={
      'm/go/ab::TestX': 'passed', 'm/ergo/a::TestX': 'passed'
  })
  for package in ('./go/a', './go/a/...', 'm/go/a'):
    assert gotests.judge(events, [package], 'name', 'log').problems
  assert not gotests.judge(events, ['m/go/ab'], 'name', 'log').problems
  assert not gotests.judge(events, ['./go/...'], 'name', 'log').problems


def patiently(module, tmp_path, *packages):
  base = a_module(tmp_path, 'base')
  write(base, 'a', GOOD + BAD)
  return gotests.run_patiently(
      module, base, packages or ['./go/a'], 'name', races=False)


def test_those_outside_of_their_package_can_be_left_out(module):
  write(module, 'a', GOOD)
  (module.folder / 'go/a/out_test.go').write_text(
      'package a_test\n\nimport "testing"\n\n' + BAD)
  (module.folder / 'go/b').mkdir()
  # There it would leave none.
  (module.folder / 'go/b/out_test.go').write_text(
      'package b_test\n\nimport "testing"\n\n' + GOOD)
  inner = gotests.Module(module.folder, module.logs, inner=True)
  result = gotests.run(inner, ['./go/...'], 'name')
  assert result.problems == []
  assert str(result.counts) == '2 passed, 0 failed'
  assert gotests.run(module, ['./go/...'], 'name').counts.failed == 1


def test_what_fails_once_passes_and_is_told(module, tmp_path):
  write(module, 'a', GOOD + go_test('Shy', ONCE % 't.Error("busy")'), 'os')
  result = patiently(module, tmp_path)
  assert result.problems == []
  assert result.notes == ('a.TestShy passed when tried again', )
  assert str(result.counts) == '2 passed, 0 failed'


def test_a_package_that_breaks_off_is_tried_whole(module, tmp_path):
  write(
      module, 'a', go_test('Shy', ONCE % 'panic("busy")') + GOOD + BAD, 'os')
  write(module, 'b', GOOD)
  result = patiently(module, tmp_path, './go/a', './go/b')
  # What had not run is not taken for good.
  assert result.states['example.test/sdks/go/a::TestGood'] == 'passed'
  assert result.notes == (
      'a.TestShy passed when tried again', 'a.TestBad fails on the base too')
  assert result.problems == []


def test_what_fails_twice_and_not_on_the_base_fails(module, tmp_path):
  write(module, 'a', GOOD + go_test('Ours', '\tt.Error("again")'))
  result = patiently(module, tmp_path)
  assert whats(result) == ['a.TestOurs failed: a_test.go:12: again']
  assert result.notes == ()


def test_what_fails_on_the_base_too_is_skipped_and_told(module, tmp_path):
  write(module, 'a', GOOD + BAD)
  result = patiently(module, tmp_path)
  assert result.problems == []
  assert result.notes == ('a.TestBad fails on the base too', )
  assert str(result.counts) == '1 passed, 0 failed, 1 skipped'


def test_a_package_that_always_breaks_off_fails(module, tmp_path):
  write(module, 'a', go_test('Bad', '\tpanic("ouch")') + GOOD)
  assert whats(patiently(module, tmp_path))


@pytest.mark.skipif(not gotests.can_race(), reason='there is no C compiler')
def test_a_race_is_found_with_the_detector_alone(module):
  write(
      module, 'a',
      go_test(
          'Race', '\tn := 0\n\tdone := make(chan bool)\n'
          '\tgo func() { n++; close(done) }()\n\tn++\n\t<-done'))
  assert gotests.run(module, ['./go/a'], 'name').problems == []
  racing = gotests.Module(module.folder, module.logs, race=True)
  [what] = whats(gotests.run(racing, ['./go/a'], 'name'))
  assert 'race detected' in what


RACE = (
    'n := 0\n\t\tdone := make(chan bool)\n'
    '\t\tgo func() { n++; close(done) }()\n\t\tn++\n\t\t<-done')


@pytest.mark.skipif(not gotests.can_race(), reason='there is no C compiler')
@pytest.mark.parametrize('races', [True, False])
def test_a_race_is_tried_again_only_where_it_may_be(module, tmp_path, races):
  write(module, 'a', go_test('Shy', ONCE % RACE), 'os')
  base = a_module(tmp_path, 'base')
  write(base, 'a', GOOD)
  result = gotests.run_patiently(
      gotests.Module(module.folder, module.logs, race=True),
      gotests.Module(base.folder, base.logs, race=True), ['./go/a'],
      'name',
      races=races)
  if races:
    assert result.notes == ('a.TestShy passed when tried again', )
    assert result.problems == []
  else:
    [what] = whats(result)
    assert 'race detected' in what


def test_lines_that_are_no_events_are_kept():
  output = 'go: downloading x\n{"a": 1}\n' + json.dumps(
      {'Action': 'pass', 'Package': 'p', 'Test': 'TestA'})
  events = gotests.read_events(output)
  assert events.states == {'p::TestA': 'passed'}
  assert events.text == 'go: downloading x\n{"a": 1}\n'


def test_packages_that_have_tests(module):
  write(module, 'a', GOOD)
  write(module, 'b', GOOD)
  made_up.write(module.folder, 'go/c/c.go', 'package c\n')
  assert module.with_tests(['./go/...']) == [
      'example.test/sdks/go/a', 'example.test/sdks/go/b'
  ]
  assert module.with_tests(['./go/b']) == ['example.test/sdks/go/b']
  assert module.with_tests([]) == []


def test_layouts_that_were_not_asked_for_go(tmp_path):
  for number in range(gobuild.KEEP + 2):
    made_up.write(tmp_path, f'go-{number}/go.mod', '')
    os.utime(tmp_path / f'go-{number}/go.mod', (number, number))
  os.utime(tmp_path / 'go-0/go.mod', (1000, 1000))
  gobuild.prune(tmp_path)
  left = {path.name for path in tmp_path.iterdir()}
  assert len(left) == gobuild.KEEP
  assert 'go-0' in left and not left & {'go-1', 'go-2'}
