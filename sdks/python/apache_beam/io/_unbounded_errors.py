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

"""What fails in an unbounded read, by name.

Each message says what failed, where (split and position), what follows from
it and what to do. None of them prints a source or its options, which may hold
credentials.
"""


class UnboundedSourceError(Exception):
  """The common base: catch it for anything that goes wrong in the wrapper."""


class SourceSplitError(UnboundedSourceError):
  """``UnboundedSource.split`` did not give usable splits."""


class SourceReadError(UnboundedSourceError):
  """A source or its reader raised, or returned what it must not.

  The bundle fails with it. A runner that retries resumes after the last
  committed mark, so nothing is lost; FnApiRunner fails the job instead. The
  exception that caused it is its ``__cause__``.
  """


class MarkDidNotMoveError(SourceReadError):
  """Records were read, but the checkpoint mark encodes as the one before.

  Reading could only resume where it did before, and would repeat them.
  """


class MarkReusedError(SourceReadError):
  """``get_checkpoint_mark`` returned the same object as the last time.

  What is finalized for the first would acknowledge what was read since.
  """


class MarkCoderError(SourceReadError):
  """The mark coder gives other bytes for an equal mark.

  Bytes are what tells whether a mark moved, and what a resume starts from.
  """


class ReaderReusedError(SourceReadError):
  """``create_reader`` returned a reader that it had returned before.

  It would be started twice, and stands where the work before left it, not
  behind the mark.
  """


# The longest delay that a worker can tell its runner.
_MAX_SECONDS = 315576000000


class RetryLater(Exception):
  """To be raised by a source for what will pass: a restart, a full quota.

  From ``create_reader``, ``start`` or ``advance``: the bundle ends well with
  what it has output. The reader is closed, and after the delay another one is
  opened with the last mark; so what the reader gave since then comes again
  from the source. Counted in the metric ``retries_later``.

  From a ``PollFn`` of ``Watch``: the poll counts for nothing and is made again
  after the delay.

  Args:
    seconds: how long to wait; 0 or more, and at most 10,000 years.
    reason: for the log.

  Raises:
    TypeError, ValueError: for any other ``seconds``.
  """
  def __init__(self, seconds: float, reason: str = '') -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
      raise TypeError(f'seconds={seconds!r} must be a number of seconds.')
    if not 0 <= seconds <= _MAX_SECONDS:
      raise ValueError(
          f'seconds={seconds!r} must be a number of seconds, 0 or more, and at '
          'most 10,000 years.')
    super().__init__(seconds, reason)
    self.seconds = float(seconds)
    self.reason = reason

  def __str__(self) -> str:
    return f'again in {self.seconds:g} s' + (
        f': {self.reason}' if self.reason else '')


class RestrictionFormatError(UnboundedSourceError):
  """Persisted bytes of a read are not of a format that this code reads."""


class WorkerModuleError(UnboundedSourceError):
  """The worker's ``apache_beam.io.unbounded_source`` is not the submitter's."""
