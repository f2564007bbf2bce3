"""Reads TOML with errors that name the file, the table and the key."""

import pathlib
import sys
from typing import Any

from beamstack.errors import CannotRun

if sys.version_info >= (3, 11):
  import tomllib
else:
  import tomli as tomllib


def load(path: pathlib.Path) -> dict[str, Any]:
  try:
    return tomllib.loads(path.read_text(encoding='utf-8'))
  except FileNotFoundError:
    raise CannotRun(f'{path} is not there', 'git status') from None
  except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
    raise CannotRun(f'{path} is not TOML: {e}', f'mend {path}') from None


class Table:
  """A TOML table that is taken apart key by key; nothing may be left over."""

  def __init__(self, where: str, content: Any):
    if not isinstance(content, dict):
      raise CannotRun(f'{where} is not a table', 'mend it')
    self.where = where
    self._rest = dict(content)

  def take(self, key: str, kind: type, default: Any = None) -> Any:
    """Takes the value of a key; without a default the key must be there."""
    if key not in self._rest:
      if default is None:
        raise CannotRun(f'{self.where} has no {key}', f'add {key} = …')
      return default
    value = self._rest.pop(key)
    if not isinstance(value, kind) or (kind is int and
                                       isinstance(value, bool)):
      raise CannotRun(
          f'{self.where}: {key} = {value!r} is not a {kind.__name__}',
          'mend it')
    return value

  def take_strings(self, key: str) -> tuple[str, ...]:
    values = self.take(key, list, [])
    for value in values:
      if not isinstance(value, str):
        raise CannotRun(
            f'{self.where}: {key} holds {value!r}, which is not a string',
            'mend it')
    return tuple(values)

  def done(self) -> None:
    """Refuses keys that nobody took: they would be ignored silently."""
    if self._rest:
      raise CannotRun(
          f'{self.where} has unknown keys: {", ".join(sorted(self._rest))}',
          'mend the names, or remove them')
