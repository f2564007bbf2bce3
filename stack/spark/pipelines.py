"""What the tests of this folder run on Spark.

What was done is noted in the file `events` of a folder, one event a line, in
the order in which it was done. `results` has one line for what was counted of a
key.
"""

import json
import pathlib
import time

import apache_beam as beam
from apache_beam.coders import FastPrimitivesCoder
from apache_beam.io import unbounded_source
from apache_beam.io import watch
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.io.restriction_trackers import OffsetRestrictionTracker
from apache_beam.io.unbounded_source import UnboundedSource
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState
from apache_beam.transforms import window
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration


def finish(pipeline, seconds=180.0):
  """Runs a pipeline to its end; if that does not come, cancels it and fails."""
  wait_for(pipeline.run(), seconds)


def wait_for(result, seconds=180.0):
  """Waits for the end of a job; if it does not come, cancels it and fails."""
  state = result.wait_until_finish(duration=1000 * seconds)
  if state != PipelineState.DONE:
    result.cancel()
    raise AssertionError(f'{state} after {seconds} s')


class Notes:
  """Lines in a file, by any process of this machine."""

  def __init__(self, folder, name='events'):
    self._path = pathlib.Path(folder) / name

  def add(self, *words):
    with open(self._path, 'a', encoding='utf-8') as notes:
      notes.write(json.dumps(words) + '\n')

  def all(self):
    """Each as a list of its words."""
    if not self._path.exists():
      return []
    return [json.loads(line) for line in self._path.read_text().splitlines()]


class Parts(beam.RestrictionProvider):
  """As many parts as the second word of an element says."""

  def create_tracker(self, restriction):
    return OffsetRestrictionTracker(restriction)

  def initial_restriction(self, element):
    return OffsetRange(0, element[1])

  def restriction_size(self, element, restriction):
    return restriction.size()


class ReadInParts(beam.DoFn):
  """Reads an element `(name, parts, delay)`: gives `(name, n)`, for each part
  ten, and asks to be resumed after each.

  Args:
    folder: where it notes the parts, as `read NAME PART TIME`, what is
      finalized, as `finalized NAME PART TIME`, and in `setups` when a worker
      sets it up.
    fails_at: the part that fails.
    always: whether it fails each time, or but the first.
    part_seconds: what it takes to read one.
  """

  RECORDS = 10

  def __init__(
      self, folder, fails_at=None, always=False, part_seconds=0.0):
    self.folder = pathlib.Path(folder)
    self.notes = Notes(folder)
    self.fails_at = fails_at
    self.always = always
    self.part_seconds = part_seconds

  def setup(self):
    Notes(self.folder, 'setups').add(time.monotonic())

  def process(
      self,
      element,
      finalizer=beam.DoFn.BundleFinalizerParam,
      tracker=beam.DoFn.RestrictionParam(Parts())):
    name, parts, delay = element
    part = tracker.current_restriction().start
    if not tracker.try_claim(part):
      return
    self.notes.add('read', name, part, time.monotonic())
    time.sleep(self.part_seconds)
    flag = self.folder / 'failed'
    if part == self.fails_at and (self.always or not flag.exists()):
      flag.touch()
      raise ValueError('fails once')
    finalizer.register(
        lambda: self.notes.add('finalized', name, part, time.monotonic()))
    for n in range(part * self.RECORDS, (part + 1) * self.RECORDS):
      yield name, n
    if part + 1 < parts:
      tracker.defer_remainder(Duration(delay))
    else:
      tracker.try_claim(parts)


class Count(beam.DoFn):
  """Counts, sums and sums the squares of what a state has seen of a key."""

  COUNTED = ReadModifyWriteStateSpec('counted', FastPrimitivesCoder())

  def process(self, element, counted=beam.DoFn.StateParam(COUNTED)):
    key, number = element
    count, total, squares = counted.read() or (0, 0, 0)
    after = (count + 1, total + number, squares + number * number)
    counted.write(after)
    yield key, after


class Write(beam.DoFn):
  """Notes what it is given, as a result unless it is told otherwise."""

  def __init__(self, folder, name='results'):
    self.notes = Notes(folder, name)

  def process(self, element):
    self.notes.add(*(element if isinstance(element, tuple) else (element, )))


def expected(count):
  """What Count gives of the numbers below a count."""
  return [count, sum(range(count)), sum(n * n for n in range(count))]


def read_and_count(folder, elements, options, spread=False, **arguments):
  """Runs a pipeline that reads elements in parts, to its end.

  Args:
    folder: for what is noted.
    elements: what ReadInParts takes.
    options: of the pipeline.
    spread: whether tasks share the elements, or one task has them all.
    **arguments: more of ReadInParts.
  """
  pipeline = beam.Pipeline(options=PipelineOptions(options))
  _ = (
      pipeline
      | beam.Create(elements, reshuffle=spread)
      | beam.ParDo(ReadInParts(folder, **arguments))
      | beam.Map(lambda kv: kv).with_output_types(tuple[str, int])
      | beam.ParDo(Count())
      | beam.CombinePerKey(max).with_output_types(tuple[str, tuple])
      | beam.ParDo(Write(folder)))
  finish(pipeline)


def read_and_group(folder, elements, options, **arguments):
  """As read_and_count, without a state of the pipeline's own; for a stream."""
  pipeline = beam.Pipeline(options=PipelineOptions(options))
  _ = (
      pipeline
      | beam.Create(elements)
      | beam.ParDo(ReadInParts(folder, **arguments))
      | beam.Map(lambda kv: kv).with_output_types(tuple[str, int])
      | beam.GroupByKey()
      | beam.MapTuple(lambda name, numbers: (name, measure(numbers)))
      | beam.ParDo(Write(folder)))
  finish(pipeline)


def measure(numbers):
  """What Count gives of numbers."""
  numbers = list(numbers)
  return len(numbers), sum(numbers), sum(n * n for n in numbers)


class Several(UnboundedSource):
  """Sources as the splits of one."""

  def __init__(self, *sources):
    self.sources = sources

  def split(self, desired_num_splits, options=None):
    return list(self.sources)

  def create_reader(self, options, checkpoint_mark):
    raise NotImplementedError('only its splits are read')

  def get_checkpoint_mark_coder(self):
    return self.sources[0].get_checkpoint_mark_coder()


class Sum(beam.DoFn):
  """Gives the window of a group, and what Count gives of its numbers."""

  def process(self, element, interval=beam.DoFn.WindowParam):
    key, numbers = element
    yield f'{key} {int(interval.start)}', measure(numbers)


def sums(numbers, size):
  """What Sum gives of numbers that are their own seconds, by window."""
  found = {}
  for n in numbers:
    name = f'{"even" if n % 2 == 0 else "odd"} {n - n % size}'
    count, total, squares = found.get(name, (0, 0, 0))
    found[name] = [count + 1, total + n, squares + n * n]
  return found


def sum_by_window(folder, source, size, options, **arguments):
  """Starts a pipeline that reads numbers and sums the even and the odd ones.

  Args:
    folder: for the results; `records` has what was read, behind a shuffle.
    source: gives them.
    size: of a window, in seconds.
    options: of the pipeline.
    **arguments: more of the read.
  """
  pipeline = beam.Pipeline(options=PipelineOptions(options))
  read = pipeline | 'Read' >> unbounded_source.ReadFromUnboundedSource(
      source, **arguments)
  _ = (
      read
      | beam.WindowInto(window.FixedWindows(size))
      | beam.Map(lambda n: (('odd' if n % 2 else 'even'), n)).with_output_types(
          tuple[str, int])
      | beam.GroupByKey()
      | beam.ParDo(Sum())
      | beam.ParDo(Write(folder)))
  _ = (
      read
      | beam.Reshuffle()
      | 'Records' >> beam.ParDo(Write(folder, 'records')))
  return pipeline.run()


def results(folder):
  """What was counted, by key; a key that is there twice is an error."""
  lines = Notes(folder, 'results').all()
  found = dict(lines)
  assert len(found) == len(lines), lines
  return found


class Poll:
  """Lists one name more each time that it is asked, and notes when that was."""

  def __init__(self, folder):
    self.notes = Notes(folder)

  def __call__(self, element):
    self.notes.add('polled', time.monotonic())
    return watch.PollResult.incomplete([
        TimestampedValue(f'{element}-{n}', n)
        for n in range(len(self.notes.all()))
    ])
