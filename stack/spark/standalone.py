"""A Spark of a master and two workers on this machine, each a process."""

import os
import pathlib
import signal
import subprocess
import time

from beamstack import cluster
from beamstack import processes
from beamstack import sparkconf

START_SECONDS = 120.0
_MASTER = 'org.apache.spark.deploy.master.Master'
_WORKER = 'org.apache.spark.deploy.worker.Worker'
WORKERS = ('worker-1', 'worker-2')
# Of the driver, which lives in the job server.
DRIVER = (
    '-Dspark.driver.host=127.0.0.1', '-Dspark.driver.bindAddress=127.0.0.1',
    '-Dspark.executor.memory=700m', '-Dspark.executor.cores=1')


class Standalone:
  """Starts it; a worker has one core, and so runs one executor with one task.

  Args:
    folder: for its logs, and what its executors keep.
    jar: the job server, which has a Spark inside. Executors have it as their
      class path: what a released Spark brings is older than Beam takes.
  """

  def __init__(self, folder: pathlib.Path, jar: str):
    self._folder = folder
    self._children: dict[str, subprocess.Popen] = {}
    (folder / 'home' / 'jars').mkdir(parents=True)
    (folder / 'home' / 'jars' / 'job-server.jar').symlink_to(jar)
    try:
      self._start_all()
    except BaseException:
      # Nobody has this yet who could end what did start.
      self.end()
      raise

  def _start_all(self):
    folder = self._folder
    port = cluster.free_port()
    self.url = f'spark://127.0.0.1:{port}'
    self._start(
        'master', _MASTER, '--host', '127.0.0.1', '--port', str(port),
        '--webui-port', '0')
    self._wait('master', 'I have been elected leader')
    for name in WORKERS:
      self._start(
          name, _WORKER, '--host', '127.0.0.1', '--cores', '1', '--memory',
          '1g', '--webui-port', '0', '--work-dir', str(folder / name),
          self.url)
    for name in WORKERS:
      self._wait(name, 'Successfully registered with master')

  def log(self, name: str) -> str:
    return (self._folder / f'{name}.log').read_text()

  def _start(self, name, main, *arguments):
    home = self._folder / 'home'
    with open(self._folder / f'{name}.log', 'wb') as log:
      self._children[name] = subprocess.Popen(
          [
              processes.find_tool('java'), '-Xmx400m', '-XX:+UseSerialGC',
              *sparkconf.JAVA_OPTIONS, '-cp', f'{home}/jars/*', main,
              *arguments
          ],
          stdin=subprocess.DEVNULL,
          stdout=log,
          stderr=subprocess.STDOUT,
          cwd=self._folder,
          env={
              **os.environ, 'SPARK_HOME': str(home),
              # What workers start executors by, where Spark was not built.
              'SPARK_SCALA_VERSION': '2.12'
          },
          start_new_session=True)

  def _wait(self, name, words):
    end = time.monotonic() + START_SECONDS
    while words not in self.log(name):
      if self._children[name].poll() is not None or time.monotonic() > end:
        raise AssertionError(f'no {name}: {self.log(name)[-2000:]}')
      time.sleep(0.1)

  def busy(self) -> str:
    """A worker whose executor runs a task; empty if there is none."""
    for name in WORKERS:
      said = ''.join(
          path.read_text()
          for path in (self._folder / name).glob('*/*/stderr'))
      if said.count('Running task') > said.count('Finished task'):
        return name
    return ''

  def kill(self, name: str) -> None:
    """Kills a worker and its executor as a machine that dies does (-9)."""
    child = self._children.pop(name)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()

  def end(self) -> None:
    for child in self._children.values():
      processes.end(child)
