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

"""The schedules, by themselves, and how a broken promise is told."""

import itertools
import pickle
import unittest

from apache_beam.io import unbounded_source as api
from apache_beam.testing import _unbounded_schedules as schedules
from apache_beam.testing import unbounded_source as kit
from apache_beam.testing._unbounded_properties import BY_NAME
from apache_beam.testing._unbounded_properties import PROPERTIES
from apache_beam.testing._unbounded_properties import ConformanceError
from apache_beam.testing._unbounded_properties import listed
from apache_beam.testing._unbounded_properties import show


class AllSchedulesTest(unittest.TestCase):
  def test_the_shorter_come_first_and_each_once(self):
    first = list(itertools.islice(schedules.all_schedules(3), 2000))
    lengths = [len(steps) for steps in first]
    self.assertEqual(sorted(lengths), lengths)
    self.assertEqual(2000, len(set(map(tuple, first))))

  def test_none_is_missing(self):
    """Of all sequences of up to 5 steps, those that make sense are there."""
    def makes_sense(steps):
      state = schedules.State()
      for step in steps:
        if not state.allows(step, 3):
          return False
        state = state.after(step, 3)
      return steps[-1] not in ('advance', 'idle')

    right = {
        steps for length in range(1, 6)
        for steps in itertools.product(schedules.STEPS, repeat=length)
        if makes_sense(steps)
    }
    given = {
        tuple(steps) for steps in itertools.takewhile(
            lambda steps: len(steps) < 6, schedules.all_schedules(3))
    }
    self.assertEqual(right, given)
    self.assertIn(('advance', 'mark', 'crash'), given)
    self.assertIn(('advance', 'mark', 'close', 'finalize'), given)
    self.assertGreater(len(given), 40)

  def test_a_committed_mark_may_be_finalized_after_a_crash(self):
    """And one that was lost by it may not."""
    for steps, allowed in (
        (['advance', 'mark', 'close', 'advance', 'crash'], True),
        (['advance', 'mark', 'crash'], False),
        (['advance', 'mark', 'finalize', 'advance', 'crash'], False),
    ):
      state = schedules.State()
      for step in steps:
        state = state.after(step, 3)
      self.assertEqual(allowed, state.allows('finalize', 3), steps)

  def test_steps_that_would_change_nothing_are_left_out(self):
    for steps in itertools.islice(schedules.all_schedules(2), 500):
      for before, after in zip(steps, steps[1:]):
        self.assertNotEqual(('mark', 'mark'), (before, after))
        self.assertNotEqual(('close', 'close'), (before, after))
        self.assertNotEqual(('crash', 'crash'), (before, after))
        self.assertNotEqual(('idle', 'advance'), (before, after))
      self.assertNotIn(steps[0], ('mark', 'finalize', 'crash', 'close'))

  def test_random_ones_are_the_same_each_time_and_make_sense(self):
    first = list(itertools.islice(schedules.random_schedules(3, 25), 50))
    again = list(itertools.islice(schedules.random_schedules(3, 25), 50))
    self.assertEqual(first, again)
    self.assertEqual({25}, {len(steps) for steps in first})
    self.assertEqual(set(schedules.STEPS), set(itertools.chain(*first)))


class ShrinkTest(unittest.TestCase):
  def test_what_is_left_is_needed(self):
    def fails(steps):
      return 'mark' in steps and 'crash' in steps[steps.index('mark'):]

    self.assertEqual(
        ['mark', 'crash'],
        schedules.shrink(['crash', 'mark', 'advance', 'crash', 'mark'], fails))

  def test_steps_that_only_go_together_stay(self):
    def fails(steps):
      return steps.count('advance') == steps.count('mark') > 0

    self.assertEqual(['advance', 'mark'], sorted(
        schedules.shrink(['advance', 'mark'], fails)))


class ErrorTest(unittest.TestCase):
  ERROR = ConformanceError(
      'frozen-marks', 'It changed.', ['advance', 'advance', 'mark'],
      {'UnboundedSource': 'Orders', 'UnboundedReader': 'OrdersReader'})

  def test_it_names_property_schedule_and_where_to_look(self):
    self.assertEqual(
        'Orders breaks "frozen-marks": A mark is a new object each time, and '
        'never changes.\n'
        '  schedule: advance×2 mark\n'
        '  seen: It changed.\n'
        '  look at: OrdersReader.get_checkpoint_mark. Copy what the reader '
        'goes on changing, such as a list of ids. More in '
        'help(UnboundedReader.get_checkpoint_mark).',
        str(self.ERROR))

  def test_it_is_the_same_after_pickling(self):
    """A test that runs in another process tells it, too."""
    again = pickle.loads(pickle.dumps(self.ERROR))
    self.assertEqual(str(self.ERROR), str(again))
    self.assertEqual(self.ERROR.schedule, again.schedule)

  def test_all_that_is_looked_at_is_there_and_explained(self):
    for one in PROPERTIES:
      self.assertIs(one, BY_NAME[one.name])
      for public in one.look_at:
        of, _, method = public.partition('.')
        found = getattr(api, of, None) or getattr(kit, of)
        self.assertTrue(
            (getattr(found, method) if method else found).__doc__, public)

  def test_lists_are_short(self):
    self.assertEqual('nothing', listed([]))
    self.assertEqual("1, 'b'", listed([1, 'b']))
    self.assertEqual('0, 1, 2, 3, 4 and 95 more', listed(range(100)))
    self.assertEqual('', show([]))


if __name__ == '__main__':
  unittest.main()
