"""Runs the tests of stack/flink: pipelines on a Flink cluster of their own."""

import os
import pathlib
import tempfile

from beamstack import bases
from beamstack import debian
from beamstack import flinkdist
from beamstack import flinkfigures
from beamstack import jobserver
from beamstack import products
from beamstack import pytests
from beamstack import pythons
from beamstack.series import Series
from beamstack.workspace import Workspace


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
  with tempfile.TemporaryDirectory() as elsewhere:
    figures = pathlib.Path(elsewhere) / 'figures'
    result = pytests.run(
        pythons.with_series(space, series, pins), [os.fspath(folder)],
        name='flink-base' if base else f'flink-{backend}',
        logs=space.logs,
        cwd=pathlib.Path(elsewhere),
        rootdir=folder,
        env={**environment, 'FLINK_FIGURES': os.fspath(figures)},
        expected=[]
        if more else sorted(path.stem for path in folder.glob('test_*.py')),
        more=('-s', *more))
    if full:
      flinkfigures.keep(
          space.root / 'benchmarks' / 'results', flinkfigures.read(figures))
    return result
