# Licensed under the Apache License, Version 2.0: see LICENSE.
"""The sources and DoFns of the benchmark of Prism, and what they note.

A module of its own, never `__main__`: Beam then pickles these classes by
reference, so that an in-process worker notes in this module's `NOTES`.
"""

import collections
import os
import threading
import time

import _unbounded_probe
import apache_beam as beam
from apache_beam import coders
from apache_beam.io import unbounded_source
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.io.restriction_trackers import OffsetRestrictionTracker
from apache_beam.transforms import userstate
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.utils.timestamp import Duration
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

_EPOCH = Timestamp(1729987200)
_PAGE_BYTES = os.sysconf('SC_PAGE_SIZE')


class Notes:
  """What one measured pipeline did; the process runs just one."""
  def __init__(self):
    self.begin = None
    self.polls = []
    self.given = {}  # When, by source and record.
    self.seen = collections.defaultdict(list)  # When, by consumer and record.
    self.received = 0
    self.received_sum = 0


NOTES = Notes()
_LOCK = threading.Lock()


def begin() -> float:
  """When the first poll of any source was made."""
  with _LOCK:
    if NOTES.begin is None:
      NOTES.begin = time.monotonic()
    return NOTES.begin


class Mark(unbounded_source.CheckpointMark):
  """How many records were given."""
  def __init__(self, given):
    self.given = given

  def __eq__(self, other):
    return isinstance(other, Mark) and other.given == self.given

  def __hash__(self):
    return hash(self.given)


class Trickle(unbounded_source.UnboundedSource):
  """One record every few seconds, for some seconds; its watermark stands.

  Within `pause`, two times, there are none, and it wants to be asked only
  every ten seconds.
  """
  def __init__(self, name, every, seconds, pause=(0, 0)):
    self.name = name
    self.every = every
    self.seconds = seconds
    self.pause = pause

  def split(self, desired_num_splits, options=None):
    return [self]

  def create_reader(self, options, checkpoint_mark):
    return _TrickleReader(
        self, checkpoint_mark.given if checkpoint_mark else 0)

  def get_checkpoint_mark_coder(self):
    return coders.PickleCoder()

  def due(self, record) -> float:
    """When a record is due, in seconds from the first poll on."""
    at = (record + 1) * self.every
    return at if at < self.pause[0] else at + self.pause[1] - self.pause[0]


class _TrickleReader(unbounded_source.UnboundedReader):
  def __init__(self, source, given):
    self._source = source
    self._given = given
    self._ended = False

  def start(self):
    return self.advance()

  def advance(self):
    now = time.monotonic() - begin()
    source = self._source
    due = source.due(self._given)
    if due <= now and due < source.seconds:
      with _LOCK:
        NOTES.given.setdefault((source.name, self._given), []).append(
            time.monotonic())
      self._given += 1
      return True
    with _LOCK:
      NOTES.polls.append((source.name, time.monotonic()))
    self._ended = now >= source.seconds
    return False

  def get_current(self):
    return self._source.name, self._given - 1

  def get_current_timestamp(self):
    return _EPOCH

  def get_watermark(self):
    return MAX_TIMESTAMP if self._ended else _EPOCH

  def get_checkpoint_mark(self):
    return Mark(self._given)

  def next_poll_delay(self):
    first, last = self._source.pause
    now = time.monotonic() - begin()
    return min(10.0, last - now) if first <= now < last - 0.1 else None

  def close(self):
    pass


class _Unending(OffsetRestrictionTracker):
  def is_bounded(self):
    return False


class _Once(RestrictionProvider):
  """One position, which is claimed at the end."""
  def initial_restriction(self, element):
    return OffsetRange(0, 1)

  def create_tracker(self, restriction):
    return _Unending(restriction)

  def restriction_size(self, element, restriction):
    return restriction.size()

  def split(self, element, restriction):
    yield restriction


class Asked(beam.DoFn):
  """Asks to be asked again after some seconds, until others have passed."""
  def __init__(self, after, seconds):
    self._after = after
    self._seconds = seconds

  @beam.DoFn.unbounded_per_element()
  def process(
      self, unused_element, tracker=beam.DoFn.RestrictionParam(_Once())):
    if time.monotonic() - begin() < self._seconds:
      NOTES.polls.append(('asked', time.monotonic()))
      tracker.defer_remainder(Duration(self._after))
    else:
      tracker.try_claim(0)
    yield from ()


class Note(beam.DoFn):
  """Notes when a record arrived."""
  def __init__(self, consumer):
    self._consumer = consumer

  def process(self, record, *unused_side):
    with _LOCK:
      NOTES.seen[self._consumer, *record].append(time.monotonic())


class NoteWithState(Note):
  """So does this, and counts in keyed state."""
  COUNT = userstate.CombiningValueStateSpec('count', sum)

  def process(self, record, count=beam.DoFn.StateParam(COUNT)):
    count.add(1)
    super().process(record)


class NoteGroup(Note):
  """And this, of grouped records."""
  def process(self, group):
    for at in group[1]:
      super().process((group[0], at))


class Numbers(beam.DoFn):
  """Pairs of one of 100 keys and a number, `number` of them."""
  def __init__(self, number):
    self._number = number

  def process(self, unused_element):
    for n in range(self._number):
      yield 'key%02d' % (n % 100), n


class Sum(beam.DoFn):
  """Counts and adds up numbers."""
  def process(self, number):
    NOTES.received += 1
    NOTES.received_sum += number


class SumGroup(beam.DoFn):
  """Counts and adds up the numbers of a group."""
  def process(self, group):
    for number in group[1]:
      NOTES.received += 1
      NOTES.received_sum += number


class SumCounts(beam.DoFn):
  """Adds up how often each word came, and counts the words."""
  def process(self, pair):
    NOTES.received += 1
    NOTES.received_sum += pair[1]


def children_rss() -> int:
  """Bytes in memory of the child processes: of Prism."""
  pages = 0
  for name in os.listdir('/proc'):
    if name.isdigit():
      fields = _unbounded_probe.process_fields(name)
      if fields and fields[1] == str(os.getpid()):
        # Of the fields from the state on: the 24th of all.
        pages += int(fields[21])
  return pages * _PAGE_BYTES


class Sampler(threading.Thread):
  """Notes CPU time and memory of this process and of Prism, every second."""
  def __init__(self):
    super().__init__(daemon=True)
    self.samples = []
    self._end = threading.Event()

  def run(self):
    while not self._end.wait(1):
      if NOTES.begin is not None:
        self.samples.append((
            time.monotonic() - NOTES.begin,
            time.process_time(),
            _unbounded_probe.cpu_of_children(),
            _unbounded_probe.rss_bytes(),
            children_rss()))

  def stop(self):
    self._end.set()
    self.join()

  def within(self, first, last):
    """The samples of a span of seconds from the first poll on."""
    return [s for s in self.samples if first <= s[0] <= last]

  def cpu_share(self, first, last):
    """Shares of a core within a span: of this process, and of Prism."""
    span = self.within(first, last)
    seconds = span[-1][0] - span[0][0]
    return tuple(
        round((span[-1][at] - span[0][at]) / seconds, 4) for at in (1, 2))
