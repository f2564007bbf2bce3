"""Flink: a job that was stopped goes on at another parallelism, exact.

Purpose: the splits of a source, what waits of them, and what was counted are
given out anew to more subtasks or fewer, and nothing is lost.
"""

import exact_reads
import pytest
from running import FULL
import test_kills as kills


@pytest.mark.parametrize(
    'before, after', [(1, 2), (2, 1)] if FULL else [(1, 2)])
def test_a_savepoint_at_another_parallelism(run, tell, before, after):
  """A savepoint is taken, the job stopped, and resumed from it."""
  running = run('exact_reads.two_splits', parallelism=before)
  running.wait(
      'the second poll',
      lambda: len(kills.of(running, 'poll', exact_reads.WAITING)) > 1, 120)
  kills.wait_to_be_busy(running)
  path = running.cluster.rest().stop(running.job)
  again, reader = kills.go_on(run, running, path, parallelism=after)
  assert reader.position > 0
  kills.open_gate(again)
  early = exact_reads.finalized_too_early(exact_reads.events(again.folder))
  tell(
      before=before, after=after, exact=again.results() == kills.EXACT,
      early=len(early))
  assert again.results() == kills.EXACT
  assert not early
