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


"""What a watch tells of itself: once at the end of each bundle."""

from typing import Optional

from apache_beam.metrics import Metrics
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

NAMESPACE = 'apache_beam.io.watch'

_POLLS = Metrics.counter(NAMESPACE, 'polls')
_NEW = Metrics.counter(NAMESPACE, 'outputs_new')
_SEEN = Metrics.counter(NAMESPACE, 'outputs_seen')
_DROPPED = Metrics.counter(NAMESPACE, 'outputs_dropped_late')
_RETRIES = Metrics.counter(NAMESPACE, 'retries_later')
_POLL_TIME = Metrics.distribution(NAMESPACE, 'poll_millis')
_KEYS = Metrics.distribution(NAMESPACE, 'keys_kept')
_LAG = Metrics.distribution(NAMESPACE, 'watermark_lag_millis')


class BundleMetrics:
  """What one bundle of one watch did.

  Attributes:
    polls: 1, or 0 if it output what was found before.
    poll_seconds: how long that took.
    new: how many outputs were new.
    seen: how many had been seen before.
    dropped: how many came too late for the cursor.
    put_off: whether the poll asked to be made later.
  """

  __slots__ = ('polls', 'poll_seconds', 'new', 'seen', 'dropped', 'put_off')

  def __init__(self) -> None:
    self.polls = 0
    self.poll_seconds: Optional[float] = None
    self.new = 0
    self.seen = 0
    self.dropped = 0
    self.put_off = False

  def tell(self, keys: int, watermark: Timestamp, now: Timestamp) -> None:
    """Updates the metrics that changed.

    Args:
      keys: how many are kept.
      watermark: of the watch, at the end of the bundle.
    """
    for counter, count in ((_POLLS, self.polls), (_NEW, self.new),
                           (_SEEN, self.seen), (_DROPPED, self.dropped),
                           (_RETRIES, int(self.put_off))):
      if count:
        counter.inc(count)
    if self.poll_seconds is not None:
      _POLL_TIME.update(round(self.poll_seconds * 1000))
    _KEYS.update(keys)
    if MIN_TIMESTAMP.micros < watermark.micros < MAX_TIMESTAMP.micros:
      _LAG.update(max(0, (now.micros - watermark.micros) // 1000))
