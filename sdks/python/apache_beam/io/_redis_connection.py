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

"""The connection to a Redis server: commands in, plain replies out.

Purpose: to keep what the client library would do by itself out of the read. It
  repeats a command whose reply was lost; but an XREADGROUP whose reply was lost
  has given entries to the consumer, and a second one gives others. So nothing
  is repeated here unless it may be.
Guarantees: what is raised is a :class:`RedisStreamsError` that says what to do.
  No message, ``repr`` or log line has the password or the URL in it.
Threads: any, at the same time; each call has a connection to itself.
"""

import contextlib
from typing import Any
from typing import Callable
from typing import Iterator
from typing import Optional
from typing import Sequence
from typing import Union

from apache_beam.io._redis_errors import RedisStreamsAccessError
from apache_beam.io._redis_errors import RedisStreamsConnectionError
from apache_beam.io._redis_errors import RedisStreamsError
from apache_beam.io._redis_errors import RedisStreamsGroupLostError
from apache_beam.io._redis_errors import RedisStreamsStreamLostError

try:
  import redis
  from redis import backoff as redis_backoff
  from redis import connection as redis_connection
  from redis import exceptions as redis_errors
  from redis import retry as redis_retry
except ImportError:
  redis = None

Word = Union[str, bytes, int]
Password = Union[None, str, Callable[[], str]]

_TIMEOUT_SECONDS = 5.0
# What an error reply begins with if the server cannot serve for now: it loads
# its data, was demoted, waits for its master, is full, runs a script, cannot
# write to its disk.
_TRANSIENT = (
    'LOADING', 'READONLY', 'MASTERDOWN', 'CLUSTERDOWN', 'TRYAGAIN', 'OOM',
    'BUSY ', 'MISCONF', 'NOREPLICAS')
_NEEDED = (
    'XREADGROUP, XACK, XCLAIM, XPENDING, XRANGE, XINFO, XGROUP, EXISTS and '
    'TIME')


def require_library() -> None:
  if redis is None:
    raise ImportError(
        'Reading Redis Streams takes the package redis, here and on the '
        'workers: pip install redis')


class Settings:
  """Where the server is and how to log in. Pickled with the source.

  Raises:
    TypeError, ValueError: for wrong arguments, without showing them.
  """
  def __init__(self, url: str, password: Password) -> None:
    if not isinstance(url, str):
      raise TypeError(
          f'url must be a str such as redis://host:6379/0, not a '
          f'{type(url).__name__}.')
    if password is not None and not isinstance(
        password, str) and not callable(password):
      raise TypeError(
          'password must be a str, or a function without arguments that '
          f'returns it on the worker, not a {type(password).__name__}.')
    self._url = url
    self._password = password
    options = self._options()
    if password is not None and options.get('password') is not None:
      raise ValueError('password is given twice: in url and as an argument.')
    if options.pop('decode_responses', False):
      raise ValueError('url must not set decode_responses: fields are bytes.')
    self.address = options.get('path') or '%s:%s' % (
        options.get('host', 'localhost'), options.get('port', 6379))
    self.database = options.get('db', 0)

  def _options(self) -> dict[str, Any]:
    try:
      return redis_connection.parse_url(self._url)
    except ValueError:
      pass
    # Without the cause, which may have a part of the password in it.
    raise ValueError(
        'url is not the URL of a Redis server: '
        'redis://[user[:password]@]host[:port][/database], rediss://… for TLS, '
        'or unix://path. Characters such as / and @ in a password are written '
        '%2F and %40.') from None

  def connect(self) -> 'Server':
    """A client; it connects when it is used."""
    options = self._options()
    if callable(self._password):
      options['password'] = self._password()
    elif self._password is not None:
      options['password'] = self._password
    for name in ('retry_on_timeout', 'retry_on_error', 'decode_responses'):
      options.pop(name, None)
    options.setdefault('socket_timeout', _TIMEOUT_SECONDS)
    options.setdefault('socket_connect_timeout', _TIMEOUT_SECONDS)
    options.update(
        # Replies of the third version have other shapes.
        protocol=2,
        health_check_interval=0,
        retry=redis_retry.Retry(redis_backoff.NoBackoff(), 0))
    return Server(redis_connection.ConnectionPool(**options), self.address)

  def __repr__(self) -> str:
    return f'<Redis at {self.address}, database {self.database}>'


class Server:
  """A pool of connections; see the head of the module."""
  def __init__(self, pool: Any, address: str) -> None:
    self._pool = pool
    self.address = address

  def call(self, *command: Word) -> Any:
    """The reply of one command."""
    return self.calls([command])[0]

  def calls(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
    """The replies of some commands, which are sent at once."""
    if not commands:
      return []
    failed = None
    replies = []
    with self._explaining(), self._connection() as connection:
      connection.send_packed_command(connection.pack_commands(commands))
      for command in commands:
        try:
          replies.append(connection.read_response())
        except redis_errors.ResponseError as exc:
          # The replies of the others come behind.
          failed = failed or (exc, command)
    if failed is not None:
      exc, command = failed
      raise self._explained(exc, command) from exc
    return replies

  def repeatable(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
    """Likewise, for commands that do no more when they are sent twice.

    A connection that was idle for long is often found dead only when it is
    used.
    """
    try:
      return self.calls(commands)
    except RedisStreamsConnectionError:
      return self.calls(commands)

  def close(self) -> None:
    self._pool.disconnect()

  @contextlib.contextmanager
  def _connection(self) -> Iterator[Any]:
    connection = self._pool.get_connection()
    try:
      yield connection
    except BaseException:
      # What is in it belongs to nobody.
      connection.disconnect()
      raise
    finally:
      self._pool.release(connection)

  @contextlib.contextmanager
  def _explaining(self) -> Iterator[None]:
    try:
      yield
    except (redis_errors.RedisError, OSError) as exc:
      raise self._explained(exc, ()) from exc

  def _explained(
      self, exc: Exception, command: Sequence[Word]) -> RedisStreamsError:
    """What it means, by name."""
    text = str(exc).rstrip('.')
    at = f'Redis at {self.address}'
    if isinstance(
        exc,
        (redis_errors.AuthenticationError, redis_errors.AuthorizationError)):
      return RedisStreamsAccessError(
          f'{at} refuses the login: {text}. Check the user in url, and the '
          'password.')
    if isinstance(exc, redis_errors.NoPermissionError):
      return RedisStreamsAccessError(
          f'{at} does not permit it: {text}. The user needs {_NEEDED} on the '
          'streams.')
    if 'CERTIFICATE_VERIFY_FAILED' in text:
      return RedisStreamsAccessError(
          f'{at} shows a certificate that cannot be verified: {text}. Name the '
          'authority in url: rediss://…?ssl_ca_certs=PATH.')
    if isinstance(exc, redis_errors.AskError):
      return RedisStreamsError(
          f'{at} is one of a cluster, which is not supported: {text}.')
    reply = text if isinstance(exc, redis_errors.ResponseError) else ''
    if not isinstance(exc, redis_errors.ResponseError) or isinstance(
        exc,
        (
            redis_errors.ReadOnlyError,
            redis_errors.ClusterDownError,
            redis_errors.TryAgainError,
            redis_errors.OutOfMemoryError)) or reply.startswith(_TRANSIENT):
      return RedisStreamsConnectionError(
          f'{at} does not serve: {text or type(exc).__name__}.')
    if reply.startswith('WRONGTYPE'):
      return RedisStreamsError(
          f'{at}: a key that was given as a stream is not one ({_said(command)}'
          f': {reply}).')
    return RedisStreamsError(
        f'{at} answered {_said(command)} with {reply!r}. Redis 6.2 or newer is '
        'needed.')


def _said(command: Sequence[Word]) -> str:
  return ' '.join(
      word.decode(errors='replace') if isinstance(word, bytes) else str(word)
      for word in command[:6])


def fields(reply: Sequence[Any]) -> dict[str, Any]:
  """The reply of XINFO, names and values in turn, as a dict."""
  return {
      name.decode(): value
      for name, value in zip(reply[::2], reply[1::2])
  }


class Group:
  """One consumer group of one stream."""
  def __init__(self, server: Server, stream: str, name: str) -> None:
    self.server = server
    self.stream = stream
    self.name = name

  def __str__(self) -> str:
    return (
        f'group {self.name!r} of stream {self.stream!r} at '
        f'{self.server.address}')

  def create(self, start: str) -> None:
    """Makes the group, and the stream, unless they are there."""
    try:
      self.server.call(
          'XGROUP', 'CREATE', self.stream, self.name, start, 'MKSTREAM')
    except RedisStreamsError as exc:
      if 'BUSYGROUP' not in str(exc):
        raise

  def require(self, start: str) -> None:
    """Raises what is missing, if something is."""
    if not self.server.call('EXISTS', self.stream):
      raise RedisStreamsStreamLostError(
          f'stream {self.stream!r} is not at {self.server.address}. It was '
          'deleted, or the server lost it with its memory (appendonly no), or '
          'it is in another database. If it is to begin anew, make it with its '
          f'group: XGROUP CREATE {self.stream} {self.name} {start} MKSTREAM')
    groups = self.server.call('XINFO', 'GROUPS', self.stream)
    names = [fields(group)['name'].decode(errors='replace') for group in groups]
    if self.name not in names:
      raise RedisStreamsGroupLostError(
          f'{self} is not there; the stream has '
          f'{", ".join(map(repr, names)) or "no group"}. To go on behind '
          f'{start}, which is where this read got to, make it: XGROUP CREATE '
          f'{self.stream} {self.name} {start}. Where several splits read the '
          'stream, use the lowest of the ids that they tell; entries behind it '
          'that others have read come again.')

  def info(self) -> tuple[dict[str, Any], dict[str, Any]]:
    """What XINFO tells of the stream, then of the group.

    In this order, so that what others read meanwhile does not look like a loss.
    """
    stream, groups = self.server.calls([
        ('XINFO', 'STREAM', self.stream), ('XINFO', 'GROUPS', self.stream)
    ])
    for group in map(fields, groups):
      if group['name'] == self.name.encode():
        return fields(stream), group
    raise RedisStreamsGroupLostError(f'{self} is not there.')


def size_of(entry_fields: Optional[Sequence[bytes]]) -> int:
  """About how many bytes an entry is."""
  return 16 + sum(map(len, entry_fields or ()))
