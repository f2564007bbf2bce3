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

"""Reads an SQLite outbox table as an unbounded source, and counts its orders.

Made to be copied. ``OutboxSource`` shows each duty of a source's author on a
store that needs no server; to read from another store, keep the shape and
change the queries. ``unbounded_outbox_writer.py`` is the application at the
other end, ``unbounded_outbox_demo.py`` runs both and checks the outcome::

  python -m apache_beam.examples.unbounded_outbox_demo

By hand, with a writer in another terminal::

  python -m apache_beam.examples.unbounded_outbox \\
      --outbox=orders.db --output=counted.db --runner=PrismRunner

The promises, and what keeps each of them:

===========================  =================================================
no order is lost             the mark (``OutboxMark``) holds the position, and
                             a reader resumes strictly after it
no order is counted twice    the runner commits the mark together with the
                             orders that were read up to it
an order is acknowledged     ``finalize_checkpoint`` runs after that commit,
only when it is safe         and ``StoreOrders`` writes before it
windows close, and not       the watermark (``OutboxReader.get_watermark``)
before their last order
===========================  =================================================
"""

import argparse
import collections
import contextlib
import dataclasses
import datetime
import json
import logging
import os
import pathlib
import sqlite3
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import apache_beam as beam
from apache_beam import coders
from apache_beam.io.unbounded_source import CheckpointMark
from apache_beam.io.unbounded_source import ReadFromUnboundedSource
from apache_beam.io.unbounded_source import UnboundedReader
from apache_beam.io.unbounded_source import UnboundedSource
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.transforms.window import FixedWindows
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

_LOGGER = logging.getLogger(__name__)

# As the application has it: a row of this shard is the end marker.
_EVERY_SHARD = -1

# One query fetches so many orders. A query per order would cost more than all
# else together; a very large batch would sit in memory, half of it unread.
_BATCH = 500

# The reader must not block, so it hardly waits for a lock; nobody waits for an
# acknowledgement.
_READ_TIMEOUT_SECONDS = 0.05
_ACKNOWLEDGE_TIMEOUT_SECONDS = 5


class Order(NamedTuple):
  """One row of the outbox."""
  order_id: int
  customer: str
  cents: int
  event_us: int


# A schema coder, not pickle: compact, deterministic, and readable by others.
coders.registry.register_coder(Order, coders.RowCoder)

# ---------------------------------------------------------------------------
# Errors. Whoever is woken by one should know what to do without this file.


class OutboxError(RuntimeError):
  """The outbox cannot be read."""


class OutboxMissingError(OutboxError):
  """There is no database at the path, or no longer the same one."""


class OutboxSchemaError(OutboxError):
  """It is not a database, or it lacks a table or column."""


class OutboxBusyError(OutboxError):
  """Somebody has kept the database locked for too long."""


class PositionExpiredError(OutboxError):
  """Orders after the resume position were deleted before they were read."""


class WrongMarkError(OutboxError):
  """The mark belongs to another split."""


def _is_busy(error: sqlite3.Error) -> bool:
  # By its text, since the numeric code came only with Python 3.11.
  return isinstance(error, sqlite3.OperationalError) and 'locked' in str(error)


@contextlib.contextmanager
def _named_errors(path: str, doing: str) -> Iterator[None]:
  """Turns what SQLite says into what to do about it."""
  try:
    yield
  except sqlite3.Error as e:
    where = f'outbox {path}, while {doing}: {e}.'
    if _is_busy(e):
      raise OutboxBusyError(
          f'{where} Another process keeps the database locked. Look for a '
          'transaction that was left open.') from e
    if 'unable to open' in str(e):
      raise OutboxMissingError(
          f'{where} Start the application that makes it, or correct the path. '
          'Every worker must reach it under this path.') from e
    if 'no such' in str(e) or 'not a database' in str(e):
      raise OutboxSchemaError(
          f'{where} The source needs the tables outbox and outbox_trimmed; see '
          'SCHEMA in unbounded_outbox_writer.py.') from e
    raise OutboxError(where) from e


def _connect(path: str, timeout: float) -> sqlite3.Connection:
  # mode=rw: a wrong path is an error, not a new and empty database.
  #
  # check_same_thread: one thread at a time uses a reader, but not always the
  # same one.
  return sqlite3.connect(
      pathlib.Path(path).absolute().as_uri() + '?mode=rw',
      uri=True,
      timeout=timeout,
      isolation_level=None,
      check_same_thread=False)


# ---------------------------------------------------------------------------
# The mark.


@dataclasses.dataclass(frozen=True)
class OutboxMark(CheckpointMark):
  """Every order of these shards through this one has been read.

  Frozen, and a new one for each checkpoint: the runner keeps a mark while the
  reader moves on. A mark that moved with its reader would acknowledge, and on
  a restart skip, orders that nobody has committed.

  It holds all that it needs to acknowledge, and no connection: it may have
  been decoded in a process that never had a reader.
  """
  outbox: str
  shards: tuple[int, ...]
  # None: the reader has not seen the outbox yet.
  last_id: int | None

  def finalize_checkpoint(self) -> None:
    """Acknowledges the orders through last_id.

    Called: once the runner has committed all that was read up to the mark; on
    any thread, so on a connection of its own.
    Not promised: that it is called for each mark, in order, or only once. So
    it acknowledges from the beginning, not from the mark before, and what is
    acknowledged stays as it is.

    An error fails nothing. The orders stay unacknowledged until a later mark.
    """
    if self.last_id is None:
      return
    with _named_errors(self.outbox, f'acknowledging through {self.last_id}'):
      with contextlib.closing(_connect(
          self.outbox, timeout=_ACKNOWLEDGE_TIMEOUT_SECONDS)) as connection:
        connection.execute(
            'UPDATE outbox SET acknowledged = 1 WHERE acknowledged = 0 '
            f'AND shard IN ({_placeholders(self.shards)}) AND id <= ?',
            (*self.shards, self.last_id))


class OutboxMarkCoder(coders.Coder):
  """A mark as a short JSON list that begins with a version.

  The runner stores these bytes, and a later release of your code must read
  them. So: no pickle, which breaks when a class moves, and a version. Equal
  marks give equal bytes, since runners compare them.
  """
  _VERSION = 1

  def encode(self, value: OutboxMark) -> bytes:
    return json.dumps(
        [self._VERSION, value.outbox, value.shards, value.last_id],
        separators=(',', ':')).encode('utf-8')

  def decode(self, encoded: bytes) -> OutboxMark:
    version, *fields = json.loads(encoded)
    if version != self._VERSION:
      raise ValueError(
          f'An outbox mark of version {version}, but this release reads only '
          f'version {self._VERSION}. Run the release that wrote it, or newer.')
    outbox, shards, last_id = fields
    return OutboxMark(outbox, tuple(shards), last_id)

  def is_deterministic(self) -> bool:
    return True

  def __eq__(self, other: Any) -> bool:
    return type(self) == type(other)

  def __hash__(self) -> int:
    return hash(type(self))


def _placeholders(values: Iterable[Any]) -> str:
  return ', '.join('?' for _ in values)


# ---------------------------------------------------------------------------
# The source and its reader.


class OutboxSource(UnboundedSource):
  """The orders of an outbox table, until its end marker.

  It is pickled and sent to workers: a few plain values, never a connection.

  Args:
    outbox: the database file.
    shards: those to read; their number is the greatest number of splits.
    max_disorder_seconds: an order's event time may lie so far before that of
      an earlier order. Greater costs latency, less makes orders too late for
      their window.
    max_transaction_seconds: how long the writer's transactions last at most,
      from an order's insert to the commit. Before that, nobody can see it.
    max_busy_seconds: how long the database may stay locked.
  """
  def __init__(
      self,
      outbox: str,
      shards: tuple[int, ...] = (0, 1),
      max_disorder_seconds: float = 2.0,
      max_transaction_seconds: float = 1.0,
      max_busy_seconds: float = 30.0):
    self.outbox = os.path.abspath(outbox)
    self.shards = tuple(shards)
    self.max_disorder_seconds = max_disorder_seconds
    self.max_transaction_seconds = max_transaction_seconds
    self.max_busy_seconds = max_busy_seconds

  def __repr__(self) -> str:
    return f'OutboxSource({self.outbox!r}, shards={self.shards})'

  def split(
      self,
      desired_num_splits: int,
      options: PipelineOptions | None = None) -> list['OutboxSource']:
    """Deals the shards out.

    Called: once, before anything is read. From then on each split has marks
    of its own, so the same order must never belong to two of them.
    """
    count = min(desired_num_splits, len(self.shards))
    return [
        OutboxSource(
            self.outbox,
            self.shards[i::count],
            self.max_disorder_seconds,
            self.max_transaction_seconds,
            self.max_busy_seconds) for i in range(count)
    ]

  def create_reader(
      self,
      options: PipelineOptions | None,
      checkpoint_mark: OutboxMark | None) -> 'OutboxReader':
    """Makes a reader that resumes strictly after the mark.

    With None it starts at the oldest order that is still there: whoever starts
    a new job gets acknowledged orders again, unless they were trimmed. To
    leave those out, add `acknowledged = 0` to the query; then two jobs on one
    outbox would take orders from each other.
    """
    if checkpoint_mark is None:
      return OutboxReader(self, None)
    if checkpoint_mark.shards != self.shards:
      raise WrongMarkError(
          f'{self} got the mark of shards {checkpoint_mark.shards}. Orders '
          'would be lost or read twice. Keep `shards` as it was when the job '
          'began, or start a new job.')
    return OutboxReader(self, checkpoint_mark.last_id)

  def get_checkpoint_mark_coder(self) -> OutboxMarkCoder:
    return OutboxMarkCoder()

  def default_output_coder(self) -> coders.Coder:
    return coders.registry.get_coder(Order)


class OutboxReader(UnboundedReader):
  """Reads one split, a batch at a time.

  The position is an id, and the query asks for greater ones. That is right
  only if orders become visible in the order of their ids. SQLite has a single
  writer at a time, so they do; gaps are harmless. On a server with several
  writers, a transaction takes id 7, another takes id 8 and commits first, and
  a reader at 8 never sees 7. There, read by commit position (a log sequence
  number, a replication slot), or read only ids below the oldest transaction
  that is still open.

  Args:
    source: the split.
    last_id: the order to resume after, None for the oldest.
    clock: seconds since the epoch; tests bring their own.
  """
  def __init__(
      self,
      source: OutboxSource,
      last_id: int | None,
      clock: Callable[[], float] = time.time):
    self._source = source
    self._clock = clock
    # The position: the last order that advance() made current. What has been
    # fetched and not delivered yet is no part of it.
    self._last_id = last_id
    self._fetched: collections.deque[Order] = collections.deque()
    self._current: Order | None = None
    self._connection: sqlite3.Connection | None = None
    self._file_id: tuple[int, int] | None = None
    self._busy_since: float | None = None
    self._end_fetched = False
    self._watermark = MIN_TIMESTAMP

  def start(self) -> bool:
    # Connect here and not in the constructor: it may fail, and a reader that
    # was never made cannot be closed.
    path = self._source.outbox
    with _named_errors(path, 'opening it'):
      self._connection = _connect(path, timeout=_READ_TIMEOUT_SECONDS)
      self._file_id = self._identify_file()
    return self.advance()

  def advance(self) -> bool:
    """Moves to the next order; False if there is none now."""
    if not self._fetched and not self._end_fetched:
      self._fetch()
    if not self._fetched:
      return False
    self._current = self._fetched.popleft()
    self._last_id = self._current.order_id
    return True

  def get_current(self) -> Order:
    return self._current

  def get_current_timestamp(self) -> Timestamp:
    return Timestamp(micros=self._current.event_us)

  def get_checkpoint_mark(self) -> OutboxMark:
    return OutboxMark(self._source.outbox, self._source.shards, self._last_id)

  def get_watermark(self) -> Timestamp:
    """A time before which no further order lies.

    Three rules, each of them true by itself, so the latest holds:

    - the end marker is reached: nothing will come, ever;
    - an order was seen: no later one lies more than the disorder before it;
    - nothing was there when asked (see _follow_clock()).

    Too late a watermark delays windows. Too early a one drops orders.
    """
    if self._end_fetched and not self._fetched:
      return MAX_TIMESTAMP
    if self._current is not None:
      disorder = self._source.max_disorder_seconds
      self._watermark = max(
          self._watermark, self.get_current_timestamp() - disorder)
    return self._watermark

  def close(self) -> None:
    if self._connection is not None:
      self._connection.close()
      self._connection = None

  def _follow_clock(self, asked_at: float) -> None:
    """Lets the watermark move on although no orders come.

    Without it, a quiet source would keep the last windows open for ever. Only
    when the outbox had nothing to give: with orders waiting, their event times
    decide, however long they have waited. The time is that before the query;
    since then, an order may have been committed.
    """
    slack = (
        self._source.max_disorder_seconds +
        self._source.max_transaction_seconds)
    self._watermark = max(self._watermark, Timestamp(asked_at - slack))

  def _fetch(self) -> None:
    """Gets the next batch, or learns that there is nothing."""
    asked_at = self._clock()
    try:
      with _named_errors(self._source.outbox, f'reading {self._where()}'):
        rows = self._fetch_batch()
    except OutboxBusyError:
      # Not now; try again at the next poll, but not for ever. The watermark
      # stays: we do not know whether anything is waiting.
      if self._busy_since is None:
        self._busy_since = asked_at
      if asked_at - self._busy_since >= self._source.max_busy_seconds:
        raise
      return
    self._busy_since = None
    if not rows:
      self._check_file()
      self._follow_clock(asked_at)
    for shard, *order in rows:
      if shard == _EVERY_SHARD:
        self._end_fetched = True
        break
      self._fetched.append(Order(*order))

  def _fetch_batch(self) -> list[tuple]:
    shards = self._source.shards
    # One transaction, so that both queries see the same state: nothing can be
    # trimmed between them.
    self._connection.execute('BEGIN')
    try:
      trimmed = self._connection.execute(
          'SELECT COALESCE(MAX(through_id), 0) FROM outbox_trimmed '
          f'WHERE shard IN ({_placeholders(shards)})', shards).fetchone()[0]
      if self._last_id is None:
        # A new job. What was trimmed before it began is not missed, but from
        # here on it has a position, that it can lose.
        self._last_id = trimmed
      elif trimmed > self._last_id:
        raise PositionExpiredError(
            f'outbox {self._source.outbox}: {self._where()} was the position, '
            f'but orders through {trimmed} were deleted. Those in between that '
            'had not been read are lost to this job. Trim only what is '
            'acknowledged, as unbounded_outbox_writer.trim() describes; to go '
            'on without the lost orders, start a new job.')
      return self._connection.execute(
          'SELECT shard, id, customer, cents, event_us FROM outbox '
          f'WHERE id > ? AND shard IN ({_placeholders(shards)}, ?) '
          f'ORDER BY id LIMIT {_BATCH}',
          (self._last_id, *shards, _EVERY_SHARD)).fetchall()
    finally:
      if self._connection.in_transaction:
        self._connection.execute('COMMIT')

  def _where(self) -> str:
    return f'shards {self._source.shards} after order {self._last_id or 0}'

  def _identify_file(self) -> tuple[int, int] | None:
    try:
      status = os.stat(self._source.outbox)
      return status.st_dev, status.st_ino
    except FileNotFoundError:
      return None

  def _check_file(self) -> None:
    """A deleted file stays readable for who has it open, and stays silent."""
    if self._identify_file() != self._file_id:
      raise OutboxMissingError(
          f'outbox {self._source.outbox}: the file was removed or replaced '
          f'while reading {self._where()}. A position in the old file means '
          'nothing in another one. Bring the old one back, or start a new job.')


# ---------------------------------------------------------------------------
# The pipeline.

_OUTPUT_SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
  order_id INTEGER PRIMARY KEY,
  window_us INTEGER NOT NULL,
  cents INTEGER NOT NULL,
  deliveries INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS windows (
  window_us INTEGER PRIMARY KEY,
  orders INTEGER NOT NULL,
  cents INTEGER NOT NULL,
  closed_us INTEGER NOT NULL
);
"""


def make_output(output: str) -> None:
  """Makes the output database, unless it is there.

  Before the pipeline starts: two workers that do it at once may fail, for the
  switch to the write-ahead log does not wait for a lock.
  """
  with contextlib.closing(sqlite3.connect(output)) as connection:
    connection.execute('PRAGMA journal_mode = WAL')
    connection.executescript(_OUTPUT_SCHEMA)


class _OutputFn(beam.DoFn):
  """Has a connection to the output database, one per instance."""
  def __init__(self, output: str):
    self._output = output

  def setup(self):
    self._connection = _connect(self._output, timeout=30)

  def teardown(self):
    self._connection.close()


class StoreOrders(_OutputFn):
  """Stores orders durably, one transaction a bundle, and passes them on.

  It stands right behind the read, and runners fuse the two: they are one
  bundle, which is committed after finish_bundle(), and acknowledged after
  that. So a row that is acknowledged in the outbox is on the disk here. With
  a Reshuffle or a grouping in between, it may still be on its way: held safe
  by a runner that stores what it holds, lost with one that does not.

  A bundle may be tried again after it has stored its orders. The key keeps
  them single; `deliveries` is there to show that it happened.
  """
  def start_bundle(self):
    self._rows = []

  def process(self, order: Order,
              window=beam.DoFn.WindowParam) -> Iterator[Order]:
    self._rows.append((order.order_id, window.start.micros, order.cents))
    yield order

  def finish_bundle(self):
    # Without rows no transaction: most polls of a quiet outbox find nothing.
    if not self._rows:
      return
    self._connection.execute('BEGIN IMMEDIATE')
    with self._connection:
      self._connection.executemany(
          'INSERT INTO orders VALUES (?, ?, ?, 1) ON CONFLICT (order_id) '
          'DO UPDATE SET deliveries = deliveries + 1', self._rows)


class CountAndSum(beam.CombineFn):
  """(number of orders, sum of their cents)"""
  def create_accumulator(self):
    return 0, 0

  def add_input(self, accumulator, order):
    return accumulator[0] + 1, accumulator[1] + order.cents

  def merge_accumulators(self, accumulators):
    counts, sums = zip(*accumulators)
    return sum(counts), sum(sums)

  def extract_output(self, accumulator):
    return accumulator


class StoreWindows(_OutputFn):
  """Stores and prints each window when it closes."""
  def process(self, totals, window=beam.DoFn.WindowParam):
    orders, cents = totals
    self._connection.execute(
        'INSERT OR REPLACE INTO windows VALUES (?, ?, ?, ?)',
        (window.start.micros, orders, cents, int(time.time() * 1e6)))
    print(describe_window(window.start, window.end, orders, cents), flush=True)


def describe_window(
    start: Timestamp, end: Timestamp, orders: int, cents: int) -> str:
  """One line about a window that closed."""
  def clock(timestamp):
    return datetime.datetime.fromtimestamp(
        timestamp.micros / 1e6, datetime.timezone.utc).strftime('%H:%M:%S')

  return 'window %s to %s UTC %8s orders %14s' % (
      clock(start), clock(end), f'{orders:,}', f'{cents / 100:,.2f}')


def build_pipeline(
    pipeline: beam.Pipeline,
    source: OutboxSource,
    output: str,
    window_seconds: float,
    poll_interval: float) -> None:
  """Applies the example's transforms."""
  _ = (
      pipeline
      # Ask an idle split again after the poll interval; a busy one is never
      # made to wait.
      | 'ReadOutbox' >> ReadFromUnboundedSource(
          source, poll_interval=poll_interval)
      | 'Window' >> beam.WindowInto(FixedWindows(window_seconds))
      | 'StoreOrders' >> beam.ParDo(StoreOrders(output)).with_output_types(
          Order)
      | 'CountAndSum' >> beam.CombineGlobally(CountAndSum()).without_defaults()
      | 'StoreWindows' >> beam.ParDo(StoreWindows(output)))


def run(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(
      description='Counts the orders of an SQLite outbox per window, until its '
      'end marker. Other options go to the pipeline.')
  parser.add_argument('--outbox', required=True, help='the database to read')
  parser.add_argument('--output', required=True, help='the database to write')
  parser.add_argument('--window-seconds', type=float, default=4)
  parser.add_argument(
      '--poll-interval',
      type=float,
      default=0.25,
      help='seconds until an idle split is asked again')
  args, pipeline_args = parser.parse_known_args(argv)
  output = os.path.abspath(args.output)
  make_output(output)

  options = PipelineOptions(pipeline_args)
  # Some runners choose another mode of execution for it.
  options.view_as(StandardOptions).streaming = True
  with beam.Pipeline(options=options) as pipeline:
    build_pipeline(
        pipeline,
        OutboxSource(args.outbox),
        output,
        args.window_seconds,
        args.poll_interval)


if __name__ == '__main__':
  logging.getLogger().setLevel(logging.WARNING)
  run()
