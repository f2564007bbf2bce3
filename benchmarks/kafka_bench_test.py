# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Tests of what the Kafka benchmark makes of its runs; they need no Beam."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import kafka  # pylint: disable=wrong-import-position


def run(what, rate, kind='small'):
  return {
      'what': what,
      'kind': kind,
      'records_per_cpu_s': rate,
      'records_per_wall_s': rate // 2,
      'max_rss_mb': 100,
      'client': '1.2, librdkafka 3.4',
  }


RUNS = [
    run('client', 1_000_000), run('fnapi', 300_000),
    run('client', 4_000_000), run('fnapi', 500_000),
    run('client', 2_000_000), run('fnapi', 900_000),
    run('client', 100_000, 'large'), run('prism', 70_000, 'large'),
]


class ReportTest(unittest.TestCase):
  def test_medians_are_compared_within_a_kind(self):
    page = kafka.markdown(RUNS, {'date': '2026-01-02', 'machine': 'Abacus'})
    self.assertIn('Medians of 3 interleaved runs on 2026-01-02: Abacus', page)
    self.assertIn(
        '| a pipeline on FnApiRunner | 500 | 25 % | 250 | 100 |', page)
    self.assertIn('| a pipeline on Prism | 70 | 70 % | 35 | 100 |', page)
    self.assertIn('| the client\'s loop | 2,000 | 100 % |', page)

  def test_pipelines_are_held_against_the_aim(self):
    self.assertEqual([
        'small, a pipeline on FnApiRunner: 25 % of the client\'s rate per CPU '
        'second (aim: 60 %)',
        'large, a pipeline on Prism: 70 % of the client\'s rate per CPU second '
        '(aim: 60 %)',
    ],
                     kafka.verdicts(RUNS))


if __name__ == '__main__':
  unittest.main()
