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

"""Reads the partitions of one split of a Kafka source.

Purpose: turns what the client library has fetched, in its own threads, into
  records, and knows at any record how far it has come.
Guarantees: positions and watermarks are about what was delivered, never about
  what was only fetched. Nothing waits for the cluster.
Threads: the bundle's. What a mark commits may come from another one.
"""

import time
from typing import Any
from typing import Callable
from typing import Mapping
from typing import Optional

from apache_beam.io._kafka_cluster import Cluster
from apache_beam.io._kafka_cluster import KafkaError
from apache_beam.io._kafka_cluster import confluent_kafka
from apache_beam.io._kafka_cluster import make_consumer
from apache_beam.io._kafka_commit import Committer
from apache_beam.io._kafka_config import ClientConfig
from apache_beam.io._kafka_errors import KafkaTimestampError
from apache_beam.io._kafka_mark import KafkaMark
from apache_beam.io._kafka_mark import Layout
from apache_beam.io._kafka_mark import TopicPartition
from apache_beam.io._kafka_partitions import Partition
from apache_beam.io._kafka_partitions import Partitions
from apache_beam.io._kafka_records import NO_TIME
from apache_beam.io._kafka_records import EventTimePolicy
from apache_beam.io._kafka_records import KafkaHeader
from apache_beam.io._kafka_records import KafkaRecord
from apache_beam.io._kafka_records import kafka_time
from apache_beam.io._kafka_tending import NAMESPACE
from apache_beam.io._kafka_tending import Tending
from apache_beam.io._kafka_tending import count_metric
from apache_beam.io.unbounded_source import UnboundedReader
from apache_beam.metrics import Metrics
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

# One call of the client gives so many messages at most. More would cost more
# memory and no less time.
_BATCH = 500
# While there should be more, an idle reader is asked again so soon, and then
# after twice as long each time.
_FIRST_POLL_DELAY = 0.01
_LAST_POLL_DELAY = 0.64
_LOST = -1
# How large a record is, before one was seen.
ASSUMED_RECORD_BYTES = 100

_NEW = tuple.__new__


class KafkaReader(UnboundedReader):
  """See the head of the module.

  Args:
    config: of the clients.
    policy: where event times come from.
    on_expired: what to do if records were deleted before they were read.
    layout: which split this is, and the topics with their ids.
    positions: where to begin, of each partition that is known.
    owns: whether a partition, by topic and number, is for this split.
    clock: seconds since 1970.
  """
  def __init__(
      self,
      config: ClientConfig,
      policy: EventTimePolicy,
      on_expired: str,
      layout: Layout,
      positions: Mapping[TopicPartition, int],
      owns: Callable[[str, int], bool],
      clock: Callable[[], float] = time.time) -> None:
    self._config = config
    self._policy = policy
    self._on_expired = on_expired
    self._owns = owns
    self._clock = clock
    self._partitions = Partitions(layout, positions, policy)
    self._consumer: Any = None
    self._tending: Optional[Tending] = None
    self._committer: Optional[Committer] = None
    self._closed = False

    # What the client gave last: records, their event times, and runs of
    # records of one partition. Delivered through _at, accounted for before
    # _settled and before the run _run.
    self._records: list[KafkaRecord] = []
    self._times: list[Timestamp] = []
    self._micros: list[int] = []
    self._runs: list[tuple[int, Partition, Optional[int]]] = []
    self._at = -1
    self._settled = 0
    self._run = 0
    # What came behind the records, to be raised after them.
    self._error: Optional[Exception] = None
    self._record_bytes = 0.0
    self._idle_polls = 0
    self._watermark = MIN_TIMESTAMP

  def start(self) -> bool:
    cluster = Cluster(self._config, self._clock)
    self._consumer = make_consumer(
        self._config,
        len(self._partitions),
        error_cb=self._on_error,
        on_commit=self._on_commit)
    self._tending = Tending(
        cluster,
        self._consumer,
        self._partitions,
        self._owns,
        self._config.read_committed,
        self._on_expired)
    if self._config.group_id is not None:
      self._committer = Committer(self._consumer)
    self._consumer.assign([
        confluent_kafka.TopicPartition(*p.key, p.position)
        for p in self._partitions
    ])
    return self.advance()

  def advance(self) -> bool:
    at = self._at + 1
    if at < len(self._records):
      self._at = at
      return True
    return self._fetch()

  def get_current(self) -> KafkaRecord:
    return self._records[self._at]

  def get_current_timestamp(self) -> Timestamp:
    return self._times[self._at]

  def get_checkpoint_mark(self) -> KafkaMark:
    self._settle()
    return KafkaMark(
        self._partitions.layout,
        tuple(p.position for p in self._partitions),
        self._committer)

  def get_watermark(self) -> Timestamp:
    self._settle()
    self._tend()
    complete_at = self._tending.complete_at
    if complete_at is None:
      return self._watermark
    # A partition that was made since then may hold records of that time.
    watermark = Timestamp(complete_at) - self._policy.delay
    for partition in self._partitions:
      watermark = min(watermark, partition.watermark())
    self._watermark = max(self._watermark, watermark)
    return self._watermark

  def get_split_backlog_bytes(self) -> Optional[int]:
    self._settle()
    lags = [p.lag for p in self._partitions]
    if None in lags:
      return None
    return round(sum(lags) * (self._record_bytes or ASSUMED_RECORD_BYTES))

  def next_poll_delay(self) -> Optional[float]:
    """Soon, while the cluster should have more or has not answered yet."""
    if all(p.lag == 0 for p in self._partitions):
      return None
    delay = _FIRST_POLL_DELAY * 2**max(self._idle_polls - 1, 0)
    return delay if delay <= _LAST_POLL_DELAY else None

  def close(self) -> None:
    if self._closed:
      return
    self._closed = True
    if self._committer is not None:
      self._committer.close()
    if self._consumer is not None:
      self._consumer.close()
    # Its clients and its thread go with it.
    self._tending = None

  def _fetch(self) -> bool:
    """Takes what the client has fetched; steps to the first record of it."""
    self._settle()
    self._raise_error()
    self._tend()
    while True:
      messages = self._consumer.consume(_BATCH, timeout=0)
      if not messages:
        self._idle_polls = min(self._idle_polls + 1, 30)
        self._raise_error()
        # An idle reader keeps no records.
        self._take([])
        return False
      self._take(messages)
      if self._records:
        self._idle_polls = 0
        self._at = 0
        return True
      # Only ends and errors; there may be more behind them.
      self._settle()
      self._raise_error()

  def _raise_error(self) -> None:
    if self._error is not None:
      raise self._error

  def _take(self, messages: list[Any]) -> None:
    """Makes records of messages. The inner loop; what is odd here is fast."""
    records: list[KafkaRecord] = []
    times: list[Timestamp] = []
    micros: list[int] = []
    runs: list[tuple[int, Partition, Optional[int]]] = []
    self._records, self._times, self._micros = records, times, micros
    self._runs = runs
    self._at, self._settled, self._run = -1, 0, 0
    time_of = self._policy.time_of
    per_record = self._policy.per_record
    one_topic = len(self._partitions.layout.topics) == 1
    partition: Optional[Partition] = None
    topic, number = '', -1
    last_stamp = last_written = event_time = event_micros = None
    offset = -1
    for message in messages:
      if message.error() is not None:
        if partition is not None:
          partition.fetched = offset + 1
          partition = None
        self._event(message, len(records))
        continue
      if (partition is None or message.partition() != number or
          not (one_topic or message.topic() == topic)):
        if partition is not None:
          partition.fetched = offset + 1
        topic, number = message.topic(), message.partition()
        partition = self._partitions.find(topic, number)
        # What is assigned anew may be given again from where it was left.
        if partition is None or message.offset() < partition.fetched:
          partition = None
          continue
        topic = partition.topic
        runs.append((len(records), partition, None))
      offset = message.offset()
      stamp = message.timestamp()
      headers = message.headers()
      if stamp == last_stamp and not per_record:
        record = _NEW(
            KafkaRecord,
            (
                topic,
                number,
                offset,
                last_written,
                message.key(),
                message.value(),
                [] if not headers else [
                    _NEW(KafkaHeader, header) for header in headers
                ]))
      else:
        kind, milliseconds = stamp
        written = (
            MIN_TIMESTAMP if kind == NO_TIME else kafka_time(milliseconds))
        record = KafkaRecord(
            topic,
            number,
            offset,
            written or MIN_TIMESTAMP,
            message.key(),
            message.value(), [KafkaHeader(*header) for header in headers or ()])
        try:
          if written is None:
            raise KafkaTimestampError(
                f'{topic}-{number} at offset {offset} has the timestamp '
                f'{milliseconds} ms, which no window can hold. The producer '
                'may have taken another unit.')
          event_time = time_of(record, kind)
        except KafkaTimestampError as exc:
          # Those before it are delivered first.
          self._error = exc
          break
        last_stamp, last_written = stamp, written
        event_micros = event_time.micros
      records.append(record)
      times.append(event_time)
      micros.append(event_micros)
    if partition is not None:
      partition.fetched = offset + 1
    if records:
      self._weigh(records[-1])

  def _weigh(self, record: KafkaRecord) -> None:
    """Keeps a mean of sizes, by a sample of one in a batch."""
    size = len(record.key or b'') + len(record.value or b'') + sum(
        len(key) + len(value or b'') for key, value in record.headers)
    size = max(size, 1)
    if not self._record_bytes:
      self._record_bytes = float(size)
    else:
      self._record_bytes += (size - self._record_bytes) / 10

  def _event(self, message: Any, at: int) -> None:
    """Something else than a record, behind so many records of the batch."""
    error = message.error()
    partition = self._partitions.find(message.topic(), message.partition())
    if error.code() == KafkaError._PARTITION_EOF:
      if partition is not None and message.offset() >= partition.fetched:
        partition.fetched = message.offset()
        self._runs.append((at, partition, message.offset()))
    elif error.code() in (
        KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
      if partition is not None:
        self._runs.append((at, partition, _LOST))
    else:
      self._note_trouble(error, partition)

  def _settle(self) -> None:
    """Accounts for what was delivered since the last time."""
    upto = self._at + 1
    if self._settled == upto and self._run == len(self._runs):
      return
    runs = self._runs
    now = None
    while self._run < len(runs):
      start, partition, event = runs[self._run]
      if event is not None:
        if start > upto:
          break
        if event < 0:
          partition.lost = True
        else:
          partition.position = max(partition.position, event)
        self._run += 1
        continue
      end = (
          runs[self._run + 1][0] if self._run + 1 < len(runs) else len(
              self._records))
      begin, stop = max(start, self._settled), min(end, upto)
      if begin < stop:
        if now is None:
          now = int(self._clock() * 1e6)
        partition.position = self._records[stop - 1].offset + 1
        # No time that has not come yet: a single clock that is wrong would
        # make the records of all others late.
        partition.observe(min(max(self._micros[begin:stop]), now))
        self._tending.readable(partition)
      if stop < end:
        break
      self._run += 1
    self._settled = upto

  def _note_trouble(
      self, error: Any, partition: Optional[Partition] = None) -> None:
    try:
      self._tending.note_trouble(error, partition)
    except Exception as exc:  # pylint: disable=broad-except
      # From within a call of the client; raised once that has returned.
      self._error = exc

  def _on_error(self, error: Any) -> None:
    if self._tending is not None:
      self._note_trouble(error)

  def _on_commit(self, error: Any, partitions: Any) -> None:
    if self._committer is not None:
      self._committer.report(error, partitions)

  def _tend(self) -> None:
    if not self._tending.tend():
      return
    for partition in self._partitions:
      if partition.lag is not None:
        Metrics.gauge(NAMESPACE, f'lag_records_{partition}').set(partition.lag)
    if self._committer is not None:
      count_metric('failed_commits', self._committer.take_failures())
