# Licensed under the Apache License, Version 2.0: see LICENSE.
"""The sources and sinks of the benchmark of Flink, and their counters.

A module of its own, never `__main__`: Beam then pickles these classes by
reference, so that a worker in this process counts in this module's `COUNTS`.
"""

import threading
import time

import apache_beam as beam
from apache_beam.coders import FastPrimitivesCoder
from apache_beam.io import unbounded_source
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.io.restriction_trackers import OffsetRestrictionTracker
from apache_beam.utils.timestamp import Duration
from apache_beam.utils.timestamp import Timestamp

_START = Timestamp(1700000000)


class Counts:
  """What the pipeline of this process did; the times are of the monotonic
  clock."""
  def __init__(self):
    self.lock = threading.Lock()
    self.marks = []
    self.polls = []
    self.readers = []
    self.received = 0


COUNTS = Counts()


class Mark(unbounded_source.CheckpointMark):
  """How many records were read."""
  def __init__(self, position):
    self.position = position

  def finalize_checkpoint(self):
    pass


class Source(unbounded_source.UnboundedSource):
  """Counts up without an end.

  Args:
    splits: into how many it is divided.
    pause: seconds that each record takes to come, without using the CPU.
  """
  def __init__(self, splits=1, pause=0.0):
    self.splits = splits
    self.pause = pause

  def split(self, desired_num_splits, options=None):
    return [Source(1, self.pause) for _ in range(self.splits)]

  def create_reader(self, options, checkpoint_mark):
    COUNTS.readers.append(time.monotonic())
    return Reader(self, checkpoint_mark.position if checkpoint_mark else 0)

  def get_checkpoint_mark_coder(self):
    return FastPrimitivesCoder()


class Reader(unbounded_source.UnboundedReader):
  """Reads a Source."""
  def __init__(self, source, position):
    self._pause = source.pause
    self._position = position

  def start(self):
    return self.advance()

  def advance(self):
    if self._pause:
      time.sleep(self._pause)
    self._position += 1
    return True

  def get_current(self):
    return self._position

  def get_current_timestamp(self):
    return _START

  def get_watermark(self):
    return _START

  def get_checkpoint_mark(self):
    COUNTS.marks.append(time.monotonic())
    return Mark(self._position)


class Receive(beam.DoFn):
  """Counts what arrives."""
  def __init__(self):
    self._count = 0

  def start_bundle(self):
    self._count = 0

  def process(self, element):
    self._count += 1
    if self._count == 100:
      self.finish_bundle()

  def finish_bundle(self):
    with COUNTS.lock:
      COUNTS.received += self._count
    self._count = 0


class _Offsets(beam.RestrictionProvider):
  """Offsets without an end in sight."""
  def initial_restriction(self, element):
    return OffsetRange(0, 10**12)

  def create_tracker(self, restriction):
    return OffsetRestrictionTracker(restriction)

  def restriction_size(self, element, restriction):
    return 1


class Deferring(beam.DoFn):
  """Has nothing, and asks to be asked again after a time."""
  def __init__(self, interval):
    self._interval = interval

  @beam.DoFn.unbounded_per_element()
  def process(self, element, tracker=beam.DoFn.RestrictionParam(_Offsets())):
    if tracker.try_claim(tracker.current_restriction().start):
      COUNTS.polls.append(time.monotonic())
      tracker.defer_remainder(Duration(self._interval))
    return ()


class Read(beam.PTransform):
  """Reads a Source, and counts what comes."""
  def __init__(self, cap, splits=1, pause=0.0):
    super().__init__()
    self._cap = cap
    self._source = Source(splits, pause)

  def expand(self, pbegin):
    return (
        pbegin
        | unbounded_source.ReadFromUnboundedSource(
            self._source, max_records_per_bundle=self._cap)
        | beam.ParDo(Receive()))


class Poll(beam.PTransform):
  """Asks and asks again."""
  def __init__(self, interval):
    super().__init__()
    self._interval = interval

  def expand(self, pbegin):
    return pbegin | beam.Impulse() | beam.ParDo(Deferring(self._interval))
