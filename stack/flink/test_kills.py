"""Flink: a job is exact however, and whenever, its processes are killed.

Purpose: a job that is restored goes on from its last checkpoint with all of
its splits, counts no record twice, leaves none out, and has acknowledged no
record that it reads again.
"""

import time

import exact_reads
from exact_reads import BUSY
from exact_reads import COUNTS
from exact_reads import WAITING
import pipelines
import pytest
from running import FULL

# Seconds after a checkpoint: they are taken once in a second. Before the first
# one, and twice: the second time as soon as the job reads again.
MOMENTS = ['first', *(n / 8 for n in range(8)), 'twice']
EXACT = {
    kind: pipelines.expected(count) for kind, count in COUNTS.items()
}


def of(running, what, kind):
  return [
      one for one in exact_reads.events(running.folder)
      if (one.what, one.of) == (what, kind)
  ]


def kill(running):
  """Kills the TaskManager that works; returns when it reads again, and how.

  Returns:
    The first reader of what is busy, and seconds from the kill to it.
  """
  before = len(of(running, 'reader', BUSY))
  begin = time.time()
  running.cluster.kill('task-manager')
  running.wait(
      'the job to read again',
      lambda: len(of(running, 'reader', BUSY)) > before, 120)
  reader = of(running, 'reader', BUSY)[before]
  return reader, reader.time - begin


def wait_to_be_busy(running, seconds=120):
  """Bundles end, and the checkpoints that they are in complete."""
  before = len(of(running, 'finalized', BUSY))
  running.wait(
      'marks to be finalized',
      lambda: len(of(running, 'finalized', BUSY)) > before + 20, seconds)


def open_gate(running):
  """Lets it read what is left, and waits for the counts of it all."""
  (running.folder / 'gate').touch()
  running.wait('both splits', lambda: len(running.results()) == 2, 120)


@pytest.mark.parametrize('moment', MOMENTS if FULL else [0.0])
def test_a_killed_task_manager(run, cluster_up, tell, moment):
  """One split is busy, one waits, the TaskManager that has them is killed."""
  running = run('exact_reads.two_splits')
  if moment == 'first':
    running.wait('records', lambda: of(running, 'reader', BUSY), 120)
  else:
    running.wait(
        'the second poll', lambda: len(of(running, 'poll', WAITING)) > 1, 120)
    wait_to_be_busy(running)
    running.wait_for_checkpoint()
    time.sleep(0 if moment == 'twice' else moment)
  reader, seconds = kill(running)
  if moment == 'twice':
    cluster_up()
    reader, seconds = kill(running)
  wait_to_be_busy(running)
  waiting = len(of(running, 'reader', WAITING))
  open_gate(running)
  early = exact_reads.finalized_too_early(exact_reads.events(running.folder))
  before = [
      one.position for one in of(running, 'finalized', BUSY)
      if one.time < reader.time
  ]
  tell(
      moment=moment, exact=running.results() == EXACT, early=len(early),
      restored=reader.position, finalized=max(before, default=0),
      waited=waiting == 1, seconds=round(seconds, 1))
  assert running.results() == EXACT
  assert not early


def newest_checkpoint(running):
  """The last that a job completed, as the JobManager left it."""
  folder = running.cluster.folder / 'checkpoints' / running.job
  whole = [path.parent for path in folder.glob('chk-*/_metadata')]
  return max(whole, key=lambda path: int(path.name.partition('-')[2]))


def go_on(run, running, path, **options):
  """Starts the pipeline of a job that is gone from its checkpoint."""
  running.forget()
  before = len(of(running, 'reader', BUSY))
  again = run('exact_reads.two_splits', restore=str(path), **options)
  again.wait(
      'the job to read again',
      lambda: len(of(again, 'reader', BUSY)) > before, 120)
  return again, of(again, 'reader', BUSY)[before]


def test_a_killed_job_manager(run, cluster_up, tell):
  """The checkpoint that is left is what another job goes on from."""
  running = run('exact_reads.two_splits')
  running.wait(
      'the second poll', lambda: len(of(running, 'poll', WAITING)) > 1, 120)
  wait_to_be_busy(running)
  running.wait_for_checkpoint()
  running.cluster.kill('job-manager')
  path = newest_checkpoint(running)
  cluster_up()
  again, reader = go_on(run, running, path)
  assert reader.position > 0
  open_gate(again)
  early = exact_reads.finalized_too_early(exact_reads.events(again.folder))
  tell(exact=again.results() == EXACT, early=len(early),
       restored=reader.position)
  assert again.results() == EXACT
  assert not early
