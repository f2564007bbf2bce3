"""Flink: what a job was told by a side input is in its checkpoints.

Purpose: a streaming job that has a side input completes checkpoints, and knows
it still when it is restored: what makes it does not run again.
"""

import pipelines
import side_inputs
import test_kills as kills
from exact_reads import COUNTS
from exact_reads import WAITING

EXACT = {
    name: pipelines.expected(COUNTS[kind])
    for kind, name in side_inputs.NAMES.items()
}


def test_a_side_input_survives_a_killed_task_manager(run, tell):
  """All records have their names, those after the kill as well."""
  running = run('side_inputs.renamed')
  running.wait(
      'the second poll',
      lambda: len(kills.of(running, 'poll', WAITING)) > 1, 120)
  kills.wait_to_be_busy(running)
  running.wait_for_checkpoint()
  reader, seconds = kills.kill(running)
  assert reader.position > 0
  kills.wait_to_be_busy(running)
  kills.open_gate(running)
  tell(exact=running.results() == EXACT, seconds=round(seconds, 1))
  assert running.results() == EXACT
