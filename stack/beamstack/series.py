"""Reads the series: series.toml, the edits and the descriptions."""

import dataclasses
import hashlib
import pathlib
from typing import Any

from beamstack import tomlfile
from beamstack.errors import CannotRun

PLACES = ('replace', 'before', 'after', 'first-in-body', 'last-in-body')


@dataclasses.dataclass(frozen=True)
class Edit:
  """A change to a place in an upstream file, found by structure.

  Attributes:
    name: unique in the series.
    why: one sentence.
    file: the repository path of the upstream file.
    rule: the ast-grep configuration that finds the place.
    place: where the text goes, relative to what the rule finds.
    text: what to put there, flush left.
    matches: how many places the rule must find.
    upstream: an ast-grep rule that matches where a newer Beam has the change
      already, or None.
    pull_request: the name of the pull request that it belongs to.
    source: the path of the file that declares it, below the root.
  """

  name: str
  why: str
  file: str
  rule: dict[str, Any]
  place: str
  text: str
  matches: int
  upstream: dict[str, Any] | None
  pull_request: str
  source: str


@dataclasses.dataclass(frozen=True)
class PullRequest:
  """One pull request of the series, as series.toml declares it."""

  name: str
  title: str
  needs: tuple[str, ...] = ()
  files: tuple[str, ...] = ()
  replaces: tuple[str, ...] = ()
  tests: tuple[str, ...] = ()
  upstream_tests: tuple[str, ...] = ()
  addon: bool = False
  alone: bool = False
  edits: tuple[Edit, ...] = ()
  description: str = ''


@dataclasses.dataclass(frozen=True)
class Series:
  """All pull requests, in the order in which they apply."""

  title: str
  label: str
  root: pathlib.Path
  pull_requests: tuple[PullRequest, ...]

  def prefix(self, count: int) -> 'Series':
    """The series up to and with its `count`-th pull request."""
    return dataclasses.replace(
        self, pull_requests=self.pull_requests[:count])

  def files(self) -> list[str]:
    return [path for pr in self.pull_requests for path in pr.files]

  def edits(self) -> list[Edit]:
    return [edit for pr in self.pull_requests for edit in pr.edits]

  def read(self, path: str) -> bytes | None:
    """The content of one of the series' own files; None if it is missing."""
    try:
      return (self.root / path).read_bytes()
    except (FileNotFoundError, IsADirectoryError):
      return None

  def content_label(self) -> str:
    """The label of what the series makes: `stack.` and 8 hex digits.

    It depends on the files and edits, and on their order, since these alone
    decide what is built.
    """
    sha = hashlib.sha256()
    for pr in self.pull_requests:
      for path in sorted(pr.files):
        _add(sha, path.encode())
        _add(sha, self.read(path) or b'')
      for edit in pr.edits:
        fields = dataclasses.asdict(edit)
        for key in ('why', 'pull_request', 'source'):
          del fields[key]
        _add(sha, repr(sorted(fields.items())).encode())
    return f'{self.label}.{sha.hexdigest()[:8]}'


def _add(sha, data: bytes) -> None:
  sha.update(len(data).to_bytes(8, 'big') + data)


def load(root: pathlib.Path) -> Series:
  """Reads the series that a checkout holds."""
  path = root / 'stack' / 'series.toml'
  content = tomlfile.Table('series.toml', tomlfile.load(path))
  head = tomlfile.Table('series.toml [series]', content.take('series', dict))
  title = head.take('title', str)
  label = head.take('label', str)
  head.done()
  tables = content.take('pull-request', list, [])
  content.done()
  if not tables:
    raise CannotRun(
        'series.toml lists no pull request', 'add a [[pull-request]] table')
  return Series(
      title, label, root, tuple(_pull_request(root, t) for t in tables))


def _pull_request(root: pathlib.Path, content: Any) -> PullRequest:
  table = tomlfile.Table('series.toml [[pull-request]]', content)
  name = table.take('name', str)
  table.where = f'series.toml, pull request {name}'
  folder = root / 'stack' / name
  described = folder / 'PR.md'
  result = PullRequest(
      name=name,
      title=table.take('title', str),
      needs=table.take_strings('needs'),
      files=table.take_strings('files'),
      replaces=table.take_strings('replaces'),
      tests=table.take_strings('tests'),
      upstream_tests=table.take_strings('upstream-tests'),
      addon=table.take('addon', bool, False),
      alone=table.take('alone', bool, False),
      edits=load_edits(root, name),
      description=described.read_text() if described.is_file() else '')
  table.done()
  return result


def load_edits(root: pathlib.Path, pull_request: str) -> tuple[Edit, ...]:
  """The edits of a pull request: files by name, edits as they stand there."""
  folder = root / 'stack' / pull_request / 'edits'
  found = []
  for path in sorted(folder.glob('*.toml')):
    source = path.relative_to(root).as_posix()
    table = tomlfile.Table(source, tomlfile.load(path))
    file = table.take('file', str)
    for content in table.take('edit', list):
      found.append(_edit(content, file, pull_request, source))
    table.done()
  return tuple(found)


def _edit(content: Any, file: str, pull_request: str, source: str) -> Edit:
  table = tomlfile.Table(f'{source} [[edit]]', content)
  name = table.take('name', str)
  table.where = f'{source}, edit {name}'
  place = table.take('place', str)
  if place not in PLACES:
    raise CannotRun(
        f'{table.where}: place = "{place}" is unknown',
        'use one of ' + ', '.join(PLACES))
  rule = {'rule': table.take('rule', dict)}
  for key in ('constraints', 'utils'):
    extra = table.take(key, dict, {})
    if extra:
      rule[key] = extra
  upstream = table.take('upstream', dict, {})
  result = Edit(
      name=name,
      why=table.take('why', str),
      file=file,
      rule=rule,
      place=place,
      text=table.take('text', str),
      matches=table.take('matches', int, 1),
      upstream={'rule': upstream} if upstream else None,
      pull_request=pull_request,
      source=source)
  table.done()
  if result.matches < 1:
    raise CannotRun(
        f'{table.where}: matches = {result.matches}, it must be 1 or more',
        'declare how many places the rule finds')
  return result
