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

"""Questions to a Kafka cluster: which partitions, where they begin and end.

Purpose: asks without waiting while a read runs, and with waiting before one
  begins.
Guarantees: an answer is about a time not before it was asked; a cluster that
  cannot be reached gives none.
Threads: the clients have their own, and offsets are asked for on one of ours;
  what is here is used by one at a time.
"""

import logging
import time
import uuid
from concurrent import futures
from typing import Any
from typing import Callable
from typing import Iterable
from typing import NamedTuple
from typing import Optional

from apache_beam.io._kafka_config import READ_COMMITTED
from apache_beam.io._kafka_config import READ_UNCOMMITTED
from apache_beam.io._kafka_config import ClientConfig
from apache_beam.io._kafka_errors import KafkaAuthenticationError
from apache_beam.io._kafka_errors import KafkaAuthorizationError
from apache_beam.io._kafka_errors import KafkaConnectionError
from apache_beam.io._kafka_errors import KafkaSourceError
from apache_beam.io._kafka_errors import KafkaTopicMissingError
from apache_beam.io._kafka_mark import TopicPartition

try:
  import confluent_kafka
  from confluent_kafka import KafkaError
  from confluent_kafka import admin
except ImportError:
  confluent_kafka = None
  KafkaError = None
  admin = None

_LOGGER = logging.getLogger(__name__)

# Before a read begins. Long enough for a cluster that is just starting.
CONNECT_SECONDS = 30.0
# While it runs: then it is asked anew.
ANSWER_SECONDS = 5.0
# How long a topic may be missing or forbidden, or a password wrong, before that
# is an error: a cluster that is just starting may say so for a moment.
PATIENCE_SECONDS = 10.0
# One line in so many seconds, of each kind of event that a client logs.
LOG_SECONDS = 30.0
# How many errors of connections are kept until somebody asks for them.
_TROUBLES = 100


def require_library() -> None:
  """Raises if the client library is not installed, and says how to."""
  if confluent_kafka is None:
    raise ImportError(
        'Reading Kafka natively needs the package confluent-kafka, where the '
        'pipeline is made and on its workers: pip install confluent-kafka')


class ClientLog:
  """Takes what a client logs, at most one line of a kind in a while.

  While brokers are away it would be several in a second.
  """
  def __init__(self, config: ClientConfig) -> None:
    self._config = config
    self._last: dict[Any, float] = {}

  def log(self, level: int, message: str, *args: Any) -> None:
    """Called by the client, with what kind of event it is as the first word."""
    kind = args[:1]
    now = time.monotonic()
    if now - self._last.get(kind, -LOG_SECONDS) < LOG_SECONDS:
      return
    self._last[kind] = now
    _LOGGER.log(level, '%s', self._config.scrub(message % args))


class Topic(NamedTuple):
  """A topic as the cluster describes it."""
  identity: Optional[uuid.UUID]
  partitions: tuple[int, ...]


class Answer:
  """What was asked, until all of it is known.

  Attributes:
    asked_at: when, by the clock of the asker; what is answered was so then or
      later.
  """
  def __init__(
      self,
      asked_at: float,
      asked: dict[Any, futures.Future],
      read: Callable[[Any, Any], Any]) -> None:
    self.asked_at = asked_at
    self._asked = asked
    self._read = read

  @property
  def done(self) -> bool:
    return all(future.done() for future in self._asked.values())

  def take(self) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """What is known by key, and the client's errors by key."""
    found, errors = {}, {}
    for key, future in self._asked.items():
      try:
        found[key] = self._read(key, future.result(timeout=0))
      except confluent_kafka.KafkaException as exc:
        errors[key] = exc.args[0]
      except futures.TimeoutError:
        errors[key] = KafkaError(KafkaError._TIMED_OUT)
    return found, errors

  def wait(self, seconds: float) -> None:
    futures.wait(set(self._asked.values()), seconds)


def make_consumer(
    config: ClientConfig,
    partitions: int,
    log: Optional[ClientLog] = None,
    **more: Any) -> Any:
  """A consumer for so many partitions, none of them assigned yet.

  Args:
    config: its settings.
    partitions: how many it is to read.
    log: what it logs to, if that is shared.
    more: callbacks, and settings that are not those of the config.

  Raises:
    KafkaConfigError: the library does not take the settings.
  """
  try:
    return confluent_kafka.Consumer(
        {
            **config.consumer(partitions), **more
        },
        logger=log or ClientLog(config))
  except Exception as exc:
    raise config.refused(exc) from None


class Offsets:
  """Asks for offsets, on a thread of its own, by a consumer of its own.

  Not by an administrative client, though that need not wait: its
  ``list_offsets`` crashes the process now and then (librdkafka, at least to
  2.16). The thread that calls begins with the request; if the client hears of
  topics in that moment, its own thread ends it, and frees what the other goes
  on with.

  Args:
    config: of the consumers.
    log: what they log to.
  """
  def __init__(self, config: ClientConfig, log: ClientLog) -> None:
    self._config = config
    self._log = log
    # Its thread goes when nothing refers to this object any more.
    self._thread = futures.ThreadPoolExecutor(1, 'kafka-offsets')
    self._consumers: dict[str, Any] = {}

  def ask(
      self, partitions: Iterable[TopicPartition], what: int,
      isolation_level: str) -> futures.Future:
    """Asks for an offset of each partition.

    Args:
      partitions: by topic and number.
      what: milliseconds since 1970, or ``OFFSET_BEGINNING``, ``OFFSET_END``.
      isolation_level: whether an end is that of what is committed.

    Returns:
      The client's partitions by key, in time.
    """
    asked = [
        confluent_kafka.TopicPartition(*partition, what)
        for partition in partitions
    ]
    return self._thread.submit(
        _ask_for_offsets,
        self._consumers,
        asked,
        isolation_level,
        self._config,
        self._log)


def _ask_for_offsets(
    consumers: dict[str, Any],
    asked: list[Any],
    isolation_level: str,
    config: ClientConfig,
    log: ClientLog) -> dict[TopicPartition, Any]:
  consumer = consumers.get(isolation_level)
  if consumer is None:
    consumer = consumers[isolation_level] = make_consumer(
        config, 1, log, **{'isolation.level': isolation_level})
  # Nothing is assigned: this takes only what it has to log and to tell.
  consumer.poll(0)
  for first in (True, False):
    try:
      found = consumer.offsets_for_times(asked, timeout=ANSWER_SECONDS)
      missing = {
          one.topic
          for one in found if one.error is not None and is_missing(one.error)
      }
    except confluent_kafka.KafkaException as exc:
      if not first or not is_missing(exc.args[0]):
        raise
      missing = {one.topic for one in asked}
    if not first or not missing:
      break
    # The consumer remembers how many partitions a topic had.
    for topic in missing:
      consumer.list_topics(topic, timeout=ANSWER_SECONDS)
  return {(one.topic, one.partition): one for one in found}


def _read_offset(key: TopicPartition, found: dict[TopicPartition, Any]) -> int:
  if found[key].error is not None:
    raise confluent_kafka.KafkaException(found[key].error)
  return found[key].offset


class Cluster:
  """A client that asks. See the head of the module."""
  def __init__(
      self, config: ClientConfig,
      clock: Callable[[], float] = time.time) -> None:
    require_library()
    self._config = config
    self._clock = clock
    # Not a method: the client would hold this object, and live for ever.
    trouble: list[Any] = []
    self._trouble = trouble

    def note(error: Any) -> None:
      if len(trouble) < _TROUBLES:
        trouble.append(error)

    settings = {**config.admin(), 'error_cb': note}
    log = ClientLog(config)
    try:
      self._client = admin.AdminClient(settings, logger=log)
    except Exception as exc:
      raise config.refused(exc) from None
    self._offsets = Offsets(config, log)

  def serve(self) -> None:
    """Lets the client report trouble and log."""
    self._client.poll(0)

  def take_trouble(self) -> list[Any]:
    """What the client said of its connections since the last time."""
    trouble = self._trouble[:]
    self._trouble.clear()
    return trouble

  def describe(self, topics: Iterable[str]) -> Answer:
    """Asks for topics: gives a :class:`Topic` by name."""
    asked_at = self._clock()
    return Answer(
        asked_at,
        self._client.describe_topics(
            confluent_kafka.TopicCollection(list(topics)),
            request_timeout=ANSWER_SECONDS),
        _read_topic)

  def ends(
      self,
      partitions: Iterable[TopicPartition],
      committed: bool) -> Answer:
    """Asks for the offset behind the last record.

    Args:
      committed: the last record that is not part of an open transaction nor
        behind such a one.
    """
    return self._ask_offsets(
        partitions,
        confluent_kafka.OFFSET_END,
        READ_COMMITTED if committed else READ_UNCOMMITTED)

  def beginnings(self, partitions: Iterable[TopicPartition]) -> Answer:
    """Asks for the offset of the first record that is still there."""
    return self._ask_offsets(partitions, confluent_kafka.OFFSET_BEGINNING)

  def at_time(
      self,
      partitions: Iterable[TopicPartition],
      milliseconds: int) -> Answer:
    """Asks for the first record of that time or later; -1: there is none."""
    # Less has a meaning of its own. No record is older.
    return self._ask_offsets(partitions, max(milliseconds, 0))

  def _ask_offsets(
      self,
      partitions: Iterable[TopicPartition],
      what: int,
      isolation_level: str = READ_UNCOMMITTED) -> Answer:
    keys = list(partitions)
    asked_at = self._clock()
    if not keys:
      return Answer(asked_at, {}, _read_offset)
    future = self._offsets.ask(keys, what, isolation_level)
    return Answer(asked_at, dict.fromkeys(keys, future), _read_offset)

  def committed(
      self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The offsets that the group has committed, where it has; waits.

    By a consumer of that group: an administrative client crashes the process
    if the group's coordinator is still loading (librdkafka issue 5040, open as
    of librdkafka 2.16).
    """
    asked = [confluent_kafka.TopicPartition(*p) for p in partitions]
    deadline = time.monotonic() + CONNECT_SECONDS
    consumer = make_consumer(self._config, 1)
    try:
      while True:
        try:
          found = consumer.committed(asked, timeout=ANSWER_SECONDS)
          break
        except confluent_kafka.KafkaException as exc:
          error = exc.args[0]
          if not _is_passing(error) or time.monotonic() >= deadline:
            raise self.named(error, 'the committed offsets') from None
          time.sleep(0.1)
    finally:
      consumer.close()
    for one in found:
      if one.error is not None:
        raise self.named(
            one.error,
            f'the committed offset of {one.topic}-{one.partition}')
    return {
        (one.topic, one.partition): one.offset
        for one in found
        if one.offset >= 0
    }

  def must(self, ask: Callable[[], Answer], what: str) -> dict[Any, Any]:
    """Asks and waits, again while the cluster is just starting.

    Raises:
      KafkaSourceError: by what went wrong.
    """
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
      answer = ask()
      while not answer.done and time.monotonic() < deadline:
        answer.wait(0.1)
        self.serve()
        for error in self.take_trouble():
          if is_authentication(error):
            raise self.named(error, what)
      found, errors = answer.take()
      if not errors:
        return found
      lasting = [key for key in errors if not _is_passing(errors[key])]
      if lasting or time.monotonic() >= deadline:
        key = (lasting or list(errors))[0]
        raise self.named(errors[key], f'{what} of {_shown(key)}')
      time.sleep(0.1)

  def named(self, error: Any, what: str) -> KafkaSourceError:
    """What to raise for an error of the client."""
    servers = self._config.bootstrap_servers
    told = self._config.scrub(error.str())
    where = f'Kafka at {servers}, {what}: {error.name()}: {told}.'
    if is_authentication(error):
      return KafkaAuthenticationError(
          f'{where} Look at security.protocol and the sasl.* and ssl.* options '
          'of consumer_config, and at the rights of the principal.')
    if is_missing(error):
      return KafkaTopicMissingError(
          f'{where} Correct the name, or make the topic: the source never '
          'does. If it was deleted, its records cannot be read any more; start '
          'a new job without it.')
    if is_unauthorized(error):
      return KafkaAuthorizationError(
          f'{where} The principal needs Describe and Read on each topic, and '
          'Read on the group if there is a group_id.')
    if _is_passing(error):
      return KafkaConnectionError(
          f'{where} Check bootstrap_servers, and that the workers reach each '
          'broker under the address that it advertises.')
    return KafkaSourceError(where)


class Patience:
  """Troubles that are no errors yet, since when, and what error they become."""
  def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
    self._clock = clock
    self._since: dict[Any, tuple[float, Exception]] = {}

  def note(self, what: Any, error: Exception) -> None:
    self._since.setdefault(what, (self._clock(), error))

  def over(self, what: Any) -> None:
    self._since.pop(what, None)

  def check(self) -> None:
    """Raises the error of a trouble that has lasted too long."""
    for since, error in self._since.values():
      if self._clock() - since >= PATIENCE_SECONDS:
        raise error


def _read_topic(name: str, description: Any) -> Topic:
  del name  # The description is of that one.
  identity = description.topic_id
  number = (
      None if identity is None else
      ((identity.get_most_significant_bits() % (1 << 64)) << 64) +
      identity.get_least_significant_bits() % (1 << 64))
  return Topic(
      uuid.UUID(int=number) if number else None,
      tuple(sorted(part.id for part in description.partitions)))


def _shown(key: Any) -> str:
  return '-'.join(map(str, key)) if isinstance(key, tuple) else str(key)


def is_authentication(error: Any) -> bool:
  return error.code() in (
      KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)


def is_missing(error: Any) -> bool:
  return error.code() in (
      KafkaError.UNKNOWN_TOPIC_OR_PART,
      KafkaError._UNKNOWN_TOPIC,
      KafkaError._UNKNOWN_PARTITION)


def is_unauthorized(error: Any) -> bool:
  return error.code() in (
      KafkaError.TOPIC_AUTHORIZATION_FAILED,
      KafkaError.GROUP_AUTHORIZATION_FAILED,
      KafkaError.CLUSTER_AUTHORIZATION_FAILED)


def _is_passing(error: Any) -> bool:
  """Whether it is worth while to ask again."""
  return error.retriable() or error.code() in (
      KafkaError._TRANSPORT,
      KafkaError._ALL_BROKERS_DOWN,
      KafkaError._TIMED_OUT,
      KafkaError._RESOLVE,
      KafkaError._SSL,
      KafkaError.REQUEST_TIMED_OUT,
      KafkaError.LEADER_NOT_AVAILABLE,
      KafkaError.NOT_LEADER_FOR_PARTITION,
      KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
      KafkaError.COORDINATOR_NOT_AVAILABLE,
      KafkaError.NOT_COORDINATOR)
