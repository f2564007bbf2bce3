#!/usr/bin/env python3
# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Measures ordered processing: the plain design and ours.

Elements in disorder are given to a function in the order of their times, each
with the two before it; of bounded sources, and of an unbounded one that
has 2,000 elements a second, and a watermark that is so far behind that so many
elements wait at a time. Each run is a
process of its own; they take turns. Writes ordered.md and ordered.jsonl (every
run) into --out.

Exit code: 0 all targets met (or --no-targets), 1 a target missed or a run
failed, 2 could not run, 130 interrupted.
"""

import dataclasses
import json
import pathlib
import statistics
import sys

import _driver
import _measured_process
import _targets
from _targets import Verdict

_CASE_PROGRAM = pathlib.Path(__file__).with_name('_ordered_case.py')
_RUNNERS = {'fnapi': 'FnApiRunner', 'prism': 'Prism'}
_NAMES = {
    'source': 'no order',
    'plain': 'plain design',
    'bag': 'ours',
    'list': 'ours, OrderedListState'
}
# Elements of the unbounded source in a second.
_RATE = 2000
# A plain design that is faster than this would make a ratio of noise.
_LEAST_S = 0.01


@dataclasses.dataclass(frozen=True)
class Shape:
  """What is put in order: so many elements, and at a time, if unbounded."""

  runner: str
  keys: int
  per_key: int
  buffered: int
  rate: int = 0  # Elements a second, 0 for as fast as they go.

  @property
  def name(self) -> str:
    if self.buffered:
      return 'unbounded, %s wait%s' % (
          format(self.buffered, ','), '' if self.rate else ', no pause')
    return 'bounded, %s of %s each' % (
        'a key' if self.keys == 1 else format(self.keys, ',') + ' keys',
        format(self.per_key, ','))

  @property
  def elements(self) -> int:
    return 2 * self.buffered or self.keys * self.per_key


@dataclasses.dataclass(frozen=True)
class Case:
  """One run to make."""

  what: str
  shape: Shape

  def label(self) -> str:
    return '%s, %s, %s ' % (
        _RUNNERS[self.shape.runner], self.shape.name, _NAMES[self.what])


def shapes(scale=1) -> list[Shape]:
  """All shapes, each number of elements divided by `scale`."""
  return [
      Shape('fnapi', 1, 100_000 // scale, 0),
      Shape('fnapi', 1000 // scale, 100, 0),
      Shape('prism', 1, 100_000 // scale, 0),
      Shape('prism', 1000 // scale, 100, 0),
      *(
          Shape('prism', 1, 0, buffered // scale, _RATE)
          for buffered in (5000, 10_000, 20_000)),
      # No target: the plain design falls behind, and what it gives late costs
      # it less.
      Shape('prism', 1, 0, 20_000 // scale)
  ]


def plan(repeats, of) -> list[Case]:
  """All runs, in order."""
  return [
      Case(what, shape) for _ in range(repeats) for shape in of
      for what in _NAMES if shape.buffered or what != 'list'
  ]


class Summary:
  """The runs of one benchmark, by what they measured."""
  def __init__(self, records):
    self.records = records
    self.shapes = list(
        dict.fromkeys(
            Shape(*(record[name] for name in Shape.__dataclass_fields__))
            for record in records))

  def _median(self, figure, what, shape):
    return statistics.median(
        figure(record) for record in self.records if record['what'] == what and
        all(
            record[name] == value
            for name, value in dataclasses.asdict(shape).items()))

  def median(self, field, what, shape) -> float:
    return self._median(lambda record: record[field], what, shape)

  def cpu(self, what, shape) -> float:
    """CPU seconds of the Python process and of Prism."""
    return self._median(
        lambda record: record['cpu_s'] + record['prism_cpu_s'], what, shape)

  def cpu_of_order(self, what, shape) -> float:
    """The same, but for what the pipeline takes without any order."""
    return max(
        self.cpu(what, shape) - self.cpu('source', shape), _LEAST_S)

  def times_less(self, what, shape) -> float:
    return self.cpu_of_order('plain', shape) / self.cpu_of_order(what, shape)

  def growth(self, what) -> float:
    """CPU of an element in the largest buffer by that in the smallest."""
    unbounded = [shape for shape in self.shapes if shape.rate]
    first, last = unbounded[0], unbounded[-1]
    return (self.cpu_of_order(what, last) / last.elements) / (
        self.cpu_of_order(what, first) / first.elements)

  def ours(self, shape) -> tuple[str, ...]:
    return ('bag', 'list') if shape.buffered else ('bag', )

  def verdicts(self) -> list[Verdict]:
    verdicts = []
    for shape in self.shapes:
      if shape.buffered and not shape.rate:
        continue
      for what in self.ours(shape):
        name = '%s, %s, %s' % (
            _RUNNERS[shape.runner], shape.name, _NAMES[what])
        at_least = 2 if shape.buffered else 5
        times = self.times_less(what, shape)
        verdicts.append(
            Verdict(
                '%s: %d times less CPU than the plain design' %
                (name, at_least),
                '%.1f times' % times,
                times >= at_least))
        if shape.buffered:
          wall = (
              self.median('wall_s', what, shape) /
              self.median('wall_s', 'plain', shape))
          verdicts.append(
              Verdict(
                  '%s: no more time than the plain design (a tenth is noise)' %
                  name,
                  '%.2f times' % wall,
                  wall <= 1.1))
    for what in ('bag', 'list'):
      growth = self.growth(what)
      verdicts.append(
          Verdict(
              'Prism, %s: an element in a buffer four times as large takes at '
              'most 1.5 times the CPU' % _NAMES[what],
              '%.2f times' % growth,
              growth <= 1.5))
    return verdicts


def markdown(summary, verdicts, about) -> str:
  lines = [
      '# Ordered processing: results',
      '',
      'Measured on %s with apache-beam %s; Prism binary %s; %s. Medians of %d '
      'runs.%s' % (
          about['date'],
          summary.records[0]['beam'],
          about['prism'],
          about['machine'],
          about['repeats'],
          ' A quick run: rough figures.' if about['quick'] else ''),
      '',
      'What is measured, and how, is in [the README](../README.md). Every run '
      'is in `ordered.jsonl`.',
      '',
      *_targets.section(verdicts),
      '## CPU seconds',
      '',
      'Of Python and Prism together, from the first element to the end of the '
      'pipeline; "no order" is the same pipeline without any, which the '
      'last two columns leave out.',
      '',
      '| runner | elements | | no order | in order | of that Prism | wall '
      'seconds | µs of CPU for the order of an element | times less than the '
      'plain design |',
      '| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |'
  ]
  for shape in summary.shapes:
    for what in ('plain', *summary.ours(shape)):
      lines.append(
          '| %s | %s | %s | %.2f | %.2f | %.2f | %.2f | %.0f | %s |' % (
              _RUNNERS[shape.runner],
              shape.name,
              _NAMES[what],
              summary.cpu('source', shape),
              summary.cpu(what, shape),
              summary.median('prism_cpu_s', what, shape),
              summary.median('wall_s', what, shape),
              summary.cpu_of_order(what, shape) / shape.elements * 1e6,
              '' if what == 'plain' else '%.1f' %
              summary.times_less(what, shape)))
  return '\n'.join(lines) + '\n'


def run_case(case, python, prism, timeout_s):
  request = dict(dataclasses.asdict(case.shape), what=case.what)
  more = json.dumps(dict(request, prism=str(prism)))
  command = [str(python), str(_CASE_PROGRAM), more]
  return dict(request, **_measured_process.measure(command, timeout_s))


def parse(arguments):
  parser = _driver.parser(
      __doc__,
      quick='a tenth of the elements and one run of each: rough figures',
      timeout=600)
  parser.add_argument(
      '--ours', required=True, metavar='PYTHON', help='has the dev wheel')
  parser.add_argument('--prism', required=True, metavar='BINARY')
  return parser.parse_args(arguments)


def bench(options) -> int:
  python = _driver.executable('--ours', options.ours)
  prism = _driver.executable('--prism', options.prism)
  repeats = _driver.repeats_of(options)
  cases = plan(repeats, shapes(10 if options.quick else 1))
  with _driver.results(options.out / 'ordered.jsonl') as write:
    records = _driver.in_turn(
        cases,
        lambda case: run_case(case, python, prism, options.timeout),
        lambda record: '%.2f CPU s' % (record['cpu_s'] + record['prism_cpu_s']),
        write)
  summary = Summary(records)
  verdicts = summary.verdicts()
  about = _driver.about(
      options, prism=_driver.prism_version(prism), repeats=repeats)
  (options.out / 'ordered.md').write_text(markdown(summary, verdicts, about))
  return _targets.tell(verdicts, options.no_targets)


def main(arguments=None) -> int:
  return _driver.run('ordered.py', bench, parse(arguments))


if __name__ == '__main__':
  sys.exit(main())
