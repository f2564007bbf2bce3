"""Flink: what a bundle gives that a checkpoint ends is not held up.

Purpose: a source that polls once and then waits is seen to have polled, though
its first bundle met a checkpoint.
"""


def test_output_of_a_bundle_that_a_checkpoint_ends_arrives(run):
  """The only element of a job reaches the next stage.

  How: bundles are longer than the checkpoint interval, so it is a checkpoint
  that ends the only one.
  """
  running = run(
      'one', '--max_bundle_time_mills=600000', finish_bundles=False)
  running.wait('the element', running.results, 120)
  assert running.results() == {'one': [1, 1, 1]}
