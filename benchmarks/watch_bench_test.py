# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Tests of the benchmark of Watch: its plan, verdicts and page. No Beam."""

import contextlib
import io
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
import _bench_testing
import watch
# pylint: enable=wrong-import-position

ABOUT = {
    'date': '2026-01-02',
    'machine': 'Abacus',
    'prism': 'sha256 0123',
    'quick': False,
    'repeats': 3,
}


def run(what, mode, cpu, state=0, first=2000, **more):
  return {
      'what': what,
      'mode': mode,
      'runner': 'fnapi',
      'first': first,
      'more': 2000,
      'cpu_s': cpu,
      'wall_s': cpu + 1,
      'state_bytes': state,
      'listings': 10_100_000,
      'outputs': 200_000,
      'rounds': [[9.0, 8.0], [0.5, 0.25], [0.5, 0.25]],
      'rss_mb': [100.0, 300.0],
      'failed': 0,
      'beam': '2.77.0' if what == 'rival' else '2.75.0+stack.1',
      **more
  }


def records(**cpu):
  figures = {
      'rival_hash': 80.0, 'rival_cursor': 4.5, 'ours_hash': 4.0,
      'ours_cursor': 2.5, 'state': 3_300_000, 'flat': 80, **cpu
  }
  return [
      run('rival', 'hash', figures['rival_hash']),
      run('ours', 'hash', figures['ours_hash'], figures['state']),
      run('rival', 'cursor', figures['rival_cursor']),
      run('ours', 'cursor', figures['ours_cursor'], figures['flat']),
      run('ours', 'hash', 9.0, 16_000_000, 10**6),
      run('ours', 'cursor', 9.0, 80, 10**6),
  ]


class PlanTest(unittest.TestCase):
  def test_takes_turns_and_runs_the_long_one_once(self):
    cases = watch.plan(2, ('fnapi', ), 100)
    self.assertEqual([
        'FnApiRunner, all keys, upstream ',
        'FnApiRunner, all keys, ours ',
        'FnApiRunner, cursor, upstream ',
        'FnApiRunner, cursor, ours ',
        'FnApiRunner, all keys, ours ',
        'FnApiRunner, cursor, upstream ',
        'FnApiRunner, cursor, ours ',
        'FnApiRunner, all keys, ours, a million ',
        'FnApiRunner, cursor, ours, a million ',
    ], [case.label() for case in cases])


class VerdictTest(unittest.TestCase):
  def missed(self, **figures):
    verdicts = watch.Summary(records(**figures)).verdicts()
    return [verdict.target for verdict in verdicts if not verdict.met]

  def test_each_target_can_be_missed(self):
    self.assertEqual([], self.missed())
    for figures, told in (
        ({'rival_hash': 79.0}, '20 times less CPU'),
        ({'rival_cursor': 3.9, 'ours_cursor': 2.0}, '1 times less CPU'),
        ({'ours_cursor': 3.1}, '1.5 times less CPU'),
        ({'state': 3_500_000}, '17 bytes of state a key'),
        ({'flat': 300}, 'stays flat')):
      with self.subTest(told):
        target, = self.missed(**figures)
        self.assertIn(told, target)

  def test_medians_count(self):
    more = records() + [run('ours', 'hash', cpu, 1) for cpu in (1.0, 99.0)]
    self.assertEqual(4.0, watch.Summary(more).cpu('ours', 'hash', 'fnapi'))


class PageTest(unittest.TestCase):
  def test_states_what_was_found(self):
    summary = watch.Summary(records(ours_cursor=3.1))
    page = watch.markdown(summary, summary.verdicts(), ABOUT)
    for line in (
        '10,100,000 listings in 3 rounds, 200,000 outputs.',
        '| FnApiRunner | all keys | 80.00 | 4.00 | 20.0 × | 81.0 | 5.0 | '
        '3,300,000 bytes |',
        '| FnApiRunner | all keys | 9.0 | 0.50 | 0.25 | 16,000,000 bytes | '
        '100 MB | 300 MB |',
        'less CPU than upstream | **missed** | 1.45 times |'):
      self.assertIn(line, page)


  def test_says_where_upstream_fails(self):
    runs = records()
    runs[0].update(cpu_s=None, wall_s=None, failed=5)
    del runs[0]['beam']
    summary = watch.Summary(runs)
    page = watch.markdown(summary, summary.verdicts(), ABOUT)
    self.assertIn('| FnApiRunner | all keys | fails | 4.00 | – | – | 5.0', page)
    self.assertIn('Upstream failed 5 times on FnApiRunner (all keys)', page)
    self.assertEqual(4, len(summary.verdicts()))


class DriverTest(unittest.TestCase):
  def bench(self, script, *more):
    return _bench_testing.drive(
        watch.main, 'watch', script, '--ours', 'PROGRAM', '--rival', 'PROGRAM',
        '--prism', 'PROGRAM', *more)

  ANSWER = (
      'import json, sys\ncase = json.loads(sys.argv[2])\n'
      'print("RESULT " + json.dumps(%s))\n' % json.dumps({
          key: value
          for key, value in run('ours', 'hash', 4.0, 80).items()
          if key not in (
              'what', 'mode', 'runner', 'first', 'more', 'rounds', 'failed')
      }).replace('}', ', "rounds": [[1, 1], [1, 1]]}'))

  def test_writes_the_page_and_every_run(self):
    code, out, err, files = self.bench(self.ANSWER)
    self.assertEqual(1, code, err)
    self.assertIn('MISSED 1.0 times', out)
    self.assertEqual({'watch.md', 'watch.jsonl'}, set(files))
    self.assertEqual(12, len(files['watch.jsonl'].splitlines()))
    self.assertIn('A quick run', files['watch.md'])
    self.assertEqual(0, self.bench(self.ANSWER, '--no-targets')[0])

  def test_a_run_that_fails_leaves_no_results(self):
    code, _, err, files = self.bench('raise SystemExit("out of beads")')
    self.assertEqual(1, code)
    self.assertIn('out of beads', err)
    self.assertEqual({}, files)

  def test_a_python_that_is_not_there(self):
    with contextlib.redirect_stderr(io.StringIO()) as err:
      code = watch.main([
          '--ours', '/no/python', '--rival', '/no/python', '--prism', 'x',
          '--out', '.'
      ])
    self.assertEqual(2, code)
    self.assertIn('--ours=/no/python: no such program', err.getvalue())


if __name__ == '__main__':
  unittest.main()
