"""Spark, batch: what a bundle leaves undone is resumed until all is done.

Purpose: a splittable DoFn that checkpoints itself gives all that it has, each
record once; it is resumed no earlier than it asked; and only what a task that
succeeded has read is finalized.
"""

import apache_beam as beam
import pytest
from apache_beam.io import unbounded_source
from apache_beam.io import watch
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.unbounded_source import End
from apache_beam.testing.unbounded_source import Idle
from apache_beam.testing.unbounded_source import Records
from apache_beam.testing.unbounded_source import ScriptedSource
from apache_beam.transforms import window

import pipelines

SOURCES_END = '--experiments=unbounded_sources_end'
DELAY = 0.7


def events(folder, kind):
  return [e[1:] for e in pipelines.Notes(folder).all() if e[0] == kind]


def test_residuals_are_resumed_when_they_asked(job_server, tmp_path):
  """Two reads of one task: neither is resumed early, or waits for the other.

  How: while the one pauses for long, the other goes on, and each record of
  both arrives once.
  """
  pipelines.read_and_count(
      tmp_path, [('slow', 2, 6.0), ('quick', 4, DELAY)],
      job_server.options())
  assert pipelines.results(tmp_path) == {
      'slow': pipelines.expected(2 * pipelines.ReadInParts.RECORDS),
      'quick': pipelines.expected(4 * pipelines.ReadInParts.RECORDS),
  }
  read = events(tmp_path, 'read')
  assert [(name, part) for name, part, _ in read if name == 'quick'] == [
      ('quick', n) for n in range(4)
  ]
  quick = [at for name, _, at in read if name == 'quick']
  slow = [at for name, _, at in read if name == 'slow']
  assert all(b - a >= DELAY for a, b in zip(quick, quick[1:])), quick
  assert len(slow) == 2 and slow[1] - slow[0] >= 6.0
  assert quick[-1] < slow[1], 'the quick one waited for the slow one'


def test_many_residuals_without_a_delay(job_server, tmp_path):
  """What asks to be resumed at once is, as often as it asks."""
  pipelines.read_and_count(
      tmp_path, [('a', 60, 0), ('b', 3, 0)],
      job_server.options())
  assert pipelines.results(tmp_path) == {
      'a': pipelines.expected(60 * pipelines.ReadInParts.RECORDS),
      'b': pipelines.expected(3 * pipelines.ReadInParts.RECORDS),
  }


def test_what_a_failed_task_read_is_not_finalized(job_server, tmp_path):
  """A task that fails in mid-read finalizes nothing; the next one all, once.

  And that after the last part was read: until then it could have failed too.
  """
  pipelines.read_and_count(
      tmp_path, [('a', 4, 0.1)], job_server.options(),
      fails_at=2)
  assert pipelines.results(tmp_path) == {
      'a': pipelines.expected(4 * pipelines.ReadInParts.RECORDS)
  }
  read = events(tmp_path, 'read')
  assert [part for _, part, _ in read] == [0, 1, 2, 0, 1, 2, 3]
  finalized = events(tmp_path, 'finalized')
  assert sorted(part for _, part, _ in finalized) == [0, 1, 2, 3]
  assert min(at for *_, at in finalized) > read[-1][-1]


def test_a_job_that_fails_finalizes_nothing(job_server, tmp_path):
  """A read that fails each time fails the job, with its own words."""
  with pytest.raises(RuntimeError, match='fails once'):
    pipelines.read_and_count(
        tmp_path, [('a', 4, 0)], job_server.options(),
        fails_at=2, always=True)
  assert len(events(tmp_path, 'read')) == 4 * 3, 'Spark tries a task four times'
  assert not events(tmp_path, 'finalized')
  assert not pipelines.results(tmp_path)


def test_an_unbounded_source_that_ends(job_server, tmp_path):
  """A source that pauses is read to its end, and acknowledged."""
  source = ScriptedSource([
      Records(*range(40)), Idle(2), Records(*range(40, 70)), Idle(1), End()
  ])
  pipeline = beam.Pipeline(
      options=PipelineOptions(job_server.options(SOURCES_END)))
  _ = (
      pipeline
      | unbounded_source.ReadFromUnboundedSource(
          source, poll_interval=0.3, max_records_per_bundle=7)
      | beam.WindowInto(window.FixedWindows(1000))
      | beam.Map(lambda n: ('number', n)).with_output_types(tuple[str, int])
      | beam.ParDo(pipelines.Count())
      | beam.CombinePerKey(max).with_output_types(tuple[str, tuple])
      | beam.ParDo(pipelines.Write(tmp_path)))
  pipelines.finish(pipeline)
  assert pipelines.results(tmp_path) == {'number': pipelines.expected(70)}
  assert source.acknowledged() == list(range(70))


def test_a_watch_that_ends(job_server, tmp_path):
  """Watch polls in its interval until its end, and gives each name once."""
  pipeline = beam.Pipeline(
      options=PipelineOptions(job_server.options(SOURCES_END)))
  _ = (
      pipeline
      | beam.Create(['a'])
      | watch.Watch(
          pipelines.Poll(tmp_path), poll_interval=DELAY,
          termination=watch.after_iterations(4))
      | beam.ParDo(pipelines.Write(tmp_path)))
  pipelines.finish(pipeline)
  assert pipelines.Notes(tmp_path, 'results').all() == [
      ['a', f'a-{n}'] for n in range(4)
  ]
  polls = [at for at, in events(tmp_path, 'polled')]
  assert len(polls) == 4
  assert all(b - a >= DELAY for a, b in zip(polls, polls[1:])), polls
