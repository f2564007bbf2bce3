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

"""Sources that keep all promises pass the check, and it says what it tried."""

import unittest

from apache_beam.testing.unbounded_source import Crash
from apache_beam.testing.unbounded_source import End
from apache_beam.testing.unbounded_source import Idle
from apache_beam.testing.unbounded_source import Records
from apache_beam.testing.unbounded_source import ScriptedSource
from apache_beam.testing.unbounded_source import check_unbounded_source


class RightSourcesTest(unittest.TestCase):
  def test_scripts_pass(self):
    for script in (
        [Records('a', 'b'), Idle(2), Records('c'), End()],
        [Records('a', 'b'), Crash(), Idle(), Records('c'), Crash(), End()],
        [Records('a', 'b', 'c')],
    ):
      with self.subTest(script):
        check_unbounded_source(
            lambda: ScriptedSource(script),  # pylint: disable=cell-var-from-loop
            expected=['a', 'b', 'c'],
            acked=ScriptedSource.acknowledged,
            schedules=200)


if __name__ == '__main__':
  unittest.main()
