# Licensed under the Apache License, Version 2.0: see LICENSE.
"""One run of the benchmark of Flink, in a process of its own.

Gets a JSON object as its argument: what to measure, and the folder of a cluster
that runs. The pipeline's workers are threads of this process. Prints the
figures as `RESULT {json}`.
"""

from importlib import metadata
import json
import pathlib
import statistics
import sys
import threading
import time

sys.path.insert(
    0, str(pathlib.Path(__file__).resolve().parents[1] / 'stack'))

# pylint: disable=wrong-import-position
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from beamstack import flinkconf
from beamstack import flinkrest
from beamstack.cluster import Cluster
import _flink_probe as probe
from _flink_probe import COUNTS
# pylint: enable=wrong-import-position

_START_SECONDS = 180
# A gap is the median of so many.
_GAPS = 50


class Job:
  """A pipeline that runs."""
  def __init__(self, cluster, transform, parallelism=1):
    self.cluster = cluster
    self.rest = cluster.rest()
    before = {job['jid'] for job in self.rest.jobs()}
    pipeline = beam.Pipeline(
        options=PipelineOptions([
            *flinkconf.pipeline_options(cluster.settings()),
            '--parallelism=%d' % parallelism
        ]))
    _ = pipeline | transform
    # It returns when the job has ended.
    threading.Thread(target=self._run, args=(pipeline, ), daemon=True).start()
    self.job = self.rest.wait(
        'the job to run', lambda rest: next((
            job['jid'] for job in rest.jobs()
            if job['jid'] not in before and job['state'] == 'RUNNING'), None),
        _START_SECONDS)

  @staticmethod
  def _run(pipeline):
    try:
      pipeline.run().wait_until_finish()
    except Exception as e:  # pylint: disable=broad-except
      print('the pipeline ended: %.500s' % e, file=sys.stderr)

  def wait(self, what, condition, seconds=_START_SECONDS):
    return self.rest.wait(what, lambda _: condition(), seconds)

  def checkpoint_size(self):
    """Bytes of a checkpoint that begins from now on."""
    # Not by ids: Flink counts those that it could not begin, too.
    begun = time.time() * 1000

    def later():
      latest = self.rest.checkpoints(self.job)['latest']['completed']
      return latest if latest and latest['trigger_timestamp'] >= begun else None

    return self.wait('a checkpoint', later)['state_size']

  def end(self):
    self.rest.cancel(self.job)
    self.wait(
        'the job to end',
        lambda: self.rest.job(self.job)['state'] in flinkrest.ENDED)


def gaps(times):
  return [b - a for a, b in zip(times, times[1:])]


def measure_state(cluster, request):
  """Checkpoint size and gap per self-checkpoint, early and late."""
  job = Job(cluster, probe.Read(cap=20))
  figures = {}
  for name in ('early', 'late'):
    at = request[name]
    job.wait(
        '%d bundles' % at, lambda at=at: len(COUNTS.marks) > at + _GAPS,
        request['seconds'])
    some = gaps(COUNTS.marks[at:at + _GAPS + 1])
    figures[name + '_gap_s'] = statistics.median(some)
    figures[name + '_bytes'] = job.checkpoint_size()
  job.end()
  return figures


def measure_poll(cluster, request):
  """The gap between polls that ask for an interval."""
  job = Job(cluster, probe.Poll(request['interval']))
  job.wait('polls', lambda: len(COUNTS.polls) > 2)
  begin = len(COUNTS.polls)
  time.sleep(request['seconds'])
  some = gaps(COUNTS.polls[begin:])
  job.end()
  return {'polls': len(some) + 1, 'gap_s': statistics.median(some)}


def measure_rate(cluster, request):
  """Records per second, by the clock and by this process's CPU time."""
  job = Job(
      cluster,
      probe.Read(
          request['cap'], request.get('splits', 1), request.get('pause', 0)),
      request.get('parallelism', 1))
  job.wait('records', lambda: COUNTS.received)
  time.sleep(request['warm_up'])

  def now():
    with COUNTS.lock:
      return time.monotonic(), time.process_time(), COUNTS.received

  before = now()
  time.sleep(request['seconds'])
  wall, cpu, count = (b - a for a, b in zip(before, now()))
  job.end()
  return {'records': count, 'per_s': count / wall, 'per_cpu_s': count / cpu}


def measure_recovery(cluster, request):
  """Seconds from a kill -9 to the first reader after it."""
  job = Job(cluster, probe.Read(cap=1000, pause=0.001))
  job.wait('records', lambda: COUNTS.received)
  job.checkpoint_size()
  before = len(COUNTS.readers)
  begin = time.monotonic()
  cluster.kill('task-manager')
  job.wait('a reader', lambda: len(COUNTS.readers) > before)
  figures = {'recovery_s': COUNTS.readers[before] - begin}
  job.end()
  return figures


MEASURES = {
    'state': measure_state,
    'poll': measure_poll,
    'rate': measure_rate,
    'recovery': measure_recovery,
}


def main():
  request = json.loads(sys.argv[1])
  cluster = Cluster(pathlib.Path(request['folder']))
  figures = MEASURES[request['what']](cluster, request)
  figures['beam'] = metadata.version('apache-beam')
  print('RESULT ' + json.dumps(figures), flush=True)


if __name__ == '__main__':
  main()
