"""A Flink on this machine: one JobManager, TaskManagers, Beam's job server.

Each is a process that is known by its id and the time of its start, in
`processes.json` of the cluster's folder. Nothing else is ever ended.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

from beamstack import console
from beamstack import flinkconf
from beamstack import flinkrest
from beamstack import jars
from beamstack import processes
from beamstack.errors import CannotRun
from beamstack.flinkconf import Settings

JOB_MANAGER = 'job-manager'
TASK_MANAGER = 'task-manager'
JOB_SERVER = 'job-server'
_MAINS = {
    JOB_MANAGER:
        'org.apache.flink.runtime.entrypoint.'
        'StandaloneSessionClusterEntrypoint',
    TASK_MANAGER: 'org.apache.flink.runtime.taskexecutor.TaskManagerRunner',
}
_RESOURCES = {
    JOB_MANAGER: 'GET_JM_RESOURCE_PARAMS',
    TASK_MANAGER: 'GET_TM_RESOURCE_PARAMS',
}
_RESULT = 'BASH_JAVA_UTILS_EXEC_RESULT:'
START_SECONDS = 90.0
STOP_SECONDS = 20.0
_PORT_SECONDS = 3.0


@dataclasses.dataclass(frozen=True)
class Process:
  """A process that we started: its id may be another's by now."""

  pid: int
  started: str

  def lives(self) -> bool:
    return bool(self.started) and start_of(self.pid) == self.started


def start_of(pid: int) -> str:
  """When a process started, by what the system counts; empty if it is gone.

  A process that has ended and is not yet waited for is gone as well.
  """
  try:
    with contextlib.suppress(ChildProcessError):
      os.waitpid(pid, os.WNOHANG)
    stat = pathlib.Path(f'/proc/{pid}/stat').read_text()
    fields = stat.rpartition(')')[2].split()
    return '' if fields[0] in 'ZX' else fields[19]
  except OSError:
    pass
  if pathlib.Path('/proc/self').exists():
    return ''
  return subprocess.run(
      ['ps', '-o', 'lstart=', '-p', str(pid)],
      capture_output=True,
      text=True,
      check=False).stdout.strip()


class Cluster:
  """One cluster, with all that it keeps in a folder.

  Attributes:
    folder: its configuration, logs, checkpoints and savepoints.
  """

  def __init__(self, folder: pathlib.Path):
    self.folder = folder

  # What is known of it.

  def settings(self) -> Settings:
    try:
      return Settings(**json.loads((self.folder / 'settings.json').read_text()))
    except FileNotFoundError as e:
      raise CannotRun(
          'no cluster was started here', './beamstack cluster start') from e

  def processes(self) -> dict[str, Process]:
    """All that were started and not stopped, by name."""
    try:
      text = (self.folder / 'processes.json').read_text()
    except FileNotFoundError:
      return {}
    return {
        name: Process(**fields) for name, fields in json.loads(text).items()
    }

  def living(self) -> dict[str, Process]:
    return {n: p for n, p in self.processes().items() if p.lives()}

  def rest(self) -> flinkrest.Rest:
    return flinkrest.Rest(self.settings().port)

  def log(self, name: str) -> pathlib.Path:
    return self.folder / 'logs' / f'{name}.log'

  # Starting.

  def start(
      self,
      settings: Settings,
      flink: pathlib.Path,
      job_server: pathlib.Path | None) -> None:
    """Starts all that does not run; returns when Flink and jobs can run.

    Args:
      settings: how it is to be. A cluster that runs keeps what it has.
      flink: the folder of a Flink.
      job_server: the jar of a job server; None: no job server.
    """
    java = processes.find_tool('java')
    living = self.living()
    if JOB_MANAGER in living and self.settings() != settings:
      raise CannotRun(
          'a cluster with other settings runs', './beamstack cluster stop')
    self.folder.mkdir(parents=True, exist_ok=True)
    for name in ('conf', 'logs', 'tmp', 'checkpoints', 'savepoints'):
      (self.folder / name).mkdir(exist_ok=True)
    if JOB_MANAGER not in living:
      # TaskManagers of a JobManager that was killed go to the new one, if
      # it is where the old one was.
      rpc_port = self._rpc_port() if living else free_port()
      self._configure(settings, rpc_port)
      must_be_free(settings.port, '--port')
    if job_server and JOB_SERVER not in living:
      must_be_free(settings.job_port, '--job-port')
    names = [JOB_MANAGER] + [
        f'{TASK_MANAGER}-{n}' for n in range(1, settings.task_managers + 1)
    ]
    for name in names:
      if name not in living:
        self._start_flink(java, flink, name, settings)
    if job_server and JOB_SERVER not in living:
      self._start_job_server(java, job_server, settings)
    self._wait(settings, job_server is not None)

  def _configure(self, settings: Settings, rpc_port: int) -> None:
    conf = self.folder / 'conf'
    (conf / 'config.yaml').write_text(
        flinkconf.configuration(settings, self.folder, rpc_port))
    (conf / 'log4j.properties').write_text(flinkconf.LOG4J)
    (self.folder / 'settings.json').write_text(
        json.dumps(dataclasses.asdict(settings)))

  def _rpc_port(self) -> int:
    text = (self.folder / 'conf' / 'config.yaml').read_text()
    return int(text.partition('jobmanager.rpc.port: ')[2].split()[0])

  def _start_flink(
      self, java: str, flink: pathlib.Path, name: str,
      settings: Settings) -> None:
    kind, _, number = name.rpartition('-')
    if name == JOB_MANAGER:
      kind, number = JOB_MANAGER, ''
    conf = self.folder / 'conf'
    class_path = ':'.join(
        str(path) for pattern in ('flink-dist*.jar', 'log4j*.jar')
        for path in sorted((flink / 'lib').glob(pattern)))
    jvm, dynamic = self._resources(java, flink, class_path, kind)
    more: list[str] = []
    debug = 0
    if number:
      # A new one must not be taken for one of the same name that was killed.
      more = ['-D', f'taskmanager.resource-id={name}.{time.time_ns()}']
      debug = settings.debug and settings.debug + int(number)
    self._spawn(
        name,
        [
            java, *jvm, *flinkconf.JAVA_OPTIONS,
            *flinkconf.debug_options(debug), '-XX:+UseSerialGC',
            f'-Dlog4j.configurationFile={(conf / "log4j.properties").as_uri()}',
            '-cp', class_path, _MAINS[kind], '--configDir', str(conf),
            *dynamic, *more
        ],
        {'FLINK_PLUGINS_DIR': str(flink / 'plugins')})

  def _resources(
      self, java: str, flink: pathlib.Path, class_path: str,
      kind: str) -> tuple[list[str], list[str]]:
    """What Flink's own reckoning gives: options of Java, and its own."""
    utilities = flink / 'bin' / 'bash-java-utils.jar'
    output = processes.must_run(
        [
            java, '-cp', f'{utilities}:{class_path}',
            'org.apache.flink.runtime.util.bash.BashJavaUtils',
            _RESOURCES[kind], '--configDir', self.folder / 'conf'
        ],
        what=f'the reckoning of memory for a {kind}',
        log=self.folder / 'logs' / f'resources-{kind}.log')
    lines = [
        line.partition(_RESULT)[2]
        for line in output.splitlines() if _RESULT in line
    ]
    if len(lines) < 2:
      raise CannotRun(
          f'Flink did not say what memory a {kind} gets',
          f'see {self.folder / "logs" / f"resources-{kind}.log"}')
    return lines[0].split(), lines[1].split()

  def _start_job_server(
      self, java: str, jar: pathlib.Path, settings: Settings) -> None:
    # A copy: the cluster goes on when the jar is built anew.
    mine = self.folder / 'job-server.jar'
    shutil.copyfile(jar, mine)
    self._spawn(
        JOB_SERVER,
        [
            java, '-Xmx1g', *flinkconf.JAVA_OPTIONS,
            *flinkconf.debug_options(settings.debug),
            '-Dorg.slf4j.simpleLogger.showDateTime=true', '-jar', str(mine),
            f'--flink-master=127.0.0.1:{settings.port}',
            '--job-host=localhost', f'--job-port={settings.job_port}',
            '--artifact-port=0', '--expansion-port=0',
            f'--artifacts-dir={self.folder / "artifacts"}'
        ], {})

  def series(self) -> str:
    """What the job server that was started last carries of the series."""
    jar = self.folder / 'job-server.jar'
    return jars.attribute(jar, 'Beam-Series') if jar.is_file() else ''

  def _spawn(self, name: str, command: list[str], env: dict[str, str]) -> None:
    with open(self.log(name), 'ab') as log:
      child = subprocess.Popen(
          command,
          stdin=subprocess.DEVNULL,
          stdout=log,
          stderr=subprocess.STDOUT,
          cwd=self.folder,
          env={**os.environ, **env},
          start_new_session=True)
    self._note(name, Process(child.pid, start_of(child.pid)))

  def adopt(self, name: str, pid: int) -> None:
    """Lets stop end one more process, the leader of its group."""
    self._note(name, Process(pid, start_of(pid)))

  def _note(self, name: str, process: Process | None) -> None:
    known = self.processes()
    known.pop(name, None)
    if process:
      known[name] = process
    partial = self.folder / 'processes.json.new'
    partial.write_text(
        json.dumps({n: dataclasses.asdict(p) for n, p in known.items()}))
    partial.replace(self.folder / 'processes.json')

  def _wait(self, settings: Settings, job_server: bool) -> None:
    slots = settings.task_managers * settings.slots
    rest = flinkrest.Rest(settings.port)
    end = time.monotonic() + START_SECONDS

    def up() -> bool:
      if not rest.answers() or rest.overview()['slots-total'] < slots:
        return False
      return not job_server or is_open(settings.job_port)

    with console.step('waiting for Flink' +
                      (' and the job server' if job_server else '')):
      while not up():
        dead = set(self.processes()) - set(self.living())
        if dead:
          name = sorted(dead)[0]
          last = ' / '.join(
              processes.last_lines(self.log(name).read_text(), 2))
          raise CannotRun(
              f'the {name} ended at once: {last}', f'see {self.log(name)}')
        if time.monotonic() > end:
          raise CannotRun(
              f'Flink was not up after {START_SECONDS:.0f} s',
              f'see {self.folder / "logs"}')
        time.sleep(0.2)

  # Ending.

  def kill(self, target: str) -> str:
    """Kills a process as a crash would (kill -9); returns its name.

    Args:
      target: a name, or task-manager: the first one with tasks of the newest
        job, or else the first.
    """
    living = self.living()
    name = target
    if target == TASK_MANAGER:
      candidates = self.busy() or sorted(living)
      name = next(
          (n for n in candidates if n in living and n.startswith(target)), '')
    if name not in living:
      raise CannotRun(
          f'no {target} runs',
          'use one of ' + ', '.join(sorted(living)) if living else
          './beamstack cluster start')
    os.killpg(living[name].pid, signal.SIGKILL)
    _wait_gone(living[name], STOP_SECONDS)
    self._note(name, None)
    return name

  def busy(self) -> list[str]:
    """The TaskManagers that run tasks of the newest job."""
    rest = self.rest()
    running = [job for job in rest.jobs() if job['state'] == 'RUNNING']
    if not running:
      return []
    on = rest.task_managers_of(running[0]['jid'])
    return sorted(resource.partition('.')[0] for resource in on)

  def stop(self) -> list[str]:
    """Ends all that was started; returns the names of what ran."""
    found = self.processes()
    ended = []
    # The JobManager last: the others report to it that they leave.
    for name in sorted(found, key=lambda n: n == JOB_MANAGER):
      process = found[name]
      if process.lives():
        os.killpg(process.pid, signal.SIGTERM)
        if not _wait_gone(process, STOP_SECONDS):
          os.killpg(process.pid, signal.SIGKILL)
          _wait_gone(process, STOP_SECONDS)
        ended.append(name)
      self._note(name, None)
    return ended


def _wait_gone(process: Process, seconds: float) -> bool:
  end = time.monotonic() + seconds
  while process.lives():
    if time.monotonic() > end:
      return False
    time.sleep(0.05)
  return True


def free_port() -> int:
  with socket.socket() as probe:
    probe.bind(('127.0.0.1', 0))
    return probe.getsockname()[1]


def is_open(port: int) -> bool:
  with socket.socket() as probe:
    probe.settimeout(1)
    return probe.connect_ex(('127.0.0.1', port)) == 0


def must_be_free(port: int, option: str) -> None:
  """Waits a little: a process that was killed may end before its threads do."""
  deadline = time.monotonic() + _PORT_SECONDS
  while is_open(port):
    if time.monotonic() < deadline:
      time.sleep(0.1)
      continue
    raise CannotRun(
        f'port {port} is in use', f'end what uses it, or choose another by '
        f'{option}')
