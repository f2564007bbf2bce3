"""What a Flink on this machine is told: its configuration and its Java."""

import dataclasses
import pathlib

BACKENDS = ('hashmap', 'rocksdb')
# What Flink's own start scripts open of Java 17 to Kryo, RPC and the rest.
_EXPORTED = (
    'java.base/sun.net.util', 'java.rmi/sun.rmi.registry',
    'jdk.compiler/com.sun.tools.javac.api',
    'java.security.jgss/sun.security.krb5')
_OPENED = (
    'lang', 'net', 'io', 'nio', 'lang.reflect', 'text', 'time', 'util',
    'util.concurrent', 'util.concurrent.atomic', 'util.concurrent.locks')
JAVA_OPTIONS = (
    *(f'--add-exports={name}=ALL-UNNAMED' for name in _EXPORTED),
    *(f'--add-opens=java.base/java.{name}=ALL-UNNAMED' for name in _OPENED),
    '--add-opens=java.base/sun.nio.ch=ALL-UNNAMED')


@dataclasses.dataclass(frozen=True)
class Settings:
  """How a cluster is to be.

  Attributes:
    backend: hashmap (state on the heap) or rocksdb.
    task_managers: how many.
    slots: of each TaskManager. One slot more than a job needs lets it go on
      when a TaskManager is killed.
    port: of the web page and the REST API.
    job_port: of the job server.
    base: whether the job server is the released one.
    debug: lets a debugger attach: TaskManager N listens at this port + N, the
      job server at the port itself; 0: none.
  """

  backend: str = 'hashmap'
  task_managers: int = 2
  slots: int = 1
  port: int = 8081
  job_port: int = 8099
  base: bool = False
  debug: int = 0


def configuration(
    settings: Settings, folder: pathlib.Path, rpc_port: int) -> str:
  """The text of config.yaml."""
  values = {
      'jobmanager.rpc.address': '127.0.0.1',
      'jobmanager.rpc.port': rpc_port,
      'jobmanager.bind-host': '127.0.0.1',
      'jobmanager.memory.process.size': '1200m',
      'taskmanager.host': '127.0.0.1',
      'taskmanager.bind-host': '127.0.0.1',
      'taskmanager.memory.process.size': '1600m',
      'taskmanager.memory.managed.size': '128m',
      'taskmanager.numberOfTaskSlots': settings.slots,
      'rest.address': '127.0.0.1',
      'rest.bind-address': '127.0.0.1',
      'rest.port': settings.port,
      'web.submit.enable': 'false',
      # What the REST API tells is no older than this, in milliseconds.
      'web.refresh-interval': 200,
      'parallelism.default': 1,
      'io.tmp.dirs': folder / 'tmp',
      'state.backend.type': settings.backend,
      'state.checkpoint-storage': 'filesystem',
      'state.checkpoints.dir': (folder / 'checkpoints').as_uri(),
      'state.savepoints.dir': (folder / 'savepoints').as_uri(),
      'state.checkpoints.num-retained': 3,
      'execution.checkpointing.externalized-checkpoint-retention':
          'RETAIN_ON_CANCELLATION',
      # A killed process is noticed after two heartbeats that do not reach it,
      # and the job goes on. One that is only slow is waited for.
      'heartbeat.interval': 1000,
      'heartbeat.rpc-failure-threshold': 2,
      'heartbeat.timeout': 30000,
      'restart-strategy.type': 'fixed-delay',
      'restart-strategy.fixed-delay.attempts': 20,
      'restart-strategy.fixed-delay.delay': '1s',
  }
  return ''.join(f'{key}: {value}\n' for key, value in values.items())


LOG4J = '''rootLogger.level = INFO
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = Console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss,SSS} %-5p %c{1} - %m%n%xEx
'''


def debug_options(port: int) -> list[str]:
  if not port:
    return []
  return [
      '-agentlib:jdwp=transport=dt_socket,server=y,suspend=n,'
      f'address=127.0.0.1:{port}'
  ]


def pipeline_options(settings: Settings, worker_pool: int = 0) -> list[str]:
  """What a pipeline needs to run on the cluster.

  Args:
    settings: of the cluster.
    worker_pool: the port of a pool of workers; 0: workers are threads of the
      process that submits the pipeline.
  """
  workers = ['--environment_type=LOOPBACK']
  if worker_pool:
    workers = [
        '--environment_type=EXTERNAL',
        f'--environment_config=127.0.0.1:{worker_pool}'
    ]
  return [
      '--runner=PortableRunner',
      f'--job_endpoint=localhost:{settings.job_port}',
      *workers, '--streaming', '--checkpointing_interval=1000',
      '--max_bundle_time_mills=20', '--finish_bundle_before_checkpointing'
  ]
