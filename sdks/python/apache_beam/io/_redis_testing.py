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

"""A Redis server for tests: real, on this machine, ended with the tests.

It needs the program ``redis-server`` on the path, or named by the variable
``REDIS_SERVER``, and the package ``redis``.
"""

import atexit
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from typing import Any
from typing import Iterator
from typing import Optional

from apache_beam.io._redis_mark import RedisStreamsMark
from apache_beam.io.redisstreams import RedisStreamEntry
from apache_beam.io.redisstreams import RedisStreamsSource
from apache_beam.io.unbounded_source import UnboundedReader
from apache_beam.utils.timestamp import MAX_TIMESTAMP

try:
  import redis
except ImportError:
  redis = None

PROGRAM = os.environ.get('REDIS_SERVER') or shutil.which('redis-server')
HOW = 'no Redis to test with: apt-get install redis-server; pip install redis'
PASSWORD = 'opensesame-7261'

_START_SECONDS = 180.0


def needs_redis(test):
  """For test classes: skips them if there is no server.

  Not if the variable is set: then somebody means them to run.
  """
  meant = os.environ.get('REDIS_SERVER')
  return unittest.skipUnless(meant or PROGRAM and redis, HOW)(test)


class RedisServer:
  """A server in a folder of its own, on a port that was free.

  It writes each command to its disk before it replies, so that :meth:`kill`
  loses nothing that was replied to.
  """
  def __init__(self, *options: str) -> None:
    self.folder = tempfile.mkdtemp(prefix='redis-test-')
    with socket.create_server(('127.0.0.1', 0)) as free:
      self.port = free.getsockname()[1]
    self._options = options
    self._process: Optional[subprocess.Popen] = None
    atexit.register(self.stop)
    self.start()

  @property
  def url(self) -> str:
    return f'redis://127.0.0.1:{self.port}/0'

  @property
  def pid(self) -> int:
    return self._process.pid

  def client(self, **options: Any) -> 'redis.Redis':
    return redis.Redis(port=self.port, protocol=2, **options)

  def start(self) -> None:
    """Starts it, again after :meth:`kill`, and waits until it serves."""
    with open(os.path.join(self.folder, 'log'), 'ab') as log:
      # In our own process group: whoever ends the tests by that ends it too.
      self._process = subprocess.Popen(
          [
              PROGRAM, '--port', str(self.port), '--bind', '127.0.0.1',
              '--dir', self.folder, '--save', '', '--appendonly', 'yes',
              '--appendfsync', 'always', *self._options
          ],
          stdin=subprocess.DEVNULL,
          stdout=log,
          stderr=log)
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
      if self._process.poll() is not None:
        break
      with contextlib.suppress(redis.ConnectionError, redis.ResponseError):
        with contextlib.suppress(redis.AuthenticationError):
          self.client().ping()
        return
      time.sleep(0.02)
    with open(os.path.join(self.folder, 'log'), errors='replace') as log:
      raise RuntimeError('Redis does not start:\n' + log.read()[-2000:])

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
    shutil.rmtree(self.folder, ignore_errors=True)


class CuttingProxy:
  """Lies before a server, and can lose what it replies.

  Attributes:
    port: where it listens.
    lose: if not empty, the connection is cut instead of passing on the reply to
      a request that has this in it. Set back when that has happened.
  """
  def __init__(self, port: int) -> None:
    self._server_port = port
    self._listener = socket.create_server(('127.0.0.1', 0))
    self.port = self._listener.getsockname()[1]
    self.lose = b''
    self.lost = 0
    threading.Thread(target=self._accept, daemon=True).start()

  def close(self) -> None:
    # Closing alone does not wake the thread that accepts.
    with contextlib.suppress(OSError):
      self._listener.shutdown(socket.SHUT_RDWR)
    self._listener.close()

  def _accept(self) -> None:
    while True:
      try:
        client, _ = self._listener.accept()
      except OSError:
        return
      threading.Thread(
          target=self._serve, args=(client, ), daemon=True).start()

  def _serve(self, client: socket.socket) -> None:
    with client, socket.create_connection(
        ('127.0.0.1', self._server_port)) as server:
      with contextlib.suppress(OSError):
        while True:
          request = client.recv(1 << 20)
          if not request:
            return
          server.sendall(request)
          server.settimeout(60)
          reply = server.recv(1 << 20)
          if self.lose and self.lose in request:
            # The server has done it, and only the reply is lost.
            self.lose = b''
            self.lost += 1
            return
          server.settimeout(0.1)
          with contextlib.suppress(TimeoutError):
            while True:
              more = server.recv(1 << 20)
              if not more:
                break
              reply += more
          client.sendall(reply)


class EndingSource(RedisStreamsSource):
  """Ends when it has read all, once the key ``end`` is there.

  FnApiRunner runs a pipeline to its end, so that tests need one.
  """
  def create_reader(self, options, checkpoint_mark):
    return _EndingReader(
        super().create_reader(options, checkpoint_mark), self._settings)


class _EndingReader(UnboundedReader):
  def __init__(self, reader, settings) -> None:
    self._reader = reader
    self._settings = settings
    self._ended = False
    self._server = None

  def start(self) -> bool:
    return self._following(self._reader.start())

  def advance(self) -> bool:
    return self._following(self._reader.advance())

  def _following(self, more: bool) -> bool:
    if not more:
      if self._server is None:
        self._server = self._settings.connect()
      if self._server.repeatable([('EXISTS', 'end')])[0]:
        # What was written before the key is there by now.
        more = self._reader.advance()
        self._ended = not more
    return more

  def get_watermark(self):
    return MAX_TIMESTAMP if self._ended else self._reader.get_watermark()

  def close(self) -> None:
    if self._server is not None:
      self._server.close()
    self._reader.close()

  def __getattr__(self, name: str) -> Any:
    return getattr(self._reader, name)


for _name in ('get_current', 'get_current_timestamp', 'get_checkpoint_mark',
              'get_split_backlog_bytes'):
  setattr(
      _EndingReader,
      _name,
      lambda self, name=_name: getattr(self._reader, name)())


def entries(reader, most: int = 1_000_000) -> Iterator[RedisStreamEntry]:
  """What a reader that was started gives until it has nothing."""
  for _ in range(most):
    if not reader.advance():
      return
    yield reader.get_current()


def through_bytes(mark: RedisStreamsMark, coder) -> RedisStreamsMark:
  return coder.decode(coder.encode(mark))
