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

"""Tests that what a repeated bundle does to OrderedListState is undone."""

import collections
import contextlib
import unittest

import hypothesis
from hypothesis import strategies as st

import apache_beam as beam
from apache_beam import coders
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.worker import bundle_processor
from apache_beam.runners.worker import sdk_worker
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to
from apache_beam.transforms import userstate
from apache_beam.utils.timestamp import Timestamp

_TIMES = st.integers(-3, 3)
# What a bundle does: adds (time, value), clears a range, or all.
_BUNDLE = st.lists(
    st.one_of(
        st.tuples(st.just('add'), _TIMES, st.integers(0, 9)),
        st.tuples(st.just('clear_range'), _TIMES, _TIMES),
        st.tuples(st.just('clear'))),
    max_size=8)
# Bundles that are undone, then the one that stays.
_REPEATED = st.tuples(st.lists(_BUNDLE, max_size=2), _BUNDLE)


def _at(time):
  return Timestamp(micros=time)


class _Lists:
  """Two lists of one StateServicer, by the classes of the SDK's worker."""
  def __init__(self):
    self.servicer = worker_handlers.StateServicer()

  def __getitem__(self, key):
    handler = sdk_worker.GlobalCachingStateHandler(
        sdk_worker.StateCache(0), self.servicer)
    return bundle_processor.SynchronousOrderedListRuntimeState(
        handler,
        beam_fn_api_pb2.StateKey(
            ordered_list_user_state=beam_fn_api_pb2.StateKey.
            OrderedListUserState(
                transform_id='t', user_state_id='s', window=b'', key=key)),
        coders.VarIntCoder())

  @contextlib.contextmanager
  def undone(self):
    self.servicer.checkpoint()
    yield
    self.servicer.restore()


def _apply(steps, state):
  for name, *arguments in steps:
    if name == 'add':
      time, value = arguments
      state.add((_at(time), value))
    else:
      getattr(state, name)(*map(_at, arguments))


def _apply_by_hand(steps, entries):
  for name, *arguments in steps:
    if name == 'add':
      entries.append(tuple(arguments))
    else:
      begin, end = arguments or (-9, 9)
      entries[:] = [e for e in entries if not begin <= e[0] < end]


class PropertyTest(unittest.TestCase):
  """Whatever bundles do that are undone: as if they had not been."""
  @hypothesis.settings(max_examples=60, deadline=None)
  @hypothesis.given(
      st.lists(st.tuples(st.sampled_from([b'a', b'b']), _REPEATED), max_size=5))
  def test_as_if_bundles_ran_once(self, story):
    lists = _Lists()
    expected = collections.defaultdict(list)
    for key, (undone, kept) in story:
      for steps in undone:
        with lists.undone():
          entries = list(expected[key])
          self.run_bundle(lists[key], steps, entries)
          self.assertEqual(sorted(entries), self.entries(lists[key]))
      self.run_bundle(lists[key], kept, expected[key])
      for other in expected:
        self.assertEqual(sorted(expected[other]), self.entries(lists[other]))
        for begin, end in ((-1, 2), (2, -1), (0, 9)):
          self.assertEqual(
              sorted(e for e in expected[other] if begin <= e[0] < end),
              self.entries(lists[other], begin, end))

  def run_bundle(self, state, steps, entries):
    _apply(steps, state)
    _apply_by_hand(steps, entries)
    state.commit()

  def entries(self, state, begin=-9, end=9):
    return sorted((time.micros, value)
                  for time, value in state.read_range(_at(begin), _at(end)))


class _TakeInSteps(beam.DoFn):
  """Gives two seconds of its elements each time that its timer fires."""
  ENTRIES = userstate.OrderedListStateSpec('entries', coders.VarIntCoder())
  TIMER = userstate.TimerSpec('timer', userstate.TimeDomain.WATERMARK)

  def process(
      self,
      element,
      entries=beam.DoFn.StateParam(ENTRIES),
      timer=beam.DoFn.TimerParam(TIMER)):
    entries.add((Timestamp(element[1]), element[1]))
    timer.set(2)

  @userstate.on_timer(TIMER)
  def fire(
      self,
      end=beam.DoFn.TimestampParam,
      entries=beam.DoFn.StateParam(ENTRIES),
      timer=beam.DoFn.TimerParam(TIMER)):
    begin = Timestamp(0)
    yield [value for _, value in entries.read_range(begin, end)]
    entries.clear_range(begin, end)
    left = len(list(entries.read()))
    yield left
    if left:
      timer.set(end + 2)


class PipelineTest(unittest.TestCase):
  def test_bundles_of_timers_that_read_and_clear(self):
    for repeat in (0, 1, 2):
      with self.subTest(repeat):
        with beam.Pipeline(runner=FnApiRunner(bundle_repeat=repeat)) as p:
          taken = (
              p | beam.Create([('key', second) for second in (5, 0, 3, 1, 4)])
              | beam.ParDo(_TakeInSteps()))
          assert_that(taken, equal_to([[0, 1], 3, [3], 2, [4, 5], 0]))


if __name__ == '__main__':
  unittest.main()
