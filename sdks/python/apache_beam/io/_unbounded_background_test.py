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

"""What a BackgroundReader delivers, and how it ends."""

import unittest

from apache_beam.io._unbounded_background import BackgroundReader


class Numbers(BackgroundReader):
  def __init__(self, count):
    super().__init__(capacity=10)
    self._left = list(range(count))
    self.shuts = 0

  def fetch(self):
    fetched, self._left = self._left[:7], self._left[7:]
    if not fetched:
      self.finish()
    return fetched

  def shut(self):
    self.shuts += 1


class BackgroundReaderTest(unittest.TestCase):
  def test_all_is_delivered_in_order(self):
    reader = Numbers(100)
    delivered = []
    there = reader.start()
    while there or not reader.finished:
      if there:
        delivered.append(reader.current)
      there = reader.advance()
    reader.close()
    self.assertEqual(list(range(100)), delivered)
    self.assertEqual(1, reader.shuts)


if __name__ == '__main__':
  unittest.main()
