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

"""One stream of a reader of Redis Streams.

Purpose: to know its runs, its unacknowledged entries, what to take over from
  other consumers, its watermark and its backlog. ``_redis_reader`` has the
  rules.
Threads: the one that reads; acknowledgements come from any.
"""

import collections
import logging
import re
import time
from typing import Any
from typing import Mapping
from typing import NamedTuple
from typing import Optional
from typing import Sequence

from apache_beam import coders
from apache_beam.io._redis_connection import Group
from apache_beam.io._redis_connection import Server
from apache_beam.io._redis_connection import Settings
from apache_beam.io._redis_connection import fields
from apache_beam.io._redis_connection import size_of
from apache_beam.io._redis_errors import RedisStreamsTrimmedError
from apache_beam.io._redis_mark import FIRST
from apache_beam.io._redis_mark import EntryId
from apache_beam.io._redis_mark import Run
from apache_beam.io._redis_mark import event_time
from apache_beam.io.unbounded_source import AckLedger
from apache_beam.io.unbounded_source import IdleWatermark
from apache_beam.io.unbounded_source import MonotonicWatermark
from apache_beam.metrics.metric import Metrics
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

_LOGGER = logging.getLogger(__name__)
_NAMESPACE = 'apache_beam.io.redisstreams'
CLAIMED = Metrics.counter(_NAMESPACE, 'claimed_entries')
LOST = Metrics.counter(_NAMESPACE, 'lost_entries')
LOST_UNREAD = Metrics.gauge(_NAMESPACE, 'lost_unread_entries')

# How often to look for entries to claim, for trimmed ones, and at the backlog.
LOOK_SECONDS = 5.0
# A run that has not heard from the server for so long is not gone on with.
# Twice of that is when its consumer may be removed from the group.
LEASE_SECONDS = 600.0
# Ids in one XACK, XCLAIM or XPENDING.
_PAGE = 1000
# Ids that are put in order at a time, of entries to take over.
_MOST_IDS = 100_000

_CONSUMER = re.compile(r'beam-([0-9a-f]{8})-(\d+)-([0-9a-f]{8})')


class RedisStreamEntry(NamedTuple):
  """An entry of a stream.

  Attributes:
    stream: the stream's key.
    id: the entry's id, such as ``1700000000000-0``.
    fields: values by name. Of a name that occurs twice in an entry, the last.
  """
  stream: str
  id: str
  fields: Mapping[bytes, bytes]


# A schema coder: deterministic, and readable by other languages.
coders.registry.register_coder(RedisStreamEntry, coders.RowCoder)


class Plan(NamedTuple):
  """What a split reads, and how."""
  settings: Settings
  group: str
  streams: tuple[str, ...]
  # Of each stream, how many splits read it.
  shares: tuple[int, ...]
  start: str
  # Of the consumers: beam-<job>-<split>.
  job: str
  split: int
  claim_idle: Optional[float]
  fail_on_trimmed: bool
  batch_size: int
  idle_slack: float


class _Todo(NamedTuple):
  """An entry to take over, and how long it must have been idle for that."""
  id: EntryId
  idle_ms: int
  own: bool


class Stream:
  """One stream of a reader.

  Args:
    reader: whose; asked for its consumer, its run and what it has fetched.
    plan: the reader's.
    name: the stream's key.
    share: how many splits read it.
    runs: what was read before, as the mark has it.
  """
  def __init__(
      self,
      reader: Any,
      plan: Plan,
      name: str,
      share: int,
      runs: Sequence[Run]) -> None:
    self.name = name
    self.key = name.encode()
    self.group: Optional[Group] = None
    self.ledger = AckLedger(self._acknowledge)
    # Bound once: it is called for each entry.
    self.add = self.ledger.add
    # The last entry that was given by the current run.
    self.last: Optional[bytes] = None
    self.todo: collections.deque[_Todo] = collections.deque()
    # The server's time when nothing was left to be delivered, if so.
    self.caught_up_ms: Optional[int] = None
    self._reader = reader
    self._plan = plan
    self._share = share
    self._earlier = list(runs)
    self._server: Optional[Server] = None
    self._watermark = IdleWatermark(
        MonotonicWatermark(), self._plan.idle_slack)
    self._hold: Optional[Timestamp] = None
    self._bytes = 0
    self._sized = 0
    self._backlog: tuple[float, Optional[int]] = (0.0, None)
    self._told = 0

  def open(self, server: Server) -> None:
    self._server = server
    self.group = Group(server, self.name, self._plan.group)

  # -- Marks

  def runs(self) -> tuple[Run, ...]:
    if self.last is None:
      return tuple(self._earlier)
    return (
        *self._earlier, Run(self._reader.run, EntryId.parse(self.last)))

  def end_run(self) -> None:
    self._earlier = list(self.runs())
    self.last = None

  def goes_back(self, entries: list) -> bool:
    """Whether these, just delivered, are not behind the last that was."""
    return bool(entries) and self.last is not None and (
        EntryId.parse(entries[0][0]) <= EntryId.parse(self.last))

  def position(self) -> str:
    """Behind what a group would have to begin, were it made anew."""
    runs = self.runs()
    return str(max(run.last for run in runs)) if runs else self._plan.start

  def require(self) -> None:
    self.group.require(self.position())

  def _acknowledge(self, ids: list[bytes]) -> None:
    self._server.repeatable([('XACK', self.name, self._plan.group, *page)
                             for page in _pages(ids)])

  # -- Entries of others

  def look(self, opening: bool) -> list[_Todo]:
    """What to take over from other consumers; at most so many at a time."""
    plan = self._plan
    self._hold = None
    consumers = self._server.call('XINFO', 'CONSUMERS', self.name, plan.group)
    self._check_trimmed()
    covered = {run.token: run.last for run in self._earlier}
    pending_runs = {self._reader.run}
    claim_ms = None if plan.claim_idle is None else int(plan.claim_idle * 1000)
    todo: list[_Todo] = []
    for consumer in map(fields, consumers):
      name = consumer['name'].decode(errors='surrogateescape')
      match = _CONSUMER.fullmatch(name)
      job, split, token = match.groups() if match else (None, None, None)
      if name == self._reader.consumer:
        continue
      if not consumer['pending']:
        if match and consumer['idle'] > 2000 * LEASE_SECONDS:
          self._server.call(
              'XGROUP', 'DELCONSUMER', self.name, plan.group, name)
        continue
      if f'{job}-{split}' == self._reader.split:
        pending_runs.add(token)
        last = covered.get(token, FIRST)
        if opening and token in covered:
          for entry_id in self._pending(name, '-', str(last), 0):
            self.add(str(entry_id).encode())
        # While reading, a consumer of this split is a worker that the runner
        # gave up, or has not yet.
        idle_ms = 0 if opening else claim_ms or int(1000 * LEASE_SECONDS)
        todo.extend(
            _Todo(entry_id, idle_ms, True)
            for entry_id in self._pending(name, f'({last}', '+', idle_ms))
      elif claim_ms is not None and job != plan.job:
        oldest = self._pending(name, '-', '+', 0, most=1)
        if oldest:
          self._hold_at(oldest[0])
        todo.extend(
            _Todo(entry_id, claim_ms, False)
            for entry_id in self._pending(name, '-', '+', claim_ms))
    self._earlier = [run for run in self._earlier if run.token in pending_runs]
    return todo

  def _hold_at(self, entry_id: EntryId) -> None:
    timestamp = event_time(entry_id.ms)
    if self._hold is None or timestamp < self._hold:
      self._hold = timestamp

  def _pending(
      self,
      consumer: str,
      first: str,
      last: str,
      idle_ms: int,
      most: int = _MOST_IDS) -> list[EntryId]:
    """The ids that are pending for a consumer, in order."""
    found: list[EntryId] = []
    while len(found) < most:
      idle = ('IDLE', idle_ms) if idle_ms else ()
      page = self._server.call(
          'XPENDING',
          self.name,
          self._plan.group,
          *idle,
          first,
          last,
          min(_PAGE, most - len(found)),
          consumer.encode(errors='surrogateescape'))
      found.extend(EntryId.parse(entry[0]) for entry in page)
      if len(page) < min(_PAGE, most):
        break
      first = f'({found[-1]}'
    return found

  def take(self, consumer: str) -> list:
    """Makes the next of the found entries those of a consumer."""
    todo = [
        self.todo.popleft()
        for _ in range(min(self._plan.batch_size, _PAGE, len(self.todo)))
    ]
    ids = [str(entry.id).encode() for entry in todo]
    contents = self._server.calls(
        [('XRANGE', self.name, entry_id, entry_id) for entry_id in ids])
    gone = self._still_pending(
        [entry_id for entry_id, found in zip(ids, contents) if not found])
    if gone:
      # Before anything is claimed, as that would have the server forget them.
      self._lost(
          len(gone),
          f'entries that were delivered and not acknowledged ({_some(gone)}) '
          'were trimmed or deleted',
          'To go on without them, set on_trimmed="skip".')
      self._acknowledge(gone)
      LOST.inc(len(gone))
    taken = set()
    for idle_ms in sorted({entry.idle_ms for entry in todo}):
      wanted = [
          entry_id for entry_id, entry, content in zip(ids, todo, contents)
          if content and entry.idle_ms == idle_ms
      ]
      # Not those that another consumer was quicker to take.
      taken.update(self.move(wanted, consumer, idle_ms))
    CLAIMED.inc(
        sum(
            entry_id in taken and not entry.own for entry_id,
            entry in zip(ids, todo)))
    return [
        content[0] for entry_id, content in zip(ids, contents)
        if entry_id in taken
    ]

  def _still_pending(self, ids: list[bytes]) -> list[bytes]:
    """Others may have been acknowledged, and deleted, since they were found.
    """
    replies = self._server.calls([(
        'XPENDING', self.name, self._plan.group, entry_id, entry_id, 1)
                                  for entry_id in ids])
    return [entry_id for entry_id, found in zip(ids, replies) if found]

  def move(
      self, ids: list[bytes], consumer: str, idle_ms: int = 0) -> list[bytes]:
    moved = []
    for page in _pages(ids):
      moved.extend(
          self._server.call(
              'XCLAIM',
              self.name,
              self._plan.group,
              consumer,
              idle_ms,
              *page,
              'JUSTID'))
    return moved

  # -- Entries of nobody

  def _check_trimmed(self) -> None:
    """Finds out whether entries went before the group delivered them.

    The server counts the entries that were added, and those that the group was
    given. They can be compared when it is known how many of the entries that
    are left it has been given: all, or none.
    """
    stream, group = self.group.info()
    added, read = stream.get('entries-added'), group.get('entries-read')
    if added is None or read is None:
      # Before Redis 7, or the group began in the middle.
      return
    delivered = EntryId.parse(group['last-delivered-id'])
    if delivered >= EntryId.parse(stream['last-generated-id']):
      left = 0
    elif (stream['first-entry'] is None or
          EntryId.parse(stream['first-entry'][0]) > delivered):
      left = stream['length']
    else:
      return
    lost = added - read - left
    LOST_UNREAD.set(max(lost, 0))
    if lost > self._told:
      self._told = lost
      self._lost(
          lost,
          f'entries behind {delivered} were trimmed or deleted before the '
          'group was given them',
          'To go on with those that are left, set on_trimmed="skip"; or while '
          'no consumer reads, have the server forget the gap: XGROUP SETID '
          f'{self.name} {self._plan.group} {delivered} ENTRIESREAD '
          f'{added - left}')

  def _lost(self, count: int, what: str, remedy: str) -> None:
    text = f'{self.group}: {count} {what}.'
    if self._plan.fail_on_trimmed:
      raise RedisStreamsTrimmedError(
          f'{text} They are lost. Trim less, or later than they are '
          f'acknowledged. {remedy}')
    _LOGGER.warning('%s They are skipped.', text)

  # -- Watermark and backlog

  def current_watermark(self) -> Timestamp:
    watermark = self._watermark
    if self.last is not None:
      watermark.observe(event_time(int(self.last.partition(b'-')[0])))
    following = self._reader.following(self)
    if following is None and self.todo:
      following = self.todo[0].id
    if following is not None:
      # A run is in order. It may be below earlier ones, if it was taken over.
      value = event_time(following.ms)
    elif self.caught_up_ms is None:
      value = watermark.value(MIN_TIMESTAMP, False)
    else:
      value = watermark.value(event_time(self.caught_up_ms), True)
    return value if self._hold is None else min(value, self._hold)

  def note_size(self, values: Optional[Sequence[bytes]]) -> None:
    self._bytes += size_of(values)
    self._sized += 1

  def backlog_bytes(self) -> Optional[int]:
    waiting = len(self.todo) + self._reader.fetched(self)
    if self.caught_up_ms is None:
      looked, behind = self._backlog
      now = time.monotonic()
      if now - looked > LOOK_SECONDS or not looked:
        stream, group = self.group.info()
        behind = undelivered(stream, group)
        if not self._sized and stream['last-entry']:
          self.note_size(stream['last-entry'][1])
        self._backlog = now, behind
      if behind is None:
        return None
      waiting += -(-behind // self._share)
    return waiting * (self._bytes // self._sized if self._sized else 1)


def undelivered(stream: dict[str, Any], group: dict[str, Any]) -> Optional[int]:
  """How many entries the group was not given yet; None if nobody knows."""
  delivered = EntryId.parse(group['last-delivered-id'])
  if (not stream['length'] or
      delivered >= EntryId.parse(stream['last-generated-id'])):
    return 0
  if EntryId.parse(stream['first-entry'][0]) > delivered:
    return stream['length']
  lag = group.get('lag')
  # Trimmed entries count as lag for ever, in some releases.
  return None if lag is None else min(lag, stream['length'])


def _pages(ids: Sequence[bytes]) -> list[Sequence[bytes]]:
  return [ids[at:at + _PAGE] for at in range(0, len(ids), _PAGE)]


def _some(ids: Sequence[bytes]) -> str:
  shown = ', '.join(entry_id.decode() for entry_id in ids[:3])
  return shown + (f' and {len(ids) - 3} more' if len(ids) > 3 else '')
