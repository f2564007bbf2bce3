"""Spark: a worker dies in mid-job, and the job ends with exact results.

Purpose: what was resumed on a machine that is gone is read anew on another, and
counted once.
"""

import os
import threading
import time

import pytest

import pipelines
import standalone
from conftest import JobServer

PARTS = 6
NAMES = 'abcdefgh'


@pytest.fixture(name='spark')
def _spark(tmp_path):
  if not os.environ.get('SPARK_FULL'):
    pytest.skip('it takes minutes; ./beamstack spark --test --full runs it')
  folder = tmp_path / 'cluster'
  folder.mkdir()
  made = standalone.Standalone(
      folder, os.environ['SPARK_JOB_SERVER'])
  try:
    yield made
  finally:
    made.end()


def kill_when_all_have_begun(spark, folder, before):
  """Kills a worker that reads, with its executor, in a thread of its own.

  Args:
    spark: the cluster.
    folder: what is read notes itself here.
    before: a list, to which the events are added that were before the kill.
  """
  events = pipelines.Notes(folder)

  def kill():
    while (len({e[1] for e in events.all()}) < len(NAMES) or
           not spark.busy()):
      time.sleep(0.05)
    spark.kill(spark.busy())
    before.extend(events.all())

  threading.Thread(target=kill, daemon=True).start()


def parts_of(folder, kind):
  return [
      tuple(e[1:3]) for e in pipelines.Notes(folder).all() if e[0] == kind
  ]


def test_a_worker_is_killed_in_mid_read(spark, tmp_path):
  """All records are there once, and none is acknowledged that was lost.

  How: reads that pause are spread over two workers. When all have begun, a
  worker that reads is killed, with its executor.
  """
  job_server = JobServer(tmp_path, spark.url, *standalone.DRIVER)
  before = []
  try:
    job_server.wait()
    kill_when_all_have_begun(spark, tmp_path, before)
    pipelines.read_and_count(
        tmp_path, [(name, PARTS, 1.0) for name in NAMES],
        job_server.options(), spread=True)
  finally:
    job_server.end()
  assert 'Lost executor' in job_server.log.read_text()
  count = PARTS * pipelines.ReadInParts.RECORDS
  assert pipelines.results(tmp_path) == {
      name: pipelines.expected(count) for name in NAMES
  }
  read = parts_of(tmp_path, 'read')
  finalized = parts_of(tmp_path, 'finalized')
  parts = sorted((n, p) for n in NAMES for p in range(PARTS))
  assert len(read) > len(parts), 'nothing was read anew'
  assert sorted(set(finalized)) == parts
  if not any(kind == 'finalized' for kind, *_ in before):
    assert sorted(finalized) == parts, 'a part was finalized twice'


def test_a_worker_is_killed_as_a_stream_reads(spark, tmp_path):
  """A stream goes on without it: all records are there once, in state as well.

  How: as above. What was read before the kill is grouped by key when all has
  been read, so state that was on the worker is needed later.
  """
  job_server = JobServer(tmp_path, spark.url, *standalone.DRIVER)
  before = []
  try:
    job_server.wait()
    kill_when_all_have_begun(spark, tmp_path, before)
    pipelines.read_and_group(
        tmp_path, [(name, PARTS, 1.0) for name in NAMES],
        job_server.options(
            '--streaming', f'--checkpoint_dir={tmp_path / "checkpoints"}'),
        part_seconds=0.2)
  finally:
    job_server.end()
  assert 'Lost executor' in job_server.log.read_text()
  count = PARTS * pipelines.ReadInParts.RECORDS
  assert pipelines.results(tmp_path) == {
      name: pipelines.expected(count) for name in NAMES
  }
  parts = sorted((n, p) for n in NAMES for p in range(PARTS))
  assert sorted(set(parts_of(tmp_path, 'read'))) == parts
  finalized = parts_of(tmp_path, 'finalized')
  assert len(finalized) == len(set(finalized)), 'a part was finalized twice'
  assert {(n, PARTS - 1) for n in NAMES} <= set(finalized) <= set(parts)
