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

"""Sources made of the authors' helpers, as connectors are, in use.

They read from a queue and from a log in this process, whose clients block, for
threads or for asyncio. Checked with the conformance kit, and on runners.
"""

import asyncio
import collections
import contextlib
import dataclasses
import os
import socket
import socketserver
import threading
import time
import unittest
import uuid
from unittest import mock

import apache_beam as beam
from apache_beam import coders
from apache_beam.io import _unbounded_fetcher
from apache_beam.io._runner_testing import needs_prism
from apache_beam.io._runner_testing import prism_pipeline
from apache_beam.io._unbounded_readers import READERS
from apache_beam.io.unbounded_source import AckLedger
from apache_beam.io.unbounded_source import BackgroundReader
from apache_beam.io.unbounded_source import CheckpointMark
from apache_beam.io.unbounded_source import IdleWatermark
from apache_beam.io.unbounded_source import OutOfOrdernessWatermark
from apache_beam.io.unbounded_source import ReadFromUnboundedSource
from apache_beam.io.unbounded_source import Receipt
from apache_beam.io.unbounded_source import RetryLater
from apache_beam.io.unbounded_source import UnboundedSource
from apache_beam.testing.unbounded_source import SplitInjectingHarness
from apache_beam.testing.unbounded_source import check_unbounded_source
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

POLL_SECONDS = 0.2


class Broker:
  """Queues by name. What is received and not acknowledged comes again when the
  connection ends."""
  _queues: dict[str, 'Broker'] = {}

  def __init__(self, messages=()) -> None:
    self.changed = threading.Condition()
    self.ready: collections.deque = collections.deque()
    self.acked: list[int] = []
    self.connections = 0
    self.failures = 0
    self.sent: list = []
    self.ended = False
    for message in messages:
      self.send(message)

  @classmethod
  def new(cls, messages=()) -> str:
    name = uuid.uuid4().hex
    cls._queues[name] = cls(messages)
    return name

  @classmethod
  def of(cls, name: str) -> 'Broker':
    return cls._queues[name]

  def send(self, message) -> None:
    with self.changed:
      self.ready.append((len(self.sent), Timestamp.now(), message))
      self.sent.append(message)
      self.changed.notify_all()

  def end(self) -> None:
    """No message comes after those that were sent."""
    with self.changed:
      self.ended = True
      self.changed.notify_all()


class Client:
  """A connection. It may be used by one thread, but acknowledges by any."""
  def __init__(self, queue: str) -> None:
    self._broker = Broker.of(queue)
    self._unacked: dict[int, tuple] = {}
    self._closed = False
    with self._broker.changed:
      self._broker.connections += 1

  def receive(self, most: int, timeout: float) -> list[tuple]:
    """Blocks until there are messages, or for a time."""
    broker = self._broker
    with broker.changed:
      if broker.failures:
        broker.failures -= 1
        raise ConnectionError('The broker restarts.')
      broker.changed.wait_for(lambda: broker.ready or self._closed, timeout)
      if self._closed:
        raise ConnectionError('closed')
      count = min(most, len(broker.ready))
      found = [broker.ready.popleft() for _ in range(count)]
      self._unacked.update((message[0], message) for message in found)
      return found

  def ended(self) -> bool:
    """Whether all messages are acknowledged or received by this client."""
    broker = self._broker
    with broker.changed:
      return (
          broker.ended and
          len(broker.acked) + len(self._unacked) == len(broker.sent))

  def ready(self) -> bool:
    return bool(self._broker.ready)

  def ack(self, numbers) -> None:
    with self._broker.changed:
      if self._closed:
        raise ConnectionError('closed')
      for number in numbers:
        del self._unacked[number]
        self._broker.acked.append(number)

  def wake(self) -> None:
    with self._broker.changed:
      self._closed = True
      self._broker.changed.notify_all()

  def close(self) -> None:
    with self._broker.changed:
      self._closed = True
      self._broker.connections -= 1
      self._broker.ready.extendleft(
          sorted(self._unacked.values(), reverse=True))
      self._unacked.clear()
      self._broker.changed.notify_all()


@dataclasses.dataclass(frozen=True)
class QueueMark(CheckpointMark):
  """Says nothing of what comes next: that is what was not acknowledged.

  After a failure the same messages come again, and the marks that cover them
  have to differ all the same.
  """
  token: bytes = dataclasses.field(default_factory=lambda: os.urandom(8))
  receipt: Receipt = dataclasses.field(default_factory=Receipt, compare=False)

  def finalize_checkpoint(self) -> None:
    self.receipt.finalize()


class QueueMarkCoder(coders.Coder):
  def encode(self, value):
    return value.token

  def decode(self, encoded):
    return QueueMark(encoded)

  def is_deterministic(self):
    return True


class QueueReader(BackgroundReader):
  def __init__(self, queue: str, slack: float) -> None:
    super().__init__(capacity=3)
    self._queue = queue
    self._ledger = AckLedger(self.acknowledge)
    self._watermark = IdleWatermark(OutOfOrdernessWatermark(60), slack)

  def open(self) -> None:
    self.client = Client(self._queue)

  def fetch(self):
    try:
      found = self.client.receive(2, POLL_SECONDS)
    except ConnectionError as exc:
      raise RetryLater(0.01, str(exc)) from exc
    if self.client.ended():
      self.finish()
    return found

  def acknowledge(self, numbers) -> None:
    self.client.ack(numbers)

  def interrupt(self) -> None:
    self.client.wake()

  def shut(self) -> None:
    self._ledger.close()
    self.client.close()

  def delivered(self, item) -> None:
    self._ledger.add(item[0])
    self._watermark.observe(item[1])

  def get_current(self):
    return self.current[2]

  def get_current_timestamp(self):
    return self.current[1]

  def get_watermark(self):
    if self.finished:
      return MAX_TIMESTAMP
    # The clock is taken first: a message may come while it is asked.
    now = Timestamp.now()
    return self._watermark.value(now, self.idle)

  def get_checkpoint_mark(self):
    return QueueMark(receipt=self._ledger.cut())


class AsyncQueueReader(QueueReader):
  """For a client whose methods are awaited, and that its loop alone may use."""
  async def open(self) -> None:
    super().open()
    self._loop = asyncio.get_running_loop()

  async def fetch(self):
    for _ in range(20):
      if self.client.ready() or self.client.ended():
        break
      await asyncio.sleep(POLL_SECONDS / 20)
    return super().fetch()

  def acknowledge(self, numbers) -> None:
    async def acknowledge():
      self.client.ack(numbers)

    asyncio.run_coroutine_threadsafe(acknowledge(), self._loop).result(10)

  def interrupt(self) -> None:
    pass

  async def shut(self) -> None:
    await asyncio.sleep(0)
    super().shut()


class QueueSource(UnboundedSource):
  def __init__(self, queue: str, reader=QueueReader, slack=30.0) -> None:
    self.queue = queue
    self.reader = reader
    self.slack = slack

  def split(self, desired_num_splits, options=None):
    return [self]

  def create_reader(self, options, checkpoint_mark):
    return self.reader(self.queue, self.slack)

  def get_checkpoint_mark_coder(self):
    return QueueMarkCoder()


class LogMark(CheckpointMark):
  def __init__(self, offset: int) -> None:
    self.offset = offset


class LogMarkCoder(coders.Coder):
  def encode(self, value):
    return value.offset.to_bytes(8, 'big')

  def decode(self, encoded):
    return LogMark(int.from_bytes(encoded, 'big'))

  def is_deterministic(self):
    return True


class LogReader(BackgroundReader):
  """Fetches far ahead of what it gives; the mark must not."""
  def __init__(self, log: list, offset: int) -> None:
    super().__init__(capacity=3)
    self._log = log
    self._fetched = self._given = offset

  def fetch(self):
    items = self._log[self._fetched:self._fetched + 5]
    if not items:
      time.sleep(0.01)
    self._fetched += len(items)
    return items

  def delivered(self, item) -> None:
    self._given += 1

  def get_current(self):
    return self.current

  def get_current_timestamp(self):
    return Timestamp(self._given)

  def get_watermark(self):
    return Timestamp(self._given + 1)

  def get_checkpoint_mark(self):
    return LogMark(self._given)


class LogSource(UnboundedSource):
  logs: dict[str, list] = {}

  def __init__(self, messages) -> None:
    self.name = uuid.uuid4().hex
    self.logs[self.name] = list(messages)

  def split(self, desired_num_splits, options=None):
    return [self]

  def create_reader(self, options, checkpoint_mark):
    offset = 0 if checkpoint_mark is None else checkpoint_mark.offset
    return LogReader(self.logs[self.name], offset)

  def get_checkpoint_mark_coder(self):
    return LogMarkCoder()


class Leases:
  """Gives a message again whenever its lease, of four ticks, has run out.

  The clock is the test's, so that a slow machine does not let a lease run out.
  """
  def __init__(self, count: int) -> None:
    self.given: list[int] = []
    self._now = 0
    self._until = dict.fromkeys(range(count), 0)
    self._changed = threading.Condition()
    self._extensions = 0

  def receive(self) -> list[int]:
    with self._changed:
      found = [n for n, until in self._until.items() if until <= self._now][:1]
      self._until.update(dict.fromkeys(found, self._now + 4))
      self.given += found
      return found

  def extend(self, numbers) -> None:
    with self._changed:
      self._until.update(
          (n, self._now + 4) for n in numbers if n in self._until)
      self._extensions += 1
      self._changed.notify_all()

  def tick(self, extended: bool) -> None:
    """Lets time go on, and waits for the next time that leases are extended."""
    with self._changed:
      self._now += 1
      if extended:
        seen = self._extensions
        self._changed.wait_for(lambda: self._extensions > seen, 30)

  def ack(self, numbers) -> None:
    with self._changed:
      for number in numbers:
        self._until.pop(number, None)

  def ended(self) -> bool:
    return not self._until


class LeaseReader(QueueReader):
  """Extends the leases of what is fetched, and of what is not acknowledged."""
  queues: dict[str, Leases] = {}
  extends = True

  def open(self) -> None:
    self.client = self.queues[self._queue]
    self._held: dict[int, None] = {}

  def fetch(self):
    self.keep_alive()
    found = self.client.receive()
    self._held.update(dict.fromkeys(found))
    if not found:
      time.sleep(0.01)
    if self.client.ended():
      self.finish()
    return [(number, Timestamp.now(), number) for number in found]

  def keep_alive(self) -> None:
    if self.extends:
      self.client.extend(list(self._held))

  def acknowledge(self, numbers) -> None:
    super().acknowledge(numbers)
    for number in numbers:
      self._held.pop(number, None)

  def interrupt(self) -> None:
    pass

  def shut(self) -> None:
    self._ledger.close()


class NotExtendingReader(LeaseReader):
  extends = False


class LineServer:
  """Serves logs over TCP: 'NAME OFFSET' is answered with all lines from there.

  A line is the text and its number. It stays open for lines to come, sends END
  after the last, and may hang up before.

  Attributes:
    hang_up_after: how many lines a connection gets.
    connections: how many there were.
    open: how many there are.
  """
  def __init__(self) -> None:
    self.logs: dict[str, list[str]] = {}
    self.ended: set[str] = set()
    self.hang_up_after: float = float('inf')
    self.connections = 0
    self.open = 0
    self.changed = threading.Condition()
    server = self

    class Handler(socketserver.StreamRequestHandler):
      def handle(self):
        with server.changed:
          server.connections += 1
          server.open += 1
        try:
          server.serve(self)
        except OSError:
          pass  # The client is gone.
        finally:
          with server.changed:
            server.open -= 1
            server.changed.notify_all()

    self._server = socketserver.ThreadingTCPServer(('localhost', 0), Handler)
    self._server.daemon_threads = True
    self.address = self._server.server_address
    self._thread = threading.Thread(
        target=self._server.serve_forever, args=(0.01, ), daemon=True)
    self._thread.start()

  def serve(self, handler) -> None:
    name, offset = handler.rfile.readline().decode().split()
    number = int(offset)
    log = self.logs[name]
    sent = 0
    while sent < self.hang_up_after:
      with self.changed:
        if number < len(log):
          line = f'{log[number]} {number}'
        elif name in self.ended:
          handler.wfile.write(b'END\n')
          return
        else:
          self.changed.wait(0.05)
          self._see_whether_it_left(handler)
          continue
      handler.wfile.write(line.encode() + b'\n')
      number += 1
      sent += 1

  def _see_whether_it_left(self, handler) -> None:
    handler.connection.settimeout(0.001)
    try:
      if not handler.connection.recv(1):
        raise ConnectionError()
    except TimeoutError:
      pass
    finally:
      handler.connection.settimeout(None)

  def new(self, *lines: str, ends: bool = False) -> str:
    name = uuid.uuid4().hex
    self.logs[name] = list(lines)
    if ends:
      self.ended.add(name)
    return name

  def wait_until_all_left(self) -> bool:
    with self.changed:
      return self.changed.wait_for(lambda: not self.open, 10)

  def close(self) -> None:
    self._server.shutdown()
    self._server.server_close()
    self._thread.join()


class LineReader(BackgroundReader):
  """Reads a socket without a timeout, in one fetch as long as it lasts."""
  def __init__(self, address, name: str, offset: int) -> None:
    super().__init__(capacity=20)
    self._address = address
    self._name = name
    self._given = offset

  def open(self) -> None:
    # What is given is the position here: nothing was fetched yet.
    self._socket = socket.create_connection(self._address)
    self._socket.sendall(f'{self._name} {self._given}\n'.encode())

  def fetch(self):
    for line in self._socket.makefile('rb'):
      if line == b'END\n':
        self.finish()
        return
      yield line.decode().split()
    raise RetryLater(0.01, 'the server hung up')

  def interrupt(self) -> None:
    with contextlib.suppress(OSError):
      self._socket.shutdown(socket.SHUT_RDWR)

  def shut(self) -> None:
    self._socket.close()

  def delivered(self, item) -> None:
    assert int(item[1]) == self._given
    self._given += 1

  def get_current(self):
    return self.current[0]

  def get_current_timestamp(self):
    return Timestamp(self._given)

  def get_watermark(self):
    return MAX_TIMESTAMP if self.finished else Timestamp(self._given + 1)

  def get_checkpoint_mark(self):
    return LogMark(self._given)


class StreamReader(LineReader):
  """The same with the streams of asyncio."""
  async def open(self) -> None:
    self._stream, self._writer = await asyncio.open_connection(*self._address)
    self._writer.write(f'{self._name} {self._given}\n'.encode())
    await self._writer.drain()

  async def fetch(self):
    async for line in self._stream:
      if line == b'END\n':
        self.finish()
        return
      yield line.decode().split()
    raise RetryLater(0.01, 'the server hung up')

  def interrupt(self) -> None:
    pass

  async def shut(self) -> None:
    self._writer.close()
    await self._writer.wait_closed()


class LineSource(UnboundedSource):
  def __init__(self, address, name: str, reader=LineReader) -> None:
    self.address = address
    self.name = name
    self.reader = reader

  def split(self, desired_num_splits, options=None):
    return [self]

  def create_reader(self, options, checkpoint_mark):
    offset = 0 if checkpoint_mark is None else checkpoint_mark.offset
    return self.reader(self.address, self.name, offset)

  def get_checkpoint_mark_coder(self):
    return LogMarkCoder()


READER_KINDS = [QueueReader, AsyncQueueReader]


class HelpersTest(unittest.TestCase):
  def setUp(self):
    READERS.close_all()

  def tearDown(self):
    READERS.close_all()
    self.assertEqual(
        [], [t for t in threading.enumerate() if t.name.endswith('-fetch')])


class ConformanceTest(HelpersTest):
  def test_a_queue(self):
    """At least once; acknowledged when committed, and not before."""
    messages = ['a', 'b', 'c', 'd', 'e']
    for kind in READER_KINDS:
      with self.subTest(kind.__name__):

        def append(source):
          Broker.of(source.queue).send('late')
          return 'late'

        report = check_unbounded_source(
            lambda kind=kind: QueueSource(Broker.new(messages), kind, 0.5),
            expected=messages,
            replays=False,
            acked=lambda source: [
                Broker.of(source.queue).sent[number]
                for number in Broker.of(source.queue).acked
            ],
            append=append,
            schedules=40)
        self.assertIn('finalization', report.tried)
        self.assertIn('idle-watermark', report.tried)

  def test_a_log(self):
    """Exactly once, though the reader has always fetched more."""
    messages = ['a', 'b', 'c', 'd', 'e', 'f']
    report = check_unbounded_source(
        lambda: LogSource(messages),
        expected=messages,
        schedules=200,
        leave_out={'idle-watermark': 'it stands for times in the messages'})
    self.assertIn('resume', report.tried)


class SocketTest(HelpersTest):
  """A server and sockets: reads that block in the system, without a timeout."""
  def setUp(self):
    super().setUp()
    self.server = LineServer()
    self.addCleanup(self.server.close)

  def test_conformance(self):
    lines = ['a', 'b', 'c', 'd', 'e', 'f']
    for kind in (LineReader, StreamReader):
      with self.subTest(kind.__name__):
        report = check_unbounded_source(
            lambda kind=kind: LineSource(
                self.server.address, self.server.new(*lines), kind),
            expected=lines,
            schedules=60,
            leave_out={'idle-watermark': 'times stand in the lines'})
        self.assertIn('resume', report.tried)
        self.assertTrue(self.server.wait_until_all_left())

  def test_close_wakes_a_read_that_waits_for_ever(self):
    for kind in (LineReader, StreamReader):
      with self.subTest(kind.__name__):
        reader = kind(self.server.address, self.server.new('a'), 0)
        there = reader.start()
        while not there:
          there = reader.advance()
        self.assertEqual(1, self.server.open)
        begun = time.monotonic()
        with self.assertNoLogs(level='WARNING'):
          reader.close()
        self.assertLess(time.monotonic() - begun, 2.0)
        self.assertTrue(self.server.wait_until_all_left())

  def test_a_server_that_hangs_up_again_and_again(self):
    """Each line once, by a new connection behind the last mark each time."""
    lines = [f'line{n}' for n in range(300)]
    self.server.hang_up_after = 40
    for kind in (LineReader, StreamReader):
      with self.subTest(kind.__name__):
        before = self.server.connections
        name = self.server.new(*lines, ends=True)
        with beam.Pipeline(runner='FnApiRunner') as p:
          read = p | ReadFromUnboundedSource(
              LineSource(self.server.address, name, kind), poll_interval=0.02)
          assert_that(read, equal_to(lines))
        READERS.close_all()
        self.assertGreaterEqual(self.server.connections - before, 8)
        self.assertTrue(self.server.wait_until_all_left())


class BundlesTest(HelpersTest):
  def harness(self, source, **kwargs):
    harness = SplitInjectingHarness(source, **kwargs)
    self.addCleanup(READERS.close_all)
    return harness

  def test_nothing_fetched_ahead_is_acknowledged(self):
    queue = Broker.new(range(10))
    harness = self.harness(QueueSource(queue), max_records=2)
    bundle = harness.bundle(harness.initial())
    while not bundle.values:
      bundle = harness.bundle(bundle.residuals[0])
    bundle.raise_error()
    self.assertGreater(10 - len(Broker.of(queue).ready), len(bundle.values))
    self.assertEqual([], Broker.of(queue).acked)
    bundle.finalize()
    self.assertEqual(bundle.values, Broker.of(queue).acked)

  def test_what_a_failed_bundle_read_comes_again(self):
    for kind in READER_KINDS:
      with self.subTest(kind.__name__):
        queue = Broker.new(range(5))
        Broker.of(queue).end()
        harness = self.harness(QueueSource(queue, kind), max_records=3)

        def fail(name, number, harness=harness):
          if name == 'output' and len(harness.result.values) == 1:
            raise ValueError('downstream')

        restriction = harness.initial()
        harness.on_event = fail
        bundle = harness.bundle(restriction)
        while bundle.error is None:
          restriction, = bundle.residuals
          bundle = harness.bundle(restriction)
        self.assertEqual([0], bundle.values)
        harness.on_event = lambda name, number: None
        self.assertEqual(list(range(5)), harness.run(restriction))
        self.assertEqual(list(range(5)), sorted(Broker.of(queue).acked))
        self.assertEqual(0, Broker.of(queue).connections)

  def test_a_retry_keeps_what_was_given_before(self):
    """The connection is lost: what was fetched before is given, then it waits.
    """
    queue = Broker.new(range(3))
    broker = Broker.of(queue)
    harness = self.harness(QueueSource(queue))
    values = []

    def run(restriction):
      bundle = harness.bundle(restriction).raise_error()
      bundle.finalize()
      values.extend(bundle.values)
      return bundle.residuals[0]

    restriction = run(harness.initial())
    while len(values) < 3:
      restriction = run(restriction)
    broker.failures = 1
    broker.send(3)
    while harness.opened < 2:
      restriction = run(restriction)
    broker.end()
    values += harness.run(restriction)
    self.assertEqual([0, 1, 2, 3], values)
    self.assertEqual([0, 1, 2, 3], broker.acked)
    self.assertEqual(2, harness.opened)

  def test_leases_are_extended_while_a_bundle_lasts(self):
    """Case B55: a bundle takes four times as long as a lease, the buffer full.

    Passes if each message was given out once; and if it does come again where
    the hook is not used.
    """
    for kind, once in [(LeaseReader, True), (NotExtendingReader, False)]:
      with self.subTest(kind.__name__):
        queue = LeaseReader.queues[kind.__name__] = Leases(12)

        def take_long(name, number):
          if name == 'output' and not taken:
            taken.append(number)
            for _ in range(16):
              queue.tick(extended=kind.extends)

        taken = []
        harness = self.harness(
            QueueSource(kind.__name__, kind), on_event=take_long)
        with mock.patch.object(_unbounded_fetcher, 'LOOK_SECONDS', 0.05):
          values = harness.run()
        self.assertEqual(list(range(12)), sorted(set(values)))
        self.assertEqual(values, queue.given)
        self.assertEqual(once, len(values) == 12)

  def test_an_idle_queue_moves_the_watermark(self):
    """Cases B57 and B58: also if there never was a message."""
    harness = self.harness(QueueSource(Broker.new(), slack=20))
    bundle = harness.bundle(harness.initial())
    self.assertEqual(MIN_TIMESTAMP, bundle.watermarks[0])
    # Whether there is one is not known before the first fetch returned.
    self.assertAlmostEqual(0.1, bundle.delays[0], delta=0.05)
    while bundle.watermarks[0] == MIN_TIMESTAMP:
      bundle = harness.bundle(bundle.residuals[0]).raise_error()
    behind = Timestamp.now() - bundle.watermarks[0]
    self.assertAlmostEqual(20, float(behind), delta=1)


class PipelineTests:
  def test_a_queue_is_read_and_acknowledged(self):
    """Case B61: all of it, the last marks too, and all is closed."""
    for kind in READER_KINDS:
      with self.subTest(kind.__name__):
        queue = Broker.new(range(300))
        broker = Broker.of(queue)
        broker.end()
        with self.pipeline() as p:
          messages = p | ReadFromUnboundedSource(
              QueueSource(queue, kind),
              poll_interval=0.05,
              max_records_per_bundle=40)
          assert_that(messages, equal_to(list(range(300))))
        READERS.close_all()
        self.assertEqual(list(range(300)), broker.acked)
        self.assertEqual(0, broker.connections)

  def test_a_broker_that_restarts(self):
    """RetryLater on the thread: the pipeline goes on."""
    queue = Broker.new(range(100))
    broker = Broker.of(queue)
    broker.failures = 3
    broker.end()
    with self.pipeline() as p:
      messages = p | ReadFromUnboundedSource(
          QueueSource(queue), poll_interval=0.05)
      assert_that(messages, equal_to(list(range(100))))
    READERS.close_all()
    self.assertEqual(list(range(100)), broker.acked)
    self.assertEqual(0, broker.connections)


class FnApiRunnerTest(PipelineTests, HelpersTest):
  def pipeline(self):
    return beam.Pipeline(runner='FnApiRunner')


@needs_prism
class PrismTest(PipelineTests, HelpersTest):
  def pipeline(self):
    return prism_pipeline()


if __name__ == '__main__':
  unittest.main()
