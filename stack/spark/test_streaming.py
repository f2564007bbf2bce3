"""Spark, streaming: reads go on from one micro-batch to the next.

Purpose: a stream reads what never ends, each record once; its windows close as
watermarks pass, and not before; it ends when its sources do, and at once when
it is cancelled; and only what has been processed to its end is finalized.
"""

import time

import apache_beam as beam
import pytest
from apache_beam.io import watch
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.unbounded_source import Crash
from apache_beam.testing.unbounded_source import End
from apache_beam.testing.unbounded_source import Idle
from apache_beam.testing.unbounded_source import Records
from apache_beam.testing.unbounded_source import ScriptedSource
from apache_beam.transforms.window import TimestampedValue

import pipelines

DELAY = 1.2


@pytest.fixture(name='options')
def _options(job_server, tmp_path):
  return job_server.options(
      '--streaming', f'--checkpoint_dir={tmp_path / "checkpoints"}')


def numbers(*values):
  return Records(*(TimestampedValue(n, n) for n in values))


def written(folder, name):
  return pipelines.Notes(folder, name).all()


def events(folder, kind):
  return [e[1:] for e in pipelines.Notes(folder).all() if e[0] == kind]


def wait_until(condition, result, seconds=120):
  end = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < end, f'{result.state} after {seconds} s'
    time.sleep(0.2)


def test_each_record_once_until_the_sources_end(options, tmp_path):
  """Two splits, of which one crashes in mid-read, give each record once.

  How: two stages read what the splits give, so a micro-batch that Spark would
  read once for each of them, or once more after the crash, would show. The job
  ends by itself, and all is acknowledged. Much is left to read after the crash,
  which ends the workers that are kept: those that follow are no task's own.
  """
  first = ScriptedSource([
      numbers(*range(0, 50, 2)), Crash(), numbers(*range(50, 200, 2)), Idle(1),
      End()
  ])
  second = ScriptedSource([numbers(*range(1, 200, 2)), End()])
  result = pipelines.sum_by_window(
      tmp_path, pipelines.Several(first, second), 20, options,
      poll_interval=0.3, max_records_per_bundle=15)
  pipelines.wait_for(result)
  assert sorted(n for n, in written(tmp_path, 'records')) == list(range(200))
  assert pipelines.results(tmp_path) == pipelines.sums(range(200), 20)
  assert first.acknowledged() == list(range(0, 200, 2))
  assert second.acknowledged() == list(range(1, 200, 2))


def test_windows_close_while_the_sources_are_open(options, tmp_path):
  """A window closes when the slowest split has passed it, and no sooner.

  How: neither split ends. The one has read all of its records, the other waits
  before the 25, so the window of 20 has to stay open. Then the job is
  cancelled, and reads no more.
  """
  done = ScriptedSource([numbers(*range(0, 30, 2))])
  waits = ScriptedSource([numbers(*range(1, 25, 2)), Idle(100_000),
                          numbers(25, 27, 29)])
  result = pipelines.sum_by_window(
      tmp_path, pipelines.Several(done, waits), 10, options,
      poll_interval=0.2)
  closed = {
      name: value for name, value in pipelines.sums(range(30), 10).items()
      if not name.endswith(' 20')
  }
  try:
    wait_until(lambda: len(pipelines.results(tmp_path)) >= 4, result)
    time.sleep(3)
    assert pipelines.results(tmp_path) == closed
    assert sorted(n for n, in written(tmp_path, 'records')) == sorted(
        [*range(0, 30, 2), *range(1, 25, 2)])
    assert result.state == 'RUNNING'
  finally:
    result.cancel()
  with pytest.raises(RuntimeError, match='CANCELLED'):
    result.wait_until_finish(duration=60_000)


def test_delays_are_kept(options, tmp_path):
  """No read is resumed early, or waits for another; the job ends by itself.

  How: more reads pause than Spark has cores, and none keeps one meanwhile. The
  worker is kept, though: it sets up the DoFn for each core, and not anew for
  each micro-batch.
  """
  pipeline = beam.Pipeline(options=PipelineOptions(options))
  _ = (
      pipeline
      | beam.Create([('slow', 2, 9.0), ('a', 3, DELAY), ('b', 3, DELAY),
                     ('c', 3, DELAY), ('d', 3, DELAY)])
      | beam.ParDo(pipelines.ReadInParts(tmp_path))
      | beam.Reshuffle()
      | beam.ParDo(pipelines.Write(tmp_path)))
  pipelines.finish(pipeline)
  read = {}
  for name, part, at in events(tmp_path, 'read'):
    read.setdefault(name, []).append((part, at))
  for name, parts in read.items():
    times = [at for _, at in parts]
    delay = 9.0 if name == 'slow' else DELAY
    assert [part for part, _ in parts] == list(range(len(parts))), name
    assert all(b - a >= delay for a, b in zip(times, times[1:])), read
  assert all(read[name][2][1] < read['slow'][1][1] for name in 'abcd'), read
  assert len(written(tmp_path, 'setups')) <= 3
  found = sorted(map(tuple, written(tmp_path, 'results')))
  assert found == sorted([('slow', n) for n in range(20)] +
                         [(name, n) for name in 'abcd' for n in range(30)])
  assert sorted((name, part) for name, part, _ in events(
      tmp_path, 'finalized')) == sorted(
          (name, part) for name, parts in read.items() for part, _ in parts)


class Fails(beam.DoFn):
  """Fails at the second part of a read, each time, when that is behind it."""

  def process(self, element):
    if element[1] >= pipelines.ReadInParts.RECORDS:
      time.sleep(1)
      raise ValueError('cannot write')
    yield element


def test_what_is_not_processed_is_not_finalized(options, tmp_path):
  """A job that fails behind a read says why; what was lost is not finalized."""
  pipeline = beam.Pipeline(options=PipelineOptions(options))
  _ = (
      pipeline
      | beam.Create([('a', 3, 6.0)], reshuffle=False)
      | beam.ParDo(pipelines.ReadInParts(tmp_path))
      | beam.Reshuffle()
      | beam.ParDo(Fails()))
  with pytest.raises(RuntimeError, match='cannot write'):
    pipelines.finish(pipeline)
  assert [part for _, part, _ in events(tmp_path, 'finalized')] == [0]


def test_a_watch_behind_a_shuffle(options, tmp_path):
  """Watch polls in its interval until its end, and gives each name once."""
  pipeline = beam.Pipeline(options=PipelineOptions(options))
  _ = (
      pipeline
      | beam.Create(['a'])
      | watch.Watch(
          pipelines.Poll(tmp_path), poll_interval=DELAY,
          termination=watch.after_iterations(3))
      | beam.Reshuffle()
      | beam.ParDo(pipelines.Write(tmp_path)))
  pipelines.finish(pipeline)
  assert sorted(written(tmp_path, 'results')) == [
      ['a', f'a-{n}'] for n in range(3)
  ]
  polls = [at for at, in events(tmp_path, 'polled')]
  assert len(polls) == 3
  assert all(b - a >= DELAY for a, b in zip(polls, polls[1:])), polls
