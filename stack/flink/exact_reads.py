"""Reads whose every record is known, for tests that kill what reads them.

They give what they have left when there is a file `gate` in the folder. What
they did is in its file `events`, in order, a line each: the time, what
happened (`reader`, `finalized`, `poll`), of what, and its position.
"""

import dataclasses
import pathlib
import time

import apache_beam as beam
from apache_beam.coders import FastPrimitivesCoder
from apache_beam.io import fileio
from apache_beam.io import unbounded_source
from apache_beam.io.watch import PollResult
from apache_beam.io.watch import Watch
from apache_beam.transforms.timestamp_buffer import OrderedProcess
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from pipelines import START
from pipelines import note

BUSY = 'busy'
WAITING = 'waiting'
COUNTS = {BUSY: 20000, WAITING: 500}
# Of what is busy, so many are left for when the gate is open.
KEPT = 2000
SOON = 2.0
# Longer than it takes Flink to go on after a process was killed.
LATER = 20.0


@dataclasses.dataclass(frozen=True)
class Event:
  """One line of `events`."""

  time: float
  what: str
  of: str
  position: int


def event(folder, what, of, position):
  note(folder / 'events', f'{time.time():.3f} {what} {of} {position}\n')


def events(folder) -> list[Event]:
  """All that was noted so far."""
  path = pathlib.Path(folder) / 'events'
  if not path.exists():
    return []
  lines = path.read_text().split('\n')[:-1]
  return [
      Event(float(t), what, of, int(position))
      for t, what, of, position in map(str.split, lines)
  ]


def finalized_too_early(found: list[Event]) -> list[Event]:
  """The readers that began below what had been finalized before."""
  finalized: dict[str, int] = {}
  early = []
  for one in found:
    if one.what == 'finalized':
      finalized[one.of] = max(one.position, finalized.get(one.of, 0))
    elif one.what == 'reader' and finalized.get(one.of, 0) > one.position:
      early.append(one)
  return early


class Mark(unbounded_source.CheckpointMark):
  """How many records were read."""

  def __init__(self, split, position):
    self.split = split
    self.position = position

  def finalize_checkpoint(self):
    event(self.split.folder, 'finalized', self.split.kind, self.position)


class Splits(unbounded_source.UnboundedSource):
  """Two splits: one that is busy, and one that has nothing for now."""

  def __init__(self, folder, kind=''):
    self.folder = folder
    self.kind = kind

  def split(self, desired_num_splits, options=None):
    return [Splits(self.folder, kind) for kind in COUNTS]

  def create_reader(self, options, checkpoint_mark):
    position = checkpoint_mark.position if checkpoint_mark else 0
    event(self.folder, 'reader', self.kind, position)
    return SplitsReader(self, position)

  def get_checkpoint_mark_coder(self):
    return FastPrimitivesCoder()


class SplitsReader(unbounded_source.UnboundedReader):
  """Reads a split.

  What waits is asked again soon, by itself, and then not for long: its residual
  is that of a bundle in the midst of those of what is busy.
  """

  def __init__(self, split, position):
    self.split = split
    self.position = position
    self.polls = 0

  @property
  def waits(self):
    return self.split.kind == WAITING

  def start(self):
    return self.advance()

  def advance(self):
    if self.position == COUNTS[self.split.kind]:
      return False
    if not (self.split.folder / 'gate').exists():
      if self.waits:
        self.polls += 1
        event(self.split.folder, 'poll', self.split.kind, self.position)
        return False
      if self.position == COUNTS[BUSY] - KEPT:
        return False
      time.sleep(0.001)
    self.position += 1
    return True

  def next_poll_delay(self):
    if not self.waits:
      return 0.1
    return SOON if self.polls == 1 else LATER

  def get_current(self):
    return self.split.kind, self.position - 1

  def get_current_timestamp(self):
    return START + self.position

  def get_watermark(self):
    if self.position == COUNTS[self.split.kind]:
      return MAX_TIMESTAMP
    return START + self.position if self.position else MIN_TIMESTAMP

  def get_checkpoint_mark(self):
    return Mark(self.split, self.position)


def two_splits(folder):
  """Bundles end and are finalized many times a second."""
  return unbounded_source.ReadFromUnboundedSource(
      Splits(folder), max_read_time_seconds=0.03)


# Numbers come in fours, the later ones of each first.
FOUR = 4


class Disordered(Splits):
  """The same records at times of which the later ones come first."""

  def split(self, desired_num_splits, options=None):
    return [Disordered(self.folder, kind) for kind in COUNTS]

  def create_reader(self, options, checkpoint_mark):
    position = checkpoint_mark.position if checkpoint_mark else 0
    event(self.folder, 'reader', self.kind, position)
    return DisorderedReader(self, position)


class DisorderedReader(SplitsReader):
  """Reads it: 3, 2, 1, 0, 7, 6, 5, 4, …, each at the time that it says."""

  def get_current(self):
    return self.split.kind, (self.position - 1) ^ (FOUR - 1)

  def get_current_timestamp(self):
    return START + self.get_current()[1]

  def get_watermark(self):
    if self.position == COUNTS[self.split.kind]:
      return MAX_TIMESTAMP
    return START + self.position // FOUR * FOUR


def in_order(kind, timestamp, number, before):
  """The element, if it comes behind the one before it."""
  expected = [(timestamp - 1, number - 1)] if number else []
  yield kind if before == expected else f'{kind} in disorder', number


class Ordered(beam.PTransform):
  """Reads what is disordered, and puts it in order."""

  def __init__(self, folder):
    super().__init__()
    self.folder = folder

  def expand(self, pbegin):
    return (
        pbegin
        | unbounded_source.ReadFromUnboundedSource(
            Disordered(self.folder), max_read_time_seconds=0.03)
        | beam.Map(lambda kv: kv).with_output_types(tuple[str, int])
        | OrderedProcess(in_order, context_size=1))


LISTED = 2000
A_SECOND = 100


class Poll:
  """Lists numbers: so many more a second, and all when the gate is open."""

  def __init__(self, folder, kind):
    self.folder = folder
    self.kind = kind

  def __call__(self, begun: float) -> PollResult[int]:
    is_open = (self.folder / 'gate').exists()
    count = LISTED if is_open else min(
        LISTED // 2, int(A_SECOND * (time.time() - begun)))
    event(self.folder, 'poll', self.kind, count)
    outputs = [TimestampedValue(n, START + n) for n in range(count)]
    made = PollResult.complete if is_open else PollResult.incomplete
    return made(outputs)


def number_of(metadata):
  return int(pathlib.Path(metadata.path).name)


class Polled(beam.PTransform):
  """A watch that remembers all, one with a cursor, and a folder of files."""

  def __init__(self, folder):
    super().__init__()
    self.folder = folder

  def expand(self, pbegin):
    begun = pbegin | beam.Create([time.time()])
    found = [
        begun
        | kind >> Watch(
            Poll(self.folder, kind), poll_interval=0.5,
            timestamp_cursor=kind == 'cursor')
        | f'Of {kind}' >> beam.Map(lambda kv, kind=kind: (kind, kv[1]))
        for kind in ('keys', 'cursor')
    ]
    found.append(
        pbegin
        | 'Match' >> fileio.MatchContinuously(
            f'{self.folder}/files/*', interval=0.5)
        | 'Number' >> beam.Map(lambda m: ('files', number_of(m))))
    return found | beam.Flatten()


class Redis(beam.PTransform):
  """The entries of streams `a` and `b`; `server` in the folder has the URL."""

  def __init__(self, folder):
    super().__init__()
    self.folder = folder

  def expand(self, pbegin):
    # Only this one needs the package redis.
    from apache_beam.io.redisstreams import ReadFromRedisStreams
    return (
        pbegin
        | ReadFromRedisStreams(
            (self.folder / 'server').read_text(), ['a', 'b'], 'group',
            poll_interval=0.5, max_records_per_bundle=20, batch_size=100)
        | beam.Map(lambda e: (e.stream, int(e.fields[b'n']))))


def disordered(folder):
  return Ordered(folder)


def polled(folder):
  return Polled(folder)


def redis(folder):
  return Redis(folder)
