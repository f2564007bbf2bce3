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

"""What can be wrong with a read of Redis Streams, by name.

Each message says what is wrong, where, and what to do. None of them shows a
password, nor the URL that may hold one.
"""


class RedisStreamsError(Exception):
  """The common base. Raised itself for a server that cannot be read so: too old
  a release, a cluster, a key that is not a stream."""


class RedisStreamsConnectionError(RedisStreamsError):
  """The server cannot be reached, or cannot serve for now.

  While a pipeline reads, this fails nothing: the read goes on when the server
  is back. It is raised where there is nothing to go on from, before the first
  read.
  """


class RedisStreamsAccessError(RedisStreamsError):
  """The server refuses the user, the password, or one of the commands."""


class RedisStreamsStreamLostError(RedisStreamsError):
  """The stream is not there, or not any more."""


class RedisStreamsGroupLostError(RedisStreamsError):
  """The consumer group is not there, or not any more.

  With it went what Redis knew of the entries that were read.
  """


class RedisStreamsTrimmedError(RedisStreamsError):
  """Entries were trimmed or deleted before the pipeline could read them."""


class RedisStreamsMarkError(RedisStreamsError):
  """A checkpoint mark that this source did not make, or cannot read."""
