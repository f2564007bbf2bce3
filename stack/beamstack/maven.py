"""Gets pinned artifacts from a Maven repository with `mvn`, and checks them.

`stack/maven/<name>.toml` pins a set of artifacts: what was asked for
(`roots`), and each artifact that these need, with its sha256. A set is fetched
once, to `.beamstack/maven/`, whole or not at all. A later part in Java adds a
file of its own and calls `fetch`.
"""

import dataclasses
import hashlib
import pathlib
import re
import shutil
import tempfile
import xml.sax.saxutils
from collections.abc import Iterable

from beamstack import console
from beamstack import processes
from beamstack import tomlfile
from beamstack import venvs
from beamstack.errors import CannotRun
from beamstack.workspace import Workspace

PLUGIN = 'org.apache.maven.plugins:maven-dependency-plugin:3.8.1'
SECONDS = 900.0
# group:artifact:jar[:classifier]:version:scope:/path[ -- module …]
_LISTED = re.compile(
    r'^\s*([\w.-]+):([\w.-]+):jar:(?:([\w.-]+):)?([\w.-]+):(\w+)'
    r'(?: \(optional\))?:(/.*?\.jar)(?: -- module .*)?\s*$')
_COLOUR = re.compile(r'\x1b\[[0-9;]*m')


@dataclasses.dataclass(frozen=True, order=True)
class Coordinates:
  """What names a jar; written `group:artifact:version[:classifier]`."""

  group: str
  artifact: str
  version: str
  classifier: str = ''

  def __str__(self) -> str:
    return ':'.join(
        word for word in dataclasses.astuple(self) if word)

  @property
  def file_name(self) -> str:
    """Unlike Maven's own, the same for no two artifacts."""
    classifier = f'-{self.classifier}' if self.classifier else ''
    return f'{self.group}.{self.artifact}-{self.version}{classifier}.jar'


def parse(text: str, where: str) -> Coordinates:
  words = text.split(':')
  if not 3 <= len(words) <= 4 or not all(words):
    raise CannotRun(
        f'{where}: {text!r} is not group:artifact:version[:classifier]',
        'mend it')
  return Coordinates(*words)


@dataclasses.dataclass(frozen=True)
class ArtifactSet:
  """The pins of one file of stack/maven.

  Attributes:
    name: the name of the file, or of what else pins them.
    roots: what was asked for.
    sha256: of each artifact, the roots included, in the order of the class
      path.
    where: the file with the pins, below stack.
  """

  name: str
  roots: tuple[Coordinates, ...]
  sha256: dict[Coordinates, str]
  where: str

  @property
  def digest(self) -> str:
    return venvs.digest(
        *(f'{artifact} {sha256}' for artifact, sha256 in self.sha256.items()))


def pins_of(space: Workspace, name: str) -> pathlib.Path:
  return space.stack / 'maven' / f'{name}.toml'


def load(space: Workspace, name: str, *, pinned: bool = True) -> ArtifactSet:
  """Reads the pins of a set; `pinned=False` takes one that has none yet."""
  path = pins_of(space, name)
  if not path.is_file():
    known = sorted(p.stem for p in path.parent.glob('*.toml'))
    raise CannotRun(
        f'{path.relative_to(space.root)} is not there',
        'use one of ' + ', '.join(known))
  where = f'maven/{name}.toml'
  table = tomlfile.Table(where, tomlfile.load(path))
  roots = tuple(parse(text, where) for text in table.take_strings('roots'))
  sha256 = {}
  for text, value in table.take('sha256', dict, {}).items():
    if not isinstance(value, str) or not re.fullmatch('[0-9a-f]{64}', value):
      raise CannotRun(f'{where}: {text} has no sha256', 'mend it')
    sha256[parse(text, where)] = value
  table.done()
  missing = [root for root in roots if root not in sha256]
  if not roots or (pinned and missing):
    raise CannotRun(
        f'{where}: no sha256 of ' +
        (', '.join(map(str, missing)) or 'anything'),
        f'./beamstack maven --pin {name}')
  return ArtifactSet(name, roots, sha256, where)


def fetch(space: Workspace, name: str) -> list[pathlib.Path]:
  """The jars of a set, as its pins have them."""
  return fetch_set(space, load(space, name))


def fetch_set(space: Workspace, wanted: ArtifactSet) -> list[pathlib.Path]:
  """The jars of a set that is pinned elsewhere than in stack/maven."""
  name = wanted.name
  folder = space.work / 'maven' / f'{name}-{wanted.digest}'
  jars = [folder / artifact.file_name for artifact in wanted.sha256]
  with venvs.locked(folder):
    if not folder.is_dir():
      with console.step(f'fetching {len(jars)} jars of {name}'):
        _fill(space, wanted, folder)
    _verify(wanted, folder)
  return jars


def classpath(space: Workspace, name: str) -> str:
  """The jars of a set, as `java -cp` takes them."""
  return ':'.join(map(str, fetch(space, name)))


def _fill(
    space: Workspace, wanted: ArtifactSet, folder: pathlib.Path) -> None:
  # Each artifact is asked for by itself, without what it needs: what a
  # repository says of that today cannot change what we get.
  found = _resolve(space, wanted.name, wanted.sha256, alone=True)
  with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
    whole = pathlib.Path(partial) / 'whole'
    whole.mkdir()
    for artifact in wanted.sha256:
      if artifact not in found:
        raise CannotRun(
            f'mvn did not get {artifact}', f'see {_log(space, wanted.name)}')
      shutil.copyfile(found[artifact], whole / artifact.file_name)
    _verify(wanted, whole)
    whole.rename(folder)


def _verify(wanted: ArtifactSet, folder: pathlib.Path) -> None:
  for artifact, expected in wanted.sha256.items():
    path = folder / artifact.file_name
    actual = (
        hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file() else 'none: it is missing')
    if actual != expected:
      raise CannotRun(
          f'{artifact}: the sha256 is {actual}, {wanted.where} pins {expected}',
          f'rm -r {folder}, and take the jar out of the local repository of '
          'mvn; if it stays so, do not use it')


def pin(space: Workspace, name: str) -> ArtifactSet:
  """Resolves the roots of a set anew, and writes what they need as pins."""
  wanted = load(space, name, pinned=False)
  with console.step(f'resolving {name}'):
    found = _resolve(space, name, wanted.roots, alone=False)
  sha256 = {
      artifact: hashlib.sha256(path.read_bytes()).hexdigest()
      for artifact, path in found.items()
  }
  path = pins_of(space, name)
  head = path.read_text(encoding='utf-8').partition('[sha256]')[0].rstrip()
  lines = [f'"{artifact}" = "{value}"' for artifact, value in sha256.items()]
  path.write_text(
      '\n'.join([head, '', '[sha256]', *lines]) + '\n', encoding='utf-8')
  return load(space, name)


def _log(space: Workspace, name: str) -> pathlib.Path:
  return space.logs / f'maven-{name}.log'


def _resolve(
    space: Workspace,
    name: str,
    artifacts: Iterable[Coordinates],
    *,
    alone: bool) -> dict[Coordinates, pathlib.Path]:
  """Has mvn get artifacts; returns where they lie in its local repository."""
  mvn = processes.find_tool('mvn')
  processes.find_tool('java')
  log = _log(space, name)
  with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(temporary)
    (folder / 'pom.xml').write_text(
        project(artifacts, alone=alone), encoding='utf-8')
    listed = folder / 'listed.txt'
    try:
      processes.must_run(
          [
              mvn, '--batch-mode', '--no-transfer-progress',
              # A file that does not match the repository's own checksum
              # fails the build.
              '--strict-checksums', f'{PLUGIN}:list',
              '-DincludeScope=runtime', '-DoutputAbsoluteArtifactFilename=true',
              f'-DoutputFile={listed}'
          ],
          what=f'mvn dependency:list for {name}',
          remedy='try again',
          cwd=folder,
          log=log,
          timeout=SECONDS)
    except processes.ChildFailed as e:
      raise explained(e) from e
    return parse_listed(listed.read_text(encoding='utf-8'))


def project(artifacts: Iterable[Coordinates], *, alone: bool) -> str:
  """A project for mvn that depends on the artifacts.

  Args:
    artifacts: the jars.
    alone: leaves out what they depend on themselves.
  """
  escape = xml.sax.saxutils.escape
  dependencies = []
  managed = []
  for artifact in artifacts:
    parts = [
        f'<groupId>{escape(artifact.group)}</groupId>',
        f'<artifactId>{escape(artifact.artifact)}</artifactId>',
        f'<version>{escape(artifact.version)}</version>'
    ]
    if artifact.classifier:
      parts.append(f'<classifier>{escape(artifact.classifier)}</classifier>')
    # A root's version holds wherever else it is needed; the version that
    # others name may not be served.
    if not alone:
      managed.append(f'<dependency>{"".join(parts)}</dependency>')
    if alone:
      parts.append(
          '<exclusions><exclusion><groupId>*</groupId>'
          '<artifactId>*</artifactId></exclusion></exclusions>')
    dependencies.append(f'<dependency>{"".join(parts)}</dependency>')
  lines = '\n    '.join(dependencies)
  management = '\n    '.join(managed)
  return f'''<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>beamstack</groupId>
  <artifactId>pins</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencyManagement><dependencies>
    {management}
  </dependencies></dependencyManagement>
  <dependencies>
    {lines}
  </dependencies>
</project>
'''


def parse_listed(text: str) -> dict[Coordinates, pathlib.Path]:
  """Reads what dependency:list wrote."""
  found = {}
  for line in text.splitlines():
    match = _LISTED.match(_COLOUR.sub('', line))
    if match:
      group, artifact, classifier, version, scope, path = match.groups()
      if scope in ('compile', 'runtime'):
        found[Coordinates(group, artifact, version, classifier or
                          '')] = pathlib.Path(path)
  return found


def explained(failure: processes.ChildFailed) -> CannotRun:
  """The failure of mvn, with the reason if it is one that is met often."""
  unreachable = re.search(
      r'UnknownHost|Unknown host|Connection refused|Connection timed out|'
      r'Network is unreachable|connect timed out',
      failure.output)
  if unreachable:
    return CannotRun(
        f'mvn could not reach its repository ({unreachable.group()})',
        'check the network and the mirrors in ~/.m2/settings.xml, then try '
        f'again; {failure.remedy}')
  absent = re.search(
      r'Could not find artifact ([\w.:-]+)', failure.output)
  if absent:
    return CannotRun(
        f'the repository of mvn has no {absent.group(1)}',
        f'mend stack/maven, or set up another repository; {failure.remedy}')
  return failure
