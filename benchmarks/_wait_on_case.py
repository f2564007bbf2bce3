# Licensed under the Apache License, Version 2.0: see LICENSE.
"""One measured WaitOn, in a process of its own: started by wait_on.py.

usage: _wait_on_case.py CASE      (a JSON object: see wait_on.Case)

Prints one line, `RESULT {json}`, if just what went in came out, each element
once; anything else that it prints is for people.
"""

import importlib.metadata
import json
import logging
import os
import resource
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
import _unbounded_case
import _wait_on_probe as probe
import apache_beam as beam
from apache_beam.transforms.util import WaitOn
from apache_beam.transforms.window import FixedWindows
# pylint: enable=wrong-import-position


def run(case):
  """Runs the pipeline of `case` and returns what it did."""
  source = probe.Unbounded if case['unbounded'] else probe.Bounded
  pipeline = beam.Pipeline(options=_unbounded_case.pipeline_options(case))
  main, signal = (
      pipeline
      | f'Number {name}' >> beam.Create([case[name]], reshuffle=False)
      | f'Give {name}' >> beam.ParDo(source()).with_output_types(bytes)
      | f'Window {name}' >> beam.WindowInto(FixedWindows(1000))
      for name in ('main', 'signal'))
  _ = (
      main
      | WaitOn(signal | beam.ParDo(probe.CountSignals()))
      | beam.ParDo(probe.Sink()))
  pipeline.run().wait_until_finish()
  counts = probe.COUNTS
  last = probe.now()
  number = case['main']
  if (counts.received != number or
      counts.received_sum != number * (number - 1) // 2 or
      counts.signals != case['signal']):
    raise SystemExit(
        '%d elements with sum %d were released, of %d; %d of %d were waited '
        'for' % (
            counts.received,
            counts.received_sum,
            number,
            counts.signals,
            case['signal']))
  wall, cpu, prism_cpu = (
      after - before for before, after in zip(counts.first, last))
  return {
      'wall_s': round(wall, 3),
      'cpu_s': round(cpu, 3),
      'prism_cpu_s': round(prism_cpu, 2),
      'peak_mb': round(
          resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000, 1),
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
