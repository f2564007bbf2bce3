#
# Licensed to the Apache Software Foundation (ASF) under one or more
# contributor license agreements.  See the NOTICE file distributed with
# this work for additional information regarding copyright ownership.
# The ASF licenses this file to You under the Apache License, Version 2.0
# (the "License"); you may not use this file except in compliance with
# the License.  You may obtain a copy of the License at
#
#    http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
#

"""A Kafka broker for tests: real, on this machine, ended with the tests.

It needs Java and the variable ``KAFKA_CLASSPATH``, a class path with
``org.apache.kafka:kafka_2.13`` and all that it needs.
"""

import atexit
import base64
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import uuid
from typing import Any
from typing import Iterator
from typing import Optional

from apache_beam.io.kafka_native import KafkaSource
from apache_beam.utils.timestamp import MAX_TIMESTAMP

try:
  import confluent_kafka
  from confluent_kafka import admin
except ImportError:
  confluent_kafka = None

CLASSPATH = os.environ.get('KAFKA_CLASSPATH')
HOW = (
    'no Kafka to test with; in a checkout of the series: '
    'export KAFKA_CLASSPATH="$(./beamstack maven kafka-broker)"')

USER = 'alice'
PASSWORD = 'opensesame-7261'

_START_SECONDS = 180.0
# Long enough for a busy machine; nothing waits so long when all is well.
_WAIT_SECONDS = 120.0
_PROPERTIES = '''
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAIN://127.0.0.1:{plain},SASL://127.0.0.1:{sasl},\\
CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAIN://127.0.0.1:{plain},SASL://127.0.0.1:{sasl}
inter.broker.listener.name=PLAIN
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAIN:PLAINTEXT,\\
SASL:SASL_PLAINTEXT
listener.name.sasl.sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=\\
org.apache.kafka.common.security.plain.PlainLoginModule required \\
user_{user}="{password}";
authorizer.class.name=\\
org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=6000
broker.heartbeat.interval.ms=400
log.cleaner.backoff.ms=100
log.cleaner.dedupe.buffer.size=4194304
log.initial.task.delay.ms=100
num.network.threads=2
num.io.threads=2
background.threads=2
'''
_PR_SET_PDEATHSIG = 1
_JVM = ('-Xms256m', '-Xmx256m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1')


class Broker:
  """A broker in a folder of its own, on ports that were free.

  Attributes:
    address: ``host:port`` for everybody.
    sasl_address: for the user :data:`USER` with :data:`PASSWORD`.
  """
  def __init__(self) -> None:
    self.folder = tempfile.mkdtemp(prefix='kafka-test-')
    ports = _free_ports(3)
    self.address = f'127.0.0.1:{ports[0]}'
    self.sasl_address = f'127.0.0.1:{ports[1]}'
    self._port = ports[0]
    self._properties = os.path.join(self.folder, 'server.properties')
    with open(self._properties, 'w', encoding='ascii') as properties:
      properties.write(
          _PROPERTIES.format(
              plain=ports[0],
              sasl=ports[1],
              controller=ports[2],
              user=USER,
              password=PASSWORD,
              data=os.path.join(self.folder, 'data')))
    self._process: Optional[subprocess.Popen] = None
    self._admin: Any = None
    atexit.register(self.stop)
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip('=')
    # One of 64 begins with "-", which the tool takes for an option.
    cluster = 'A' + cluster[1:]
    self._java(
        'kafka.tools.StorageTool',
        'format',
        '-t',
        cluster,
        '-c',
        self._properties).wait()
    self.start()

  def _java(self, *arguments: str) -> subprocess.Popen:
    # Not in a session of its own: whoever ends the tests by their process group
    # ends it too.
    with open(os.path.join(self.folder, 'log'), 'ab') as log:
      return subprocess.Popen(
          ['java', *_JVM, '-cp', CLASSPATH, *arguments],
          stdin=subprocess.DEVNULL,
          stdout=log,
          stderr=log,
          cwd=self.folder,
          preexec_fn=_end_with_parent)

  def start(self) -> None:
    """Starts it if it does not run, and waits until it serves."""
    if self._process is not None:
      return
    self._process = self._java('kafka.Kafka', self._properties)
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
      if self._process.poll() is not None:
        raise RuntimeError(f'The broker ended at once:\n{self._last_lines()}')
      with contextlib.suppress(OSError):
        socket.create_connection(('127.0.0.1', self._port), 1).close()
        if self.admin.list_topics(timeout=5).brokers:
          return
      time.sleep(0.1)
    raise RuntimeError(f'The broker does not start:\n{self._last_lines()}')

  def _last_lines(self) -> str:
    with open(os.path.join(self.folder, 'log'), errors='replace') as log:
      return ''.join(log.readlines()[-20:])

  def kill(self) -> None:
    """Ends it at once, as if the machine had lost power."""
    if self._process is not None:
      self._process.kill()
      self._process.wait()
      self._process = None

  def stop(self) -> None:
    """Ends it for good, and removes its folder."""
    atexit.unregister(self.stop)
    self.kill()
    self._admin = None
    shutil.rmtree(self.folder, ignore_errors=True)

  # -- What tests do with it

  @property
  def admin(self) -> Any:
    if self._admin is None:
      self._admin = admin.AdminClient(
          {'bootstrap.servers': self.address, 'log_level': 0})
    return self._admin

  def topic(
      self, partitions: int = 1, name: str = '', **config: Any) -> str:
    """Makes a topic, of a new name unless one is given."""
    name = name or f't-{uuid.uuid4().hex[:8]}'
    settings = {key.replace('_', '.'): str(v) for key, v in config.items()}
    made = self.admin.create_topics(
        [admin.NewTopic(name, partitions, 1, config=settings)])
    made[name].result(_WAIT_SECONDS)
    return name

  def delete_topic(self, name: str) -> None:
    self.admin.delete_topics([name])[name].result(_WAIT_SECONDS)

  def add_partitions(self, topic: str, total: int) -> None:
    made = self.admin.create_partitions([admin.NewPartitions(topic, total)])
    made[topic].result(_WAIT_SECONDS)

  def delete_records(self, topic: str, partition: int, before: int) -> None:
    # With what it asks about topics behind it, it cannot break, as
    # _kafka_cluster.Offsets tells of another request.
    self.admin.list_topics(timeout=_WAIT_SECONDS)
    asked = confluent_kafka.TopicPartition(topic, partition, before)
    for future in self.admin.delete_records([asked]).values():
      future.result(_WAIT_SECONDS)

  def committed(self, group: str, topic: str) -> dict[int, int]:
    """The committed offsets of a group, by partition."""
    found = self.admin.list_topics(topic, timeout=_WAIT_SECONDS)
    asked = [
        confluent_kafka.TopicPartition(topic, number)
        for number in found.topics[topic].partitions
    ]
    # Not the administrative client, see _kafka_cluster.Cluster.committed.
    consumer = confluent_kafka.Consumer({
        'bootstrap.servers': self.address, 'group.id': group, 'log_level': 0
    })
    deadline = time.monotonic() + _START_SECONDS
    try:
      while True:
        try:
          found = consumer.committed(asked, timeout=_WAIT_SECONDS)
          return {p.partition: p.offset for p in found if p.offset >= 0}
        except confluent_kafka.KafkaException:
          # The broker still loads its groups, after a start.
          if time.monotonic() > deadline:
            raise
          time.sleep(0.1)
    finally:
      consumer.close()

  def produce(self, topic: str, values, partition: int = 0, **more) -> None:
    """Writes values; `more` are arguments of the client for each of them."""
    with self.producer() as producer:
      for value in values:
        producer.produce(topic, value, partition=partition, **more)

  @contextlib.contextmanager
  def producer(self, **config: Any) -> Iterator[Any]:
    producer = confluent_kafka.Producer({
        'bootstrap.servers': self.address,
        'linger.ms': 2,
        # In order, also if a broker that does not lead yet refuses the first.
        'max.in.flight': 1,
        'log_level': 0,
        **{key.replace('_', '.'): v for key, v in config.items()}
    })
    yield producer
    if producer.flush(_WAIT_SECONDS):
      raise RuntimeError('The broker did not take all records.')


class BrokerTestCase(unittest.TestCase):
  """Tests of one module share a broker; `setUpModule` calls `start_broker`."""
  broker: Broker

  @classmethod
  def start_broker(cls) -> None:
    if confluent_kafka is None:
      raise unittest.SkipTest('pip install confluent-kafka')
    if not CLASSPATH:
      raise unittest.SkipTest(HOW)
    BrokerTestCase.broker = Broker()

  @classmethod
  def stop_broker(cls) -> None:
    BrokerTestCase.broker.stop()

  def assert_committed(
      self, expected: dict[int, int], group: str, topic: str) -> None:
    """Holds at last: a runner may finalize behind the end of a pipeline."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while (self.broker.committed(group, topic) != expected and
           time.monotonic() < deadline):
      time.sleep(0.1)
    self.assertEqual(expected, self.broker.committed(group, topic))


class EndingSource(KafkaSource):
  """Ends, as tests have to: when its partitions have been read so far.

  Not before the cluster has told where they end, so that what a reader makes
  of that is there however slow the machine is.

  Args:
    ends: the offset at which a partition ends, by number; for ever if it is a
      file that is not there yet.
  """
  def __init__(self, *args, ends, **kwargs):
    super().__init__(*args, **kwargs)
    self._ends = ends

  def create_reader(self, options, checkpoint_mark):
    reader = super().create_reader(options, checkpoint_mark)
    watermark = reader.get_watermark

    def get_watermark():
      found = watermark()
      if isinstance(self._ends, str):
        done = os.path.exists(self._ends)
      else:
        done = all(
            p.lag is not None and p.position >= self._ends.get(p.number, 0)
            for p in reader._partitions)
      return MAX_TIMESTAMP if done else found

    reader.get_watermark = get_watermark
    return reader


def _end_with_parent() -> None:
  """Has the system end the child when we are gone, however that came."""
  if sys.platform == 'linux':
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
  with contextlib.ExitStack() as stack:
    sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
    for one in sockets:
      one.bind(('127.0.0.1', 0))
    return [one.getsockname()[1] for one in sockets]
