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

"""Small right sources, for the tests of the kit; wrong ones are made of them.

``LogSource`` reads a log by offset, ``QueueSource`` a queue that delivers again
what was not acknowledged, ``ThreadSource`` a log on a thread of its own. Their
servers are in this process and are found by name, as a source is pickled.
"""

import itertools
import queue
import threading
from typing import Any
from typing import Optional

from apache_beam import coders
from apache_beam.io.unbounded_source import CheckpointMark
from apache_beam.io.unbounded_source import UnboundedReader
from apache_beam.io.unbounded_source import UnboundedSource
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

_NUMBERS = itertools.count()


class Server:
  """Holds records, and remembers what was acknowledged.

  A record's time is its index, in seconds.
  """
  _all: dict[str, 'Server'] = {}

  def __init__(self, values) -> None:
    self.name = f'server-{next(_NUMBERS)}'
    self.values = list(values)
    self.ready = list(range(len(self.values)))
    self.acked: list[Any] = []
    self.lock = threading.RLock()
    self._all[self.name] = self

  @classmethod
  def of(cls, source) -> 'Server':
    return cls._all[source.name]

  @classmethod
  def acked_by(cls, source) -> list[Any]:
    return list(cls.of(source).acked)

  @classmethod
  def append_to(cls, source) -> Any:
    """As of now, for a source whose watermark follows the clock."""
    server = cls.of(source)
    server.values.append(f'appended-{len(server.values)}')
    server.ready.append(len(server.values) - 1)
    return server.values[-1]

  def time_of(self, index: int) -> Timestamp:
    if str(self.values[index]).startswith('appended'):
      return Timestamp(4_000_000_000)
    return Timestamp(index)

  def ack(self, indexes) -> None:
    with self.lock:
      for index in indexes:
        if self.values[index] not in self.acked:
          self.acked.append(self.values[index])


class LogMark(CheckpointMark):
  """All below ``offset``; what has to be kept below it may be deleted."""
  def __init__(self, name: str, offset: int) -> None:
    self.name = name
    self.offset = offset

  def finalize_checkpoint(self) -> None:
    Server.of(self).ack(range(self.offset))


class LogMarkCoder(coders.Coder):
  def __init__(self, source) -> None:
    self.name = source.name
    self.mark = source.mark

  def encode(self, value) -> bytes:
    return value.offset.to_bytes(2, 'big')

  def decode(self, encoded):
    return self.mark(self.name, int.from_bytes(encoded, 'big'))

  def is_deterministic(self):
    return True


class LogReader(UnboundedReader):
  """``next`` is the offset of the next record to be given."""
  def __init__(self, source: 'LogSource', mark: Optional[LogMark]) -> None:
    self.source = source
    self.server = Server.of(source)
    self.next = 0 if mark is None else mark.offset

  def start(self):
    return self.advance()

  def advance(self):
    if self.next >= len(self.server.values):
      return False
    self.next += 1
    return True

  def get_current(self):
    return self.server.values[self.next - 1]

  def get_current_timestamp(self):
    return self.server.time_of(self.next - 1)

  def get_watermark(self):
    if self.next < len(self.server.values):
      return self.server.time_of(self.next)
    return MAX_TIMESTAMP if self.source.ends else Timestamp.now()

  def get_split_backlog_bytes(self):
    return 10 * (len(self.server.values) - self.next)

  def get_checkpoint_mark(self):
    return self.source.mark(self.source.name, self.next)


class LogSource(UnboundedSource):
  """Reads a log by offset; its marks replay."""

  reader: type = LogReader
  mark: type = LogMark
  mark_coder: type = LogMarkCoder

  def __init__(self, values, ends=False) -> None:
    self.name = Server(values).name
    self.ends = ends

  def split(self, desired_num_splits, options=None):
    return [self]

  def create_reader(self, options, checkpoint_mark):
    return self.reader(self, checkpoint_mark)

  def get_checkpoint_mark_coder(self):
    return self.mark_coder(self)

  def get_total_backlog_bytes(self, options):
    return 10 * len(Server.of(self).values)


class PartsReader(UnboundedReader):
  """Reads some partitions by turns; the mark is the offset of each."""
  def __init__(self, source, mark) -> None:
    self.server = Server.of(source)
    self.parts = source.parts
    self.count = source.count
    self.done = dict.fromkeys(self.parts, 0)
    self.turn = -1
    if mark is not None:
      self.done = dict(mark.done)

  def _rows(self, part):
    return range(part, len(self.server.values), self.count)

  def start(self):
    return self.advance()

  def advance(self):
    for _ in self.parts:
      self.turn = (self.turn + 1) % len(self.parts)
      part = self.parts[self.turn]
      rows = self._rows(part)
      if self.done[part] < len(rows):
        self.index = rows[self.done[part]]
        self.done[part] += 1
        return True
    return False

  def get_current(self):
    return self.server.values[self.index]

  def get_current_timestamp(self):
    return self.server.time_of(self.index)

  def get_watermark(self):
    left = [
        rows[done] for part, done in self.done.items()
        if done < len(rows := self._rows(part))
    ]
    return self.server.time_of(min(left)) if left else MAX_TIMESTAMP

  def get_checkpoint_mark(self):
    return PartsMark(tuple(sorted(self.done.items())))


class PartsMark(CheckpointMark):
  def __init__(self, done) -> None:
    self.done = done


class PartsMarkCoder(coders.Coder):
  def encode(self, value):
    return b''.join(bytes(pair) for pair in value.done)

  def decode(self, encoded):
    return PartsMark(tuple(zip(encoded[::2], encoded[1::2])))

  def is_deterministic(self):
    return True


class PartsSource(UnboundedSource):
  """A log of several partitions, which are dealt out to the splits."""
  def __init__(self, values, count=3, parts=None, name=None) -> None:
    self.name = name or Server(values).name
    self.count = count
    self.parts = list(range(count)) if parts is None else parts

  def split(self, desired_num_splits, options=None):
    splits = min(desired_num_splits, self.count)
    return [
        PartsSource([], self.count, self.parts[number::splits], self.name)
        for number in range(splits)
    ]

  def create_reader(self, options, checkpoint_mark):
    return PartsReader(self, checkpoint_mark)

  def get_checkpoint_mark_coder(self):
    return PartsMarkCoder()


class QueueMark(CheckpointMark):
  """What was delivered and not acknowledged when it was cut.

  One that was decoded has no reader and acknowledges nothing; the queue will
  deliver again.
  """
  def __init__(self, reader, indexes) -> None:
    self.reader = reader
    self.indexes = indexes

  def finalize_checkpoint(self):
    if self.reader is not None:
      self.reader.acknowledge(self.indexes)


class QueueMarkCoder(coders.Coder):
  def encode(self, value):
    return bytes(value.indexes)

  def decode(self, encoded):
    return QueueMark(None, tuple(encoded))

  def is_deterministic(self):
    return True


class QueueReader(UnboundedReader):
  def __init__(self, source) -> None:
    self.source = source
    self.server = Server.of(source)
    self.unacked: list[int] = []
    self.open = True
    self.index = -1

  def start(self):
    return self.advance()

  def advance(self):
    with self.server.lock:
      if not self.server.ready:
        return False
      self.index = self.server.ready.pop(0)
      self.unacked.append(self.index)
    return True

  def get_current(self):
    return self.server.values[self.index]

  def get_current_timestamp(self):
    return self.server.time_of(self.index)

  def get_watermark(self):
    # Nobody knows what a queue will deliver again.
    return MIN_TIMESTAMP

  def get_split_backlog_bytes(self):
    return 10 * len(self.server.ready)

  def get_checkpoint_mark(self):
    return self.source.mark(self, tuple(self.unacked))

  def acknowledge(self, indexes) -> None:
    with self.server.lock:
      if not self.open:
        return
      gone = [index for index in indexes if index in self.unacked]
      self.unacked = [i for i in self.unacked if i not in gone]
      self.server.acked += [self.server.values[index] for index in gone]

  def close(self):
    with self.server.lock:
      self.open = False
      self.server.ready = sorted(self.server.ready + self.unacked)
      self.unacked = []


class QueueSource(LogSource):
  """Reads a queue, by a connection that holds what was not acknowledged."""

  reader: type = QueueReader
  mark: type = QueueMark

  def create_reader(self, options, checkpoint_mark):
    return self.reader(self)

  def get_checkpoint_mark_coder(self):
    return QueueMarkCoder()


class ThreadReader(LogReader):
  """Fetches ahead on a thread; the mark is about what was given."""
  def __init__(self, source, mark) -> None:
    super().__init__(source, mark)
    self._fetched: queue.Queue = queue.Queue(maxsize=2)
    self._closing = threading.Event()
    self._thread = threading.Thread(target=self._fetch, args=(self.next, ))
    self._thread.start()

  def _fetch(self, position: int) -> None:
    while not self._closing.is_set():
      if position >= len(self.server.values):
        self._closing.wait(0.002)
        continue
      try:
        self._fetched.put(position, timeout=0.002)
        position += 1
      except queue.Full:
        pass

  def advance(self):
    try:
      self.next = self._fetched.get_nowait() + 1
    except queue.Empty:
      return False
    return True

  def close(self):
    self._closing.set()
    self._thread.join()


class ThreadSource(LogSource):
  reader = ThreadReader
