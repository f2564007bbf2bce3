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


class RestrictionFormatError(UnboundedSourceError):
  """Persisted bytes of a read are not of a format that this code reads."""


class WorkerModuleError(UnboundedSourceError):
  """The worker's ``apache_beam.io.unbounded_source`` is not the submitter's."""
