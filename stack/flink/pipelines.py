"""The pipelines that the tests of this folder run on a Flink cluster.

Run as a program, with the name of a read here or `module.name`, a folder, and
options of pipelines. What a pipeline did is in the folder: `polls` has a line
with the time of each poll, `marks` a byte for each checkpoint of a bundle,
`readers` a line with the position that each reader began at, `finalized` one
for each mark that was finalized, `results.jsonl` one for what was counted of a
key; the last line of a key holds.
"""

import argparse
import importlib
import json
import pathlib
import sys
import time

import apache_beam as beam
from apache_beam.coders import FastPrimitivesCoder
from apache_beam.io import unbounded_source
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.io.restriction_trackers import OffsetRestrictionTracker
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.userstate import TimerSpec
from apache_beam.transforms.userstate import on_timer
from apache_beam.utils.timestamp import Duration
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

START = Timestamp(1700000000)


def note(path, text):
  with open(path, 'a', encoding='utf-8') as notes:
    notes.write(text)


class Mark(unbounded_source.CheckpointMark):
  """How many records were read."""

  def __init__(self, position, folder):
    self.position = position
    self.folder = folder

  def finalize_checkpoint(self):
    note(self.folder / 'finalized', f'{self.position}\n')


class Numbers(unbounded_source.UnboundedSource):
  """('number', 0), ('number', 1), … without an end, in one split.

  Args:
    folder: where to note what is done.
    pause: seconds between records.
  """

  def __init__(self, folder, pause=0.0):
    self.folder = folder
    self.pause = pause

  def split(self, desired_num_splits, options=None):
    return [self]

  def create_reader(self, options, checkpoint_mark):
    position = checkpoint_mark.position if checkpoint_mark else 0
    note(self.folder / 'readers', f'{position}\n')
    return NumbersReader(self, position)

  def get_checkpoint_mark_coder(self):
    return FastPrimitivesCoder()


class NumbersReader(unbounded_source.UnboundedReader):
  """Reads Numbers."""

  def __init__(self, source, position):
    self.source = source
    self.position = position

  def start(self):
    return self.advance()

  def advance(self):
    time.sleep(self.source.pause)
    self.position += 1
    return True

  def get_current(self):
    return 'number', self.position - 1

  def get_current_timestamp(self):
    return START + self.position

  def get_watermark(self):
    return START + self.position if self.position else MIN_TIMESTAMP

  def get_checkpoint_mark(self):
    note(self.source.folder / 'marks', '.')
    return Mark(self.position, self.source.folder)


class Count(beam.DoFn):
  """Counts, sums and sums the squares of a key; writes them at the end.

  Args:
    folder: where to write.
    at_once: whether to write with each record, too, for what has no end.
  """

  COUNTED = ReadModifyWriteStateSpec('counted', FastPrimitivesCoder())
  END = TimerSpec('end', TimeDomain.WATERMARK)

  def __init__(self, folder, at_once=False):
    self.folder = pathlib.Path(folder)
    self.at_once = at_once

  def process(
      self,
      element,
      window=beam.DoFn.WindowParam,
      counted=beam.DoFn.StateParam(COUNTED),
      end=beam.DoFn.TimerParam(END)):
    key, number = element
    count, total, squares = counted.read() or (0, 0, 0)
    counted.write((count + 1, total + number, squares + number * number))
    end.set(window.max_timestamp())
    if self.at_once:
      self.write(key, counted)

  @on_timer(END)
  def write(
      self,
      key=beam.DoFn.KeyParam,
      counted=beam.DoFn.StateParam(COUNTED)):
    line = json.dumps([key, *counted.read()])
    note(self.folder / 'results.jsonl', line + '\n')


def expected(count):
  """What Count writes of the numbers below a count."""
  return [
      count,
      sum(range(count)),
      sum(n * n for n in range(count))
  ]


def endless(folder):
  """Checkpoints itself as often as it can."""
  return unbounded_source.ReadFromUnboundedSource(
      Numbers(folder), max_records_per_bundle=20)


class Offsets(beam.RestrictionProvider):
  """Offsets without an end in sight."""

  def initial_restriction(self, element):
    return OffsetRange(0, 10**12)

  def create_tracker(self, restriction):
    return OffsetRestrictionTracker(restriction)

  def restriction_size(self, element, restriction):
    return 1


class Deferring(beam.DoFn):
  """Has nothing, and asks to be asked again after half a second."""

  def __init__(self, folder):
    self.folder = folder

  @beam.DoFn.unbounded_per_element()
  def process(
      self, element, tracker=beam.DoFn.RestrictionParam(Offsets())):
    if tracker.try_claim(tracker.current_restriction().start):
      note(self.folder / 'polls', f'{time.time():.6f}\n')
      tracker.defer_remainder(Duration(0.5))
    return ()


BUSY = 100000
WAITING = 500
BUNDLE_SECONDS = 0.1
SOON = 2
# Longer than it takes Flink to go on after a process was killed.
LATER = 45


class Halves(Offsets):
  """Two restrictions of one element: one to be read, one that waits."""

  def initial_restriction(self, element):
    return OffsetRange(0, BUSY + WAITING)

  def split(self, element, restriction):
    yield OffsetRange(0, BUSY)
    yield OffsetRange(BUSY, BUSY + WAITING)


class ReadHalves(beam.DoFn):
  """Gives ('busy', n) all the time, ('waiting', n) when the gate is open.

  What waits is resumed soon, by itself, and then not for long: its residual is
  that of a bundle in the midst of those of the busy half.
  """

  def __init__(self, folder):
    self.folder = folder
    self.polls = 0

  @beam.DoFn.unbounded_per_element()
  def process(self, element, tracker=beam.DoFn.RestrictionParam(Halves())):
    position = tracker.current_restriction().start
    is_open = (self.folder / 'gate').exists()
    waits = position >= BUSY
    if waits and not is_open:
      self.polls += 1
      note(self.folder / 'polls', f'{time.time():.6f}\n')
      tracker.defer_remainder(Duration(SOON if self.polls == 1 else LATER))
      return
    note(self.folder / 'marks', '.')
    end = time.monotonic() + BUNDLE_SECONDS
    while tracker.try_claim(position):
      yield ('waiting', position - BUSY) if waits else ('busy', position)
      position += 1
      if not is_open:
        time.sleep(0.001)
      if time.monotonic() > end:
        tracker.defer_remainder()
        return


def busy_and_waiting(folder):
  return beam.Impulse() | beam.ParDo(ReadHalves(folder))


def deferred(folder):
  return beam.Impulse() | beam.ParDo(Deferring(folder))


def finalized(folder):
  """Is finalized; its bundles are short."""
  return unbounded_source.ReadFromUnboundedSource(
      Numbers(folder, pause=0.001), max_records_per_bundle=20)


READS = {
    'busy_and_waiting': busy_and_waiting,
    'endless': endless,
    'deferred': deferred,
    'finalized': finalized,
}


def read_named(name):
  """What begins a pipeline, by its name here or in another module."""
  module, _, inner = name.rpartition('.')
  if module:
    return getattr(importlib.import_module(module), inner)
  return READS[name]


def main(arguments):
  parser = argparse.ArgumentParser()
  parser.add_argument('read', help=', '.join(READS) + ', or module.name')
  parser.add_argument('folder', type=pathlib.Path)
  parser.add_argument('--count_at_once', action='store_true')
  options, rest = parser.parse_known_args(arguments)
  read = read_named(options.read)
  pipeline = beam.Pipeline(options=PipelineOptions(rest))
  records = pipeline | read(options.folder.absolute())
  _ = (
      records
      | beam.Map(lambda kv: kv).with_output_types(tuple[str, int])
      | beam.ParDo(Count(options.folder.absolute(), options.count_at_once)))
  pipeline.run().wait_until_finish()


if __name__ == '__main__':
  # By their module's own name, so that other processes can import them.
  import pipelines
  pipelines.main(sys.argv[1:])
