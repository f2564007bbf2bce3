"""Beam's job server for Spark, for the tests of this folder."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

# pylint: disable=wrong-import-position
from beamstack import cluster
from beamstack import processes

START_SECONDS = 90.0
# Two tasks at a time, each of which is tried four times, as on a cluster.
LOCAL = 'local[2,4]'
# It lives for a minute: nothing here that makes it quick in the long run.
_JAVA = (
    '-Xmx1g', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1',
    '-Dspark.ui.enabled=false')
# The jobs of a local master share one Spark.
_REUSE = '-Dbeam.spark.test.reuseSparkContext=true'


class JobServer:
  """A job server, a process of its own.

  Attributes:
    port: where it takes jobs.
    log: what it said; with a local master, what Spark said as well.
  """

  def __init__(self, folder: pathlib.Path, master: str, *options: str):
    self.port = cluster.free_port()
    self.log = folder / 'job-server.log'
    with open(self.log, 'wb') as log:
      self._child = subprocess.Popen(
          [
              processes.find_tool('java'), *_JAVA, *options, '-jar',
              os.environ['SPARK_JOB_SERVER'],
              f'--spark-master-url={master}', '--job-host=localhost',
              f'--job-port={self.port}', '--artifact-port=0',
              '--expansion-port=0', f'--artifacts-dir={folder / "artifacts"}'
          ],
          stdin=subprocess.DEVNULL,
          stdout=log,
          stderr=subprocess.STDOUT,
          cwd=folder,
          start_new_session=True)

  def wait(self):
    """Waits until it takes jobs."""
    end = time.monotonic() + START_SECONDS
    while not cluster.is_open(self.port):
      if self._child.poll() is not None or time.monotonic() > end:
        pytest.fail('no job server: ' + self.log.read_text()[-2000:])
      time.sleep(0.1)

  def options(self, *more: str) -> list[str]:
    """What a pipeline needs to run on it."""
    return [
        '--runner=PortableRunner', f'--job_endpoint=localhost:{self.port}',
        '--environment_type=LOOPBACK', *more
    ]

  def end(self):
    processes.end(self._child)


@pytest.fixture(scope='session')
def job_server(tmp_path_factory):
  """A job server with a Spark inside."""
  if not os.environ.get('SPARK_JOB_SERVER'):
    pytest.skip(
        'SPARK_JOB_SERVER is not set; ./beamstack spark --test sets it, and '
        'builds what it names (Java: apt-get install openjdk-17-jdk)')
  made = JobServer(tmp_path_factory.mktemp('job-server'), LOCAL, _REUSE)
  try:
    made.wait()
    yield made
  finally:
    made.end()
