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

"""What goes wrong in a read of Kafka, by name.

Each message says what, where (topic, partition, offset), what follows from it
and what to do. None of them shows a setting of the client, which may be a
password.
"""

from apache_beam.io.unbounded_source import UnboundedSourceError


class KafkaSourceError(UnboundedSourceError):
  """The common base: catch it for all that goes wrong in reading Kafka."""


class KafkaConfigError(KafkaSourceError, ValueError):
  """The client library refuses ``consumer_config``."""


class KafkaConnectionError(KafkaSourceError):
  """No broker answered when the read began.

  Once it has begun, brokers that are gone are waited for.
  """


class KafkaAuthenticationError(KafkaSourceError):
  """The brokers do not accept who we say that we are."""


class KafkaAuthorizationError(KafkaSourceError):
  """The principal may not read the topic."""


class KafkaTopicMissingError(KafkaSourceError):
  """There is no such topic, or no longer."""


class KafkaTopicReplacedError(KafkaSourceError):
  """The topic was deleted and made anew: offsets in it mean something else."""


class KafkaOffsetExpiredError(KafkaSourceError):
  """Records after the position were deleted before they were read."""


class KafkaOffsetBeyondEndError(KafkaSourceError):
  """The position lies behind the end of the partition."""


class KafkaTimestampError(KafkaSourceError):
  """A record has no event time, by the policy that was chosen."""


class KafkaMarkError(KafkaSourceError):
  """A mark belongs to another split, or to a release that we cannot read."""
