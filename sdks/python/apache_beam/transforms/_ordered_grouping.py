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

"""What ordered processing does before and after elements are put in order."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import Optional

import apache_beam as beam
from apache_beam import coders
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms._ordered_records import Record
from apache_beam.transforms._ordered_records import RecordOrder
from apache_beam.transforms._ordered_records import decode_run
from apache_beam.transforms._ordered_records import encode_run
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

# Of the metrics.
NAMESPACE = 'OrderedProcess'

# How many elements a bundle keeps before it passes them on.
_ELEMENTS_IN_BUNDLE = 10_000


def in_place(output: Any, timestamp: Timestamp, window: Any) -> Any:
  """An output of a user's function, at the time and in the window of its
  element.

  What has a time or a window already keeps it. A TimestampedValue would be
  assigned to windows anew, which are several if they slide.
  """
  if isinstance(output, TaggedOutput):
    return TaggedOutput(output.tag, in_place(output.value, timestamp, window))
  if isinstance(output, (TimestampedValue, WindowedValue)):
    return output
  return WindowedValue(output, timestamp, (window, ))


def items_of(records: Iterable[Record],
             value_coder: coders.Coder) -> Iterator[tuple[Timestamp, Any]]:
  """The times and values of records."""
  decode = value_coder.get_impl().decode
  for time, _, value in records:
    yield Timestamp(micros=time), decode(value)


# What has a time or a window of its own, or a tag.
_PLACED = (TaggedOutput, TimestampedValue, WindowedValue)


def outputs(
    process: Callable[..., Optional[Iterable]],
    key: Any,
    window: Any,
    before: Iterable[tuple[Timestamp, Any]],
    items: Iterable[tuple[Timestamp, Any]],
    context_size: int) -> Iterator[Any]:
  """Calls `process` for each item, with those that come before it.

  Args:
    before: items that `process` was called for already, the latest last.
    items: an iterator will do: objects that live no longer than they have to
      are nothing to the garbage collector.
  """
  windows = (window, )
  context = collections.deque(before, context_size)
  for item in items:
    timestamp, value = item
    for output in process(key, timestamp, value, list(context)) or ():
      if isinstance(output, _PLACED):
        yield in_place(output, timestamp, window)
      else:
        yield WindowedValue(output, timestamp, windows)
    context.append(item)


class GroupInBundle(beam.DoFn):
  """Makes one run of all elements of a key in a bundle, in order of arrival.

  Its time is that of the earliest, so that it holds the watermark for all.
  """
  def __init__(self, key_coder: coders.Coder, value_coder: coders.Coder):
    self._key_coder = key_coder
    self._value_coder = value_coder

  def setup(self):
    # What `Coder.encode` looks up with each call.
    self._encode_key = self._key_coder.get_impl().encode
    self._encode_value = self._value_coder.get_impl().encode

  def start_bundle(self):
    self._runs = {}
    self._number = 0

  def process(self, element, windowed_value=beam.DoFn.WindowedValueParam):
    # The SDK takes longer to give a timestamp and a window each by itself than
    # all of this takes.
    key, value = element
    encoded_value = self._encode_value(value)
    # Equal keys may differ to a runner, as 1 and True do.
    encoded_key = self._encode_key(key)
    for window in windowed_value.windows:
      entry = (encoded_key, window)
      run = self._runs.get(entry)
      if run is None:
        run = self._runs[entry] = (key, [])
      records = run[1]
      records.append(
          (windowed_value.timestamp_micros, len(records), encoded_value))
      self._number += 1
    if self._number >= _ELEMENTS_IN_BUNDLE:
      return list(self.finish_bundle())

  def finish_bundle(self):
    for (_, window), (key, records) in self._runs.items():
      yield WindowedValue((key, encode_run(records)),
                          Timestamp(micros=min(records)[0]), (window, ))
    self.start_bundle()


class ProcessGrouped(beam.DoFn):
  """Puts all elements of a key and window in order: a bounded input has them.

  Args:
    process_element: the user's function.
    context_size: how many elements before each it gets.
    order: of the records.
    value_coder: of the values.
  """
  def __init__(
      self,
      process_element: Callable[..., Iterable],
      context_size: int,
      order: RecordOrder,
      value_coder: coders.Coder):
    self._process_element = process_element
    self._context_size = context_size
    self._order = order
    self._value_coder = value_coder
    self._released = Metrics.counter(NAMESPACE, 'released_elements')

  def process(self, element, window=beam.DoFn.WindowParam):
    key, runs = element
    records = []
    for run in runs:
      records += decode_run(run)
    # Numbers of arrival are those within a bundle; across bundles there is no
    # arrival in a bounded input.
    self._order.sort_stably(records)
    self._released.inc(len(records))
    items = items_of(records, self._value_coder)
    return outputs(
        self._process_element, key, window, (), items, self._context_size)
