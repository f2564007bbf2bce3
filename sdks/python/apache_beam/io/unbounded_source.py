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

"""Sources that never end: message brokers, change feeds, outbox tables.

To read one, implement three small classes and give the source to
:class:`ReadFromUnboundedSource` (or ``beam.io.Read``):

* an :class:`UnboundedSource` says how to divide the input and how to open a
  part of it;
* an :class:`UnboundedReader` steps through one part, and never waits;
* a :class:`CheckpointMark` says how far a reader has come. It is persisted with
  the pipeline's own state, so that after a crash reading goes on behind it.

A source that counts, complete::

  from apache_beam.coders import Coder
  from apache_beam.io.unbounded_source import CheckpointMark
  from apache_beam.io.unbounded_source import UnboundedReader
  from apache_beam.io.unbounded_source import UnboundedSource
  from apache_beam.utils.timestamp import Timestamp

  class Counter(UnboundedSource):
    def split(self, desired_num_splits, options=None):
      return [self]

    def create_reader(self, options, checkpoint_mark):
      return CountingReader(
          0 if checkpoint_mark is None else checkpoint_mark.last + 1)

    def get_checkpoint_mark_coder(self):
      return CountMarkCoder()

  class CountingReader(UnboundedReader):
    def __init__(self, first):
      self._current = first - 1

    def start(self):
      return self.advance()

    def advance(self):
      self._current += 1
      return True

    def get_current(self):
      return self._current

    def get_current_timestamp(self):
      return Timestamp(self._current)

    def get_watermark(self):
      return Timestamp(self._current)

    def get_checkpoint_mark(self):
      return CountMark(self._current)

  class CountMark(CheckpointMark):
    def __init__(self, last):
      self.last = last

  class CountMarkCoder(Coder):
    def encode(self, mark):
      return mark.last.to_bytes(8, 'big')

    def decode(self, encoded):
      return CountMark(int.from_bytes(encoded, 'big'))

    def is_deterministic(self):
      return True

What is guaranteed: every record that a reader gives is output, and after any
failure reading resumes behind the last mark that the runner committed. Whether
a record can be output twice then depends on the source alone: not if a reader
opened with a mark gives exactly what follows that mark.
"""

from apache_beam import coders
from apache_beam import pvalue
from apache_beam.io import _unbounded_dofn
from apache_beam.io._unbounded_api import CheckpointMark
from apache_beam.io._unbounded_api import UnboundedReader
from apache_beam.io._unbounded_api import UnboundedSource
from apache_beam.io._unbounded_background import BackgroundReader
from apache_beam.io._unbounded_errors import MarkCoderError
from apache_beam.io._unbounded_errors import MarkDidNotMoveError
from apache_beam.io._unbounded_errors import MarkReusedError
from apache_beam.io._unbounded_errors import ReaderReusedError
from apache_beam.io._unbounded_errors import RestrictionFormatError
from apache_beam.io._unbounded_errors import RetryLater
from apache_beam.io._unbounded_errors import SourceReadError
from apache_beam.io._unbounded_errors import SourceSplitError
from apache_beam.io._unbounded_errors import UnboundedSourceError
from apache_beam.io._unbounded_errors import WorkerModuleError
from apache_beam.io._unbounded_ledger import AckLedger
from apache_beam.io._unbounded_ledger import Receipt
from apache_beam.io._unbounded_reading import dump
from apache_beam.io._unbounded_restriction import Split
from apache_beam.io._unbounded_transforms import Caps
from apache_beam.io._unbounded_transforms import output_type
from apache_beam.io._unbounded_transforms import read_splits
from apache_beam.io._unbounded_watermarks import IdleWatermark
from apache_beam.io._unbounded_watermarks import MonotonicWatermark
from apache_beam.io._unbounded_watermarks import OutOfOrdernessWatermark
from apache_beam.transforms.core import Impulse
from apache_beam.transforms.core import ParDo
from apache_beam.transforms.core import WindowInto
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.transforms.ptransform import PTransform
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints import typehints

__all__ = [
    'AckLedger',
    'BackgroundReader',
    'CheckpointMark',
    'IdleWatermark',
    'MarkCoderError',
    'MarkDidNotMoveError',
    'MarkReusedError',
    'MonotonicWatermark',
    'OutOfOrdernessWatermark',
    'ReadAllFromUnboundedSource',
    'ReadFromUnboundedSource',
    'ReaderReusedError',
    'Receipt',
    'RestrictionFormatError',
    'RetryLater',
    'SourceReadError',
    'SourceSplitError',
    'UnboundedReader',
    'UnboundedSource',
    'UnboundedSourceError',
    'WorkerModuleError',
]


class ReadFromUnboundedSource(PTransform):
  """Reads an :class:`UnboundedSource` into an unbounded PCollection.

  Args:
    source: what to read.
    poll_interval: seconds until a reader that had nothing is asked again, if it
      does not say so itself; at least 0. Runners that keep to it use no CPU in
      between.
    max_records_per_bundle: after so many records a busy reader pauses, so that
      the runner can commit them; at least 1. A larger number costs less for
      each record, and more work has to be repeated after a failure.
    max_read_time_seconds: the same after so much time, that which the records
      take downstream included; above 0.

  Raises:
    TypeError, ValueError: at construction, for anything else than that. The
      message names the argument.

  Elements are in the global window, with the timestamps that the readers gave.
  It never closes: put them into other windows, or set a trigger, before they
  are grouped or combined.
  Errors while the pipeline runs are :class:`SourceSplitError` and
  :class:`SourceReadError`.
  """

  # What sources are asked to divide into. Many more than the workers of most
  # pipelines; a source with more partitions reads several in one part.
  _DESIRED_NUM_SPLITS = 20

  def __init__(
      self,
      source: UnboundedSource,
      poll_interval: float = 1.0,
      max_records_per_bundle: int = 10000,
      max_read_time_seconds: float = 10.0) -> None:
    super().__init__()
    if not isinstance(source, UnboundedSource):
      hint = (
          ' Give an instance, not the class.' if isinstance(source, type) and
          issubclass(source, UnboundedSource) else '')
      raise TypeError(f'source={source!r} is not an UnboundedSource.{hint}')
    self._source = source
    self._caps = Caps.checked(
        poll_interval, max_records_per_bundle, max_read_time_seconds)
    self._output_type = output_type(source)
    mark_coder = source.get_checkpoint_mark_coder()
    if not isinstance(mark_coder, coders.Coder):
      raise TypeError(
          f'source={type(source).__name__}: get_checkpoint_mark_coder() '
          f'returned {mark_coder!r}, which is not a Coder.')

  def expand(self, pbegin: pvalue.PBegin) -> pvalue.PCollection:
    if not isinstance(pbegin, pvalue.PBegin):
      raise TypeError(
          'ReadFromUnboundedSource begins a pipeline; it takes no input, but '
          f'was applied to {pbegin!r}. ReadAllFromUnboundedSource reads '
          'sources that are elements.')
    try:
      source = dump(self._source)
    except Exception as exc:
      raise ValueError(
          f'source={type(self._source).__name__} cannot be pickled: {exc!r}. '
          'Keep connections, threads and open files in the reader; the source '
          'only says how to make one.') from exc
    options = dump(pbegin.pipeline.options)
    splits = (
        pbegin
        | Impulse()
        | 'Split' >> ParDo(
            _unbounded_dofn.SplitSourceFn(
                source, options,
                self._DESIRED_NUM_SPLITS)).with_output_types(Split))
    return read_splits(
        splits,
        options,
        self._caps,
        self._output_type,
        self._source.requires_deduping())

  def display_data(self):
    return {
        'source': DisplayDataItem(self._source.__class__, label='Read Source'),
        'source_dd': self._source,
    }


class ReadAllFromUnboundedSource(PTransform):
  """Reads each :class:`UnboundedSource` of a PCollection.

  For inputs that are found while the pipeline runs, partitions or tables for
  example::

    (topics
     | Watch(list_partitions, poll_interval=60)
     | beam.MapTuple(lambda topic, partition: PartitionSource(partition))
     | ReadAllFromUnboundedSource())

  A source that comes is split and read from then on, for as long as it lasts;
  nothing takes one away but the watermark ``MAX_TIMESTAMP`` of its readers. One
  that comes twice is read twice.

  Records may be late: the watermark here is at most that of the sources that
  come in, and follows it where nothing is read yet. Records that are older than
  the watermark when their source arrives are late, unless that was held back:
  give a found partition an event time that its records do not lie before (that
  of its creation, say), and discover with a watermark to match.

  Args:
    poll_interval, max_records_per_bundle, max_read_time_seconds: as for
      :class:`ReadFromUnboundedSource`.
    requires_deduping: whether records that come again are dropped, as
      :meth:`UnboundedSource.requires_deduping` of all the sources says.

  Elements are in the global window, whatever windows the sources came in. Their
  type is ``Any`` unless ``.with_output_types(...)`` says which.

  Raises:
    TypeError, ValueError: at construction, as for
      :class:`ReadFromUnboundedSource`.
  """
  def __init__(
      self,
      poll_interval: float = 1.0,
      max_records_per_bundle: int = 10000,
      max_read_time_seconds: float = 10.0,
      requires_deduping: bool = False) -> None:
    super().__init__()
    self._caps = Caps.checked(
        poll_interval, max_records_per_bundle, max_read_time_seconds)
    if not isinstance(requires_deduping, bool):
      raise TypeError(f'requires_deduping={requires_deduping!r} must be a bool.')
    self._requires_deduping = requires_deduping

  def expand(self, sources: pvalue.PCollection) -> pvalue.PCollection:
    if not isinstance(sources, pvalue.PCollection):
      raise TypeError(
          'ReadAllFromUnboundedSource reads a PCollection of sources, but was '
          f'applied to {sources!r}. ReadFromUnboundedSource reads one source.')
    options = dump(sources.pipeline.options)
    hints = self.get_type_hints().simple_output_type(self.label)
    splits = (
        sources
        | WindowInto(GlobalWindows())
        | 'Split' >> ParDo(
            _unbounded_dofn.SplitEachFn(
                options,
                ReadFromUnboundedSource._DESIRED_NUM_SPLITS,
                self._requires_deduping)).with_output_types(Split))
    return read_splits(
        splits,
        options,
        self._caps,
        typehints.Any if hints is None else hints,
        self._requires_deduping)
