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
Threads: the client has its own; what is here is used by one at a time.
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
      read: Callable[[Any], Any]) -> None:
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
        found[key] = self._read(future.result(timeout=0))
      except confluent_kafka.KafkaException as exc:
        errors[key] = exc.args[0]
      except futures.TimeoutError:
        errors[key] = KafkaError(KafkaError._TIMED_OUT)
    return found, errors

  def wait(self, seconds: float) -> None:
    futures.wait(self._asked.values(), seconds)


def make_consumer(
    config: ClientConfig, partitions: int, **callbacks: Any) -> Any:
  """A consumer for so many partitions, none of them assigned yet.

  Raises:
    KafkaConfigError: the library does not take the settings.
  """
  try:
    return confluent_kafka.Consumer(
        {
            **config.consumer(partitions), **callbacks
        },
        logger=ClientLog(config))
  except Exception as exc:
    raise config.refused(exc) from None


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
    try:
      self._client = admin.AdminClient(
          settings, logger=ClientLog(config))
    except Exception as exc:
      raise config.refused(exc) from None

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
    return self._ask(
        lambda: self._client.describe_topics(
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
    return self._offsets(
        partitions, admin.OffsetSpec.latest(), committed)

  def beginnings(self, partitions: Iterable[TopicPartition]) -> Answer:
    """Asks for the offset of the first record that is still there."""
    return self._offsets(
        partitions, admin.OffsetSpec.earliest(), False)

  def at_time(
      self,
      partitions: Iterable[TopicPartition],
      milliseconds: int) -> Answer:
    """Asks for the first record of that time or later; -1: there is none."""
    return self._offsets(
        partitions,
        admin.OffsetSpec.for_timestamp(milliseconds),
        False)

  def _offsets(self, partitions, spec, committed) -> Answer:
    level = (
        confluent_kafka.IsolationLevel.READ_COMMITTED
        if committed else confluent_kafka.IsolationLevel.READ_UNCOMMITTED)
    return self._ask(
        lambda: {
            (asked.topic, asked.partition): future
            for asked,
            future in self._client.list_offsets(
                {
                    confluent_kafka.TopicPartition(*partition): spec
                    for partition in partitions
                },
                isolation_level=level,
                request_timeout=ANSWER_SECONDS).items()
        } if partitions else {},
        lambda result: result.offset)

  def _ask(self, ask, read) -> Answer:
    asked_at = self._clock()
    return Answer(asked_at, ask(), read)

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


def _read_topic(description: Any) -> Topic:
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
