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

"""The partitions of one split, and how far each was read."""

from typing import Iterator
from typing import Mapping
from typing import Optional

from apache_beam.io._kafka_mark import Layout
from apache_beam.io._kafka_mark import TopicPartition
from apache_beam.io._kafka_records import EventTimePolicy
from apache_beam.utils.timestamp import Timestamp


class Partition:
  """How far one partition was read, and what is known of its end.

  Attributes:
    position: the next offset to deliver. It covers records that were
      delivered, and what lies behind them that never can be: markers and
      records of aborted transactions. What was only fetched is no part of it.
    fetched: the next offset that the client may give.
    end: the end of what can be delivered, as last told; None: not yet.
    high: the end of what was written, open transactions included; as of
      ``asked_at``.
    lost: the client says that it cannot read at the position.
  """
  def __init__(
      self, key: TopicPartition, position: int,
      policy: EventTimePolicy) -> None:
    self.key = key
    self.topic, self.number = key
    self.position = position
    self.fetched = position
    self.end: Optional[int] = None
    self.high: Optional[int] = None
    self.asked_at = 0.0
    self.lost = False
    self._watermark = policy.watermark()

  @property
  def lag(self) -> Optional[int]:
    """How many offsets are left; None: not known yet."""
    return None if self.end is None else max(self.end - self.position, 0)

  def observe(self, micros: int) -> None:
    """Notes the greatest event time of some records that were delivered."""
    self._watermark.observe(Timestamp(micros=micros))

  def watermark(self) -> Timestamp:
    """A time that no record from the position on lies before.

    Nothing was left when the cluster was asked: then what comes was written
    later than that. While a transaction is open, there is something that has
    been written and will still come; so it is not enough to have read all that
    can be delivered.
    """
    caught_up = (
        self.high is not None and self.position >= self.high and not self.lost)
    return self._watermark.value(Timestamp(self.asked_at), caught_up)

  def __str__(self) -> str:
    return f'{self.topic}-{self.number}'


class Partitions:
  """The partitions of a split by topic and number, in their order."""
  def __init__(
      self,
      layout: Layout,
      positions: Mapping[TopicPartition, int],
      policy: EventTimePolicy) -> None:
    self._policy = policy
    self._by_key: dict[TopicPartition, Partition] = {}
    self.layout = layout
    self.add(positions)

  def add(self, positions: Mapping[TopicPartition, int]) -> None:
    for key, position in positions.items():
      self._by_key[key] = Partition(key, position, self._policy)
    self._by_key = dict(sorted(self._by_key.items()))
    self.lay_out()

  def lay_out(self) -> None:
    """Makes the layout anew, after partitions or topic ids have changed."""
    old = self.layout
    self.layout = Layout(
        old.index, old.count, old.topics, tuple(self._by_key))

  def find(self, topic: str, number: int) -> Optional[Partition]:
    return self._by_key.get((topic, number))

  def keys(self) -> list[TopicPartition]:
    return list(self._by_key)

  def __getitem__(self, key: TopicPartition) -> Partition:
    return self._by_key[key]

  def __contains__(self, key: TopicPartition) -> bool:
    return key in self._by_key

  def __iter__(self) -> Iterator[Partition]:
    return iter(self._by_key.values())

  def __len__(self) -> int:
    return len(self._by_key)
