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


"""When polling stops."""

import datetime
import decimal
import fractions
import unittest

import numpy as np

from apache_beam.io import _watch_conditions as conditions
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Duration
from apache_beam.utils.timestamp import Timestamp


class Clock:
  """A condition with its state, which goes through its coder each time."""
  def __init__(self, condition, now=0):
    self.condition = condition
    self._encode(condition.for_new_input(Timestamp(micros=now), 'input'))

  def _encode(self, state):
    self.encoded = self.condition.state_coder().encode(state)

  def _state(self):
    return self.condition.state_coder().decode(self.encoded)

  def poll(self, now, new=False):
    """Whether polling stops after a poll at `now`, in microseconds."""
    now = Timestamp(micros=now)
    if new:
      self._encode(self.condition.on_seen_new_output(now, self._state()))
    self._encode(self.condition.on_poll_complete(self._state()))
    return self.condition.can_stop_polling(now, self._state())


class ConditionsTest(unittest.TestCase):
  def test_never(self):
    clock = Clock(conditions.never())
    self.assertFalse(clock.poll(10**15, new=True))
    self.assertEqual(b'', clock.encoded)

  def test_after_total_of_is_exact(self):
    clock = Clock(conditions.after_total_of(10), now=7)
    self.assertFalse(clock.poll(10_000_006))
    self.assertFalse(clock.poll(10_000_007, new=True))
    self.assertTrue(clock.poll(10_000_008))

  def test_after_time_since_new_output_is_exact(self):
    clock = Clock(conditions.after_time_since_new_output(Duration(10)))
    self.assertFalse(clock.poll(10**15), 'there was no output yet')
    self.assertFalse(clock.poll(5, new=True))
    self.assertFalse(clock.poll(10_000_005))
    self.assertTrue(clock.poll(10_000_006))
    self.assertFalse(clock.poll(10_000_006, new=True))
    self.assertFalse(clock.poll(20_000_006))
    self.assertTrue(clock.poll(20_000_007))

  def test_after_iterations(self):
    self.assertTrue(Clock(conditions.after_iterations(1)).poll(0))
    clock = Clock(conditions.after_iterations(3))
    self.assertEqual([False, False, True],
                     [clock.poll(0, new) for new in (False, True, False)])

  def test_either_and_all(self):
    def both(combine):
      return Clock(
          combine(
              conditions.after_iterations(2), conditions.after_total_of(10)))

    clock = both(conditions.either_of)
    self.assertFalse(clock.poll(0))
    self.assertTrue(clock.poll(0))
    self.assertTrue(both(conditions.either_of).poll(10_000_001))
    clock = both(conditions.all_of)
    self.assertFalse(clock.poll(10_000_001))
    self.assertTrue(clock.poll(10_000_001))
    clock = both(conditions.all_of)
    self.assertFalse(clock.poll(0))
    self.assertFalse(clock.poll(10_000_000))
    self.assertTrue(clock.poll(10_000_001))
    clock = Clock(
        conditions.all_of(
            conditions.after_time_since_new_output(1),
            conditions.either_of(
                conditions.never(), conditions.after_iterations(1))))
    self.assertFalse(clock.poll(10**9))
    self.assertFalse(clock.poll(10**9, new=True))
    self.assertTrue(clock.poll(10**9 + 1_000_001))

  def test_states_are_pinned(self):
    """They are persisted."""
    state = Timestamp(micros=300)
    for condition, state, encoded in (
        (conditions.never(), None, ''),
        (conditions.after_total_of(1), state, 'ac02'),
        (conditions.after_time_since_new_output(1), state, 'ac02'),
        (conditions.after_time_since_new_output(1), None, ''),
        (conditions.after_iterations(1), 5, '05'),
        (
            conditions.either_of(
                conditions.after_total_of(1), conditions.after_iterations(1)),
            (state, 5),
            '02ac0205'),
    ):
      coder = condition.state_coder()
      self.assertEqual(bytes.fromhex(encoded), coder.encode(state))
      self.assertEqual(state, coder.decode(bytes.fromhex(encoded)))
      self.assertTrue(coder.is_deterministic())

  def test_arguments_are_checked(self):
    for make, told in (
        (lambda: conditions.after_total_of(-1), r'duration=-1 must be 0 or'),
        (lambda: conditions.after_total_of(Duration(-1)), 'must be 0 or more'),
        (
            lambda: conditions.after_total_of(float('nan')),
            r'duration=nan must be 0 or more, and at most 10,000 years'),
        (
            lambda: conditions.after_time_since_new_output(float('inf')),
            'at most 10,000 years'),
        (lambda: conditions.after_total_of(1e30), 'at most 10,000 years'),
        (
            lambda: conditions.after_total_of(Duration(10**30)),
            'at most 10,000 years'),
        (lambda: conditions.after_total_of('1'), r"duration='1' must be a "),
        (lambda: conditions.after_total_of(True), 'duration=True'),
        (lambda: conditions.after_iterations(0), 'number=0 must be 1 or more'),
        (lambda: conditions.after_iterations(1 << 63), 'below 2..63'),
        (lambda: conditions.after_iterations(1.0), 'must be an int'),
        (lambda: conditions.after_iterations(True), 'must be an int'),
        (
            lambda: conditions.either_of(conditions.never(), 4),
            'second=4 is not a TerminationCondition'),
        (
            lambda: conditions.all_of(conditions.never, conditions.never()),
            'Call the function'),
        (
            lambda: conditions.all_of(
                conditions.TerminationCondition, conditions.never()),
            'Give an instance'),
        (
            lambda: conditions.all_of(int, conditions.never()),
            'is not a TerminationCondition.$'),
    ):
      with self.subTest(told):
        with self.assertRaisesRegex((TypeError, ValueError), told):
          make()

  def test_what_is_a_time_span(self):
    for value, micros in ((0, 0), (1, 10**6), (0.5, 500000), (1e-6, 1),
                          (Duration(micros=3), 3),
                          (fractions.Fraction(1, 2), 500000),
                          (np.float32(0.5), 500000), (np.int64(3), 3000000),
                          (315576000000, 315576000000000000)):
      self.assertEqual(
          Duration(micros=micros), conditions.time_span('name', value))

  def test_what_is_a_time(self):
    utc = datetime.timezone.utc
    for value, micros in ((-1, -10**6), (0.5, 500000),
                          (Timestamp(micros=3), 3), (MIN_TIMESTAMP,
                                                     MIN_TIMESTAMP.micros),
                          (MAX_TIMESTAMP, MAX_TIMESTAMP.micros),
                          (fractions.Fraction(1, 2), 500000),
                          (np.float32(0.5), 500000), (np.int64(3), 3000000),
                          (datetime.datetime(1970, 1, 2, tzinfo=utc),
                           86400 * 10**6)):
      self.assertEqual(
          Timestamp(micros=micros), conditions.time_of('name', value))
    for value in (None, '', 'noon', b'x', True, [], float('nan'),
                  float('inf'), -float('inf'), Duration(5), object, iter([1]),
                  decimal.Decimal(1), datetime.timedelta(1),
                  datetime.datetime(1970, 1, 2)):
      with self.assertRaisesRegex((TypeError, ValueError),
                                  'name=.* is not a time: give') as caught:
        conditions.time_of('name', value)
      self.assertIn(f'name={value!r}', str(caught.exception))
    for value in (1e30, -10**30, Timestamp(micros=MAX_TIMESTAMP.micros + 1),
                  Timestamp(micros=MIN_TIMESTAMP.micros - 1)):
      with self.assertRaisesRegex(ValueError, 'name=.* is outside of what Be'):
        conditions.time_of('name', value)

  def test_texts(self):
    self.assertEqual(
        'either_of(all_of(never(), after_iterations(2)), '
        'either_of(after_total_of(1.5), after_time_since_new_output(3)))',
        repr(
            conditions.either_of(
                conditions.all_of(
                    conditions.never(), conditions.after_iterations(2)),
                conditions.either_of(
                    conditions.after_total_of(1.5),
                    conditions.after_time_since_new_output(3)))))

  def test_a_condition_of_ones_own(self):
    class Untold(conditions.TerminationCondition):
      pass

    for call, name in (
        (lambda: Untold().for_new_input(Timestamp(0), 'x'), 'for_new_input'),
        (lambda: Untold().can_stop_polling(Timestamp(0), 0), 'can_stop_'),
        (lambda: Untold().state_coder(), 'state_coder')):
      with self.assertRaisesRegex(NotImplementedError, f'Untold.{name}'):
        call()
    self.assertEqual(5, Untold().on_seen_new_output(Timestamp(0), 5))
    self.assertEqual(5, Untold().on_poll_complete(5))
    self.assertEqual('Untold()', repr(Untold()))


if __name__ == '__main__':
  unittest.main()
