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

"""Readers of Redis Streams, one by one, against a real server.

The server is ``redis-server`` of the path, or of the variable ``REDIS_SERVER``.
"""

import collections
import datetime
import ipaddress
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import hypothesis
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import strategies

import apache_beam as beam
from apache_beam import coders
from apache_beam.io import _redis_reader
from apache_beam.io import _redis_stream
from apache_beam.io import _redis_testing
from apache_beam.io import redisstreams
from apache_beam.io._redis_mark import EntryId
from apache_beam.io._redis_mark import Run
from apache_beam.io._redis_mark import event_time
from apache_beam.io._redis_testing import PASSWORD
from apache_beam.io._redis_testing import CuttingProxy
from apache_beam.io._redis_testing import RedisServer
from apache_beam.io._redis_testing import entries
from apache_beam.io._redis_testing import needs_redis
from apache_beam.io._redis_testing import through_bytes
from apache_beam.io.redisstreams import ReadFromRedisStreams
from apache_beam.io.redisstreams import RedisStreamEntry
from apache_beam.io.redisstreams import RedisStreamsMark
from apache_beam.io.redisstreams import RedisStreamsMarkCoder
from apache_beam.io.redisstreams import RedisStreamsSource
from apache_beam.io.unbounded_source import RetryLater
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.display import DisplayData
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

CODER = RedisStreamsMarkCoder()

_u64 = strategies.integers(0, 2**64 - 1)
_runs = strategies.lists(
    strategies.builds(
        Run,
        strategies.binary(min_size=4, max_size=4).map(bytes.hex),
        strategies.builds(EntryId, _u64, _u64))).map(tuple)
_marks = strategies.dictionaries(
    strategies.text(strategies.characters(codec='utf-8'), min_size=1),
    _runs).map(lambda streams: RedisStreamsMark(tuple(streams.items())))


class MarkTest(unittest.TestCase):
  def test_bytes_are_those_of_the_first_release(self):
    mark = RedisStreamsMark(
        (('é', (Run('0a0b0c0d', EntryId(1, 2)), )), ('s', ())))
    self.assertEqual(
        bytes.fromhex(
            '01' + '00000002' + 'c3a9' + '00000001' + '0a0b0c0d' +
            '0000000000000001' + '0000000000000002' + '00000001' + '73' +
            '00000000'),
        CODER.encode(mark))
    self.assertEqual(mark, CODER.decode(CODER.encode(mark)))

  @hypothesis.given(_marks, _marks)
  def test_bytes_give_the_mark_and_tell_marks_apart(self, one, other):
    encoded = CODER.encode(one)
    self.assertEqual(one, CODER.decode(encoded))
    self.assertEqual(one == other, encoded == CODER.encode(other))

  def test_is_deterministic(self):
    self.assertTrue(CODER.is_deterministic())
    self.assertEqual(CODER, RedisStreamsMarkCoder())
    self.assertEqual(hash(CODER), hash(RedisStreamsMarkCoder()))

  @hypothesis.given(_marks, strategies.binary())
  def test_is_told_from_what_follows(self, mark, more):
    """Case B50: within other coders, the bytes end where they should."""
    coder = coders.TupleCoder((CODER, coders.BytesCoder()))
    self.assertEqual((mark, more), coder.decode(coder.encode((mark, more))))

  def test_other_bytes_are_refused(self):
    for encoded, told in ((b'', r'version \(none\)'), (b'\x02', 'version 2')):
      with self.assertRaisesRegex(redisstreams.RedisStreamsMarkError, told):
        CODER.decode(encoded)
    whole = CODER.encode(
        RedisStreamsMark((('s', (Run('0a0b0c0d', EntryId(1, 2)), )), )))
    for length in range(2, len(whole)):
      with self.subTest(length):
        with self.assertRaises(redisstreams.RedisStreamsMarkError):
          CODER.decode(whole[:length])

  @hypothesis.given(_u64, _u64)
  def test_event_times_are_in_the_global_window_and_in_order(self, one, other):
    one, other = sorted((one, other))
    self.assertLessEqual(event_time(one), event_time(other))
    self.assertLessEqual(event_time(other), GlobalWindow().max_timestamp())
    if other < 10**12:
      self.assertEqual(event_time(other).micros, other * 1000)


@needs_redis
class RedisTest(unittest.TestCase):
  """A server for all tests, which is empty before each."""
  @classmethod
  def setUpClass(cls):
    if cls is RedisTest:
      raise unittest.SkipTest('the base of others')
    cls.server = RedisServer()
    cls.addClassCleanup(cls.server.stop)

  def setUp(self):
    self.client = self.server.client()
    self.addCleanup(self.client.close)
    self.client.flushall()
    _redis_reader._FAILURES.clear()

  def add(self, *numbers, stream='s'):
    """Adds an entry for each number, which is also its time in ms."""
    pipeline = self.client.pipeline(transaction=False)
    for number in numbers:
      pipeline.xadd(stream, {'n': str(number)}, id=f'{number}-0')
    pipeline.execute()

  def source(self, streams='s', **kwargs):
    kwargs.setdefault('url', self.server.url)
    url = kwargs.pop('url')
    return RedisStreamsSource(url, streams, 'g', **kwargs)

  def split(self, streams='s', **kwargs):
    split, = self.source(streams, num_splits=1, **kwargs).split(20)
    return split

  def reader(self, split, mark=None):
    reader = split.create_reader(
        PipelineOptions([]), mark and through_bytes(mark, CODER))
    self.addCleanup(reader.close)
    return reader

  def read(self, reader, most=10**6):
    """The numbers of the entries that are there; starts the reader first."""
    found = []
    if most and reader._server is None:
      if not reader.start():
        return found
      found.append(reader.get_current())
    found.extend(entries(reader, most - len(found)))
    return [int(entry.fields[b'n']) for entry in found]

  def pending(self, stream='s'):
    return [
        int(entry['message_id'].partition(b'-')[0])
        for entry in self.client.xpending_range(stream, 'g', '-', '+', 10**6)
    ]

  def look_soon(self, reader):
    reader._looked = -1e9

  def age(self, *readers, stream='s'):
    """Has all that is pending look idle for an hour, and readers look soon.

    Nothing is waited for: what must not be idle yet is not, on any machine.
    """
    ids = collections.defaultdict(list)
    for entry in self.client.xpending_range(stream, 'g', '-', '+', 10**6):
      ids[entry['consumer']].append(entry['message_id'])
    for consumer, its in ids.items():
      self.client.xclaim(
          stream, 'g', consumer, 0, its, idle=3_600_000, justid=True)
    for reader in readers:
      self.look_soon(reader)


class ReadingTest(RedisTest):
  def test_gives_entries_whole_and_in_order(self):
    self.client.execute_command(
        'XADD', 's', '1700000000123-4', 'a', '1', b'\xff', '', 'a', '2')
    self.client.xadd('s', {'b': '3'}, id='1700000000123-5')
    reader = self.reader(self.split())
    self.assertTrue(reader.start())
    self.assertEqual(
        RedisStreamEntry('s', '1700000000123-4', {
            b'a': b'2', b'\xff': b''
        }),
        reader.get_current())
    self.assertEqual(
        Timestamp(micros=1700000000123000), reader.get_current_timestamp())
    self.assertTrue(reader.advance())
    self.assertEqual('1700000000123-5', reader.get_current().id)
    self.assertFalse(reader.advance())
    self.client.xadd('s', {'b': '4'})
    self.assertTrue(reader.advance())

  def test_asks_for_no_more_than_batch_size(self):
    self.add(*range(1, 10))
    reader = self.reader(self.split(batch_size=4))
    self.assertEqual([1, 2, 3, 4], self.read(reader, 4))
    self.assertEqual([1, 2, 3, 4], self.pending())
    self.assertEqual([5], self.read(reader, 1))
    self.assertEqual(list(range(1, 9)), self.pending())

  def test_resumes_behind_every_mark(self):
    self.add(*range(1, 8))
    for batch_size in (1, 3, 100):
      for count in range(8):
        with self.subTest(batch_size=batch_size, count=count):
          self.client.xgroup_destroy('s', 'g')
          split = self.split(batch_size=batch_size)
          reader = self.reader(split)
          self.assertEqual(list(range(1, count + 1)), self.read(reader, count))
          mark = reader.get_checkpoint_mark()
          reader.close()
          self.assertEqual(
              list(range(count + 1, 8)), self.read(self.reader(split, mark)))

  def test_splits_share_a_stream_in_order(self):
    self.add(*range(1, 101))
    splits = self.source(num_splits=3, batch_size=5).split(20)
    self.assertEqual(3, len(splits))
    readers = [self.reader(split) for split in splits]
    found = [[] for _ in readers]
    for _ in range(20):
      for numbers, reader in zip(found, readers):
        numbers.extend(self.read(reader, 5))
    self.assertEqual(list(range(1, 101)), sorted(sum(found, [])))
    for numbers in found:
      self.assertEqual(sorted(numbers), numbers)
      self.assertGreater(len(numbers), 0)

  def test_streams_are_divided_among_splits(self):
    """Case B65: one split, as many as streams, more, and fewer."""
    names = ['a', 'b', 'c']
    for number, desired, expected in (
        (None, 20, [['a'], ['b'], ['c']]),
        (None, 2, [['a', 'c'], ['b']]),
        (1, 20, [['a', 'b', 'c']]),
        (2, 20, [['a', 'c'], ['b']]),
        (5, 20, [['a'], ['b'], ['c'], ['a'], ['b']]),
        (100, 7, [['a'], ['b'], ['c'], ['a'], ['b'], ['c'], ['a']])):
      splits = self.source(names, num_splits=number).split(desired)
      self.assertEqual(
          expected, [list(split._part.streams) for split in splits])
      for split in splits:
        self.assertEqual([split], split.split(20))
        for stream, share in zip(split._part.streams, split._part.shares):
          self.assertEqual(
              share, sum(stream in streams for streams in expected))

  def test_reads_several_streams(self):
    self.add(1, 3, 5, stream='a')
    self.add(2, 4, stream='b')
    split = self.split(['a', 'b', 'empty'], batch_size=2)
    reader = self.reader(split)
    first = self.read(reader, 2)
    mark = reader.get_checkpoint_mark()
    rest = self.read(self.reader(split, mark))
    self.assertEqual([1, 2, 3, 4, 5], sorted(first + rest))

  def test_begins_where_start_says(self):
    self.add(1, 2, 3)
    for start, expected in (('0', [1, 2, 3, 4]), ('$', [4]), ('2-0', [3, 4]),
                            ('2', [3, 4])):
      with self.subTest(start):
        self.client.xtrim('s', minid='1-0', approximate=False)
        self.client.xdel('s', '4-0')
        self.client.delete('s')
        self.add(1, 2, 3)
        split = self.split(start=start)
        self.add(4)
        self.assertEqual(expected, self.read(self.reader(split)))

  def test_a_group_that_is_there_goes_on(self):
    self.add(1, 2)
    self.client.xgroup_create('s', 'g', '1-0')
    self.assertEqual([2], self.read(self.reader(self.split(start='0'))))

  def test_makes_the_stream_too(self):
    reader = self.reader(self.split())
    self.assertEqual([], self.read(reader))
    self.add(1)
    self.assertEqual([1], self.read(reader))

  def test_is_pickled_with_its_split(self):
    split = pickle.loads(pickle.dumps(self.split()))
    self.add(1)
    self.assertEqual([1], self.read(self.reader(split)))


class AcknowledgingTest(RedisTest):
  def test_acknowledges_what_a_finalized_mark_covers(self):
    """Cases B48, B53: neither more than it covers nor less."""
    self.add(*range(1, 7))
    reader = self.reader(self.split(batch_size=4))
    self.read(reader, 2)
    reader.get_checkpoint_mark()  # Never finalized.
    self.read(reader, 1)
    mark = reader.get_checkpoint_mark()
    self.read(reader)
    self.assertEqual([1, 2, 3, 4, 5, 6], self.pending())
    mark.finalize_checkpoint()
    self.assertEqual([4, 5, 6], self.pending())
    reader.get_checkpoint_mark().finalize_checkpoint()
    self.assertEqual([], self.pending())

  def test_finalizes_whenever_and_wherever(self):
    """Cases B46, B47: twice, out of order, elsewhere, decoded, closed."""
    self.add(1, 2, 3)
    split = self.split()
    reader = self.reader(split)
    self.read(reader, 1)
    first = reader.get_checkpoint_mark()
    self.read(reader, 1)
    second = reader.get_checkpoint_mark()
    through_bytes(second, CODER).finalize_checkpoint()
    pickle.loads(pickle.dumps(second)).finalize_checkpoint()
    self.assertEqual([1, 2, 3], self.pending())
    self.client.config_resetstat()
    threads = [
        threading.Thread(target=second.finalize_checkpoint) for _ in range(4)
    ]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
    first.finalize_checkpoint()
    second.finalize_checkpoint()
    self.assertEqual([3], self.pending())
    stats = self.client.info('commandstats')
    self.assertEqual(1, stats['cmdstat_xack']['calls'])
    self.read(reader)
    third = reader.get_checkpoint_mark()
    reader.close()
    third.finalize_checkpoint()
    self.assertEqual([3], self.pending())

  def test_many_are_acknowledged_at_once(self):
    self.add(*range(1, 2502))
    reader = self.reader(self.split())
    self.read(reader)
    self.client.config_resetstat()
    reader.get_checkpoint_mark().finalize_checkpoint()
    self.assertEqual([], self.pending())
    stats = self.client.info('commandstats')
    self.assertEqual(3, stats['cmdstat_xack']['calls'])

  def test_one_stream_that_fails_does_not_keep_others(self):
    self.add(1, stream='a')
    self.add(2, stream='b')
    reader = self.reader(self.split(['a', 'b']))
    self.read(reader)
    self.client.set('a', 'no stream')
    with self.assertRaisesRegex(redisstreams.RedisStreamsError, 'not one'):
      reader.get_checkpoint_mark().finalize_checkpoint()
    self.assertEqual([], self.pending('b'))

  def test_goes_through_a_connection_that_died(self):
    self.add(1)
    reader = self.reader(self.split())
    self.read(reader)
    self.server.kill()
    self.server.start()
    reader.get_checkpoint_mark().finalize_checkpoint()
    self.assertEqual([], self.pending())

  def test_tries_again_with_the_next_mark(self):
    self.add(1)
    reader = self.reader(self.split())
    self.read(reader)
    mark = reader.get_checkpoint_mark()
    self.server.kill()
    with self.assertRaises(redisstreams.RedisStreamsConnectionError):
      mark.finalize_checkpoint()
    self.server.start()
    mark.finalize_checkpoint()
    self.assertEqual([], self.pending())


class TakingOverTest(RedisTest):
  """What a reader finds pending when it is opened."""
  def test_committed_entries_are_acknowledged_and_not_given(self):
    """A crash between the runner's commit and the acknowledgement."""
    self.add(*range(1, 6))
    split = self.split()
    before = self.reader(split)
    self.read(before, 3)
    mark = before.get_checkpoint_mark()
    before.close()
    reader = self.reader(split, mark)
    self.assertEqual([4, 5], self.read(reader))
    # Not sooner: a runner may yet go back behind that mark.
    self.assertEqual([1, 2, 3, 4, 5], self.pending())
    reader.get_checkpoint_mark().finalize_checkpoint()
    self.assertEqual([], self.pending())

  def test_goes_back_behind_a_mark_that_was_handed_on(self):
    """Flink resumes from marks between its checkpoints, then goes back."""
    self.add(*range(1, 7))
    split = self.split()
    reader = self.reader(split)
    self.read(reader, 2)
    checkpoint = reader.get_checkpoint_mark()
    self.read(reader, 2)
    handed_on = reader.get_checkpoint_mark()
    reader.close()
    reader = self.reader(split, handed_on)
    self.assertEqual([5, 6], self.read(reader))
    reader.close()
    self.assertEqual([3, 4, 5, 6], self.read(self.reader(split, checkpoint)))

  def test_several_readers_that_came_to_nothing(self):
    self.add(*range(1, 7))
    split = self.split(batch_size=2)
    reader = self.reader(split)
    self.read(reader, 1)
    mark = reader.get_checkpoint_mark()
    for count in (1, 2, 3, 4, 5):
      reader.close()
      reader = self.reader(split, mark)
      self.assertEqual(list(range(2, 2 + count)), self.read(reader, count))
    last = reader.get_checkpoint_mark()
    last.finalize_checkpoint()
    self.assertEqual([], self.pending())
    self.assertEqual([], self.read(self.reader(split, last)))

  def test_takes_over_all_before_it_reads_on(self):
    """A run is in order: its last entry stands for all before."""
    self.add(*range(1, 11))
    split = self.split()
    reader = self.reader(split)
    self.read(reader, 1)
    mark = reader.get_checkpoint_mark()
    reader.close()
    self.add(11, 12)
    split._batch_size = 3
    self.assertEqual(list(range(2, 13)), self.read(self.reader(split, mark)))

  def test_committed_runs_stay_committed_over_runs(self):
    """Entries of several runs wait for an acknowledgement; none comes again."""
    self.add(*range(1, 7))
    split = self.split(batch_size=2)
    mark = None
    for number in range(1, 7):
      reader = self.reader(split, mark)
      self.assertEqual([number], self.read(reader, 1))
      mark = reader.get_checkpoint_mark()
      reader.close()
    self.assertEqual([1, 2, 3, 4, 5, 6], self.pending())
    self.assertEqual(6, len(mark.runs[0][1]))
    reader = self.reader(split, mark)
    self.add(7)
    self.assertEqual([7], self.read(reader))
    reader.get_checkpoint_mark().finalize_checkpoint()
    self.assertEqual([], self.pending())
    self.look_soon(reader)
    self.assertEqual([], self.read(reader))
    self.assertEqual(1, len(reader.get_checkpoint_mark().runs[0][1]))

  def test_a_reply_that_was_lost_loses_nothing(self):
    """The server has delivered entries, but nobody got them."""
    proxy = CuttingProxy(self.server.port)
    self.addCleanup(proxy.close)
    self.add(*range(1, 5))
    split = self.split(
        url=f'redis://127.0.0.1:{proxy.port}/0?socket_timeout=30', batch_size=2)
    reader = self.reader(split)
    self.assertEqual([1, 2], self.read(reader, 2))
    mark = reader.get_checkpoint_mark()
    proxy.lose = b'XREADGROUP'
    with self.assertRaises(RetryLater):
      reader.advance()
    self.assertEqual(1, proxy.lost)
    reader.close()
    self.assertEqual([1, 2, 3, 4], self.pending())
    self.assertEqual([3, 4], self.read(self.reader(split, mark)))

  def test_a_worker_that_was_given_up_reads_on(self):
    """What it takes from the group meanwhile is not lost with it."""
    self.add(1, 2, 3)
    split = self.split(batch_size=1)
    zombie = self.reader(split)
    self.assertEqual([1], self.read(zombie, 1))
    mark = zombie.get_checkpoint_mark()
    reader = self.reader(split, mark)
    self.assertEqual([2], self.read(reader, 1))
    self.assertEqual([3], self.read(zombie, 1))
    self.add(4)
    self.assertEqual([4], self.read(reader))
    for resumed in (reader, self.reader(split, reader.get_checkpoint_mark())):
      self.age(resumed)
      self.assertEqual([3], self.read(resumed))

  def test_a_group_that_was_set_back_gives_entries_again(self):
    """And a crash in the middle of that loses none of them."""
    self.add(*range(1, 6), stream='a')
    self.add(*range(1, 6), stream='b')
    split = self.split(['a', 'b'])
    reader = self.reader(split)
    self.assertEqual(10, len(self.read(reader)))
    reader.get_checkpoint_mark().finalize_checkpoint()
    self.client.xgroup_setid('b', 'g', '1-0')
    self.add(6, 7, stream='a')
    with self.assertLogs(level='WARNING') as logs:
      self.assertEqual([6, 7], self.read(reader, 2))
    self.assertIn("group 'g' of stream 'b'", logs.output[0])
    mark = reader.get_checkpoint_mark()
    for _ in range(2):
      resumed = self.reader(split, mark)
      self.assertEqual([2, 3, 4, 5], self.read(resumed))
      resumed.close()

  def test_a_run_ends_with_its_lease(self):
    self.add(1, 2)
    reader = self.reader(self.split(batch_size=1))
    self.read(reader, 1)
    consumer = reader.consumer
    reader._contact -= _redis_stream.LEASE_SECONDS + 1
    self.assertEqual([2], self.read(reader))
    self.assertNotEqual(consumer, reader.consumer)
    self.assertEqual(2, len(reader.get_checkpoint_mark().runs[0][1]))

  def test_removes_consumers_that_are_long_done(self):
    self.add(1, 2)
    source = self.source(claim_idle_seconds=None)
    done = self.reader(source.split(1)[0])
    self.read(done)
    done.get_checkpoint_mark().finalize_checkpoint()
    self.add(3)
    pending = self.reader(source.split(1)[0])
    self.read(pending)
    self.client.xgroup_createconsumer('s', 'g', 'somebody')
    reader = self.reader(source.split(1)[0])
    time.sleep(2)
    idle = min(
        consumer['idle'] for consumer in self.client.xinfo_consumers('s', 'g'))
    # Longer than the lease, and by more than a second not twice as long.
    with mock.patch.object(_redis_stream, 'LEASE_SECONDS', 0.9 * idle / 1000):
      self.read(reader)
    self.assertEqual(3, len(self.client.xinfo_consumers('s', 'g')))
    reader.close()
    with mock.patch.object(_redis_stream, 'LEASE_SECONDS', 0.4 * idle / 1000):
      self.read(self.reader(source.split(1)[0]))
    self.assertEqual({'somebody', pending.consumer},
                     {
                         consumer['name'].decode()
                         for consumer in self.client.xinfo_consumers('s', 'g')
                     })


class ClaimingTest(RedisTest):
  """Entries of other consumers."""
  def dead(self, *numbers, consumer='dead'):
    """Entries that a consumer got and never acknowledged."""
    self.add(*numbers)
    with self.server.client() as client:
      for _ in numbers:
        client.xreadgroup('g', consumer, {'s': '>'}, count=1)

  def test_claims_after_the_idle_time_and_not_sooner(self):
    split = self.split()
    self.dead(1, 2)
    self.add(3)
    reader = self.reader(split)
    self.assertEqual([3], self.read(reader))
    self.look_soon(reader)
    self.assertEqual([], self.read(reader))
    self.age(reader)
    self.assertEqual([1, 2], self.read(reader))
    reader.get_checkpoint_mark().finalize_checkpoint()
    self.assertEqual([], self.pending())

  def test_claims_many(self):
    split = self.split(batch_size=100)
    self.add(*range(1, 2501))
    self.client.xreadgroup('g', 'zoe', {'s': '>'}, count=1200)
    self.client.xreadgroup('g', 'amy', {'s': '>'}, count=1300)
    self.age()
    with mock.patch.object(_redis_stream, '_PAGE', 70):
      self.assertEqual(list(range(1, 2501)), self.read(self.reader(split)))

  def test_what_was_claimed_and_not_committed_is_not_lost(self):
    """Older than what the mark covers, but given after it was cut."""
    split = self.split()
    self.dead(1)
    self.add(2, 3)
    reader = self.reader(split)
    self.assertEqual([2], self.read(reader, 1))
    self.read(reader)
    mark = reader.get_checkpoint_mark()
    self.age(reader)
    self.assertEqual([1], self.read(reader))
    reader.close()
    again = self.reader(split, mark)
    self.assertEqual([1], self.read(again))
    committed = again.get_checkpoint_mark()
    again.close()
    self.assertEqual([], self.read(self.reader(split, committed)))

  def test_entries_of_a_former_job_are_claimed(self):
    self.add(1, 2, 3)
    former = self.reader(self.split())
    self.read(former, 1)
    former.close()
    self.age()
    reader = self.reader(self.split())
    self.assertEqual([1, 2, 3], self.read(reader))

  def test_never_claims_from_the_other_splits(self):
    """They may be slow; what they have read they will commit themselves."""
    self.add(1, 2, 3)
    one, other = self.source(num_splits=2, batch_size=2).split(20)
    slow = self.reader(one)
    self.read(slow, 1)
    self.age()
    reader = self.reader(other)
    self.assertEqual([3], self.read(reader))
    self.look_soon(reader)
    self.assertEqual([], self.read(reader))
    self.assertEqual([2], self.read(slow))

  def test_claims_once_among_splits(self):
    splits = self.source(num_splits=2, batch_size=5).split(20)
    self.dead(*range(1, 21))
    self.age()
    found = []
    readers = [self.reader(split) for split in splits]
    for reader in readers:
      reader.start()
    # Both have looked by now, and found what the other takes.
    for reader in readers:
      if reader._current:
        found.append(int(reader.get_current().fields[b'n']))
      found += self.read(reader)
    self.assertEqual(list(range(1, 21)), sorted(found))

  def test_claims_nothing_if_told_so(self):
    split = self.split(claim_idle_seconds=None)
    self.dead(1)
    self.age()
    self.assertEqual([], self.read(self.reader(split)))
    self.assertEqual([1], self.pending())

  def test_the_watermark_is_held_at_what_may_be_claimed(self):
    split = self.split()
    self.dead(1000, 1001)
    self.add(3000)
    reader = self.reader(split)
    self.assertEqual([3000], self.read(reader))
    self.assertEqual(event_time(1000), reader.get_watermark())
    self.age(reader)
    self.assertEqual([1000], self.read(reader, 1))
    self.assertLessEqual(reader.get_watermark(), event_time(1001))
    self.assertEqual([1001], self.read(reader))
    self.look_soon(reader)
    self.read(reader)
    self.assertGreater(reader.get_watermark(), event_time(10**9))

  def test_names_of_consumers_can_be_any_bytes(self):
    self.add(1)
    split = self.split()
    self.client.xreadgroup('g', b'\xff\xfe', {'s': '>'})
    self.age()
    self.assertEqual([1], self.read(self.reader(split)))


class LossTest(RedisTest):
  """Streams that were trimmed; groups and streams that are gone."""
  def test_pending_entries_that_were_trimmed(self):
    self.add(*range(1, 6))
    split = self.split()
    reader = self.reader(split)
    self.read(reader, 1)
    mark = reader.get_checkpoint_mark()
    reader.close()
    self.client.xtrim('s', maxlen=2, approximate=False)
    for _ in range(2):  # A retry must not get over it.
      with self.assertRaisesRegex(
          redisstreams.RedisStreamsTrimmedError,
          r"group 'g' of stream 's' at .*: 2 entries .* \(2-0, 3-0\) .*"
          'on_trimmed="skip"'):
        self.read(self.reader(split, mark))
    split._on_trimmed = 'skip'
    with self.assertLogs(level='WARNING') as logs:
      reader = self.reader(split, mark)
      self.assertEqual([4, 5], self.read(reader))
    self.assertIn('2 entries', logs.output[0])
    reader.get_checkpoint_mark().finalize_checkpoint()
    self.assertEqual([], self.pending())

  def test_claimable_entries_that_were_trimmed(self):
    self.add(1, 2)
    split = self.split()
    self.client.xreadgroup('g', 'dead', {'s': '>'})
    self.age()
    self.client.xdel('s', '1-0')
    for _ in range(2):
      with self.assertRaisesRegex(
          redisstreams.RedisStreamsTrimmedError, r'\(1-0\)'):
        self.read(self.reader(split))
    split._on_trimmed = 'skip'
    with self.assertLogs(level='WARNING'):
      self.assertEqual([2], self.read(self.reader(split)))

  def test_what_was_done_and_deleted_since_it_was_found_is_no_loss(self):
    split = self.split(batch_size=2)
    self.add(*range(1, 7))
    self.client.xreadgroup('g', 'slow', {'s': '>'})
    self.age()
    reader = self.reader(split)
    self.assertEqual([1, 2], self.read(reader, 2))
    self.client.xack('s', 'g', '4-0', '5-0')
    self.client.xdel('s', '5-0')
    self.assertEqual([3, 6], self.read(reader))

  def test_unread_entries_that_were_trimmed(self):
    """Case B56: what the position points to is gone."""
    self.add(1, 2)
    split = self.split()
    reader = self.reader(split)
    self.read(reader)
    mark = reader.get_checkpoint_mark()
    reader.close()
    self.add(*range(3, 10))
    self.client.xtrim('s', maxlen=3, approximate=False)
    for _ in range(2):
      with self.assertRaisesRegex(
          redisstreams.RedisStreamsTrimmedError,
          '4 entries behind 2-0 were trimmed') as caught:
        self.read(self.reader(split, mark))
    # Doing what it says helps.
    self.client.execute_command(
        'XGROUP SETID',
        *str(caught.exception).partition('XGROUP SETID ')[2].split())
    self.assertEqual([7, 8, 9], self.read(self.reader(split, mark)))

  def test_unread_entries_that_were_trimmed_can_be_skipped(self):
    split = self.split(on_trimmed='skip')
    self.add(1)
    self.client.xreadgroup('g', 'other', {'s': '>'})
    self.add(2, 3, 4)
    self.client.xtrim('s', maxlen=1, approximate=False)
    with self.assertLogs(level='WARNING') as logs:
      self.assertEqual([4], self.read(self.reader(split)))
    self.assertIn('2 entries behind 1-0', logs.output[0])

  def test_unread_entries_that_are_trimmed_while_it_reads(self):
    self.add(1)
    reader = self.reader(self.split())
    self.read(reader)
    self.add(2, 3, 4, 5)
    self.client.xtrim('s', maxlen=1, approximate=False)
    # It gets over the gap before it looks.
    self.assertEqual([5], self.read(reader))
    self.look_soon(reader)
    with self.assertRaisesRegex(
        redisstreams.RedisStreamsTrimmedError, '3 entries behind 5-0'):
      self.read(reader)

  def test_trimming_what_was_read_is_no_loss(self):
    split = self.split(batch_size=3)
    mark = None
    for first in range(1, 60, 5):
      self.add(*range(first, first + 5))
      reader = self.reader(split, mark)
      self.assertEqual(list(range(first, first + 5)), self.read(reader))
      mark = reader.get_checkpoint_mark()
      mark.finalize_checkpoint()
      self.look_soon(reader)
      self.read(reader)
      reader.close()
      self.client.xtrim('s', maxlen=0, approximate=False)

  def test_a_lost_group(self):
    self.add(1, 2)
    split = self.split()
    reader = self.reader(split)
    self.read(reader)
    mark = reader.get_checkpoint_mark()
    self.client.xgroup_destroy('s', 'g')
    self.client.xgroup_create('s', 'another')
    for opened in (reader, self.reader(split, mark)):
      with self.assertRaisesRegex(
          redisstreams.RedisStreamsGroupLostError,
          r"group 'g' of stream 's' .* has 'another'.* XGROUP CREATE s g 2-0\."
      ) as caught:
        self.read(opened)
    # Doing what it says helps.
    command = str(caught.exception).partition('make it: ')[2].split('. ')[0]
    self.client.execute_command(*command.split())
    self.add(3)
    self.assertEqual([3], self.read(self.reader(split, mark)))

  def test_a_group_that_is_lost_before_it_was_read_is_not_made_anew(self):
    """With start="$" that would leave out what came meanwhile."""
    split = self.split(start='$')
    self.client.xgroup_destroy('s', 'g')
    with self.assertRaises(redisstreams.RedisStreamsGroupLostError):
      self.read(self.reader(split))

  def test_a_lost_stream(self):
    self.add(1)
    split = self.split()
    reader = self.reader(split)
    self.read(reader)
    self.client.delete('s')
    for opened in (reader, self.reader(split, reader.get_checkpoint_mark())):
      with self.assertRaisesRegex(
          redisstreams.RedisStreamsStreamLostError,
          "stream 's' is not at .*XGROUP CREATE s g 1-0 MKSTREAM"):
        self.read(opened)

  def test_a_group_that_is_not_to_be_made(self):
    with self.assertRaises(redisstreams.RedisStreamsStreamLostError):
      self.split(create_group=False)
    self.add(1)
    with self.assertRaisesRegex(
        redisstreams.RedisStreamsGroupLostError, 'the stream has no group'):
      self.split(create_group=False)
    self.client.xgroup_create('s', 'g', '0')
    split = self.split(create_group=False)
    self.assertEqual([1], self.read(self.reader(split)))

  def test_a_key_that_is_no_stream(self):
    self.client.set('s', 'text')
    with self.assertRaisesRegex(redisstreams.RedisStreamsError, 'not one'):
      self.split()

  def test_a_mark_of_other_streams(self):
    self.add(1)
    reader = self.reader(self.split())
    self.read(reader)
    other = self.split(['t', 'u'])
    with self.assertRaisesRegex(
        redisstreams.RedisStreamsMarkError, 'reads t, u, but its mark is of s'):
      self.reader(other, reader.get_checkpoint_mark())


class AwayTest(RedisTest):
  """A server that does not serve, for now."""
  def setUp(self):
    super().setUp()
    self.add(*range(1, 5))
    self.one = self.split(batch_size=2)
    reader = self.reader(self.one)
    self.assertEqual([1], self.read(reader, 1))
    self.open = reader
    self.mark = reader.get_checkpoint_mark()

  def assert_retries(self, reader, told):
    with self.assertRaisesRegex(RetryLater, told) as caught:
      self.read(reader)
    reader.close()
    return caught.exception.seconds

  def test_killed_and_back(self):
    self.server.kill()
    delays = [self.assert_retries(self.open, 'does not serve')]
    for _ in range(9):
      delays.append(
          self.assert_retries(self.reader(self.one, self.mark), 'refused'))
    self.assertEqual(sorted(delays), delays)
    self.assertEqual((0.25, 15), (delays[0], delays[-1]))
    self.server.start()
    reader = self.reader(self.one, self.mark)
    self.assertEqual([2, 3, 4], self.read(reader))
    # The next time it begins with a short one.
    self.server.kill()
    self.assertEqual(0.25, self.assert_retries(reader, 'does not serve'))
    self.server.start()

  def test_hangs(self):
    self.one._settings._url += '?socket_timeout=2'
    reader = self.reader(self.one, self.mark)
    self.assertEqual([2], self.read(reader, 1))
    mark = reader.get_checkpoint_mark()
    self.read(reader, 1)
    os.kill(self.server.pid, signal.SIGSTOP)
    try:
      self.assert_retries(reader, 'does not serve')
    finally:
      os.kill(self.server.pid, signal.SIGCONT)
    self.assertEqual([3, 4], self.read(self.reader(self.one, mark)))

  def test_was_demoted(self):
    self.client.replicaof('127.0.0.1', '1')
    self.addCleanup(self.client.replicaof, 'NO', 'ONE')
    self.read(self.open, 1)
    self.assert_retries(self.open, 'does not serve')

  def test_is_full(self):
    self.client.config_set('maxmemory', '1')
    self.addCleanup(self.client.config_set, 'maxmemory', '0')
    # Reading and acknowledging go on; a group cannot be made.
    self.assertEqual([2, 3, 4], self.read(self.open))
    with self.assertRaisesRegex(
        redisstreams.RedisStreamsConnectionError, 'does not serve'):
      self.split('t')

  def test_is_away_before_the_first_read(self):
    self.server.kill()
    self.addCleanup(self.server.start)
    with self.assertRaisesRegex(
        redisstreams.RedisStreamsConnectionError, '127.0.0.1.*refused'):
      self.split()


class AccessTest(RedisTest):
  def setUp(self):
    super().setUp()
    self.add(1)
    self.set_user(
        'reset',
        'on',
        '>' + PASSWORD,
        '~s',
        *(
            '+' + word for word in (
                'xreadgroup xack xclaim xpending xrange xinfo xgroup exists '
                'time').split()))
    self.addCleanup(self.client.acl_deluser, 'reader')

  def set_user(self, *rules):
    self.client.execute_command('ACL SETUSER', 'reader', *rules)

  def url(self, password=PASSWORD):
    return f'redis://reader:{password}@127.0.0.1:{self.server.port}/0'

  def read_all(self, split):
    reader = self.reader(split)
    found = self.read(reader)
    reader.get_checkpoint_mark().finalize_checkpoint()
    return found

  def test_the_commands_that_errors_list_are_enough(self):
    self.assertEqual([1], self.read_all(self.split(url=self.url())))
    self.assertEqual([], self.pending())

  def test_the_password_can_be_an_argument_or_a_function(self):
    plain = f'redis://reader@127.0.0.1:{self.server.port}/0'
    for password in (PASSWORD, lambda: PASSWORD):
      self.split(url=plain, password=password)
    with self.assertRaises(redisstreams.RedisStreamsAccessError):
      self.split(url=plain)

  def test_a_wrong_password(self):
    for password in ('wrong', lambda: 'wrong'):
      with self.assertRaisesRegex(
          redisstreams.RedisStreamsAccessError, 'refuses the login'):
        self.split(
            url=f'redis://reader@127.0.0.1:{self.server.port}/0',
            password=password)

  def test_a_password_that_was_changed(self):
    """Fails, rather than trying for ever."""
    split = self.split(url=self.url())
    self.set_user('resetpass', '>other')
    with self.assertRaises(redisstreams.RedisStreamsAccessError):
      self.read(self.reader(split))

  def test_a_command_that_is_not_permitted(self):
    split = self.split(url=self.url())
    self.set_user('-xreadgroup')
    with self.assertRaisesRegex(
        redisstreams.RedisStreamsAccessError,
        'does not permit it.*XREADGROUP, XACK') as caught:
      self.read(self.reader(split))
    self.assertIn('xreadgroup', str(caught.exception))

  def test_a_key_that_is_not_permitted(self):
    with self.assertRaisesRegex(
        redisstreams.RedisStreamsAccessError, 'does not permit it'):
      self.split('other', url=self.url())

  def test_the_password_is_never_shown(self):
    """In texts, display data, logs and errors, whatever goes wrong."""
    shown = []
    plain = f'redis://reader@127.0.0.1:{self.server.port}/0'
    logs = self.enterContext(self.assertLogs(level='DEBUG'))
    logging.getLogger().debug('so that there is a line')
    for url, password in ((self.url(), None), (plain, PASSWORD),
                          (plain + f'?password={PASSWORD}', None)):
      read = ReadFromRedisStreams(url, 's', 'g', password=password)
      source = read._source
      split = source.split(1)[0]
      for thing in (read, source, split, source._settings):
        shown += [repr(thing), str(thing)]
      for thing in (read, source, split):
        items = DisplayData.create_from(thing).items
        shown += [str(item.get_dict()) for item in items]
        shown.append(repr(pickle.dumps([item.get_dict() for item in items])))
      reader = self.reader(split)
      self.read(reader)
      shown += [repr(reader), repr(reader.__dict__)]
      self.server.kill()
      for fail in (lambda: self.read(reader), lambda: source.split(1),
                   lambda: self.read(self.reader(split))):
        with self.assertRaises(Exception) as caught:
          fail()
        error = caught.exception
        while error is not None:
          shown += [str(error), repr(error)]
          error = error.__cause__ or error.__context__
      self.server.start()
      self.setUp()
    wrong = 'redis://reader:%s/%s@127.0.0.1:1' % (PASSWORD, PASSWORD)
    for url in (wrong, 'http://x:%s@y' % PASSWORD):
      with self.assertRaises(ValueError) as caught:
        ReadFromRedisStreams(url, 's', 'g')
      shown += [str(caught.exception), repr(caught.exception.__cause__)]
    shown += logs.output
    self.assertGreater(len(shown), 50)
    for text in shown:
      self.assertNotIn(PASSWORD, text)


class TlsTest(RedisTest):
  @classmethod
  def setUpClass(cls):
    folder = tempfile.mkdtemp()
    cls.addClassCleanup(subprocess.run, ['rm', '-r', folder], check=True)
    cls.certificate = os.path.join(folder, 'cert.pem')
    key = os.path.join(folder, 'key.pem')
    _make_certificate(cls.certificate, key)
    with socket.create_server(('127.0.0.1', 0)) as free:
      cls.tls_port = free.getsockname()[1]
    cls.server = RedisServer(
        '--tls-port', str(cls.tls_port), '--tls-cert-file', cls.certificate,
        '--tls-key-file', key, '--tls-auth-clients', 'no')
    cls.addClassCleanup(cls.server.stop)

  def test_reads_with_tls(self):
    self.add(1)
    split = self.split(
        url=f'rediss://127.0.0.1:{self.tls_port}/0?ssl_ca_certs='
        f'{self.certificate}')
    self.assertEqual([1], self.read(self.reader(split)))

  def test_a_certificate_that_nobody_vouches_for(self):
    with self.assertRaisesRegex(
        redisstreams.RedisStreamsAccessError, 'ssl_ca_certs=PATH'):
      self.split(url=f'rediss://127.0.0.1:{self.tls_port}/0')


def _make_certificate(certificate, key):
  private = ec.generate_private_key(ec.SECP256R1())
  name = x509.Name(
      [x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, '127.0.0.1')])
  now = datetime.datetime.now(datetime.timezone.utc)
  signed = (
      x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(
          private.public_key()).serial_number(1).not_valid_before(
              now - datetime.timedelta(days=1)).not_valid_after(
                  now + datetime.timedelta(days=1)).add_extension(
                      x509.SubjectAlternativeName([
                          x509.IPAddress(ipaddress.ip_address('127.0.0.1'))
                      ]),
                      critical=False).sign(private, hashes.SHA256()))
  with open(certificate, 'wb') as file:
    file.write(signed.public_bytes(serialization.Encoding.PEM))
  with open(key, 'wb') as file:
    file.write(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption()))


@needs_redis
class ClusterTest(unittest.TestCase):
  def test_is_refused_by_name(self):
    nodes = [RedisServer('--cluster-enabled', 'yes') for _ in range(2)]
    for node, slots in zip(nodes, ((0, 8191), (8192, 16383))):
      self.addCleanup(node.stop)
      node.client().execute_command('CLUSTER ADDSLOTSRANGE', *slots)
    here, there = nodes
    here.client().execute_command('CLUSTER MEET', '127.0.0.1', there.port)
    deadline = time.monotonic() + 30
    while here.client().execute_command(
        'CLUSTER INFO')['cluster_state'] != 'ok':
      self.assertLess(time.monotonic(), deadline)
      time.sleep(0.05)
    # Of the names, some belong to the other node.
    with self.assertRaisesRegex(
        redisstreams.RedisStreamsError, 'cluster, which is not supported'):
      RedisStreamsSource(here.url, list('abcdefgh'), 'g').split(20)


class BacklogTest(RedisTest):
  def test_is_what_is_left_and_0_at_the_end(self):
    """Cases B59, B71."""
    self.client.xadd('s', {'n': 'x' * 983}, id='1-0')
    for number in range(2, 41):
      self.client.xadd('s', {'n': 'x' * 983}, id=f'{number}-0')
    split = self.split(batch_size=10)
    self.assertEqual(40 * 1000, split.get_total_backlog_bytes(None))
    reader = self.reader(split)
    reader.start()
    self.assertEqual(39 * 1000, reader.get_split_backlog_bytes())
    for _ in range(35):
      reader.advance()
    reader._streams[0]._backlog = (0.0, None)  # Not the one of before.
    self.assertEqual(4 * 1000, reader.get_split_backlog_bytes())
    for _ in range(4):
      reader.advance()
    self.assertFalse(reader.advance())
    self.assertEqual(0, reader.get_split_backlog_bytes())
    self.assertEqual(0, split.get_total_backlog_bytes(None))

  def test_is_shared_among_splits(self):
    self.add(*range(1, 10))
    splits = self.source(num_splits=3).split(20)
    size = splits[0].get_total_backlog_bytes(None)
    self.assertEqual(9 * 18, 3 * size)
    reader = self.reader(splits[0])
    reader._plan = reader._plan._replace(batch_size=2)
    self.read(reader, 1)
    # One that was fetched, and a third of the seven that were not.
    self.assertEqual((1 + 3) * 18, reader.get_split_backlog_bytes())

  def test_is_unknown_if_the_server_does_not_know(self):
    self.add(*range(1, 10))
    split = self.split(start='2-0')
    self.client.xdel('s', '5-0')
    self.assertIsNone(split.get_total_backlog_bytes(None))
    self.client.xreadgroup('g', 'other', {'s': '>'})
    self.assertEqual(0, split.get_total_backlog_bytes(None))

  def test_of_trimmed_entries_is_nothing(self):
    """The server counts them as lag for ever."""
    self.add(*range(1, 10))
    split = self.split(on_trimmed='skip')
    reader = self.reader(split)
    self.client.xreadgroup('g', 'other', {'s': '>'}, count=1)
    self.client.xtrim('s', maxlen=2, approximate=False)
    self.assertEqual(2 * 18, split.get_total_backlog_bytes(None))
    with self.assertLogs(level='WARNING'):
      self.assertEqual([8, 9], self.read(reader))
    self.assertEqual(0, reader.get_split_backlog_bytes())
    self.assertEqual(0, split.get_total_backlog_bytes(None))
    # No more than there are, whatever it counts.
    self.add(10, 11)
    self.assertEqual(9 - 3 + 2, self.client.xinfo_groups('s')[0]['lag'])
    self.assertEqual(4 * 19, split.get_total_backlog_bytes(None))

  def test_is_known_if_all_that_is_left_is_unread(self):
    self.add(*range(1, 10))
    split = self.split(start='2-0')
    self.client.xtrim('s', maxlen=4, approximate=False)
    self.client.xdel('s', '8-0')
    self.assertIsNone(self.client.xinfo_groups('s')[0]['lag'])
    self.assertEqual(3 * 18, split.get_total_backlog_bytes(None))

  def test_opens_no_reader(self):
    """Case B70."""
    self.add(1)
    split = self.split()
    with mock.patch.object(
        RedisStreamsSource, 'create_reader', side_effect=AssertionError):
      self.assertEqual(18, split.get_total_backlog_bytes(None))
    self.assertEqual([], self.pending())


class WatermarkTest(RedisTest):
  def now(self):
    return Timestamp.of(time.time())

  def test_follows_the_entries_while_there_are_more(self):
    # Of those that were fetched, the next is known.
    self.add(1000, 2000, 3000, 4000)
    reader = self.reader(self.split(batch_size=2))
    self.assertEqual(MIN_TIMESTAMP, reader.get_watermark())
    for number in (2000, 2000, 4000):
      self.read(reader, 1)
      self.assertEqual(event_time(number), reader.get_watermark())

  def test_follows_the_clock_when_nothing_is_left(self):
    """Cases B57, B58: also where nothing ever came."""
    reader = self.reader(self.split(['s', 'empty'], idle_slack_seconds=7))
    before = self.now()
    self.read(reader)
    watermark = reader.get_watermark()
    # To the millisecond, as the server's entries have it.
    self.assertGreaterEqual(watermark, before - 7.001)
    self.assertLessEqual(watermark, self.now() - 7)

  def test_waits_for_what_was_fetched(self):
    self.add(1000, 2000, 3000, stream='a')
    self.add(4000, stream='b')
    reader = self.reader(self.split(['a', 'b']))
    for number in (2000, 3000, 4000):
      self.read(reader, 1)
      self.assertEqual(event_time(number), reader.get_watermark())
    self.read(reader, 1)
    self.assertGreater(reader.get_watermark(), event_time(10**9))

  def test_does_not_pass_what_comes_next(self):
    reader = self.reader(self.split(idle_slack_seconds=0))
    self.assertFalse(reader.start())
    for _ in range(50):
      watermark = reader.get_watermark()
      self.client.xadd('s', {'n': '1'})
      self.assertTrue(reader.advance())
      self.assertGreaterEqual(reader.get_current_timestamp(), watermark)
      # The server's clock has gone on since then.
      self.assertFalse(reader.advance())

  def test_stands_while_the_server_is_away(self):
    reader = self.reader(self.split())
    self.read(reader)
    before = reader.get_watermark()
    self.server.kill()
    self.addCleanup(self.server.start)
    with self.assertRaises(RetryLater):
      reader.advance()
    self.assertEqual(before, reader.get_watermark())

  def test_is_that_of_the_stream_that_is_behind(self):
    self.add(1000, 2000, 3000, stream='a')
    self.add(1500, stream='b')
    reader = self.reader(self.split(['a', 'b'], batch_size=2))
    self.read(reader, 3)  # 1000 and 2000 of a, 1500 of b.
    self.assertEqual(event_time(2000), reader.get_watermark())

  def test_does_not_wait_for_finalization(self):
    """Case B52."""
    reader = self.reader(self.split())
    self.add(1000)
    self.read(reader)
    first = reader.get_watermark()
    self.assertEqual([1000], self.pending())
    time.sleep(0.01)
    self.read(reader)
    self.assertGreater(reader.get_watermark(), first)


class ArgumentsTest(unittest.TestCase):
  def setUp(self):
    if _redis_testing.redis is None:
      self.skipTest(_redis_testing.HOW)

  def test_each_wrong_one_is_told(self):
    good = dict(url='redis://h/0', streams='s', group='g')
    ReadFromRedisStreams(**good)
    for name, value, error in (
        ('url', 5, TypeError), ('url', 'h:6379', ValueError),
        ('url', 'http://h', ValueError),
        ('url', 'redis://h?decode_responses=True', ValueError),
        ('streams', 5, TypeError), ('streams', [], ValueError),
        ('streams', '', ValueError), ('streams', ['a', 'a'], ValueError),
        ('streams', ['a', 5], TypeError), ('streams', {'a'}, TypeError),
        ('streams', '\ud800', ValueError),
        ('group', b'g', TypeError), ('group', '', ValueError),
        ('password', 5, TypeError), ('start', 0, TypeError),
        ('start', 'begin', ValueError), ('start', '1-', ValueError),
        ('create_group', 'no', TypeError), ('num_splits', 0, ValueError),
        ('num_splits', 2.0, TypeError), ('num_splits', True, TypeError),
        ('claim_idle_seconds', 0, ValueError),
        ('claim_idle_seconds', '5', TypeError),
        ('claim_idle_seconds', float('nan'), ValueError),
        ('on_trimmed', 'ignore', ValueError), ('batch_size', 0, ValueError),
        ('batch_size', None, TypeError),
        ('idle_slack_seconds', -1, ValueError),
        ('idle_slack_seconds', float('inf'), ValueError),
        ('poll_interval', -1, ValueError),
        ('max_records_per_bundle', 0, ValueError)):
      with self.subTest(name=name, value=value):
        with self.assertRaisesRegex(error, name):
          ReadFromRedisStreams(**{**good, name: value})

  def test_two_passwords(self):
    with self.assertRaisesRegex(ValueError, 'twice'):
      ReadFromRedisStreams('redis://:a@h', 's', 'g', password='b')

  def test_display_data_says_what_is_read(self):
    read = ReadFromRedisStreams('redis://h:1/2', ['s', 't'], 'g')
    shown = {
        item.key: item.value
        for item in DisplayData.create_from(read).items
    }
    self.assertEqual(('h:1', '2', 's, t', 'g', '0', 'fail'),
                     tuple(
                         shown[key] for key in (
                             'server', 'database', 'streams', 'group', 'start',
                             'on_trimmed')))

  def test_the_type_of_elements_is_known(self):
    entries_read = beam.Pipeline() | ReadFromRedisStreams(
        'redis://h', 's', 'g')
    self.assertIs(RedisStreamEntry, entries_read.element_type)
    entry = RedisStreamEntry('s', '1-0', {b'a': b'1'})
    coder = RedisStreamsSource('redis://h', 's', 'g').default_output_coder()
    self.assertEqual(entry, coder.decode(coder.encode(entry)))


class MissingLibraryTest(unittest.TestCase):
  def test_says_what_to_install(self):
    program = (
        'import sys\n'
        'sys.modules["redis"] = None\n'
        'from apache_beam.io import redisstreams\n'
        'for make in (redisstreams.ReadFromRedisStreams, '
        'redisstreams.RedisStreamsSource):\n'
        '  try:\n'
        '    make("redis://h", "s", "g")\n'
        '  except ImportError as exc:\n'
        '    print(exc)\n')
    output = subprocess.run([sys.executable, '-c', program],
                            capture_output=True,
                            text=True,
                            check=True).stdout
    self.assertEqual(2, output.count('pip install redis\n'), output)


if __name__ == '__main__':
  unittest.main()
