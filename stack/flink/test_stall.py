"""Flink: what begins during a snapshot is not stuck behind it.

Purpose: a job whose first poll meets a snapshot makes it all the same.
"""

from running import full_only

STARTS = 10
# From when the tasks run; a poll takes a small part of it.
CHECKPOINTS = 10


@full_only
def test_no_start_stalls(run, tell):
  """A source that polls seldom, started again and again, always polls."""
  stalled = []
  for start in range(STARTS):
    running = run('deferred', finishes=False)
    rest = running.cluster.rest()
    before = running.count('polls')
    running.wait(
        'its tasks to run', lambda: all(
            vertex['status'] == 'RUNNING'
            for vertex in rest.job(running.job)['vertices']), 120)
    done = rest.checkpoints(running.job)['counts']['completed'] + CHECKPOINTS
    running.wait(
        'a poll, or checkpoints', lambda: running.count('polls') > before or
        rest.checkpoints(running.job)['counts']['completed'] >= done, 120)
    if running.count('polls') == before:
      stalled.append(start)
    running.end()
  tell(starts=STARTS, stalled=len(stalled))
  assert not stalled
