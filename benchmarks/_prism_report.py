# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Medians, verdicts and pages of the benchmark of Prism: see prism.py."""

import dataclasses
import statistics

import _targets
from _targets import Verdict

BINARIES = ('base', 'ours')
# What is measured, what it is called, and how many times less Go it takes.
THROUGHPUT = {
    'read': ('an unbounded source, read in one stage', 4.0),
    'shuffle': ('an unbounded source, over a Reshuffle', 3.0),
    'group': ('a GroupByKey of 100 keys', 1.5),
    'words': ('a bounded word count', None),
}
CONSUMERS = {
    'plain': 'a DoFn of the same stage',
    'shuffle': 'a DoFn behind a Reshuffle',
    'state': 'a stateful DoFn',
    'group': 'a GroupByKey, early firings',
    'side': 'a DoFn with a side input',
}
# What may be more on a busy machine, of all CPU time, and is not called slower.
_NOISE = 1.1
_DELAY_S = 0.5
_IDLE = 0.05
_GROWTH_MB = 20


@dataclasses.dataclass(frozen=True)
class Case:
  """One run to make."""

  what: str
  binary: str
  consumer: str = ''
  elements: int = 0
  seconds: int = 0

  def label(self) -> str:
    name = THROUGHPUT.get(self.what, (self.what, ))[0]
    if self.consumer:
      name = CONSUMERS[self.consumer]
    return '%s, %s' % (name, self.binary)


def figure(record) -> str:
  """The one figure of a run that tells most."""
  what = record['what']
  if what in THROUGHPUT:
    return '%.2f µs of Go' % (1e6 * record['prism_cpu_s'] / record['elements'])
  if what == 'delivery':
    return 'worst %.2f s' % max(record['delays_s'])
  if what == 'polls':
    return '%d polls' % record['polls']
  if what == 'idle':
    return '%.1f %% of a core' % (
        100 * (record['prism_share'] + record['python_share']))
  return 'worst %.2f s' % max(
      found['worst'] for found in record['delays'].values())


class Summary:
  """The runs of one benchmark, by what they measured."""
  def __init__(self, records):
    self.records = records

  def runs(self, what, binary, consumer=''):
    return [
        record for record in self.records
        if (record['what'], record['binary'], record['consumer']) ==
        (what, binary, consumer)
    ]

  def median(self, value, what, binary):
    return statistics.median(
        value(record) for record in self.runs(what, binary))

  def go_micros(self, what, binary):
    return self.median(
        lambda r: 1e6 * r['prism_cpu_s'] / r['elements'], what, binary)

  def all_cpu(self, what, binary):
    return self.median(lambda r: r['prism_cpu_s'] + r['cpu_s'], what, binary)

  def share(self, binary):
    return self.median(
        lambda r: r['prism_share'] + r['python_share'], 'idle', binary)

  def delays(self, consumer, binary):
    return [
        delay for record in self.runs('delivery', binary, consumer)
        for delay in record['delays_s']
    ]

  def polls(self, binary):
    return [record['polls'] for record in self.runs('polls', binary)]

  def verdicts(self) -> list[Verdict]:
    verdicts = []
    for what, (name, times) in THROUGHPUT.items():
      if times:
        found = self.go_micros(what, 'base') / self.go_micros(what, 'ours')
        verdicts.append(
            Verdict(
                '%s: %g times less Go' % (name, times),
                '%.1f times' % found,
                found >= times))
    for what in ('group', 'words'):
      ratio = self.all_cpu(what, 'ours') / self.all_cpu(what, 'base')
      verdicts.append(
          Verdict(
              '%s: all CPU time not more than the base\'s' %
              THROUGHPUT[what][0],
              '%.2f of it' % ratio,
              ratio <= _NOISE))
    for consumer, name in CONSUMERS.items():
      worst = max(self.delays(consumer, 'ours'))
      verdicts.append(
          Verdict(
              '%s: each record within %g s' % (name, _DELAY_S),
              '%.2f s' % worst,
              worst <= _DELAY_S))
    polls = self.polls('ours')
    verdicts.append(
        Verdict(
            '3 to 5 polls in 9 s at an interval of 3 s',
            ', '.join(map(str, polls)),
            all(3 <= number <= 5 for number in polls)))
    share = self.share('ours')
    verdicts.append(
        Verdict(
            'a poll every 10 s: under %d %% of a core' % (100 * _IDLE),
            '%.1f %%' % (100 * share),
            share < _IDLE))
    return verdicts


def _head(title, about, text):
  return [
      '# %s: results' % title,
      '',
      'Measured on %s: apache-beam %s; Prism %s; %s. %s%s' % (
          about['date'],
          about['beam'],
          ', '.join(
              '%s %s' % item for item in sorted(about['binaries'].items())),
          about['machine'],
          text,
          ' A quick run: rough figures.' if about['quick'] else ''),
      '',
      'What is measured, and how, is in [the README](../README.md).',
      '',
  ]


def markdown(summary, verdicts, about) -> str:
  some = summary.runs('read', 'ours')
  runs = 'One run' if len(some) == 1 else 'Medians of %d runs' % len(some)
  text = runs + ' of each; base and ours take turns.'
  lines = _head('Prism', about, text) + _targets.section(verdicts)
  lines += [
      '## %s elements' % format(some[0]['elements'], ','),
      '',
      'CPU time of the whole job, its start and end included.',
      '',
      '| pipeline | Go, base | Go, ours | base / ours | all CPU, base | '
      'all CPU, ours | ours / base |',
      '| --- | ---: | ---: | ---: | ---: | ---: | ---: |'
  ]
  for what, (name, _) in THROUGHPUT.items():
    go = {binary: summary.go_micros(what, binary) for binary in BINARIES}
    cpu = {binary: summary.all_cpu(what, binary) for binary in BINARIES}
    lines.append(
        '| %s | %.2f µs | %.2f µs | %.1f × | %.2f s | %.2f s | %.2f |' % (
            name,
            go['base'],
            go['ours'],
            go['base'] / max(go['ours'], 1e-9),
            cpu['base'],
            cpu['ours'],
            cpu['ours'] / cpu['base']))
  lines += [
      '',
      '## One record a second',
      '',
      'Seconds from when the source gives a record to when it arrives, its '
      'watermark standing still. The source is asked every 0.1 s. Of a '
      'GroupByKey, the second that its trigger waits is taken off.',
      '',
      '| consumer | median, base | worst, base | median, ours | worst, ours |',
      '| --- | ---: | ---: | ---: | ---: |'
  ]
  for consumer, name in CONSUMERS.items():
    base = summary.delays(consumer, 'base')
    ours = summary.delays(consumer, 'ours')
    lines.append(
        '| %s | %.2f | %.2f | %.2f | %.2f |' % (
            name,
            statistics.median(base),
            max(base),
            statistics.median(ours),
            max(ours)))
  lines += [
      '',
      '## A source that rests',
      '',
      '| | base | ours |',
      '| --- | ---: | ---: |',
      '| polls in 9 s, asked for every 3 s | %s | %s |' %
      tuple(', '.join(map(str, summary.polls(binary))) for binary in BINARIES),
  ]
  for name, key in (('Prism', 'prism_share'), ('the worker', 'python_share')):
    lines.append(
        '| a poll every 10 s: share of a core, %s | %s |' % (
            name,
            ' | '.join(
                '%.1f %%' %
                (100 * summary.median(lambda r: r[key], 'idle', binary))
                for binary in BINARIES)))
  return '\n'.join(lines) + '\n'


def soak_verdicts(record) -> list[Verdict]:
  verdicts = []
  for consumer, found in record['delays'].items():
    verdicts.append(
        Verdict(
            '%s: each record within %g s' % (CONSUMERS[consumer], _DELAY_S),
            '%.2f s' % found['worst'],
            found['worst'] <= _DELAY_S))
  idle = sum(record['idle'].values())
  verdicts.append(
      Verdict(
          'while nothing comes: under %d %% of a core' % (100 * _IDLE),
          '%.1f %%' % (100 * idle),
          idle < _IDLE))
  for name, at in (('the worker', 1), ('Prism', 2)):
    sizes = [sample[at] for sample in record['memory']]
    growth = sizes[-1] - sizes[0]
    verdicts.append(
        Verdict(
            'memory of %s: less than %d MB more at the end' %
            (name, _GROWTH_MB),
            '%.1f MB' % growth,
            growth < _GROWTH_MB))
  return verdicts


def soak_markdown(record, verdicts, about) -> str:
  text = 'One pipeline for %d s.' % record['seconds']
  lines = _head('Prism, a soak', about, text) + _targets.section(verdicts)
  lines += [
      '## Records',
      '',
      'Seconds from when a source gives a record to when it arrives. Each '
      'arrived once at each of its consumers.',
      '',
      '| consumer | records | median | 90 % | 99 % | worst |',
      '| --- | ---: | ---: | ---: | ---: | ---: |'
  ]
  for consumer, found in record['delays'].items():
    lines.append(
        '| %s | %d | %.3f | %.3f | %.3f | %.3f |' % (
            CONSUMERS[consumer],
            found['records'],
            found['0.5'],
            found['0.9'],
            found['0.99'],
            found['worst']))
  lines += [
      '',
      '## Memory and CPU time',
      '',
      '| at | worker, MB | Prism, MB |',
      '| ---: | ---: | ---: |',
      *('| %d s | %.1f | %.1f |' % tuple(s) for s in record['memory']),
      '',
      '| share of a core | worker | Prism |',
      '| --- | ---: | ---: |'
  ]
  for name, key in (
      ('while records come', 'busy'), ('while none come', 'idle')):
    lines.append(
        '| %s | %.1f %% | %.1f %% |' % (
            name, 100 * record[key]['python'], 100 * record[key]['prism']))
  return '\n'.join(lines) + '\n'
