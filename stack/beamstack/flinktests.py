"""Runs the tests of stack/flink: pipelines on a Flink cluster of their own."""

import os
import pathlib
import shutil
import tempfile

from beamstack import bases
from beamstack import debian
from beamstack import flinkdist
from beamstack import flinkfigures
from beamstack import jobserver
from beamstack import products
from beamstack import pytests
from beamstack import pythons
from beamstack.cluster import Cluster
from beamstack.series import Series
from beamstack.workspace import Workspace

# A kill, and what comes before and after it, takes minutes on a busy machine.
FULL_SECONDS = 2 * 3600.0


def run(
    space: Workspace, series: Series, pins: bases.Pins, *,
    base: bool = False, backend: str = 'hashmap', full: bool = False,
    more: tuple[str, ...] = ()) -> pytests.Result:
  """Runs them with the job server of the series, or with the released one.

  Args:
    space: the checkout.
    series: the series.
    pins: base.toml.
    base: use the released job server. The tests fail there: that is what
      they are for.
    backend: where Flink keeps state.
    full: kill at ten moments instead of one, and watch for longer; the
      figures go to benchmarks/results.
    more: more options of pytest.
  """
  folder = space.stack / 'flink'
  released, tested = (
      os.fspath(
          jobserver.build(space, series, pins, products.FLINK, base=one))
      for one in (True, base))
  environment = {
      'FLINK_DISTRIBUTION': os.fspath(flinkdist.distribution(space)),
      'FLINK_JOB_SERVER': tested,
      'FLINK_RELEASED_JOB_SERVER': released,
      'FLINK_BACKEND': backend,
      'FLINK_FULL': 'yes' if full else '',
      'FLINK_SERVER': flinkfigures.RELEASED if base else 'ours',
      'REDIS_SERVER': os.fspath(debian.find(space, debian.REDIS_SERVER)),
  }
  cluster = Cluster(space.work / f'flink-tests-{os.getpid()}')
  try:
    result = _run(space, series, pins, folder, {
        **environment, 'FLINK_CLUSTER': os.fspath(cluster.folder)
    }, 'flink-base' if base else f'flink-{backend}', full, more)
  finally:
    # Tests that took too long were killed, and could not do it.
    cluster.stop()
  if not result.problems:
    shutil.rmtree(cluster.folder, ignore_errors=True)
  return result


def _run(
    space: Workspace, series: Series, pins: bases.Pins, folder: pathlib.Path,
    environment: dict[str, str], name: str, full: bool,
    more: tuple[str, ...]) -> pytests.Result:
  with tempfile.TemporaryDirectory() as elsewhere:
    figures = pathlib.Path(elsewhere) / 'figures'
    result = pytests.run(
        pythons.with_series(space, series, pins), [os.fspath(folder)],
        name=name,
        logs=space.logs,
        cwd=pathlib.Path(elsewhere),
        rootdir=folder,
        env={**environment, 'FLINK_FIGURES': os.fspath(figures)},
        expected=[]
        if more else sorted(path.stem for path in folder.glob('test_*.py')),
        more=('-s', *more),
        seconds=FULL_SECONDS if full else pytests.MODULE_SECONDS)
    if full:
      flinkfigures.keep(
          space.root / 'benchmarks' / 'results', flinkfigures.read(figures))
    return result
