"""Runs the check in the docstring of `apache_beam.testing.unbounded_source`."""

# examples of sdks/python/apache_beam/testing/unbounded_source.py

from apache_beam.testing.unbounded_source import ConformanceError

# It does look: the same script does not pass for another one's.
try:
  check_unbounded_source(make_source, expected=['a', 'c', 'b'])
  raise SystemExit('It passed with records in the wrong order.')
except ConformanceError as exc:
  assert exc.property == 'reads', exc
