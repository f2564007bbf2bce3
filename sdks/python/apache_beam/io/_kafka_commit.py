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

"""Commits the offsets of a reader to a consumer group."""

import logging
import threading
from typing import Any

from apache_beam.io._kafka_cluster import confluent_kafka
from apache_beam.io._kafka_mark import TopicPartition

_LOGGER = logging.getLogger(__name__)


class Committer:
  """Sends offsets to the group, never smaller ones than before.

  Threads: :meth:`commit` and :meth:`close` from any; the others from the one
    that reads, which the client calls :meth:`report` on.
  Lock: held while a commit is handed to the client, which does not wait for
    the brokers.
  """
  def __init__(self, consumer: Any) -> None:
    self._consumer = consumer
    self._lock = threading.Lock()
    self._committed: dict[TopicPartition, int] = {}
    self._failures = 0
    self._warned = False

  def commit(self, positions: dict[TopicPartition, int]) -> None:
    """Sends off what is further than what was committed before.

    Does nothing once the reader is closed. Marks come in any order, and a late
    one must not make the group look as if it had gone back.
    """
    with self._lock:
      if self._consumer is None:
        return
      ahead = {
          key: offset
          for key,
          offset in positions.items()
          if offset > self._committed.get(key, -1)
      }
      if not ahead:
        return
      self._consumer.commit(
          offsets=[
              confluent_kafka.TopicPartition(topic, partition, offset)
              for (topic, partition), offset in ahead.items()
          ],
          asynchronous=True)
      self._committed.update(ahead)

  def report(self, error: Any, partitions: Any) -> None:
    """Hears what became of a commit."""
    if error is None:
      error = next((p.error for p in partitions if p.error is not None), None)
    if error is None:
      return
    self._failures += 1
    if not self._warned:
      self._warned = True
      _LOGGER.warning(
          'Offsets could not be committed to the consumer group: %s. The read '
          'goes on, its positions are part of the pipeline\'s checkpoint; but '
          'what the group shows lags behind. If it has members that subscribe, '
          'give the pipeline a group of its own. Further failures are only '
          'counted (metric failed_commits).',
          error)

  def take_failures(self) -> int:
    """How many commits failed since the last time."""
    failures, self._failures = self._failures, 0
    return failures

  def close(self) -> None:
    with self._lock:
      self._consumer = None
