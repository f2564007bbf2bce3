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


def test_a_worker_is_killed_in_mid_read(spark, tmp_path):
  """All records are there once, and none is acknowledged that was lost.

  How: reads that pause are spread over two workers. When all have begun, a
  worker that reads is killed, with its executor.
  """
  job_server = JobServer(tmp_path, spark.url, *standalone.DRIVER)
  before = []

  def kill():
    events = pipelines.Notes(tmp_path)
    while len({e[1] for e in events.all()}) < len(NAMES) or not spark.busy():
      time.sleep(0.1)
    spark.kill(spark.busy())
    before.extend(events.all())

  killer = threading.Thread(target=kill, daemon=True)
  try:
    job_server.wait()
    killer.start()
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
  read, finalized = (
      [tuple(e[1:3]) for e in pipelines.Notes(tmp_path).all() if e[0] == kind]
      for kind in ('read', 'finalized'))
  parts = sorted((n, p) for n in NAMES for p in range(PARTS))
  assert len(read) > len(parts), 'nothing was read anew'
  assert sorted(set(finalized)) == parts
  if not any(kind == 'finalized' for kind, *_ in before):
    assert sorted(finalized) == parts, 'a part was finalized twice'
