# Licensed under the Apache License, Version 2.0: see LICENSE.
"""The pipeline of the Redis Streams benchmark.

A module of its own, never `__main__`: Beam then pickles these classes by
reference, so that an in-process worker counts in this module's `TALLIES`.
"""

import apache_beam as beam
from apache_beam.io import _redis_testing
from apache_beam.io.unbounded_source import ReadFromUnboundedSource
from apache_beam.runners.portability import fn_api_runner

TALLIES = []


class Source(_redis_testing.EndingSource):
  """Starts the clock when it is first read."""
  def create_reader(self, options, checkpoint_mark):
    TALLIES[0].start()
    return super().create_reader(options, checkpoint_mark)


class Sink(beam.DoFn):
  def process(self, entry):
    TALLIES[0].take(entry.fields)


def run(request, stream, group, tally):
  TALLIES.append(tally)
  source = Source(
      'redis://127.0.0.1:%d/0' % request['port'],
      stream,
      group,
      batch_size=request['count'])
  with beam.Pipeline(runner=fn_api_runner.FnApiRunner()) as p:
    _ = (
        p
        | ReadFromUnboundedSource(
            source, poll_interval=0, max_records_per_bundle=request['cap'])
        | beam.ParDo(Sink()))
