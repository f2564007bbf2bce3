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

"""What readers say besides their records: watermarks and backlogs."""

from typing import Any

from apache_beam.testing._unbounded_properties import listed
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp


class Hints:
  """Holds them against each other, and against what comes.

  Args:
    run: whose readers they are.

  Attributes:
    watermark: what the reader that is open reported last.
    knows_backlog: whether any backlog was not None.
  """
  def __init__(self, run) -> None:
    self._run = run
    self.watermark = MIN_TIMESTAMP
    self.knows_backlog = False
    self._promised = MIN_TIMESTAMP  # The watermark of what is committed.
    self._empty = ''  # Which backlog was 0, where records should come.

  def opened(self) -> None:
    """Another reader begins, behind what is committed."""
    self.watermark = MIN_TIMESTAMP
    self._empty = ''
    if self._run.marks.committed is not None:
      self._promised = self._run.marks.committed.watermark

  def record_came(
      self, record: Any, timestamp: Timestamp, first_time: bool) -> None:
    """Holds a record against what was said before it came.

    Args:
      first_time: False if it is delivered again. Then it may well be older than
        a watermark.
    """
    run = self._run
    if not isinstance(timestamp, Timestamp):
      raise run.task.error(
          'watermark',
          f'get_current_timestamp() returned {timestamp!r}, no Timestamp.',
          run.steps)
    bound = max(self.watermark, self._promised)
    if first_time and timestamp < bound:
      run.broken(
          'watermark',
          f'{record!r} has the time {timestamp}, after a watermark of {bound} '
          'was reported.')
    if self._empty and first_time:
      run.broken('backlog', f'{self._empty}, and then {record!r} came.')
    self._empty = ''

  def watermark_reported(self, has_unmarked: bool) -> None:
    """Asks for the watermark.

    Args:
      has_unmarked: whether records were read since the last mark. If not, the
        runner commits this watermark with that mark.
    """
    run = self._run
    watermark = run.ask('watermark', run.reader.get_watermark)
    if not isinstance(watermark, Timestamp):
      run.broken(
          'watermark', f'get_watermark() returned {watermark!r}, no Timestamp.')
    elif watermark < self.watermark:
      run.broken(
          'watermark', f'It went back from {self.watermark} to {watermark}.')
    elif watermark >= MAX_TIMESTAMP and run.left():
      run.broken(
          'watermark',
          f'It is MAX_TIMESTAMP, while {listed(run.left())} is still to come.')
    else:
      self.watermark = watermark
      if not has_unmarked:
        if run.marks.newest is not None:
          run.marks.newest.watermark = watermark
        else:
          self._promised = max(self._promised, watermark)

  def backlog_asked(self, idle: bool) -> None:
    """Asks for the backlog, see :meth:`check_backlog`."""
    run = self._run
    ask = getattr(run.reader, 'get_split_backlog_bytes', lambda: None)
    opened = len(run.world.opened)
    backlog = run.ask('backlog', ask)
    if len(run.world.opened) > opened:
      run.broken('backlog', 'get_split_backlog_bytes() opened a reader.')
    self.check_backlog('get_split_backlog_bytes()', backlog, idle)

  def check_backlog(self, method: str, backlog: Any, idle: bool) -> None:
    """Holds it against what is left.

    Args:
      idle: whether nothing is there to be read.
    """
    run = self._run
    left = run.left()
    if backlog is None:
      return
    self.knows_backlog = True
    if (isinstance(backlog, bool) or not isinstance(backlog, int) or
        backlog < 0):
      run.broken(
          'backlog', f'{method} returned {backlog!r}, not an int of 0 or more.')
    elif left and not backlog:
      # Wrong if one does come; else that is what is wrong.
      self._empty = f'{method} returned 0'
    elif backlog and idle:
      run.broken(
          'backlog', f'{method} returned {backlog}, when all was read.')
