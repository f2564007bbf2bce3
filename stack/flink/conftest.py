"""A Flink cluster for the tests of this folder, and pipelines on it."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

# pylint: disable=wrong-import-position
from beamstack import cluster as clusters
from beamstack import flinkconf
from beamstack import processes
import running


def _start(cluster, job_server='FLINK_JOB_SERVER'):
  """Starts all that does not run: the whole, or what a test killed."""
  cluster.start(
      _SETTINGS,
      pathlib.Path(os.environ['FLINK_DISTRIBUTION']),
      pathlib.Path(os.environ[job_server]))


_SETTINGS = flinkconf.Settings(
    backend=os.environ.get('FLINK_BACKEND', 'hashmap'),
    port=clusters.free_port(),
    job_port=clusters.free_port())


@pytest.fixture(scope='session')
def cluster(tmp_path_factory):
  """Two TaskManagers of one slot, and the job server."""
  for variable in ('FLINK_DISTRIBUTION', 'FLINK_JOB_SERVER',
                   'FLINK_RELEASED_JOB_SERVER'):
    if not os.environ.get(variable):
      pytest.skip(
          f'{variable} is not set; ./beamstack flink --test sets it, and gets '
          'what it names (Java: apt-get install openjdk-17-jdk)')
  folder = os.environ.get('FLINK_CLUSTER')
  made = clusters.Cluster(
      pathlib.Path(folder or tmp_path_factory.mktemp('cluster')))
  try:
    _start(made)
    yield made
  finally:
    made.stop()
  assert not made.living()


@pytest.fixture
def cluster_up(cluster):
  """Starts again what was killed."""
  return lambda: _start(cluster)


@pytest.fixture
def released(cluster):
  """Jobs are those of the released job server while this is entered."""

  def change(job_server):
    cluster.kill('job-server')
    _start(cluster, job_server)

  @contextlib.contextmanager
  def entered():
    change('FLINK_RELEASED_JOB_SERVER')
    try:
      yield
    finally:
      change('FLINK_JOB_SERVER')

  return entered


@pytest.fixture(scope='session')
def pool(cluster, tmp_path_factory):
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
        env=running.ENVIRONMENT,
        start_new_session=True)
  cluster.adopt('worker-pool', child.pid)
  try:
    yield port
  finally:
    processes.end(child)


@pytest.fixture
def run(cluster, pool, tmp_path):
  """Runs a pipeline, and ends it with the test."""
  started = []

  def start(read, **options):
    started.append(running.Running(cluster, pool, read, tmp_path, **options))
    return started[-1]

  yield start
  # A test may have killed what they are ended by.
  _start(cluster)
  for one in started:
    one.end()


@pytest.fixture
def in_threads(cluster):
  """Options of a pipeline that ends, with workers in this process.

  Its sources end the job, which they do if there are no checkpoints; a job that
  fails is not tried again.
  """

  def options(*more):
    told = [
        option for option in flinkconf.pipeline_options(cluster.settings())
        if not option.startswith('--checkpointing_interval=')
    ]
    return PipelineOptions(
        [*told, '--parallelism=1', '--number_of_execution_retries=0', *more])

  return options


@pytest.fixture
def tell(request):
  """Notes the figures of a test, where FLINK_FIGURES says, and prints them."""

  def note(**figures):
    line = json.dumps({
        'test': request.node.originalname,
        'backend': _SETTINGS.backend,
        'server': os.environ.get('FLINK_SERVER', 'ours'),
        **figures
    })
    print(line)
    path = os.environ.get('FLINK_FIGURES')
    if path:
      with open(path, 'a', encoding='utf-8') as notes:
        notes.write(line + '\n')

  return note
