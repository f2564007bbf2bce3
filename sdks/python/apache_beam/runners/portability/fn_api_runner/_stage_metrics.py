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

"""Metrics of a stage, over all of its bundles.

Purpose: FnApiRunner merged what a bundle reported with what was merged before,
  and for that decoded and encoded all of it again. Here sums are numbers until
  somebody reads them.
Guarantees: one info a metric: counters and distributions are those of
  ``monitoring_infos.consolidate`` for all bundles; of a gauge it is the latest;
  of sets and tries the union. Does not grow with the number of bundles, but for
  kinds of metrics that are not known here. Can be read any number of times, and
  added to after that.
Threads: one.
"""

from typing import Iterable
from typing import Iterator
from typing import MutableMapping

from apache_beam.coders import coder_impl
from apache_beam.coders import coders
from apache_beam.metrics import monitoring_infos
from apache_beam.metrics.cells import BoundedTrieData
from apache_beam.metrics.cells import StringSetData
from apache_beam.portability.api import metrics_pb2


class _Sum:
  """One counter."""

  __slots__ = ('_total', )

  def __init__(self, payload: bytes) -> None:
    self._total: int = coder_impl.create_InputStream(payload).read_var_int64()

  def add(self, payload: bytes) -> None:
    self._total += coder_impl.create_InputStream(payload).read_var_int64()

  def payload(self) -> bytes:
    return _encode(self._total)


class _Distribution:
  """One distribution."""

  __slots__ = ('_count', '_sum', '_min', '_max')

  def __init__(self, payload: bytes) -> None:
    read = coder_impl.create_InputStream(payload).read_var_int64
    self._count, self._sum, self._min, self._max = (
        read(), read(), read(), read())

  def add(self, payload: bytes) -> None:
    read = coder_impl.create_InputStream(payload).read_var_int64
    self._count += read()
    self._sum += read()
    self._min = min(self._min, read())
    self._max = max(self._max, read())

  def payload(self) -> bytes:
    return _encode(self._count, self._sum, self._min, self._max)


class _Gauge:
  """One gauge: the latest value, and its time before it."""

  __slots__ = ('_latest', '_time')

  def __init__(self, payload: bytes) -> None:
    self._latest = payload
    self._time = self._time_of(payload)

  def add(self, payload: bytes) -> None:
    time = self._time_of(payload)
    # Of two in one millisecond, that of the later bundle.
    if time >= self._time:
      self._latest = payload
      self._time = time

  def payload(self) -> bytes:
    return self._latest

  @staticmethod
  def _time_of(payload: bytes) -> int:
    return coder_impl.create_InputStream(payload).read_var_int64()


class _StringSet:
  """One set of strings."""

  __slots__ = ('_data', )

  _CODER = coders.IterableCoder(coders.StrUtf8Coder())

  def __init__(self, payload: bytes) -> None:
    self._data = self._decode(payload)

  def add(self, payload: bytes) -> None:
    self._data = self._data.combine(self._decode(payload))

  def payload(self) -> bytes:
    return self._CODER.encode(sorted(self._data.string_set))

  def _decode(self, payload: bytes) -> StringSetData:
    return StringSetData(set(self._CODER.decode(payload)))


class _BoundedTrie:
  """One trie."""

  __slots__ = ('_data', )

  def __init__(self, payload: bytes) -> None:
    self._data = self._decode(payload)

  def add(self, payload: bytes) -> None:
    self._data = self._data.combine(self._decode(payload))

  def payload(self) -> bytes:
    return self._data.to_proto().SerializeToString()

  def _decode(self, payload: bytes) -> BoundedTrieData:
    return BoundedTrieData.from_proto(
        metrics_pb2.BoundedTrie.FromString(payload))


def _encode(*numbers: int) -> bytes:
  out = coder_impl.create_OutputStream()
  for number in numbers:
    out.write_var_int64(number)
  return out.get()


_TOTALS = {
    monitoring_infos.SUM_INT64_TYPE: _Sum,
    monitoring_infos.DISTRIBUTION_INT64_TYPE: _Distribution,
    monitoring_infos.LATEST_INT64_TYPE: _Gauge,
    monitoring_infos.STRING_SET_TYPE: _StringSet,
    monitoring_infos.BOUNDED_TRIE_TYPE: _BoundedTrie,
}


class _Metric:
  """All that was reported under one key.

  Attributes:
    reports: the first one; of a kind that is not known here, all of them.
    total: what all of them come to; None for a kind that is not known here.
  """

  __slots__ = ('reports', 'total', '_is_merged')

  def __init__(self, first: metrics_pb2.MonitoringInfo) -> None:
    self.reports = [_copy(first)]
    total = _TOTALS.get(first.type)
    self.total = None if total is None else total(first.payload)
    self._is_merged = False

  def add(self, info: metrics_pb2.MonitoringInfo) -> None:
    if self.total is None:
      self.reports.append(_copy(info))
    else:
      self.total.add(info.payload)
      self._is_merged = True

  def infos(self) -> list[metrics_pb2.MonitoringInfo]:
    if not self._is_merged:
      return self.reports[::-1]
    first = self.reports[0]
    # Of several, it is not said when the first began.
    return [
        metrics_pb2.MonitoringInfo(
            urn=first.urn,
            type=first.type,
            labels=dict(first.labels),
            payload=self.total.payload())
    ]


def _copy(info: metrics_pb2.MonitoringInfo) -> metrics_pb2.MonitoringInfo:
  # A part of a response would keep all of the response in memory.
  copied = metrics_pb2.MonitoringInfo()
  copied.CopyFrom(info)
  return copied


def _key(info: metrics_pb2.MonitoringInfo) -> frozenset:
  # What to_key gives; to ask the labels for items() takes a third longer.
  labels = info.labels
  return frozenset([info.urn, *[(name, labels[name]) for name in labels]])


class StageMetrics:
  """The metrics of one stage; iterating gives its MonitoringInfos."""
  def __init__(self) -> None:
    self._metrics: dict[frozenset, _Metric] = {}

  def add(self, infos: Iterable[metrics_pb2.MonitoringInfo]) -> None:
    """Adds what a bundle reported."""
    metrics = self._metrics
    for info in infos:
      key = _key(info)
      metric = metrics.get(key)
      if metric is None:
        metrics[key] = _Metric(info)
      else:
        metric.add(info)

  def __iter__(self) -> Iterator[metrics_pb2.MonitoringInfo]:
    for metric in list(self._metrics.values()):
      yield from metric.infos()


def add_bundle(
    by_stage: MutableMapping[str, StageMetrics],
    stage: str,
    infos: Iterable[metrics_pb2.MonitoringInfo]) -> None:
  """Adds what a bundle of a stage reported to what the runner returns."""
  if stage not in by_stage:
    by_stage[stage] = StageMetrics()
  by_stage[stage].add(infos)
