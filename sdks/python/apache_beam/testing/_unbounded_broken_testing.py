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

"""What the tests of wrong sources share.

Each is a right source with one fault. Its test says the property that names the
fault, and the schedule, which has to be minimal: no step can be left out.
"""

import unittest

from apache_beam.testing._unbounded_test_sources import LogMark
from apache_beam.testing._unbounded_test_sources import LogMarkCoder
from apache_beam.testing._unbounded_test_sources import LogReader
from apache_beam.testing._unbounded_test_sources import LogSource
from apache_beam.testing._unbounded_test_sources import Server
from apache_beam.testing.unbounded_source import ConformanceError
from apache_beam.testing.unbounded_source import check_unbounded_source

VALUES = ['a', 'b', 'c', 'd']


def log(reader=LogReader, mark=LogMark, mark_coder=LogMarkCoder, **methods):
  """A log source with other parts."""
  return type(
      'WrongSource', (LogSource, ),
      dict(reader=reader, mark=mark, mark_coder=mark_coder, **methods))


class BrokenTest(unittest.TestCase):
  def assert_caught(
      self, property, schedule, words, source, make=None, expected=None,
      **kwargs):
    kwargs.setdefault('patience_seconds', 0.05)
    kwargs.setdefault('max_advance_seconds', 5)
    with self.assertRaises(ConformanceError) as caught:
      check_unbounded_source(
          make or (lambda: source(VALUES)), expected or VALUES, **kwargs)
    error = caught.exception
    self.assertEqual(property, error.property, error)
    self.assertEqual(tuple(schedule.split()), error.schedule, error)
    self.assertIn(words, error.seen)
    for part in (f'breaks "{property}"', 'seen:', 'look at:', words):
      self.assertIn(part, str(error))
    return error

  def assert_queue_caught(self, property, schedule, words, source, **kwargs):
    kwargs.setdefault('acked', Server.acked_by)
    return self.assert_caught(
        property, schedule, words, source,
        replays=False,
        leave_out={'idle-watermark': 'nobody knows what it delivers again'},
        **kwargs)
