"""A run replaces the figures of its own tests; a miss is seen on the page."""

from beamstack import flinkfigures


def kill(moment, **changes):
  return {
      'test': flinkfigures.KILLS, 'backend': 'hashmap', 'server': 'ours',
      'moment': moment, 'exact': True, 'early': 0, 'restored': 1200,
      'finalized': 1100, 'seconds': 9.5, **changes
  }


def stall(stalled, server='ours'):
  return {
      'test': 'test_no_start_stalls', 'backend': 'hashmap', 'server': server,
      'starts': 10, 'stalled': stalled
  }


def test_a_run_replaces_what_it_measured_and_nothing_else(tmp_path):
  flinkfigures.keep(tmp_path, [kill(0.5), kill('first'), stall(2, 'released')])
  flinkfigures.keep(
      tmp_path, [kill('twice', exact=False), kill(0.5, early=3), stall(0)])
  lines = flinkfigures.read(tmp_path / 'flink_exact.jsonl')
  assert [line.get('moment', line.get('stalled')) for line in lines
         ] == ['first', 0.5, 'twice', 0, 2]
  assert [line['early'] for line in lines[:3]] == [0, 3, 0]
  page = (tmp_path / 'flink_exact.md').read_text()
  assert '| ours | heap | twice | **no** | 1,100 | 1,200 | 0 | 9.5 |' in page
  assert '2 of 10 stalled' in page and '0 of 10 stalled' in page


def test_the_page_sums_up():
  page = flinkfigures.page([kill(0.5), kill(0.25, early=1, exact=False)])
  assert 'ours, heap: 1 of 2 exact, 1 with something acknowledged' in page


def test_an_empty_run_leaves_a_page_without_tables(tmp_path):
  flinkfigures.keep(tmp_path, [])
  assert '|' not in (tmp_path / 'flink_exact.md').read_text()


def test_a_rescale_and_redis_say_what_they_did():
  common = {'backend': 'rocksdb', 'server': 'ours', 'exact': True}
  page = flinkfigures.page([
      {
          'test': 'test_a_savepoint_at_another_parallelism', 'before': 1,
          'after': 2, 'early': 1, **common
      },
      {
          'test': 'test_redis_streams_under_a_kill', 'acknowledged': 1500,
          **common
      },
  ])
  assert '1 to 2: exact, acknowledged early' in page
  assert 'exact; 1,500 were acknowledged at the kill' in page
