"""Compiles and tests Java: released jars, and the series' files before them.

Only files of the series are compiled, new ones and edited ones. All others
are on the class path, as they were released.
"""

import pathlib
import tempfile

from beamstack import bases
from beamstack import console
from beamstack import fetch
from beamstack import maven
from beamstack import overlay
from beamstack import processes
from beamstack import products
from beamstack import pytests
from beamstack import venvs
from beamstack.errors import Problem
from beamstack.errors import ProblemsFound
from beamstack.products import Product
from beamstack.series import Series
from beamstack.tree import write_files
from beamstack.workspace import Workspace

# The set of jars, below stack/maven.
FORMATTER = 'java-format'
CONSOLE = 'org.junit.platform.console.ConsoleLauncher'
# Java 17 keeps the compiler's inside to itself; the formatter looks there.
FORMATTER_OPTIONS = tuple(
    f'--add-exports=jdk.compiler/com.sun.tools.javac.{name}=ALL-UNNAMED'
    for name in ('api', 'code', 'file', 'parser', 'tree', 'util'))


def sources(
    space: Workspace, series: Series, pins: bases.Pins,
    product: Product) -> dict[str, bytes]:
  """The Java files of a product, edits applied, by repository path."""
  if not _has_java(series, product):
    return {}
  result = overlay.apply_series(series, fetch.sources(space, pins))
  return {
      path: data for path, data in result.must_be_sound().files.items()
      if path.endswith('.java') and product.holds(path)
  }


def _has_java(series: Series, product: Product) -> bool:
  paths = [*series.files(), *(edit.file for edit in series.edits())]
  return any(map(product.holds, paths))


def is_test(path: str) -> bool:
  return '/src/test/' in path


def class_path(space: Workspace, product: Product) -> list[pathlib.Path]:
  """The released jars, and those that only compiling and testing needs."""
  return (
      maven.fetch(space, product.released) +
      maven.fetch(space, product.tools))


def compile_all(
    space: Workspace, product: Product, found: dict[str, bytes], *,
    tests: bool = False, name: str = 'java',
    first: list[pathlib.Path] | None = None) -> dict[str, bytes]:
  """Compiles files; returns the class files, by their name in a jar.

  Args:
    space: the checkout.
    product: on whose jars.
    found: the sources by repository path.
    tests: whether to compile those of tests as well.
    name: what the log is named for.
    first: jars that go before those of the product.
  """
  wanted = {
      path: data for path, data in found.items() if tests or not is_test(path)
  }
  if not wanted:
    return {}
  javac = processes.find_tool('javac')
  jars = [*(first or []), *class_path(space, product)]
  log = space.logs / f'javac-{name}.log'
  space.work.mkdir(exist_ok=True)
  with tempfile.TemporaryDirectory(dir=space.work) as temporary:
    folder = pathlib.Path(temporary)
    write_files(folder / 'src', wanted)
    classes = folder / 'classes'
    classes.mkdir()
    processing = _processing(space, product, folder)
    with console.step(f'compiling {len(wanted)} files of Java'):
      code, output = processes.run(
          [
              javac, '--release', product.release, '-encoding', 'UTF-8', '-g',
              '-nowarn', '-Xlint:-options', _class_path_file(folder, jars),
              *processing, '-d', classes,
              *sorted(wanted)
          ],
          cwd=folder / 'src',
          log=log)
    if code:
      raise ProblemsFound(_javac_problems(output, log))
    return {
        path.relative_to(classes).as_posix(): path.read_bytes()
        for path in classes.rglob('*.class')
    }


def _processing(
    space: Workspace, product: Product, folder: pathlib.Path) -> list[str]:
  """What javac is told of processors: those that are named, and no others."""
  if not product.processors:
    return ['-proc:none']
  generated = folder / 'generated'
  generated.mkdir()
  return [
      '-processorpath',
      maven.classpath(space, product.processors), '-s',
      str(generated)
  ]


def _class_path_file(folder: pathlib.Path, jars: list[pathlib.Path]) -> str:
  """An argument that reads the class path from a file: logs stay short."""
  path = folder / 'class-path'
  joined = ':'.join(map(str, jars)).replace('\\', '\\\\')
  path.write_text(f'-cp "{joined}"\n')
  return f'@{path}'


def _javac_problems(output: str, log: pathlib.Path) -> list[Problem]:
  found = []
  for line in output.splitlines():
    path, colon, message = line.partition(': error: ')
    if colon:
      found.append(Problem(path, message, f'mend it; see {log}'))
  last = ' / '.join(processes.last_lines(output, 3))
  return found or [Problem('javac', last, f'see {log}')]


def format_problems(space: Workspace, series: Series) -> list[Problem]:
  """Own Java files that the formatter would write otherwise."""
  own = [path for path in series.files() if path.endswith('.java')]
  if not own:
    return []
  output = processes.must_run(
      [
          processes.find_tool('java'), *FORMATTER_OPTIONS, '-cp',
          maven.classpath(space, FORMATTER),
          'com.google.googlejavaformat.java.Main', '--dry-run', *own
      ],
      what='google-java-format',
      cwd=space.root,
      log=space.logs / 'java-format.log')
  return [
      Problem(
          path, 'google-java-format would format it otherwise',
          './beamstack flink --format')
      for path in output.split() if path in own
  ]


def format_files(space: Workspace, series: Series) -> None:
  """Formats the series' own Java files in place."""
  own = [path for path in series.files() if path.endswith('.java')]
  processes.must_run(
      [
          processes.find_tool('java'), *FORMATTER_OPTIONS, '-cp',
          maven.classpath(space, FORMATTER),
          'com.google.googlejavaformat.java.Main', '--replace', *own
      ],
      what='google-java-format',
      cwd=space.root,
      log=space.logs / 'java-format.log')


def run_tests(
    space: Workspace, series: Series, pins: bases.Pins, classes: list[str],
    name: str) -> pytests.Result:
  """Runs test classes of a series with JUnit.

  Args:
    space: the checkout.
    series: what to compile.
    pins: base.toml.
    classes: the classes of tests, with their packages.
    name: what the log and the problems are named for.
  """
  by_product: dict[Product, list[str]] = {}
  for one in classes:
    by_product.setdefault(products.of_test(series, one), []).append(one)
  return pytests.joined([
      _run_junit(space, series, pins, product, some, f'{name}-{product.name}')
      for product, some in by_product.items()
  ])


def _run_junit(
    space: Workspace, series: Series, pins: bases.Pins, product: Product,
    classes: list[str], name: str) -> pytests.Result:
  compiled = compile_all(
      space, product, sources(space, series, pins, product), tests=True,
      name=name)
  return run_junit(space, product, compiled, [], classes, name)


def run_junit(
    space: Workspace, product: Product, compiled: dict[str, bytes],
    first: list[pathlib.Path], classes: list[str],
    name: str) -> pytests.Result:
  """Runs compiled classes of tests with JUnit.

  Args:
    space: the checkout.
    product: on whose jars.
    compiled: class files by their name in a jar.
    first: jars that go before those of the product.
    classes: the classes of tests, with their packages.
    name: what the log and the problems are named for.
  """
  log = space.logs / f'{name}.log'
  with tempfile.TemporaryDirectory(dir=space.work) as temporary:
    folder = pathlib.Path(temporary)
    write_files(folder / 'classes', compiled)
    jars = [folder / 'classes', *first, *class_path(space, product)]
    code, output = processes.run(
        [
            processes.find_tool('java'), *product.options,
            _class_path_file(folder, jars), CONSOLE, 'execute',
            '--include-engine=junit-vintage', '--disable-banner',
            '--details=tree', '--disable-ansi-colors',
            f'--reports-dir={folder / "reports"}',
            *(f'--select-class={one}' for one in classes)
        ],
        cwd=folder,
        log=log,
        timeout=pytests.MODULE_SECONDS)
    states: dict[str, str] = {}
    for report in sorted((folder / 'reports').glob('TEST-*.xml')):
      states.update(pytests.read_report(report.read_text()))
  problems = [
      Problem(name, f'{test} failed', f'see {log}')
      for test, state in states.items() if state == 'failed'
  ]
  problems += [
      Problem(name, f'{one}: no test of it ran', f'see {log}')
      for one in classes
      if not any(test.startswith(f'{one}::') for test in states)
  ]
  counts = pytests.count(states)
  if code and not problems:
    problems.append(Problem(name, f'JUnit ended with {code}', f'see {log}'))
  if problems and not counts.failed:
    counts = counts + pytests.Counts(failed=1)
  return pytests.Result(counts, states, problems, output)


def label(series: Series, compiled: dict[str, bytes]) -> str:
  """Names what the series' Java compiles to, as the version label does."""
  if not compiled:
    return 'none'
  key = venvs.digest(
      *(part for name in sorted(compiled)
        for part in (name, compiled[name])))
  return f'{series.label}.{key[:8]}'
