"""Flink: ordered processing gives the elements of each key in their order.

Purpose: what holds on the other runners holds on Flink, and when a worker is
killed. The stories are those of apache_beam.transforms.timestamp_buffer_test,
in which each output tells what came before it.
"""

import apache_beam as beam
import exact_reads
import pipelines
import pytest
import test_kills as kills
from apache_beam.coders import BytesCoder
from apache_beam.coders import FastPrimitivesCoder
from apache_beam.testing import test_stream
from apache_beam.transforms import timestamp_buffer_test as stories
from apache_beam.transforms._ordered_buffer import FRONT
from apache_beam.transforms.window import TimestampedValue
from exact_reads import COUNTS
from running import full_only

BAG = [False]
CODER = FastPrimitivesCoder()
as_stream = stories.as_stream


class InBytes(beam.PTransform):
  """A TestStream of a coder that Java has: Flink decodes its elements."""

  def __init__(self, *steps):
    super().__init__()
    self.steps = steps

  def expand(self, pbegin):
    events = [
        test_stream.ElementEvent([
            TimestampedValue(CODER.encode(one.value), one.timestamp)
            for one in event.timestamped_values
        ], event.tag) if isinstance(event, test_stream.ElementEvent) else event
        for event in as_stream(*self.steps)._events
    ]
    stream = test_stream.TestStream(BytesCoder(), events, {None})
    return (
        pbegin | stream.with_output_types(bytes) | beam.Map(CODER.decode))


@pytest.fixture(autouse=True)
def _for_flink(monkeypatch):
  monkeypatch.setattr(stories, 'as_stream', InBytes)


def test_a_stream_in_the_global_window(in_threads):
  """Ties, times before 1970, late elements, and windows behind it.

  With an element a bundle: Flink lets a watermark wait for the end of one, and
  what comes in the meantime is not late.
  """
  result = stories.StoryTest().check_stream(
      in_threads('--max_bundle_size=1'), BAG, True)
  assert stories.counter(result, 'late_elements') >= 2
  assert stories.counter(result, 'released_elements') >= len(stories.IN_TIME)


def test_a_bounded_input(in_threads):
  with beam.Pipeline(options=in_threads()) as pipeline:
    stories.check_story(
        stories.as_bounded(pipeline), BAG, stories.IN_TIME, [])


def test_windows(in_threads):
  """They are apart, and their ends release all."""
  tests = stories.WindowTest()
  tests.check(in_threads(), BAG, *tests.FIXED)


def test_flink_has_no_ordered_list_state(in_threads):
  """The job fails with the first element of a key that is put there."""
  elements = [('k', time, time) for time in range(4 * FRONT)]
  with pytest.raises(Exception, match='(?i)state'):
    with beam.Pipeline(options=in_threads()) as pipeline:
      _ = (
          pipeline | InBytes([0, elements, 5])
          | beam.Map(lambda pair: pair).with_output_types(tuple[str, object])
          | stories.OrderedProcess(stories.tell, ordered_list_state=True))


@full_only
def test_ordered_under_a_kill(run, tell):
  """Each element comes once, behind the one before it."""
  running = run('exact_reads.disordered')
  running.wait(
      'the second poll',
      lambda: len(kills.of(running, 'poll', exact_reads.WAITING)) > 1, 120)
  kills.wait_to_be_busy(running)
  running.wait_for_checkpoint()
  reader, seconds = kills.kill(running)
  assert reader.position > 0
  kills.wait_to_be_busy(running)
  kills.open_gate(running)
  wanted = {kind: pipelines.expected(count) for kind, count in COUNTS.items()}
  tell(exact=running.results() == wanted, seconds=round(seconds, 1))
  assert running.results() == wanted
