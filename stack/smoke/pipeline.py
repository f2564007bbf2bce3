"""A small pipeline that checks its own result. Arguments: Beam's options."""

import sys

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to


def main(arguments):
  with beam.Pipeline(options=PipelineOptions(arguments)) as pipeline:
    sums = (
        pipeline
        | beam.Create(range(10))
        | beam.Map(lambda number: (number % 2, number))
        | beam.CombinePerKey(sum))
    assert_that(sums, equal_to([(0, 20), (1, 25)]))
  print(f'pipeline good on Beam {beam.__version__}')


if __name__ == '__main__':
  main(sys.argv[1:])
