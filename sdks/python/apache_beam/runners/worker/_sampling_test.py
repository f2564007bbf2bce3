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

"""The threads of state samplers, from bundle to bundle.

The samplers are real ones, and so are their threads: times are generous.
"""

import random
import threading
import time
import unittest
from unittest import mock

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.io.restriction_trackers import OffsetRestrictionTracker
from apache_beam.runners.portability import fn_api_runner
from apache_beam.runners.worker import _sampling
from apache_beam.runners.worker import statesampler
from apache_beam.runners.worker import statesampler_slow
from apache_beam.transforms.core import DoFn
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.utils.counters import CounterFactory

LONG = 60.0


def new_sampler():
  sampler = statesampler.StateSampler(
      'test', CounterFactory(), sampling_period_ms=_sampling.PERIOD_MS)
  return sampler, sampler.scoped_state('step', 'process')


def work(seconds):
  until = time.monotonic() + seconds
  while time.monotonic() < until:
    time.sleep(0.001)


class ThreadCount:
  """Counts the threads of samplers: all that were started, and the living."""
  def __init__(self):
    self.all = []

  def __enter__(self):
    start = threading.Thread.start

    def spy(thread):
      sampler = getattr(getattr(thread, '_target', None), '__self__', None)
      if isinstance(sampler, statesampler.StateSampler):
        # The thread itself forgets its target when it ends.
        thread.sampler = sampler
        self.all.append(thread)
      start(thread)

    self._patch = mock.patch.object(threading.Thread, 'start', spy)
    self._patch.start()
    return self

  def __exit__(self, *unused):
    self._patch.stop()

  def living(self):
    return [thread for thread in self.all if thread.is_alive()]

  def wait_until_none_lives(self, seconds=20):
    until = time.monotonic() + seconds
    while self.living() and time.monotonic() < until:
      time.sleep(0.01)
    return not self.living()


class Repeats(RestrictionProvider):
  def restriction_size(self, element, restriction):
    return restriction.size()

  def create_tracker(self, restriction):
    return OffsetRestrictionTracker(restriction)

  def initial_restriction(self, element):
    return OffsetRange(0, element)


class OneABundle(DoFn):
  def process(self, element, tracker=DoFn.RestrictionParam(Repeats())):
    at = tracker.current_restriction().start
    if tracker.try_claim(at):
      yield at
      tracker.defer_remainder()


@unittest.skipUnless(
    hasattr(statesampler.StateSampler, 'run'), 'samplers are not compiled')
class SamplerThreadsTest(unittest.TestCase):
  def test_a_pipeline_of_many_bundles_starts_few_threads(self):
    with ThreadCount() as threads:
      with beam.Pipeline(runner=fn_api_runner.FnApiRunner()) as pipeline:
        # pylint: disable=expression-not-assigned
        pipeline | beam.Create([100]) | beam.ParDo(OneABundle())
    # One a stage; before, one a bundle.
    self.assertLess(len(threads.all), 20)
    self.assertEqual({_sampling.PERIOD_MS},
                     {each.sampler.sampling_period_ms for each in threads.all})
    # The runner shut its processors down: what is left ends at once.
    self.assertTrue(threads.wait_until_none_lives(_sampling.IDLE_SECONDS + 1))

  def test_a_failed_bundle_leaves_no_thread(self):
    def fail(element):
      raise IOError('no element')

    with ThreadCount() as threads:
      with self.assertRaisesRegex(Exception, 'no element'):
        with beam.Pipeline(runner=fn_api_runner.FnApiRunner()) as pipeline:
          # pylint: disable=expression-not-assigned
          pipeline | beam.Create([1]) | beam.Map(fail)
      self.assertTrue(threads.wait_until_none_lives())
    self.assertIsNone(statesampler.get_current_tracker())

  def test_time_is_charged_to_the_states_of_bundles(self):
    """Requires: over many bundles, with pauses between, each state is charged
    about the time that was spent in it."""
    threads = _sampling.SamplerThreads(idle_seconds=LONG)
    sampler, state = new_sampler()
    other = sampler.scoped_state('step', 'finish')
    spent = charged = charged_other = 0.0
    with ThreadCount() as counted:
      for _ in range(60):
        threads.reset(sampler)
        threads.start(sampler)
        self.assertIs(sampler, statesampler.get_current_tracker())
        begun = time.monotonic()
        with state:
          work(0.02)
        spent += time.monotonic() - begun
        threads.stop(sampler)
        self.assertIsNone(statesampler.get_current_tracker())
        at_end = state.sampled_seconds()
        time.sleep(0.01)
        # Between bundles nothing is charged.
        self.assertEqual(at_end, state.sampled_seconds())
        charged += at_end
        charged_other += other.sampled_seconds()
      self.assertEqual(1, len(counted.all))
      threads.end(sampler)
      self.assertTrue(counted.wait_until_none_lives())
    self.assertEqual(0, charged_other)
    # Two in three of the 40 samples of 0.05 s: 0.14 s is their deviation.
    self.assertAlmostEqual(spent, charged, delta=0.6)

  def test_an_idle_thread_ends_and_another_is_started(self):
    threads = _sampling.SamplerThreads(idle_seconds=0.05)
    sampler, state = new_sampler()
    with ThreadCount() as counted:
      for number in range(1, 4):
        threads.start(sampler)
        with state:
          work(0.05)
        threads.stop(sampler)
        self.assertGreater(state.sampled_seconds(), 0)
        # As the worker does: right after the bundle, not before the next.
        threads.reset(sampler)
        self.assertEqual(number, len(counted.all))
        self.assertTrue(counted.wait_until_none_lives())
    self.assertFalse(threads._parked)

  def test_the_thread_that_ends_them_ends(self):
    threads = _sampling.SamplerThreads(idle_seconds=0.01)
    sampler, _ = new_sampler()
    threads.start(sampler)
    threads.stop(sampler)
    ending = threads._thread
    self.assertTrue(ending.daemon)
    ending.join(20)
    self.assertFalse(ending.is_alive())

  def test_shut_down_it_does_not_wait_for_the_idle_time(self):
    threads = _sampling.SamplerThreads(idle_seconds=LONG)
    sampler, _ = new_sampler()
    with ThreadCount() as counted:
      threads.start(sampler)
      threads.stop(sampler)
      time.sleep(0.05)
      self.assertEqual(1, len(counted.living()))
      threads.end(sampler)
      self.assertTrue(counted.wait_until_none_lives())

  def test_a_bundle_while_its_thread_is_being_ended(self):
    """Requires: it waits, then gets a thread of its own; and to reset the
    sampler meanwhile does not let the old one run on."""
    threads = _sampling.SamplerThreads(idle_seconds=LONG)
    sampler, _ = new_sampler()
    stopping = threading.Event()
    stop = sampler.stop

    def slow_stop():
      stopping.set()
      time.sleep(0.05)
      stop()

    sampler.stop = slow_stop
    with ThreadCount() as counted:
      threads.start(sampler)
      threads.stop(sampler)
      threads.end(sampler)
      self.assertTrue(stopping.wait(20))
      threads.reset(sampler)
      self.assertFalse(counted.living())
      threads.start(sampler)
      self.assertEqual(1, len(counted.living()))
      threads.stop(sampler)
      threads.end(sampler)
      self.assertTrue(counted.wait_until_none_lives())

  def test_a_pause_is_charged_to_no_bundle(self):
    """Requires: so, too, if a state is left on. Operations of Beam do that:
    their start() enters the same state twice."""
    threads = _sampling.SamplerThreads(idle_seconds=LONG)
    sampler, state = new_sampler()
    threads.start(sampler)
    with state:
      with state:
        pass
    threads.stop(sampler)
    threads.reset(sampler)
    until = time.monotonic() + 20
    while state.sampled_seconds() < 0.3 and time.monotonic() < until:
      time.sleep(0.01)
    self.assertGreater(state.sampled_seconds(), 0.3)
    threads.start(sampler)
    self.assertLess(state.sampled_seconds(), 0.3)
    threads.stop(sampler)
    threads.end(sampler)

  def test_a_pause_is_no_state_to_be_stuck_in(self):
    """Requires: the worker does not report the time between two bundles as one
    that the next bundle has been stuck for."""
    threads = _sampling.SamplerThreads(idle_seconds=LONG)
    sampler, _ = new_sampler()
    threads.start(sampler)
    threads.stop(sampler)
    threads.reset(sampler)
    until = time.monotonic() + 20
    while sampler.time_since_transition < 3e8 and time.monotonic() < until:
      time.sleep(0.01)
    self.assertGreater(sampler.time_since_transition, 3e8)
    threads.start(sampler)
    self.assertLess(sampler.get_info().time_since_transition, 3e8)
    threads.stop(sampler)
    threads.end(sampler)

  def test_many_samplers_at_random(self):
    threads = _sampling.SamplerThreads(idle_seconds=0.004)
    failures = []

    def bundles(seed):
      chance = random.Random(seed)
      sampler, state = new_sampler()
      try:
        for _ in range(60):
          threads.reset(sampler)
          threads.start(sampler)
          with state:
            time.sleep(chance.choice((0, 0.001, 0.005)))
          threads.stop(sampler)
          mine = [t for t in counted.living() if t.sampler is sampler]
          assert len(mine) <= 1, mine
          time.sleep(chance.choice((0, 0.002, 0.004, 0.006)))
      except BaseException as exc:  # pylint: disable=broad-except
        failures.append(exc)
        raise

    with ThreadCount() as counted:
      workers = [
          threading.Thread(target=bundles, args=(seed, )) for seed in range(4)
      ]
      for worker in workers:
        worker.start()
      for worker in workers:
        worker.join(60)
        self.assertFalse(worker.is_alive())
      self.assertFalse(failures)
      self.assertTrue(counted.wait_until_none_lives())

  def test_a_sampler_that_did_not_start_is_not_kept(self):
    threads = _sampling.SamplerThreads(idle_seconds=LONG)
    sampler, _ = new_sampler()
    threads.stop(sampler)
    self.assertFalse(threads._parked)


class NotCompiledTest(unittest.TestCase):
  def test_is_started_and_stopped_as_ever(self):
    calls = []

    class Slow(statesampler_slow.StateSampler):
      started = finished = False

      def start(self):
        self.started = True
        calls.append('start')

      def stop_if_still_running(self):
        calls.append('stop')

    threads = _sampling.SamplerThreads(idle_seconds=LONG)
    sampler = Slow(200)
    threads.start(sampler)
    threads.stop(sampler)
    self.assertEqual(['start', 'stop'], calls)
    self.assertFalse(threads._parked)


if __name__ == '__main__':
  unittest.main()
