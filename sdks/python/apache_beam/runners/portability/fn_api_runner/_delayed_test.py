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

"""Tests of the queue of delayed work, against a plain list as its model."""

import unittest

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from apache_beam.runners.portability.fn_api_runner._delayed import DelayedInputs

_STAGES = ['poll', 'sink']
_INPUTS = ['main', 'other']

# A schedule is a list of steps. ('park', delay, stage, input) parks a new
# element, ('pass', secs) lets time pass, ('take',) takes what is due.
_STEP = st.one_of(
    st.tuples(
        st.just('park'),
        # Few values, so that equal due times are common.
        st.sampled_from([0.0, 0.5, 1.0, 2.5]),
        st.sampled_from(_STAGES),
        st.sampled_from(_INPUTS)),
    st.tuples(st.just('pass'), st.sampled_from([0.25, 1.0, 3.0])),
    st.tuples(st.just('take')))


def _flat(taken):
  """The elements taken, as a sorted list of (stage, input, element)."""
  return sorted((stage, name, element) for stage, inputs in taken.items()
                for name, elements in inputs.items() for element in elements)


class DelayedInputsTest(unittest.TestCase):
  @settings(max_examples=300, deadline=None)
  @given(st.lists(_STEP, max_size=30))
  def test_agrees_with_a_plain_list_on_every_schedule(self, steps):
    """After each step, the queue says what a list searched in full would.

    Requires: each element comes out once, in the first take at or after its
    due time, in the order of (due time, parking) for its input.
    """
    queue = DelayedInputs()
    model = []
    now = 0.0
    parked = 0
    came_out = []
    for step in steps + [('pass', 100.0), ('take', )]:
      if step[0] == 'park':
        _, delay, stage, name = step
        element = b'%d' % parked
        parked += 1
        queue.park(now + delay, stage, name, element)
        model.append((now + delay, stage, name, element))
      elif step[0] == 'pass':
        now += step[1]
      else:
        due = sorted((entry for entry in model if entry[0] <= now),
                     key=lambda entry: entry[0])
        taken = queue.take_due(now)
        self.assertEqual(
            _flat(taken), sorted(entry[1:] for entry in due), (queue, now))
        for stage, inputs in taken.items():
          for name, elements in inputs.items():
            self.assertEqual(
                elements,
                [e for _, s, n, e in due if (s, n) == (stage, name)])
        came_out.extend(entry[3] for entry in due)
        model = [entry for entry in model if entry[0] > now]
      self.assertEqual(len(queue), len(model))
      self.assertEqual(
          queue.next_due(), min((entry[0] for entry in model), default=None))
      self.assertEqual(
          queue.held_inputs(), {(stage, name)
                                for _, stage, name, _ in model})
    self.assertEqual(len(came_out), parked)

  def test_an_input_is_held_until_its_last_element_is_taken(self):
    queue = DelayedInputs()
    queue.park(1.0, 'poll', 'main', b'a')
    queue.park(2.0, 'poll', 'main', b'b')
    queue.take_due(1.5)
    self.assertEqual(queue.held_inputs(), {('poll', 'main')})
    queue.take_due(2.0)
    self.assertEqual(queue.held_inputs(), set())

  def test_tells_its_story(self):
    queue = DelayedInputs()
    queue.park(2.5, 'poll', 'main', b'b')
    queue.park(1.0, 'sink', 'main', b'a')
    self.assertEqual(
        repr(queue), '<DelayedInputs [sink/main@1, poll/main@2.5]>')


if __name__ == '__main__':
  unittest.main()
