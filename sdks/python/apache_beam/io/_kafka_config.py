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

"""The settings of the Kafka clients: checked, completed, and kept secret."""

import re
from typing import Any
from typing import Mapping
from typing import Optional
from typing import Sequence
from typing import Union

from apache_beam.io._kafka_errors import KafkaConfigError

READ_COMMITTED = 'read_committed'
READ_UNCOMMITTED = 'read_uncommitted'

# Bytes that wait in a client, all partitions of a reader together. The
# client's own bound is 64 MiB, and that for each partition.
_QUEUE_KBYTES = 32 << 10
_LEAST_QUEUE_KBYTES = 1 << 10

# A broker that is back is noticed after so many milliseconds at most. The
# client's own bound is ten seconds.
_RECONNECT = {'reconnect.backoff.max.ms': 2000}

# Never part of a real group: the client wants a name even where no offset is
# ever committed.
_NO_GROUP = 'apache-beam-without-group'

_BY_ARGUMENT = 'give it as the argument {} instead'
_BY_SOURCE = 'the source has to decide on it: {}'

# Options that would make the read inexact, or that the source needs itself.
_REFUSED = {
    'bootstrap.servers': _BY_ARGUMENT.format('bootstrap_servers'),
    'metadata.broker.list': _BY_ARGUMENT.format('bootstrap_servers'),
    'group.id': _BY_ARGUMENT.format('group_id'),
    'isolation.level': _BY_ARGUMENT.format('isolation_level'),
    'auto.offset.reset': _BY_ARGUMENT.format('start, or on_expired_offset'),
    'enable.auto.commit': _BY_SOURCE.format(
        'offsets are committed after the runner has committed the records'),
    'auto.commit.interval.ms': _BY_SOURCE.format(
        'offsets are committed after the runner has committed the records'),
    'auto.commit.enable': _BY_SOURCE.format(
        'offsets are committed after the runner has committed the records'),
    'enable.auto.offset.store': _BY_SOURCE.format(
        'positions are part of the checkpoint'),
    'offset.store.method': _BY_SOURCE.format(
        'positions are part of the checkpoint'),
    'group.instance.id': _BY_SOURCE.format(
        'partitions are assigned by the pipeline, not by the group'),
    'group.protocol': _BY_SOURCE.format(
        'partitions are assigned by the pipeline, not by the group'),
    'group.remote.assignor': _BY_SOURCE.format(
        'partitions are assigned by the pipeline, not by the group'),
    'partition.assignment.strategy': _BY_SOURCE.format(
        'partitions are assigned by the pipeline, not by the group'),
    'enable.partition.eof': _BY_SOURCE.format(
        'ends tell it how far it has come'),
    'allow.auto.create.topics': _BY_SOURCE.format(
        'a name that is misspelt must be an error, not a new topic'),
    'default.topic.config': 'give its entries directly',
}
# Callbacks that the source needs itself, or that make no sense in one.
_REFUSED_CALLBACKS = frozenset((
    'error_cb', 'log_cb', 'logger', 'on_commit', 'rebalance_cb', 'stats_cb',
    'throttle_cb', 'on_delivery'))
_CALLBACKS = frozenset(('oauth_cb', ))
_SECRET = re.compile(
    r'password|secret|token|\.pem$|oauthbearer\.config|jaas|assertion')
# What an administrative client knows of a consumer's options.
_SHARED = (
    'api.version.', 'broker.', 'client.', 'connections.', 'debug',
    'enable.metrics.push', 'enable.sasl.', 'enable.ssl.', 'https.', 'log',
    'oauth_cb', 'reconnect.', 'resolve.', 'retry.', 'sasl.', 'security.',
    'socket.', 'ssl.')


class ClientConfig:
  """What makes a client; pickled with the source, never shown.

  Args:
    bootstrap_servers: ``host:port`` of some brokers.
    group_id: the group to commit offsets for, or None.
    isolation_level: ``read_committed`` or ``read_uncommitted``.
    options: more settings of the client, such as those of TLS and SASL.

  Raises:
    TypeError, ValueError: naming the argument and what is wrong with it, but
      no value of an option.
  """
  def __init__(
      self,
      bootstrap_servers: Union[str, Sequence[str]],
      group_id: Optional[str] = None,
      isolation_level: str = READ_COMMITTED,
      options: Optional[Mapping[str, Any]] = None) -> None:
    servers = names('bootstrap_servers', bootstrap_servers)
    self.bootstrap_servers = ','.join(servers)
    if group_id is not None and not (isinstance(group_id, str) and group_id):
      raise TypeError(
          f'group_id={group_id!r} must be the name of a consumer group, or '
          'None to commit no offsets.')
    self.group_id = group_id
    if isolation_level not in (READ_COMMITTED, READ_UNCOMMITTED):
      raise ValueError(
          f'isolation_level={isolation_level!r} must be {READ_COMMITTED!r} or '
          f'{READ_UNCOMMITTED!r}.')
    self.isolation_level = isolation_level
    self._options = _checked(options)

  @property
  def read_committed(self) -> bool:
    return self.isolation_level == READ_COMMITTED

  def consumer(self, partitions: int) -> dict[str, Any]:
    """The settings of a consumer of so many partitions."""
    return {
        'queued.max.messages.kbytes': max(
            _QUEUE_KBYTES // max(partitions, 1), _LEAST_QUEUE_KBYTES),
        # How long the client lets a partition be once its queue was full.
        # Its own second is longer than a full queue lasts.
        'fetch.queue.backoff.ms': 10,
        **_RECONNECT,
        **self._options,
        'bootstrap.servers': self.bootstrap_servers,
        'group.id': self.group_id or _NO_GROUP,
        'isolation.level': self.isolation_level,
        'enable.auto.commit': False,
        'enable.auto.offset.store': False,
        'auto.offset.reset': 'error',
        'enable.partition.eof': True,
        'allow.auto.create.topics': False,
    }

  def admin(self) -> dict[str, Any]:
    """The settings of a client that asks about topics."""
    return {
        **_RECONNECT,
        **{
            key: value
            for key,
            value in self._options.items() if key.startswith(_SHARED)
        },
        'bootstrap.servers': self.bootstrap_servers,
    }

  def refused(self, error: BaseException) -> KafkaConfigError:
    """What to raise if the library does not take the settings.

    Raise it ``from None``: the library may quote a value.
    """
    return KafkaConfigError(
        'consumer_config is refused by the client library: '
        f'{self.scrub(str(error))}. Its option names are those of librdkafka.')

  def scrub(self, text: str) -> str:
    """The text without any secret that happens to stand in it."""
    for secret in self._secrets():
      text = text.replace(secret, '***')
    return text

  def _secrets(self) -> list[str]:
    found = [
        str(value) for key,
        value in self._options.items() if _SECRET.search(key)
    ]
    # A longer one first: another may be a part of it.
    return sorted((s for s in found if len(s) > 2), key=len, reverse=True)

  def __repr__(self) -> str:
    return (
        f'ClientConfig({self.bootstrap_servers!r}, {len(self._options)} '
        'options)')


def names(argument: str, value: Any) -> tuple[str, ...]:
  """The value of an argument that takes a name or several."""
  found = tuple(value.split(',')) if isinstance(value, str) else value
  if not isinstance(found, (list, tuple)) or not all(
      isinstance(name, str) for name in found):
    raise TypeError(
        f'{argument}={value!r} must be a string, or a list of strings.')
  found = tuple(name.strip() for name in found)
  if not found or not all(found):
    raise ValueError(f'{argument}={value!r} names nothing.')
  return found


def _checked(options: Optional[Mapping[str, Any]]) -> dict[str, Any]:
  """A copy of the options, if all of them can be used."""
  if options is None:
    return {}
  if not isinstance(options, Mapping):
    raise TypeError(
        'consumer_config must be a dict of client options, not a '
        f'{type(options).__name__}.')
  for key, value in options.items():
    if not isinstance(key, str):
      raise TypeError(
          f'consumer_config: the key {key!r} must be the name of an option.')
    name = f'consumer_config[{key!r}]'
    if key in _REFUSED:
      raise ValueError(f'{name}: {_REFUSED[key]}.')
    if key in _REFUSED_CALLBACKS:
      raise ValueError(
          f'{name}: the source sets it itself, or has no use for it.')
    if key in _CALLBACKS:
      if not callable(value):
        raise TypeError(f'{name} must be a function.')
    elif not isinstance(value, (str, int, float)):
      raise TypeError(
          f'{name} must be a string, a number or a bool, not a '
          f'{type(value).__name__}.')
  return dict(options)
