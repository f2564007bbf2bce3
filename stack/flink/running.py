"""A pipeline that runs on a cluster, and what it did so far."""

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from beamstack import flinkconf
from beamstack import flinkrest
from beamstack import processes

FULL = bool(os.environ.get('FLINK_FULL'))
full_only = pytest.mark.skipif(not FULL, reason='takes long, see --full')
HERE = pathlib.Path(__file__).resolve().parent
# A pool of workers starts them as `python`.
ENVIRONMENT = {
    **os.environ, 'PYTHONPATH': str(HERE),
    'PATH': f'{pathlib.Path(sys.executable).parent}:{os.environ["PATH"]}'
}
_CHECKPOINTS = '--checkpointing_interval='
_FINISHES = '--finish_bundle_before_checkpointing'


class Running:
  """A pipeline that runs on a cluster.

  Args:
    cluster: where.
    pool: the port of a pool of workers.
    read: what pipelines.py is to run.
    folder: where it notes what it does.
    parallelism: of the job.
    restore: the path of a checkpoint or savepoint to go on from.
    finishes: whether bundles are finished before a snapshot is taken.
    checkpoints: whether Flink takes any by itself.
    more: options of pipelines.py.
  """

  def __init__(
      self, cluster, pool, read, folder, *, parallelism=1, restore='',
      finishes=True, checkpoints=True, more=()):
    self.cluster = cluster
    self.folder = folder
    number = len(list(folder.glob('pipeline-*.log')))
    self.log = folder / f'pipeline-{number}.log'
    options = flinkconf.pipeline_options(cluster.settings(), pool)
    options += [f'--parallelism={parallelism}']
    if restore:
      options += [f'--savepoint_path={restore}']
    if not checkpoints:
      options = [o for o in options if not o.startswith(_CHECKPOINTS)]
    before = {job['jid'] for job in cluster.rest().jobs()}
    with open(self.log, 'wb') as log:
      self._child = subprocess.Popen(
          [
              sys.executable, HERE / 'pipelines.py', read, folder, *more,
              *(o for o in options if finishes or o != _FINISHES)
          ],
          stdout=log,
          stderr=subprocess.STDOUT,
          env=ENVIRONMENT,
          start_new_session=True)
    try:
      self.job = cluster.rest().wait(
          'the job to run', lambda rest: self._new_job(rest, before), 120)
    except BaseException:
      processes.end(self._child)
      raise

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
    # Not by ids: Flink counts those that it could not begin, too.
    begun = time.time() * 1000

    def found():
      latest = self.checkpoint()
      return latest if latest and latest['trigger_timestamp'] >= begun else None

    return self.wait('a checkpoint', found, seconds)

  def forget(self):
    """Ends the process that submitted the job, which is lost."""
    processes.end(self._child)

  def end(self):
    """Cancels the job, if it still runs, and waits for its end."""
    try:
      rest = self.cluster.rest()
      if self.job in {job['jid'] for job in rest.jobs()}:
        if rest.job(self.job)['state'] not in flinkrest.ENDED:
          rest.cancel(self.job)
        rest.wait(
            'the job to end', lambda rest: rest.job(self.job)['state'] in
            flinkrest.ENDED, 60)
    finally:
      processes.end(self._child)
