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


"""What fails in a watch, by name.

Each message says what failed, for which input, what follows from it and what
to do.
"""

from typing import Any


class WatchError(Exception):
  """The common base: catch it for anything that goes wrong in ``Watch``."""


class PollError(WatchError):
  """A poll raised, or returned what it must not.

  The bundle fails with it. A runner that retries polls again with the state
  after the last good round, so nothing is lost; FnApiRunner fails the job
  instead. The exception that caused it is its ``__cause__``.
  """


class WatchStateError(WatchError):
  """Persisted bytes of a watch are not of a format that this code reads, or do
  not belong to a watch with these arguments.
  """


def short(value: Any, limit: int = 200) -> str:
  """A value as a message shows it."""
  text = repr(value)
  return text if len(text) <= limit else text[:limit] + '…'


for _class in (WatchError, PollError, WatchStateError):
  _class.__module__ = 'apache_beam.io.watch'
