"""Flink: Watch, MatchContinuously and Redis Streams stay exact when killed.

Purpose: what a poll found before a worker was killed is output once, what
comes later is found, and a broker gives again what was not acknowledged.
"""

import time

from exact_reads import LISTED
import pipelines
import pytest

FILES = 40
ENTRIES = 3000


def has(running, **counts):
  results = running.results()
  return all(
      results.get(key, [0])[0] >= count for key, count in counts.items())


def kill(running):
  """Kills the TaskManager that works; waits until Flink has gone on."""
  running.cluster.kill('task-manager')
  running.wait(
      'the job to be restored', lambda: running.cluster.rest().checkpoints(
          running.job)['latest']['restored'], 120)


def settled(running):
  """What was counted, after some polls more: nothing comes twice."""
  time.sleep(3)
  return running.results()


def test_polls_under_a_kill(run, tmp_path, tell):
  """A watch of all keys, one with a cursor, and a folder of files."""
  (tmp_path / 'files').mkdir()

  def add(numbers):
    for number in numbers:
      (tmp_path / 'files' / str(number)).write_text('')

  add(range(FILES // 2))
  running = run('exact_reads.polled', more=['--count_at_once'])
  running.wait(
      'polls', lambda: has(running, keys=100, cursor=100, files=FILES // 2),
      120)
  running.wait_for_checkpoint()
  # Behind the checkpoint: these polls are repeated, and find more.
  time.sleep(0.6)
  kill(running)
  add(range(FILES // 2, FILES))
  (tmp_path / 'gate').touch()
  running.wait(
      'all of it', lambda: has(
          running, keys=LISTED, cursor=LISTED, files=FILES), 120)
  wanted = {
      'keys': pipelines.expected(LISTED),
      'cursor': pipelines.expected(LISTED),
      'files': pipelines.expected(FILES),
  }
  found = settled(running)
  tell(exact=found == wanted)
  assert found == wanted


def test_redis_streams_under_a_kill(run, tmp_path, tell):
  """No entry is lost, so none was acknowledged early; none comes twice."""
  testing = pytest.importorskip('apache_beam.io._redis_testing')
  if not testing.PROGRAM:
    pytest.skip(testing.HOW)
  server = testing.RedisServer()
  try:
    client = server.client()
    (tmp_path / 'server').write_text(server.url)

    def add(stream, numbers):
      pipe = client.pipeline(transaction=False)
      for number in numbers:
        pipe.xadd(stream, {'n': number})
      pipe.execute()

    def acknowledged(stream):
      group, = client.xinfo_groups(stream)
      return (group['entries-read'] or 0) - group['pending']

    running = run('exact_reads.redis', more=['--count_at_once'])
    # A trickle: bundles are short, and each checkpoint has some.
    for start in range(0, ENTRIES // 2, 10):
      add('a', range(start, start + 10))
      if start % 50 == 0:
        time.sleep(0.1)
    running.wait('entries that are read', lambda: has(running, a=500), 120)
    running.wait('an acknowledgement', lambda: acknowledged('a') > 0, 120)
    running.wait_for_checkpoint()
    add('a', range(ENTRIES // 2, ENTRIES))
    time.sleep(0.3)
    kill(running)
    before = acknowledged('a')
    add('b', range(ENTRIES))
    running.wait(
        'all entries', lambda: has(running, a=ENTRIES, b=ENTRIES), 120)
    found = settled(running)
    wanted = dict.fromkeys('ab', pipelines.expected(ENTRIES))
    running.wait(
        'all to be acknowledged',
        lambda: acknowledged('a') == acknowledged('b') == ENTRIES, 60)
    tell(exact=found == wanted, acknowledged=before)
    assert 0 < before < ENTRIES
    assert found == wanted
  finally:
    server.stop()
