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

"""Tests for the outbox example: source, pipeline, and the demo's own check."""

# pytype: skip-file

import contextlib
import dataclasses
import io
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

from apache_beam import coders
from apache_beam.examples import unbounded_outbox
from apache_beam.examples import unbounded_outbox_demo as demo
from apache_beam.examples import unbounded_outbox_writer as writer
from apache_beam.internal import pickler
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

# A second of an event time in the orders that the tests make.
_EPOCH = 1_000_000


class FakeClock:
  def __init__(self, now):
    self.now = now

  def __call__(self):
    return self.now


class OutboxTestCase(unittest.TestCase):
  """Has a folder with an outbox in it, and a connection to write to that."""
  def setUp(self):
    self.folder = tempfile.mkdtemp(prefix='outbox-test-')
    self.addCleanup(shutil.rmtree, self.folder)
    self.outbox = os.path.join(self.folder, 'outbox.db')
    self.connection = writer.open_outbox(self.outbox)
    self.addCleanup(self.connection.close)

  def write_orders(self, count, first_second=_EPOCH):
    """One order a second; returns their ids."""
    return [
        writer.insert_order(
            self.connection,
            'customer-%d' % i,
            cents=100 + i,
            event_us=(first_second + i) * 1_000_000) for i in range(count)
    ]

  def source(self, shards=(0, 1), **kwargs):
    return unbounded_outbox.OutboxSource(self.outbox, shards, **kwargs)

  def reader(self, source=None, mark=None):
    reader = (source or self.source()).create_reader(None, mark)
    self.addCleanup(reader.close)
    return reader

  def read_ids(self, reader, count=None, started=False):
    """Reads that many orders, or all that are there."""
    ids = []
    while count is None or len(ids) < count:
      more = reader.advance() if started else reader.start()
      started = True
      if not more:
        break
      ids.append(reader.get_current().order_id)
      self.assertLess(len(ids), 2000, 'It repeats, without an end.')
    return ids

  def acknowledged(self):
    return [
        row[0] for row in self.connection.execute(
            'SELECT id FROM outbox WHERE acknowledged = 1 ORDER BY id')
    ]

  def shard_ids(self, shard):
    return [
        row[0] for row in self.connection.execute(
            'SELECT id FROM outbox WHERE shard = ? ORDER BY id', (shard, ))
    ]


class PositionTest(OutboxTestCase):
  def test_resumes_strictly_after_every_position(self):
    """Case B74: read k, mark, encode, decode: a new reader yields k+1 to n.

    With batches of 3, so that k lies within, at, and between batches.
    """
    ids = self.write_orders(8)
    coder = self.source().get_checkpoint_mark_coder()
    with mock.patch.object(unbounded_outbox, '_BATCH', 3):
      for k in range(len(ids) + 1):
        with self.subTest(k=k):
          reader = self.reader()
          self.assertEqual(ids[:k], self.read_ids(reader, k))
          mark = coder.decode(coder.encode(reader.get_checkpoint_mark()))
          self.assertEqual(
              ids[k:], self.read_ids(self.reader(mark=mark)))

  def test_continues_when_orders_come_later(self):
    first = self.write_orders(3)
    reader = self.reader()
    self.assertEqual(first, self.read_ids(reader))
    self.assertFalse(reader.advance())
    more = self.write_orders(2)
    self.assertEqual(more, self.read_ids(reader, started=True))

  def test_a_mark_does_not_move_with_its_reader(self):
    self.write_orders(6)
    coder = self.source().get_checkpoint_mark_coder()
    reader = self.reader()
    self.read_ids(reader, 3)
    mark = reader.get_checkpoint_mark()
    encoded = coder.encode(mark)
    self.assertIsNot(mark, reader.get_checkpoint_mark())
    self.read_ids(reader, 3, started=True)
    self.assertEqual(encoded, coder.encode(mark))
    self.assertNotEqual(encoded, coder.encode(reader.get_checkpoint_mark()))
    with self.assertRaises(dataclasses.FrozenInstanceError):
      mark.last_id = 6

  def test_every_order_is_in_one_split(self):
    ids = self.write_orders(40)
    for desired in (1, 2, 7, 100):
      with self.subTest(desired=desired):
        splits = [
            pickler.loads(pickler.dumps(split))
            for split in self.source().split(desired)
        ]
        self.assertEqual(min(desired, 2), len(splits))
        parts = [self.read_ids(self.reader(split)) for split in splits]
        self.assertTrue(all(parts), 'A split without orders shows nothing.')
        self.assertEqual(ids, sorted(sum(parts, [])))

  def test_the_mark_of_another_split_is_refused(self):
    self.write_orders(4)
    splits = self.source().split(2)
    reader = self.reader(splits[0])
    self.read_ids(reader)
    with self.assertRaisesRegex(
        unbounded_outbox.WrongMarkError, r'shards=\(1,\).*shards \(0,\)'):
      splits[1].create_reader(None, reader.get_checkpoint_mark())

  def test_queries_by_the_batch(self):
    self.write_orders(1200)
    reader = self.reader()
    reader.start()
    queries = []
    reader._connection.set_trace_callback(queries.append)
    self.assertEqual(1199, len(self.read_ids(reader, started=True)))
    self.assertLess(len(queries), 20)


class MarkCoderTest(unittest.TestCase):
  MARK = unbounded_outbox.OutboxMark('/a/b.db', (0, 1), 7)

  def test_bytes_are_those_of_the_first_release(self):
    encoded = b'[1,"/a/b.db",[0,1],7]'
    coder = unbounded_outbox.OutboxMarkCoder()
    self.assertEqual(encoded, coder.encode(self.MARK))
    self.assertEqual(self.MARK, coder.decode(encoded))
    self.assertTrue(coder.is_deterministic())

  def test_works_in_other_coders(self):
    coder = coders.TupleCoder(
        [unbounded_outbox.OutboxMarkCoder(), coders.VarIntCoder()])
    self.assertEqual((self.MARK, 3), coder.decode(coder.encode((self.MARK, 3))))

  def test_an_unknown_version_is_refused(self):
    with self.assertRaisesRegex(ValueError, 'version 2.*only version 1'):
      unbounded_outbox.OutboxMarkCoder().decode(b'[2,"/a/b.db",[0,1],7,"x"]')

  def test_orders_are_not_pickled(self):
    coder = unbounded_outbox.OutboxSource('x').default_output_coder()
    self.assertIsInstance(coder, coders.RowCoder)
    order = unbounded_outbox.Order(1, 'a', 2, 3)
    self.assertEqual(order, coder.decode(coder.encode(order)))


class AcknowledgementTest(OutboxTestCase):
  def setUp(self):
    super().setUp()
    self.write_orders(20)
    self.ids = self.shard_ids(0)
    self.assertGreater(len(self.ids), 4)
    reader = self.reader(self.source(shards=(0, )))
    # Fetched together, so the later orders are in memory at the early marks.
    self.read_ids(reader, 2)
    self.early = reader.get_checkpoint_mark()
    self.read_ids(reader, 2, started=True)
    self.late = reader.get_checkpoint_mark()

  def test_nothing_is_acknowledged_before_finalization(self):
    self.assertEqual([], self.acknowledged())

  def test_acknowledges_its_split_up_to_the_mark(self):
    self.early.finalize_checkpoint()
    self.assertEqual(self.ids[:2], self.acknowledged())

  def test_twice_is_as_good_as_once(self):
    self.early.finalize_checkpoint()
    self.early.finalize_checkpoint()
    self.assertEqual(self.ids[:2], self.acknowledged())

  def test_a_mark_covers_those_before_it(self):
    self.late.finalize_checkpoint()
    self.assertEqual(self.ids[:4], self.acknowledged())

  def test_an_earlier_mark_may_come_later(self):
    self.late.finalize_checkpoint()
    self.early.finalize_checkpoint()
    self.assertEqual(self.ids[:4], self.acknowledged())

  def test_a_decoded_mark_on_another_thread(self):
    coder = unbounded_outbox.OutboxMarkCoder()
    mark = coder.decode(coder.encode(self.early))
    errors = []

    def finalize():
      try:
        mark.finalize_checkpoint()
      except Exception as e:  # pylint: disable=broad-except
        errors.append(e)

    thread = threading.Thread(target=finalize)
    thread.start()
    thread.join()
    self.assertEqual([], errors)
    self.assertEqual(self.ids[:2], self.acknowledged())

  def test_a_mark_from_before_the_first_look_acknowledges_nothing(self):
    self.source().create_reader(
        None, None).get_checkpoint_mark().finalize_checkpoint()
    self.assertEqual([], self.acknowledged())

  @mock.patch.object(unbounded_outbox, '_ACKNOWLEDGE_TIMEOUT_SECONDS', 0.05)
  def test_a_locked_database_has_a_name_and_may_be_tried_again(self):
    self.connection.execute('BEGIN IMMEDIATE')
    with self.assertRaisesRegex(
        unbounded_outbox.OutboxBusyError, 'acknowledging through'):
      self.early.finalize_checkpoint()
    self.connection.execute('ROLLBACK')
    self.early.finalize_checkpoint()
    self.assertEqual(self.ids[:2], self.acknowledged())


class WatermarkTest(OutboxTestCase):
  def open(self, now, **kwargs):
    clock = FakeClock(now)
    reader = unbounded_outbox.OutboxReader(self.source(**kwargs), None, clock)
    self.addCleanup(reader.close)
    return reader, clock

  def test_is_never_above_a_later_order(self):
    """Orders as much out of order as promised, batches of 3.

    The clock stays behind all orders, so that only they move the watermark.
    """
    for second in (10, 8, 11, 9, 12, 10, 20, 18, 19, 22, 20):
      writer.insert_order(self.connection, 'a', 1, second * 1_000_000)
    reader, _ = self.open(0, max_disorder_seconds=2)
    watermark = MIN_TIMESTAMP
    with mock.patch.object(unbounded_outbox, '_BATCH', 3):
      more = reader.start()
      while more:
        self.assertGreaterEqual(reader.get_current_timestamp(), watermark)
        self.assertGreaterEqual(reader.get_watermark(), watermark)
        watermark = reader.get_watermark()
        more = reader.advance()
    self.assertEqual(Timestamp(20), watermark)

  def test_follows_the_clock_when_caught_up(self):
    self.write_orders(1)
    reader, clock = self.open(
        _EPOCH, max_disorder_seconds=2, max_transaction_seconds=1)
    self.assertTrue(reader.start())
    self.assertEqual(Timestamp(_EPOCH - 2), reader.get_watermark())
    clock.now += 100
    self.assertEqual(
        Timestamp(_EPOCH - 2),
        reader.get_watermark(),
        'It has not asked whether there are more.')
    self.assertFalse(reader.advance())
    self.assertEqual(Timestamp(_EPOCH + 97), reader.get_watermark())

  def test_stays_while_orders_are_waiting(self):
    """However late they are: an outage of the pipeline makes no late data."""
    self.write_orders(3)
    reader, _ = self.open(_EPOCH + 1000)
    more = reader.start()
    while more:
      self.assertLess(reader.get_watermark(), reader.get_current_timestamp())
      more = reader.advance()

  def test_follows_the_time_before_the_query(self):
    """An order committed during the query may be older than its end."""
    reader, clock = self.open(
        _EPOCH, max_disorder_seconds=2, max_transaction_seconds=1)
    fetch_batch = reader._fetch_batch

    def slow_fetch_batch():
      clock.now += 10
      return fetch_batch()

    reader._fetch_batch = slow_fetch_batch
    self.assertFalse(reader.start())
    self.assertEqual(Timestamp(_EPOCH - 3), reader.get_watermark())

  def test_never_goes_back(self):
    reader, clock = self.open(_EPOCH + 100)
    self.assertFalse(reader.start())
    before = reader.get_watermark()
    clock.now -= 50
    self.write_orders(1)
    self.assertTrue(reader.advance())
    self.assertFalse(reader.advance())
    self.assertEqual(before, reader.get_watermark())

  def test_the_end_comes_after_the_last_order_in_each_split(self):
    self.write_orders(10)
    writer.insert_end(self.connection)
    for split in self.source().split(2):
      reader = self.reader(split)
      more = reader.start()
      self.assertTrue(more)
      while more:
        # advance() tells that there was no more, so not yet here.
        mark = reader.get_checkpoint_mark()
        more = reader.advance()
      self.assertEqual(MAX_TIMESTAMP, reader.get_watermark())
      # Whoever resumes after the last order learns of the end as well.
      resumed = self.reader(split, mark)
      self.assertFalse(resumed.start())
      self.assertEqual(MAX_TIMESTAMP, resumed.get_watermark())

  def test_the_end_is_not_told_before_the_last_order(self):
    self.write_orders(3)
    writer.insert_end(self.connection)
    reader = self.reader()
    self.read_ids(reader, 2)
    self.assertLess(reader.get_watermark(), MAX_TIMESTAMP)


class TroubleTest(OutboxTestCase):
  def test_a_locked_database_is_nothing_now_and_later_an_error(self):
    ids = self.write_orders(3)
    # With the older journal a writer locks readers out, which is the simplest
    # way to a locked database.
    self.connection.execute('PRAGMA journal_mode = DELETE')
    clock = FakeClock(_EPOCH + 100)
    reader = unbounded_outbox.OutboxReader(
        self.source(max_busy_seconds=30), None, clock)
    self.addCleanup(reader.close)
    self.connection.execute('BEGIN EXCLUSIVE')
    began = time.monotonic()
    self.assertFalse(reader.start())
    self.assertLess(time.monotonic() - began, 1)
    self.assertEqual(
        MIN_TIMESTAMP,
        reader.get_watermark(),
        'It does not know whether orders are waiting.')

    self.connection.execute('ROLLBACK')
    self.assertEqual(ids, self.read_ids(reader, 3, started=True))

    self.connection.execute('BEGIN EXCLUSIVE')
    clock.now += 1
    self.assertFalse(reader.advance())
    clock.now += 29
    self.assertFalse(reader.advance())
    clock.now += 1
    with self.assertRaisesRegex(
        unbounded_outbox.OutboxBusyError,
        r'after order 3: database is locked\. Another process'):
      reader.advance()

  def test_an_absent_database(self):
    source = unbounded_outbox.OutboxSource(
        os.path.join(self.folder, 'absent.db'))
    with self.assertRaisesRegex(
        unbounded_outbox.OutboxMissingError, r'absent\.db.*Start the app'):
      source.create_reader(None, None).start()
    self.assertFalse(os.path.exists(source.outbox), 'It made one.')

  def test_a_database_without_the_table(self):
    self.connection.execute('DROP TABLE outbox')
    with self.assertRaisesRegex(
        unbounded_outbox.OutboxSchemaError, 'no such table: outbox'):
      self.reader().start()

  def test_a_table_that_goes_while_it_is_read(self):
    self.write_orders(1)
    reader = self.reader()
    self.assertTrue(reader.start())
    self.connection.execute('DROP TABLE outbox')
    with self.assertRaises(unbounded_outbox.OutboxSchemaError):
      reader.advance()

  def test_a_file_that_is_no_database(self):
    path = os.path.join(self.folder, 'text.db')
    with open(path, 'w') as f:
      f.write('not a database, ' * 100)
    with self.assertRaises(unbounded_outbox.OutboxSchemaError):
      unbounded_outbox.OutboxSource(path).create_reader(None, None).start()

  def test_a_database_that_is_replaced_while_it_is_read(self):
    self.write_orders(1)
    reader = self.reader()
    self.assertEqual([1], self.read_ids(reader))
    for suffix in ('', '-wal', '-shm'):
      os.rename(self.outbox + suffix, self.outbox + '.old' + suffix)
    writer.open_outbox(self.outbox).close()
    with self.assertRaisesRegex(
        unbounded_outbox.OutboxMissingError, 'removed or replaced'):
      reader.advance()


class TrimTest(OutboxTestCase):
  def marks_after(self, counts):
    """Marks of the two splits after so many orders of each."""
    marks = []
    for split, count in zip(self.source().split(2), counts):
      reader = self.reader(split)
      self.assertEqual(count, len(self.read_ids(reader, count)))
      marks.append(reader.get_checkpoint_mark())
    return marks

  def test_only_what_is_acknowledged_in_every_shard_may_go(self):
    self.write_orders(20)
    marks = self.marks_after((5, 2))
    self.assertEqual(0, writer.acknowledged_through(self.connection))
    for mark in marks:
      mark.finalize_checkpoint()
    open_ids = self.shard_ids(0)[5:] + self.shard_ids(1)[2:]
    through = writer.acknowledged_through(self.connection)
    self.assertEqual(min(open_ids) - 1, through)

    writer.trim(self.connection, through)
    rest = [
        self.read_ids(self.reader(split, mark))
        for split, mark in zip(self.source().split(2), marks)
    ]
    self.assertEqual(sorted(open_ids), sorted(sum(rest, [])))

  def test_orders_trimmed_past_the_mark_are_missed(self):
    self.write_orders(20)
    for k in range(5):
      with self.subTest(k=k):
        mark = self.marks_after((k, 0))[0] if k else None
        if mark is None:
          # The outbox was empty when this split looked.
          mark = unbounded_outbox.OutboxMark(self.outbox, (0, ), 0)
        through = self.shard_ids(0)[0] if k == 0 else self.shard_ids(0)[k]
        with contextlib.closing(self.copy()) as copy:
          writer.trim(copy, through)
          source = unbounded_outbox.OutboxSource(copy_path(copy), (0, ))
          with self.assertRaisesRegex(
              unbounded_outbox.PositionExpiredError,
              f'after order {mark.last_id} was.*through {through} were deleted'
              '.*Trim only what is acknowledged'):
            source.create_reader(None, mark).start()

  def copy(self):
    path = os.path.join(self.folder, 'copy-%d.db' % random.getrandbits(32))
    copy = writer.open_outbox(path)
    self.connection.backup(copy)
    return copy

  def test_a_reader_notices_while_it_runs(self):
    self.write_orders(3)
    reader = self.reader()
    self.read_ids(reader)
    self.write_orders(3)
    writer.trim(self.connection, 5)
    with self.assertRaises(unbounded_outbox.PositionExpiredError):
      reader.advance()

  def test_a_new_job_begins_with_the_oldest_that_is_there(self):
    ids = self.write_orders(10)
    writer.trim(self.connection, 4)
    for split in self.source().split(2):
      begun = self.reader(split)
      self.assertEqual(
          [i for i in ids[4:] if i in self.shard_ids(split.shards[0])],
          self.read_ids(begun))

  def test_a_new_job_on_an_empty_outbox_can_lose_its_position(self):
    self.write_orders(10)
    writer.trim(self.connection, 10)
    reader = self.reader()
    self.assertEqual([], self.read_ids(reader))
    mark = reader.get_checkpoint_mark()
    # To resume is no error by itself ...
    self.assertFalse(self.reader(mark=mark).start())
    self.write_orders(3)
    # ... but it is, once orders are gone that came after the first look.
    writer.trim(self.connection, 12)
    with self.assertRaises(unbounded_outbox.PositionExpiredError):
      self.reader(mark=mark).start()

  def test_a_trimmed_id_is_never_given_again(self):
    self.write_orders(3)
    writer.trim(self.connection, 3)
    self.assertEqual([4], self.write_orders(1))


def copy_path(connection):
  return connection.execute('PRAGMA database_list').fetchone()[2]


class KillableWriter:
  """Writers in a process of their own: one is killed, the next goes on."""
  def __init__(self, outbox, seconds):
    self._outbox = outbox
    self._seconds = seconds
    self.first_uncommitted = None
    self.continued_after = None
    self.last = None

  def _start(self, *more):
    return subprocess.Popen([
        sys.executable,
        '-I',
        writer.__file__,
        self._outbox,
        '--seconds=%s' % self._seconds,
        '--rate=200',
        *more
    ],
                            stdout=subprocess.PIPE,
                            text=True)

  def run(self):
    with self._start('--slow-after=%s' % (self._seconds / 2)) as process:
      for line in process.stdout:
        if line.startswith('open'):
          process.kill()
          self.first_uncommitted = int(line.split()[1])
    with self._start() as process:
      for line in process.stdout:
        if line.startswith('continues'):
          self.continued_after = int(line.split()[-1])
        if line.startswith('end'):
          self.last = int(line.split()[-1])


class PipelineTest(OutboxTestCase):
  def test_counts_every_order_once_though_the_writer_is_killed(self):
    output = os.path.join(self.folder, 'output.db')
    writers = KillableWriter(self.outbox, seconds=1.5)
    thread = threading.Thread(target=writers.run)
    thread.start()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
      unbounded_outbox.run([
          '--outbox=' + self.outbox,
          '--output=' + output,
          '--window-seconds=1',
          '--poll-interval=0.1',
          '--runner=FnApiRunner'
      ])
    thread.join()

    # The writer was killed inside a transaction, and that left nothing.
    self.assertGreater(writers.first_uncommitted, 1)
    self.assertEqual(writers.first_uncommitted - 1, writers.continued_after)
    self.assertGreater(writers.last, writers.continued_after)
    self.assertTrue(self.shard_ids(0) and self.shard_ids(1))

    for finding in demo.check(self.outbox, output, window_seconds=1):
      self.assertEqual([], finding.problems, finding.name)
    lines = printed.getvalue().splitlines()
    orders = [
        int(re.fullmatch(
            r'window [\d:]{8} to [\d:]{8} UTC +(\d+) orders +[\d,.]+',
            line).group(1)) for line in lines
    ]
    self.assertGreater(len(orders), 2)
    self.assertEqual(writers.last, sum(orders))

  def test_an_absent_outbox_fails_the_pipeline_by_name(self):
    # Whether this error comes or one that quotes it is up to the runner.
    with self.assertRaisesRegex(
        Exception, r'absent\.db, while opening it.*Start the application'):
      unbounded_outbox.run([
          '--outbox=' + os.path.join(self.folder, 'absent.db'),
          '--output=' + os.path.join(self.folder, 'output.db'),
          '--runner=FnApiRunner'
      ])


class CheckTest(OutboxTestCase):
  """The demo's check finds what is wrong, and says where."""
  def setUp(self):
    super().setUp()
    self.output = os.path.join(self.folder, 'output.db')
    unbounded_outbox.make_output(self.output)
    self.out = sqlite3.connect(self.output, isolation_level=None)
    self.addCleanup(self.out.close)
    self.write_orders(8)
    writer.insert_end(self.connection)
    self.connection.execute(
        'UPDATE outbox SET acknowledged = 1 WHERE shard >= 0')
    # Orders 1 to 4 are in the window of 00:00:00 + 13 days, 5 to 8 in the next.
    for i in range(8):
      self.out.execute(
          'INSERT INTO orders VALUES (?, ?, ?, 1)',
          (i + 1, (_EPOCH + i // 4 * 4) * 1_000_000, 100 + i))
    self.out.execute(
        'INSERT INTO windows VALUES (?, 4, 406, 0)', (_EPOCH * 1_000_000, ))
    self.out.execute(
        'INSERT INTO windows VALUES (?, 4, 422, 0)',
        ((_EPOCH + 4) * 1_000_000, ))

  def problems(self):
    return {
        finding.name: finding.problems
        for finding in demo.check(self.outbox, self.output)
        if finding.problems
    }

  def test_a_good_output(self):
    self.assertEqual({}, self.problems())

  def test_a_missing_order(self):
    self.out.execute('DELETE FROM orders WHERE order_id = 3')
    self.assertEqual({
        'every order once': ['order 3 is missing'],
        'acknowledged': ['order 3 is acknowledged, but was never stored']
    },
                     self.problems())

  def test_a_doubled_order(self):
    self.out.execute('UPDATE orders SET deliveries = 2 WHERE order_id = 6')
    self.assertEqual({'every order once': ['order 6 came 2 times']},
                     self.problems())

  def test_an_order_that_was_never_written(self):
    self.out.execute('INSERT INTO orders VALUES (99, 0, 0, 1)')
    self.assertEqual({'every order once': ['order 99 was never written']},
                     self.problems())

  def test_an_order_in_the_wrong_window(self):
    self.out.execute(
        'UPDATE orders SET window_us = window_us + 4000000 WHERE order_id = 2')
    self.assertEqual(
        {
            'in the right window': [
                'order 2 of 13:46:41.000 is in the window of 13:46:44'
            ]
        },
        self.problems())

  def test_a_window_that_counts_wrong(self):
    self.out.execute('UPDATE windows SET orders = 5 WHERE cents = 406')
    self.assertEqual(
        {'window totals': ['window 13:46:40 counts 5 orders, not 4']},
        self.problems())

  def test_a_window_that_sums_wrong(self):
    self.out.execute('UPDATE windows SET cents = 407 WHERE cents = 406')
    self.assertEqual(
        {'window totals': ['window 13:46:40 sums to 4.07, not 4.06']},
        self.problems())

  def test_a_window_that_never_closed(self):
    self.out.execute('DELETE FROM windows WHERE cents = 422')
    self.assertEqual({'window totals': ['window 13:46:44 never closed']},
                     self.problems())

  def test_an_order_that_is_not_acknowledged(self):
    self.connection.execute('UPDATE outbox SET acknowledged = 0 WHERE id = 7')
    self.assertEqual({'acknowledged': ['order 7 is not acknowledged']},
                     self.problems())

  def test_no_order_at_all_is_no_success(self):
    for connection, table in ((self.connection, 'outbox'),
                              (self.out, 'orders'), (self.out, 'windows')):
      connection.execute('DELETE FROM ' + table)
    self.assertIn('every order once', self.problems())

  def test_the_watch_finds_an_order_acknowledged_before_it_is_stored(self):
    self.connection.execute('UPDATE outbox SET acknowledged = 0')
    watch = demo.AcknowledgementWatch(self.outbox, self.output)
    watch.look()
    self.assertEqual((0, []), (watch.looks, watch.problems))
    self.connection.execute('UPDATE outbox SET acknowledged = 1 WHERE id <= 4')
    watch.look()
    watch.look()
    self.assertEqual((1, []), (watch.looks, watch.problems))
    self.connection.execute('UPDATE outbox SET acknowledged = 1 WHERE id <= 6')
    self.out.execute('DELETE FROM orders WHERE order_id = 5')
    watch.look()
    # Too late: it was acknowledged first.
    self.out.execute('INSERT INTO orders VALUES (5, 0, 0, 1)')
    watch.look()
    self.assertEqual((2, ['order 5 was acknowledged before it was stored']),
                     (watch.looks, watch.problems))

  def test_shows_the_first_problems_and_how_many_more(self):
    self.out.execute('DELETE FROM orders')
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
      good = demo.show_findings(
          demo.Screen(), demo.check(self.outbox, self.output))
    self.assertFalse(good)
    self.assertIn(
        'every order once ....... FAILED  0 of 8\n  order 1 is missing\n',
        printed.getvalue())
    self.assertIn('  order 5 is missing\n  and 3 more\n', printed.getvalue())
    self.assertLessEqual(max(map(len, printed.getvalue().splitlines())), 80)


class DemoTest(unittest.TestCase):
  """The demo as a person runs it."""
  def start(self, *options):
    process = subprocess.Popen([
        sys.executable,
        '-m',
        'apache_beam.examples.unbounded_outbox_demo',
        *options
    ],
                               stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE,
                               text=True)
    # In this order: a test that fails must not wait for the demo to end.
    self.addCleanup(process.communicate)
    self.addCleanup(process.terminate)
    return process

  def test_runs_well(self):
    process = self.start('--seconds=8')
    out, err = process.communicate(timeout=120)
    self.assertEqual(0, process.returncode, out + err)
    self.assertIn('kill -9 of the writer, amid', out)
    self.assertIn('writer started again', out)
    self.assertEqual(6, len(re.findall(r'\.\. ok ', out)), out)
    self.assertIn('All is well', out)
    self.assertLessEqual(max(map(len, out.splitlines())), 80)
    self.assertFalse(os.path.exists(out.splitlines()[0].split()[-1]))

  def test_leaves_nothing_when_it_is_interrupted(self):
    process = self.start('--seconds=60')
    folder = process.stdout.readline().split()[-1]
    self.assertTrue(os.path.isdir(folder))
    pids = []
    while len(pids) < 2:
      pids += map(int, re.findall(r'pid (\d+)', process.stdout.readline()))
    # So that the pipeline is at work.
    while ' 0 stored' in process.stdout.readline():
      pass
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    self.assertEqual(130, process.returncode, out + err)
    self.assertNotIn('Traceback', err)
    for pid in pids:
      with self.assertRaises(ProcessLookupError):
        os.kill(pid, 0)
    self.assertFalse(os.path.exists(folder))

  def test_says_what_is_wrong_with_an_option(self):
    process = self.start('--prism=/no/such/prism')
    _, err = process.communicate(timeout=60)
    self.assertEqual(2, process.returncode)
    self.assertIn('--prism=/no/such/prism: no program is there', err)


if __name__ == '__main__':
  unittest.main()
