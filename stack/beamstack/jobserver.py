"""Builds a job server of Beam: released jars with the series over them.

A job server sends its whole class path to the cluster, so it is one jar. Its
manifest says which series it carries.
"""

import pathlib
import shutil
import tempfile

from beamstack import bases
from beamstack import console
from beamstack import jars
from beamstack import javabuild
from beamstack import maven
from beamstack import venvs
from beamstack.errors import ProblemsFound
from beamstack.products import Product
from beamstack.series import Series
from beamstack.workspace import Workspace

STAMP = 'Beam-Series'


def _attributes(product: Product, label: str) -> dict[str, str]:
  return {
      'Main-Class': product.main,
      'Multi-Release': 'true',
      STAMP: label,
      **opened(product.options)
  }


def opened(options: tuple[str, ...]) -> dict[str, str]:
  """What a manifest says in the place of options, so that -jar is enough."""
  found = {}
  for kind in ('opens', 'exports'):
    start = f'--add-{kind}='
    names = [
        option.removeprefix(start).partition('=')[0] for option in options
        if option.startswith(start)
    ]
    if names:
      found[f'Add-{kind.capitalize()}'] = ' '.join(names)
  return found


def released(space: Workspace, product: Product) -> pathlib.Path:
  """The released job server as one jar; made once."""
  wanted = maven.load(space, product.released)
  target = space.work / 'released' / f'{product.name}-{wanted.digest}.jar'
  with venvs.locked(target):
    if not target.is_file():
      found = maven.fetch(space, product.released)
      with console.step(f'laying {len(found)} jars together'), \
          tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        partial = pathlib.Path(temporary) / target.name
        jars.merge(found, partial, _attributes(product, 'none'))
        partial.rename(target)
  return target


def build(
    space: Workspace, series: Series, pins: bases.Pins, product: Product, *,
    base: bool = False) -> pathlib.Path:
  """Builds a job server into dist, with the series or without.

  Args:
    space: the checkout.
    series: what to lay over.
    pins: base.toml.
    product: which job server.
    base: build the released one.
  """
  below = released(space, product)
  target = space.dist / f'{product.name}{"-base" if base else ""}.jar'
  target.parent.mkdir(exist_ok=True)
  compiled = {}
  if not base:
    problems = javabuild.format_problems(space, series)
    if problems:
      raise ProblemsFound(problems)
    compiled = javabuild.compile_all(
        space, product, javabuild.sources(space, series, pins, product),
        name=product.name)
  with tempfile.TemporaryDirectory(dir=space.dist) as temporary:
    partial = pathlib.Path(temporary) / target.name
    if compiled:
      with console.step(f'laying {len(compiled)} classes over the job server'):
        jars.lay_over(
            below, compiled, partial,
            _attributes(product, javabuild.label(series, compiled)),
            without=stale(below, compiled))
    else:
      shutil.copyfile(below, partial)
    partial.replace(target)
  return target


def stale(jar: pathlib.Path, compiled: dict[str, bytes]) -> set[str]:
  """Classes of the jar that come from sources that were compiled anew.

  An inner class that an edit removed must not stay.
  """
  stems = {
      name.removesuffix('.class').partition('$')[0] for name in compiled
  }
  return {
      name for name in jars.names(jar) if name.endswith('.class') and
      name.removesuffix('.class').partition('$')[0] in stems
  }
