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

"""Tests that a worker keeps the callbacks of a bundle, not its processor."""

import collections
import contextlib
import gc
import logging
import threading
import time
import unittest
from unittest import mock

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.io.restriction_trackers import OffsetRestrictionTracker
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.worker import _finalization
from apache_beam.runners.worker import bundle_processor
from apache_beam.runners.worker import sdk_worker
from apache_beam.transforms.core import RestrictionProvider


class _EndedBundle(object):
  """A processor whose bundle has registered some callbacks.

  Its one operation hands them over as a compiled one does: through the
  parameter that DoFns register them with.
  """
  def __init__(self, *callbacks):
    self._param = beam.DoFn.BundleFinalizerParam()
    for callback in callbacks:
      self._param.register(callback)

  def finalize_bundle(self):
    self._param.finalize_bundle()

  def reset(self):
    self._param.reset()


def _keep(callbacks, instruction_id, *registered, descriptor_id='d'):
  """Ends a bundle as the worker does: its processor is reset afterwards."""
  processor = _EndedBundle(*registered)
  callbacks.keep(instruction_id, descriptor_id, processor)
  processor.reset()


_STEP = st.one_of(
    # A bundle ends that has registered this many callbacks.
    st.tuples(st.just('end'), st.integers(0, 4)),
    # The n-th bundle is finalized (if there was one).
    st.tuples(st.just('finalize'), st.integers(0, 12)),
    st.tuples(st.just('pass'), st.sampled_from([1, 5, 11])))


class FinalizationCallbacksTest(unittest.TestCase):
  def setUp(self):
    self.now = 0.0

  def make(self, **kwargs):
    return _finalization.FinalizationCallbacks(
        clock=lambda: self.now, **kwargs)

  @settings(max_examples=300, deadline=None)
  @given(st.lists(_STEP, max_size=30))
  def test_agrees_with_a_plain_list_on_every_schedule(self, steps):
    """Callbacks run iff their bundle is finalized in time, and run once."""
    self.now = 0.0
    callbacks = self.make(max_callbacks=6, keep_secs=10.0)
    ran = collections.Counter()
    ended = 0
    dropped = 0
    model = []  # (bundle, number of callbacks, end time), the oldest first

    def expire():
      nonlocal dropped
      while model and (model[0][2] + 10.0 <= self.now or
                       (len(model) > 1 and sum(n for _, n, _ in model) > 6)):
        dropped += model.pop(0)[1]

    with self.quiet():
      for step, argument in steps:
        if step == 'end':
          name = 'b%d' % ended
          _keep(
              callbacks,
              name,
              *(lambda key=(name, i): ran.update([key])
                for i in range(argument)))
          ended += 1
          model.append((name, argument, self.now))
          expire()
        elif step == 'finalize':
          name = 'b%d' % argument
          before = +ran
          expire()
          found = [entry for entry in model if entry[0] == name]
          callbacks.finalize(name)
          expected = [(name, i) for _, n, _ in found for i in range(n)]
          self.assertEqual(ran - before, collections.Counter(expected))
          model = [entry for entry in model if entry[0] != name]
        else:
          self.now += argument
        if step != 'pass':
          self.assertEqual(callbacks.num_kept, sum(n for _, n, _ in model))
          self.assertEqual(callbacks.num_dropped, dropped)
    self.assertEqual(set(ran.values()) - {1}, set())

  @contextlib.contextmanager
  def quiet(self):
    with mock.patch.object(_finalization, '_LOGGER'):
      yield

  def test_finalizes_a_bundle_once(self):
    ran = []
    callbacks = self.make()
    _keep(callbacks, 'b', lambda: ran.append(1), lambda: ran.append(2))
    self.assertTrue(callbacks.finalize('b'))
    self.assertEqual(ran, [1, 2])
    self.assertFalse(callbacks.finalize('b'))
    self.assertFalse(callbacks.finalize('unknown'))
    self.assertEqual(ran, [1, 2])

  def test_a_failing_callback_keeps_no_other_from_being_run(self):
    ran = []

    def fail():
      raise ValueError('ack refused')

    callbacks = self.make()
    _keep(callbacks, 'b-17', fail, lambda: ran.append(1))
    with self.assertLogs(_finalization.__name__, 'WARNING') as logs:
      self.assertTrue(callbacks.finalize('b-17'))
    self.assertEqual(ran, [1])
    self.assertIn('b-17', logs.output[0])
    self.assertIn('ack refused', logs.output[0])

  def test_keeps_the_newest_bundle_however_large(self):
    ran = []
    callbacks = self.make(max_callbacks=2)
    with self.quiet():
      _keep(callbacks, 'small', lambda: ran.append('small'))
      _keep(callbacks, 'large', *[lambda: ran.append('large')] * 5)
    self.assertTrue(callbacks.finalize('large'))
    self.assertEqual(ran, ['large'] * 5)

  def test_a_dropped_bundle_is_no_error(self):
    callbacks = self.make(max_callbacks=1, max_dropped_bundles=2)
    with self.quiet():
      for i in range(3):
        _keep(callbacks, 'b%d' % i, self.fail)
      self.assertTrue(callbacks.finalize('b0'))
      self.assertFalse(callbacks.finalize('unknown'))
      # From here on it is not known any more which bundles were dropped.
      for i in range(3, 6):
        _keep(callbacks, 'b%d' % i, self.fail)
      self.assertTrue(callbacks.finalize('b0'))

  def test_reports_drops_by_powers_of_ten(self):
    callbacks = self.make(max_callbacks=1)
    with self.assertLogs(_finalization.__name__, 'WARNING') as logs:
      for i in range(2001):
        _keep(callbacks, 'b%d' % i, self.fail)
    self.assertEqual(callbacks.num_dropped, 2000)
    self.assertEqual([record.args[0] for record in logs.records],
                     [1, 10, 100, 1000])

  def test_is_pending_until_the_callbacks_have_run(self):
    pending = []
    callbacks = self.make(keep_secs=10.0)
    self.assertFalse(callbacks.has_pending('d'))
    _keep(callbacks, 'b', lambda: pending.append(callbacks.has_pending('d')))
    _keep(callbacks, 'c', self.fail)
    self.assertTrue(callbacks.has_pending('d'))
    callbacks.finalize('b')
    self.assertEqual(pending, [True])
    self.assertTrue(callbacks.has_pending('d'))
    self.assertFalse(callbacks.has_pending('e'))
    self.now = 10.0
    with self.quiet():
      self.assertFalse(callbacks.has_pending('d'))

  def test_runs_each_callback_once_though_all_happens_at_once(self):
    """Finalizations of one bundle race with each other and its eviction.

    In each round two threads finalize the oldest bundle, while a third ends a
    bundle for which there is no room beside it.
    Requires: no callback runs twice, and each has run or was dropped.
    """
    rounds, room = 1000, 3
    ran = collections.Counter()
    callbacks = self.make(max_callbacks=room)

    class LingeringLock(object):
      """Lets the others go first whenever it is released."""
      def __init__(self):
        self._lock = threading.Lock()

      def __enter__(self):
        self._lock.acquire()

      def __exit__(self, *unused_exc_info):
        self._lock.release()
        time.sleep(1e-4)

    callbacks._lock = LingeringLock()
    together = threading.Barrier(3)

    def end(i):
      _keep(callbacks, 'b%d' % i, lambda: ran.update([i]))

    def finalize_oldest():
      for i in range(rounds):
        together.wait()
        callbacks.finalize('b%d' % i)

    threads = [threading.Thread(target=finalize_oldest) for _ in range(2)]
    with self.quiet():
      for i in range(room):
        end(i)
      for thread in threads:
        thread.start()
      for i in range(rounds):
        together.wait()
        end(i + room)
      for thread in threads:
        thread.join()
    self.assertEqual(set(ran.values()), {1})
    self.assertEqual(len(ran) + callbacks.num_dropped, rounds)
    self.assertEqual(callbacks.num_kept, room)
    self.assertGreater(len(ran), rounds // 100, 'vacuous')

  def test_a_thread_that_detaches_leaves_others_alone(self):
    """Handing over in one thread does not stop a callback in another."""
    ran = []
    param = beam.DoFn.BundleFinalizerParam()
    param.register(lambda: ran.append(1))

    class FinalizesElsewhere(_EndedBundle):
      def finalize_bundle(self):
        thread = threading.Thread(target=param.finalize_bundle)
        thread.start()
        thread.join()
        super().finalize_bundle()

    detached = _finalization.detach_callbacks(
        FinalizesElsewhere(lambda: ran.append(2)))
    self.assertEqual((ran, len(detached)), ([1], 1))
    # And it has come to an end in this one.
    param.finalize_bundle()
    self.assertEqual(ran, [1, 1])


class _Restrictions(RestrictionProvider):
  def restriction_size(self, element, restriction):
    return restriction.size()

  def initial_restriction(self, element):
    return OffsetRange(0, element)

  def create_tracker(self, restriction):
    return OffsetRestrictionTracker(restriction)


# The callbacks that ran, as they registered: positions of records.
_FINALIZED: list[int] = []
# What is called in the bundle of a position, if anything.
_ON_POSITION: dict = {}


class _Acknowledging(beam.DoFn):
  """Emits one record a bundle and registers its acknowledgement."""
  def process(
      self,
      element,
      # Before the tracker, which Beam passes by its name.
      finalizer=beam.DoFn.BundleFinalizerParam,
      tracker=beam.DoFn.RestrictionParam(_Restrictions())):
    position = tracker.current_restriction().start
    finalizer.register(lambda: _FINALIZED.append(position))
    if position in _ON_POSITION:
      _ON_POSITION[position]()
    if tracker.try_claim(position):
      yield position
      tracker.defer_remainder()


class _Finalizations(object):
  """Keeps a runner's finalizations from reaching the worker, for later."""
  def __init__(self):
    self.requests = []
    self.workers = set()
    self._push = worker_handlers.EmbeddedWorkerHandler.push

  def __enter__(self):
    def push(handler, request):
      if request.WhichOneof('request') != 'finalize_bundle':
        self.workers.add(handler.worker)
        return self._push(handler, request)
      request.instruction_id = 'finalize_%d' % len(self.requests)
      self.requests.append(request)
      return worker_handlers.ControlFuture(
          request.instruction_id,
          beam_fn_api_pb2.InstructionResponse(
              instruction_id=request.instruction_id))

    self._patch = mock.patch.object(
        worker_handlers.EmbeddedWorkerHandler, 'push', push)
    self._patch.start()
    return self

  def __exit__(self, *unused_exc_info):
    self._patch.stop()

  def deliver(self, request):
    """Has the worker execute a finalization, as its harness does."""
    worker, = self.workers
    return worker.do_instruction(request)


@contextlib.contextmanager
def _counting_processors():
  """Lists weakly, as time goes on, which processors are made."""
  made = []
  init = bundle_processor.BundleProcessor.__init__

  def counting(self, *args, **kwargs):
    made.append(id(self))
    init(self, *args, **kwargs)

  with mock.patch.object(
      bundle_processor.BundleProcessor, '__init__', counting):
    yield made


def _live_processors():
  gc.collect()
  return sum(
      isinstance(thing, bundle_processor.BundleProcessor)
      for thing in gc.get_objects())


def _run(num_bundles):
  with beam.Pipeline(fn_runner.FnApiRunner()) as p:
    _ = p | beam.Create([num_bundles]) | beam.ParDo(_Acknowledging())


class WorkerFinalizationTest(unittest.TestCase):
  """The worker's own code, with real operations, below FnApiRunner."""
  def setUp(self):
    _FINALIZED.clear()
    _ON_POSITION.clear()

  def test_a_runner_that_finalizes_sees_no_change(self):
    with _counting_processors() as made:
      _run(30)
    self.assertEqual(_FINALIZED, list(range(30)))
    # One for each of the two stages.
    self.assertEqual(len(made), 2)

  def test_never_finalized_bundles_keep_no_processor(self):
    """3,000 bundles that nobody finalizes share one processor.

    Requires: as many processors are made, and alive at the end, as there are
    stages; nothing is finalized; the callbacks are kept.
    """
    live = []
    _ON_POSITION[2999] = lambda: live.append(_live_processors())
    before = _live_processors()
    with _Finalizations() as finalizations, _counting_processors() as made:
      _run(3000)
    self.assertEqual(len(finalizations.requests), 3000)
    self.assertEqual(_FINALIZED, [])
    self.assertEqual(len(made), 2)
    self.assertLessEqual(live[0] - before, 2)
    worker, = finalizations.workers
    kept = worker.bundle_processor_cache.finalization_callbacks
    self.assertEqual((kept.num_kept, kept.num_dropped), (3000, 0))

  def test_finalizes_much_later_and_in_any_order(self):
    with _Finalizations() as finalizations:
      _run(4)
      for i in (2, 0, 3, 1):
        response = finalizations.deliver(finalizations.requests[i])
        self.assertFalse(response.error)
        self.assertTrue(response.HasField('finalize_bundle'))
    self.assertEqual(_FINALIZED, [2, 0, 3, 1])

  def test_finalizes_while_the_next_bundle_runs_on_the_processor(self):
    """A bundle is finalized from another thread, amid the next one.

    Requires: exactly its callbacks run, and those that the running bundle has
    registered before and after stay its own.
    """
    seen = []

    def finalize_previous():
      request = finalizations.requests[-1]
      thread = threading.Thread(
          target=lambda: seen.append(finalizations.deliver(request)))
      thread.start()
      thread.join()
      seen.append(list(_FINALIZED))

    _ON_POSITION[1] = finalize_previous
    with _Finalizations() as finalizations, _counting_processors() as made:
      _run(3)
      self.assertEqual(len(made), 2)
      response, finalized = seen
      self.assertFalse(response.error)
      self.assertEqual(finalized, [0])
      finalizations.deliver(finalizations.requests[1])
    self.assertEqual(_FINALIZED, [0, 1])

  def test_a_running_bundle_cannot_be_finalized(self):
    """A request that comes too early is refused and does no harm."""
    errors = []

    def finalize_this():
      worker, = finalizations.workers
      cache = worker.bundle_processor_cache
      # The bundle that runs is the one that the cache knows as active.
      running, = cache.active_bundle_processors
      with self.assertRaisesRegex(RuntimeError, 'finalizable'):
        worker.finalize_bundle(
            beam_fn_api_pb2.FinalizeBundleRequest(instruction_id=running),
            'too_early')
      errors.append(running)

    _ON_POSITION[1] = finalize_this
    with _Finalizations() as finalizations:
      _run(3)
      self.assertEqual(len(errors), 1)
      self.assertEqual(_FINALIZED, [])
      for request in finalizations.requests:
        finalizations.deliver(request)
    self.assertEqual(_FINALIZED, [0, 1, 2])

  def test_unknown_and_finalized_bundles_are_errors(self):
    with _Finalizations() as finalizations:
      _run(1)
      request, = finalizations.requests
      finalizations.deliver(request)
      with self.assertRaisesRegex(RuntimeError, 'finalizable'):
        finalizations.deliver(request)
      response = finalizations.deliver(
          beam_fn_api_pb2.InstructionRequest(
              instruction_id='f',
              finalize_bundle=beam_fn_api_pb2.FinalizeBundleRequest(
                  instruction_id='never-heard-of')))
      self.assertIn('never-heard-of', response.error)
    self.assertEqual(_FINALIZED, [0])

  def test_dofns_are_not_torn_down_under_pending_callbacks(self):
    """An idle processor stays while a callback may still use its DoFns."""
    class Processor(_EndedBundle):
      def __init__(self, *callbacks):
        super().__init__(*callbacks)
        self.torn_down = threading.Event()

      def shutdown(self):
        self.torn_down.set()

    with mock.patch.object(
        sdk_worker, 'DEFAULT_BUNDLE_PROCESSOR_CACHE_SHUTDOWN_THRESHOLD_S',
        0.05):
      cache = sdk_worker.BundleProcessorCache(
          frozenset(), mock.Mock(), mock.Mock(), {})
      try:
        pending, idle = Processor(lambda: None), Processor()
        cache.finalization_callbacks.keep('b', 'pending', pending)
        for name, processor in (('pending', pending), ('idle', idle)):
          cache.active_bundle_processors[name] = (name, processor)
          cache.release(name)
        self.assertTrue(idle.torn_down.wait(30))
        time.sleep(0.2)
        self.assertFalse(pending.torn_down.is_set())
        cache.finalization_callbacks.finalize('b')
        self.assertTrue(pending.torn_down.wait(30))
      finally:
        cache.shutdown()


if __name__ == '__main__':
  logging.getLogger().setLevel(logging.INFO)
  unittest.main()
