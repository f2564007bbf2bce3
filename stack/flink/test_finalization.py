"""Flink: what a restored job reads again was not acknowledged.

Purpose: a mark is finalized when the records before it cannot be lost any
more. A broker that deletes what is acknowledged would lose them otherwise.
"""

from running import full_only


def _lines(running, file):
  path = running.folder / file
  return [int(line) for line in path.read_text().split()
         ] if path.exists() else []


@full_only
def test_nothing_beyond_the_restored_position_is_finalized(run):
  """The position after a kill is none that was finalized before it.

  How: bundles are shorter than it takes to complete a checkpoint, so some
  always end between its snapshot and its end.
  """
  running = run('finalized')
  running.wait(
      'finalized marks', lambda: len(_lines(running, 'finalized')) > 30, 120)
  running.wait_for_checkpoint()
  # Those of a checkpoint that has just completed; the next is not under way.
  known = len(_lines(running, 'finalized'))
  running.wait(
      'more finalized marks',
      lambda: len(_lines(running, 'finalized')) > known, 120)
  running.cluster.kill('task-manager')
  # The worker of the one that was killed can only end what it has begun.
  readers = len(_lines(running, 'readers'))
  running.wait(
      'the job to read again',
      lambda: len(_lines(running, 'readers')) > readers, 120)
  restored = _lines(running, 'readers')[readers]
  finalized = _lines(running, 'finalized')
  print('restored:', restored, 'finalized:', max(finalized))
  assert max(finalized) <= restored
  # And it goes on.
  running.wait(
      'marks to be finalized again',
      lambda: max(_lines(running, 'finalized')) > restored, 120)
