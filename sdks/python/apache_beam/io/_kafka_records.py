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

"""Records of Kafka as elements, and where their event times come from."""

from typing import Callable
from typing import NamedTuple
from typing import Optional
from typing import Sequence

from apache_beam import coders
from apache_beam.io._kafka_errors import KafkaTimestampError
from apache_beam.io.unbounded_source import IdleWatermark
from apache_beam.io.unbounded_source import OutOfOrdernessWatermark
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

# What the client library calls the kinds of timestamps.
NO_TIME = 0
CREATE_TIME = 1
LOG_APPEND_TIME = 2


class KafkaHeader(NamedTuple):
  """A header of a record; its key need not be unique."""
  key: str
  value: Optional[bytes]


class KafkaRecord(NamedTuple):
  """A record of Kafka.

  Attributes:
    topic, partition, offset: where it lies.
    timestamp: the one that Kafka has for it, of the kind that the topic is
      set up for; ``MIN_TIMESTAMP`` if it has none.
    key, value: None if there is none; a value of None deletes the key where a
      topic is compacted.
    headers: in their order.
  """
  topic: str
  partition: int
  offset: int
  timestamp: Timestamp
  key: Optional[bytes]
  value: Optional[bytes]
  headers: Sequence[KafkaHeader]


# A schema coder: compact, deterministic, and readable by other languages.
coders.registry.register_coder(KafkaRecord, coders.RowCoder)


class EventTimePolicy:
  """Where event times come from, and how late a record may be.

  Not made to be subclassed: use one of those below.

  Attributes:
    delay: seconds. No record comes so much later, in the order of its
      partition, than one whose event time is greater; and none is written so
      much later than its event time.
  """
  def __init__(self, argument: str, delay: float) -> None:
    if isinstance(delay, bool) or not isinstance(delay, (int, float)):
      raise TypeError(f'{argument}={delay!r} must be a number of seconds.')
    if not 0 <= delay < 1e9:
      raise ValueError(
          f'{argument}={delay!r} must be a number of seconds, 0 or more.')
    self.delay = float(delay)

  def watermark(self) -> IdleWatermark:
    """That of one partition."""
    return IdleWatermark(OutOfOrdernessWatermark(self.delay), self.delay)

  def time_of(self, record: KafkaRecord, kind: int) -> Timestamp:
    """The event time of a record whose timestamp is of that kind.

    Called: for each record whose timestamp differs from that of the one
      before, or for each if ``per_record``.

    Raises:
      KafkaTimestampError: it has none.
    """
    raise NotImplementedError

  # Whether the time depends on more than the record's timestamp.
  per_record = False

  def __repr__(self) -> str:
    return f'{type(self).__name__}({self.delay:g})'

  def __eq__(self, other):
    return type(self) is type(other) and self.__dict__ == other.__dict__

  def __hash__(self):
    return hash((type(self), self.delay))


class CreateTime(EventTimePolicy):
  """The time that the producer gave, usually that of its clock.

  Where a topic is set up for log-append time, that is taken.

  Args:
    max_delay_seconds: how long after its time a record may be written to its
      partition, by retries and buffers of the producer and by clocks that
      differ. More holds windows open for longer; less makes records late.
  """
  def __init__(self, max_delay_seconds: float = 60.0) -> None:
    super().__init__('max_delay_seconds', max_delay_seconds)

  def time_of(self, record: KafkaRecord, kind: int) -> Timestamp:
    if kind == NO_TIME:
      raise _no_time(
          record,
          'the record has none',
          'Take it from the record: event_time=RecordTime(function)')
    return record.timestamp


class LogAppendTime(EventTimePolicy):
  """The time at which the broker wrote the record.

  Args:
    slack_seconds: how much the clocks of brokers and workers may differ. They
      matter when a partition moves to another broker, and when it is idle.

  A record of a topic that is not set up for it is a
  :class:`KafkaTimestampError`.
  """
  def __init__(self, slack_seconds: float = 2.0) -> None:
    super().__init__('slack_seconds', slack_seconds)

  def time_of(self, record: KafkaRecord, kind: int) -> Timestamp:
    if kind != LOG_APPEND_TIME:
      raise _no_time(
          record,
          'the record has no log-append time',
          'Set message.timestamp.type=LogAppendTime for the topic, or take '
          'event_time=CreateTime()')
    return record.timestamp


class RecordTime(EventTimePolicy):
  """A time that is computed from the record.

  Args:
    function: takes a :class:`KafkaRecord`, returns a ``Timestamp``. If it
      raises, the read fails and names the record: nothing is dropped.
    max_delay_seconds: as for :class:`CreateTime`.
  """
  per_record = True

  def __init__(
      self,
      function: Callable[[KafkaRecord], Timestamp],
      max_delay_seconds: float = 60.0) -> None:
    super().__init__('max_delay_seconds', max_delay_seconds)
    if not callable(function):
      raise TypeError(
          f'function={function!r} must take a KafkaRecord and return its '
          'Timestamp.')
    self.function = function

  def time_of(self, record: KafkaRecord, kind: int) -> Timestamp:
    try:
      time = self.function(record)
    except Exception as exc:
      raise _no_time(
          record, f'the function of RecordTime raised {exc!r}',
          _MEND) from exc
    if not isinstance(time, Timestamp):
      raise _no_time(
          record,
          f'the function of RecordTime returned a {type(time).__name__}, not '
          'a Timestamp',
          _MEND)
    if not MIN_TIMESTAMP <= time < MAX_TIMESTAMP:
      raise _no_time(
          record,
          f'the function of RecordTime returned {time!r}, which no window '
          'can hold',
          _MEND)
    return time


_MEND = (
    'Have it return a time for every record; the read resumes with this one '
    'when the pipeline is updated')


def _no_time(record: KafkaRecord, what: str, remedy: str) -> Exception:
  return KafkaTimestampError(
      f'{record.topic}-{record.partition} at offset {record.offset} has no '
      f'event time: {what}. {remedy}.')


def kafka_time(milliseconds: int) -> Optional[Timestamp]:
  """The time of so many milliseconds since 1970; None if there is none such.

  Producers may write any number; one of microseconds, by mistake, is a time
  that Beam cannot hold.
  """
  micros = milliseconds * 1000
  if not MIN_TIMESTAMP.micros <= micros < MAX_TIMESTAMP.micros:
    return None
  return Timestamp(micros=micros)
