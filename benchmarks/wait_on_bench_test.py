# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Tests of the benchmark of WaitOn: its plan, verdicts and page. No Beam."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
import _bench_testing
import wait_on
# pylint: enable=wrong-import-position

ABOUT = {
    'date': '2026-01-02',
    'machine': 'Abacus',
    'prism': 'sha256 0123',
    'quick': False,
    'repeats': 1,
}


def records(ours=(4.0, 4.0), peak=130.0):
  """As planned; CPU seconds of ours with bounded and unbounded sources."""
  return [
      {
          'what': case.what,
          'runner': case.runner,
          'unbounded': case.unbounded,
          'main': case.main,
          'signal': case.signal,
          'wall_s': 9.0,
          'cpu_s': ours[case.unbounded] if case.what == 'ours' else 4.0,
          'prism_cpu_s': 1.0 if case.runner == 'prism' else 0.0,
          'peak_mb': peak if case.signal == 1000 else 125.0,
          'beam': case.what,
      } for case in wait_on.plan(1, 1000)
  ]


class VerdictTest(unittest.TestCase):
  def missed(self, **figures):
    verdicts = wait_on.Summary(records(**figures)).verdicts()
    return [verdict.target for verdict in verdicts if not verdict.met]

  def test_each_target_can_be_missed(self):
    self.assertEqual([], self.missed())
    self.assertEqual([], self.missed(ours=(4.3, 7.9)))
    for figures, told in (
        ({'ours': (5.0, 4.0)}, ', bounded, '),
        ({'ours': (4.0, 9.1)}, ', unbounded, '),
        ({'peak': 136.0}, 'no more memory')):
      with self.subTest(told):
        targets = self.missed(**figures)
        self.assertEqual({True}, {told in target for target in targets})


class PageTest(unittest.TestCase):
  def test_states_what_was_found(self):
    summary = wait_on.Summary(records(ours=(5.0, 6.0)))
    page = wait_on.markdown(summary, summary.verdicts(), ABOUT)
    for line in (
        'CPU | **missed** | 1.25 times |',
        '| FnApiRunner | bounded | 1,000 | 10 | 4.0 | 5.0 | 1.25 | 125 MB | '
        '125 MB |',
        '| Prism | unbounded | 10 | 1,000 | 4.0 + 1.0 | 6.0 + 1.0 | 1.40 | '
        '130 MB | 130 MB |',
        '| Prism: ten times the signal takes no more memory (10 MB) | met | '
        '+5.0 MB |'):
      self.assertIn(line, page)


class DriverTest(unittest.TestCase):
  def bench(self, script, *more):
    return _bench_testing.drive(
        wait_on.main, 'wait_on', script, '--ours', 'PROGRAM', '--rival',
        'PROGRAM', '--prism', 'PROGRAM', *more)

  def test_writes_the_page_and_every_run(self):
    answer = (
        'print(\'RESULT {"wall_s": 1, "cpu_s": 2, "prism_cpu_s": 0, '
        '"peak_mb": 9, "beam": "1"}\')')
    code, out, err, files = self.bench(answer)
    self.assertEqual(0, code, err)
    self.assertIn('10 of 10 targets met', out)
    self.assertEqual({'wait_on.md', 'wait_on.jsonl'}, set(files))
    self.assertEqual(18, len(files['wait_on.jsonl'].splitlines()))
    self.assertIn('A quick run', files['wait_on.md'])

  def test_a_run_that_fails_leaves_no_results(self):
    code, _, err, files = self.bench('raise SystemExit("out of beads")')
    self.assertEqual(1, code)
    self.assertIn('out of beads', err)
    self.assertEqual({}, files)


if __name__ == '__main__':
  unittest.main()
