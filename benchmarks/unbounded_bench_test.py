# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Tests of the unbounded benchmark's own logic; they need no Beam.

Where a measured process is needed, a small script stands in for the Python
that has Beam: it gets the real command line and prints a RESULT.
"""

import contextlib
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import _measured_process  # pylint: disable=wrong-import-position
import _unbounded_report as report  # pylint: disable=wrong-import-position
import plot  # pylint: disable=wrong-import-position
import unbounded  # pylint: disable=wrong-import-position

ABOUT = {
    'date': '2026-01-02',
    'machine': 'Abacus <2 beads>',
    'prism': 'sha256 0123',
    'quick': False,
}


def run(what, rate, cap=10_000, runner='fnapi', timestamps='cached', **more):
  return {
      'what': what,
      'runner': runner,
      'timestamps': timestamps,
      'cap': cap,
      'records': 1000,
      'sample_at': [],
      'wall_s': 1,
      'cpu_s': 1,
      'prism_cpu_s': 0.5,
      'records_per_wall_s': rate,
      'records_per_cpu_s': rate,
      'readers': 1,
      'marks': 2,
      'finalized': 2,
      'closed': 1,
      'rss_mb': {},
      'beam': '2.77.0' if what == 'rival' else '2.75.0+stack.1',
      'python': '3.11.7',
      **more
  }


def memory(what, sizes, runner='fnapi', **more):
  return run(
      what,
      1,
      cap=report.MEMORY_CAP,
      runner=runner,
      sample_at=[500, 1000, 2000, 3000],
      rss_mb=dict(zip(('500', '1000', '2000', '3000'), sizes)),
      **more)


def complete(rival=100_000, ours=400_000, ceiling=450_000, **more):
  return [
      run('rival', rival),
      run('ours', ours, **more),
      run('ceiling', ceiling),
      memory('rival', [100, 150, 250, 350]),
      memory('ours', [100, 101, 101, 101]),
  ]


def verdict(records, words):
  found = [
      verdict for verdict in report.verdicts(report.Summary(records))
      if words in verdict.target
  ]
  assert len(found) == 1, (words, found)
  return found[0]


class SummaryTest(unittest.TestCase):
  def test_a_cell_is_the_median_of_its_own_runs(self):
    summary = report.Summary([
        run('ours', 5),
        run('ours', 1000),
        run('ours', 7),
        run('ours', 1, cap=1000),
        run('ours', 1, runner='prism'),
        run('ours', 1, timestamps='new'),
        run('rival', 1),
        memory('ours', [1, 2, 3, 4])
    ])
    self.assertEqual(
        7,
        summary.median(
            'records_per_cpu_s', 'ours', 'fnapi', 'cached', 10_000))

  def test_the_ceiling_is_the_median_over_all_caps(self):
    summary = report.Summary([
        run('ceiling', 10, cap=1000),
        run('ceiling', 30, cap=10_000),
        run('ceiling', 90, cap=100_000),
        run('ceiling', 1, runner='prism'),
    ])
    for cap in (1000, 10_000, 100_000):
      self.assertEqual(
          30,
          summary.median(
              'records_per_cpu_s', 'ceiling', 'fnapi', 'cached', cap))

  def test_growth_leaves_out_the_warming_up(self):
    summary = report.Summary([memory('ours', [10, 200, 205, 204])])
    self.assertAlmostEqual(2, summary.growth('ours', 'fnapi'))


class VerdictTest(unittest.TestCase):
  def test_the_wanted_ratio_itself_is_enough(self):
    target = 'at least 3.0 times upstream'
    self.assertTrue(verdict(complete(100, 300), target).met)
    self.assertFalse(verdict(complete(100, 299), target).met)

  def test_the_small_cap_has_its_own_ratio(self):
    records = [
        run('rival', 100, cap=1000),
        run('ours', 250, cap=1000),
        run('ceiling', 1000, cap=1000)
    ]
    self.assertTrue(verdict(records, 'at least 2.5 times').met)
    records[1]['records_per_cpu_s'] = 249
    self.assertFalse(verdict(records, 'at least 2.5 times').met)

  def test_the_share_of_the_ceiling(self):
    target = 'at least 80 % of the ceiling'
    self.assertTrue(verdict(complete(1, 80, 100), target).met)
    self.assertFalse(verdict(complete(1, 79, 100), target).met)

  def test_one_run_that_opened_a_second_reader_is_a_miss(self):
    records = complete()
    self.assertTrue(verdict(records, 'one reader').met)
    self.assertFalse(
        verdict(records + [run('ours', 400_000, readers=2)],
                'one reader').met)
    self.assertFalse(
        verdict(records + [memory('ours', [1, 1, 1, 1], readers=2)],
                'one reader').met)

  def test_upstream_may_open_as_many_readers_as_it_likes(self):
    records = complete() + [run('rival', 100_000, readers=9)]
    self.assertTrue(verdict(records, 'one reader').met)

  def test_memory_that_grows_is_a_miss(self):
    self.assertTrue(verdict(complete(), 'memory flat').met)
    self.assertFalse(
        verdict([memory('ours', [100, 100, 101, 102.1])], 'memory flat').met)

  def test_other_caps_have_no_targets(self):
    records = [
        run(what, 1, cap=100_000) for what in ('rival', 'ours', 'ceiling')
    ]
    self.assertEqual(
        ['one reader opened per split, in every run'],
        [verdict.target for verdict in report.verdicts(
            report.Summary(records))])


class DocumentsTest(unittest.TestCase):
  def setUp(self):
    self.summary = report.Summary(complete(rival=100_000, ours=250_000))
    self.page = report.markdown(
        self.summary, report.verdicts(self.summary), ABOUT)

  def test_the_page_says_when_where_and_with_what(self):
    for fact in ('2026-01-02',
                 'Abacus <2 beads>',
                 'apache-beam 2.77.0',
                 '2.75.0+stack.1',
                 'Python 3.11.7',
                 'sha256 0123'):
      self.assertIn(fact, self.page)

  def test_the_page_has_figures_and_missed_targets(self):
    self.assertIn(
        '| FnApiRunner | cached | 10,000 | 100 | 250 | 450 | 2.50 × | 56 % |',
        self.page)
    self.assertIn(
        'at least 3.0 times upstream | **missed** | 2.50 times |', self.page)
    self.assertIn('| FnApiRunner | upstream | 100 | 150 | 250 | 350 | +100.00',
                  self.page)

  def test_the_rows_of_a_table_are_as_long_as_its_head(self):
    tables = re.findall(r'(?:^\|.*\n)+', self.page, re.MULTILINE)
    self.assertEqual(5, len(tables))
    for table in tables:
      self.assertEqual(1, len({line.count('|') for line in table.split('\n')
                               if line}), table)

  def test_the_plot_is_xml_with_every_series_and_both_schemes(self):
    picture = report.svg(self.summary, ABOUT)
    root = xml.etree.ElementTree.fromstring(picture)
    namespace = '{http://www.w3.org/2000/svg}'
    texts = [element.text for element in root.iter(namespace + 'text')]
    self.assertIn('upstream 2.77.0', texts)
    self.assertIn('ours 2.75.0+stack.1', texts)
    self.assertIn('2.5×', texts)
    self.assertIn('2026-01-02 · Abacus <2 beads>', texts)
    self.assertIn('prefers-color-scheme: dark', picture)

  def test_ticks_are_round_and_reach_the_top(self):
    self.assertEqual([0, 250, 500, 750, 1000], plot.ticks(994))
    self.assertEqual([0, 2, 4, 6, 8], plot.ticks(7.2))
    self.assertEqual([0, 1], plot.ticks(0))


class PlanTest(unittest.TestCase):
  def test_the_three_take_turns(self):
    cases = unbounded.plan(
        unbounded.Sizes(100, 2, (1000, 10_000), 6), ('fnapi', ), ('new', ))
    speed = [case for case in cases if not case.sample_at]
    self.assertEqual(
        ['rival', 'ours', 'ceiling'] * 4, [case.what for case in speed])
    self.assertEqual([1000] * 3 + [10_000] * 3 + [1000] * 3 + [10_000] * 3,
                     [case.cap for case in speed])

  def test_memory_is_watched_where_nothing_is_finalized_too(self):
    cases = unbounded.plan(
        unbounded.DEFAULT, ('fnapi', 'prism'), ('cached', ))
    watched = [case for case in cases if case.sample_at]
    self.assertEqual(
        {'fnapi', 'prism', 'never-finalizing'},
        {case.runner for case in watched})
    for case in watched:
      self.assertEqual((500, 1000, 2000, 3000), case.sample_at)
      self.assertGreater(case.records, case.cap * 3000)


STUB = '''#!%s
import json, os, subprocess, sys, time
case = json.loads(sys.argv[2])
rate = {'read': 1000, 'ceiling': 1100}[case['what']]
mode = %r
if mode == 'fail':
  sys.exit('the broker is down')
if mode == 'hang':
  child = subprocess.Popen(['sleep', '600'])
  open(%r, 'w').write(str(child.pid))
  time.sleep(600)
if mode == 'slow': rate = 10
if mode == 'flaky' and not os.path.exists(%r):
  open(%r, 'w').close()
  sys.exit('not a number')
print('noise')
print('RESULT ' + json.dumps(dict(
  wall_s=1, cpu_s=1, prism_cpu_s=0, records_per_wall_s=rate,
  records_per_cpu_s=rate, readers=1, marks=1, finalized=1, closed=1,
  rss_mb={str(at): 100 for at in case['sample_at']}, beam=mode,
  python='3')))
'''


def exists(pid):
  """Whether the process runs; a zombie that nobody reaped does not."""
  try:
    with open('/proc/%d/stat' % pid) as stat:
      return stat.read().rpartition(')')[2].split()[0] != 'Z'
  except FileNotFoundError:
    return False


def wait_for(condition, seconds=20):
  deadline = time.monotonic() + seconds
  while not condition():
    if time.monotonic() > deadline:
      raise AssertionError('waited %d s in vain' % seconds)
    time.sleep(0.02)


class DriverTest(unittest.TestCase):
  def setUp(self):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)
    self.child = self.folder / 'child'
    self.out = self.folder / 'out'

  def python(self, mode):
    stub = self.folder / mode
    stub.write_text(
        STUB % (
            sys.executable,
            mode,
            str(self.child),
            str(self.folder / 'once'),
            str(self.folder / 'once')))
    stub.chmod(0o755)
    return str(stub)

  def arguments(self, ours, rival='slow'):
    return [
        '--ours',
        self.python(ours),
        '--rival',
        self.python(rival),
        '--out',
        str(self.out),
        '--runners',
        'fnapi',
        '--timestamps',
        'new',
        '--caps',
        '10000',
        '--repeats',
        '1'
    ]

  def bench(self, *arguments):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
      with contextlib.redirect_stderr(printed):
        code = unbounded.main(list(arguments))
    return code, printed.getvalue()

  def test_targets_met_is_0_and_leaves_three_files(self):
    code, printed = self.bench(*self.arguments('good'))
    self.assertEqual(0, code, printed)
    self.assertEqual({'unbounded.md', 'unbounded.svg', 'unbounded.jsonl'},
                     set(os.listdir(self.out)))
    with open(self.out / 'unbounded.jsonl') as lines:
      self.assertEqual(7, len([json.loads(line) for line in lines]))

  def test_a_missed_target_is_1_unless_only_measuring(self):
    arguments = self.arguments('slow', rival='good')
    self.assertEqual(1, self.bench(*arguments)[0])
    self.assertEqual(0, self.bench(*arguments, '--no-targets')[0])

  def test_a_failed_run_is_1_shows_its_output_and_spoils_no_results(self):
    self.bench(*self.arguments('good'))
    before = (self.out / 'unbounded.jsonl').read_text()
    code, printed = self.bench(*self.arguments('fail'))
    self.assertEqual(1, code)
    self.assertIn('the broker is down', printed)
    self.assertEqual(before, (self.out / 'unbounded.jsonl').read_text())
    self.assertEqual(3, len(os.listdir(self.out)))

  def test_a_run_of_upstream_that_fails_is_made_again_and_told(self):
    code, printed = self.bench(*self.arguments('good', rival='flaky'))
    self.assertEqual(1, code, printed)  # Not faster than that one.
    self.assertIn('exit code 1, again', printed)
    self.assertIn(
        'failed and were made again: 1.',
        (self.out / 'unbounded.md').read_text())

  def test_ours_is_not_made_again(self):
    code, printed = self.bench(*self.arguments('flaky'))
    self.assertEqual(1, code)
    self.assertIn('FAILED: exit code 1', printed)
    self.assertFalse((self.out / 'unbounded.md').exists())

  def test_upstream_that_always_fails_is_1(self):
    code, printed = self.bench(*self.arguments('good', rival='fail'))
    self.assertEqual(1, code)
    self.assertIn('FAILED: exit code 1', printed)

  def test_what_is_missing_is_2(self):
    arguments = self.arguments('good')
    code, printed = self.bench(*arguments, '--runners', 'prism')
    self.assertEqual(2, code)
    self.assertIn('--prism', printed)
    code, printed = self.bench(*arguments, '--ours', '/no/such/python')
    self.assertEqual(2, code)
    self.assertIn('/no/such/python', printed)

  def test_a_run_out_of_time_leaves_no_process(self):
    code, printed = self.bench(*self.arguments('hang'), '--timeout', '2')
    self.assertEqual(1, code)
    self.assertIn('no result after 2 s', printed)
    self.assertFalse(exists(int(self.child.read_text())))

  def test_interrupted_it_leaves_no_process(self):
    for kind in (signal.SIGINT, signal.SIGTERM):
      with self.subTest(kind=kind):
        self.child.unlink(missing_ok=True)
        driver = subprocess.Popen(
            [sys.executable, unbounded.__file__] + self.arguments('hang'),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        wait_for(lambda: self.child.exists() and self.child.read_text())
        driver.send_signal(kind)
        self.assertEqual(130, driver.wait(20))
        wait_for(lambda: not exists(int(self.child.read_text())))

  def test_a_run_without_a_result_says_so(self):
    with self.assertRaisesRegex(_measured_process.RunFailed, 'no RESULT line'):
      _measured_process.measure([sys.executable, '-c', 'print(1)'], 20)

  def test_a_result_of_a_process_that_then_fails_does_not_count(self):
    program = 'import sys; print("RESULT {}", flush=True); sys.exit(7)'
    with self.assertRaisesRegex(_measured_process.RunFailed, 'exit code 7'):
      _measured_process.measure([sys.executable, '-c', program], 20)


if __name__ == '__main__':
  unittest.main()
