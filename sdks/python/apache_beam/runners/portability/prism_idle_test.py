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

"""What Prism uses while a bundle does nothing; the Prism of 2.75 uses a core.

The test runs where ``PRISM_LOCATION`` names a binary.
"""

import os
import time
import unittest

import apache_beam as beam
from apache_beam.io._runner_testing import needs_prism
from apache_beam.io._runner_testing import prism_pipeline

WAIT_SECONDS = 3
# What Prism used during each wait: DoFns are pickled, this is not.
USED: list[float] = []


def cpu_of_children() -> float:
  """CPU seconds of the processes that this one has started: of Prism."""
  ticks = 0
  for name in os.listdir('/proc'):
    if name.isdigit():
      try:
        with open(f'/proc/{name}/stat') as stat:
          fields = stat.read().rpartition(')')[2].split()
      except OSError:
        continue  # It ended meanwhile.
      if int(fields[1]) == os.getpid():
        ticks += int(fields[11]) + int(fields[12])
  return ticks / os.sysconf('SC_CLK_TCK')


class WaitFn(beam.DoFn):
  """Waits, notes what that took, and gives nothing."""
  def process(self, unused_element):
    before = cpu_of_children()
    time.sleep(WAIT_SECONDS)
    USED.append(cpu_of_children() - before)


@needs_prism
@unittest.skipUnless(os.path.exists('/proc/self/stat'), 'there is no /proc')
class IdleTest(unittest.TestCase):
  def test_waiting_for_a_bundle_takes_no_core(self):
    """It has no outputs whose end Prism would wait for as well."""
    USED.clear()
    with prism_pipeline() as p:
      _ = p | beam.Create([1], reshuffle=False) | beam.ParDo(WaitFn())
    self.assertEqual(1, len(USED))
    # On a busy machine a loop that spins gets less than a core, but not so
    # little.
    self.assertLess(USED[0], WAIT_SECONDS / 12)


if __name__ == '__main__':
  unittest.main()
