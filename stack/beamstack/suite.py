"""The verb `test`: all that shows that the series works, in one go.

Each step is a row of the report. A step that could not run counts as failed;
the steps after it run all the same. The last line gives the totals.
"""

import dataclasses
import pathlib
import re
import sys
import tempfile
import time
from collections.abc import Callable

from beamstack import addon
from beamstack import bases
from beamstack import check
from beamstack import console
from beamstack import debian
from beamstack import demo
from beamstack import devwheel
from beamstack import docs
from beamstack import fetch
from beamstack import flinkconf
from beamstack import flinktests
from beamstack import gobuild
from beamstack import gotests
from beamstack import jars
from beamstack import jobserver
from beamstack import javasdk
from beamstack import maven
from beamstack import prefixes
from beamstack import prismwheel
from beamstack import processes
from beamstack import products
from beamstack import pytests
from beamstack import pythons
from beamstack import rival
from beamstack import sparktests
from beamstack import wheelfile
from beamstack.console import Verdict
from beamstack.errors import CannotRun
from beamstack.errors import Problem
from beamstack.errors import ProblemsFound
from beamstack.products import Product
from beamstack.pytests import Counts
from beamstack.series import Series
from beamstack.workspace import Workspace

SMOKE_SECONDS = 180.0
# Each test shows a rule that the released Prism breaks.
PRISM_RULES = [
    f'apache_beam.runners.portability.{test}' for test in (
        'prism_finalization_test::FinalizationTest',
        'prism_idle_test::IdleTest',
        'prism_pauses_test::PausesTest')
]


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What a step gave: counts, what to show of it, what is wrong."""

  counts: Counts
  details: str = ''
  problems: tuple[Problem, ...] = ()


def one_good(details: str) -> Outcome:
  return Outcome(Counts(passed=1), details)


def from_result(result: pytests.Result) -> Outcome:
  return Outcome(
      result.counts, '; '.join((str(result.counts), *result.notes)),
      tuple(result.problems))


def without_network(home: str) -> dict[str, str]:
  """Variables with which nothing can be downloaded, or has been."""
  # The port of discard, where nobody listens.
  proxies = dict.fromkeys(
      ('http_proxy', 'https_proxy', 'HTTP_PROXY', 'HTTPS_PROXY'),
      'http://127.0.0.1:9')
  # Runners and workers talk to each other all the same.
  local = dict.fromkeys(('no_proxy', 'NO_PROXY'), 'localhost,127.0.0.1')
  return {**proxies, **local, 'HOME': home}


class Suite:
  """One run of all steps."""

  def __init__(self, space: Workspace, series: Series, pins: bases.Pins):
    self.space = space
    self.series = series
    self.pins = pins
    self.report = console.Report()
    self.counts = Counts()

  def run(self, *, full: bool) -> int:
    """Runs all steps; returns the exit code."""
    start = time.monotonic()
    self.step('programs', self.programs)
    self.step('unit tests of stack/', self.unit_tests)
    self.checks()
    self.step('wheel twice the same', self.wheel_twice)
    self.step('dev wheel installs', self.dev_installs)
    self.step('Prism', self.prism)
    self.step('Flink job server', lambda: self.job_server(products.FLINK))
    self.step('Spark job server', lambda: self.job_server(products.SPARK))
    if not full:
      self.step('on a Flink cluster', self.on_flink)
      self.step('on Spark', self.on_spark)
    self.step('Java SDK', self.java_sdk)
    self.step('our tests', self.our_tests)
    self.step('the base breaks the rules', self.broken_by_the_base)
    self.step('Beam\'s own tests', self.upstream_tests)
    if self.go_packages()[0]:
      self.step('our Go tests', lambda: self.our_go_tests(race=full))
    if self.go_packages()[1]:
      self.step(
          'Beam\'s own Go tests', lambda: self.upstream_go_tests(race=full))
    self.step('benchmark drivers', self.benchmark_drivers)
    self.step('documentation', self.documentation)
    for python in bases.PYTHONS:
      if python != bases.this_python():
        self.step(f'wheel for {python}', lambda p=python: self.wheel_for(p))
    for version in self.pins.newer:
      self.step(
          f'dev wheel of {version}', lambda v=version: self.over_newer(v))
    self.step('companion installs', self.companion_installs)
    self.step('add-on installs', self.addon_installs)
    for version in self.pins.newer:
      self.step(
          f'add-on refuses {version}',
          lambda v=version: self.addon_refuses(v))
    self.rivals()
    self.step('demo', self.demo)
    if full:
      for version in self.pins.newer:
        self.step(
            f'our tests on {version}',
            lambda v=version: self.our_tests(v))
    if full:
      for backend in flinkconf.BACKENDS:
        self.step(
            f'on Flink, {backend}',
            lambda b=backend: self.on_flink(b, full=True))
      self.step('on Spark', lambda: self.on_spark(full=True))
    self.report.finish()
    console.note(f'{time.monotonic() - start:.0f} s in all')
    console.result(str(self.counts))
    return 1 if self.counts.failed else 0

  def step(self, name: str, run: Callable[[], Outcome]) -> None:
    """Runs one step and adds its row to the report."""

    def judged() -> Verdict:
      start = time.monotonic()
      try:
        outcome = run()
      except ProblemsFound as e:
        outcome = Outcome(Counts(failed=1), '', tuple(e.problems))
      except CannotRun as e:
        outcome = Outcome(
            Counts(failed=1), '', (Problem(name, e.what, e.remedy), ))
      counts = outcome.counts
      if not counts.passed and not counts.failed:
        counts = Counts(failed=1, skipped=counts.skipped)
        outcome = dataclasses.replace(
            outcome, problems=(Problem(name, 'it tested nothing'), ))
      if outcome.problems and not counts.failed:
        counts = counts + Counts(failed=1)
      self.counts += counts
      return Verdict(
          'FAILED' if counts.failed else 'ok',
          f'{time.monotonic() - start:6.1f} s  {outcome.details}', (),
          outcome.problems)

    self.report.row(name, judged)

  def checks(self) -> None:
    """All rows of the verb `check`; each counts as one test."""
    run = check.Check(self.space, self.series, self.pins, [])
    run.report = self.report
    before = len(self.report.rows)
    problems = len(self.report.problems)
    try:
      run.all_rows(tests=True)
    except (CannotRun, ProblemsFound) as e:
      self.report.problems += getattr(
          e, 'problems',
          [Problem('check', str(e), getattr(e, 'remedy', ''))])
    rows = len(self.report.rows) - before
    bad = len(self.report.problems) - problems
    self.counts += run.counts
    self.counts += Counts(
        passed=max(rows - bad, 0),
        failed=max(bad - run.counts.failed, 0))

  def programs(self) -> Outcome:
    """What tests run of Debian's packages; installs what is missing."""
    return one_good(', '.join(debian.environment(self.space).values()))

  def job_server(self, product: Product) -> Outcome:
    """A job server is built, and says which series it carries."""
    path = jobserver.build(self.space, self.series, self.pins, product)
    label = jars.attribute(path, jobserver.STAMP)
    if not label.startswith(f'{self.series.label}.'):
      raise CannotRun(f'{path.name} carries {label}, not the series')
    return one_good(f'{path.name} carries {label}')

  def java_sdk(self) -> Outcome:
    """The jar, before the released ones: our tests and Beam's own."""
    return from_result(javasdk.test(self.space, self.series, self.pins))

  def on_flink(
      self, backend: str = flinkconf.BACKENDS[0],
      full: bool = False) -> Outcome:
    """Pipelines on a real cluster, of which processes are killed."""
    return from_result(
        flinktests.run(
            self.space, self.series, self.pins, backend=backend, full=full))

  def on_spark(self, full: bool = False) -> Outcome:
    """Pipelines on a real job server; in full, on a cluster as well."""
    return from_result(
        sparktests.run(self.space, self.series, self.pins, full=full))

  def unit_tests(self) -> Outcome:
    """The program's own tests, with the Python that runs it."""
    folder = self.space.stack / 'tests'
    return from_result(
        pytests.run(
            pathlib.Path(sys.executable), [str(folder)],
            name='unit-tests',
            logs=self.space.logs,
            cwd=self.space.stack,
            rootdir=self.space.stack,
            expected=sorted(path.stem for path in folder.glob('test_*.py'))))

  def wheel_twice(self) -> Outcome:
    """The dev wheel is byte for byte the same, and its RECORD is right."""
    base = fetch.wheel(self.space, self.pins, self.pins.pin)
    self.space.work.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=self.space.work) as temporary:
      built = [
          devwheel.build(
              self.series, base, pathlib.Path(temporary) / name, pin=True)
          for name in ('one', 'two')
      ]
      sums = [fetch.sha256_of(path) for path in built]
    if sums[0] != sums[1]:
      return Outcome(
          Counts(failed=1),
          '', (Problem(built[0].name, 'it is not the same twice'), ))
    return one_good(f'{built[0].name[:40]}… sha256 {sums[0][:12]}')

  def dev_python(self, version: str = '') -> pathlib.Path:
    return pythons.with_series(
        self.space, self.series, self.pins, version or self.pins.pin)

  def smoke(
      self,
      python: pathlib.Path,
      script: str,
      *options: str,
      env: dict[str, str] | None = None) -> str:
    """Runs a smoke script; returns its last line."""
    with tempfile.TemporaryDirectory() as elsewhere:
      output = processes.must_run(
          [python, self.space.stack / 'smoke' / script, *options],
          what=f'stack/smoke/{script}',
          cwd=elsewhere,
          env=env,
          without=('PYTHONPATH', ),
          timeout=SMOKE_SECONDS,
          log=self.space.logs / f'smoke-{script}.log')
    found = re.findall(r'(?m)^.* good on Beam .*$', output)
    if not found:
      raise CannotRun(f'stack/smoke/{script} did not say that it is good')
    return found[-1]

  def smokes(self, python: pathlib.Path) -> Outcome:
    """pip check, a pipeline, and an unbounded source that is read."""
    pythons.check(python)
    said = [
        self.smoke(python, script)
        for script in ('pipeline.py', 'unbounded.py')
    ]
    return Outcome(Counts(passed=3), 'pip check; ' + '; '.join(said))

  def dev_installs(self) -> Outcome:
    """The dev wheel in an environment of its own, as people install it."""
    wheel = pythons.dev_wheel(self.space, self.series, self.pins)
    return self.smokes(pythons.whole(self.space, 'dev-alone', wheel))

  def prism(self) -> Outcome:
    path = gobuild.prism(self.space, self.series, self.pins, 'prism')
    said = self.smoke(
        self.dev_python(), 'pipeline.py', '--runner=PrismRunner',
        f'--prism_location={path}', '--environment_type=LOOPBACK')
    return Outcome(Counts(passed=2), f'built; {said}')

  def test_modules(self) -> list[str]:
    return sorted({
        module
        for pr in self.series.pull_requests
        for module in prefixes.split_tests(pr.tests).python
    })

  def test_groups(self) -> dict[str, list[str]]:
    """Our test modules, each group for a process of its own, by a name.

    A native client that crashes takes its process with it, and so nothing but
    the tests of its own pull request.
    """
    alone = {
        module: f'-{pr.name}'
        for pr in self.series.pull_requests if pr.alone for module in pr.tests
    }
    groups: dict[str, list[str]] = {}
    for module in self.test_modules():
      groups.setdefault(alone.get(module, ''), []).append(module)
    return groups

  def test_environment(self) -> dict[str, str]:
    """Tests find Prism, another release of Beam, and servers to read."""
    found = {}
    path = self.space.dist / 'prism'
    if path.is_file():
      found['PRISM_LOCATION'] = str(path)
    if self.pins.newer:
      found['OTHER_BEAM_PYTHON'] = str(
          pythons.with_stock(self.space, self.pins, self.pins.newer[-1]))
    found['KAFKA_CLASSPATH'] = maven.classpath(self.space, 'kafka-broker')
    found.update(debian.environment(self.space))
    return found

  def pytest(
      self, python: pathlib.Path, modules: list[str], name: str,
      **environment: str) -> pytests.Result:
    if not modules:
      raise CannotRun(
          f'{name}: no pull request names any', 'see stack/series.toml')
    with tempfile.TemporaryDirectory() as elsewhere:
      return pytests.run(
          python,
          modules,
          name=name,
          logs=self.space.logs,
          cwd=pathlib.Path(elsewhere),
          rootdir=pythons.site_packages(python),
          env={**self.test_environment(), **environment})

  def our_tests(self, version: str = '') -> Outcome:
    python = self.dev_python(version)
    name = f'our-tests-{version}' if version else 'our-tests'
    return from_result(
        pytests.joined([
            self.pytest(python, modules, name + group)
            for group, modules in self.test_groups().items()
        ]))

  def broken_by_the_base(self) -> Outcome:
    """Tests of what a runner must do fail on the runner of the base.

    One that passes there shows nothing of what the series mends.
    """
    name = 'on-the-base'
    base = gobuild.prism(
        self.space, self.series.prefix(0), self.pins, 'prism-base')
    result = self.pytest(
        self.dev_python(), PRISM_RULES, name, PRISM_LOCATION=str(base))
    good = {test for test, s in result.states.items() if s == 'failed'}
    problems = [
        Problem(name, f'{test} {state} there', 'have it show what is mended')
        for test, state in result.states.items() if test not in good
    ]
    counts = Counts(len(good), len(problems) + (not result.states))
    return Outcome(
        counts, f'{len(good)} tests of Prism fail there, as they should',
        tuple(problems))

  def benchmark_drivers(self) -> Outcome:
    """The tests of the benchmarks themselves, and a soak of one minute."""
    folder = self.space.root / 'benchmarks'
    prism = self.space.dist / 'prism'
    return from_result(
        pytests.run(
            self.dev_python(), [str(folder)],
            name='benchmark-drivers',
            logs=self.space.logs,
            cwd=folder,
            rootdir=folder,
            env={'PRISM_LOCATION': str(prism)} if prism.is_file() else None,
            expected=sorted(path.stem for path in folder.glob('*_test.py'))))

  def documentation(self) -> Outcome:
    """The code that pages and docstrings show."""
    return from_result(
        docs.run(self.space.root, self.dev_python(), self.space.logs))

  def upstream_tests(self) -> Outcome:
    """Beam's own tests of what the series touches, from the dev wheel.

    What fails on stock Beam just so, on this machine, is no fault of the
    series: it is counted as skipped, and said.
    """
    modules = sorted({
        module
        for pr in self.series.pull_requests
        for module in prefixes.split_tests(pr.upstream_tests).python
    })
    result = self.pytest(self.dev_python(), modules, 'upstream-tests')
    failed = {t for t, s in result.states.items() if s == 'failed'}
    if not failed:
      return from_result(result)
    stock = self.pytest(
        pythons.with_stock(self.space, self.pins, self.pins.pin),
        modules,
        'upstream-tests-stock')
    excused = {t for t in failed if stock.states.get(t) == 'failed'}
    states = {
        test: 'skipped' if test in excused else state
        for test, state in result.states.items()
    }
    problems = [
        problem for problem in result.problems
        if not any(problem.what == f'{test} failed' for test in excused)
    ]
    counts = pytests.count(states)
    return Outcome(
        counts, f'{counts}; {len(excused)} fail on stock Beam too',
        tuple(problems))

  def go_packages(self) -> tuple[list[str], list[str]]:
    """The Go packages whose tests are ours in part, and other ones."""
    ours, others = set(), set()
    for pr in self.series.pull_requests:
      ours |= set(prefixes.split_tests(pr.tests).go)
      others |= set(prefixes.split_tests(pr.upstream_tests).go)
    return sorted(ours), sorted(others - ours)

  def our_go_tests(self, *, race: bool) -> Outcome:
    """With the race detector where that is asked for: it takes minutes more."""
    self.must_link_races(race)
    outcome = from_result(
        gotests.run_patiently(
            gotests.lay_out(self.space, self.series, race=race),
            gotests.lay_out(self.space, self.series.prefix(0), race=race),
            self.go_packages()[0],
            'our-go-tests',
            races=False))
    said = '; with -race' if race else ''
    return dataclasses.replace(outcome, details=f'{outcome.details}{said}')

  def must_link_races(self, race: bool) -> None:
    if race and not gotests.can_race():
      raise CannotRun(
          'the race detector needs a C compiler', 'apt-get install gcc')

  def upstream_go_tests(self, *, race: bool) -> Outcome:
    """The other packages; those with tests of ours have run already."""
    self.must_link_races(race)
    module = gotests.lay_out(self.space, self.series, race=race)
    ours, others = map(module.with_tests, self.go_packages())
    return from_result(
        gotests.run_patiently(
            module,
            gotests.lay_out(self.space, self.series.prefix(0), race=race),
            [package for package in others if package not in ours],
            'upstream-go-tests',
            races=True))

  def wheel_for(self, python: str) -> Outcome:
    path = pythons.dev_wheel(
        self.space, self.series, self.pins, self.pins.pin, python)
    tag = 'cp' + python.replace('.', '')
    files = wheelfile.read(path)
    told = files[f'{wheelfile.dist_info(list(files))}/WHEEL'].decode()
    if f'-{tag}-{tag}-' not in path.name or f'Tag: {tag}-{tag}-' not in told:
      raise CannotRun(f'{path.name} is not tagged {tag}')
    return one_good(path.name)

  def over_newer(self, version: str) -> Outcome:
    wheel = pythons.dev_wheel(self.space, self.series, self.pins, version)
    return self.smokes(pythons.whole(self.space, f'dev-{version}-alone', wheel))

  def companion_installs(self) -> Outcome:
    """Both wheels in an environment of their own; Prism is found there.

    Nothing can be downloaded: the proxy of the pipelines does not exist, and
    neither does a file of an earlier download.
    """
    companion = prismwheel.build(self.space, self.series, self.pins)
    python = pythons.whole(
        self.space, 'companion',
        pythons.dev_wheel(self.space, self.series, self.pins), companion)
    pythons.check(python)
    version = devwheel.labelled_version(self.series, self.pins.pin)
    with tempfile.TemporaryDirectory() as home:
      said = [
          self.smoke(
              python, 'companion.py', f'--expect={version}', *options,
              env=without_network(home))
          for options in ((), ('--runner=PrismRunner', ))
      ]
    return Outcome(Counts(passed=3), 'pip check; ' + '; '.join(said))

  def addon_wheel(self) -> pathlib.Path:
    return addon.build(self.series, self.pins.pin, self.space.dist)

  def addon_installs(self) -> Outcome:
    """The add-on beside the released wheel, in an environment of its own."""
    stock = fetch.wheel(self.space, self.pins, self.pins.pin).wheel
    return self.smokes(
        pythons.whole(self.space, 'addon', stock, self.addon_wheel()))

  def addon_refuses(self, version: str) -> Outcome:
    """pip does not put the add-on beside a Beam that ships the modules."""
    wheel = self.addon_wheel()
    python = pythons.with_stock(self.space, self.pins, version)
    code, output = processes.run(
        [
            python, '-m', 'pip', 'install', '--dry-run', '--no-input', wheel,
            f'apache-beam=={version}'
        ],
        log=self.space.logs / f'addon-refuses-{version}.log')
    if not code or 'conflict' not in output.lower():
      last = ' / '.join(processes.last_lines(output, 2))
      raise CannotRun(
          f'pip did not refuse the add-on beside Beam {version}: {last}')
    return one_good('pip tells the conflict')

  def rivals(self) -> None:
    for one in rival.load(self.space):
      self.step(
          f'{one.beam} {one.name}'[:25],
          lambda one=one: from_result(
              rival.run(self.space, self.pins, one, self.dev_python())))

  def demo(self) -> Outcome:
    log = self.space.logs / 'demo.log'
    processes.must_run(
        demo.command(self.space, self.series, self.pins, []),
        what='the demo',
        cwd=self.space.root,
        timeout=demo.SECONDS,
        log=log)
    return one_good(f'see {log.relative_to(self.space.root)}')
