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

"""Reads one split of Redis Streams, as a consumer of a group.

Purpose: to give each entry that the group delivers to this split, and to know
  after any failure which of the pending entries were output.
How: an entry that was delivered stays pending for its consumer until it is
  acknowledged. Each reader is a consumer of its own (a *run*), and gives its
  entries in the order of their ids. So a mark needs no list of ids but the last
  one of each run: what is pending for a consumer up to there was output, all
  else was not. A new reader takes over the latter from the runs before it.
Guarantees:
  * What a mark covers is never given again by its split. It is acknowledged
    when a mark is finalized, not sooner: some runners hand on a mark that they
    would go back behind after a crash.
  * What it does not cover is given, whatever happened to the runs before: their
    replies lost, their bundles failed, or a worker still at it that the runner
    has given up.
  * Entries of other consumers that were left pending for ``claim_idle`` are
    claimed; never those of this read's other splits, which go on by themselves.
Threads: the one that reads; acknowledgements come from any. Nothing reads in
  the background: it would go on when the split has moved to another worker.
"""

import collections
import logging
import secrets
import time
from typing import Any
from typing import Callable
from typing import Optional

from apache_beam.io import _redis_stream
from apache_beam.io._redis_connection import Server
from apache_beam.io._redis_errors import RedisStreamsConnectionError
from apache_beam.io._redis_errors import RedisStreamsError
from apache_beam.io._redis_errors import RedisStreamsMarkError
from apache_beam.io._redis_mark import EntryId
from apache_beam.io._redis_mark import RedisStreamsMark
from apache_beam.io._redis_mark import event_time
from apache_beam.io._redis_stream import Plan
from apache_beam.io._redis_stream import RedisStreamEntry
from apache_beam.io._redis_stream import Stream
from apache_beam.io.unbounded_source import RetryLater
from apache_beam.io.unbounded_source import UnboundedReader
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

_LOGGER = logging.getLogger(__name__)
_FIRST_RETRY_SECONDS = 0.25
_LAST_RETRY_SECONDS = 15.0

# Failed attempts in a row, by split: a reader lives for one attempt.
_FAILURES: dict[str, int] = {}


def new_token() -> str:
  return secrets.token_hex(4)


class RedisStreamsReader(UnboundedReader):
  """See the head of the module.

  Args:
    plan: what to read.
    mark: where to go on.
    prepare: called with the server before anything is read.
  """
  def __init__(
      self,
      plan: Plan,
      mark: Optional[RedisStreamsMark],
      prepare: Callable[[Server], None] = lambda server: None) -> None:
    self._plan = plan
    self._prepare = prepare
    self.split = f'{plan.job}-{plan.split}'
    self._server: Optional[Server] = None
    runs = dict(mark.runs) if mark else {}
    if not runs.keys() <= set(plan.streams):
      raise RedisStreamsMarkError(
          f'This split reads {", ".join(plan.streams)}, but its mark is of '
          f'{", ".join(runs)}. Keep the streams as they were when the job '
          'began, or start a new job.')
    self._streams = [
        Stream(self, plan, name, share, runs.get(name, ()))
        for name, share in zip(plan.streams, plan.shares)
    ]
    self.run = new_token()
    self._contact = self._looked = time.monotonic()
    # Batches that were fetched: their stream, and (id, fields) in reverse.
    self._batches: collections.deque = collections.deque()
    self._stream = self._streams[0]
    self._entries: list = []
    self._current: Any = None
    self._ms_text = b''
    self._timestamp = MIN_TIMESTAMP

  @property
  def consumer(self) -> str:
    return f'beam-{self.split}-{self.run}'

  # -- What the pipeline calls

  def start(self) -> bool:
    self._server = self._plan.settings.connect()
    self._retrying(self._open)
    return self.advance()

  def advance(self) -> bool:
    entries = self._entries
    if not entries:
      if not self._retrying(self._more):
        return False
      entries = self._entries
    self._current = current = entries.pop()
    stream = self._stream
    stream.last = current_id = current[0]
    stream.add(current_id)
    return True

  def get_current(self) -> RedisStreamEntry:
    entry_id, values = self._current
    # Names and values in turn.
    turns = iter(values)
    return RedisStreamEntry(
        self._stream.name, entry_id.decode(), dict(zip(turns, turns)))

  def get_current_timestamp(self) -> Timestamp:
    ms = self._current[0].partition(b'-')[0]
    if ms != self._ms_text:
      self._ms_text = ms
      self._timestamp = event_time(int(ms))
    return self._timestamp

  def get_watermark(self) -> Timestamp:
    return min(stream.current_watermark() for stream in self._streams)

  def get_checkpoint_mark(self) -> RedisStreamsMark:
    return RedisStreamsMark(
        tuple((stream.name, stream.runs()) for stream in self._streams),
        tuple(stream.ledger.cut() for stream in self._streams))

  def get_split_backlog_bytes(self) -> Optional[int]:
    total = 0
    for stream in self._streams:
      backlog = stream.backlog_bytes()
      if backlog is None:
        return None
      total += backlog
    return total

  def close(self) -> None:
    for stream in self._streams:
      stream.ledger.close()
    if self._server is not None:
      self._server.close()

  # -- How it gets there

  def _retrying(self, do: Callable[[], Any]) -> Any:
    """Has the read go on later if the server is away, from the last mark."""
    try:
      done = self._checked(do)
    except RedisStreamsConnectionError as exc:
      failures = _FAILURES.get(self.split, 0)
      _FAILURES[self.split] = failures + 1
      seconds = min(
          _FIRST_RETRY_SECONDS * 2**min(failures, 30), _LAST_RETRY_SECONDS)
      raise RetryLater(seconds, str(exc)) from exc
    if _FAILURES:
      _FAILURES.pop(self.split, None)
    return done

  def _open(self) -> None:
    self._prepare(self._server)
    for stream in self._streams:
      stream.open(self._server)
    self._look(opening=True)

  def _new_run(self) -> None:
    """Goes on as another consumer. Nothing may be left in the batches."""
    for stream in self._streams:
      stream.end_run()
    self.run = new_token()

  def _more(self) -> bool:
    """Makes the next batch the current one; False if there is none."""
    if not self._batches:
      now = time.monotonic()
      if now - self._contact > _redis_stream.LEASE_SECONDS:
        self._new_run()
      look = _redis_stream.LOOK_SECONDS
      if self._plan.claim_idle is not None:
        look = min(look, self._plan.claim_idle / 2)
      if now - self._looked > look:
        self._look(opening=False)
      self._fetch()
      self._contact = now
    if not self._batches:
      return False
    self._stream, self._entries = self._batches.popleft()
    return True

  def _look(self, opening: bool) -> None:
    """Looks for entries to take over, and for those that nobody will read."""
    self._looked = time.monotonic()
    if not opening and any(stream.todo for stream in self._streams):
      return
    found = [stream.look(opening) for stream in self._streams]
    if any(found):
      # The new ones may be older than what this run gave.
      if not opening:
        self._new_run()
      for stream, todo in zip(self._streams, found):
        stream.todo.extend(sorted(todo))

  def _fetch(self) -> None:
    """Asks for entries, of each stream up to ``batch_size``."""
    taking = [stream for stream in self._streams if stream.todo]
    if taking:
      for stream in taking:
        self._put(stream, stream.take(self.consumer))
      if self._batches:
        return
    # The time first: what is added between the two is not before it.
    (seconds, micros), reply = self._server.calls([
        ('TIME', ),
        (
            'XREADGROUP',
            'GROUP',
            self._plan.group,
            self.consumer,
            'COUNT',
            self._plan.batch_size,
            'STREAMS',
            *self._plan.streams,
            *['>'] * len(self._streams))
    ])
    now_ms = int(seconds) * 1000 + int(micros) // 1000
    by_key = {key: entries for key, entries in reply or ()}
    fetched = [(stream, by_key.get(stream.key, []))
               for stream in self._streams]
    if any(stream.goes_back(entries) for stream, entries in fetched):
      self._rewound(fetched)
    for stream, entries in fetched:
      full = len(entries) >= self._plan.batch_size
      stream.caught_up_ms = None if full else now_ms
      if entries:
        stream.note_size(entries[0][1])
        self._put(stream, entries)

  def following(self, stream: Stream) -> Optional[EntryId]:
    """The next entry of a stream, if it was fetched."""
    if stream is self._stream and self._entries:
      return EntryId.parse(self._entries[-1][0])
    for other, entries in self._batches:
      if other is stream:
        return EntryId.parse(entries[-1][0])
    return None

  def fetched(self, stream: Stream) -> int:
    """How many entries of a stream were fetched and not given."""
    count = len(self._entries) if stream is self._stream else 0
    return count + sum(
        len(entries) for other, entries in self._batches if other is stream)

  def _put(self, stream: Stream, entries: list) -> None:
    if entries:
      entries.reverse()
      self._batches.append((stream, entries))

  def _rewound(self, fetched: list) -> None:
    """A group was set back. A run does not go back, so this is another."""
    for stream, entries in fetched:
      if stream.goes_back(entries):
        _LOGGER.warning(
            '%s was set back, or its server lost what it did last: after %s '
            'come entries from %s on, again.',
            stream.group,
            stream.last.decode(),
            entries[0][0].decode())
    self._new_run()
    for stream, entries in fetched:
      stream.move([entry_id for entry_id, _ in entries], self.consumer)

  def _checked(self, call: Callable[[], Any]) -> Any:
    """Says which stream or group is missing, if the server says that one is."""
    try:
      return call()
    except RedisStreamsError as exc:
      if _is_missing(exc):
        for stream in self._streams:
          stream.require()
      raise


def _is_missing(exc: Exception) -> bool:
  return 'NOGROUP' in str(exc) or 'no such key' in str(exc)
