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


"""What an unbounded read tells of itself.

Purpose: one call at the end of a bundle, since each metric that a bundle
  touches costs it some time, however often it is touched.
Guarantees: a bundle that fails counts for nothing.
Threads: ``add`` of a tally from any; all else from the thread of a bundle.

What happens outside of bundles (marks are finalized) is kept in tallies until
the next bundle of the process tells it.
"""

import threading
import time

from apache_beam.io._unbounded_reader import OPEN_READERS
from apache_beam.metrics import Metrics
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

NAMESPACE = 'apache_beam.io.unbounded_source'


def _counter(name: str):
  return Metrics.counter(NAMESPACE, name)


_RECORDS = _counter('records')
_BYTES = _counter('estimated_bytes')
_EMPTY_POLLS = _counter('empty_polls')
_CHECKPOINTS = _counter('self_checkpoints')
_RETRIES = _counter('retries_later')
_LATE = _counter('late_records')
_FINALIZED = _counter('finalized')
_FAILED = _counter('failed_finalizations')
_OPENED = _counter('readers_opened')
_OPEN = Metrics.gauge(NAMESPACE, 'open_readers')
_BACKLOG = Metrics.distribution(NAMESPACE, 'backlog_bytes')
_LAG = Metrics.distribution(NAMESPACE, 'watermark_lag_millis')


class Tally:
  """Counts what no bundle has told yet."""
  def __init__(self) -> None:
    self._lock = threading.Lock()
    self._count = 0

  def add(self) -> None:
    with self._lock:
      self._count += 1

  def take(self) -> int:
    with self._lock:
      count, self._count = self._count, 0
    return count


FINALIZED = Tally()
FAILED_FINALIZATIONS = Tally()


class BundleMetrics:
  """What one bundle of one split did.

  Attributes:
    records: how many records it output.
    record_bytes: how large they are, from a sample of them.
    late: how many of them lie before the watermark of their time.
    opened: how many readers it opened.
    empty: whether it ended since the reader had nothing.
    put_off: whether it ended since the source asked to be left alone.
    paused: whether it left the rest to another bundle.
    backlog: bytes that are left, if that is known.
  """

  __slots__ = (
      'records',
      'record_bytes',
      'late',
      'opened',
      'empty',
      'put_off',
      'paused',
      'backlog')

  def __init__(self) -> None:
    self.records = 0
    self.record_bytes = 0
    self.late = 0
    self.opened = 0
    self.empty = False
    self.put_off = False
    self.paused = False
    self.backlog = None

  def tell(self, watermark: Timestamp) -> None:
    """Updates the metrics that changed.

    Args:
      watermark: of the split, at the end of the bundle.
    """
    for counter, count in (
        (_RECORDS, self.records),
        (_BYTES, self.record_bytes),
        (_EMPTY_POLLS, self.empty),
        (_CHECKPOINTS, self.paused),
        (_RETRIES, self.put_off),
        (_LATE, self.late),
        (_OPENED, self.opened),
    ):
      if count:
        counter.inc(int(count))
    if self.backlog is not None:
      _BACKLOG.update(self.backlog)
    if MIN_TIMESTAMP.micros < watermark.micros < MAX_TIMESTAMP.micros:
      _LAG.update(max(0, round(time.time() * 1000) - watermark.micros // 1000))


def tell_of_the_process() -> None:
  """Updates what belongs to no bundle: finalizations, open readers."""
  for counter, tally in ((_FINALIZED, FINALIZED),
                         (_FAILED, FAILED_FINALIZATIONS)):
    count = tally.take()
    if count:
      counter.inc(count)
  open_readers = OPEN_READERS.take_change()
  if open_readers is not None:
    _OPEN.set(open_readers)
