# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Small multiples of bars and lines as one SVG, for light and dark pages.

Colours are classes, not attributes: the reader's colour scheme picks them.
A series' key ('rival', 'ours') is its class, so it has one colour throughout.
"""

import dataclasses
import html
import math

_WIDTH = 880
_MARGIN = 24
_HEAD = 92
_PANEL_HEIGHT = 236
_FOOT = 34
# Inside a panel: room for the y axis' words, the title, the x axis' words.
_LEFT, _TOP, _RIGHT, _BOTTOM = 62, 34, 12, 46

_STYLE = '''
  .page { fill: #ffffff } .ink { fill: #1f2328 } .soft { fill: #59636e }
  .grid { stroke: #d8dee4 } .axis { stroke: #818b98 }
  .rival { fill: #9aa4af } .ours { fill: #0969da }
  .line.rival { stroke: #818b98 } .line.ours { stroke: #0969da }
  .level { stroke: #bc4c00 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .ink { fill: #f0f6fc } .soft { fill: #9198a1 }
    .grid { stroke: #2a313c } .axis { stroke: #656c76 }
    .rival { fill: #656c76 } .ours { fill: #4493f8 }
    .line.rival { stroke: #9198a1 } .line.ours { stroke: #4493f8 }
    .level { stroke: #f0883e }
  }
  text { font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif }
  .title { font-size: 18px; font-weight: 600 }
  .panel { font-size: 13px; font-weight: 600 }
  .note { font-weight: 600 }
  .line { fill: none; stroke-width: 2 }
  .level { stroke-width: 1.5; stroke-dasharray: 5 3 }
'''


@dataclasses.dataclass(frozen=True)
class Bars:
  """Groups of bars, one bar a series; `level` is a dashed line across."""

  title: str
  x_label: str
  y_label: str
  groups: list
  series: dict
  notes: dict = dataclasses.field(default_factory=dict)
  level: float = 0

  def top(self):
    return max([self.level] + [max(bars) for bars in self.series.values()])

  def draw(self, frame):
    step = frame.width / len(self.groups)
    bar = min(step * 0.8 / len(self.series), 44)
    for index, group in enumerate(self.groups):
      middle = frame.left + step * (index + 0.5)
      yield _text(middle, frame.bottom + 17, group, 'soft', 'middle')
      x = middle - bar * len(self.series) / 2
      for name, values in self.series.items():
        y = frame.y(values[index])
        yield _rect(x + 1, y, bar - 2, frame.bottom - y, name)
        if name in self.notes:
          yield _text(
              x + bar / 2, y - 5, self.notes[name][index], 'ink note', 'middle')
        x += bar
    if self.level:
      y = frame.y(self.level)
      yield _line(frame.left, y, frame.right, y, 'level')


@dataclasses.dataclass(frozen=True)
class Lines:
  """A line a series, through its (x, y) points."""

  title: str
  x_label: str
  y_label: str
  series: dict

  def top(self):
    return max(y for points in self.series.values() for _, y in points)

  def draw(self, frame):
    places = sorted({x for points in self.series.values() for x, _ in points})
    scale = frame.width / places[-1]
    for x in places:
      yield _text(
          frame.left + x * scale,
          frame.bottom + 17,
          format(x, ','),
          'soft',
          'end' if x == places[-1] else 'middle')
    for name, points in self.series.items():
      at = [(frame.left + x * scale, frame.y(y)) for x, y in points]
      yield '<polyline points="%s" class="line %s"/>' % (
          ' '.join('%.1f,%.1f' % point for point in at), name)
      for x, y in at:
        yield '<circle cx="%.1f" cy="%.1f" r="3" class="%s"/>' % (x, y, name)


@dataclasses.dataclass(frozen=True)
class _Frame:
  """Where a panel's data area is, and how high a value reaches in it."""

  left: float
  top: float
  right: float
  bottom: float
  most: float

  @property
  def width(self):
    return self.right - self.left

  def y(self, value):
    return self.bottom - (self.bottom - self.top) * value / self.most


def ticks(top, wanted=4):
  """Round numbers from 0 to at least `top`, about `wanted` steps."""
  if top <= 0:
    return [0, 1]
  rough = top / wanted
  power = 10**math.floor(math.log10(rough))
  step = next(
      factor * power for factor in (1, 2, 2.5, 5, 10)
      if factor * power >= rough)
  count = math.ceil(top / step)
  return [step * index for index in range(count + 1)]


def _text(x, y, text, kind, anchor='start', turn=False):
  return '<text x="%.1f" y="%.1f" class="%s" text-anchor="%s"%s>%s</text>' % (
      x,
      y,
      kind,
      anchor,
      ' transform="rotate(-90 %.1f %.1f)"' % (x, y) if turn else '',
      html.escape(str(text)))


def _rect(x, y, width, height, kind):
  return '<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" class="%s"/>' % (
      x, y, width, height, kind)


def _line(x1, y1, x2, y2, kind):
  return '<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>' % (
      x1, y1, x2, y2, kind)


def _panel(panel, x, y, width, top):
  marks = ticks(top)
  frame = _Frame(
      x + _LEFT,
      y + _TOP,
      x + width - _RIGHT,
      y + _PANEL_HEIGHT - _BOTTOM,
      marks[-1])
  yield _text(frame.left, y + 16, panel.title, 'ink panel')
  middle = (frame.top + frame.bottom) / 2
  yield _text(x + 14, middle, panel.y_label, 'soft', 'middle', turn=True)
  for mark in marks:
    at = frame.y(mark)
    yield _line(
        frame.left, at, frame.right, at, 'grid' if mark else 'axis')
    yield _text(
        frame.left - 7, at + 4, format(round(mark, 6), ',g'), 'soft', 'end')
  yield from panel.draw(frame)
  yield _text(
      (frame.left + frame.right) / 2,
      frame.bottom + 36,
      panel.x_label,
      'soft',
      'middle')


def _legend(entries, y):
  x = _MARGIN
  for name, label in entries.items():
    if name == 'level':
      yield _line(x, y - 4, x + 22, y - 4, name)
    else:
      yield _rect(x, y - 10, 22, 12, name)
    yield _text(x + 29, y, label, 'ink')
    x += 29 + 7 * len(label) + 24


def figure(title, caption, legend, rows) -> str:
  """The whole picture. Panels of one row share the scale of their y axis."""
  height = _HEAD + len(rows) * _PANEL_HEIGHT + _FOOT
  parts = [
      '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" '
      'role="img" aria-label="%s">' %
      (_WIDTH, height, html.escape(title, quote=True)),
      '<style>%s</style>' % _STYLE,
      _rect(0, 0, _WIDTH, height, 'page'),
      _text(_MARGIN, 38, title, 'ink title'),
  ]
  parts += _legend(legend, 66)
  for index, panels in enumerate(rows):
    width = (_WIDTH - 2 * _MARGIN) / len(panels)
    top = max(panel.top() for panel in panels)
    for column, panel in enumerate(panels):
      parts += _panel(
          panel,
          _MARGIN + column * width,
          _HEAD + index * _PANEL_HEIGHT,
          width,
          top)
  parts.append(_text(_MARGIN, height - 16, caption, 'soft'))
  parts.append('</svg>\n')
  return '\n'.join(parts)
