# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Tests of the benchmark of Java's Watch: its plan and page. No Java."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
import _bench_testing
import java_watch
# pylint: enable=wrong-import-position

ABOUT = {
    'date': '2026-01-02', 'machine': 'Abacus', 'quick': False, 'repeats': 1
}
# As java would: what is measured can be told from the class path.
ANSWER = '''import json, sys
cursor = 'cursor' in sys.argv
ours = 'OURS.jar' in sys.argv[3]
print('RESULT ' + json.dumps({
    'cpu_s': %s, 'wall_s': 9.0, 'state_bytes': 50 if cursor else 4000000,
    'java': '17'}))
'''


def records(base=20.0, keys=20.0, cursor=10.0, size=50):
  return [
      dict(
          how=how, what=what, mode=mode, outputs=2000, rounds=100,
          cpu_s=cpu, wall_s=cpu + 1, state_bytes=state, java='17')
      for how in ('rounds', 'pipeline') for what, mode, cpu, state in (
          ('base', 'keys', base, 4000000), ('ours', 'keys', keys, 4000000),
          ('ours', 'cursor', cursor, size))
  ]


class SummaryTest(unittest.TestCase):
  def test_each_target_can_be_missed(self):
    def missed(**figures):
      verdicts = java_watch.Summary(records(**figures)).verdicts()
      return [v.target for v in verdicts if not v.met]

    self.assertEqual([], missed())
    self.assertEqual(2, len(missed(keys=26.0)))
    self.assertEqual(2, len(missed(cursor=21.0)))
    self.assertEqual(1, len(missed(size=201)))

  def test_the_page(self):
    summary = java_watch.Summary(records())
    page = java_watch.markdown(summary, summary.verdicts(), ABOUT)
    for line in (
        '10,100,000 listings in 100 rounds, 200,000 outputs.',
        '| the DoFn alone | released, all keys | 20.0 | 21.0 | 4,000,000 bytes',
        '| DirectRunner | ours, cursor | 10.0 | 11.0 |  |'):
      self.assertIn(line, page)

  def test_takes_turns(self):
    cases = java_watch.plan(2, 100)
    self.assertEqual(12, len(cases))
    self.assertEqual(cases[:6], cases[6:])
    self.assertEqual('the DoFn alone, released, all keys', cases[0].label())


class DriverTest(unittest.TestCase):
  def drive(self, cpu):
    return _bench_testing.drive(
        java_watch.main, 'java_watch', ANSWER % cpu, '--java', 'PROGRAM',
        '--classes', 'classes', '--jar', 'OURS.jar', '--released', 'beam.jar')

  def test_measures_the_jar_before_the_released(self):
    code, _, err, files = self.drive('(1 if cursor else 5) if ours else 20')
    self.assertEqual(0, code, err)
    self.assertEqual({'java_watch.md', 'java_watch.jsonl'}, set(files))
    self.assertIn('| released, all keys | 20.0', files['java_watch.md'])
    self.assertIn('| ours, all keys | 5.0', files['java_watch.md'])
    self.assertIn('| ours, cursor | 1.0', files['java_watch.md'])

  def test_a_missed_target_fails(self):
    self.assertEqual(1, self.drive('20 if cursor else 10')[0])


if __name__ == '__main__':
  unittest.main()
