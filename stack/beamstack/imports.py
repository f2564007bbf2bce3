"""Finds imports of Beam modules that a prefix of the series does not have.

Compiling a file does not tell whether what it imports is there. A hook that
comes one pull request too early, or calls a file that nobody lists, does
compile.
"""

import ast
import functools
import re
from collections.abc import Callable
from collections.abc import Iterator

from beamstack.errors import Problem
from beamstack.parts import PYTHON

PACKAGE = 'apache_beam'


def problems(
    files: dict[str, bytes],
    exists: Callable[[str], bool],
    read: Callable[[str], bytes | None]) -> list[Problem]:
  """What the given files import of Beam, but is not there.

  Args:
    files: the changed files by repository path.
    exists: whether a module or package of a dotted name is there.
    read: the content of a repository path, files included.
  """
  found = []
  for path, data in sorted(files.items()):
    if not path.endswith('.py'):
      continue
    for line, module, name in _imports_of(data):
      if not _is_there(module, name, exists, read):
        whole = f'{module}.{name}' if name else module
        found.append(
            Problem(
                path,
                f'line {line} imports {whole}, which is not there',
                'list the file of that module in this pull request or an '
                'earlier one, in stack/series.toml'))
  return found


# Once for all the prefixes of the series that have the file.
@functools.lru_cache(maxsize=10000)
def _imports_of(data: bytes) -> tuple[tuple[int, str, str], ...]:
  try:
    return tuple(_imports(ast.parse(data)))
  except SyntaxError:
    return ()  # Told by the check of the syntax.


def _imports(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
  """Line, module and name of what is imported at the top level."""
  for node in tree.body:
    if isinstance(node, ast.Import):
      for alias in node.names:
        if alias.name.split('.')[0] == PACKAGE:
          yield node.lineno, alias.name, ''
    elif isinstance(node, ast.ImportFrom) and not node.level:
      if (node.module or '').split('.')[0] == PACKAGE:
        for alias in node.names:
          yield node.lineno, node.module, alias.name


def _is_there(
    module: str,
    name: str,
    exists: Callable[[str], bool],
    read: Callable[[str], bytes | None]) -> bool:
  if not exists(module):
    return False
  if not name or name == '*' or exists(f'{module}.{name}'):
    return True
  # A name that a package defines itself; a module's names are its affair.
  path = PYTHON.repository_path(module.replace('.', '/') + '/__init__.py')
  content = read(path)
  if content is None:
    return True
  text = content.decode('utf-8', 'replace')
  return 'import *' in text or bool(
      re.search(rf'\b{re.escape(name)}\b', text))


def existence(paths: set[str]) -> Callable[[str], bool]:
  """Answers for a set of repository paths whether a module is among them."""
  stems = set()
  for path in paths:
    if not PYTHON.holds(path):
      continue
    inner = PYTHON.artifact_path(path)
    folders = inner.split('/')[:-1]
    stems |= {'.'.join(folders[:n + 1]) for n in range(len(folders))}
    stems.add(inner.split('.')[0].replace('/', '.'))
  return lambda name: name in stems
