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

"""An application that writes orders into an SQLite outbox table.

The other half of ``unbounded_outbox.py``: whatever owns the database. It
imports the standard library alone and knows nothing of Beam, as your own
application would not.

An outbox is a table into which an application writes, in the same transaction
as the change itself, what the rest of the world shall hear of that change.
Nothing is announced that was rolled back, and nothing that was committed is
forgotten, even when the process dies at any instruction.

Usage: ``python unbounded_outbox_writer.py OUTBOX [--seconds N] [--rate N]``

It prints one line per event, for a program that watches it::

  continues after 2431     the last order that an earlier writer committed
  open 2432 6              a slow transaction holds 6 rows, not yet committed
  end 5120                 the end marker is written; the last order is 5120
"""

import argparse
import os
import random
import sqlite3
import sys
import threading
import time
import zlib

# Orders of one customer share a shard, so that whoever reads a shard sees them
# in order. The number is fixed for the life of a table.
SHARDS = 2

# A row of this shard is not an order. It says to the readers of every shard
# that no order will follow.
EVERY_SHARD = -1

# An order's event time is when the customer pressed the button, at most this
# much before the insert. Readers base their watermark on it, so it is a
# promise: put in an older one and it may be too late for its window.
MAX_DISORDER_SECONDS = 1.5

_COMMIT_EVERY_SECONDS = 0.05
_BUSY_TIMEOUT_SECONDS = 10

# AUTOINCREMENT never gives an id twice, not even after the last row has been
# deleted. Without it, a new order could take the id of a trimmed one, which a
# reader has passed already.
SCHEMA = """
CREATE TABLE IF NOT EXISTS outbox (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  shard INTEGER NOT NULL,
  customer TEXT NOT NULL,
  cents INTEGER NOT NULL,
  event_us INTEGER NOT NULL,
  acknowledged INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS outbox_unacknowledged
  ON outbox (shard, id) WHERE acknowledged = 0;
CREATE TABLE IF NOT EXISTS outbox_trimmed (
  shard INTEGER PRIMARY KEY,
  through_id INTEGER NOT NULL
);
"""


def open_outbox(path: str) -> sqlite3.Connection:
  """Opens the outbox, and makes it if it is not there."""
  connection = sqlite3.connect(
      path, timeout=_BUSY_TIMEOUT_SECONDS, isolation_level=None)
  # With a write-ahead log, readers do not wait for the writer, nor it for them.
  connection.execute('PRAGMA journal_mode = WAL')
  connection.executescript(SCHEMA)
  return connection


def insert_order(
    connection: sqlite3.Connection, customer: str, cents: int,
    event_us: int) -> int:
  """Adds one order; call it in a transaction. Returns the order's id."""
  shard = zlib.crc32(customer.encode()) % SHARDS
  cursor = connection.execute(
      'INSERT INTO outbox (shard, customer, cents, event_us) '
      'VALUES (?, ?, ?, ?)', (shard, customer, cents, event_us))
  return cursor.lastrowid


def insert_end(connection: sqlite3.Connection) -> None:
  """Says that no order will follow."""
  connection.execute(
      'INSERT INTO outbox (shard, customer, cents, event_us) '
      "VALUES (?, '', 0, 0)", (EVERY_SHARD, ))


def last_order(connection: sqlite3.Connection) -> int:
  """The id of the last committed order, 0 if there is none."""
  return connection.execute(
      'SELECT COALESCE(MAX(id), 0) FROM outbox WHERE shard != ?',
      (EVERY_SHARD, )).fetchone()[0]


def acknowledged_through(connection: sqlite3.Connection) -> int:
  """The highest id such that this and all lower ones are acknowledged."""
  unacknowledged = connection.execute(
      'SELECT MIN(id) FROM outbox WHERE acknowledged = 0').fetchone()[0]
  if unacknowledged is None:
    return last_order(connection)
  return unacknowledged - 1


def trim(connection: sqlite3.Connection, through_id: int) -> None:
  """Deletes the orders through an id, and says so to readers.

  The safe policy is ``trim(connection, acknowledged_through(connection))``. To
  delete more than that loses orders, and the reader fails with
  ``PositionExpiredError``: it could not tell a deleted order from one that
  never was, were it not for the note made here, in the same transaction.
  """
  connection.execute('BEGIN IMMEDIATE')
  with connection:
    connection.execute(
        'INSERT INTO outbox_trimmed (shard, through_id) '
        'SELECT shard, MAX(id) FROM outbox '
        'WHERE id <= ? AND shard != ? GROUP BY shard '
        'ON CONFLICT (shard) DO UPDATE SET through_id = excluded.through_id',
        (through_id, EVERY_SHARD))
    connection.execute(
        'DELETE FROM outbox WHERE id <= ? AND shard != ?',
        (through_id, EVERY_SHARD))


def _insert_some(connection: sqlite3.Connection, count: int) -> int:
  """Inserts that many made-up orders of this moment; returns the last id."""
  order_id = 0
  for _ in range(count):
    delay = random.uniform(0, MAX_DISORDER_SECONDS)
    order_id = insert_order(
        connection,
        customer='customer-%d' % random.randrange(100),
        cents=random.randrange(500, 10000),
        event_us=int((time.time() - delay) * 1e6))
  return order_id


def _slow_transaction(connection: sqlite3.Connection, count: int) -> None:
  """Stands for a transaction that hangs, so that one can kill it in there."""
  connection.execute('BEGIN IMMEDIATE')
  first = _insert_some(connection, count) - count + 1
  print('open %d %d' % (first, count), flush=True)
  time.sleep(5)
  # Nobody killed it. By now its event times break the promise above.
  connection.execute('ROLLBACK')


def write(
    path: str,
    seconds: float,
    rate: float,
    slow_after: float | None = None,
    stop: threading.Event | None = None) -> None:
  """Writes orders for a time, many to a transaction, then the end marker.

  Args:
    path: of the outbox.
    seconds: how long to write.
    rate: orders a second.
    slow_after: makes one slow transaction after so many seconds.
    stop: ends the writing early, when it is set.
  """
  stop = stop or threading.Event()
  connection = open_outbox(path)
  print('continues after %d' % last_order(connection), flush=True)
  started = time.monotonic()
  written = 0
  elapsed = 0.0
  while elapsed < seconds and not stop.wait(_COMMIT_EVERY_SECONDS):
    elapsed = time.monotonic() - started
    due = int(min(elapsed, seconds) * rate) - written
    if slow_after is not None and elapsed >= slow_after:
      slow_after = None
      _slow_transaction(connection, max(due, 6))
    elif due:
      # IMMEDIATE takes the write lock before the event times are made. A wait
      # for the lock in between would make them older than promised.
      connection.execute('BEGIN IMMEDIATE')
      with connection:
        _insert_some(connection, due)
      written += due
  insert_end(connection)
  print('end %d' % last_order(connection), flush=True)
  connection.close()


def _set_at_end_of_input(stop: threading.Event) -> None:
  # Not through sys.stdin: a thread that waits in its buffer breaks the exit.
  while os.read(sys.stdin.fileno(), 1024):
    pass
  stop.set()


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(
      description='Writes made-up orders into an SQLite outbox table.')
  parser.add_argument('outbox', help='the database file')
  parser.add_argument('--seconds', type=float, default=20)
  parser.add_argument('--rate', type=float, default=300, help='orders a second')
  parser.add_argument(
      '--slow-after',
      type=float,
      metavar='SECONDS',
      help='then leave one transaction open for 5 s, and roll it back')
  parser.add_argument(
      '--stop-at-eof',
      action='store_true',
      help='end early when standard input ends, so when the parent is gone')
  args = parser.parse_args(argv)
  stop = threading.Event()
  if args.stop_at_eof:
    threading.Thread(
        target=_set_at_end_of_input, args=(stop, ), daemon=True).start()
  write(args.outbox, args.seconds, args.rate, args.slow_after, stop)


if __name__ == '__main__':
  main()
