# Licensed under the Apache License, Version 2.0: see LICENSE.
"""One measured pipeline on Prism, in a process of its own: see prism.py.

usage: _prism_case.py CASE      (a JSON object: see prism.Case)

Prints one line, `RESULT {json}`, if what arrived is exactly what was sent;
anything else that it prints is for people.
"""

import importlib.metadata
import json
import logging
import os
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
import _prism_probe as probe
import _unbounded_case
import _unbounded_probe
import apache_beam as beam
from apache_beam.io import unbounded_source
from apache_beam.options.pipeline_options import PortableOptions
from apache_beam.transforms import trigger
from apache_beam.transforms.window import GlobalWindows
# pylint: enable=wrong-import-position

_WORDS_A_LINE = 10
_VOCABULARY = 5_000


def numbers(pipeline, case):
  return pipeline | unbounded_source.ReadFromUnboundedSource(
      _unbounded_probe.Source(case['elements'], True),
      poll_interval=0,
      max_records_per_bundle=10_000,
      max_read_time_seconds=1e6)


def read(pipeline, case):
  """Records that stay in the stage of their source."""
  return numbers(pipeline, case) | beam.ParDo(probe.Sum())


def shuffled(pipeline, case):
  """Records that go through Prism to the next stage."""
  return numbers(pipeline, case) | beam.Reshuffle() | beam.ParDo(probe.Sum())


def grouped(pipeline, case):
  return (
      pipeline
      | beam.Create([None], reshuffle=False)
      | beam.ParDo(probe.Numbers(case['elements']))
      | beam.GroupByKey()
      | beam.ParDo(probe.SumGroup()))


def word_count(pipeline, case):
  return (
      pipeline
      | beam.io.ReadFromText(case['file'])
      | beam.FlatMap(str.split)
      | beam.combiners.Count.PerElement()
      | beam.ParDo(probe.SumCounts()))


def write_words(path, words):
  """A text of that many words, each of a vocabulary equally often."""
  with open(path, 'w') as text:
    for first in range(0, words, _WORDS_A_LINE):
      text.write(
          ' '.join(
              'word%04d' % (7 * n % _VOCABULARY)
              for n in range(first, first + _WORDS_A_LINE)) + '\n')


def throughput(case):
  """CPU seconds of a whole job, from its start to its end."""
  elements = case['elements']
  build = {
      'read': read,
      'shuffle': shuffled,
      'group': grouped,
      'words': word_count,
  }[case['what']]
  with tempfile.TemporaryDirectory() as folder:
    if case['what'] == 'words':
      case = dict(case, file=os.path.join(folder, 'words.txt'))
      write_words(case['file'], elements)
    pipeline = beam.Pipeline(options=_unbounded_case.pipeline_options(case))
    build(pipeline, case)
    wall, cpu = time.perf_counter(), time.process_time()
    pipeline.run().wait_until_finish()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    prism_cpu = _unbounded_probe.cpu_of_children()
  want = (elements, elements * (elements - 1) // 2)
  if case['what'] == 'words':
    want = (_VOCABULARY, elements)
  got = (probe.NOTES.received, probe.NOTES.received_sum)
  if got != want:
    raise SystemExit(
        '%d elements with sum %d arrived, but it is %d with sum %d' %
        (got + want))
  return {
      'wall_s': round(wall, 3),
      'cpu_s': round(cpu, 3),
      'prism_cpu_s': round(prism_cpu, 2),
  }


def trickle(pipeline, source, poll_interval):
  return pipeline | source.name >> unbounded_source.ReadFromUnboundedSource(
      source, poll_interval=poll_interval)


def idle(case):
  """The shares of a core while a source is asked every ten seconds."""
  seconds = case['seconds']
  pipeline = beam.Pipeline(options=_unbounded_case.pipeline_options(case))
  # It never has a record.
  source = probe.Trickle('source', seconds + 5, seconds + 3)
  _ = trickle(pipeline, source, 10) | beam.ParDo(probe.Note('plain'))
  sampler = probe.Sampler()
  sampler.start()
  pipeline.run().wait_until_finish()
  sampler.stop()
  python_share, prism_share = sampler.cpu_share(2, seconds + 2)
  return {
      'python_share': python_share,
      'prism_share': prism_share,
      'polls': len(probe.NOTES.polls),
  }


# The least delay of the trigger, in whole seconds: later than that is late.
_TRIGGER_S = 1


def early(records):
  """Groups that are given a second after their first record."""
  return (
      records
      | beam.WindowInto(
          GlobalWindows(),
          trigger=trigger.Repeatedly(trigger.AfterProcessingTime(_TRIGGER_S)),
          accumulation_mode=trigger.AccumulationMode.DISCARDING)
      | beam.GroupByKey())


def consume(records, consumer, pipeline):
  """Lets records of a source arrive at a consumer."""
  if consumer == 'plain':
    return records | consumer >> beam.ParDo(probe.Note(consumer))
  if consumer == 'shuffle':
    return records | beam.Reshuffle() | consumer >> beam.ParDo(
        probe.Note(consumer))
  if consumer == 'state':
    return records | consumer >> beam.ParDo(probe.NoteWithState(consumer))
  if consumer == 'group':
    return early(records) | consumer >> beam.ParDo(probe.NoteGroup(consumer))
  table = pipeline | 'table' >> beam.Create([1, 2])
  return records | 'to side' >> beam.Reshuffle() | consumer >> beam.ParDo(
      probe.Note(consumer), beam.pvalue.AsList(table))


def delays(consumer, source):
  """Seconds until each record of a source was seen, once, by a consumer.

  A group may have waited as long as its trigger says.
  """
  free = _TRIGGER_S if consumer == 'group' else 0
  found = []
  for (name, record), given in sorted(probe.NOTES.given.items()):
    if name == source:
      seen = probe.NOTES.seen[consumer, name, record]
      if len(seen) != 1 or len(given) != 1:
        raise SystemExit(
            'record %d of %s was given %d times, and seen %d times by %s' %
            (record, name, len(given), len(seen), consumer))
      found.append(round(max(seen[0] - given[0] - free, 0), 4))
  if not found:
    raise SystemExit('%s gave no record' % source)
  return found


def delivery(case):
  """How long each record of one a second is on its way to a consumer."""
  pipeline = beam.Pipeline(options=_unbounded_case.pipeline_options(case))
  source = probe.Trickle('source', 1, case['seconds'])
  consume(trickle(pipeline, source, 0.1), case['consumer'], pipeline)
  pipeline.run().wait_until_finish()
  return {'delays_s': delays(case['consumer'], source.name)}


def polls(case):
  """How often a DoFn is asked that wants to be asked every three seconds."""
  pipeline = beam.Pipeline(options=_unbounded_case.pipeline_options(case))
  # Not the source's read: that waits by itself if it is asked too early.
  _ = (
      pipeline
      | beam.Create([None], reshuffle=False)
      | beam.ParDo(probe.Asked(3, case['seconds'])))
  pipeline.run().wait_until_finish()
  return {'polls': len(probe.NOTES.polls)}


def percentile(values, share):
  return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def soak(case):
  """Two sources that pause, and all kinds of consumers, for a long time."""
  seconds = case['seconds']
  # In the middle nothing comes for a while: what does that cost?
  pause = (seconds * 0.45, seconds * 0.65)
  consumers = {'first': ('state', 'side'), 'second': ('group', 'shuffle')}
  sources = (
      probe.Trickle('first', 1, seconds, pause),
      probe.Trickle('second', 1.7, seconds, pause))
  options = _unbounded_case.pipeline_options(case)
  # Else the runner gives up on the job after five minutes.
  options.view_as(PortableOptions).job_server_timeout = 2 * seconds + 300
  pipeline = beam.Pipeline(options=options)
  for source in sources:
    records = trickle(pipeline, source, 0.1)
    for consumer in consumers[source.name]:
      consume(records, consumer, pipeline)
  sampler = probe.Sampler()
  sampler.start()
  pipeline.run().wait_until_finish()
  sampler.stop()
  found = {}
  for name, all_of_it in consumers.items():
    for consumer in all_of_it:
      times = delays(consumer, name)
      found[consumer] = {
          'source': name,
          'records': len(times),
          **{
              str(share): percentile(times, share)
              for share in (0.5, 0.9, 0.99)
          },
          'worst': max(times),
      }
  share = (seconds * 0.49, seconds * 0.63)
  idle_share = sampler.cpu_share(*share)
  busy_share = sampler.cpu_share(seconds * 0.1, seconds * 0.4)
  memory = []
  for part in (0.1, 0.4, 0.7, 0.95):
    at = min(sampler.samples, key=lambda s: abs(s[0] - part * seconds))
    memory.append([
        round(at[0]), round(at[3] / 1e6, 1), round(at[4] / 1e6, 1)
    ])
  return {
      'delays': found,
      'idle': dict(zip(('python', 'prism'), idle_share)),
      'busy': dict(zip(('python', 'prism'), busy_share)),
      'memory': memory,
      'polls': len(probe.NOTES.polls),
  }


RUNS = {
    'read': throughput,
    'shuffle': throughput,
    'group': throughput,
    'words': throughput,
    'idle': idle,
    'delivery': delivery,
    'polls': polls,
    'soak': soak,
}


def main():
  # Prism and the worker narrate at INFO; that would be part of the figures.
  logging.getLogger().setLevel(logging.WARNING)
  threading.Thread(
      target=_unbounded_case.end_with_driver, daemon=True).start()
  case = json.loads(sys.argv[1])
  try:
    result = RUNS[case['what']](dict(case, runner='prism'))
  finally:
    _unbounded_case.stop_children()
  result['beam'] = importlib.metadata.version('apache-beam')
  print('RESULT ' + json.dumps(result), flush=True)
  # Not sys.exit: Beam's exit hooks wait a second for a Prism already gone.
  os._exit(0)


if __name__ == '__main__':
  main()
