#!/usr/bin/env python3
# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Measures what the helpers for authors of sources cost a record.

Run it with a Python that has the dev wheel. Prints a table, in nanoseconds of
the process's CPU time a record: the median of five runs, beside what the same
work costs with the plainest means of Python.

Exit code: 0 done, 1 a helper gave wrong results.
"""

import argparse
import collections
import queue
import statistics
import sys
import threading
import time

from apache_beam.io.unbounded_source import AckLedger
from apache_beam.io.unbounded_source import BackgroundReader
from apache_beam.io.unbounded_source import IdleWatermark
from apache_beam.io.unbounded_source import OutOfOrdernessWatermark
from apache_beam.utils.timestamp import Timestamp

CHUNK = 100  # Records between two marks.
BUNDLE = 10_000  # Records between two finalizations.
BATCH = 500  # Records that a client gives at a time.


def ledger(records: int) -> int:
  """A record is added; a chunk cuts a receipt; a bundle finalizes one."""
  done = 0

  def acknowledge(ids):
    nonlocal done
    done += len(ids)

  kept = AckLedger(acknowledge)
  for n in range(records):
    kept.add(n)
    if n % CHUNK == CHUNK - 1:
      receipt = kept.cut()
      if n % BUNDLE == BUNDLE - 1:
        receipt.finalize()
  return done


def plain_list(records: int) -> int:
  """The same without receipts: one list, emptied after a bundle."""
  done = 0
  kept = []
  for n in range(records):
    kept.append(n)
    if n % CHUNK == CHUNK - 1:
      if n % BUNDLE == BUNDLE - 1:
        done += len(kept)
        kept = []
  return done


class Batches(BackgroundReader):
  """A client that always has a batch."""
  def __init__(self, records: int) -> None:
    super().__init__(capacity=1000)
    self._left = records

  def fetch(self):
    count = min(BATCH, self._left)
    self._left -= count
    if not self._left:
      self.finish()
    return [None] * count


class OneByOne(Batches):
  """The same, which yields."""
  def fetch(self):
    yield from super().fetch()


def read(kind, records: int) -> int:
  reader = kind(records)
  given = 0
  there = reader.start()
  while there or not reader.finished:
    given += there
    there = reader.advance()
  reader.close()
  return given


def plain_queue(records: int) -> int:
  """A thread that puts into a queue of the standard library."""
  items: queue.Queue = queue.Queue(maxsize=1000)

  def fetch():
    for _ in range(records):
      items.put(None)

  thread = threading.Thread(target=fetch)
  thread.start()
  given = 0
  while given < records:
    items.get()
    given += 1
  thread.join()
  return given


def no_thread(records: int) -> int:
  """No waiting and no thread: what a client gave is taken out of a deque."""
  items: collections.deque = collections.deque()
  given = 0
  while given < records:
    if not items:
      items.extend([None] * BATCH)
    items.popleft()
    given += 1
  return given


def watermark(records: int) -> int:
  """A record is observed; a chunk asks for the watermark."""
  timestamp = Timestamp(1_700_000_000)
  helper = IdleWatermark(OutOfOrdernessWatermark(10), 10)
  for n in range(records):
    helper.observe(timestamp)
    if n % CHUNK == CHUNK - 1:
      helper.value(timestamp, False)
  return records


CASES = [
    ('AckLedger: add, cut a chunk, finalize a bundle', ledger),
    ('a list, emptied after a bundle', plain_list),
    ('BackgroundReader, batches of 500', lambda n: read(Batches, n)),
    ('BackgroundReader, yielded one by one', lambda n: read(OneByOne, n)),
    ('queue.Queue between two threads', plain_queue),
    ('a deque without a thread', no_thread),
    ('IdleWatermark over OutOfOrdernessWatermark', watermark),
]


def main() -> int:
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
  parser.add_argument('--records', type=int, default=500_000)
  parser.add_argument('--repeats', type=int, default=5)
  arguments = parser.parse_args()
  # Whole batches, chunks and bundles, so that all can be counted.
  records = max(arguments.records // BUNDLE, 1) * BUNDLE
  nanoseconds = collections.defaultdict(list)
  for repeat in range(arguments.repeats):
    for name, case in CASES:
      print(f'run {repeat + 1}: {name}', file=sys.stderr)
      begun = time.process_time_ns()
      done = case(records)
      nanoseconds[name].append((time.process_time_ns() - begun) / records)
      if done != records:
        print(f'{name}: {done} records of {records}', file=sys.stderr)
        return 1
  print('| what | ns a record |')
  print('| --- | ---: |')
  for name, _ in CASES:
    print(f'| {name} | {statistics.median(nanoseconds[name]):,.0f} |')
  return 0


if __name__ == '__main__':
  sys.exit(main())
