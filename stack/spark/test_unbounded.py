"""Spark: what never ends is refused before it runs; what ends may stream.

Purpose: a stage on Spark gives its output when all of its input is read. A
pipeline that reads without an end would run for ever and give nothing.
"""

import time

import apache_beam as beam
import pytest
from apache_beam.io import unbounded_source
from apache_beam.io import watch
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.unbounded_source import Records
from apache_beam.testing.unbounded_source import ScriptedSource

import pipelines


@pytest.mark.parametrize('more', [(), ('--streaming', )])
def test_reads_without_an_end_are_refused(job_server, tmp_path, more):
  """Each is named, and what to do; neither the source nor Spark is begun."""
  pipeline = beam.Pipeline(
      options=PipelineOptions(job_server.options(*more)))
  _ = (
      pipeline
      | 'Orders' >> unbounded_source.ReadFromUnboundedSource(
          ScriptedSource([Records(1)]))
      | beam.ParDo(pipelines.Write(tmp_path)))
  _ = (
      pipeline
      | beam.Create(['a'])
      | 'New files' >> watch.Watch(pipelines.Poll(tmp_path), 1)
      | 'Write too' >> beam.ParDo(pipelines.Write(tmp_path)))
  with pytest.raises(RuntimeError) as caught:
    pipelines.finish(pipeline, 60)
  message = str(caught.value)
  for words in (
      'Orders/', 'New files/', 'PrismRunner', 'FlinkRunner',
      'unbounded_sources_end'):
    assert words in message
  assert 'Create' not in message
  assert not list(tmp_path.iterdir())


def test_a_bounded_read_that_pauses_streams(job_server, tmp_path):
  """A bounded splittable DoFn is resumed in a streaming job as well."""
  result = pipelines.read_in_a_stream(
      tmp_path, [('a', 3, 0.5)], job_server.options('--streaming'))
  end = time.monotonic() + 120
  while len(pipelines.Notes(tmp_path, 'results').all()) < 30:
    assert time.monotonic() < end, result.state
    time.sleep(0.2)
  result.cancel()
  found = [n for _, n in pipelines.Notes(tmp_path, 'results').all()]
  assert sorted(found) == list(range(30))
