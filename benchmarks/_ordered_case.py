# Licensed under the Apache License, Version 2.0: see LICENSE.
"""One measured run, in a process of its own: started by ordered.py.

usage: _ordered_case.py CASE      (a JSON object: see ordered.Case)

Prints one line, `RESULT {json}`, if each element arrived once, with the context
that it has to have; anything else that it prints is for people.
"""

import importlib.metadata
import json
import logging
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
import _ordered_probe as probe
import _unbounded_case
import apache_beam as beam
from apache_beam.io.unbounded_source import ReadFromUnboundedSource
from apache_beam.transforms.timestamp_buffer import OrderedProcess
# pylint: enable=wrong-import-position


def read(pipeline, case):
  """The input; its number of elements and of keys, and the sum of values."""
  buffered, keys, per_key = case['buffered'], case['keys'], case['per_key']
  if buffered:
    number = 2 * buffered
    pairs = pipeline | ReadFromUnboundedSource(
        probe.Source(buffered, case['rate']),
        probe.POLL_SECONDS,
        max_records_per_bundle=probe.STEP)
    return pairs, number, 1, number * (number - 1) // 2
  pairs = (
      pipeline
      | beam.Create([(keys, per_key)], reshuffle=False)
      | beam.ParDo(probe.Bounded()))
  return pairs, keys * per_key, keys, keys * (per_key * (per_key - 1) // 2)


def run(case):
  """Runs the pipeline of `case` and returns what it took."""
  pipeline = beam.Pipeline(options=_unbounded_case.pipeline_options(case))
  pairs, number, keys, total = read(pipeline, case)
  pairs = pairs | beam.ParDo(probe.StartClocks()).with_output_types(
      tuple[str, int])
  if case['what'] == 'source':
    told = pairs | beam.ParDo(probe.NoOrder())
  elif case['what'] == 'plain':
    told = pairs | beam.ParDo(probe.FourTimers())
  else:
    told = pairs | OrderedProcess(
        probe.function,
        probe.CONTEXT,
        ordered_list_state=case['what'] == 'list')
  _ = told | beam.ParDo(probe.Sink())
  pipeline.run().wait_until_finish()
  last = probe.now()
  counts = probe.COUNTS
  arrived = (counts.received, counts.values, counts.contexts)
  # Of each key the first has no context, and the second one element.
  contexts = 0 if case['what'] == 'source' else 2 * number - 3 * keys
  expected = (number, total, contexts)
  if arrived != expected:
    raise SystemExit(
        'number, sum and contexts are %r, but should be %r' %
        (arrived, expected))
  wall, cpu, prism_cpu = (
      after - before for before, after in zip(counts.first, last))
  return {
      'wall_s': round(wall, 3),
      'cpu_s': round(cpu, 3),
      'prism_cpu_s': round(prism_cpu, 2),
      'beam': importlib.metadata.version('apache-beam'),
  }


def main():
  # Prism and the worker narrate at INFO; that would be part of the figures.
  logging.getLogger().setLevel(logging.ERROR)
  threading.Thread(target=_unbounded_case.end_with_driver, daemon=True).start()
  try:
    result = run(json.loads(sys.argv[1]))
  finally:
    _unbounded_case.stop_children()
  print('RESULT ' + json.dumps(result), flush=True)
  # Not sys.exit: Beam's exit hooks wait a second for a Prism already gone.
  os._exit(0)


if __name__ == '__main__':
  main()
