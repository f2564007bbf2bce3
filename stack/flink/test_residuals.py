"""Flink: residuals are neither lost nor repeated, and resumed in time.

Purpose: what an unbounded read has still to read waits on Flink as a residual
of a bundle that checkpointed itself. A killed worker must not lose one, a
long run must not slow down, and a poll interval is kept.
"""

import statistics
import time

import pipelines
from running import FULL


def test_residual_that_waits_survives_a_killed_task_manager(run):
  """Both restrictions of an element are read whole, each record once.

  How: the busy one goes on checkpointing itself after the restore, while the
  other waits as a residual of before it.
  """
  running = run('busy_and_waiting')
  running.wait('the second poll', lambda: running.count('polls') > 20, 120)
  running.wait_for_checkpoint()
  killed = running.cluster.kill('task-manager')
  restored_from = running.wait(
      'the job to be restored', lambda: running.cluster.rest().checkpoints(
          running.job)['latest']['restored'], 120)
  before = running.count('marks')
  running.wait(
      'more bundles', lambda: running.count('marks') > before + 60, 120)
  (running.folder / 'gate').touch()
  running.wait('both restrictions', lambda: len(running.results()) == 2, 120)
  assert killed.startswith('task-manager-') and restored_from
  assert running.results() == {
      'busy': pipelines.expected(pipelines.BUSY),
      'waiting': pipelines.expected(pipelines.WAITING),
  }


def test_checkpoints_are_as_small_later_as_they_were_before(run):
  """The state of a job is no larger for all that it did before."""
  running = run('endless')
  sizes = []
  for marks in (100, 800) if FULL else (30, 200):
    running.wait(
        f'{marks} bundles', lambda marks=marks: running.count('marks') > marks,
        200)
    sizes.append(running.wait_for_checkpoint()['state_size'])
  print('bytes before and after:', sizes)
  assert sizes[1] < 1.5 * sizes[0]


def test_delay_below_a_second_is_kept(run):
  """What asks to be resumed after half a second is resumed then."""
  running = run('deferred')
  running.wait('the first polls', lambda: running.count('polls') > 100, 120)
  begin = time.time()
  time.sleep(6)
  lines = (running.folder / 'polls').read_text().split()
  times = [t for t in map(float, lines) if t >= begin]
  gaps = [b - a for a, b in zip(times, times[1:])]
  print('gaps:', gaps)
  assert 0.495 <= statistics.median(gaps) <= 0.55
