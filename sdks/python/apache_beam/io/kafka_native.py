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

"""Reads Kafka from Python alone: no Java, no expansion service.

::

  import apache_beam as beam
  from apache_beam.io.kafka_native import ReadFromKafkaNative

  with beam.Pipeline() as p:
    _ = (
        p
        | ReadFromKafkaNative('broker:9092', 'orders', group_id='orders-beam')
        | beam.Map(lambda record: record.value)
        | beam.Map(print))

It stands on the package ``confluent-kafka`` (``pip install confluent-kafka``),
which workers need too. The name is not ``ReadFromKafka``: that one, in
``apache_beam.io.kafka``, is Java's read, with other arguments and elements; a
pipeline may use both.

What is promised:

* Every record of the topics is output, and none twice: the next offset of each
  partition is part of the pipeline's checkpoint. The consumer group has no say
  in it; offsets are committed to it after the runner has committed the records,
  for monitoring, and for a later job to begin at.
* Partitions are divided among splits by a fixed rule. One that is added to a
  topic while the pipeline runs is found within seconds and read from its begin.
* Brokers may go and come back. Meanwhile the read is idle, and its watermark
  stands.
* The watermark follows the clock only as long as the cluster says that nothing
  is left; see :class:`CreateTime`.
"""

import copy
import uuid
from typing import Any
from typing import Mapping
from typing import NamedTuple
from typing import Optional
from typing import Sequence
from typing import Union

from apache_beam import coders
from apache_beam import pvalue
from apache_beam.io import _kafka_cluster
from apache_beam.io._kafka_cluster import Cluster
from apache_beam.io._kafka_config import READ_COMMITTED
from apache_beam.io._kafka_config import ClientConfig
from apache_beam.io._kafka_config import names
from apache_beam.io._kafka_errors import KafkaAuthenticationError
from apache_beam.io._kafka_errors import KafkaAuthorizationError
from apache_beam.io._kafka_errors import KafkaConfigError
from apache_beam.io._kafka_errors import KafkaConnectionError
from apache_beam.io._kafka_errors import KafkaMarkError
from apache_beam.io._kafka_errors import KafkaOffsetBeyondEndError
from apache_beam.io._kafka_errors import KafkaOffsetExpiredError
from apache_beam.io._kafka_errors import KafkaSourceError
from apache_beam.io._kafka_errors import KafkaTimestampError
from apache_beam.io._kafka_errors import KafkaTopicMissingError
from apache_beam.io._kafka_errors import KafkaTopicReplacedError
from apache_beam.io._kafka_mark import KafkaMark
from apache_beam.io._kafka_mark import KafkaMarkCoder
from apache_beam.io._kafka_mark import Layout
from apache_beam.io._kafka_mark import TopicPartition
from apache_beam.io._kafka_reader import ASSUMED_RECORD_BYTES
from apache_beam.io._kafka_reader import KafkaReader
from apache_beam.io._kafka_records import CreateTime
from apache_beam.io._kafka_records import EventTimePolicy
from apache_beam.io._kafka_records import KafkaHeader
from apache_beam.io._kafka_records import KafkaRecord
from apache_beam.io._kafka_records import LogAppendTime
from apache_beam.io._kafka_records import RecordTime
from apache_beam.io._kafka_tending import EARLIEST
from apache_beam.io._kafka_tending import FAIL
from apache_beam.io._kafka_tending import LATEST
from apache_beam.io.unbounded_source import ReadFromUnboundedSource
from apache_beam.io.unbounded_source import UnboundedSource
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.transforms.ptransform import PTransform
from apache_beam.utils.timestamp import Timestamp

__all__ = [
    'CreateTime',
    'KafkaAuthenticationError',
    'KafkaAuthorizationError',
    'KafkaConfigError',
    'KafkaConnectionError',
    'KafkaHeader',
    'KafkaMark',
    'KafkaMarkCoder',
    'KafkaMarkError',
    'KafkaOffsetBeyondEndError',
    'KafkaOffsetExpiredError',
    'KafkaRecord',
    'KafkaSource',
    'KafkaSourceError',
    'KafkaTimestampError',
    'KafkaTopicMissingError',
    'KafkaTopicReplacedError',
    'LogAppendTime',
    'ReadFromKafkaNative',
    'RecordTime',
]

COMMITTED = 'committed'
_STARTS = (EARLIEST, LATEST, COMMITTED)
_POLICIES = (FAIL, EARLIEST, LATEST)


class _Part(NamedTuple):
  """A split: which one, and where it begins.

  Pickled with the source, which the runner keeps; so where "latest" was is
  decided once, and holds after a restart.
  """
  index: int
  count: int
  topics: dict[str, Optional[uuid.UUID]]
  # How many partitions each topic had: those are divided for good.
  known: dict[str, int]
  starts: dict[TopicPartition, int]
  # How many offsets there were to read.
  backlog: int

  def owns(self, topic: str, number: int) -> bool:
    """Whether a partition that was found later belongs to this split.

    By its number and the place of its topic among the topics: that must not
    depend on what else there is.
    """
    if number < self.known[topic]:
      return (topic, number) in self.starts
    return (list(self.known).index(topic) + number) % self.count == self.index


class KafkaSource(UnboundedSource):
  """The records of some Kafka topics; for ``beam.io.Read``.

  The arguments are those of :class:`ReadFromKafkaNative`.
  """
  def __init__(
      self,
      bootstrap_servers: Union[str, Sequence[str]],
      topics: Union[str, Sequence[str]],
      group_id: Optional[str] = None,
      start: Union[str, Timestamp] = EARLIEST,
      event_time: Optional[EventTimePolicy] = None,
      isolation_level: str = READ_COMMITTED,
      on_expired_offset: str = FAIL,
      num_splits: Optional[int] = None,
      consumer_config: Optional[Mapping[str, Any]] = None) -> None:
    _kafka_cluster.require_library()
    self._config = ClientConfig(
        bootstrap_servers, group_id, isolation_level, consumer_config)
    self.topics = names('topics', topics)
    if len(set(self.topics)) != len(self.topics):
      raise ValueError(f'topics={topics!r} names a topic twice.')
    if start not in _STARTS and not isinstance(start, Timestamp):
      raise ValueError(
          f'start={start!r} must be {_or(_STARTS)}, or a Timestamp.')
    if start == COMMITTED and group_id is None:
      raise ValueError(
          f'start={start!r} needs a group_id: the group that has committed '
          'offsets.')
    self._start = start
    if event_time is None:
      event_time = CreateTime()
    if not isinstance(event_time, EventTimePolicy):
      raise TypeError(
          f'event_time={event_time!r} must be CreateTime(), LogAppendTime() or '
          'RecordTime(function).')
    self._event_time = event_time
    if on_expired_offset not in _POLICIES:
      raise ValueError(
          f'on_expired_offset={on_expired_offset!r} must be {_or(_POLICIES)}.')
    self._on_expired = on_expired_offset
    if num_splits is not None:
      if isinstance(num_splits, bool) or not isinstance(num_splits, int):
        raise TypeError(f'num_splits={num_splits!r} must be an int, or None.')
      if num_splits < 1:
        raise ValueError(f'num_splits={num_splits!r} must be 1 or more.')
    self._num_splits = num_splits
    self._part: Optional[_Part] = None

  def split(
      self,
      desired_num_splits: int,
      options: Optional[PipelineOptions] = None) -> list['KafkaSource']:
    """Asks the cluster for the partitions, and where each begins.

    They are dealt out in turn. Those that are added to a topic later belong to
    a split by a rule that needs no dealer, see ``_Part.owns``.

    Raises:
      KafkaSourceError: by what went wrong.
    """
    if self._part is not None:
      return [self]
    cluster = Cluster(self._config)
    described = cluster.must(
        lambda: cluster.describe(self.topics), 'the partitions')
    identities = {name: described[name].identity for name in self.topics}
    known = {name: len(described[name].partitions) for name in self.topics}
    partitions = [(name, number) for name in self.topics
                  for number in described[name].partitions]
    starts = self._starts(cluster, partitions)
    ends = cluster.must(
        lambda: cluster.ends(partitions, self._config.read_committed),
        'the latest offsets')
    count = min(self._num_splits or len(partitions), desired_num_splits)
    parts = []
    for index in range(count):
      own = {key: starts[key] for key in partitions[index::count]}
      backlog = sum(max(ends[key] - start, 0) for key, start in own.items())
      parts.append(
          self._with_part(
              _Part(index, count, identities, known, own, backlog)))
    return parts

  def _starts(self, cluster: Cluster,
              partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The first offset to read, of each partition."""
    def begins(of: list[TopicPartition]) -> dict[TopicPartition, int]:
      return cluster.must(
          lambda: cluster.beginnings(of), 'the earliest offsets')

    if self._start == EARLIEST:
      return begins(partitions)
    if self._start == COMMITTED:
      found = cluster.committed(partitions)
      return {**begins([p for p in partitions if p not in found]), **found}
    ends = cluster.must(
        lambda: cluster.ends(partitions, self._config.read_committed),
        'the latest offsets')
    if self._start == LATEST:
      return ends
    # Asked for after the ends: what is written in between is not left out.
    found = cluster.must(
        lambda: cluster.at_time(partitions, self._start.micros // 1000),
        'the offsets at the time of start')
    return {
        key: ends[key] if offset < 0 else offset
        for key, offset in found.items()
    }

  def _with_part(self, part: _Part) -> 'KafkaSource':
    source = copy.copy(self)
    source._part = part
    return source

  def create_reader(
      self,
      options: Optional[PipelineOptions],
      checkpoint_mark: Optional[KafkaMark]) -> KafkaReader:
    """Makes a reader that begins at the offsets of the mark.

    It connects when it is started, and does not wait for that.
    """
    part = self._part or self.split(1)[0]._part
    layout = Layout(
        part.index, part.count, part.topics, tuple(part.starts))
    positions = dict(part.starts)
    if checkpoint_mark is not None:
      other = checkpoint_mark.layout
      if ((other.index, other.count, other.topics) !=
          (layout.index, layout.count, layout.topics)):
        raise KafkaMarkError(
            f'{layout} of topics {_listed(layout.topics)} got the mark of '
            f'{other} of topics {_listed(other.topics)}. Records would be lost '
            'or read twice. Keep the topics, their order and num_splits as '
            'they were when the job began, or start a new job.')
      positions.update(checkpoint_mark.positions)
    return KafkaReader(
        self._config,
        self._event_time,
        self._on_expired,
        layout,
        positions,
        part.owns)

  def get_total_backlog_bytes(
      self, options: Optional[PipelineOptions]) -> Optional[int]:
    """What there was to read when the source was split, by a rough guess."""
    return (
        None if self._part is None else self._part.backlog *
        ASSUMED_RECORD_BYTES)

  def get_checkpoint_mark_coder(self) -> KafkaMarkCoder:
    return KafkaMarkCoder()

  def default_output_coder(self) -> coders.Coder:
    return coders.registry.get_coder(KafkaRecord)

  def display_data(self) -> dict[str, Any]:
    return {
        'bootstrap_servers': DisplayDataItem(
            self._config.bootstrap_servers, label='Bootstrap servers'),
        'topics': DisplayDataItem(', '.join(self.topics), label='Topics'),
        'group_id': DisplayDataItem(
            self._config.group_id, label='Consumer group').drop_if_none(),
        'start': DisplayDataItem(str(self._start), label='Start'),
        'event_time': DisplayDataItem(
            repr(self._event_time), label='Event time'),
        'isolation_level': DisplayDataItem(
            self._config.isolation_level, label='Isolation level'),
        'on_expired_offset': DisplayDataItem(
            self._on_expired, label='On an expired offset'),
    }

  def __repr__(self) -> str:
    part = '' if self._part is None else (
        f', split {self._part.index + 1} of {self._part.count}')
    return (
        f'KafkaSource({self._config.bootstrap_servers!r}, '
        f'{list(self.topics)}{part})')


class ReadFromKafkaNative(PTransform):
  """Reads Kafka topics into an unbounded PCollection of :class:`KafkaRecord`.

  Args:
    bootstrap_servers: ``host:port`` of a broker, or several.
    topics: the topic to read, or several. They must exist. Not to be changed
      or reordered when a pipeline is updated.
    group_id: a consumer group that the offsets are committed to, once the
      runner has committed the records. None: no group, nothing is committed.
      The group must not have members that subscribe.
    start: where a new job begins, in each partition: ``'earliest'``,
      ``'latest'``, ``'committed'`` (the offsets of the group, the earliest
      where it has none; what the job before still held in its state is not
      read again), or a ``Timestamp`` (the first record that is not older). A
      job that is restarted with its checkpoint goes on from that.
    event_time: :class:`CreateTime` (the default, with a delay of a minute),
      :class:`LogAppendTime` or :class:`RecordTime`.
    isolation_level: ``'read_committed'`` leaves out records of transactions
      that were aborted, and waits for those that are open;
      ``'read_uncommitted'`` reads all.
    on_expired_offset: what to do if records were deleted before they were
      read. ``'fail'``: raise :class:`KafkaOffsetExpiredError`. ``'earliest'``:
      go on with the first that is left; ``'latest'``: with what comes next.
      Offsets that were passed over are counted (metric ``expired_offsets``).
    num_splits: how many consumers share the partitions; default: one a
      partition, up to 20, which is also the greatest number. A topic that will
      have more partitions can be given more splits than it has now.
    consumer_config: more options of the client by their names in librdkafka,
      such as those of TLS and SASL. They are never shown. Those that would
      make the read inexact are refused.
    poll_interval, max_records_per_bundle, max_read_time_seconds: as for
      :class:`~apache_beam.io.unbounded_source.ReadFromUnboundedSource`.

  Raises:
    ImportError: at construction, if confluent-kafka is not installed.
    TypeError, ValueError: at construction; the message names the argument.

  While the pipeline runs, it fails with a :class:`KafkaSourceError` as the
  cause, named for what is wrong.

  Metrics, in the namespace ``apache_beam.io.kafka_native``: gauges
  ``lag_records_<topic>-<partition>``; counters ``expired_offsets``,
  ``partitions_added``, ``failed_commits``.
  """
  def __init__(
      self,
      bootstrap_servers: Union[str, Sequence[str]],
      topics: Union[str, Sequence[str]],
      *,
      group_id: Optional[str] = None,
      start: Union[str, Timestamp] = EARLIEST,
      event_time: Optional[EventTimePolicy] = None,
      isolation_level: str = READ_COMMITTED,
      on_expired_offset: str = FAIL,
      num_splits: Optional[int] = None,
      consumer_config: Optional[Mapping[str, Any]] = None,
      poll_interval: float = 1.0,
      max_records_per_bundle: int = 10000,
      max_read_time_seconds: float = 10.0) -> None:
    super().__init__()
    self._source = KafkaSource(
        bootstrap_servers,
        topics,
        group_id=group_id,
        start=start,
        event_time=event_time,
        isolation_level=isolation_level,
        on_expired_offset=on_expired_offset,
        num_splits=num_splits,
        consumer_config=consumer_config)
    self._read = ReadFromUnboundedSource(
        self._source,
        poll_interval=poll_interval,
        max_records_per_bundle=max_records_per_bundle,
        max_read_time_seconds=max_read_time_seconds)

  def expand(self, pbegin: pvalue.PBegin) -> pvalue.PCollection:
    return pbegin | 'Read' >> self._read

  def display_data(self) -> dict[str, Any]:
    return self._source.display_data()


def _or(words: Sequence[str]) -> str:
  return ', '.join(map(repr, words[:-1])) + f' or {words[-1]!r}'


def _listed(topics: Mapping[str, Optional[uuid.UUID]]) -> str:
  return ', '.join(
      name if identity is None else f'{name} ({identity})'
      for name, identity in topics.items())
