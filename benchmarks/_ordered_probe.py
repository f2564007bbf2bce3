# Licensed under the Apache License, Version 2.0: see LICENSE.
"""What ordered.py measures: a source, a function, and the plain design.

The plain design is what people write first: all that waits in one bag, timers
at the earliest, middle and latest event time to learn how far the watermark
is, and one in processing time that reads, sorts, splits and writes the bag.
"""

import random
import threading
import time

import _unbounded_probe
import apache_beam as beam
from apache_beam import coders
from apache_beam.io import unbounded_source
from apache_beam.transforms import userstate
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

CONTEXT = 2
SEED = 20261130


class Bounded(beam.DoFn):
  """Gives as many elements of as many keys as it is told; those of a key, one
  in each second, in any order."""
  def process(self, numbers):
    keys, per_key = numbers
    rng = random.Random(SEED)
    for key in range(keys):
      seconds = list(range(per_key))
      rng.shuffle(seconds)
      for second in seconds:
        yield TimestampedValue(('key-%d' % key, second), second)


def time_of(number, buffered):
  """The second of an element: up to `buffered` after its number.

  In any order, and no two the same: 7,919 is a prime.
  """
  return number + number * 7918 % buffered


# Elements come a hundred at a time, at 2,000 a second each 50 ms, and are not
# asked for much more often.
STEP = 100
POLL_SECONDS = 0.02


class Pace:
  """How many elements there are by now; of this process, as its readers are.

  Args:
    rate: elements a second; 0 for all at once.
  """
  def __init__(self, rate):
    self._seconds = STEP / rate if rate else 0
    self._begun = time.monotonic()

  def number(self):
    if not self._seconds:
      return 1 << 62
    return STEP * (1 + int((time.monotonic() - self._begun) / self._seconds))


class Reader(unbounded_source.UnboundedReader):
  """The watermark is the least that is still to come."""

  pace = None

  def __init__(self, buffered, following, rate):
    Reader.pace = Reader.pace or Pace(rate)
    self._buffered = buffered
    self._at = following - 1
    self._number = 0

  def start(self):
    return self.advance()

  def advance(self):
    if self._at + 1 >= 2 * self._buffered:
      self._at = 2 * self._buffered
      return False
    if self._at + 1 >= self._number:
      self._number = self.pace.number()
      if self._at + 1 >= self._number:
        return False
    self._at += 1
    return True

  def get_current(self):
    return 'key', self._at

  def get_current_timestamp(self):
    return Timestamp(time_of(self._at, self._buffered))

  def get_watermark(self):
    if self._at >= 2 * self._buffered:
      return MAX_TIMESTAMP
    return Timestamp(self._at + 1)

  def get_checkpoint_mark(self):
    return _unbounded_probe.Mark(self._at)


class Source(unbounded_source.UnboundedSource):
  """Twice as many elements as are in the buffer most of the time, of a key."""
  def __init__(self, buffered, rate):
    self._buffered = buffered
    self._rate = rate

  def split(self, desired_num_splits, options=None):
    return [self]

  def create_reader(self, options, checkpoint_mark):
    return Reader(
        self._buffered,
        checkpoint_mark.last + 1 if checkpoint_mark else 0,
        self._rate)

  def get_checkpoint_mark_coder(self):
    return coders.PickleCoder()


class StartClocks(beam.DoFn):
  """Start-up is over when the first element comes."""
  def process(self, pair):
    COUNTS.first = COUNTS.first or now()
    yield pair


def function(key, timestamp, value, context):
  """The least that looks at everything."""
  yield key, value, len(context)


class NoOrder(beam.DoFn):
  """Calls the function at once."""
  def process(self, pair, timestamp=beam.DoFn.TimestampParam):
    return function(pair[0], timestamp, pair[1], ())


class FourTimers(beam.DoFn):
  """The plain design."""
  BAG = userstate.BagStateSpec('bag', coders.FastPrimitivesCoder())
  META = userstate.ReadModifyWriteStateSpec(
      'meta', coders.FastPrimitivesCoder())
  CONTEXT = userstate.ReadModifyWriteStateSpec(
      'context', coders.FastPrimitivesCoder())
  MIN = userstate.TimerSpec('min', userstate.TimeDomain.WATERMARK)
  MID = userstate.TimerSpec('mid', userstate.TimeDomain.WATERMARK)
  MAX = userstate.TimerSpec('max', userstate.TimeDomain.WATERMARK)
  BATCH = userstate.TimerSpec('batch', userstate.TimeDomain.REAL_TIME)

  def process(
      self,
      element,
      timestamp=beam.DoFn.TimestampParam,
      bag=beam.DoFn.StateParam(BAG),
      meta=beam.DoFn.StateParam(META),
      least=beam.DoFn.TimerParam(MIN),
      middle=beam.DoFn.TimerParam(MID),
      most=beam.DoFn.TimerParam(MAX)):
    micros = timestamp.micros
    bag.add((micros, element[1]))
    first, last, safe, pending = meta.read() or (micros, micros, None, False)
    first, last = min(first, micros), max(last, micros)
    meta.write((first, last, safe, pending))
    self._probe(first, last, least, middle, most)

  @staticmethod
  def _probe(first, last, least, middle, most):
    least.set(Timestamp(micros=first))
    middle.set(Timestamp(micros=(first + last) // 2))
    most.set(Timestamp(micros=last))

  @staticmethod
  def _confirm(fired, meta, batch):
    first, last, safe, pending = meta.read()
    safe = fired.micros if safe is None else max(safe, fired.micros)
    if not pending:
      batch.set(Timestamp.now())
    meta.write((first, last, safe, True))

  @userstate.on_timer(MIN)
  def on_least(
      self,
      fired=beam.DoFn.TimestampParam,
      meta=beam.DoFn.StateParam(META),
      batch=beam.DoFn.TimerParam(BATCH)):
    self._confirm(fired, meta, batch)

  @userstate.on_timer(MID)
  def on_middle(
      self,
      fired=beam.DoFn.TimestampParam,
      meta=beam.DoFn.StateParam(META),
      batch=beam.DoFn.TimerParam(BATCH)):
    self._confirm(fired, meta, batch)

  @userstate.on_timer(MAX)
  def on_most(
      self,
      fired=beam.DoFn.TimestampParam,
      meta=beam.DoFn.StateParam(META),
      batch=beam.DoFn.TimerParam(BATCH)):
    self._confirm(fired, meta, batch)

  @userstate.on_timer(BATCH)
  def on_batch(
      self,
      key=beam.DoFn.KeyParam,
      bag=beam.DoFn.StateParam(BAG),
      meta=beam.DoFn.StateParam(META),
      context=beam.DoFn.StateParam(CONTEXT),
      least=beam.DoFn.TimerParam(MIN),
      middle=beam.DoFn.TimerParam(MID),
      most=beam.DoFn.TimerParam(MAX)):
    _, _, safe, _ = meta.read()
    waiting = sorted(bag.read())
    ready = [pair for pair in waiting if pair[0] <= safe]
    waiting = [pair for pair in waiting if pair[0] > safe]
    before = context.read() or []
    for micros, value in ready:
      yield from function(key, Timestamp(micros=micros), value, list(before))
      before = [*before, (micros, value)][-CONTEXT:]
    context.write(before)
    bag.clear()
    for pair in waiting:
      bag.add(pair)
    if waiting:
      meta.write((waiting[0][0], waiting[-1][0], safe, False))
      self._probe(waiting[0][0], waiting[-1][0], least, middle, most)
    else:
      meta.clear()


class Counts:
  """What arrived; the sums of values and of the lengths of contexts."""
  def __init__(self):
    self.first = None  # wall, CPU of this process, CPU of Prism
    self.received = 0
    self.values = 0
    self.contexts = 0


COUNTS = Counts()
# Prism has several bundles processed at once.
_LOCK = threading.Lock()


class Sink(beam.DoFn):
  """Counts and adds up what arrives."""
  def start_bundle(self):
    self._sums = [0, 0, 0]

  def process(self, told):
    _, value, context = told
    sums = self._sums
    sums[0] += 1
    sums[1] += value
    sums[2] += context

  def finish_bundle(self):
    with _LOCK:
      COUNTS.received += self._sums[0]
      COUNTS.values += self._sums[1]
      COUNTS.contexts += self._sums[2]


def now():
  return (
      time.perf_counter(),
      time.process_time(),
      _unbounded_probe.cpu_of_children())
