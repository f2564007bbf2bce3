# Licensed under the Apache License, Version 2.0: see LICENSE.
"""One measured watch, in a process of its own: started by watch.py.

usage: _watch_case.py CASE      (a JSON object: see watch.Case)

Prints one line, `RESULT {json}`, if each output arrived once; anything else
that it prints is for people.
"""

import importlib.metadata
import json
import logging
import os
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
import _unbounded_case
import _watch_probe as probe
import apache_beam as beam
from apache_beam.io import watch
# pylint: enable=wrong-import-position


def note_state_sizes():
  """The sizes of all states that are encoded from now on."""
  from apache_beam.io import _watch_restriction
  sizes = []
  encode = _watch_restriction.RestrictionCoder.encode

  def noted(self, value):
    encoded = encode(self, value)
    sizes.append(len(encoded))
    return encoded

  _watch_restriction.RestrictionCoder.encode = noted
  return sizes


def run(case):
  """Runs the pipeline of `case` and returns what it did."""
  number = case['first'] + case['more'] * (case['rounds'] - 1)
  sizes = note_state_sizes() if case['what'] == 'ours' else []
  probe.prepare(number)
  more = {'timestamp_cursor': True} if case['mode'] == 'cursor' else {}
  pipeline = beam.Pipeline(options=_unbounded_case.pipeline_options(case))
  _ = (
      pipeline
      | beam.Create(['in'], reshuffle=False)
      | watch.Watch(
          probe.Poll(case['first'], case['more'], case['rounds']), 0, **more)
      | beam.ParDo(probe.Sink(number)))
  pipeline.run().wait_until_finish()
  counts = probe.COUNTS
  if (counts.received != number or
      counts.received_sum != number * (number - 1) // 2 or
      len(counts.polls) != case['rounds']):
    raise SystemExit(
        '%d outputs with sum %d arrived from %d polls, but %d from %d were '
        'listed' % (
            counts.received,
            counts.received_sum,
            len(counts.polls),
            number,
            case['rounds']))
  ends = counts.polls + [counts.last]
  rounds = [
      tuple(after - before
            for before, after in zip(begin, end))
      for begin, end in zip(ends, ends[1:])
  ]
  return {
      'wall_s': round(ends[-1][0] - ends[0][0], 3),
      'cpu_s': round(ends[-1][1] - ends[0][1], 3),
      'prism_cpu_s': round(counts.children_last - counts.children_first, 2),
      'listings': sum(
          case['first'] + n * case['more'] for n in range(case['rounds'])),
      'outputs': number,
      'rounds': [[round(wall, 4), round(cpu, 4)] for wall, cpu in rounds],
      'rss_mb': [round(size / 1e6, 1) for size in counts.rss_bytes],
      'state_bytes': max(sizes, default=0),
      'beam': importlib.metadata.version('apache-beam'),
  }


def main():
  # Prism and the worker narrate at INFO; that would be part of the figures.
  logging.getLogger().setLevel(logging.WARNING)
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
