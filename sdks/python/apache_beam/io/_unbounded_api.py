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

"""The three classes that an author of a source extends.

Purpose: to be imported by what helps with that, without the transforms. Their
  public home is ``apache_beam.io.unbounded_source``, which is what they say of
  themselves and what is pickled.
"""

from typing import Any
from typing import Iterable
from typing import Optional

from apache_beam import coders
from apache_beam.io.iobase import SourceBase
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.utils.timestamp import Timestamp

_PUBLIC_HOME = 'apache_beam.io.unbounded_source'


class CheckpointMark:
  """How far a reader has come: a position, and what to acknowledge there.

  Encoded by the source's :meth:`UnboundedSource.get_checkpoint_mark_coder` and
  persisted by the runner. A mark is a value: what the reader reads after it was
  cut must not change it. A frozen dataclass suits; its text is shown in errors.
  """
  def finalize_checkpoint(self) -> None:
    """Tells the system that was read from that it may forget the records.

    The default does nothing, which suits sources that just seek, such as a log
    with offsets.

    Called: after the runner has durably committed everything up to this mark;
      at most once for a mark object, possibly from another thread than the one
      that reads, and possibly after the reader was closed.
    Must: be idempotent. After a retry, marks that overlap may be cut again.
    Not promised: that it is called. A runner may never do, and a mark that
      went through its coder (after a restart) is not. So a mark covers those
      before it: what an earlier mark would have acknowledged, a later one does.
      Nor does a source's watermark wait for it.

    An exception is logged and counted (metric ``failed_finalizations``); the
    records are committed, so it fails nothing.
    """


class UnboundedReader:
  """Steps through the records of one split.

  Used by one thread at a time. A reader stays open from bundle to bundle as
  long as the runner comes back to the same worker, and is closed when the
  split ends, on any error, or when it was not used for a minute (or twice the
  poll interval, if that is longer). Then another one is opened with the last
  mark.
  """
  def start(self) -> bool:
    """Moves to the first record, if one is there now.

    Called: once, before anything else.
    Must: return soon. Connecting belongs here or into ``create_reader``;
      waiting for a record does not belong anywhere.

    Returns:
      True if there is a current record now; False if there is none yet, and
      :meth:`advance` will be called later.
    """
    raise NotImplementedError(type(self))

  def advance(self) -> bool:
    """Moves to the next record, if one is there now.

    Called: after :meth:`start`, any number of times, also after False.
    Must: return at once. What has to be waited for (a long poll, a blocking
      client) belongs into a thread of the reader's, which it stops in
      :meth:`close`.

    Returns:
      True if there is a current record now. False means "nothing yet", never
      "the end": the pipeline outputs what it has and asks again after
      ``poll_interval``. The end is a watermark of ``MAX_TIMESTAMP``.
    """
    raise NotImplementedError(type(self))

  def get_current(self) -> Any:
    """The current record.

    Called: at most once for each True of :meth:`start` or :meth:`advance`.
    Must: return an object that is not changed later.
    """
    raise NotImplementedError(type(self))

  def get_current_timestamp(self) -> Timestamp:
    """The event time of the current record.

    Called: as :meth:`get_current`.
    Must: not be below a watermark that was reported before, or the record is
      late, and windows that are closed drop it.
    """
    raise NotImplementedError(type(self))

  def get_watermark(self) -> Timestamp:
    """A time that no future record of this split lies before.

    Called: after each chunk of records, and at each poll, also when there
      was nothing: an idle split that does not move its watermark holds back
      every window of the pipeline.
    Must: depend on what was read, and never on whether marks get finalized.
      ``MAX_TIMESTAMP``: the split is finished for good. It counts once
      :meth:`advance` returned False.
    Not promised: that the value is used as it is. One below an earlier one is
      ignored, as watermarks do not go back.
    """
    raise NotImplementedError(type(self))

  def get_checkpoint_mark(self) -> CheckpointMark:
    """A mark that covers all records given so far, the current one included.

    Called: after each chunk (up to 150 records), only if something was read
      since the last mark; on the reading thread. Most marks are never
      finalized: of each bundle only the last.
    Must: return a new object each time, which does not change afterwards.
    """
    raise NotImplementedError(type(self))

  def get_split_backlog_bytes(self) -> Optional[int]:
    """How many bytes this reader has still to give; None if it cannot tell.

    Runners scale by it, and the metric ``backlog_bytes`` tells it. An estimate
    will do, but 0 must mean that the reader has caught up.

    Called: once a bundle, after its last record.
    Must: return soon; what it takes a request to find out may be some seconds
      old. Not be below 0.
    Not promised: that an exception fails anything. It is logged once, and the
      backlog counts as unknown.
    """
    return None

  def get_current_record_id(self) -> Optional[bytes]:
    """What names the current record, however often it is delivered.

    Called: before each :meth:`get_current`, if the source says
      :meth:`UnboundedSource.requires_deduping`; then it must return bytes.
    """
    return None

  def next_poll_delay(self) -> Optional[float]:
    """After how many seconds to ask again, if the reader knows better.

    Called: when :meth:`start` or :meth:`advance` returned False, once.

    Returns:
      Seconds, 0 or more. None: after the ``poll_interval`` of the read.
    """
    return None

  def close(self) -> None:
    """Frees what the reader holds. The default does nothing.

    Called: once, by whatever thread; also when :meth:`start` raised.
    Must: stop threads of the reader's own.
    Not promised: that every mark was finalized before. After the end of a split
      it waits for that, for a minute.
    """


class UnboundedSource(SourceBase):
  """Describes an input without an end and opens parts of it.

  A source is pickled and sent to workers: it holds names and settings, no
  connections. Classes of the main script can be pickled too.
  """
  def split(
      self,
      desired_num_splits: int,
      options: Optional[PipelineOptions] = None
  ) -> Iterable['UnboundedSource']:
    """Divides the source into parts that are read independently.

    Called: once, on a worker, before anything is read. What it returns is
      persisted, so the division never changes while the pipeline lives; a
      partition that appears later belongs to a part that looks for it.
    Must: return at least one and at most ``desired_num_splits`` sources that
      together give each record once. ``[self]`` if it cannot be divided.

    Args:
      desired_num_splits: how many parts the pipeline can make use of.
      options: the options of the pipeline.
    """
    raise NotImplementedError(type(self))

  def create_reader(
      self,
      options: Optional[PipelineOptions],
      checkpoint_mark: Optional[CheckpointMark]) -> UnboundedReader:
    """Opens a reader.

    Called: on a worker, for each part, and again after a failure or a long
      pause.
    Must: give exactly what follows the mark. The classic slip is to begin with
      the record that the mark was cut at: that one was committed.

    Args:
      options: the options of the pipeline.
      checkpoint_mark: where to go on; decoded, so it shares nothing with the
        reader that cut it. None: from the very first record.
    """
    raise NotImplementedError(type(self))

  def get_checkpoint_mark_coder(self) -> coders.Coder:
    """The coder for the marks of this source's readers.

    Must: be able to decode what earlier releases of the source encoded, if
      pipelines are to be updated while they run.
    """
    raise NotImplementedError(type(self))

  def get_total_backlog_bytes(
      self, options: Optional[PipelineOptions]) -> Optional[int]:
    """How many bytes there are to read in all; None if that is not known.

    Called: on a worker, for each part, before it is first read. After that its
      readers are asked (:meth:`UnboundedReader.get_split_backlog_bytes`).
    Must: open no reader. Not be below 0, and be 0 only if nothing is there.
    Not promised: that an exception fails anything; the backlog then counts as
      unknown.
    """
    return None

  def requires_deduping(self) -> bool:
    """Whether records may come again that were given before.

    For systems that deliver a record again, unlike before: with another
    position, or to another split. True: each record has a
    :meth:`UnboundedReader.get_current_record_id`. Of those with one id the
    first is output, until the watermark is ten minutes past its timestamp; so a
    repeat is dropped or that late. Keyed state behind the read remembers the
    ids, as durably as the pipeline's own. It costs a shuffle.

    Called: when the pipeline is made.
    """
    return False

  def is_bounded(self) -> bool:
    """False: there is no end to it."""
    return False

  def default_output_coder(self) -> coders.Coder:
    """The coder for records. The default can encode any that can be pickled.

    Its ``to_type_hint()`` becomes the element type of the read, so the coder
    has to be the one that is registered for that type.
    """
    return coders.registry.get_coder(object)


for _class in (CheckpointMark, UnboundedReader, UnboundedSource):
  _class.__module__ = _PUBLIC_HOME
