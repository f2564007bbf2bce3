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
  if not os.environ.get('SPARK_CLASSPATH'):
    pytest.skip('./beamstack spark --test --full sets SPARK_CLASSPATH')
  folder = tmp_path / 'cluster'
  folder.mkdir()
  made = standalone.Standalone(
      folder, os.environ['SPARK_CLASSPATH'].split(':'))
  try:
    yield made
  finally:
    made.end()


def test_a_worker_is_killed_in_mid_read(spark, tmp_path):
  """All records are there once; what is finalized was read as often.

  How: reads that pause are spread over two workers; when both have read and
  none is done, one is killed, with its executor.
  """
  job_server = JobServer(tmp_path, spark.url, *standalone.DRIVER)
  killed = threading.Event()

  def kill():
    events = pipelines.Notes(tmp_path)
    while len(events.all()) < 2 * len(NAMES):
      time.sleep(0.05)
    spark.kill('worker-1')
    killed.set()

  killer = threading.Thread(target=kill, daemon=True)
  try:
    job_server.wait()
    killer.start()
    pipelines.read_and_count(
        tmp_path, [(name, PARTS, 1.0) for name in NAMES],
        job_server.options(), spread=True)
  finally:
    job_server.end()
  assert killed.is_set()
  assert 'Lost executor' in job_server.log.read_text()
  count = PARTS * pipelines.ReadInParts.RECORDS
  assert pipelines.results(tmp_path) == {
      name: pipelines.expected(count) for name in NAMES
  }
  read, finalized = (
      [tuple(e[1:3]) for e in pipelines.Notes(tmp_path).all() if e[0] == kind]
      for kind in ('read', 'finalized'))
  assert len(read) > len(NAMES) * PARTS, 'nothing was read anew'
  assert set(finalized) == {(n, p) for n in NAMES for p in range(PARTS)}
  for one in set(finalized):
    assert finalized.count(one) <= read.count(one)
