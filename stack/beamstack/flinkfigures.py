"""The figures that tests on a Flink cluster note, and the page with them.

A test notes a line of JSON: its name, the backend, the job server, and what it
found. A full run puts its lines in the place of older ones of the same test and
moment, so it may be a part of the tests alone (`--only`).
"""

import json
import pathlib

NAME = 'flink_exact'
RELEASED = 'released'
KILLS = 'test_a_killed_task_manager'
_STATES = {'hashmap': 'heap', 'rocksdb': 'RocksDB'}
_OTHERS = {
    'test_a_killed_job_manager':
        'JobManager killed, the job started from its last checkpoint',
    'test_a_savepoint_at_another_parallelism':
        'stopped with a savepoint, resumed at another parallelism',
    'test_polls_under_a_kill':
        'TaskManager killed: Watch, Watch with a cursor, MatchContinuously',
    'test_redis_streams_under_a_kill':
        'TaskManager killed: two Redis Streams, 6,000 entries',
    'test_a_side_input_survives_a_killed_task_manager':
        'TaskManager killed: keys that are a side input',
    'test_ordered_under_a_kill':
        'TaskManager killed: ordered processing, 20,500 elements',
    'test_no_start_stalls':
        'starts of a job, without finishing bundles before a snapshot',
}


_FIRST_AND_LAST = {'first': -1.0, 'twice': float('inf')}


def _key(line: dict) -> tuple:
  # The last is what a test that runs several times does otherwise each time.
  case = line.get('moment', line.get('before', 0))
  return (
      line['server'], line['backend'], line['test'],
      _FIRST_AND_LAST.get(case, case))


def read(path: pathlib.Path) -> list[dict]:
  if not path.exists():
    return []
  return [json.loads(line) for line in path.read_text().splitlines()]


def keep(results: pathlib.Path, new: list[dict]) -> None:
  """Puts figures into the results, and writes the page anew.

  Args:
    results: the folder of the results.
    new: what tests noted. What is there of the same tests and moments goes.
  """
  path = results / f'{NAME}.jsonl'
  gone = {_key(line) for line in new}
  lines = [line for line in read(path) if _key(line) not in gone] + new
  lines.sort(key=_key)
  path.write_text(''.join(json.dumps(line) + '\n' for line in lines))
  (results / f'{NAME}.md').write_text(page(lines))


def _yes(value: bool) -> str:
  return 'yes' if value else '**no**'


def page(lines: list[dict]) -> str:
  """The page, in Markdown."""
  told = [
      '# Flink: exact, whatever is killed', '',
      'Written by `./beamstack test --full`, or `./beamstack flink --test '
      '--full`; each line is in `' + NAME + '.jsonl`. A cluster of two '
      'TaskManagers, a checkpoint each second. Exact: count, sum and sum of '
      'squares of each key are those of the source.', ''
  ]
  kills = [line for line in lines if line['test'] == KILLS]
  if kills:
    told += [
        '## A TaskManager is killed', '',
        'A source of two splits, one busy, one that waits. `kill -9` comes '
        'before the first checkpoint, so many seconds after one, or twice. '
        'Restored is the record at which the busy split goes on, finalized '
        'the one up to which it was acknowledged before. In *early* are the '
        'readers of both splits that began below what was acknowledged; in '
        '*seconds* those from the kill until it reads again.', '',
        '| job server | state | killed | exact | finalized | restored | early '
        '| seconds |', '|---|---|---|---|---:|---:|---:|---:|'
    ]
    told += [
        f'| {k["server"]} | {_STATES[k["backend"]]} | {k["moment"]} '
        f'| {_yes(k["exact"])} | {k["finalized"]:,} | {k["restored"]:,} '
        f'| {k["early"]} | {k["seconds"]} |' for k in kills
    ]
    told.append('')
    for who, state in sorted({(k['server'], k['backend']) for k in kills}):
      of = [k for k in kills if (k['server'], k['backend']) == (who, state)]
      exact = sum(k['exact'] for k in of)
      early = sum(k['early'] > 0 for k in of)
      told.append(
          f'{who}, {_STATES[state]}: {exact} of {len(of)} exact, {early} '
          'with something acknowledged that was read again.')
    told.append('')
  others = [line for line in lines if line['test'] in _OTHERS]
  if others:
    told += [
        '## The rest', '', '| job server | state | what | found |',
        '|---|---|---|---|'
    ]
    told += [
        f'| {o["server"]} | {_STATES[o["backend"]]} | {_OTHERS[o["test"]]} '
        f'| {_found(o)} |' for o in others
    ]
    told.append('')
  return '\n'.join(told)


def _found(line: dict) -> str:
  if 'stalled' in line:
    return f'{line["stalled"]} of {line["starts"]} stalled'
  words = 'exact' if line['exact'] else '**not exact**'
  if 'before' in line:
    words = f'{line["before"]} to {line["after"]}: {words}'
  if line.get('early'):
    words += ', acknowledged early'
  if 'acknowledged' in line:
    words += f'; {line["acknowledged"]:,} were acknowledged at the kill'
  return words
