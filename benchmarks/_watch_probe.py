# Licensed under the Apache License, Version 2.0: see LICENSE.
"""What is polled in the benchmark of Watch, and what counts its outputs.

A module of its own, never `__main__`: Beam then pickles these classes by
reference, so that an in-process worker counts in this module's `COUNTS`.
Only public names of `apache_beam.io.watch` are used, so that the same file
measures any implementation of them.
"""

import time

import _unbounded_probe
import apache_beam as beam
from apache_beam import coders
from apache_beam.io import watch
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

_EPOCH = Timestamp(1729987200)


class Counts:
  """What one measured pipeline did; the process runs just one."""
  def __init__(self):
    self.polls = []  # (wall, CPU seconds) at the start of each
    self.rss_bytes = []
    self.received = 0
    self.received_sum = 0
    self.last = None
    self.children_first = 0.0
    self.children_last = 0.0


COUNTS = Counts()
# Made once, so that a poll costs no more than a slice.
OUTPUTS = []


def prepare(number):
  OUTPUTS[:] = [
      TimestampedValue('item-%09d' % n, _EPOCH + n) for n in range(number)
  ]


class Poll(watch.PollFn):
  """Lists all that there is, each time: `first`, and then `more` a round."""
  def __init__(self, first, more, rounds):
    self._first = first
    self._more = more
    self._rounds = rounds

  def __call__(self, element):
    if not COUNTS.polls:
      COUNTS.children_first = _unbounded_probe.cpu_of_children()
    number = len(COUNTS.polls)
    COUNTS.polls.append((time.perf_counter(), time.process_time()))
    COUNTS.rss_bytes.append(_unbounded_probe.rss_bytes())
    outputs = tuple(OUTPUTS[:self._first + number * self._more])
    if number + 1 == self._rounds:
      return watch.PollResult.complete(outputs)
    return watch.PollResult.incomplete(outputs)

  def default_output_coder(self):
    return coders.StrUtf8Coder()


class Sink(beam.DoFn):
  """Counts and adds up what arrives, and notes when the last does."""
  def __init__(self, expected):
    self._expected = expected

  def process(self, pair):
    COUNTS.received += 1
    COUNTS.received_sum += int(pair[1][5:])
    if COUNTS.received == self._expected:
      COUNTS.last = time.perf_counter(), time.process_time()
      COUNTS.children_last = _unbounded_probe.cpu_of_children()
