# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Tests of the benchmark of Prism: its plan, verdicts, pages, and a soak.

All but the soak need no Beam. The soak is real: one minute on the binary that
``PRISM_LOCATION`` names.
"""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
import _bench_testing
import prism
import _prism_report as report
# pylint: enable=wrong-import-position

ABOUT = {
    'date': '2026-01-02',
    'machine': 'Abacus',
    'quick': False,
    'beam': '2.75.0+stack.1',
    'binaries': {
        'base': 'sha256 01', 'ours': 'sha256 23'
    },
}
PRISM = os.environ.get('PRISM_LOCATION')


def run(what, binary, consumer='', **figures):
  return dict(
      what=what,
      binary=binary,
      consumer=consumer,
      elements=1_000_000,
      beam='2.75.0+stack.1',
      **figures)


def throughput(what, binary, go, python=4.0):
  return run(what, binary, prism_cpu_s=go, cpu_s=python, wall_s=9.0)


def records(**changed):
  """The runs of a benchmark that meets all targets, but for what changed."""
  figures = {
      'read': 0.2,
      'shuffle': 1.0,
      'group': 4.0,
      'words': 0.5,
      'python': 4.0,
      'delay_plain': 0.1,
      'delay_side': 0.2,
      'polls': 4,
      'share': 0.01,
      **changed
  }
  found = []
  for what in report.THROUGHPUT:
    found.append(throughput(what, 'base', 0.5 if what == 'words' else 8.0))
    found.append(throughput(what, 'ours', figures[what], figures['python']))
  for consumer in report.CONSUMERS:
    found.append(run('delivery', 'base', consumer, delays_s=[7.0, 1.0]))
    found.append(
        run('delivery',
            'ours',
            consumer,
            delays_s=[0.01, figures.get(f'delay_{consumer}', 0.02)]))
  for binary, number, share in (
      ('base', 972, 0.9), ('ours', figures['polls'], figures['share'])):
    found.append(run('polls', binary, polls=number))
    found.append(run('idle', binary, prism_share=share, python_share=0.01))
  return found


def soak(**changed):
  delay = {
      'source': 'first', 'records': 480, '0.5': 0.01, '0.9': 0.02, '0.99': 0.1,
      'worst': changed.get('worst', 0.2)
  }
  return {
      **run('soak', 'ours'),
      'seconds': 600,
      'delays': {
          'state': delay, 'group': dict(delay, worst=0.3)
      },
      'idle': {
          'python': 0.01, 'prism': changed.get('idle', 0.001)
      },
      'busy': {
          'python': 0.08, 'prism': 0.02
      },
      'memory': [[60, 140.0, 44.0],
                 [570, changed.get('worker', 141.0),
                  changed.get('prism', 46.0)]],
      'polls': 1,
  }


class PlanTest(unittest.TestCase):
  def test_base_and_ours_take_turns(self):
    cases = prism.plan(prism.Sizes(7, 2, 30))
    self.assertEqual(['base', 'ours'] * (len(cases) // 2),
                     [case.binary for case in cases])
    for one, other in zip(cases[::2], cases[1::2]):
      self.assertEqual(one, report.Case(other.what, 'base', other.consumer,
                                        other.elements, other.seconds))
    self.assertEqual(2 * 2 * (4 + 5 + 2), len(cases))

  def test_arguments(self):
    with contextlib.redirect_stderr(io.StringIO()) as err:
      for wrong in (['--soak', '0'], ['--repeats', '-1'], []):
        with self.assertRaises(SystemExit):
          prism.parse(['--ours', 'p', '--prism', 'x', '--out', '.', *wrong])
    self.assertIn('--base is needed', err.getvalue())
    options = prism.parse(
        ['--ours', 'p', '--prism', 'x', '--out', '.', '--soak'])
    self.assertEqual(10, options.soak)


class VerdictTest(unittest.TestCase):
  def missed(self, **changed):
    return [
        verdict.target
        for verdict in report.Summary(records(**changed)).verdicts()
        if not verdict.met
    ]

  def test_each_target_can_be_missed(self):
    self.assertEqual([], self.missed())
    for changed, told in (
        ({'read': 2.5}, 'read in one stage'),
        ({'shuffle': 3.0}, 'over a Reshuffle'),
        ({'group': 6.0}, '1.5 times less Go'),
        ({'words': 1.5}, 'word count: all CPU time'),
        ({'delay_plain': 0.6}, 'same stage: each record'),
        ({'delay_side': 0.6}, 'side input: each record'),
        ({'polls': 2}, '3 to 5 polls'),
        ({'polls': 6}, '3 to 5 polls'),
        ({'share': 0.05}, 'under 5 %')):
      with self.subTest(told):
        target, = self.missed(**changed)
        self.assertIn(told, target)
    self.assertEqual(2, len(self.missed(python=11.0)))

  def test_each_target_of_a_soak_can_be_missed(self):
    def missed(**changed):
      return [
          verdict.target for verdict in report.soak_verdicts(soak(**changed))
          if not verdict.met
      ]

    self.assertEqual([], missed())
    for changed, told in (
        ({'worst': 0.6}, 'a stateful DoFn'),
        ({'idle': 0.06}, 'while nothing comes'),
        ({'worker': 161.0}, 'memory of the worker'),
        ({'prism': 65.0}, 'memory of Prism')):
      with self.subTest(told):
        target, = missed(**changed)
        self.assertIn(told, target)


class PageTest(unittest.TestCase):
  def test_states_what_was_found(self):
    summary = report.Summary(records(polls=7))
    page = report.markdown(summary, summary.verdicts(), ABOUT)
    for line in (
        'Prism base sha256 01, ours sha256 23; Abacus. One run of ',
        '| 3 to 5 polls in 9 s at an interval of 3 s | **missed** | 7 |',
        '## 1,000,000 elements',
        '| a GroupByKey of 100 keys | 8.00 µs | 4.00 µs | 2.0 × | 12.00 s | '
        '8.00 s | 0.67 |',
        '| a DoFn with a side input | 4.00 | 7.00 | 0.11 | 0.20 |',
        '| polls in 9 s, asked for every 3 s | 972 | 7 |',
        'share of a core, Prism | 90.0 % | 1.0 % |'):
      self.assertIn(line, page)

  def test_states_how_a_soak_went(self):
    record = soak(worst=0.6)
    page = report.soak_markdown(record, report.soak_verdicts(record), ABOUT)
    for line in (
        'One pipeline for 600 s.',
        '| a stateful DoFn: each record within 0.5 s | **missed** | 0.60 s |',
        '| a stateful DoFn | 480 | 0.010 | 0.020 | 0.100 | 0.600 |',
        '| 570 s | 141.0 | 46.0 |',
        '| while none come | 1.0 % | 0.1 % |'):
      self.assertIn(line, page)


class DriverTest(unittest.TestCase):
  def bench(self, script, *more):
    return _bench_testing.drive(
        prism.main, 'prism', script, '--ours', 'PROGRAM', '--base', 'PROGRAM',
        '--prism', 'PROGRAM', *more)

  ANSWER = (
      'import json\nprint("RESULT " + json.dumps(%r))\n' % {
          'prism_cpu_s': 1.0, 'cpu_s': 1.0, 'delays_s': [0.1], 'polls': 4,
          'prism_share': 0.0, 'python_share': 0.0, 'beam': '2.75'
      })

  def test_writes_the_page_and_every_run(self):
    code, out, err, files = self.bench(self.ANSWER)
    self.assertEqual(1, code, err)
    self.assertIn('MISSED 1.0 times', out)
    self.assertEqual({'prism.md', 'prism.jsonl'}, set(files))
    self.assertEqual(22, len(files['prism.jsonl'].splitlines()))
    self.assertIn('A quick run', files['prism.md'])
    self.assertEqual(0, self.bench(self.ANSWER, '--no-targets')[0])

  def test_a_run_that_fails_leaves_no_results(self):
    code, _, err, files = self.bench('raise SystemExit("out of beads")')
    self.assertEqual(1, code)
    self.assertIn('out of beads', err)
    self.assertEqual({}, files)


@unittest.skipUnless(PRISM, 'PRISM_LOCATION is not set')
class SoakTest(unittest.TestCase):
  def test_a_minute(self):
    """Each record once and in time; idle while nothing comes; flat."""
    with tempfile.TemporaryDirectory() as folder:
      out, err = io.StringIO(), io.StringIO()
      with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = prism.main([
            '--ours', sys.executable, '--prism', PRISM, '--out', folder,
            '--soak', '1'
        ])
      self.assertEqual(0, code, out.getvalue() + err.getvalue())
      line, = (pathlib.Path(folder) / 'prism_soak.jsonl').open()
      record = json.loads(line)
      self.assertEqual(
          {'state', 'side', 'group', 'shuffle'}, set(record['delays']))
      self.assertIn(
          '| a stateful DoFn |',
          (pathlib.Path(folder) / 'prism_soak.md').read_text())


if __name__ == '__main__':
  unittest.main()
