"""The verb `bench`: measures the series against upstream's own, or a client."""

import pathlib
import sys

from beamstack import bases
from beamstack import debian
from beamstack import flinkdist
from beamstack import gobuild
from beamstack import javabuild
from beamstack import javasdk
from beamstack import jobserver
from beamstack import maven
from beamstack import processes
from beamstack import products
from beamstack import pythons
from beamstack.errors import CannotRun
from beamstack.series import Series
from beamstack.workspace import Workspace

# Their scripts. None has the name of a client library, which it would hide.
SUBJECTS = {
    'flink': 'flink.py',
    'java-watch': 'java_watch.py',
    'kafka': 'kafka.py',
    'ordered': 'ordered.py',
    'prism': 'prism.py',
    'redis': 'redis_streams.py',
    'unbounded': 'unbounded.py',
    'wait': 'wait_on.py',
    'watch': 'watch.py',
}


def command(
    space: Workspace, series: Series, pins: bases.Pins, subject: str,
    arguments: list[str]) -> list[str]:
  """The command line of a benchmark; makes what it needs beforehand.

  The rival is the newest pinned release as it was released.
  """
  script = space.root / 'benchmarks' / SUBJECTS[subject]
  if not script.is_file():
    raise CannotRun(f'{script} is not there', 'git status')
  if subject == 'java-watch':
    jar = javasdk.build(space, series, pins)
    classes = javasdk.bench_classes(
        space, series, pins, jar, script.with_suffix(''))
    return [
        sys.executable, str(script), '--java',
        str(processes.find_tool('java')), '--jar', str(jar), '--classes',
        str(classes), '--released',
        ':'.join(
            str(jar) for jar in javabuild.class_path(
                space, products.JAVA_SDK)), '--out',
        str(space.root / 'benchmarks' / 'results'), *arguments
    ]
  if not pins.newer:
    raise CannotRun('base.toml pins no newer release to compare with')
  ours = pythons.with_series(space, series, pins)
  if subject == 'flink':
    base, server = (
        jobserver.build(space, series, pins, products.FLINK, base=base)
        for base in (True, False))
    return [
        str(ours), str(script), '--ours', str(ours), '--flink',
        str(flinkdist.distribution(space)), '--base-job-server', str(base),
        '--job-server', str(server), '--out',
        str(space.root / 'benchmarks' / 'results'), *arguments
    ]
  if subject == 'kafka':
    prism = gobuild.prism(space, series, pins, 'prism')
    return [
        str(ours), str(script), '--ours', str(ours), '--prism', str(prism),
        '--classpath', maven.classpath(space, 'kafka-broker'), '--out',
        str(space.root / 'benchmarks' / 'results'), *arguments
    ]
  if subject == 'ordered':
    prism = gobuild.prism(space, series, pins, 'prism')
    return [
        str(ours), str(script), '--ours', str(ours), '--prism', str(prism),
        '--out', str(space.root / 'benchmarks' / 'results'), *arguments
    ]
  if subject == 'redis':
    server = debian.find(space, debian.REDIS_SERVER)
    return [
        str(ours), str(script), '--ours', str(ours), '--redis-server',
        str(server), '--out', str(space.root / 'benchmarks' / 'results'),
        *arguments
    ]
  if subject == 'prism':
    base = gobuild.prism(space, series.prefix(0), pins, 'prism-base')
    prism = gobuild.prism(space, series, pins, 'prism')
    return [
        str(ours), str(script), '--ours', str(ours), '--base', str(base),
        '--prism', str(prism), '--out',
        str(space.root / 'benchmarks' / 'results'), *arguments
    ]
  rival = pythons.with_stock(space, pins, pins.newer[-1])
  if subject == 'wait':
    prism = gobuild.prism(space, series, pins, 'prism')
    return [
        str(ours), str(script), '--ours', str(ours), '--rival', str(rival),
        '--prism', str(prism), '--out',
        str(space.root / 'benchmarks' / 'results'), *arguments
    ]
  base = gobuild.prism(space, series.prefix(0), pins, 'prism-base')
  prism = gobuild.prism(space, series, pins, 'prism')
  results: pathlib.Path = space.root / 'benchmarks' / 'results'
  return [
      str(ours), str(script), '--ours', str(ours), '--rival', str(rival),
      '--prism', str(prism), '--rival-prism', str(base), '--out',
      str(results), *arguments
  ]
