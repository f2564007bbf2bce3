"""Runs the tests of stack/spark: pipelines on job servers of their own."""

import os
import pathlib
import tempfile

from beamstack import bases
from beamstack import jobserver
from beamstack import products
from beamstack import pytests
from beamstack import pythons
from beamstack.series import Series
from beamstack.workspace import Workspace


def run(
    space: Workspace, series: Series, pins: bases.Pins, *,
    base: bool = False, full: bool = False,
    more: tuple[str, ...] = ()) -> pytests.Result:
  """Runs them with the job server of the series, or with the released one.

  Args:
    space: the checkout.
    series: the series.
    pins: base.toml.
    base: use the released job server. The tests fail there: that is what
      they are for.
    full: also on a cluster, of which a worker is killed.
    more: more options of pytest.
  """
  folder = space.stack / 'spark'
  environment = {
      'SPARK_JOB_SERVER': os.fspath(
          jobserver.build(space, series, pins, products.SPARK, base=base)),
      'SPARK_FULL': 'yes' if full else '',
  }
  with tempfile.TemporaryDirectory() as elsewhere:
    return pytests.run(
        pythons.with_series(space, series, pins), [os.fspath(folder)],
        name='spark-base' if base else 'spark',
        logs=space.logs,
        cwd=pathlib.Path(elsewhere),
        rootdir=folder,
        env=environment,
        expected=[]
        if more else sorted(path.stem for path in folder.glob('test_*.py')),
        more=('-s', *more))
