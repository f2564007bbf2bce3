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

"""What the tests of unbounded reads share: a counting source and its harness.

The harness is that of ``apache_beam.testing.unbounded_source``: it runs the
reading DoFn by the SDK's own invoker, tracker and watermark estimator wrappers,
one bundle at a time, and plays the runner.
"""

from typing import Callable
from typing import Optional

from apache_beam import coders
from apache_beam.io import _unbounded_dofn
from apache_beam.io._unbounded_readers import READERS
from apache_beam.io._unbounded_reading import dump
from apache_beam.io._unbounded_restriction import Split
from apache_beam.io.unbounded_source import CheckpointMark
from apache_beam.io.unbounded_source import UnboundedReader
from apache_beam.io.unbounded_source import UnboundedSource
from apache_beam.testing._unbounded_harness import SplitInjectingHarness
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

T0 = 1_700_000_000


class Journal:
  """What happened to the readers of one source, across its pickles.

  Found by name, so that a source that was pickled and unpickled in this
  process still writes to the same one.
  """
  _all: dict[str, 'Journal'] = {}

  def __init__(self) -> None:
    self.opened = 0
    self.closed = 0
    self.polls = 0
    self.idle_polls = 0
    self.opened_after: list[Optional[int]] = []
    self.finalized: list[int] = []
    self.marks = 0
    # Whatever else a test has its source say.
    self.told: list = []
    # Called with the name of each call of a reader method, before it.
    self.on_call: Callable[[str], None] = lambda name: None

  @classmethod
  def of(cls, name: str) -> 'Journal':
    return cls._all.setdefault(name, cls())

  @classmethod
  def new(cls, name: str) -> 'Journal':
    cls._all[name] = cls()
    return cls._all[name]


class CountMark(CheckpointMark):
  def __init__(self, name: str, last: int) -> None:
    self.name = name
    self.last = last

  def finalize_checkpoint(self) -> None:
    Journal.of(self.name).finalized.append(self.last)

  def __repr__(self) -> str:
    return f'CountMark({self.last})'

  def __eq__(self, other) -> bool:
    return type(other) is CountMark and self.last == other.last

  def __hash__(self) -> int:
    return hash(self.last)


class CountMarkCoder(coders.Coder):
  def __init__(self, name: str) -> None:
    self._name = name

  def encode(self, value: CountMark) -> bytes:
    return value.last.to_bytes(8, 'big')

  def decode(self, encoded: bytes) -> CountMark:
    return CountMark(self._name, int.from_bytes(encoded, 'big'))

  def is_deterministic(self) -> bool:
    return True


class CountingSource(UnboundedSource):
  """Gives the numbers from ``first`` up to and without ``end``, by ``step``.

  Args:
    name: of its :class:`Journal`.
    end: where the source ends; None: it stays open and idle behind ``count``.
    idle_every: has nothing after so many records, once.
    parts: how many splits it makes.
  """
  def __init__(
      self,
      name: str,
      count: int,
      ends: bool = True,
      idle_every: int = 0,
      parts: int = 1,
      first: int = 0,
      step: int = 1) -> None:
    self.name = name
    self.count = count
    self.ends = ends
    self.idle_every = idle_every
    self.parts = parts
    self.first = first
    self.step = step

  def split(self, desired_num_splits, options=None):
    if self.parts == 1:
      return [self]
    return [
        CountingSource(
            self.name,
            self.count,
            self.ends,
            self.idle_every,
            first=part,
            step=self.parts) for part in range(self.parts)
    ]

  def create_reader(self, options, checkpoint_mark):
    return CountingReader(
        self, None if checkpoint_mark is None else checkpoint_mark.last)

  def get_checkpoint_mark_coder(self):
    return CountMarkCoder(self.name)

  def default_output_coder(self):
    return coders.VarIntCoder()


class CountingReader(UnboundedReader):
  def __init__(self, source: CountingSource, last: Optional[int]) -> None:
    self._source = source
    self._journal = Journal.of(source.name)
    self._journal.opened += 1
    self._journal.opened_after.append(last)
    self._last = source.first - source.step if last is None else last
    self._since_idle = 0
    self._started = False

  def start(self) -> bool:
    assert not self._started
    self._started = True
    return self._advance('start')

  def advance(self) -> bool:
    assert self._started
    return self._advance('advance')

  def _advance(self, call: str) -> bool:
    source = self._source
    self._journal.on_call(call)
    self._journal.polls += 1
    idle = source.idle_every and self._since_idle >= source.idle_every
    if idle or self._last + source.step >= source.count:
      self._since_idle = 0
      self._journal.idle_polls += 1
      return False
    self._last += source.step
    self._since_idle += 1
    return True

  def get_current(self) -> int:
    self._journal.on_call('get_current')
    return self._last

  def get_current_timestamp(self) -> Timestamp:
    self._journal.on_call('get_current_timestamp')
    return Timestamp(T0 + self._last)

  def get_watermark(self) -> Timestamp:
    self._journal.on_call('get_watermark')
    source = self._source
    if source.ends and self._last + source.step >= source.count:
      return MAX_TIMESTAMP
    if self._last < 0:
      return MIN_TIMESTAMP
    return Timestamp(T0 + self._last)

  def get_checkpoint_mark(self) -> CountMark:
    self._journal.on_call('get_checkpoint_mark')
    self._journal.marks += 1
    return CountMark(self._source.name, self._last)

  def close(self) -> None:
    self._journal.on_call('close')
    self._journal.closed += 1


class JournalTest:
  """Mixin for test cases that count: a journal by the test's name, no readers
  that another test left."""
  def setUp(self):
    READERS.close_all()
    self.journal = Journal.new(self.id())

  def tearDown(self):
    READERS.close_all()

  def source(self, count: int, **kwargs) -> CountingSource:
    return CountingSource(self.id(), count, **kwargs)


class Harness(SplitInjectingHarness):
  """The harness, with the journal of its source.

  Events within the reader come from the journal, which a :class:`CountingReader`
  writes itself.
  """
  def __init__(self, source: UnboundedSource, *args, **kwargs) -> None:
    super().__init__(source, *args, **kwargs)
    self.journal = Journal.of(getattr(source, 'name', '?'))
    self.journal.on_call = self.event
    # Only for a source that breaks its promise on purpose.
    self.late_allowed = False

  def _fns(self, caps, options):
    # Made here, since some hundred harnesses are, and expanding takes long.
    return [
        _unbounded_dofn.ReadSplitFn(dump(options), *caps),
        _unbounded_dofn.ChunkRecordsFn()
    ]

  def _output(self, output, record):
    late = self.late_allowed
    assert late or output.timestamp <= record.timestamp, (
        f'{record} is before {output.timestamp}, which the runner holds')
    super()._output(output, record)

  def _element(self):
    return Split(0, 1, dump(self._source))
