# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Tests of the benchmark of ordered processing: plan, verdicts, page. No Beam.
"""

import dataclasses
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
import _bench_testing
import ordered
# pylint: enable=wrong-import-position

ABOUT = {
    'date': '2026-01-02',
    'machine': 'Abacus',
    'prism': 'sha256 0123',
    'quick': False,
    'repeats': 1,
}


def records(bounded=3.0, unbounded=0.02, wall=9.0):
  """As planned. CPU seconds of ours with bounded input, and for each element
  that waits with unbounded input; wall seconds of ours."""
  runs = []
  for case in ordered.plan(1, ordered.shapes(100)):
    shape, ours = case.shape, case.what in ('bag', 'list')
    prism = 0.5 if shape.runner == 'prism' else 0.0
    if not ours:
      cpu = {'source': 1.0, 'plain': 11.0}[case.what]
    elif shape.buffered:
      cpu = 1.0 + unbounded * shape.buffered
    else:
      cpu = bounded
    runs.append({
        **dataclasses.asdict(shape),
        'what': case.what,
        'wall_s': wall if ours else 9.0,
        'cpu_s': cpu - prism,
        'prism_cpu_s': prism,
        'beam': '2.75.0+stack.1',
    })
  return runs


class PlanTest(unittest.TestCase):
  def test_takes_turns_and_has_a_storage_where_there_is_state(self):
    labels = [case.label() for case in ordered.plan(1, ordered.shapes())]
    self.assertEqual(4 * 3 + 4 * 4, len(labels))
    self.assertEqual([
        'FnApiRunner, bounded, a key of 100,000 each, no order ',
        'FnApiRunner, bounded, a key of 100,000 each, plain design ',
        'FnApiRunner, bounded, a key of 100,000 each, ours ',
        'FnApiRunner, bounded, 1,000 keys of 100 each, no order ',
    ], labels[:4])
    self.assertEqual(
        'Prism, unbounded, 20,000 wait, ours, OrderedListState ', labels[-5])
    self.assertEqual(
        'Prism, unbounded, 20,000 wait, no pause, ours, OrderedListState ',
        labels[-1])


class VerdictTest(unittest.TestCase):
  def missed(self, summary):
    return [v.target for v in summary.verdicts() if not v.met]

  def test_each_target_can_be_missed(self):
    self.assertEqual([], self.missed(ordered.Summary(records())))
    for figures, told, number in (
        ({'bounded': 3.1}, '5 times less CPU', 4),
        ({'unbounded': 0.03}, '200 wait, ours: 2 times less CPU', 1),
        ({'wall': 10.0}, 'no more time', 6)):
      with self.subTest(told):
        missed = self.missed(ordered.Summary(records(**figures)))
        self.assertEqual(number, sum(told in target for target in missed))
        self.assertTrue(all(told.split(': ')[-1] in t for t in missed))

  def test_without_a_pause_there_is_no_target(self):
    runs = records()
    for run in runs:
      if run['buffered'] and not run['rate']:
        run['cpu_s'] = run['wall_s'] = 99.0
    self.assertEqual([], self.missed(ordered.Summary(runs)))

  def test_growth_can_be_missed(self):
    runs = records(unbounded=0.01)
    for run in runs:
      if run['buffered'] == 200 and run['rate'] and run['what'] == 'list':
        run['cpu_s'] += 1.5
    missed, = self.missed(ordered.Summary(runs))
    self.assertIn('OrderedListState: an element in a buffer four', missed)

  def test_medians_count(self):
    runs = records()
    more = [dict(run, cpu_s=99.0) for run in runs[:3]]
    low = [dict(run, cpu_s=0.0) for run in runs[:3]]
    summary = ordered.Summary(runs + more + low)
    shape = summary.shapes[0]
    self.assertEqual(3.0, summary.cpu('bag', shape))
    self.assertEqual(5.0, summary.times_less('bag', shape))


class PageTest(unittest.TestCase):
  def test_states_what_was_found(self):
    summary = ordered.Summary(records(bounded=5.0))
    page = ordered.markdown(summary, summary.verdicts(), ABOUT)
    for line in (
        'ours: 5 times less CPU than the plain design | **missed** | 2.5 times',
        '| FnApiRunner | bounded, a key of 1,000 each | ours | 1.00 | 5.00 | '
        '0.00 | 9.00 | 4000 | 2.5 |',
        '| Prism | unbounded, 50 wait | plain design | 1.00 | 11.00 | 0.50 | '
        '9.00 | 100000 |  |',
        'takes at most 1.5 times the CPU | met | 1.00 times |'):
      self.assertIn(line, page)


class DriverTest(unittest.TestCase):
  def bench(self, script, *more):
    return _bench_testing.drive(
        ordered.main, 'ordered', script, '--ours', 'PROGRAM', '--prism',
        'PROGRAM', *more)

  def test_writes_the_page_and_every_run(self):
    answer = (
        'import json, sys\n'
        'cpu = {"source": 1, "plain": 9}.get('
        'json.loads(sys.argv[2])["what"], 2)\n'
        'print(\'RESULT {"wall_s": 1, "cpu_s": %d, "prism_cpu_s": 0, '
        '"beam": "1"}\' % cpu)')
    code, out, err, files = self.bench(answer)
    self.assertEqual(0, code, err)
    self.assertIn('18 of 18 targets met', out)
    self.assertEqual({'ordered.md', 'ordered.jsonl'}, set(files))
    self.assertEqual(28, len(files['ordered.jsonl'].splitlines()))
    self.assertIn('A quick run', files['ordered.md'])

  def test_a_run_that_fails_leaves_no_results(self):
    code, _, err, files = self.bench('raise SystemExit("out of beads")')
    self.assertEqual(1, code)
    self.assertIn('out of beads', err)
    self.assertEqual({}, files)


if __name__ == '__main__':
  unittest.main()
