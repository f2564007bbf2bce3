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

"""Keeps a reader in touch with its cluster, without ever waiting for it.

Purpose: learns where the partitions end, which were added, whether a topic is
  gone or was made anew, and where to go on when records have expired.
Guarantees: what a partition is told of its end was so at ``asked_at`` or later;
  a cluster that does not answer changes nothing.
Threads: that of the reader.
"""

import logging
import time
from typing import Any
from typing import Callable
from typing import Optional

from apache_beam.io import _kafka_cluster
from apache_beam.io._kafka_cluster import Answer
from apache_beam.io._kafka_cluster import Cluster
from apache_beam.io._kafka_cluster import Patience
from apache_beam.io._kafka_cluster import confluent_kafka
from apache_beam.io._kafka_errors import KafkaOffsetBeyondEndError
from apache_beam.io._kafka_errors import KafkaOffsetExpiredError
from apache_beam.io._kafka_errors import KafkaTopicReplacedError
from apache_beam.io._kafka_mark import TopicPartition
from apache_beam.io._kafka_partitions import Partition
from apache_beam.io._kafka_partitions import Partitions
from apache_beam.metrics import Metrics

_LOGGER = logging.getLogger(__name__)

NAMESPACE = 'apache_beam.io.kafka_native'

# How often the cluster is asked where the partitions end, and which there are.
ENDS_SECONDS = 0.5
DISCOVERY_SECONDS = 5.0

FAIL = 'fail'
EARLIEST = 'earliest'
LATEST = 'latest'


class Tending:
  """See the head of the module.

  Args:
    cluster: whom to ask.
    consumer: the client that reads; partitions are assigned to it here.
    partitions: what is read; kept up to date here.
    owns: whether a partition, by topic and number, is for this split.
    read_committed: whether the end is that of committed transactions.
    on_expired: ``fail``, ``earliest`` or ``latest``.

  Attributes:
    complete_at: when it was last certain that all partitions of this split are
      known; None: not yet.
  """
  def __init__(
      self,
      cluster: Cluster,
      consumer: Any,
      partitions: Partitions,
      owns: Callable[[str, int], bool],
      read_committed: bool,
      on_expired: str) -> None:
    self._cluster = cluster
    self._consumer = consumer
    self._partitions = partitions
    self._owns = owns
    self._read_committed = read_committed
    self._on_expired = on_expired
    self.complete_at: Optional[float] = None
    self._patience = Patience()
    self._ends: list[Answer] = []
    self._topics: Optional[Answer] = None
    self._bounds: list[Answer] = []
    self._ask_ends_at = 0.0
    self._ask_topics_at = 0.0

  def tend(self) -> bool:
    """Hears what was answered, and asks what is due.

    Returns:
      Whether it was told where the partitions end.

    Raises:
      KafkaSourceError: by what is wrong.
    """
    self._patience.check()
    heard = bool(self._ends) and all(answer.done for answer in self._ends)
    if heard:
      self._hear_ends()
    if self._topics is not None and self._topics.done:
      self._hear_topics()
    if self._bounds and all(answer.done for answer in self._bounds):
      self._hear_bounds()
    now = time.monotonic()
    if now >= self._ask_ends_at:
      self._ask_ends_at = now + ENDS_SECONDS
      self._ask(now)
    return heard

  def _ask(self, now: float) -> None:
    self._cluster.serve()
    for error in self._cluster.take_trouble():
      self.note_trouble(error)
    if self._topics is None and now >= self._ask_topics_at:
      self._ask_topics_at = now + DISCOVERY_SECONDS
      self._topics = self._cluster.describe(self._partitions.layout.topics)
    if not self._ends:
      keys = self._partitions.keys()
      self._ends = [self._cluster.ends(keys, self._read_committed)]
      if self._read_committed:
        # Asked for after the other: what was committed in between then only
        # makes the partition look less caught up than it is.
        self._ends.append(self._cluster.ends(keys, False))
    lost = [p.key for p in self._partitions if p.lost]
    if lost and not self._bounds:
      self._bounds = [
          self._cluster.beginnings(lost),
          self._cluster.ends(lost, self._read_committed)
      ]

  # -- Troubles

  def note_trouble(
      self, error: Any, partition: Optional[Partition] = None) -> None:
    """Notes what the client says of a partition, or of its connections.

    Raises:
      KafkaSourceError: the client cannot go on.
    """
    where = (
        f'{self._partitions.layout} of ' +
        ', '.join(self._partitions.layout.topics)
        if partition is None else str(partition))
    if error.fatal():
      raise self._cluster.named(error, where)
    if _kafka_cluster.is_authentication(error):
      self._patience.note('connection', self._cluster.named(error, where))
    elif partition is not None:
      self._note(partition.key, error, where)
    # The rest passes by itself, and the client logs it.

  def readable(self, partition: Partition) -> None:
    """Notes that a partition gave records."""
    self._patience.over(partition.key)

  def _note(self, what: Any, error: Any, where: str) -> None:
    if _kafka_cluster.is_missing(error) or _kafka_cluster.is_unauthorized(
        error):
      self._patience.note(what, self._cluster.named(error, where))

  # -- Answers

  def _hear_ends(self) -> None:
    answers, self._ends = self._ends, []
    ends, _ = answers[0].take()
    highs, _ = answers[-1].take()
    if highs:
      self._patience.over('connection')
    for key, end in ends.items():
      partition = self._partitions[key]
      partition.end = end
      if key in highs:
        partition.high = max(highs[key], end)
        partition.asked_at = answers[0].asked_at

  def _hear_topics(self) -> None:
    answer, self._topics = self._topics, None
    topics, errors = answer.take()
    known = self._partitions.layout.topics
    new = []
    for name, topic in topics.items():
      self._patience.over(name)
      if topic.identity is not None and topic.identity != known[name]:
        if known[name] is not None:
          raise self._replaced(name, topic.identity)
        known[name] = topic.identity
        self._partitions.lay_out()
      new += [
          (name, number) for number in topic.partitions
          if (name, number) not in self._partitions and self._owns(name, number)
      ]
    for name, error in errors.items():
      self._note(name, error, f'topic {name}')
    if new:
      self._add(new)
    elif not errors:
      self.complete_at = answer.asked_at

  def _replaced(self, name: str, identity: Any) -> Exception:
    layout = self._partitions.layout
    return KafkaTopicReplacedError(
        f'The topic {name} was deleted and made anew: its id was '
        f'{layout.topics[name]}, and is {identity}. The offsets that {layout} '
        'has read to mean nothing in it. Start a new job to read the new '
        'topic.')

  def _add(self, keys: list[TopicPartition]) -> None:
    """Takes up partitions that were added to a topic, from their begin."""
    self._partitions.add({key: 0 for key in keys})
    self._consumer.incremental_assign(
        [confluent_kafka.TopicPartition(*key, 0) for key in keys])
    count_metric('partitions_added', len(keys))
    self._ask_topics_at = 0.0

  def _hear_bounds(self) -> None:
    (firsts, _), (lasts, _) = [answer.take() for answer in self._bounds]
    self._bounds = []
    for key in firsts.keys() & lasts.keys():
      self._find(self._partitions[key], firsts[key], lasts[key])

  def _find(self, partition: Partition, first: int, last: int) -> None:
    """Decides where to go on with a partition that could not be read."""
    position = partition.position
    if position > last:
      raise KafkaOffsetBeyondEndError(
          f'{partition} was read up to offset {position}, but ends at {last} '
          'now: its end was cut off by the election of a leader that lacked '
          'it, or the topic was made anew. Which records came twice or never '
          'cannot be told. Start a new job.')
    if position < first:
      if self._on_expired == FAIL:
        raise KafkaOffsetExpiredError(
            f'{partition}: offset {position} is the next to read, but the '
            f'earliest that is left is {first}. Records in between were '
            'deleted before they were read (retention.ms, retention.bytes, '
            'DeleteRecords). Keep them for longer. To go on without them, '
            'update the pipeline with on_expired_offset="earliest", or '
            '"latest" to skip the rest too.')
      position = first if self._on_expired == EARLIEST else last
      _LOGGER.warning(
          '%s: offset %d has expired, the read goes on at %d '
          '(on_expired_offset=%r).',
          partition,
          partition.position,
          position,
          self._on_expired)
      count_metric('expired_offsets', position - partition.position)
    partition.lost = False
    partition.position = partition.fetched = position
    goal = confluent_kafka.TopicPartition(*partition.key, position)
    self._consumer.incremental_unassign([goal])
    self._consumer.incremental_assign([goal])


def count_metric(name: str, count: int) -> None:
  if count:
    Metrics.counter(NAMESPACE, name).inc(count)
