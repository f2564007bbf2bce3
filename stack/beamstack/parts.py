"""The parts of Beam that the series changes: Python, Go, modules in Java.

A part knows which repository paths are its own, which path a file has inside
the released artifact, and the language of its files. Another language slots
in as one more `Part` (and a kind of base in `bases`, where its artifacts are
fetched in another way).
"""

import dataclasses
import functools

import ast_grep_py

# The folders whose tracked files must each belong to one pull request.
OWNED_FOLDERS = ('sdks', 'runners', 'website')


@dataclasses.dataclass(frozen=True)
class Part:
  """One part of Beam.

  Attributes:
    name: what base.toml calls it.
    roots: the repository paths (folders end in a slash) that it holds.
    strip: what a repository path has in front of the artifact's own path.
    suffix: the suffix of its source files.
    language: what ast-grep calls their language.
    indent: one level of indentation.
  """

  name: str
  roots: tuple[str, ...]
  strip: str
  suffix: str
  language: str
  indent: str

  def holds(self, path: str) -> bool:
    """Whether a repository path is of this part."""
    return any(
        path.startswith(root) if root.endswith('/') else path == root
        for root in self.roots)

  def artifact_path(self, path: str) -> str:
    return path.removeprefix(self.strip)

  def repository_path(self, artifact_path: str) -> str:
    return self.strip + artifact_path

  def syntax_problem(self, path: str, text: str) -> str:
    """What keeps a source file from being parsed; empty if nothing does."""
    if not path.endswith(self.suffix):
      return ''
    if self.language == 'python':
      return _python_problem(path, text)
    root = ast_grep_py.SgRoot(text, self.language).root()
    error = root.find(kind='ERROR')
    if error is None:
      return ''
    return f'line {error.range().start.line + 1} does not parse'


# A check looks at a file once for each prefix of the series that has it.
@functools.lru_cache(maxsize=10000)
def _python_problem(path: str, text: str) -> str:
  try:
    compile(text, path, 'exec', dont_inherit=True)
  except (SyntaxError, ValueError) as e:
    line = getattr(e, 'lineno', None)
    return f'line {line} does not compile: {getattr(e, "msg", e)}'
  return ''


PYTHON = Part(
    name='python',
    roots=('sdks/python/apache_beam/', ),
    strip='sdks/python/',
    suffix='.py',
    language='python',
    indent='  ')
GO = Part(
    name='go',
    roots=('sdks/go/', 'sdks/go.mod', 'sdks/go.sum'),
    strip='sdks/',
    suffix='.go',
    language='go',
    indent='\t')


def _java(name: str, folder: str) -> Part:
  """A module in Java: Maven knows each by itself, so each is a part."""
  return Part(
      name=name,
      roots=(f'{folder}/src/', ),
      strip=f'{folder}/src/main/java/',
      suffix='.java',
      language='java',
      indent='  ')


JAVA_FN_EXECUTION = _java('java-fn-execution', 'runners/java-fn-execution')
FLINK = _java('flink', 'runners/flink')
SPARK = _java('spark', 'runners/spark')
JAVA_CORE = _java('java-core', 'sdks/java/core')
JAVA = (JAVA_FN_EXECUTION, FLINK, SPARK, JAVA_CORE)

ALL = (PYTHON, GO, *JAVA)


def part_of(path: str) -> Part | None:
  """The part that holds a repository path; None for plain documents."""
  for part in ALL:
    if part.holds(path):
      return part
  return None
