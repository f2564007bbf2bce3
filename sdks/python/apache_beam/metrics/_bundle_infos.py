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

"""Metrics of a bundle on their way into the worker's response.

Purpose: the worker describes each metric of each bundle by a MonitoringInfo,
  asks for its key twice and for its short id once, and copies it into the
  response. But for the number, all of that is the same in each bundle. Here it
  is worked out once for a metric.
Guarantees: a response holds what it held before, byte for byte where protobuf
  orders bytes. Whoever calls ``create_monitoring_info`` outside of
  :func:`collect`, or in another thread, gets a MonitoringInfo.
  What is remembered is bounded, and can be forgotten at any time.
Threads: any. Bundles and progress reports come at the same time; what they
  share is replaced as a whole.
"""

import functools
import threading
from datetime import datetime
from typing import Any
from typing import Callable
from typing import Optional

from google.protobuf import timestamp_pb2

from apache_beam.coders import coder_impl
from apache_beam.portability import common_urns
from apache_beam.portability.api import metrics_pb2

# Of how many metrics to remember what does not change. A worker that runs many
# pipelines begins anew then.
MAX_KINDS = 10000
# A larger payload is not kept for the next bundle.
MAX_KEPT_BYTES = 1000

# Fields of protobuf messages: (number << 3) | 2, the wire type of bytes.
_PAYLOAD = b'\x1a'  # MonitoringInfo.payload
_START_TIME = b'\x2a'  # MonitoringInfo.start_time
_INFOS = b'\x1a'  # ProcessBundle[Progress]Response.monitoring_infos
_DATA = b'\x2a'  # ProcessBundle[Progress]Response.monitoring_data
_KEY = b'\x0a'  # a map's key
_VALUE = b'\x12'  # a map's value

_SUM = common_urns.monitoring_info_types.SUM_INT64_TYPE.urn
_DISTRIBUTION = common_urns.monitoring_info_types.DISTRIBUTION_INT64_TYPE.urn
_PTRANSFORM = common_urns.monitoring_info_labels.TRANSFORM.label_props.name
_PCOLLECTION = common_urns.monitoring_info_labels.PCOLLECTION.label_props.name


def _length(number: int) -> bytes:
  """The length of a field on the wire: seven bits a byte, the least first."""
  if number < 0x80:
    return bytes((number, ))
  encoded = bytearray()
  while number >= 0x80:
    encoded.append(number & 0x7f | 0x80)
    number >>= 7
  encoded.append(number)
  return bytes(encoded)


def _field(tag: bytes, content: bytes) -> bytes:
  return tag + _length(len(content)) + content


class _Kind:
  """What all values of one metric have in common.

  Attributes:
    key: as ``monitoring_infos.to_key`` makes it.
    head: the encoded MonitoringInfo without payload and start time.
    short_id: who gave one last, and the one that it gave.
    written: who gave the short id, a payload and a start time, and what was
      written for them.
  """

  __slots__ = ('key', 'head', 'short_id', 'written')

  def __init__(self, urn: str, type_urn: str, labels: dict) -> None:
    self.key = frozenset([urn, *labels.items()])
    self.head = metrics_pb2.MonitoringInfo(
        urn=urn, type=type_urn, labels=labels).SerializeToString()
    self.short_id: tuple[Any, str] = (None, '')
    self.written: tuple[Any, bytes, Optional[datetime], bytes] = (
        None, b'', None, b'')


class Info:
  """Stands for a MonitoringInfo between its making and the response."""

  __slots__ = ('kind', 'payload', '_start_time')

  def __init__(self, kind: _Kind, payload: bytes) -> None:
    self.kind = kind
    self.payload = payload
    self._start_time: Optional[datetime] = None

  @property
  def start_time(self) -> 'Info':
    """Stands for the Timestamp, which the SDK only sets, by FromDatetime."""
    return self

  # pylint: disable-next=invalid-name
  def FromDatetime(self, moment: datetime) -> None:
    self._start_time = moment

  def encode(self) -> bytes:
    """The bytes of the MonitoringInfo."""
    encoded = self.kind.head
    if self.payload:
      encoded += _field(_PAYLOAD, self.payload)
    if self._start_time is not None:
      moment = timestamp_pb2.Timestamp()
      moment.FromDatetime(self._start_time)
      encoded += _field(_START_TIME, moment.SerializeToString())
    return encoded

  def write(self, short_ids) -> bytes:
    """What it adds to an encoded response."""
    kind = self.kind
    payload = self.payload
    moment = self._start_time
    source, written_payload, written_moment, written = kind.written
    if (source is short_ids and written_payload == payload and
        written_moment == moment):
      return written
    encoded = self.encode()
    source, short_id = kind.short_id
    if source is not short_ids:
      short_id = short_ids.get_short_id(
          metrics_pb2.MonitoringInfo.FromString(encoded))
      kind.short_id = short_ids, short_id
    written = _write(encoded, short_id, payload)
    if len(payload) <= MAX_KEPT_BYTES:
      kind.written = short_ids, payload, moment, written
    return written


def _write(info: bytes, short_id: str, payload: bytes) -> bytes:
  return _field(_INFOS, info) + _field(
      _DATA, _field(_KEY, short_id.encode()) + _field(_VALUE, payload))


_kinds: dict[tuple, _Kind] = {}


class _Collecting(threading.local):
  """Whether this thread is in :func:`collect`."""
  now = False


COLLECTING = _Collecting()


def info(urn: str, type_urn: str, payload: bytes,
         labels: Optional[dict]) -> Optional[Info]:
  """What ``create_monitoring_info`` returns in :func:`collect`.

  None for arguments that only the message itself can judge.
  """
  if type(payload) is not bytes:
    return None
  labels = labels or {}
  try:
    described = (urn, type_urn, *labels.items())
    kind = _kinds.get(described)
    if kind is None:
      kind = _remember(described, _Kind(urn, type_urn, labels))
  except TypeError:
    return None
  return Info(kind, payload)


def counter(urn: str, value: int, ptransform, pcollection) -> Info:
  """What ``int64_counter`` returns there, for a number and no labels."""
  return Info(
      _kind_of(urn, _SUM, ptransform, pcollection),
      _SMALL[value] if 0 <= value < len(_SMALL) else _encode(value))


def distribution(urn: str, value, ptransform, pcollection) -> Info:
  """What ``int64_distribution`` returns there."""
  return Info(
      _kind_of(urn, _DISTRIBUTION, ptransform, pcollection),
      _encode(value.count, value.sum, value.min, value.max))


def _kind_of(urn, type_urn, ptransform, pcollection) -> _Kind:
  described = (urn, type_urn, ptransform, pcollection)
  kind = _kinds.get(described)
  if kind is None:
    labels = {_PTRANSFORM: ptransform, _PCOLLECTION: pcollection}
    kind = _remember(
        described,
        _Kind(urn, type_urn, {
            name: label
            for name, label in labels.items() if label
        }))
  return kind


def _remember(described: tuple, kind: _Kind) -> _Kind:
  if len(_kinds) >= MAX_KINDS:
    _kinds.clear()
  _kinds[described] = kind
  return kind


def _encode(*numbers: int) -> bytes:
  out = coder_impl.create_OutputStream()
  for number in numbers:
    out.write_var_int64(number)
  return out.get()


_SMALL = [_encode(number) for number in range(128)]


def collect(processor) -> list:
  """The metrics of a bundle processor, for :func:`response_of`.

  They are :class:`Info` where the SDK makes them by
  ``create_monitoring_info``, and messages where it does not.
  """
  COLLECTING.now = True
  try:
    return processor.monitoring_infos()
  finally:
    COLLECTING.now = False


def response_of(message: type) -> Callable:
  """Makes a response of the worker that reports metrics.

  Args:
    message: ProcessBundleResponse or ProcessBundleProgressResponse.

  Returns:
    What takes the fields of ``message``, but ``short_ids``, the worker's
    ``ShortIdCache``, for ``monitoring_data``.
  """
  return functools.partial(_respond, message)


def _respond(message, monitoring_infos, short_ids, **fields):
  response = message(**fields)
  response.MergeFromString(
      b''.join([
          each.write(short_ids) if type(each) is Info else _write(
              each.SerializeToString(),
              short_ids.get_short_id(each),
              each.payload) for each in monitoring_infos
      ]))
  return response
