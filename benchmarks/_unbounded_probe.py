# Licensed under the Apache License, Version 2.0: see LICENSE.
"""The source, the sink and the ceiling of the unbounded benchmark.

A module of its own, never `__main__`: Beam then pickles these classes by
reference, so that an in-process worker counts in this module's `COUNTS`.

Only public names of `apache_beam.io.unbounded_source` are used, so that the
same file measures any implementation of them.
"""

import gc
import os
import time

import apache_beam as beam
from apache_beam import coders
from apache_beam.io import unbounded_source
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

_EPOCH = Timestamp(1729987200)
_PAGE_BYTES = os.sysconf('SC_PAGE_SIZE')


class Counts:
  """What one measured pipeline did; the process runs just one."""
  def __init__(self):
    self.readers = 0
    self.marks = 0
    self.finalized = 0
    self.closed = 0
    self.received = 0
    self.received_sum = 0
    self.first = None
    self.last = None
    self.rss_bytes = {}


COUNTS = Counts()


def cpu_of_children() -> float:
  """CPU seconds used so far by child processes: Prism, or none."""
  ticks = 0
  for name in os.listdir('/proc'):
    if name.isdigit():
      fields = process_fields(name)
      if fields and fields[1] == str(os.getpid()):
        ticks += int(fields[11]) + int(fields[12])
  return ticks / os.sysconf('SC_CLK_TCK')


def process_fields(pid: str):
  """Fields of /proc/PID/stat from the state on, or None if it is gone."""
  try:
    with open('/proc/%s/stat' % pid) as stat:
      return stat.read().rpartition(')')[2].split()
  except OSError:
    return None


def _start_clocks():
  # Looking through /proc takes milliseconds: outside the span, both times.
  children = cpu_of_children()
  return time.perf_counter(), time.process_time(), children


def _stop_clocks():
  wall, cpu = time.perf_counter(), time.process_time()
  return wall, cpu, cpu_of_children()


def rss_bytes() -> int:
  with open('/proc/self/statm') as statm:
    return int(statm.read().split()[1]) * _PAGE_BYTES


class Mark(unbounded_source.CheckpointMark):
  """The last record that was read."""
  def __init__(self, last):
    self.last = last

  def finalize_checkpoint(self):
    COUNTS.finalized += 1

  def __eq__(self, other):
    return isinstance(other, Mark) and other.last == self.last

  def __hash__(self):
    return hash(self.last)


class Reader(unbounded_source.UnboundedReader):
  """Counts up in memory: as close to no work as a reader can be."""
  def __init__(self, records, following, new_timestamps):
    self._records = records
    self._at = following - 1
    self._new = new_timestamps
    self._shared = _EPOCH + max(self._at, 0) // 1000
    self._done = False
    COUNTS.readers += 1

  def start(self):
    if COUNTS.first is None:
      COUNTS.first = _start_clocks()
    return self.advance()

  def advance(self):
    at = self._at + 1
    if at >= self._records:
      self._done = True
      return False
    self._at = at
    if at % 1000 == 0:
      self._shared = _EPOCH + at // 1000
    return True

  def get_current(self):
    return self._at

  def get_current_timestamp(self):
    return _EPOCH + self._at if self._new else self._shared

  def get_watermark(self):
    if self._done:
      return MAX_TIMESTAMP
    return _EPOCH + max(self._at, 0) if self._new else self._shared

  def get_checkpoint_mark(self):
    COUNTS.marks += 1
    return Mark(self._at)

  def close(self):
    COUNTS.closed += 1


class Source(unbounded_source.UnboundedSource):
  """`records` whole numbers from 0 on, in one split."""
  def __init__(self, records, new_timestamps):
    self._records = records
    self._new = new_timestamps

  def split(self, desired_num_splits, options=None):
    return [self]

  def create_reader(self, options, checkpoint_mark):
    following = 0 if checkpoint_mark is None else checkpoint_mark.last + 1
    return Reader(self._records, following, self._new)

  def get_checkpoint_mark_coder(self):
    return coders.PickleCoder()


class Ceiling(beam.DoFn):
  """Drives the same reader without any wrapper: what a runner can take.

  It never checkpoints, so the ceiling does not depend on the cap.
  """
  def __init__(self, records, new_timestamps):
    self._records = records
    self._new = new_timestamps

  def process(self, unused_element):
    reader = Reader(self._records, 0, self._new)
    windows = (GlobalWindow(), )
    more = reader.start()
    while more:
      yield WindowedValue(
          reader.get_current(), reader.get_current_timestamp(), windows)
      more = reader.advance()
    reader.close()


class Sink(beam.DoFn):
  """Counts and adds up what arrives, and stops the clocks at the last."""
  def __init__(self, records):
    self._last = records - 1

  def process(self, element):
    COUNTS.received += 1
    COUNTS.received_sum += element
    if element == self._last:
      COUNTS.last = _stop_clocks()


class SamplingSink(Sink):
  """Also notes the process's memory when one of `sample_at` arrives."""
  def __init__(self, records, sample_at):
    super().__init__(records)
    self._sample_at = frozenset(sample_at)

  def process(self, element):
    super().process(element)
    if element in self._sample_at:
      # Garbage that only waits for its turn is no leak.
      gc.collect()
      COUNTS.rss_bytes[element] = rss_bytes()
