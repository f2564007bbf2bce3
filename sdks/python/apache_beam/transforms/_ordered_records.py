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

"""The records that ordered processing buffers, and their bytes.

A record is a tuple of its event time (microseconds since 1970, which may be
negative), its number of arrival within its key, and its value as bytes. No two
records of a key have one number, so comparing them never compares values.

A run is a list of records, in order, as bytes:

  varint  event time of the first record
  varint  number of records
  then each record: varint event time, varint number, varint length of the
  value, value
"""

import operator
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import Optional

from apache_beam import coders
from apache_beam.coders import coder_impl

Record = tuple[int, int, bytes]

# In a run of its own, so that releasing a few reads few.
RECORDS_PER_RUN = 128

event_time = operator.itemgetter(0)


class RecordOrder:
  """The order of records: event time, then sort key, then arrival.

  Args:
    sort_key: of an encoded value.
  """
  def __init__(self, sort_key: Optional[Callable[[bytes], Any]] = None):
    self._sort_key = sort_key

  def sort(self, records: list[Record]) -> None:
    """Sorts in place; linear if the list is a few sorted ones in a row."""
    if self._sort_key is None:
      records.sort()
    else:
      key = self._sort_key
      records.sort(key=lambda record: (record[0], key(record[2]), record[1]))

  def sort_stably(self, records: list[Record]) -> None:
    """Sorts in place, without regard to numbers of arrival."""
    if self._sort_key is None:
      records.sort(key=event_time)
    else:
      key = self._sort_key
      records.sort(key=lambda record: (record[0], key(record[2])))


_CODER = coders.TupleCoder(
    [coders.VarIntCoder(), coders.VarIntCoder(),
     coders.BytesCoder()]).get_impl()


def write_run(records: Sequence[Record], out) -> None:
  """Writes a run into an output stream of coders."""
  out.write_var_int64(records[0][0] if records else 0)
  out.write_var_int64(len(records))
  write = _CODER.encode_to_stream
  for record in records:
    write(record, out, True)


def read_run(source) -> list[Record]:
  """Reads a run from an input stream of coders."""
  source.read_var_int64()
  read = _CODER.decode_from_stream
  return [read(source, True) for _ in range(source.read_var_int64())]


def encode_run(records: Sequence[Record]) -> bytes:
  out = coder_impl.create_OutputStream()
  write_run(records, out)
  return out.get()


def decode_run(run: bytes) -> list[Record]:
  return read_run(coder_impl.create_InputStream(run))


def first_time(run: bytes) -> int:
  """The event time of the first record of a run, in microseconds."""
  return coder_impl.create_InputStream(run).read_var_int64()


def encode_runs(records: Sequence[Record]) -> list[bytes]:
  """Encodes records as runs of at most RECORDS_PER_RUN."""
  return [
      encode_run(records[i:i + RECORDS_PER_RUN])
      for i in range(0, len(records), RECORDS_PER_RUN)
  ]
