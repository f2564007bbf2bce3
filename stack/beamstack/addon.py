"""Makes the add-on wheel: the new Python files alone, beside a stock Beam.

Its version is the dev wheel's: which Beam it is for, and which state of the
series it holds. It asks for exactly the pinned release: `===` compares the
versions as text, so that a Beam with the series in it, and any release that
ships these modules, does not do.
"""

import ast
import pathlib

from beamstack import devwheel
from beamstack import parts
from beamstack import wheelfile
from beamstack.errors import Problem
from beamstack.errors import ProblemsFound
from beamstack.series import PullRequest
from beamstack.series import Series

NAME = 'beam-unending'
DIST = 'beam_unending'

DESCRIPTION = '''\
# {name}

Unbounded sources for an unmodified Apache Beam {version}. It adds these
modules to the `apache_beam` package that is installed:

{modules}

Workers need it too: pass the wheel with `--extra_package`.

Some of the series changes modules that Beam has already, and is not in
here. For these, use the dev wheel instead of Beam and this add-on:

{left_out}
'''


def modules(series: Series) -> dict[str, bytes]:
  """The files of the add-on by their path in the wheel; no tests."""
  files = {}
  for pr in series.pull_requests:
    if not pr.addon:
      continue
    for path in pr.files:
      data = series.read(path)
      if _belongs(path) and data is not None:
        files[parts.PYTHON.artifact_path(path)] = data
  return files


def _belongs(path: str) -> bool:
  return (
      parts.PYTHON.holds(path) and path.endswith('.py') and
      not path.endswith('_test.py'))


def module_name(artifact_path: str) -> str:
  name = artifact_path.removesuffix('.py').replace('/', '.')
  return name.removesuffix('.__init__')


def problems(series: Series) -> list[Problem]:
  """What keeps the add-on from working: nothing in it, or a gap in it."""
  mine = modules(series)
  if not mine:
    return [
        Problem(
            'add-on',
            'nothing to build: no pull request with addon = true has a '
            'Python file',
            'set addon = true in stack/series.toml where it applies')
    ]
  inside = {module_name(path) for path in mine}
  outside = {
      module_name(parts.PYTHON.artifact_path(path))
      for path in series.files() if _belongs(path)
  } - inside
  found = []
  for path, data in mine.items():
    for name in sorted(imported(data.decode()) & outside):
      found.append(
          Problem(
              parts.PYTHON.repository_path(path),
              f'it is in the add-on and imports {name}, which is not',
              'set addon = true for that module too, or import it in the '
              'function that needs the dev wheel'))
  return found


def imported(text: str) -> set[str]:
  """The names that a module imports while it is being imported."""
  names = set()
  for node in ast.parse(text).body:
    if isinstance(node, ast.Import):
      names |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
      names.add(node.module)
      names |= {f'{node.module}.{alias.name}' for alias in node.names}
  return names


def metadata(series: Series, version: str, files: dict[str, bytes]) -> bytes:
  names = sorted(module_name(path) for path in files)
  description = DESCRIPTION.format(
      name=NAME,
      version=version,
      modules='\n'.join(f'- `{name}`' for name in names),
      left_out='\n'.join(
          f'- {pr.title}' for pr in series.pull_requests
          if needs_dev_wheel(pr)))
  return (
      'Metadata-Version: 2.1\n'
      f'Name: {NAME}\n'
      f'Version: {devwheel.labelled_version(series, version)}\n'
      f'Summary: Unbounded sources for an unmodified Apache Beam {version}\n'
      'License: Apache-2.0\n'
      'Requires-Python: >=3.10\n'
      f'Requires-Dist: apache-beam ==={version}\n'
      'Description-Content-Type: text/markdown\n'
      f'\n{description}').encode()


def needs_dev_wheel(pr: PullRequest) -> bool:
  """Whether a part of what a pull request does is in the dev wheel alone."""
  return any(parts.PYTHON.holds(edit.file) for edit in pr.edits)


def build(
    series: Series, version: str, folder: pathlib.Path) -> pathlib.Path:
  """Builds the add-on wheel into a folder, and checks what was written."""
  found = problems(series)
  if found:
    raise ProblemsFound(found)
  files = modules(series)
  labelled = devwheel.labelled_version(series, version)
  info = f'{DIST}-{labelled}.dist-info'
  content = {
      **files,
      f'{info}/METADATA': metadata(series, version, files),
      f'{info}/WHEEL': (
          b'Wheel-Version: 1.0\nGenerator: beamstack\n'
          b'Root-Is-Purelib: true\nTag: py3-none-any\n'),
  }
  licence = series.root / 'LICENSE'
  if licence.is_file():
    content[f'{info}/licenses/LICENSE'] = licence.read_bytes()
  path = folder / f'{DIST}-{labelled}-py3-none-any.whl'
  wheelfile.write(path, content)
  wrong = wheelfile.check_record(path)
  if wrong:
    raise ProblemsFound(wrong)
  wheelfile.remove_other_labels(path)
  return path
