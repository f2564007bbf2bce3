# Licensed under the Apache License, Version 2.0: see LICENSE.
"""One measured pipeline, in a process of its own: started by unbounded.py.

usage: _unbounded_case.py CASE      (a JSON object: see unbounded.Case)

Prints one line, `RESULT {json}`, if what arrived is exactly what was sent;
anything else that it prints is for people. It ends itself and Prism when its
standard input ends, that is, when the driver is gone.
"""

import importlib.metadata
import json
import logging
import os
import platform
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
import _unbounded_probe as probe
import apache_beam as beam
from apache_beam.io import unbounded_source
from apache_beam.options.pipeline_options import PipelineOptions
# pylint: enable=wrong-import-position


def pipeline_options(case):
  if case['runner'] == 'prism':
    return PipelineOptions([
        '--runner=PrismRunner',
        '--prism_location=' + case['prism'],
        # Upstream ends a job that takes longer, by five minutes if not told.
        '--job_server_timeout=3600',
        '--environment_type=LOOPBACK',
    ])
  return PipelineOptions(['--runner=FnApiRunner'])


def never_finalize():
  """Makes this process's FnApiRunner one that never finalizes a bundle.

  Its worker is the stock one and is asked everything that it is asked
  otherwise, but for FinalizeBundle, which is answered in its stead. To the
  worker this is a runner that commits and never says so.
  """
  from apache_beam.portability import python_urns
  from apache_beam.portability.api import beam_fn_api_pb2
  from apache_beam.runners.portability.fn_api_runner import worker_handlers

  @worker_handlers.WorkerHandler.register_environment(
      python_urns.EMBEDDED_PYTHON, None)
  class NeverFinalizing(worker_handlers.EmbeddedWorkerHandler):
    def push(self, request):
      if request.WhichOneof('request') == 'finalize_bundle':
        return worker_handlers.ControlFuture(
            request.instruction_id,
            beam_fn_api_pb2.InstructionResponse(
                finalize_bundle=beam_fn_api_pb2.FinalizeBundleResponse()))
      return super().push(request)

  return NeverFinalizing


def run(case):
  """Runs the pipeline of `case` and returns what it did."""
  records = case['records']
  new_timestamps = case['timestamps'] == 'new'
  if case['runner'] == 'never-finalizing':
    never_finalize()
  pipeline = beam.Pipeline(options=pipeline_options(case))
  if case['what'] == 'ceiling':
    values = (
        pipeline
        | beam.Create([None], reshuffle=False)
        | beam.ParDo(probe.Ceiling(records, new_timestamps)))
  else:
    values = pipeline | unbounded_source.ReadFromUnboundedSource(
        probe.Source(records, new_timestamps),
        poll_interval=0,
        max_records_per_bundle=case['cap'],
        # Never: the record cap alone shall cut the bundles.
        max_read_time_seconds=1e6)
  sample_at = {
      checkpoints * case['cap'] - 1: checkpoints
      for checkpoints in case['sample_at']
  }
  values | beam.ParDo(  # pylint: disable=expression-not-assigned
      probe.SamplingSink(records, sample_at)
      if sample_at else probe.Sink(records))
  pipeline.run().wait_until_finish()

  counts = probe.COUNTS
  if (counts.received != records or
      counts.received_sum != records * (records - 1) // 2):
    raise SystemExit(
        '%d records with sum %d arrived, but %d with sum %d were sent' % (
            counts.received,
            counts.received_sum,
            records,
            records * (records - 1) // 2))
  wall, cpu, prism_cpu = (
      last - first for first, last in zip(counts.first, counts.last))
  return {
      'wall_s': round(wall, 4),
      'cpu_s': round(cpu, 4),
      'prism_cpu_s': round(prism_cpu, 2),
      'records_per_wall_s': round(records / wall),
      'records_per_cpu_s': round(records / cpu),
      'readers': counts.readers,
      'marks': counts.marks,
      'finalized': counts.finalized,
      'closed': counts.closed,
      'rss_mb': {
          str(sample_at[element]): round(size / 1e6, 2)
          for element,
          size in sorted(counts.rss_bytes.items())
      },
      'beam': importlib.metadata.version('apache-beam'),
      'python': platform.python_version(),
  }


def children():
  me = str(os.getpid())
  for name in os.listdir('/proc'):
    if name.isdigit():
      fields = probe.process_fields(name)
      # A zombie has ended already and waits only to be asked about.
      if fields and fields[1] == me and fields[0] != 'Z':
        yield int(name)


def stop_children(patience_s=3):
  """Stops Prism, which PrismRunner started as our child."""
  for kind in (signal.SIGTERM, signal.SIGKILL):
    for pid in children():
      try:
        os.kill(pid, kind)
      except ProcessLookupError:
        # It ended between the look and the signal.
        pass
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
      if not list(children()):
        return
      time.sleep(0.02)


def end_with_driver():
  """Waits for the driver to go away, however it went, and then ends all."""
  # Not sys.stdin: its lock would be held when this process wants to exit.
  while os.read(0, 1):
    pass
  stop_children(1)
  os._exit(3)


def main():
  # Prism and the worker narrate at INFO; that would be part of the figures.
  logging.getLogger().setLevel(logging.WARNING)
  threading.Thread(target=end_with_driver, daemon=True).start()
  try:
    result = run(json.loads(sys.argv[1]))
  finally:
    stop_children()
  print('RESULT ' + json.dumps(result), flush=True)
  # Not sys.exit: Beam's exit hooks wait a second for a Prism already gone.
  os._exit(0)


if __name__ == '__main__':
  main()
