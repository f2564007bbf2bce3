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

"""The watermarks that follow from what a reader has seen."""

import unittest

from apache_beam.io._unbounded_watermarks import IdleWatermark
from apache_beam.io._unbounded_watermarks import MonotonicWatermark
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp


class IdleWatermarkTest(unittest.TestCase):
  def test_idle_and_never_delivered(self):
    """Cases B57 and B58: moves if there is nothing to read, only then."""
    watermark = IdleWatermark(MonotonicWatermark(), slack_seconds=10)
    now = Timestamp(1000)
    self.assertEqual(MIN_TIMESTAMP, watermark.value(now, caught_up=False))
    self.assertEqual(Timestamp(990), watermark.value(now, caught_up=True))
    self.assertEqual(Timestamp(990), watermark.value(now, caught_up=False))


if __name__ == '__main__':
  unittest.main()
