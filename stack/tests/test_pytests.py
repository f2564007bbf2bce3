"""Runs of pytest are counted by its report, and an empty run is a problem."""

import pathlib
import sys

import made_up
from beamstack import pytests
from beamstack import rival

TESTS = '''
import pytest

class Some:
  pass

class TestOf:
  def test_good(self):
    pass

  def test_bad(self):
    assert False

  @pytest.mark.skip
  def test_left(self):
    pass

@pytest.mark.xfail
def test_expected():
  assert False
'''


def run(tmp_path, text, **options):
  made_up.write(tmp_path, 'test_made_up.py', text)
  return pytests.run(
      pathlib.Path(sys.executable), [str(tmp_path / 'test_made_up.py')],
      name='a-run', logs=tmp_path / 'logs', cwd=tmp_path, rootdir=tmp_path,
      expected=['test_made_up'], **options)


def test_a_run_is_counted(tmp_path):
  result = run(tmp_path, TESTS)
  assert result.counts == pytests.Counts(passed=1, failed=1, skipped=2)
  assert [problem.what for problem in result.problems] == [
      'test_made_up.TestOf::test_bad failed'
  ]
  assert 'assert False' in (tmp_path / 'logs' / 'a-run.log').read_text()


def test_a_good_run(tmp_path):
  result = run(tmp_path, 'def test_a():\n  pass\n')
  assert result.counts == pytests.Counts(passed=1) and not result.problems


def test_a_crash_is_named_with_its_test(tmp_path):
  """And with no signal handled, as in the threads of a native client."""
  result = run(
      tmp_path, """
import os
import signal

def test_before():
  pass

def test_that_crashes():
  signal.signal(signal.SIGSEGV, signal.SIG_DFL)
  os.kill(os.getpid(), signal.SIGSEGV)
""")
  assert result.counts == pytests.Counts(failed=1)
  assert [problem.what for problem in result.problems] == [
      'pytest was ended by SIGSEGV in test_made_up.py::test_that_crashes'
  ]


def test_several_runs_count_as_one(tmp_path):
  crashed = run(tmp_path, 'import os\nos.abort()\n')
  assert 'by SIGABRT in none of its tests' in crashed.problems[0].what
  good = run(tmp_path, 'def test_a():\n  pass\n')
  both = pytests.joined([crashed, good])
  assert both.counts == pytests.Counts(passed=1, failed=1)
  assert both.states == good.states and both.problems == crashed.problems


def test_a_module_without_tests_is_a_problem(tmp_path):
  result = run(tmp_path, 'x = 1\n')
  assert result.counts.failed == 1
  assert 'test_made_up: no test of it ran' in result.problems[0].what


def test_a_module_that_cannot_be_imported_is_a_problem(tmp_path):
  result = run(tmp_path, 'import nothing_of_this_name\n')
  assert result.counts.failed >= 1 and result.problems


def test_a_module_of_a_similar_name_does_not_stand_in():
  states = {'apache_beam.io.a_test.TestA::test_x': 'passed'}
  assert pytests.absent('n', ['apache_beam.io.a_test'], states) == []
  assert pytests.absent('n', ['apache_beam.io.test'], states)


def test_a_class_of_a_module():
  states = {'apache_beam.io.a_test.TestA::test_x': 'passed'}
  assert pytests.absent('n', ['apache_beam.io.a_test::TestA'], states) == []
  assert pytests.absent('n', ['apache_beam.io.a_test::TestB'], states)


def test_counts_in_words():
  assert str(pytests.Counts(3, 1)) == '3 passed, 1 failed'
  assert str(pytests.Counts(3, 0, 2)) == '3 passed, 0 failed, 2 skipped'


def a_rival(**left_out):
  names = {name.replace('__', '::'): why for name, why in left_out.items()}
  return rival.Rival('list', '2.77.0', 'x_test.py', 'x', (), names)


def judged(states, **left_out):
  states = {f'rival_x_test.{test}': state for test, state in states.items()}
  return [problem.what for problem in rival.judge(a_rival(**left_out), states)]


def test_a_rival_test_that_fails_needs_a_reason():
  states = {'A::one': 'failed', 'A::two': 'passed'}
  assert judged(states) == ['A::one of Beam 2.77.0 fails and is not named']
  assert judged(states, A__one='private names') == []


def test_a_named_rival_test_may_not_pass():
  assert judged({'A::one': 'passed'}, A__one='why') == [
      'A::one is named (why), but passes'
  ]


def test_a_named_rival_test_must_be_there():
  assert judged({'A::one': 'passed'}, A__gone='why') == [
      'A::gone is named, but not there'
  ]


def test_a_whole_class_may_be_named():
  assert judged({'A::one': 'failed', 'A::two': 'failed'}, A='private') == []


def test_failures_with_a_reason_count_as_skipped():
  states = {'m.A::one': 'failed', 'm.A::two': 'failed', 'm.B::x': 'passed'}
  counted = pytests.count(
      rival.judged_states(a_rival(A__one='why'), states))
  assert counted == pytests.Counts(passed=1, failed=1, skipped=1)
