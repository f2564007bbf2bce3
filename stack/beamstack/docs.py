"""Runs the code that the documentation shows.

A page under website/ is one script: its ```python blocks, in order. A block
that cannot run has a comment before it that says why:

    <!-- not run: it wants a Flink cluster -->

The examples in the docstrings of a module are run by a file in stack/docs/,
which brings what they need and looks at what they did. A line in it says
where the examples come:

    # examples of sdks/python/apache_beam/some_module.py

Nothing here knows what the code is about. What fails is told with the file and
line that a reader of the documentation sees.
"""

import ast
import dataclasses
import json
import os
import pathlib
import re
import tempfile
import textwrap

from beamstack import processes
from beamstack import pytests
from beamstack.errors import Problem

SCRIPT_SECONDS = 300.0
LANGUAGES = ('python', 'py')

_FENCE = re.compile(r'[ \t]*(`{3,}|~{3,})[ \t]*([^`\s]*)')
_NOT_RUN = re.compile(r'[ \t]*<!--[ \t]*not run\b:?(.*?)(?:-->.*)?$')
_SHORTCODE = re.compile(r'\{\{<\s*highlight\s+py')
_PLACE = re.compile(r'# examples of (\S+)')

# Runs pieces of code as the main module, under the names and lines of the
# files that they come from. Says in a file how it went, since what is printed
# is the code's own, and its exit code can be, too.
_DRIVER = '''
import json, sys, traceback, types
pieces, said = json.load(open(sys.argv[1])), sys.argv[2]
sys.argv = ['']
main = sys.modules['__main__'] = types.ModuleType('__main__')
files = {file for file, _, _ in pieces}
file = line = ''
try:
  for file, line, code in pieces:
    exec(compile('\\n' * (line - 1) + code, file, 'exec'), main.__dict__)
  outcome = {}
except BaseException as e:
  traceback.print_exc()
  trace = traceback.extract_tb(e.__traceback__)
  frames = [(f.filename, f.lineno) for f in trace if f.filename in files]
  if isinstance(e, SyntaxError) and e.filename in files:
    frames.append((e.filename, e.lineno))
  file, line = frames[-1] if frames else (file, line)
  what = ''.join(traceback.format_exception_only(e))
  outcome = {'file': file, 'line': line, 'what': what}
with open(said, 'w') as f:
  json.dump(outcome, f)
sys.exit(1 if outcome else 0)
'''


@dataclasses.dataclass(frozen=True)
class Piece:
  """Code, and the file and line where its first line stands."""

  file: str
  line: int
  code: str


@dataclasses.dataclass(frozen=True)
class Script:
  """What runs in one process, and what is wrong with it as it stands."""

  file: str
  pieces: tuple[Piece, ...]
  problems: tuple[Problem, ...] = ()


def page_script(
    file: str, text: str, *languages: str) -> Script:
  """The blocks of a page that are Python, or in other languages."""
  pieces = []
  problems = []
  left_out = 0  # The line of a "not run" that waits for its block.
  fence = ''
  start = 0
  block: list[str] | None = None

  def wrong(line: int, what: str, remedy: str) -> None:
    problems.append(Problem(f'{file}:{line}', what, remedy))

  lines = text.splitlines()
  for number, line in enumerate(lines, 1):
    found = _FENCE.match(line)
    if fence:
      closes = (
          found and found[1].startswith(fence) and
          line.strip() == found[1])
      if not closes:
        if block is not None:
          block.append(line)
        continue
      if block is not None:
        code = textwrap.dedent('\n'.join(block)) + '\n'
        pieces.append(Piece(file, start, code))
      fence, block = '', None
      continue
    if found:
      fence, start = found[1], number + 1
      if found[2].lower() in (languages or LANGUAGES):
        block = None if left_out else []
        left_out = 0
      continue
    marker = _NOT_RUN.match(line)
    if marker:
      if not marker[1].strip():
        wrong(
            number, '"not run" gives no reason',
            'write <!-- not run: why it cannot -->, in one line')
      if left_out:
        wrong(left_out, '"not run" has no block of Python', 'take it out')
      left_out = number
      continue
    if _SHORTCODE.search(line):
      wrong(
          number, 'a highlight shortcode, whose code is not run',
          'use a fence: ```python')
    if left_out and line.strip():
      wrong(
          left_out, '"not run" has no block of Python after it',
          'put it right before the block, or take it out')
      left_out = 0
  if fence:
    wrong(start - 1, 'the block has no end', f'close it with {fence}')
  if left_out:
    wrong(left_out, '"not run" has no block of Python', 'take it out')
  return Script(file, tuple(pieces), tuple(problems))


def docstring_pieces(file: str, text: str) -> list[Piece]:
  """The literal blocks (after `::`) in the docstrings of a module."""
  kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
  pieces = []
  for node in ast.walk(ast.parse(text)):
    if isinstance(node, kinds) and ast.get_docstring(node, False) is not None:
      string = node.body[0].value
      # As it is written, so that lines can be counted; without the quotes that
      # end it, since an example may stand in its last line.
      source = ast.get_source_segment(text, string)[:-3]
      lines = (' ' * string.col_offset + source).splitlines()
      pieces += _literal_blocks(file, lines, string.lineno)
  return sorted(pieces, key=lambda piece: piece.line)


def _literal_blocks(file: str, lines: list[str], first: int) -> list[Piece]:
  found = []
  at = 0
  while at < len(lines):
    intro = lines[at]
    at += 1
    if not intro.rstrip().endswith('::'):
      continue
    start = at
    while at < len(lines) and (not lines[at].strip() or
                               _margin(lines[at]) > _margin(intro)):
      at += 1
    code = textwrap.dedent('\n'.join(lines[start:at])).rstrip() + '\n'
    if code.strip():
      found.append(Piece(file, first + start, code))
  return found


def _margin(line: str) -> int:
  return len(line) - len(line.lstrip())


def example_script(root: pathlib.Path, file: str, text: str) -> Script:
  """A file of stack/docs/, with the examples of a module in their place."""
  lines = text.splitlines(keepends=True)
  places = [
      (number, found[1]) for number, line in enumerate(lines, 1)
      if (found := _PLACE.fullmatch(line.strip()))
  ]
  if len(places) != 1:
    return Script(
        file, (), (
            Problem(
                file, f'{len(places)} lines say where examples come; 1 must',
                'write: # examples of sdks/python/apache_beam/….py'), ))
  number, module = places[0]
  path = root / module
  if not path.is_file():
    return Script(
        file, (),
        (Problem(f'{file}:{number}', f'{module} is not there',
                 'mend the path'), ))
  examples = docstring_pieces(module, path.read_text(encoding='utf-8'))
  if not examples:
    return Script(
        file, (), (
            Problem(
                f'{file}:{number}',
                f'{module} has no example in a docstring (after ::)',
                f'write one, or remove {file}'), ))
  return Script(
      file, (
          Piece(file, 1, ''.join(lines[:number - 1])), *examples,
          Piece(file, number + 1, ''.join(lines[number:]))))


def scripts(root: pathlib.Path) -> list[Script]:
  """All pages with Python in them, and all of stack/docs/."""
  found = []
  for path in sorted(root.glob('website/**/*.md')):
    file = path.relative_to(root).as_posix()
    found.append(page_script(file, path.read_text(encoding='utf-8')))
  for path in sorted(root.glob('stack/docs/*.py')):
    file = path.relative_to(root).as_posix()
    found.append(
        example_script(root, file, path.read_text(encoding='utf-8')))
  return [one for one in found if one.pieces or one.problems]


def run(
    root: pathlib.Path,
    python: pathlib.Path,
    logs: pathlib.Path,
    timeout: float = SCRIPT_SECONDS) -> pytests.Result:
  """Runs all scripts of a checkout; each counts as one test."""
  states = {}
  problems = []
  outputs = []
  for script in scripts(root):
    wrong = list(script.problems)
    if not wrong:
      problem, output = run_script(root, python, logs, script, timeout)
      outputs.append(output)
      wrong += [problem] if problem else []
    states[script.file] = 'failed' if wrong else 'passed'
    problems += wrong
  return pytests.Result(
      pytests.count(states), states, problems, '\n'.join(outputs))


def run_script(
    root: pathlib.Path, python: pathlib.Path, logs: pathlib.Path,
    script: Script, timeout: float) -> tuple[Problem | None, str]:
  """Runs one script in a folder of its own; returns what is wrong, if any."""
  log = logs / f'docs-{pathlib.PurePosixPath(script.file).stem}.log'
  with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(temporary)
    # Whole paths, so that the traceback in the log shows the lines.
    pieces = [(str(root / p.file), p.line, p.code) for p in script.pieces]
    (folder / 'pieces.json').write_text(json.dumps(pieces))
    said = folder / 'said.json'
    work = folder / 'work'
    work.mkdir()
    code, output = processes.run(
        [python, '-c', _DRIVER, folder / 'pieces.json', said],
        cwd=work,
        env={'TMPDIR': os.fspath(work)},
        without=('PYTHONPATH', ),
        log=log,
        timeout=timeout)
    outcome = json.loads(said.read_text()) if said.is_file() else None
  see = f'see {log}'
  if code == 124 and outcome is None:
    return Problem(script.file, f'not done after {timeout:.0f} s', see), output
  if outcome is None or (code and not outcome):
    last = ' / '.join(processes.last_lines(output, 2)) or 'it printed nothing'
    return Problem(script.file, f'ended with {code}: {last}', see), output
  if not outcome:
    return None, output
  file = os.path.relpath(outcome['file'], root)
  # Beam's messages may hold whole tracebacks; the last line is the error.
  what = ' / '.join(processes.last_lines(outcome['what'], 1))
  return Problem(f'{file}:{outcome["line"]}', what, see), output
