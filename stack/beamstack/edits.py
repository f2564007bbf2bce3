"""Finds the places of edits by structure, and puts their text there.

Everything here is a function from text to text. Offsets are those of
ast-grep's Python binding, which counts characters.
"""

import dataclasses
import re

import ast_grep_py

from beamstack.parts import Part
from beamstack.series import Edit

_CAPTURE = re.compile(r'\$\$\$([A-Z_][A-Z0-9_]*)|\$([A-Z_][A-Z0-9_]*)')
# What may follow a node on its last line without being cut off by new lines.
_TAIL = re.compile(r'[ \t]*[,;]?[ \t]*((#|//).*)?')


class EditError(Exception):
  """An edit cannot be applied to a text; the message says why."""


@dataclasses.dataclass(frozen=True)
class Change:
  """Replaces text[start:end] by `text`."""

  start: int
  end: int
  text: str


def find(text: str, part: Part, rule: dict) -> list[ast_grep_py.SgNode]:
  """All places in a text that an ast-grep rule finds, in their order."""
  root = ast_grep_py.SgRoot(text, part.language).root()
  try:
    found = root.find_all(rule)
  except Exception as e:  # The binding raises bare Exceptions for bad rules.
    raise EditError(f'ast-grep refuses the rule: {_reason(e)}') from e
  return sorted(found, key=lambda node: node.range().start.index)


def _reason(error: Exception) -> str:
  lines = str(error).split('Stack backtrace')[0].splitlines()
  lines = [re.sub(r'^\d+: ', '', line.strip()) for line in lines]
  return ' '.join(line for line in lines if line and line != 'Caused by:')


def is_upstream(text: str, part: Part, edit: Edit) -> bool:
  """Whether a base has what the edit brings, by the edit's own rule."""
  return edit.upstream is not None and bool(find(text, part, edit.upstream))


def apply(text: str, part: Part, edit: Edit) -> str:
  """The text with one edit applied.

  Raises:
    EditError: if the number of places is not the declared one, or a place
      cannot take the text.
  """
  key = (id(edit), part.name, text)
  if key not in _APPLIED:
    # The edit is kept with it, so that its id stays its own.
    _APPLIED[key] = edit, _apply(text, part, edit)
  return _APPLIED[key][1]


# What came of an edit and a text. A check asks once for each prefix of the
# series, and to find a place takes most of its time.
_APPLIED: dict[tuple[int, str, str], tuple[Edit, str]] = {}


def _apply(text: str, part: Part, edit: Edit) -> str:
  nodes = find(text, part, edit.rule)
  if len(nodes) != edit.matches:
    raise EditError(_count_message(edit, nodes))
  changes = []
  for node in nodes:
    change = _change(text, part, edit, node)
    # After the indentation: what was captured lies as deep as it should.
    filled = fill(change.text, node)
    changes.append(dataclasses.replace(change, text=filled))
  return commit(text, changes)


def _count_message(edit: Edit, nodes: list) -> str:
  found = f'{len(nodes)} match{"" if len(nodes) == 1 else "es"}'
  lines = ', '.join(str(n.range().start.line + 1) for n in nodes[:8])
  where = f' (line {lines})' if nodes else ''
  return f'{found} in {edit.file}{where}, {edit.matches} expected'


def commit(text: str, changes: list[Change]) -> str:
  """Makes all changes; they may not overlap."""
  ordered = sorted(changes, key=lambda change: (change.start, change.end))
  pieces = []
  at = 0
  for change in ordered:
    if change.start < at:
      raise EditError('two of the places overlap')
    pieces += [text[at:change.start], change.text]
    at = change.end
  return ''.join(pieces) + text[at:]


def _change(text: str, part: Part, edit: Edit, node) -> Change:
  start, end = node.range().start.index, node.range().end.index
  body = edit.text.removesuffix('\n')
  if edit.place == 'replace':
    return _replacement(text, start, end, body)
  if edit.place == 'before':
    return _before(text, start, body)
  if edit.place == 'after':
    return _after(text, start, end, body)
  block = _block(node)
  if edit.place == 'first-in-body':
    return _first(text, part, node, block, body)
  return _last(text, part, node, block, body)


def fill(body: str, node) -> str:
  """Fills in the captures of a match, `$NAME` and `$$$NAMES`."""

  def value(match: re.Match) -> str:
    many, one = match.groups()
    if many:
      captured = node.get_multiple_matches(many)
      if captured:
        source = node.get_root().root().text()
        return source[captured[0].range().start.index:captured[-1].range().end
                      .index]
    else:
      captured = node.get_match(one)
      if captured is not None:
        return captured.text()
    raise EditError(f'the rule captures no {match.group(0)}')

  return _CAPTURE.sub(value, body)


def indent(body: str, margin: str) -> str:
  """Puts a margin before each line that is not empty."""
  return '\n'.join(
      margin + line if line.strip() else '' for line in body.split('\n'))


def _margin(text: str, offset: int) -> str:
  """The white space that the line of an offset begins with."""
  line = text[text.rfind('\n', 0, offset) + 1:]
  return line[:len(line) - len(line.lstrip(' \t'))]


def _line_start(text: str, offset: int) -> int:
  """The start of the offset's line, which must hold only space before it."""
  start = text.rfind('\n', 0, offset) + 1
  if text[start:offset].strip():
    line = text.count('\n', 0, offset) + 1
    raise EditError(f'the place on line {line} does not begin its line')
  return start


def _line_end(text: str, offset: int) -> int:
  """The end of the offset's line, which must hold no more code after it."""
  end = text.find('\n', offset)
  end = len(text) if end < 0 else end
  if not _TAIL.fullmatch(text[offset:end]):
    line = text.count('\n', 0, offset) + 1
    raise EditError(f'the place ends within line {line}')
  return end


def _replacement(text: str, start: int, end: int, body: str) -> Change:
  if not body:
    # Nothing is left of lines that held only this place.
    start = _line_start(text, start)
    return Change(start, min(_line_end(text, end) + 1, len(text)), '')
  return Change(start, end, indent(body, _margin(text, start)).lstrip(' \t'))


def _before(text: str, start: int, body: str) -> Change:
  at = _line_start(text, start)
  return Change(at, at, indent(body, _margin(text, start)) + '\n')


def _after(text: str, start: int, end: int, body: str) -> Change:
  at = _line_end(text, end)
  return Change(at, at, '\n' + indent(body, _margin(text, start)))


def _block(node):
  """The body of a definition, or the node itself if it is a body."""
  inner = node.field('definition') or node
  body = inner.field('body')
  if body is not None:
    return body
  if inner.kind() in ('block', 'class_body'):
    return inner
  raise EditError(f'a {node.kind()} has no body')


def _statements(block) -> list:
  """The named children of a body; Go has a list node in between."""
  named = [child for child in block.children() if child.is_named()]
  if len(named) == 1 and named[0].kind() == 'statement_list':
    named = [c for c in named[0].children() if c.is_named()]
  return named


def _has_braces(block) -> bool:
  return block.text().startswith('{')


def _inner_margin(text: str, part: Part, node, statements: list) -> str:
  if statements:
    return _margin(text, statements[0].range().start.index)
  return _margin(text, node.range().start.index) + part.indent


def _first(text: str, part: Part, node, block, body: str) -> Change:
  statements = _statements(block)
  margin = _inner_margin(text, part, node, statements)
  if not statements:
    return _into_empty(text, node, block, indent(body, margin))
  if _has_braces(block):
    at = _line_end(text, block.range().start.index + 1)
    return Change(at, at, '\n' + indent(body, margin))
  first = statements[0].range()
  _line_start(text, first.start.index)
  if _is_docstring(statements[0]):
    at = _line_end(text, first.end.index)
    return Change(at, at, '\n' + indent(body, margin))
  at = _line_start(text, first.start.index)
  return Change(at, at, indent(body, margin) + '\n')


def _is_docstring(statement) -> bool:
  if statement.kind() != 'expression_statement':
    return False
  children = statement.children()
  return len(children) == 1 and children[0].kind() == 'string'


def _last(text: str, part: Part, node, block, body: str) -> Change:
  statements = _statements(block)
  margin = _inner_margin(text, part, node, statements)
  if statements:
    _line_start(text, statements[0].range().start.index)
    at = _line_end(text, statements[-1].range().end.index)
    return Change(at, at, '\n' + indent(body, margin))
  return _into_empty(text, node, block, indent(body, margin))


def _into_empty(text: str, node, block, body: str) -> Change:
  start, end = block.range().start.index + 1, block.range().end.index - 1
  outer = _margin(text, node.range().start.index)
  return Change(start, end, f'\n{body}\n{outer}')
