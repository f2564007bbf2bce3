"""Flink: the splits of one source are read by all subtasks of a job.

Purpose: a topic of many partitions is read by more than one machine, however
the source gave its splits.
"""

import collections

import pipelines
import pytest
from running import full_only
import split_reads

EXACT = {
    f'split {number}': pipelines.expected(split_reads.RECORDS)
    for number in range(split_reads.SPLITS)
}


def readers(running):
  """The splits that each process read, and not others before it."""
  path = running.folder / 'readers'
  lines = path.read_text().splitlines() if path.exists() else []
  latest = {}
  for number, process, _ in map(str.split, lines):
    latest[number] = process
  found = collections.defaultdict(set)
  for number, process in latest.items():
    found[process].add(number)
  return sorted(map(len, found.values()))


@pytest.mark.parametrize(
    'read', ['splits',
             pytest.param('with_a_side_input', marks=full_only)])
def test_splits_of_a_source_are_read_by_both_task_managers(run, read):
  """Each TaskManager has a worker of its own, and half of the splits."""
  running = run(f'split_reads.{read}', parallelism=2)
  running.wait(
      'all splits to be read',
      lambda: sum(readers(running)) == split_reads.SPLITS, 120)
  (running.folder / 'gate').touch()
  running.wait('all results', lambda: len(running.results()) == 4, 120)
  assert readers(running) == [2, 2]
  assert running.results() == EXACT


def test_splits_of_a_released_savepoint_are_read_on(run, released):
  """Nothing is lost, whichever subtask they come to by the keys they had."""
  with released():
    running = run('split_reads.splits')
    running.wait(
        'all splits to be read',
        lambda: sum(readers(running)) == split_reads.SPLITS, 120)
    path = running.cluster.rest().stop(running.job)
  (running.folder / 'gate').touch()
  again = run('split_reads.splits', parallelism=2, restore=path)
  again.wait('all results', lambda: len(again.results()) == 4, 120)
  assert again.results() == EXACT


def test_more_subtasks_divide_the_splits_of_a_savepoint(run):
  """One subtask read all; two go on, each with half, and nothing is lost."""
  running = run('split_reads.splits')
  running.wait(
      'all splits to be read',
      lambda: sum(readers(running)) == split_reads.SPLITS, 120)
  assert len(readers(running)) == 1
  path = running.cluster.rest().stop(running.job)
  (running.folder / 'gate').touch()
  again = run('split_reads.splits', parallelism=2, restore=path)
  again.wait('all results', lambda: len(again.results()) == 4, 120)
  assert readers(again) == [2, 2]
  assert again.results() == EXACT
