"""Reads a small unbounded source to its end, and checks what came.

Only public names are used, so that it runs on the dev wheel and on the
add-on alike. Arguments: Beam's options.
"""

import sys

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.io import unbounded_source
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

COUNT = 25


class Mark(unbounded_source.CheckpointMark):
  def __init__(self, position):
    self.position = position


class MarkCoder(beam.coders.Coder):
  def encode(self, value):
    return VarIntCoder().encode(value.position)

  def decode(self, encoded):
    return Mark(VarIntCoder().decode(encoded))

  def is_deterministic(self):
    return True


class Reader(unbounded_source.UnboundedReader):
  """Counts from where the mark says; finished once all are read."""
  def __init__(self, position):
    self.position = position

  def start(self):
    return self.advance()

  def advance(self):
    if self.position >= COUNT:
      return False
    self.position += 1
    return True

  def get_current(self):
    return self.position

  def get_current_timestamp(self):
    return Timestamp(self.position)

  def get_watermark(self):
    if self.position >= COUNT:
      return MAX_TIMESTAMP
    return Timestamp(self.position)

  def get_checkpoint_mark(self):
    return Mark(self.position)


class Source(unbounded_source.UnboundedSource):
  def split(self, desired_num_splits, options=None):
    return [self]

  def create_reader(self, options, checkpoint_mark):
    return Reader(checkpoint_mark.position if checkpoint_mark else 0)

  def get_checkpoint_mark_coder(self):
    return MarkCoder()

  def default_output_coder(self):
    return VarIntCoder()


def main(arguments):
  options = PipelineOptions(arguments, save_main_session=True, streaming=True)
  with beam.Pipeline(options=options) as pipeline:
    numbers = pipeline | unbounded_source.ReadFromUnboundedSource(
        Source(), poll_interval=0.1, max_records_per_bundle=10)
    assert_that(numbers, equal_to(list(range(1, COUNT + 1))))
  print(f'unbounded source good on Beam {beam.__version__}')


if __name__ == '__main__':
  main(sys.argv[1:])
