"""Runs the examples in the docstrings of `apache_beam.io.unbounded_source`."""

import apache_beam as beam
from apache_beam.io.unbounded_source import ReadAllFromUnboundedSource
from apache_beam.io.watch import PollResult
from apache_beam.io.watch import Watch

# What is found at run time; that pipeline is made, and not run.
topics = beam.Pipeline() | beam.Create(['orders'])


def list_partitions(topic):
  return PollResult.incomplete([(0, 1)])


def PartitionSource(partition):
  return Counter()


# examples of sdks/python/apache_beam/io/unbounded_source.py

from apache_beam.io.unbounded_source import ReadFromUnboundedSource
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to
from apache_beam.utils.timestamp import MAX_TIMESTAMP

# A counter has no end, and a pipeline that has none ends no test.
COUNT = 1000


class EndingReader(CountingReader):
  def advance(self):
    return self._current < COUNT - 1 and super().advance()

  def get_watermark(self):
    at_end = self._current == COUNT - 1
    return MAX_TIMESTAMP if at_end else super().get_watermark()


class EndingCounter(Counter):
  def create_reader(self, options, checkpoint_mark):
    reader = super().create_reader(options, checkpoint_mark)
    reader.__class__ = EndingReader
    return reader


# Small bundles, so that marks are encoded on the way, and decoded whenever a
# reader is opened anew.
with beam.Pipeline(runner='FnApiRunner') as pipeline:
  numbers = pipeline | ReadFromUnboundedSource(
      EndingCounter(), poll_interval=0, max_records_per_bundle=30)
  assert_that(numbers, equal_to(list(range(COUNT))))

# A reader that was opened with a mark gives what follows it.
counter = Counter()
reader = counter.create_reader(None, None)
assert reader.start() and reader.get_current() == 0
assert reader.advance() and reader.get_current() == 1
coder = counter.get_checkpoint_mark_coder()
assert coder.is_deterministic()
mark = coder.decode(coder.encode(reader.get_checkpoint_mark()))
reader = counter.create_reader(None, mark)
assert reader.start() and reader.get_current() == 2
