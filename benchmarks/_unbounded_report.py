# Licensed under the Apache License, Version 2.0: see LICENSE.
"""From the runs of the unbounded benchmark to medians, verdicts, documents.

Nothing here measures or knows the time: records go in, text comes out.
"""

import collections
import dataclasses
import statistics

import _targets
import plot
from _targets import Verdict

WHATS = ('rival', 'ours', 'ceiling')
MEMORY_WHATS = ('rival', 'ours')
MEMORY_CAP = 10

# What the series promises.
MIN_RATIO = {1_000: 2.5, 10_000: 3.0}
MIN_SHARE_OF_CEILING = {10_000: 0.8}
READERS_PER_SPLIT = 1
FLAT_MB_PER_1000 = 1.0

_NAMES = {
    'rival': 'upstream',
    'ours': 'ours',
    'ceiling': 'ceiling',
    'fnapi': 'FnApiRunner',
    'prism': 'Prism',
    'never-finalizing': 'never finalizes',
}


@dataclasses.dataclass(frozen=True)
class Case:
  """One run to make. With `sample_at` (checkpoints) it watches memory."""

  what: str
  runner: str
  timestamps: str
  cap: int
  records: int
  sample_at: tuple[int, ...] = ()

  def label(self) -> str:
    return '%s, %s, cap %s, %s ' % (
        _NAMES[self.runner],
        'memory' if self.sample_at else self.timestamps,
        format(self.cap, ','),
        _NAMES[self.what])

  def kind(self):
    """Equal for runs that should take the same time."""
    if self.what == 'ceiling':
      return dataclasses.replace(self, cap=0)
    return self


class Summary:
  """The runs of one benchmark, by what they measured."""
  def __init__(self, records):
    self.records = list(records)
    self._speed = collections.defaultdict(list)
    self._memory = collections.defaultdict(list)
    for record in self.records:
      where = record['what'], record['runner']
      if record['sample_at']:
        self._memory[where].append(record)
      else:
        self._speed[where + (record['timestamps'], record['cap'])].append(
            record)

  def rows(self):
    """(runner, timestamps, cap) of every speed measurement, in order."""
    return list(dict.fromkeys(key[1:] for key in self._speed))

  def memory_runners(self):
    return list(dict.fromkeys(runner for _, runner in self._memory))

  def runs(self, what, runner, timestamps, cap):
    """The runs of one cell; a ceiling has no cap, so all of them count."""
    if what != 'ceiling':
      return self._speed[what, runner, timestamps, cap]
    return [
        run for key,
        runs in self._speed.items()
        if key[:3] == (what, runner, timestamps) for run in runs
    ]

  def median(self, field, what, runner, timestamps, cap):
    return statistics.median(
        run[field] for run in self.runs(what, runner, timestamps, cap))

  def ratio(self, runner, timestamps, cap, against):
    """Ours over `against`, in records per CPU second."""
    ours, other = (
        self.median('records_per_cpu_s', what, runner, timestamps, cap)
        for what in ('ours', against))
    return ours / other

  def memory(self, what, runner):
    """Median MB by number of self-checkpoints."""
    runs = self._memory[what, runner]
    return {
        int(checkpoints): statistics.median(
            run['rss_mb'][checkpoints] for run in runs)
        for checkpoints in runs[0]['rss_mb']
    }

  def growth(self, what, runner):
    """MB a thousand self-checkpoints, from the second sample to the last.

    The first sample only shows that the process has warmed up by then.
    """
    samples = sorted(self.memory(what, runner).items())
    (start, before), (end, after) = samples[1], samples[-1]
    return (after - before) / (end - start) * 1000


def verdicts(summary) -> list[Verdict]:
  """All targets that the runs say something about."""
  found = []
  for runner, timestamps, cap in summary.rows():
    where = '%s, %s, cap %s' % (
        _NAMES[runner], timestamps, format(cap, ','))
    if cap in MIN_RATIO:
      ratio = summary.ratio(runner, timestamps, cap, 'rival')
      found.append(
          Verdict(
              '%s: at least %.1f times upstream' % (where, MIN_RATIO[cap]),
              '%.2f times' % ratio,
              ratio >= MIN_RATIO[cap]))
    if cap in MIN_SHARE_OF_CEILING:
      share = summary.ratio(runner, timestamps, cap, 'ceiling')
      wanted = MIN_SHARE_OF_CEILING[cap]
      found.append(
          Verdict(
              '%s: at least %.0f %% of the ceiling' % (where, 100 * wanted),
              '%.1f %%' % (100 * share),
              share >= wanted))
  readers = [
      run['readers'] for run in summary.records if run['what'] == 'ours'
  ]
  if readers:
    found.append(
        Verdict(
            'one reader opened per split, in every run',
            'at most %d' % max(readers),
            set(readers) == {READERS_PER_SPLIT}))
  for runner in summary.memory_runners():
    growth = summary.growth('ours', runner)
    found.append(
        Verdict(
            '%s: memory flat, under %g MB per 1,000 cuts' %
            (_NAMES[runner], FLAT_MB_PER_1000),
            '%+.2f MB' % growth,
            growth < FLAT_MB_PER_1000))
  return found


def _table(heads, rows):
  """A Markdown table; columns of numbers are set to the right."""
  rule = [
      '---:' if isinstance(cell, _Number) else '---' for cell in rows[0]
  ]
  lines = [heads, rule] + rows
  return ''.join('| %s |\n' % ' | '.join(map(str, line)) for line in lines)


class _Number(str):
  """A cell that is set to the right."""


def _k(rate):
  return _Number(format(round(rate / 1000), ','))


def _versions(summary):
  by_what = {run['what']: run for run in summary.records}
  return {what: by_what[what]['beam'] for what in WHATS if what in by_what}


def markdown(summary, verdicts_, about) -> str:
  """The results as a page: `about` says when, where and with what."""
  versions = _versions(summary)
  repeats = min(
      len(summary.runs('ours', *row)) for row in summary.rows())
  page = ['# Reading an unbounded source: results\n']
  page.append(
      'Measured on %s: upstream is apache-beam %s, ours is %s%s; Python %s; '
      '%s. %s\n' % (
          about['date'],
          versions['rival'],
          versions['ours'],
          '; Prism binary ' + about['prism'] if 'prism' in about else '',
          summary.records[0]['python'],
          about['machine'],
          'A quick run: rough figures.' if about['quick'] else
          'Medians of %d runs.' % repeats))
  page.append(
      'What is measured, and how, is in [the README](../README.md). Every '
      'run is in `unbounded.jsonl`.\n')
  failed = sum(run.get('failed', 0) for run in summary.records)
  if failed:
    page.append(
        'Runs of upstream that failed and were made again: %d.\n' % failed)
  page.append('![Bars and lines of the tables below](unbounded.svg)\n')

  page.append('\n'.join(_targets.section(verdicts_)))

  page.append('## Thousand records per CPU second of the Python process\n')
  rows = []
  for row in summary.rows():
    runner, timestamps, cap = row
    rows.append([_NAMES[runner], timestamps, _Number(format(cap, ','))] + [
        _k(summary.median('records_per_cpu_s', what, *row))
        for what in WHATS
    ] + [
        _Number('%.2f ×' % summary.ratio(*row, 'rival')),
        _Number('%.0f %%' % (100 * summary.ratio(*row, 'ceiling')))
    ])
  page.append(
      _table([
          'runner',
          'timestamps',
          'cap',
          'upstream',
          'ours',
          'ceiling',
          'ours / upstream',
          'ours / ceiling'
      ],
             rows))

  page.append('## Thousand records per second by the clock\n')
  page.append(
      'Beside it the CPU seconds of Prism for a million records; '
      'FnApiRunner runs inside the Python process.\n')
  rows = []
  for row in summary.rows():
    runner, timestamps, cap = row
    prism = [
        _Number(
            '%.2f' % statistics.median(
                run['prism_cpu_s'] * 1e6 / run['records']
                for run in summary.runs(what, *row)))
        if runner == 'prism' else _Number('–') for what in WHATS
    ]
    rows.append([_NAMES[runner], timestamps, _Number(format(cap, ','))] + [
        _k(summary.median('records_per_wall_s', what, *row))
        for what in WHATS
    ] + prism)
  page.append(
      _table(
          ['runner', 'timestamps', 'cap'] + [_NAMES[what] for what in WHATS] +
          ['Prism CPU s, ' + _NAMES[what] for what in WHATS],
          rows))

  page.append('## Readers and marks in a run of one split\n')
  page.append('Most of all runs of the row.\n')
  rows = []
  for row in summary.rows():
    runner, timestamps, cap = row
    cells = [_NAMES[runner], timestamps, _Number(format(cap, ','))]
    for field in ('readers', 'closed', 'marks', 'finalized'):
      for what in ('rival', 'ours'):
        most = max(run[field] for run in summary.runs(what, *row))
        cells.append(_Number(format(most, ',')))
    rows.append(cells)
  page.append(
      _table(
          ['runner', 'timestamps', 'cap'] + [
              '%s, %s' % (title, _NAMES[what]) for title in (
                  'readers opened', 'readers closed', 'marks', 'finalized')
              for what in ('rival', 'ours')
          ],
          rows))

  page.append('## Memory of the Python process, MB\n')
  page.append(
      'After so many self-checkpoints (cap %d); growth per 1,000 of them.\n' %
      MEMORY_CAP)
  rows = []
  for runner in summary.memory_runners():
    for what in MEMORY_WHATS:
      memory = summary.memory(what, runner)
      rows.append([_NAMES[runner], _NAMES[what]] +
                  [_Number('%.0f' % size) for size in memory.values()] +
                  [_Number('%+.2f' % summary.growth(what, runner))])
  page.append(
      _table(
          ['runner', 'reader'] + [
              format(checkpoints, ',') for checkpoints in summary.memory(
                  'ours',
                  summary.memory_runners()[0])
          ] + ['growth'],
          rows))
  return '\n'.join(page)


def svg(summary, about) -> str:
  """The same as a picture: bars for speed, lines for memory."""
  versions = _versions(summary)
  columns = list(dict.fromkeys(runner for runner, _, _ in summary.rows()))
  kinds = list(dict.fromkeys(kind for _, kind, _ in summary.rows()))
  rows = []
  for kind in kinds:
    panels = []
    for runner in columns:
      caps = [
          cap for where, other, cap in summary.rows()
          if (where, other) == (runner, kind)
      ]
      first = runner, kind, caps[0]
      panels.append(
          plot.Bars(
              title='%s, %s timestamps' % (_NAMES[runner], kind),
              x_label='records per bundle (cap)',
              y_label='thousand records / CPU s',
              groups=[format(cap, ',') for cap in caps],
              series={
                  what: [
                      summary.median(
                          'records_per_cpu_s', what, runner, kind, cap) / 1000
                      for cap in caps
                  ]
                  for what in ('rival', 'ours')
              },
              notes={
                  'ours': [
                      '%.1f×' % summary.ratio(runner, kind, cap, 'rival')
                      for cap in caps
                  ]
              },
              level=summary.median('records_per_cpu_s', 'ceiling', *first) /
              1000))
    rows.append(panels)
  rows.append([
      plot.Lines(
          title='Memory: ' + _NAMES[runner],
          x_label='self-checkpoints',
          y_label='MB resident',
          series={
              what: sorted(summary.memory(what, runner).items())
              for what in MEMORY_WHATS
          }) for runner in summary.memory_runners()
  ])
  return plot.figure(
      title='Reading an unbounded source in Python',
      caption='%s · %s' % (about['date'], about['machine']),
      legend={
          'rival': 'upstream %s' % versions['rival'],
          'ours': 'ours %s' % versions['ours'],
          'level': 'ceiling: a plain DoFn drives the reader',
      },
      rows=rows)
