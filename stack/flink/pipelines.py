"""The pipelines that the tests of this folder run on a Flink cluster.

Run as a program, with a name, a folder, and options of pipelines. What a
pipeline did is in the folder: `polls` has a line with the time of each poll,
`marks` a byte for each checkpoint of a bundle, `results.jsonl` a line for
what was counted of a key; the last line of a key holds.
"""

import argparse
import json
import pathlib
import sys
import time

import apache_beam as beam
from apache_beam.coders import FastPrimitivesCoder
from apache_beam.io import unbounded_source
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.userstate import TimerSpec
from apache_beam.transforms.userstate import on_timer
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

START = Timestamp(1700000000)


class Mark(unbounded_source.CheckpointMark):
  """How many records were read."""

  def __init__(self, position):
    self.position = position


class Numbers(unbounded_source.UnboundedSource):
  """(name, 0), (name, 1), … up to a count.

  Args:
    folder: where to note what is done.
    name: of this split; '' makes one split for each of `splits`.
    count: of records; None goes on for ever.
    pause: seconds between records until the gate is open.
    gate: a file; without it the gate is closed, and if there is no pause,
      there is no record. '' is a gate that is open.
    splits: the splits.
  """

  def __init__(
      self, folder, name='', count=None, pause=0.0, gate='', splits=()):
    self.folder = pathlib.Path(folder)
    self.name = name
    self.count = count
    self.pause = pause
    self.gate = gate
    self.splits = splits

  def split(self, desired_num_splits, options=None):
    return list(self.splits) or [self]

  def create_reader(self, options, checkpoint_mark):
    return NumbersReader(self, checkpoint_mark.position if checkpoint_mark
                         else 0)

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
    source = self.source
    if self._is_done():
      return False
    if source.gate and not pathlib.Path(source.gate).exists():
      if not source.pause:
        self._note('polls', f'{time.time():.6f}\n')
        return False
      time.sleep(source.pause)
    self.position += 1
    return True

  def _is_done(self):
    return (
        self.source.count is not None and self.position >= self.source.count)

  def get_current(self):
    return self.source.name, self.position - 1

  def get_current_timestamp(self):
    return START + self.position

  def get_watermark(self):
    if self._is_done():
      return MAX_TIMESTAMP
    return START + self.position if self.position else MIN_TIMESTAMP

  def get_checkpoint_mark(self):
    self._note('marks', '.')
    return Mark(self.position)

  def _note(self, file, text):
    with open(self.source.folder / file, 'a', encoding='utf-8') as notes:
      notes.write(text)


class Count(beam.DoFn):
  """Counts, sums and sums the squares of a key; writes them at the end."""

  COUNTED = ReadModifyWriteStateSpec('counted', FastPrimitivesCoder())
  END = TimerSpec('end', TimeDomain.WATERMARK)

  def __init__(self, folder):
    self.folder = pathlib.Path(folder)

  def process(
      self,
      element,
      window=beam.DoFn.WindowParam,
      counted=beam.DoFn.StateParam(COUNTED),
      end=beam.DoFn.TimerParam(END)):
    _, number = element
    count, total, squares = counted.read() or (0, 0, 0)
    counted.write((count + 1, total + number, squares + number * number))
    end.set(window.max_timestamp())

  @on_timer(END)
  def write(
      self,
      key=beam.DoFn.KeyParam,
      counted=beam.DoFn.StateParam(COUNTED)):
    line = json.dumps([key, *counted.read()])
    with open(self.folder / 'results.jsonl', 'a', encoding='utf-8') as out:
      out.write(line + '\n')


def expected(count):
  """What Count writes of the numbers below a count."""
  return [
      count,
      sum(range(count)),
      sum(n * n for n in range(count))
  ]


BUSY = 60000
WAITING = 500
# Longer than it takes Flink to go on after a process was killed.
WAIT_SECONDS = 45


def busy_and_waiting(folder):
  """One split reads all the time, one waits for the gate to be opened."""
  gate = str(folder / 'gate')
  splits = [
      Numbers(folder, 'busy', BUSY, 0.001, gate),
      Numbers(folder, 'waiting', WAITING, gate=gate),
  ]
  return unbounded_source.ReadFromUnboundedSource(
      Numbers(folder, splits=splits),
      poll_interval=WAIT_SECONDS,
      max_records_per_bundle=100)


def endless(folder):
  """Checkpoints itself as often as it can."""
  return unbounded_source.ReadFromUnboundedSource(
      Numbers(folder, 'endless'), max_records_per_bundle=20)


def polled(folder):
  """Has nothing, and is asked again each half second."""
  return unbounded_source.ReadFromUnboundedSource(
      Numbers(folder, 'polled', gate=str(folder / 'gate')), poll_interval=0.5)


READS = {
    'busy_and_waiting': busy_and_waiting,
    'endless': endless,
    'polled': polled,
}


def main(arguments):
  parser = argparse.ArgumentParser()
  parser.add_argument('read', choices=READS)
  parser.add_argument('folder', type=pathlib.Path)
  options, rest = parser.parse_known_args(arguments)
  pipeline = beam.Pipeline(options=PipelineOptions(rest))
  records = pipeline | READS[options.read](options.folder)
  _ = (
      records
      | beam.Map(lambda kv: kv).with_output_types(tuple[str, int])
      | beam.ParDo(Count(options.folder)))
  pipeline.run().wait_until_finish()


if __name__ == '__main__':
  # By their module's own name, so that other processes can import them.
  import pipelines
  pipelines.main(sys.argv[1:])
