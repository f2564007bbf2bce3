"""Reads that tell by which coder their restriction came to them.

Each gives (its name and that of the coder, 0), (…, 1), … and ends.
"""

import apache_beam as beam
from apache_beam.coders import Coder
from apache_beam.io.restriction_trackers import OffsetRange
from pipelines import Offsets

COUNTS = {'few': 10, 'many': 500}


class RangeCoder(Coder):
  """Ranges that it reads have its name."""

  def __init__(self, name):
    self.name = name

  def encode(self, value):
    return f'{value.start} {value.stop}'.encode()

  def decode(self, encoded):
    found = OffsetRange(*map(int, encoded.split()))
    found.by = self.name
    return found

  def is_deterministic(self):
    return True


class Ranges(Offsets):
  """Of one read."""

  def __init__(self, name):
    self.name = name

  def initial_restriction(self, element):
    return OffsetRange(0, COUNTS[self.name])

  def restriction_coder(self):
    return RangeCoder(self.name)


class ReadFew(beam.DoFn):

  def process(
      self, element, tracker=beam.DoFn.RestrictionParam(Ranges('few'))):
    return read('few', tracker)


class ReadMany(beam.DoFn):

  def process(
      self, element, tracker=beam.DoFn.RestrictionParam(Ranges('many'))):
    return read('many', tracker)


def read(name, tracker):
  restriction = tracker.current_restriction()
  position = restriction.start
  while tracker.try_claim(position):
    yield f'{name} by {restriction.by}', position
    position += 1


class Both(beam.PTransform):
  """The two reads, of one PCollection or of one each."""

  def __init__(self, together):
    super().__init__()
    self.together = together

  def expand(self, pbegin):
    one = pbegin | 'One' >> beam.Impulse()
    other = one if self.together else pbegin | 'Other' >> beam.Impulse()
    return (
        one | beam.ParDo(ReadFew()),
        other | beam.ParDo(ReadMany())) | beam.Flatten()


def of_one(folder):
  return Both(True)


def of_two(folder):
  return Both(False)
