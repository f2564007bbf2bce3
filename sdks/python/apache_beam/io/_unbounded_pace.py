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

"""How much to ask of a reader at a time.

Purpose: chunks that are large enough to cost little, and small enough that the
  runner can split, and the time cap of a bundle is looked at, between two.
Guarantees: never below one record, nor above the limits here.
Threads: the one that reads. No clock: times are given.
"""

from typing import Optional

# So many records, their timestamps and windowed values still fit into the
# youngest generation of the garbage collector; more would be promoted and
# looked at again and again.
MAX_CHUNK_RECORDS = 150
MAX_CHUNK_BYTES = 4 << 20
MAX_CHUNK_SECONDS = 0.1
# While nothing is known of a reader: few enough to cost little if each takes
# long, enough not to be felt if they do not.
_FIRST_CHUNK_RECORDS = 8


class Pace:
  """How long a record takes and how large it is, from what was seen so far.

  Given the time, it knows none by itself.
  """
  def __init__(self) -> None:
    self._seconds: Optional[float] = None
    self._bytes = 0

  def chunk_limit(self, seconds_left: float) -> int:
    """How many records to read next: at least one."""
    if self._seconds is None:
      return _FIRST_CHUNK_RECORDS
    limit = MAX_CHUNK_RECORDS
    if self._bytes * limit > MAX_CHUNK_BYTES:
      limit = MAX_CHUNK_BYTES // self._bytes
    seconds = min(max(seconds_left, 0.0), MAX_CHUNK_SECONDS)
    if self._seconds * limit > seconds:
      limit = int(seconds / self._seconds)
    return max(limit, 1)

  def observe(self, records: int, seconds: float) -> None:
    """Notes what a chunk took, to read it and to process it downstream.

    Slower than thought counts at once, faster by and by.
    """
    each = seconds / records
    if self._seconds is not None and each < self._seconds:
      each = (each + self._seconds) / 2
    self._seconds = each

  def weigh(self, record_bytes: int) -> None:
    """Notes the size of a record; likewise."""
    self._bytes = max(record_bytes, self._bytes // 2)
