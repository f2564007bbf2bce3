"""Runs the example in the docstring of `ScriptedSource`."""

# examples of sdks/python/apache_beam/testing/_unbounded_script.py

from apache_beam.testing.unbounded_source import ScriptedError
from apache_beam.testing.unbounded_source import SplitInjectingHarness

source = ScriptedSource(
    [Records('a', 'b'), Idle(3), Crash(), Records('c'), End()])
harness = SplitInjectingHarness(source)
try:
  harness.run()
  raise SystemExit('The script has a crash, and there was none.')
except Exception as exc:
  assert isinstance(exc.__cause__, ScriptedError), exc
assert harness.run() == ['a', 'b', 'c']
