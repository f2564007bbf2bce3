"""Reads of several splits, which note by whom each is read.

The folder's file `readers` has a line for each reader that began: the split,
the process, and the position.
"""

import os
import time

import apache_beam as beam
from apache_beam.coders import FastPrimitivesCoder
from apache_beam.io import unbounded_source
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from pipelines import Offsets
from pipelines import START
from pipelines import note

SPLITS = 4
RECORDS = 400


class Mark(unbounded_source.CheckpointMark):
  """How many records were read."""

  def __init__(self, position):
    self.position = position


class Source(unbounded_source.UnboundedSource):
  """('split N', 0), ('split N', 1), … of each split.

  Args:
    folder: where readers are noted.
    number: of this split; -1 is the whole.
  """

  def __init__(self, folder, number=-1):
    self.folder = folder
    self.number = number

  def split(self, desired_num_splits, options=None):
    return [Source(self.folder, number) for number in range(SPLITS)]

  def create_reader(self, options, checkpoint_mark):
    position = checkpoint_mark.position if checkpoint_mark else 0
    note(self.folder / 'readers', f'{self.number} {os.getpid()} {position}\n')
    return Reader(self, position)

  def get_checkpoint_mark_coder(self):
    return FastPrimitivesCoder()


class Reader(unbounded_source.UnboundedReader):
  """Reads a split, half of it before there is a file `gate`."""

  def __init__(self, split, position):
    self.split = split
    self.position = position

  def start(self):
    return self.advance()

  def advance(self):
    is_open = (self.split.folder / 'gate').exists()
    if self.position == (RECORDS if is_open else RECORDS // 2):
      return False
    time.sleep(0.001)
    self.position += 1
    return True

  def next_poll_delay(self):
    return 0.1

  def get_current(self):
    return f'split {self.split.number}', self.position - 1

  def get_current_timestamp(self):
    return START + self.position

  def get_watermark(self):
    if self.position == RECORDS:
      return MAX_TIMESTAMP
    return START + self.position if self.position else MIN_TIMESTAMP

  def get_checkpoint_mark(self):
    return Mark(self.position)


def splits(folder):
  return unbounded_source.ReadFromUnboundedSource(
      Source(folder), max_records_per_bundle=20)


class Quarters(Offsets):
  """Restrictions of one element."""

  def initial_restriction(self, element):
    return OffsetRange(0, SPLITS * RECORDS)

  def split(self, element, restriction):
    for begin in range(0, restriction.stop, RECORDS):
      yield OffsetRange(begin, begin + RECORDS)


class ReadQuarters(beam.DoFn):
  """Reads restrictions, and takes the name of their records from outside."""

  def __init__(self, folder):
    self.folder = folder

  @beam.DoFn.unbounded_per_element()
  def process(
      self, element, name, tracker=beam.DoFn.RestrictionParam(Quarters())):
    position = tracker.current_restriction().start
    number, first = divmod(position, RECORDS)
    note(self.folder / 'readers', f'{number} {os.getpid()} {first}\n')
    for _ in range(20):
      if not tracker.try_claim(position):
        return
      yield f'{name} {number}', position % RECORDS
      position += 1
    tracker.defer_remainder()


def slow(name):
  time.sleep(3)
  return name


def with_a_side_input(folder):
  """The splits come before the side input, and wait for it."""
  return _SideInput(folder)


class _SideInput(beam.PTransform):

  def __init__(self, folder):
    super().__init__()
    self.folder = folder

  def expand(self, pbegin):
    name = pbegin | 'Name' >> beam.Create(['split']) | beam.Map(slow)
    return (
        pbegin | beam.Impulse()
        | beam.ParDo(
            ReadQuarters(self.folder), beam.pvalue.AsSingleton(name)))
