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


"""The bytes of what a key's buffer keeps in its own value.

  byte    version of this format, 1
  byte    which of these there are: safe_watermark 1, last_processed 2,
          min_event_time and max_event_time 4
  varint  each of those
  varint  next_number
  varint  number of `timers`, then each, a varint
  varint  number of `marks`, then each, a varint
  run     the records that wait, see `_ordered_records`
  run     the context
"""

from apache_beam import coders
from apache_beam.coders import coder_impl
from apache_beam.transforms._ordered_buffer import BufferState
from apache_beam.transforms._ordered_buffer import Saved
from apache_beam.transforms._ordered_records import read_run
from apache_beam.transforms._ordered_records import write_run

_VERSION = 1


class SavedCoder(coders.Coder):
  """Encodes what `KeyBuffer.save` returns."""
  def encode(self, value: Saved) -> bytes:
    if value.encoded is None:
      value.encoded = self._encode(value)
    return value.encoded

  def _encode(self, saved):
    out = coder_impl.create_OutputStream()
    out.write_byte(_VERSION)
    state = saved.state
    times = (
        (1, (state.safe_watermark, )), (2, (state.last_processed, )),
        (4, (state.min_event_time, state.max_event_time)))
    out.write_byte(sum(flag for flag, some in times if some[0] is not None))
    for _, some in times:
      if some[0] is not None:
        for time in some:
          out.write_var_int64(time)
    out.write_var_int64(saved.next_number)
    for numbers in (saved.timers, saved.marks):
      out.write_var_int64(len(numbers))
      for number in numbers:
        out.write_var_int64(number)
    write_run(saved.front, out)
    write_run(saved.context, out)
    return out.get()

  def decode(self, encoded: bytes) -> Saved:
    source = coder_impl.create_InputStream(encoded)
    version = source.read_byte()
    if version != _VERSION:
      raise ValueError(
          'the state of ordered processing has format %d, this Beam reads %d' %
          (version, _VERSION))
    flags = source.read_byte()
    read = source.read_var_int64
    safe, last, first_waiting, last_waiting = (
        read() if flags & flag else None for flag in (1, 2, 4, 4))
    state = BufferState(safe, last, first_waiting, last_waiting)
    next_number = read()
    timers = tuple(read() for _ in range(read()))
    marks = tuple(read() for _ in range(read()))
    front = tuple(read_run(source))
    context = tuple(read_run(source))
    return Saved(state, next_number, timers, marks, front, context, encoded)

  def is_deterministic(self) -> bool:
    return True

  def __eq__(self, other):
    return type(self) is type(other)

  def __hash__(self):
    return hash(type(self))
