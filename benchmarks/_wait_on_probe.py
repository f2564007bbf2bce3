# Licensed under the Apache License, Version 2.0: see LICENSE.
"""What waits, and what is waited for, in the benchmark of WaitOn.

A module of its own, never `__main__`: Beam then pickles these classes by
reference, so that an in-process worker counts in this module's `COUNTS`.
"""

import threading
import time

import _unbounded_probe
import apache_beam as beam
from apache_beam.transforms.window import TimestampedValue


class Counts:
  """What one measured pipeline did; the process runs just one."""
  def __init__(self):
    self.first = None  # wall, CPU of this process, CPU of Prism
    self.received = 0
    self.received_sum = 0
    self.signals = 0


COUNTS = Counts()
# Prism has several bundles processed at once.
_LOCK = threading.Lock()


def now():
  return (
      time.perf_counter(),
      time.process_time(),
      _unbounded_probe.cpu_of_children())


class Bounded(beam.DoFn):
  """Gives as many elements as it is told, ten in each second of event time."""
  def process(self, number):
    COUNTS.first = COUNTS.first or now()
    for n in range(number):
      yield TimestampedValue(b'item-%09d' % n, n // 10)


class Unbounded(Bounded):
  """The same; nobody is told that it ends."""
  @beam.DoFn.unbounded_per_element()
  def process(self, number):
    return super().process(number)


class CountSignals(beam.DoFn):
  def start_bundle(self):
    self._count = 0

  def process(self, element):
    self._count += 1
    yield element

  def finish_bundle(self):
    with _LOCK:
      COUNTS.signals += self._count


class Sink(beam.DoFn):
  """Counts and adds up what was released."""
  def start_bundle(self):
    self._count = self._sum = 0

  def process(self, element):
    self._count += 1
    self._sum += int(element[5:])

  def finish_bundle(self):
    with _LOCK:
      COUNTS.received += self._count
      COUNTS.received_sum += self._sum
