"""The verb `cluster`: a Flink on this machine to run pipelines on."""

import argparse
import dataclasses

from beamstack import bases
from beamstack import console
from beamstack import flinkconf
from beamstack import flinkdist
from beamstack import jobserver
from beamstack import processes
from beamstack import products
from beamstack import series
from beamstack.cluster import Cluster
from beamstack.cluster import JOB_SERVER
from beamstack.errors import CannotRun
from beamstack.flinkconf import Settings
from beamstack.workspace import Workspace

DETAILS = '''start      starts what does not run: JobManager, TaskManagers, server
stop       ends all that start started
kill       kills one as a crash would (kill -9); start brings it back
status     shows what runs, the jobs, their checkpoints, and where tasks are
savepoint  stops the newest job with a savepoint, to go on from
logs       prints where the logs are, or the end of one

All that it keeps is in .beamstack/cluster. Flink comes from pip, the job
server from ./beamstack flink.'''
LINES = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
  actions = parser.add_subparsers(
      dest='action', metavar='ACTION', required=True, title='actions')
  start = actions.add_parser('start', help='start what does not run')
  fields = {field.name: field.default for field in dataclasses.fields(Settings)}
  start.add_argument(
      '--backend', choices=flinkconf.BACKENDS, default=fields['backend'],
      help='where state is kept: on the heap (hashmap) or in RocksDB')
  for name, words in (
      ('task_managers', 'how many TaskManagers'),
      ('slots', 'slots of each TaskManager'),
      ('port', 'of the web page and the REST API'),
      ('job_port', 'of the job server'),
      ('debug', 'TaskManager N waits for a debugger at this port + N, the job '
       'server at the port')):
    start.add_argument(
        '--' + name.replace('_', '-'), type=int, default=fields[name],
        metavar='N', help=f'{words} (default: {fields[name] or "none"})')
  start.add_argument(
      '--base', action='store_true',
      help='use the released job server, without the series')
  start.add_argument(
      '--no-job-server', action='store_true', help='start Flink alone')
  actions.add_parser('stop', help='end all that start started')
  kill = actions.add_parser('kill', help='kill -9 one of the processes')
  kill.add_argument(
      'target',
      help='job-manager, job-server, task-manager-1, …; task-manager: one '
      'that runs tasks of the newest job')
  actions.add_parser('status', help='show what runs')
  actions.add_parser(
      'savepoint',
      help='stop the newest job that runs with a savepoint; print its path')
  logs = actions.add_parser('logs', help='show logs')
  logs.add_argument(
      'name', nargs='?', default='',
      help='the process whose last lines to print (default: list the files)')


def of(space: Workspace) -> Cluster:
  return Cluster(space.work / 'cluster')


def run(space: Workspace, options: argparse.Namespace) -> int:
  """Does what the command line asks for."""
  cluster = of(space)
  return {
      'start': _start,
      'stop': _stop,
      'kill': _kill,
      'savepoint': _savepoint,
      'status': _status,
      'logs': _logs
  }[options.action](space, cluster, options)


def _start(
    space: Workspace, cluster: Cluster, options: argparse.Namespace) -> int:
  names = {field.name for field in dataclasses.fields(Settings)}
  settings = Settings(
      **{name: value for name, value in vars(options).items() if name in names})
  processes.find_tool('java')
  job_server = None
  if not options.no_job_server and JOB_SERVER not in cluster.living():
    job_server = jobserver.build(
        space,
        series.load(space.root),
        bases.load_pins(space.stack / 'base.toml'),
        products.FLINK,
        base=settings.base)
  cluster.start(settings, flinkdist.distribution(space), job_server)
  console.result(f'Flink: http://127.0.0.1:{settings.port}')
  if not options.no_job_server:
    console.result(
        'options of a pipeline: ' +
        ' '.join(flinkconf.pipeline_options(settings)))
  return 0


def _stop(
    space: Workspace, cluster: Cluster, options: argparse.Namespace) -> int:
  del space, options
  ended = cluster.stop()
  console.result('ended ' + ', '.join(ended) if ended else 'nothing ran')
  return 0


def _kill(
    space: Workspace, cluster: Cluster, options: argparse.Namespace) -> int:
  del space
  console.result(f'killed {cluster.kill(options.target)}')
  return 0


def _status(
    space: Workspace, cluster: Cluster, options: argparse.Namespace) -> int:
  del space, options
  settings = cluster.settings()
  living = cluster.living()
  for name, process in sorted(cluster.processes().items()):
    words = f'process {process.pid}' if name in living else 'is gone'
    if name == JOB_SERVER:
      words += f', series: {cluster.series()}'
    console.result(f'{console.dotted(name)} {words}')
  if not living:
    console.result('nothing runs')
    return 1
  rest = cluster.rest()
  if not rest.answers():
    console.result(f'Flink does not answer at port {settings.port}')
    return 1
  for job in rest.jobs():
    console.result(f'job {job["jid"]} {job["state"]} {job["name"]}')
    if job['state'] != 'RUNNING':
      continue
    latest = rest.checkpoints(job['jid'])['latest']['completed']
    if latest:
      console.result(
          f'  checkpoint {latest["id"]}: {latest["state_size"]:,} bytes, '
          f'{latest["end_to_end_duration"]} ms, {latest["external_path"]}')
    for resource, tasks in sorted(rest.task_managers_of(job['jid']).items()):
      console.result(f'  {resource.partition(".")[0]}: {"; ".join(tasks)}')
  return 0


def _savepoint(
    space: Workspace, cluster: Cluster, options: argparse.Namespace) -> int:
  del space, options
  rest = cluster.rest()
  running = [job for job in rest.jobs() if job['state'] == 'RUNNING']
  if not running:
    raise CannotRun('no job runs', './beamstack cluster status')
  with console.step('stopping ' + running[0]['name']):
    path = rest.stop(running[0]['jid'])
  console.result(f'options of a pipeline to go on: --savepoint_path={path}')
  return 0


def _logs(
    space: Workspace, cluster: Cluster, options: argparse.Namespace) -> int:
  del space
  if not options.name:
    for path in sorted((cluster.folder / 'logs').glob('*.log')):
      console.result(str(path))
    return 0
  text = cluster.log(options.name).read_text(errors='replace')
  console.result('\n'.join(text.splitlines()[-LINES:]))
  return 0
