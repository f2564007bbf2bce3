"""Spark: what a stream cannot do is refused before it runs.

Purpose: Spark has the state and the side inputs of a stage for one micro-batch.
A pipeline that needs them for longer would give wrong results, or fail minutes
into the job.
"""

import apache_beam as beam
import pytest
from apache_beam.io import unbounded_source
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.unbounded_source import Records
from apache_beam.testing.unbounded_source import ScriptedSource

import pipelines


def orders(pipeline):
  return (
      pipeline
      | 'Orders' >> unbounded_source.ReadFromUnboundedSource(
          ScriptedSource([Records(1)]))
      | beam.Map(lambda n: ('a', n)).with_output_types(tuple[str, int]))


def refused(pipeline, folder):
  """Runs a pipeline, which is refused; returns what is said then."""
  with pytest.raises(RuntimeError) as caught:
    pipelines.finish(pipeline, 60)
  message = str(caught.value)
  for words in ('PrismRunner', 'FlinkRunner', 'unbounded_sources_end'):
    assert words in message
  assert 'Orders' not in message and 'Create' not in message
  assert not list(folder.iterdir()), 'something ran'
  return message


def test_state_is_refused(job_server, tmp_path):
  """The ParDo is named, and what to do; neither source nor Spark is begun."""
  pipeline = beam.Pipeline(
      options=PipelineOptions(job_server.options()))
  _ = (
      orders(pipeline)
      | 'Count orders' >> beam.ParDo(pipelines.Count())
      | beam.ParDo(pipelines.Write(tmp_path)))
  message = refused(pipeline, tmp_path)
  assert 'no state or timers: Count orders' in message
  assert 'side inputs:' not in message


@pytest.mark.parametrize('unbounded', [False, True])
def test_side_inputs_are_refused(job_server, tmp_path, unbounded):
  """They are as well, also in a stream of what is bounded."""
  options = job_server.options(*([] if unbounded else ['--streaming']))
  pipeline = beam.Pipeline(options=PipelineOptions(options))
  numbers = orders(pipeline) if unbounded else pipeline | beam.Create([1])
  _ = (
      numbers
      | 'Add rates' >> beam.Map(
          lambda _, rates: rates,
          rates=beam.pvalue.AsList(pipeline | 'Rates' >> beam.Create([1])))
      | beam.ParDo(pipelines.Write(tmp_path)))
  message = refused(pipeline, tmp_path)
  assert 'no side inputs: Add rates' in message
  assert 'state or timers:' not in message
