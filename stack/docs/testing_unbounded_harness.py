"""Runs the example in the docstring of `SplitInjectingHarness`."""

# examples of sdks/python/apache_beam/testing/_unbounded_harness.py

# There were splits: a bundle would take all hundred records otherwise.
assert harness.events > 300
assert len(harness.result.values) < 100
assert (harness.opened, harness.closed) == (1, 1)
