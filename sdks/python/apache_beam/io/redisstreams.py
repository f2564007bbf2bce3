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

"""Reads Redis Streams by consumer group.

::

  import apache_beam as beam
  from apache_beam.io.redisstreams import ReadFromRedisStreams

  with beam.Pipeline() as p:
    _ = (
        p
        | ReadFromRedisStreams('redis://localhost:6379/0', 'orders', 'billing')
        | beam.Map(lambda entry: entry.fields[b'amount'])
        | beam.Map(print))

It stands on the package ``redis`` (5.3 or newer, ``pip install redis``), which
workers need too, and on a server of Redis 6.2 or newer; backlogs and the loss
of unread entries are known from Redis 7 on.

What is promised:

* Every entry that the group has not delivered to others is output. A crash of a
  worker, of the server or of the network loses none, as long as the server
  keeps what it has acknowledged itself (``appendonly yes``, ``appendfsync always``).
* An entry is acknowledged (``XACK``) after the runner has committed it: never
  before, and not at all by a runner that does not say that it has.
* While the pipeline lives, restarts from its checkpoints included, no entry is
  output twice: the checkpoint says which of the pending ones were. That holds
  also between the commit and the ``XACK``.
* A pipeline that begins anew, without the checkpoint of the last one, gets the
  entries that were never acknowledged again, also those that the last one had
  committed. So does it from any other consumer of the group that left entries
  pending for ``claim_idle_seconds``; at least once is what a group can promise
  between consumers that know nothing of each other.
* Splits that share a stream each get some of its entries, in order. A stream
  that one split reads comes in order as a whole, but for what is claimed from
  others.

Event times are those in the entries' ids. The watermark follows the ids that
were read; when nothing is left to be delivered, it follows the server's clock.
It is held at the oldest entry that another consumer has pending and that may be
claimed. A consumer that fails between two looks (5 seconds) may have older
ones: those are late when they are claimed.
"""

import copy
import math
import re
from typing import Any
from typing import NamedTuple
from typing import Optional
from typing import Sequence
from typing import Union

from apache_beam import coders
from apache_beam import pvalue
from apache_beam.io import _redis_connection
from apache_beam.io._redis_connection import Group
from apache_beam.io._redis_connection import Password
from apache_beam.io._redis_connection import Server
from apache_beam.io._redis_connection import Settings
from apache_beam.io._redis_connection import size_of
from apache_beam.io._redis_errors import RedisStreamsAccessError
from apache_beam.io._redis_errors import RedisStreamsConnectionError
from apache_beam.io._redis_errors import RedisStreamsError
from apache_beam.io._redis_errors import RedisStreamsGroupLostError
from apache_beam.io._redis_errors import RedisStreamsMarkError
from apache_beam.io._redis_errors import RedisStreamsStreamLostError
from apache_beam.io._redis_errors import RedisStreamsTrimmedError
from apache_beam.io._redis_mark import RedisStreamsMark
from apache_beam.io._redis_mark import RedisStreamsMarkCoder
from apache_beam.io._redis_reader import RedisStreamsReader
from apache_beam.io._redis_reader import new_token
from apache_beam.io._redis_stream import Plan
from apache_beam.io._redis_stream import RedisStreamEntry
from apache_beam.io._redis_stream import undelivered
from apache_beam.io.unbounded_source import ReadFromUnboundedSource
from apache_beam.io.unbounded_source import UnboundedSource
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.transforms.ptransform import PTransform

__all__ = [
    'ReadFromRedisStreams',
    'RedisStreamEntry',
    'RedisStreamsAccessError',
    'RedisStreamsConnectionError',
    'RedisStreamsError',
    'RedisStreamsGroupLostError',
    'RedisStreamsMark',
    'RedisStreamsMarkCoder',
    'RedisStreamsMarkError',
    'RedisStreamsSource',
    'RedisStreamsStreamLostError',
    'RedisStreamsTrimmedError',
]

# Their public home: what they say of themselves, and what is pickled.
RedisStreamEntry.__module__ = __name__

_TRIMMED = ('fail', 'skip')
_ID = re.compile(r'\d{1,20}(-\d{1,20})?')


class _Part(NamedTuple):
  """A split: whose, which one, and what it reads."""
  job: str
  index: int
  streams: tuple[str, ...]
  shares: tuple[int, ...]


class RedisStreamsSource(UnboundedSource):
  """The entries of some Redis Streams; for ``beam.io.Read``.

  The arguments are those of :class:`ReadFromRedisStreams`.
  """
  def __init__(
      self,
      url: str,
      streams: Union[str, Sequence[str]],
      group: str,
      *,
      password: Password = None,
      start: str = '0',
      create_group: bool = True,
      num_splits: Optional[int] = None,
      claim_idle_seconds: Optional[float] = 300.0,
      on_trimmed: str = 'fail',
      batch_size: int = 1000,
      idle_slack_seconds: float = 5.0) -> None:
    _redis_connection.require_library()
    self._settings = Settings(url, password)
    self.streams = _names(streams)
    self.group = _text('group', group)
    if not isinstance(start, str):
      raise TypeError(f'start={start!r} must be a str: "0", "$" or an id.')
    if start != '$' and not _ID.fullmatch(start):
      raise ValueError(
          f'start={start!r} must be "0" (all entries), "$" (new ones), or the '
          'id behind which to begin, such as "1700000000000-0".')
    self._start = start
    if not isinstance(create_group, bool):
      raise TypeError(f'create_group={create_group!r} must be a bool.')
    self._create_group = create_group
    if num_splits is not None:
      _whole('num_splits', num_splits)
    self._num_splits = num_splits
    self._claim_idle = None
    if claim_idle_seconds is not None:
      self._claim_idle = _seconds(
          'claim_idle_seconds', claim_idle_seconds, least=0.001)
    if on_trimmed not in _TRIMMED:
      raise ValueError(f'on_trimmed={on_trimmed!r} must be "fail" or "skip".')
    self._on_trimmed = on_trimmed
    self._batch_size = _whole('batch_size', batch_size)
    self._idle_slack = _seconds(
        'idle_slack_seconds', idle_slack_seconds, least=0.0)
    self._part: Optional[_Part] = None

  def split(
      self,
      desired_num_splits: int,
      options: Optional[PipelineOptions] = None) -> list['RedisStreamsSource']:
    """Makes the groups, and divides the streams.

    With fewer splits than streams each reads several streams; with more, a
    stream is read by several.

    Raises:
      RedisStreamsError: by what went wrong.
    """
    if self._part is not None:
      return [self]
    server = self._settings.connect()
    try:
      self._prepare(server)
    finally:
      server.close()
    job = new_token()
    count = min(self._num_splits or len(self.streams), desired_num_splits)
    assigned = [
        [
            stream for at, stream in enumerate(self.streams)
            if at % count == index or index % len(self.streams) == at
        ] for index in range(count)
    ]
    return [
        self._with_part(
            _Part(
                job,
                index,
                tuple(streams),
                tuple(
                    sum(stream in other for other in assigned)
                    for stream in streams)))
        for index, streams in enumerate(assigned)
    ]

  def _prepare(self, server: Server) -> None:
    """Sees to it that the groups are there."""
    for stream in self.streams:
      group = Group(server, stream, self.group)
      if self._create_group:
        group.create(self._start)
      else:
        group.require(self._start)

  def _with_part(self, part: _Part) -> 'RedisStreamsSource':
    source = copy.copy(self)
    source._part = part
    return source

  def create_reader(
      self,
      options: Optional[PipelineOptions],
      checkpoint_mark: Optional[RedisStreamsMark]) -> RedisStreamsReader:
    """Makes a reader; it connects when it is started."""
    part = self._part or _Part(
        _WHOLE, 0, self.streams, (1, ) * len(self.streams))
    plan = Plan(
        settings=self._settings,
        group=self.group,
        streams=part.streams,
        shares=part.shares,
        start=self._start,
        job=part.job,
        split=part.index,
        claim_idle=self._claim_idle,
        fail_on_trimmed=self._on_trimmed == 'fail',
        batch_size=self._batch_size,
        idle_slack=self._idle_slack)
    if self._part is None and checkpoint_mark is None:
      return RedisStreamsReader(plan, None, self._prepare)
    return RedisStreamsReader(plan, checkpoint_mark)

  def get_checkpoint_mark_coder(self) -> RedisStreamsMarkCoder:
    return RedisStreamsMarkCoder()

  def get_total_backlog_bytes(
      self, options: Optional[PipelineOptions]) -> Optional[int]:
    """What the groups have to deliver yet, by a connection of its own."""
    part = self._part
    streams = part.streams if part else self.streams
    shares = part.shares if part else (1, ) * len(streams)
    server = self._settings.connect()
    try:
      if part is None:
        # No group yet, perhaps.
        self._prepare(server)
      total = 0
      for stream, share in zip(streams, shares):
        info, group = Group(server, stream, self.group).info()
        entries = undelivered(info, group)
        if entries is None:
          return None
        if entries:
          total += -(-entries // share) * size_of(info['last-entry'][1])
      return total
    finally:
      server.close()

  def default_output_coder(self) -> coders.Coder:
    return coders.registry.get_coder(RedisStreamEntry)

  def display_data(self) -> dict[str, Any]:
    return {
        'server': DisplayDataItem(self._settings.address, label='Server'),
        'database': DisplayDataItem(
            str(self._settings.database), label='Database'),
        'streams': DisplayDataItem(', '.join(self.streams), label='Streams'),
        'group': DisplayDataItem(self.group, label='Consumer group'),
        'start': DisplayDataItem(self._start, label='Start of a new group'),
        'on_trimmed': DisplayDataItem(
            self._on_trimmed, label='On trimmed entries'),
    }

  def __repr__(self) -> str:
    part = '' if self._part is None else (
        f', split {self._part.index} of job {self._part.job}')
    return (
        f'RedisStreamsSource({self._settings.address!r}, '
        f'{list(self.streams)}, {self.group!r}{part})')


# The job of a source that is read without being split.
_WHOLE = '00000000'


class ReadFromRedisStreams(PTransform):
  """Reads Redis Streams into a PCollection of :class:`RedisStreamEntry`.

  Args:
    url: of the server: ``redis://[user[:password]@]host[:port][/database]``,
      ``rediss://`` with TLS, or ``unix://path``. Options of the client library
      may follow a ``?``, such as ``ssl_ca_certs`` or ``socket_timeout``.
    streams: the key of the stream to read, or several.
    group: the consumer group.
    password: instead of one in ``url``. A function without arguments is called
      on the worker, at each connect; then no password is part of the pipeline::

        password=lambda: os.environ['REDIS_PASSWORD']

    start: where a group begins that is made: ``'0'``, with all entries;
      ``'$'``, with those that are added from then on; or behind an id. A group
      that is there goes on where it is.
    create_group: makes the group, and the stream, if they are not there.
    num_splits: how many consumers read in parallel, at most 20; default: one a
      stream. More than there are streams share streams, which are then not in
      order as a whole.
    claim_idle_seconds: how long other consumers of the group may take for an
      entry before it is taken from them. It has to be longer than they ever
      take, bundles and commits of other pipelines included. None: never.
    on_trimmed: what to do if entries were trimmed before they were read.
      ``'fail'``: raise :class:`RedisStreamsTrimmedError`. ``'skip'``: go on
      with what is left, log a warning, and count them.
    batch_size: how many entries of a stream to ask for at once. Fewer take less
      memory, more take less CPU.
    idle_slack_seconds: how far the watermark stays behind the server's clock
      when nothing is left. It covers ids that producers choose themselves, and
      a clock that is behind after a failover.
    poll_interval, max_records_per_bundle, max_read_time_seconds: as for
      :class:`~apache_beam.io.unbounded_source.ReadFromUnboundedSource`.

  Raises:
    ImportError: at construction, if the package redis is not installed.
    TypeError, ValueError: at construction; the message names the argument.

  While the pipeline runs, it fails with a :class:`RedisStreamsError` as the
  cause, named for what is wrong. A server that is away, starts or fails over
  does not fail it: the read goes on when it is back.

  Consumers are named ``beam-<job>-<split>-<reader>``. Those that are idle for
  20 minutes and have nothing pending are removed from the group.

  Metrics, in the namespace ``apache_beam.io.redisstreams``: counters
  ``claimed_entries`` and, with ``on_trimmed='skip'``, ``lost_entries`` (that
  were pending); gauge ``lost_unread_entries`` (as the server counts them, for
  the group).
  """
  def __init__(
      self,
      url: str,
      streams: Union[str, Sequence[str]],
      group: str,
      *,
      password: Password = None,
      start: str = '0',
      create_group: bool = True,
      num_splits: Optional[int] = None,
      claim_idle_seconds: Optional[float] = 300.0,
      on_trimmed: str = 'fail',
      batch_size: int = 1000,
      idle_slack_seconds: float = 5.0,
      poll_interval: float = 1.0,
      max_records_per_bundle: int = 10000,
      max_read_time_seconds: float = 10.0) -> None:
    super().__init__()
    self._source = RedisStreamsSource(
        url,
        streams,
        group,
        password=password,
        start=start,
        create_group=create_group,
        num_splits=num_splits,
        claim_idle_seconds=claim_idle_seconds,
        on_trimmed=on_trimmed,
        batch_size=batch_size,
        idle_slack_seconds=idle_slack_seconds)
    self._read = ReadFromUnboundedSource(
        self._source,
        poll_interval=poll_interval,
        max_records_per_bundle=max_records_per_bundle,
        max_read_time_seconds=max_read_time_seconds)

  def expand(self, pbegin: pvalue.PBegin) -> pvalue.PCollection:
    return pbegin | 'Read' >> self._read

  def display_data(self) -> dict[str, Any]:
    return self._source.display_data()


def _names(streams: Any) -> tuple[str, ...]:
  if isinstance(streams, str):
    return (_text('streams', streams), )
  if not isinstance(streams, (list, tuple)):
    raise TypeError(
        f'streams={streams!r} must be the key of a stream, or a list of them.')
  if not streams:
    raise ValueError('streams=[] names no stream.')
  names = tuple(_text('streams', name) for name in streams)
  if len(set(names)) != len(names):
    raise ValueError(f'streams={streams!r} names a stream twice.')
  return names


def _text(name: str, value: Any) -> str:
  if not isinstance(value, str):
    raise TypeError(f'{name}: {value!r} must be a str.')
  if not value:
    raise ValueError(f'{name}: {value!r} must not be empty.')
  try:
    value.encode()
  except UnicodeEncodeError:
    raise ValueError(f'{name}: {value!r} cannot be written in UTF-8.') from None
  return value


def _whole(name: str, value: Any) -> int:
  if isinstance(value, bool) or not isinstance(value, int):
    raise TypeError(f'{name}={value!r} must be an int.')
  if value < 1:
    raise ValueError(f'{name}={value!r} must be 1 or more.')
  return value


def _seconds(name: str, value: Any, least: float) -> float:
  if isinstance(value, bool) or not isinstance(value, (int, float)):
    raise TypeError(f'{name}={value!r} must be a number of seconds.')
  if not least <= value < math.inf:
    raise ValueError(
        f'{name}={value!r} must be a number of seconds, at least {least:g}.')
  return value
