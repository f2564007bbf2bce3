"""A cluster starts what does not run, kills what it is told, leaves nothing.

`java` is a script here that does what Flink and the job server do for the
program: it reckons memory, answers as the REST API, opens a port. A Flink
that is real is in `stack/flink`.
"""

import os
import pathlib
import socket
import subprocess
import sys
import threading

import pytest

from beamstack import cli
from beamstack import cluster as clusters
from beamstack import clusterverb
from beamstack import flinkconf
from beamstack import jars
from beamstack.cluster import Cluster
from beamstack.errors import CannotRun
from beamstack.workspace import Workspace

JAVA = '''#!{python}
import http.server, json, pathlib, signal, socket, sys, time
words = sys.argv[1:]
text = ' '.join(words)
if 'BashJavaUtils' in text:
  print('some line')
  print('BASH_JAVA_UTILS_EXEC_RESULT:-Xmx1m')
  print('BASH_JAVA_UTILS_EXEC_RESULT:-D a=b')
  sys.exit()
here = pathlib.Path({here!r})
if (here / 'dies').exists() and 'TaskManagerRunner' in text:
  sys.exit('no memory')
conf = dict(
    line.split(': ', 1) for line in
    pathlib.Path('conf/config.yaml').read_text().splitlines())
if 'SessionCluster' in text:
  class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
      said = {{
          '/overview': {{'slots-total': 2}},
          '/jobs/overview': {{'jobs': [
              {{'jid': 'j1', 'start-time': 1, 'state': 'FAILED', 'name': 'a'}},
              {{'jid': 'j2', 'start-time': 2, 'state': 'RUNNING',
                'name': 'b'}},
              {{'jid': 'j3', 'start-time': 3, 'state': 'CANCELED',
                'name': 'c'}}]}},
          '/jobs/j2': {{'vertices': [{{'id': 'v', 'name': 'Read'}}]}},
          '/jobs/j2/vertices/v': {{'subtasks': [
              {{'status': 'RUNNING', 'subtask': 0,
                'taskmanager-id': 'task-manager-2.1'}}]}},
          '/jobs/j2/checkpoints': {{'latest': {{'completed': {{
              'id': 7, 'state_size': 1234, 'end_to_end_duration': 5,
              'external_path': 'file:/c'}}}}}},
          '/jobs/j2/savepoints/r': {{
              'status': {{'id': 'COMPLETED'}},
              'operation': {{'failure-cause': {{'stack-trace': 'No disk.'}}}}
              if (here / 'full').exists() else {{'location': 'file:/s'}}}},
      }}[self.path]
      self.answer(said)
    def do_POST(self):
      asked = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
      assert self.path == '/jobs/j2/stop' and asked == {{'drain': False}}
      self.answer({{'request-id': 'r'}})
    def answer(self, said):
      self.send_response(200)
      self.end_headers()
      self.wfile.write(json.dumps(said).encode())
    def log_message(self, *a):
      pass
  http.server.HTTPServer(
      ('127.0.0.1', int(conf['rest.port'])), Answer).serve_forever()
for word in words:
  if word.startswith('--job-port='):
    listening = socket.create_server(('127.0.0.1', int(word.split('=')[1])))
time.sleep(120)
'''


class Place:
  """A folder for a cluster, and a java that obeys."""

  def __init__(self, root):
    self.root = root
    self.bin = root / 'bin'
    self.bin.mkdir()
    java = self.bin / 'java'
    java.write_text(JAVA.format(python=sys.executable, here=str(root)))
    java.chmod(0o755)
    self.flink = root / 'flink'
    (self.flink / 'lib').mkdir(parents=True)
    for name in ('flink-dist-1.jar', 'log4j-1.jar', 'flink-table-1.jar'):
      (self.flink / 'lib' / name).touch()
    self.job_server = root / 'server.jar'
    jars.merge([], self.job_server, {'Beam-Series': 'stack.12345678'})
    self.cluster = Cluster(root / 'cluster')
    self.settings = flinkconf.Settings(
        port=clusters.free_port(), job_port=clusters.free_port())

  def start(self, **changes):
    settings = flinkconf.Settings(**{**vars(self.settings), **changes})
    self.cluster.start(settings, self.flink, self.job_server)

  def words(self, name):
    pid = self.cluster.processes()[name].pid
    return pathlib.Path(f'/proc/{pid}/cmdline').read_text().split('\0')


@pytest.fixture(name='place')
def _place(tmp_path, monkeypatch):
  place = Place(tmp_path)
  monkeypatch.setenv('PATH', f'{place.bin}:{os.environ["PATH"]}')
  yield place
  place.cluster.stop()


ALL = ['job-manager', 'job-server', 'task-manager-1', 'task-manager-2']


def test_all_are_started_once_and_stopped(place):
  place.start()
  living = place.cluster.living()
  assert sorted(living) == ALL
  place.start()
  assert place.cluster.living() == living
  assert sorted(place.cluster.stop()) == ALL
  assert place.cluster.living() == {} and place.cluster.processes() == {}
  for process in living.values():
    with pytest.raises(ProcessLookupError):
      os.kill(process.pid, 0)
  assert place.cluster.stop() == []


def test_what_flink_reckons_is_what_it_gets(place):
  place.start()
  words = place.words('task-manager-1')
  assert '-Xmx1m' in words and 'a=b' in words
  class_path = words[words.index('-cp') + 1]
  assert 'flink-dist-1.jar' in class_path and 'log4j-1.jar' in class_path
  assert 'table' not in class_path
  assert '-agentlib' not in ' '.join(words)


def test_a_debugger_can_attach(place):
  place.start(debug=5005)
  assert any('127.0.0.1:5007' in word for word in place.words('task-manager-2'))
  assert any('127.0.0.1:5005' in word for word in place.words('job-server'))
  assert not any('jdwp' in word for word in place.words('job-manager'))


def test_one_that_is_killed_is_started_again(place):
  place.start()
  before = place.cluster.living()
  assert place.cluster.kill('task-manager-1') == 'task-manager-1'
  assert sorted(place.cluster.living()) == [
      name for name in ALL if name != 'task-manager-1'
  ]
  place.start()
  after = place.cluster.living()
  assert sorted(after) == ALL
  assert {n for n in ALL if before[n] != after[n]} == {'task-manager-1'}


def test_a_job_manager_comes_back_where_it_was(place):
  place.start()
  config = place.cluster.folder / 'conf' / 'config.yaml'
  before = config.read_text()
  place.cluster.kill('job-manager')
  place.start()
  assert config.read_text() == before
  assert 'rest.port' in before


def test_the_task_manager_that_works_is_killed(place):
  place.start()
  assert place.cluster.kill('task-manager') == 'task-manager-2'
  with pytest.raises(CannotRun, match='no task-manager-2 runs') as caught:
    place.cluster.kill('task-manager-2')
  assert 'task-manager-1' in caught.value.remedy


def test_nothing_that_is_not_ours_is_ended(place):
  place.start()
  cluster = place.cluster
  mine = os.getpid()
  stranger = clusters.Process(mine, clusters.start_of(mine) + '1')
  cluster._note('task-manager-1', stranger)
  assert 'task-manager-1' not in cluster.living()
  with pytest.raises(CannotRun):
    cluster.kill('task-manager-1')
  assert 'task-manager-1' not in cluster.stop()


def test_what_it_was_given_is_stopped_with_it(place):
  place.start()
  child = subprocess.Popen(['sleep', '600'], start_new_session=True)
  place.cluster.adopt('sleeper', child.pid)
  assert 'sleeper' in place.cluster.living()
  assert 'sleeper' in place.cluster.stop()
  with pytest.raises(ProcessLookupError):
    os.kill(child.pid, 0)


def test_other_settings_need_a_stop(place):
  place.start()
  with pytest.raises(CannotRun, match='other settings') as caught:
    place.start(slots=2)
  assert caught.value.remedy == './beamstack cluster stop'


@pytest.mark.parametrize(
    'field, option', [('port', '--port'), ('job_port', '--job-port')])
def test_a_port_in_use_is_told(place, field, option):
  with socket.create_server(
      ('127.0.0.1', getattr(place.settings, field))) as taken:
    with pytest.raises(
        CannotRun, match=f'port {taken.getsockname()[1]} is in use') as caught:
      place.start()
  assert option in caught.value.remedy


def test_a_port_that_is_about_to_be_free_is_waited_for():
  taken = socket.create_server(('127.0.0.1', 0))
  ends = threading.Timer(0.5, taken.close)
  ends.start()
  clusters.must_be_free(taken.getsockname()[1], '--port')
  ends.join()


def test_no_java_is_told(place, monkeypatch):
  monkeypatch.setenv('PATH', str(place.root))
  with pytest.raises(CannotRun, match='java is not on the PATH') as caught:
    place.start()
  assert 'apt-get install openjdk' in caught.value.remedy


def test_one_that_dies_at_once_is_told_with_its_words(place):
  (place.root / 'dies').touch()
  with pytest.raises(
      CannotRun, match='task-manager-. ended at once: no memory') as caught:
    place.start()
  assert 'logs' in caught.value.remedy


def test_what_runs_is_shown(place, capsys, monkeypatch):
  place.start()
  place.cluster.kill('task-manager-1')
  space = Workspace(place.root)
  options = cli.parser().parse_args(['cluster', 'status'])
  monkeypatch.setattr(clusterverb, 'of', lambda space: place.cluster)
  assert clusterverb.run(space, options) == 0
  said = capsys.readouterr().out
  assert 'job j2 RUNNING b' in said and 'checkpoint 7: 1,234 bytes' in said
  assert 'task-manager-2: Read 0' in said
  assert 'series: stack.12345678' in said
  place.cluster.stop()
  assert clusterverb.run(space, options) == 1
  assert 'nothing runs' in capsys.readouterr().out


def test_a_job_is_stopped_with_a_savepoint(place, capsys, monkeypatch):
  place.start()
  options = cli.parser().parse_args(['cluster', 'savepoint'])
  space = Workspace(place.cluster.folder.parent)
  monkeypatch.setattr(clusterverb, 'of', lambda space: place.cluster)
  assert clusterverb.run(space, options) == 0
  assert '--savepoint_path=file:/s' in capsys.readouterr().out
  (place.cluster.folder.parent / 'full').touch()
  with pytest.raises(CannotRun, match='No disk'):
    clusterverb.run(space, options)


def test_a_cluster_that_was_never_started_is_told(tmp_path):
  with pytest.raises(CannotRun, match='no cluster was started') as caught:
    Cluster(tmp_path).rest()
  assert caught.value.remedy == './beamstack cluster start'


def test_the_configuration_is_what_was_asked_for(tmp_path):
  text = flinkconf.configuration(
      flinkconf.Settings(backend='rocksdb', slots=3, port=81), tmp_path, 82)
  for line in (
      'state.backend.type: rocksdb', 'taskmanager.numberOfTaskSlots: 3',
      'rest.port: 81', 'jobmanager.rpc.port: 82',
      f'state.checkpoints.dir: file://{tmp_path}/checkpoints'):
    assert line + '\n' in text


def test_a_pipeline_is_told_where_to_go():
  settings = flinkconf.Settings(job_port=77)
  assert '--environment_type=LOOPBACK' in flinkconf.pipeline_options(settings)
  assert '--environment_config=127.0.0.1:88' in flinkconf.pipeline_options(
      settings, 88)
  assert '--job_endpoint=localhost:77' in flinkconf.pipeline_options(settings)
