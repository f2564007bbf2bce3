"""A Flink cluster for the tests of this folder, and pipelines on it."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

# pylint: disable=wrong-import-position
from beamstack import cluster as clusters
from beamstack import flinkconf
from beamstack import flinkrest
from beamstack import processes


# A pool of workers starts them as `python`.
_ENVIRONMENT = {
    **os.environ, 'PYTHONPATH': str(HERE),
    'PATH': f'{pathlib.Path(sys.executable).parent}:{os.environ["PATH"]}'
}


class Running:
  """A pipeline that runs on a cluster."""

  def __init__(self, cluster, pool, read, folder):
    self.cluster = cluster
    self.folder = folder
    self.log = folder / 'pipeline.log'
    before = {job['jid'] for job in cluster.rest().jobs()}
    with open(self.log, 'wb') as log:
      self._child = subprocess.Popen(
          [
              sys.executable, HERE / 'pipelines.py', read, folder,
              *flinkconf.pipeline_options(cluster.settings(), pool)
          ],
          stdout=log,
          stderr=subprocess.STDOUT,
          env=_ENVIRONMENT,
          start_new_session=True)
    self.job = cluster.rest().wait(
        'the job to run', lambda rest: self._new_job(rest, before), 90)

  def _new_job(self, rest, before):
    if self._child.poll() is not None:
      pytest.fail('the pipeline ended: ' + self.log.read_text()[-2000:])
    for job in rest.jobs():
      if job['jid'] not in before and job['state'] == 'RUNNING':
        return job['jid']
    return None

  def checkpoint(self):
    """The latest completed checkpoint; None if there is none yet."""
    return self.cluster.rest().checkpoints(
        self.job)['latest']['completed']

  def results(self):
    """What was counted, by key."""
    path = self.folder / 'results.jsonl'
    if not path.exists():
      return {}
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return {key: counted for key, *counted in lines}

  def count(self, file):
    path = self.folder / file
    return path.stat().st_size if path.exists() else 0

  def wait(self, what, condition, seconds):
    """Waits for something, or until the job failed for good."""

    def met(rest):
      if rest.job(self.job)['state'] == 'FAILED':
        pytest.fail(f'the job failed, see {self.cluster.folder}')
      return condition()

    return self.cluster.rest().wait(what, met, seconds)

  def wait_for_checkpoint(self, seconds=60.0):
    """Waits for a checkpoint that was begun from now on; returns it."""
    counts = self.cluster.rest().checkpoints(self.job)['counts']
    begun = counts['total']

    def found():
      latest = self.checkpoint()
      return latest if latest and latest['id'] > begun else None

    return self.wait('a checkpoint', found, seconds)

  def end(self):
    try:
      rest = self.cluster.rest()
      if rest.job(self.job)['state'] not in flinkrest.ENDED:
        rest.cancel(self.job)
      rest.wait(
          'the job to end', lambda rest: rest.job(self.job)['state'] in
          flinkrest.ENDED, 60)
    finally:
      processes.end(self._child)


def _start(cluster):
  """Starts all that does not run: the whole, or what a test killed."""
  cluster.start(
      _SETTINGS,
      pathlib.Path(os.environ['FLINK_DISTRIBUTION']),
      pathlib.Path(os.environ['FLINK_JOB_SERVER']))


_SETTINGS = flinkconf.Settings(
    backend=os.environ.get('FLINK_BACKEND', 'hashmap'),
    port=clusters.free_port(),
    job_port=clusters.free_port())


@pytest.fixture(scope='session')
def cluster(tmp_path_factory):
  """Two TaskManagers of one slot, and the job server."""
  for variable in ('FLINK_DISTRIBUTION', 'FLINK_JOB_SERVER'):
    if not os.environ.get(variable):
      pytest.skip(
          f'{variable} is not set; ./beamstack flink --test sets it, and gets '
          'what it names (Java: apt-get install openjdk-17-jdk)')
  made = clusters.Cluster(tmp_path_factory.mktemp('cluster'))
  try:
    _start(made)
    yield made
  finally:
    made.stop()
  assert not made.living()


@pytest.fixture(scope='session')
def pool(tmp_path_factory):
  """The port of a pool of workers, each a process of its own."""
  port = clusters.free_port()
  log_path = tmp_path_factory.mktemp('pool') / 'pool.log'
  with open(log_path, 'wb') as log:
    child = subprocess.Popen(
        [
            sys.executable, '-m',
            'apache_beam.runners.worker.worker_pool_main',
            f'--service_port={port}'
        ],
        stdout=log,
        stderr=subprocess.STDOUT,
        env=_ENVIRONMENT,
        start_new_session=True)
  try:
    yield port
  finally:
    processes.end(child)


@pytest.fixture
def run(cluster, pool, tmp_path):
  """Runs a pipeline, and ends it with the test."""
  started = []

  def start(read):
    running = Running(cluster, pool, read, tmp_path)
    started.append(running)
    return running

  yield start
  for running in started:
    running.end()
  _start(cluster)
