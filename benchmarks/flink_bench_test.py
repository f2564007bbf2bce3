# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Tests of the benchmark of Flink: its plan, verdicts, page and driver.

They need no Flink: a script stands in for the Python that measures, and
programs that only sleep for the cluster's.
"""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
import _bench_testing
import flink
# pylint: enable=wrong-import-position

ABOUT = {
    'date': '2026-01-02',
    'machine': 'Abacus',
    'beam': '2.75.0+stack.1',
    'load': '0.1, 0.2',
    'note': '',
}
# What a case answers, by what it measures.
ANSWERS = {
    'state': {
        'early_bytes': 1000, 'late_bytes': 1999, 'early_gap_s': 0.050,
        'late_gap_s': 0.060
    },
    'poll': {'polls': 10, 'gap_s': 0.51},
    'rate': {'records': 10, 'per_s': 800.0, 'per_cpu_s': 900.0},
    'recovery': {'recovery_s': 12.5},
}


def records(who='ours', what='', where=None, **changes):
  """An answer to each case, those of some changed."""
  made = []
  for case in flink.plan(flink.QUICK):
    record = dict(
        case.request, who=case.who, backend=case.backend, what=case.what,
        **ANSWERS[case.what])
    if case.what == 'poll':
      record['gap_s'] = record['interval'] * 1.02
    if record.get('splits', 1) > 1 and case.who == 'ours':
      record['per_s'] = 1500.0
    if (case.who, case.what) == (who, what) and (
        where or {}).items() <= record.items():
      record.update(changes)
    made.append(record)
  return made


class PlanTest(unittest.TestCase):
  def test_runs_on_one_cluster_follow_each_other(self):
    kinds = [(case.who, case.backend) for case in flink.plan(flink.Length())]
    changes = [a for a, b in zip(kinds, [None, *kinds]) if a != b]
    self.assertEqual([('base', 'hashmap'), ('ours', 'hashmap'),
                      ('base', 'rocksdb'), ('ours', 'rocksdb')],
                     changes)

  def test_a_full_run_looks_at_100_and_800(self):
    states = [
        dict(case.request)
        for case in flink.plan(flink.Length())
        if case.what == 'state'
    ]
    self.assertEqual([(100, 800)] * 4,
                     [(state['early'], state['late']) for state in states])

  def test_says_what_is_measured(self):
    labels = [case.label() for case in flink.plan(flink.QUICK)]
    self.assertIn('released, heap, poll interval 0.5', labels)
    self.assertIn('ours, heap, rate cap 100, splits 4', labels)
    self.assertIn('ours, RocksDB, recovery ', labels)


class VerdictTest(unittest.TestCase):
  def missed(self, *args, **changes):
    verdicts = flink.Summary(records(*args, **changes)).verdicts()
    return [verdict.target for verdict in verdicts if not verdict.met]

  def test_each_target_can_be_missed(self):
    self.assertEqual([], self.missed())
    for what, where, change, told in (
        ('state', {'backend': 'hashmap'}, {'late_bytes': 2001},
         'heap: a checkpoint'),
        ('state', {'backend': 'rocksdb'}, {'late_bytes': 2001},
         'RocksDB: a checkpoint'),
        ('state', {'backend': 'hashmap'}, {'late_gap_s': 0.11},
         'heap: the time'),
        ('state', {'backend': 'rocksdb'}, {'late_gap_s': 0.11},
         'RocksDB: the time'),
        ('poll', {'interval': 0.5}, {'gap_s': 0.56}, 'every 0.5 s'),
        ('poll', {'interval': 1.5}, {'gap_s': 1.34}, 'every 1.5 s'),
        ('rate', {'splits': 2}, {'per_s': 1200}, 'two splits')):
      with self.subTest(told):
        target, = self.missed('ours', what, where, **change)
        self.assertIn(told, target)

  def test_what_is_released_misses_none(self):
    self.assertEqual([], self.missed('base', 'state', late_bytes=10**7))


class PageTest(unittest.TestCase):
  def test_states_what_was_found(self):
    summary = flink.Summary(
        records('base', 'state', {'backend': 'rocksdb'}, late_bytes=4770000))
    page = flink.markdown(summary, summary.verdicts(), ABOUT)
    for line in (
        '| job server, state | bytes after 30 | after 200 | ms each after 30 '
        '| after 200 |',
        '| released, RocksDB | 1,000 | 4,770,000 | 50 | 60 |',
        '| 1.5 | 1.530 | 1.530 |',
        '| 10,000 | 800 | 800 | 900 | 900 |',
        '| 4 | 800 | 1,500 |',
        '| heap | 12.5 |'):
      self.assertIn(line, page.splitlines())


class DriverTest(unittest.TestCase):
  PROGRAM = (
      'import json, sys\n'
      'request = json.loads(sys.argv[2])\n'
      'answer = %r[request["what"]]\n'
      'if request["what"] == "poll": answer["gap_s"] = request["interval"]\n'
      'print("RESULT " + json.dumps(dict(answer, beam="2.75.0")))\n' %
      (ANSWERS, ))

  def setUp(self):
    self.started = []
    self.stopped = []
    test = self

    class Cluster:
      def __init__(self, folder):
        self.folder = folder

      def start(self, settings, distribution, job_server):
        test.started.append((settings.backend, job_server.name))

      def stop(self):
        test.stopped.append(self.folder.name)

    patch = mock.patch.object(flink.clusters, 'Cluster', Cluster)
    patch.start()
    self.addCleanup(patch.stop)
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)
    (self.folder / 'lib').mkdir()
    for name in ('ours.jar', 'base.jar'):
      (self.folder / name).write_text('')

  def bench(self, script, *more):
    return _bench_testing.drive(
        flink.main, 'flink', script, '--ours', 'PROGRAM', '--flink',
        str(self.folder), '--job-server', str(self.folder / 'ours.jar'),
        '--base-job-server', str(self.folder / 'base.jar'), *more)

  def test_writes_the_page_and_every_run(self):
    code, out, err, files = self.bench(self.PROGRAM)
    self.assertEqual(1, code, err)
    self.assertIn('MISSED 1.00 times', out)
    self.assertIn('6 of 7 targets met', out)
    self.assertEqual({'flink.md', 'flink.jsonl'}, set(files))
    runs = [json.loads(line) for line in files['flink.jsonl'].splitlines()]
    self.assertEqual(len(flink.plan(flink.QUICK)), len(runs))
    self.assertIn('A quick run', files['flink.md'])
    self.assertEqual(0, self.bench(self.PROGRAM, '--no-targets')[0])

  def test_each_case_gets_its_cluster_and_none_stays(self):
    self.bench(self.PROGRAM)
    self.assertEqual([('hashmap', 'base.jar'), ('hashmap', 'ours.jar'),
                      ('rocksdb', 'base.jar'), ('rocksdb', 'ours.jar')],
                     self.started)
    self.assertEqual(
        ['base-hashmap', 'ours-hashmap', 'base-rocksdb', 'ours-rocksdb'],
        self.stopped)

  def test_what_was_killed_is_started_again(self):
    with mock.patch.object(
        flink, 'QUICK', flink.Length(1.0, 1, 2, kills=2)):
      self.bench(self.PROGRAM)
    self.assertEqual(2, self.started.count(('rocksdb', 'ours.jar')))

  def test_a_run_that_fails_leaves_no_results_and_no_cluster(self):
    code, _, err, files = self.bench('raise SystemExit("out of beads")')
    self.assertEqual(1, code)
    self.assertIn('out of beads', err)
    self.assertEqual({}, files)
    self.assertEqual(['base-hashmap'], self.stopped)

  def test_what_is_not_there_is_named(self):
    (self.folder / 'ours.jar').unlink()
    with contextlib.redirect_stderr(io.StringIO()):
      code, _, err, _ = self.bench(self.PROGRAM)
    self.assertEqual(2, code)
    self.assertIn('--job-server: there is no', err)


if __name__ == '__main__':
  unittest.main()
