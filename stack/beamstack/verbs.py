"""The verbs of the command line: their options, and what they call."""

import argparse
import dataclasses
import os
import shutil
import sys
from collections.abc import Callable

from beamstack import addon
from beamstack import bases
from beamstack import bench
from beamstack import check
from beamstack import clusterverb
from beamstack import console
from beamstack import demo
from beamstack import fetch
from beamstack import flinkconf
from beamstack import flinktests
from beamstack import gobuild
from beamstack import javabuild
from beamstack import javasdk
from beamstack import jobserver
from beamstack import maven
from beamstack import prismwheel
from beamstack import products
from beamstack import pytests
from beamstack import pythons
from beamstack import series
from beamstack import sparktests
from beamstack import suite
from beamstack import tree
from beamstack.errors import CannotRun
from beamstack.workspace import Workspace


@dataclasses.dataclass(frozen=True)
class Verb:
  """One verb.

  Attributes:
    name: what one types.
    run: does it, and returns the exit code.
    help: one line, in lower case.
    details: more lines for `--help` of the verb.
    add_arguments: adds its options to a parser.
  """

  name: str
  run: Callable[[Workspace, argparse.Namespace], int]
  help: str
  details: str = ''
  add_arguments: Callable[[argparse.ArgumentParser], None] = lambda _: None


def _load(space: Workspace) -> tuple[series.Series, bases.Pins]:
  return (
      series.load(space.root), bases.load_pins(space.stack / 'base.toml'))


def _base(space: Workspace, options: argparse.Namespace) -> int:
  del options
  pins = bases.load_pins(space.stack / 'base.toml')
  for pin in pins.wheels:
    console.result(str(fetch.wheel(space, pins, pin.version).wheel))
  console.result(str(fetch.module(space, pins).folder))
  for base in fetch.sources(space, pins):
    console.result(str(base.jar))
  return 0


def _wheel(space: Workspace, options: argparse.Namespace) -> int:
  current, pins = _load(space)
  path = pythons.dev_wheel(space, current, pins, options.beam, options.python)
  console.result(str(path.relative_to(space.root)))
  return 0


def _wheel_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
      '--beam', default='', metavar='VERSION',
      help='the release to apply the series to: 2.75.0 (default) or 2.77.0')
  parser.add_argument(
      '--python', default='', choices=bases.PYTHONS,
      help='the Python that the wheel is for (default: the one that runs '
      'this)')


def _tree(space: Workspace, options: argparse.Namespace) -> int:
  del options
  current, pins = _load(space)
  _, commits = _lay_out(space, current, pins)
  for name, commit in commits.items():
    console.result(f'{commit[:12]} {name or "base"}')
  return 0


def _lay_out(space: Workspace, current: series.Series, pins: bases.Pins):
  all_bases = fetch.all_bases(space, pins)
  folder = space.dist / 'tree'
  with console.step('laying out dist/tree'):
    return folder, tree.lay_out(current, all_bases, folder)


def _export(space: Workspace, options: argparse.Namespace) -> int:
  del options
  current, pins = _load(space)
  folder, commits = _lay_out(space, current, pins)
  patches = tree.export(current, folder, commits[''], space.dist / 'patches')
  for path in patches:
    console.result(str(path.relative_to(space.root)))
  return 0


def _check(space: Workspace, options: argparse.Namespace) -> int:
  current, pins = _load(space)
  run = check.Check(space, current, pins, options.names)
  return run.run(beam=options.beam, tests=not options.fast)


def _check_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
      'names', nargs='*', metavar='NAME',
      help='pull requests or edits to look at (default: the whole series)')
  parser.add_argument(
      '--beam', default='', metavar='VERSION',
      help='hold the edits against this release alone: 2.75.0 or 2.77.0')
  parser.add_argument(
      '--fast', action='store_true',
      help='leave out the tests of each prefix')


def _prism(space: Workspace, options: argparse.Namespace) -> int:
  current, pins = _load(space)
  if options.base:
    path = gobuild.prism(space, current.prefix(0), pins, 'prism-base')
  elif options.wheel:
    path = prismwheel.build(space, current, pins)
  else:
    path = gobuild.prism(space, current, pins, 'prism')
  console.result(str(path.relative_to(space.root)))
  return 0


def _prism_arguments(parser: argparse.ArgumentParser) -> None:
  group = parser.add_mutually_exclusive_group()
  group.add_argument(
      '--base', action='store_true',
      help='build the released Prism, without the series, to '
      'dist/prism-base')
  group.add_argument(
      '--wheel', action='store_true',
      help='also pack it as the companion wheel, in which the dev wheel finds '
      'it without an option')


def _flink(space: Workspace, options: argparse.Namespace) -> int:
  current, pins = _load(space)
  if options.format:
    javabuild.format_files(space, current)
    return 0
  if options.test:
    result = flinktests.run(
        space, current, pins, base=options.base, backend=options.backend,
        full=options.full, more=('-k', options.only) if options.only else ())
    return _tell(result)
  path = jobserver.build(
      space, current, pins, products.FLINK, base=options.base)
  console.result(str(path.relative_to(space.root)))
  return 0


def _tell(result: pytests.Result) -> int:
  console.result(result.output)
  for line in console.problem_lines(result.problems):
    console.result(line)
  console.result(str(result.counts))
  return 1 if result.counts.failed else 0


def _job_server_arguments(
    parser: argparse.ArgumentParser, runner: str, where: str) -> None:
  parser.add_argument(
      '--base', action='store_true',
      help='build the released job server, without the series, to '
      f'dist/beam-{runner}-job-server-base.jar')
  parser.add_argument(
      '--test', action='store_true',
      help=f'run the tests of stack/{runner} on {where} of their own; with '
      '--base they fail')
  parser.add_argument(
      '--only', default='', metavar='WORDS',
      help='run those of the tests alone that pytest -k WORDS selects')


def _flink_arguments(parser: argparse.ArgumentParser) -> None:
  _job_server_arguments(parser, 'flink', 'a cluster')
  parser.add_argument(
      '--format', action='store_true',
      help='only let google-java-format write our Java files anew')
  parser.add_argument(
      '--backend', choices=flinkconf.BACKENDS, default='hashmap',
      help='where that cluster keeps state')
  parser.add_argument(
      '--full', action='store_true',
      help='kill at ten moments instead of one, and watch for longer; the '
      'figures go to benchmarks/results')


def _spark(space: Workspace, options: argparse.Namespace) -> int:
  current, pins = _load(space)
  if options.test:
    return _tell(
        sparktests.run(
            space, current, pins, base=options.base, full=options.full,
            more=('-k', options.only) if options.only else ()))
  path = jobserver.build(
      space, current, pins, products.SPARK, base=options.base)
  console.result(str(path.relative_to(space.root)))
  return 0


def _spark_arguments(parser: argparse.ArgumentParser) -> None:
  _job_server_arguments(parser, 'spark', 'job servers')
  parser.add_argument(
      '--full', action='store_true',
      help='also on a master and workers that are processes of their own, of '
      'which one is killed')


def _java(space: Workspace, options: argparse.Namespace) -> int:
  current, pins = _load(space)
  if options.test:
    return _tell(javasdk.test(space, current, pins))
  path = javasdk.build(space, current, pins)
  console.result(str(path.relative_to(space.root)))
  return 0


def _java_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
      '--test', action='store_true',
      help='run our tests and Beam\'s own of what it changes, with the jar '
      'before the released ones')


def _maven(space: Workspace, options: argparse.Namespace) -> int:
  if options.pin:
    pinned = maven.pin(space, options.name)
    for artifact in pinned.sha256:
      console.result(str(artifact))
  else:
    console.result(maven.classpath(space, options.name))
  return 0


def _maven_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
      'name', metavar='NAME', help='a file of stack/maven, without its .toml')
  parser.add_argument(
      '--pin', action='store_true',
      help='resolve its roots anew and write down what they need')


def _addon(space: Workspace, options: argparse.Namespace) -> int:
  del options
  current, pins = _load(space)
  path = addon.build(current, pins.pin, space.dist)
  console.result(str(path.relative_to(space.root)))
  return 0


def _test(space: Workspace, options: argparse.Namespace) -> int:
  current, pins = _load(space)
  return suite.Suite(space, current, pins).run(full=options.full)


def _test_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
      '--full', action='store_true',
      help='also run our tests on the dev wheel of newer releases')


def _become(command: list[str]) -> int:
  """Turns this process into another program: Ctrl-C reaches it directly."""
  sys.stdout.flush()
  os.execv(command[0], command)
  raise CannotRun(f'{command[0]} could not be started')


def _demo(space: Workspace, options: argparse.Namespace) -> int:
  current, pins = _load(space)
  return _become(demo.command(space, current, pins, _rest(options)))


def _bench(space: Workspace, options: argparse.Namespace) -> int:
  current, pins = _load(space)
  return _become(
      bench.command(space, current, pins, options.subject, _rest(options)))


def _bench_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
      'subject', choices=bench.SUBJECTS, help='what to measure')
  _pass_on(parser, 'what the benchmark gets; -- --help shows its options')


def _pass_on(parser: argparse.ArgumentParser, words: str) -> None:
  parser.add_argument(
      'arguments', nargs=argparse.REMAINDER, metavar='ARGS', help=words)


def _rest(options: argparse.Namespace) -> list[str]:
  """What is meant for another program, without the `--` before it."""
  rest = options.arguments
  return rest[1:] if rest[:1] == ['--'] else rest


def _python(space: Workspace, options: argparse.Namespace) -> int:
  current, pins = _load(space)
  python = pythons.with_series(space, current, pins)
  return _become([str(python), *_rest(options)])


def _python_arguments(parser: argparse.ArgumentParser) -> None:
  _pass_on(parser, 'what Python gets, such as -m pytest or a script')


def _demo_arguments(parser: argparse.ArgumentParser) -> None:
  _pass_on(parser, 'what the example gets; -- --help shows its options')


def _clean(space: Workspace, options: argparse.Namespace) -> int:
  """Removes environments that no current product uses."""
  del options
  kinds = ('venv-*', 'go-*')
  for path in sorted(p for kind in kinds for p in space.work.glob(kind)):
    console.result(f'removing {path.relative_to(space.root)}')
    shutil.rmtree(path) if path.is_dir() else path.unlink()
  shutil.rmtree(space.dist, ignore_errors=True)
  return 0


ALL = (
    Verb(
        'base', _base, 'fetch the pinned releases and check their hashes',
        'Uses pip, go and mvn, with the registries that they are set up for.'),
    Verb(
        'tree', _tree,
        'lay the series out as a git repository, dist/tree',
        'One commit holds the base, then each pull request has one. The ids '
        'are the\nsame each time.'),
    Verb(
        'export', _export, 'write the patches and a cover letter',
        'They go to dist/patches, and are the same byte for byte each time.'),
    Verb(
        'check', _check, 'hold the series against its rules and its bases',
        'Files and their owners, order, descriptions; edits at the pin and '
        'over newer\nreleases; each prefix compiles and passes the tests it '
        'names; the export is\nreproducible and applies.', _check_arguments),
    Verb(
        'wheel', _wheel, 'make the dev wheel: Beam with the series applied',
        'It goes to dist/, and is the same byte for byte each time.',
        _wheel_arguments),
    Verb(
        'addon', _addon,
        'make the add-on wheel: the new files beside an unmodified Beam',
        'Pure Python, for people who keep stock Beam and its containers.'),
    Verb(
        'prism', _prism, 'build Prism with the series applied, dist/prism',
        'Pipelines use it with --prism_location=dist/prism, or where its '
        'wheel is\ninstalled. `dist/prism --version` gives the label of the '
        'series; the released\nPrism does not know the flag.',
        _prism_arguments),
    Verb(
        'flink', _flink,
        'build the job server for Flink, dist/beam-flink-job-server.jar',
        'Released jars, with the classes of the series over them; Beam-Series '
        'in its\nmanifest says which. Needs a JDK and mvn.',
        _flink_arguments),
    Verb(
        'spark', _spark,
        'build the job server for Spark 3, dist/beam-spark-job-server.jar',
        'Released jars, Spark among them, with the classes of the series over '
        'them;\nBeam-Series in its manifest says which. Needs a JDK and mvn.',
        _spark_arguments),
    Verb(
        'java', _java,
        'build what goes before Beam\'s Java SDK, '
        'dist/beam-sdks-java-watch.jar',
        'Put it before beam-sdks-java-core 2.73.0 on the class path of a '
        'pipeline.\nBeam-Series in its manifest says which series it '
        'carries. Needs a JDK and mvn.', _java_arguments),
    Verb(
        'cluster', clusterverb.run,
        'start, kill and stop a Flink on this machine', clusterverb.DETAILS,
        clusterverb.add_arguments),
    Verb(
        'maven', _maven, 'fetch pinned jars, and print them as a class path',
        'Uses mvn, with the repositories that it is set up for. Their hashes '
        'are in\nstack/maven.', _maven_arguments),
    Verb(
        'python', _python, 'run a Python that has the dev wheel installed',
        'The environment is made when it is first asked for.',
        _python_arguments),
    Verb(
        'test', _test, 'test all of it; the last line gives the totals',
        'Logs of all steps go to .beamstack/logs.', _test_arguments),
    Verb(
        'demo', _demo, 'read an SQLite outbox that grows, and check the result',
        'The first run makes the dev wheel and an environment with it.',
        _demo_arguments),
    Verb(
        'bench', _bench, 'measure ours against upstream\'s own, or a client',
        'Writes tables and plots to benchmarks/results.', _bench_arguments),
    Verb(
        'clean', _clean, 'remove dist and the environments with a Beam in them',
        'Fetched releases and the program\'s own environment stay.'),
)
