"""Flink: a job has as many splittable DoFns as it needs, where it needs them.

Purpose: several sources, watches and files are read in one job, also from one
PCollection, each with its own restrictions and their coder.
"""

import pipelines
import pytest
import two_reads


@pytest.mark.parametrize('read', ['of_one', 'of_two'])
def test_two_reads_have_their_own_restrictions(run, read):
  """Both of one PCollection; and of two that have one coder."""
  running = run(f'two_reads.{read}', checkpoints=False)
  running.wait('both reads', lambda: len(running.results()) == 2, 120)
  assert running.results() == {
      f'{name} by {name}': pipelines.expected(count)
      for name, count in two_reads.COUNTS.items()
  }
