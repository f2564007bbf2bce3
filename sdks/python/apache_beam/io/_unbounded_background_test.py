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

"""What a BackgroundReader delivers, what it waits for, and how it ends.

A test plays the client: a fetch does what the test says, when it says it. After
each command the test waits until the thread can do no more.
"""

import asyncio
import collections
import contextlib
import copy
import gc
import itertools
import pickle
import queue
import random
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import initialize
from hypothesis.stateful import invariant
from hypothesis.stateful import precondition
from hypothesis.stateful import rule
from hypothesis.stateful import run_state_machine_as_test

from apache_beam.io import _unbounded_fetcher as fetcher_module
from apache_beam.io._unbounded_background import BackgroundReader
from apache_beam.io._unbounded_errors import RetryLater

PATIENCE_SECONDS = 20.0
LOGGER = 'apache_beam.io._unbounded_fetcher'


def until(condition, what: str) -> None:
  """Waits for what another thread is to bring about."""
  deadline = time.monotonic() + PATIENCE_SECONDS
  while not condition():
    if time.monotonic() > deadline:
      raise AssertionError(f'It did not come to that: {what}.')
    time.sleep(0.0005)


def fetch_threads() -> list[threading.Thread]:
  return [t for t in threading.enumerate() if t.name.endswith('-fetch')]


class Woken(Exception):
  """What the client raises in a fetch that was interrupted."""


class Scripted(BackgroundReader):
  """Fetches what a test feeds it.

  Attributes:
    calls: (name, thread) of all that was called.
    given: what was delivered.
  """
  def __init__(self, capacity: int = 10) -> None:
    super().__init__(capacity)
    self.calls: list[tuple[str, threading.Thread]] = []
    self.commands: queue.SimpleQueue = queue.SimpleQueue()
    self.fed = 0
    self.fetches = 0
    self.given: list = []

  def command(self, command) -> None:
    self.fed += 1
    self.commands.put(command)

  def feed(self, *items) -> None:
    self.command(lambda: list(items))

  def feed_one_by_one(self, *items) -> None:
    self.command(lambda: iter(items))

  def feed_last(self, *items) -> None:
    def last():
      self.finish()
      return list(items)

    self.command(last)

  def fail(self, exc: BaseException) -> None:
    def failing():
      raise exc

    self.command(failing)

  @property
  def waiting(self) -> bool:
    """Whether there is a fetch that waits for a command, or is about to."""
    return self.fetches > self.fed

  def called(self, name: str) -> int:
    return sum(call == name for call, _ in self.calls)

  def settle(self) -> None:
    """Waits until the thread waits: for the test, for room or for the end."""
    thread = self.fetcher
    until(
        lambda: self.waiting or thread._over() or
        thread._full and len(thread.items) > thread._resume_at or
        not thread._thread.is_alive(),
        'the thread can do no more')

  @property
  def fetcher(self) -> fetcher_module.Fetcher:
    return self._BackgroundReader__fetcher

  def _note(self, name: str) -> None:
    self.calls.append((name, threading.current_thread()))

  def open(self) -> None:
    self._note('open')

  def fetch(self):
    self._note('fetch')
    self.fetches += 1
    return self.commands.get(timeout=PATIENCE_SECONDS)()

  def interrupt(self) -> None:
    self._note('interrupt')
    self.fail(Woken())

  def shut(self) -> None:
    self._note('shut')

  def delivered(self, item) -> None:
    self._note('delivered')
    assert self.current is item
    self.given.append(item)


class ScriptedAsync(Scripted):
  """The same with methods to be awaited."""
  async def open(self) -> None:
    self._note('open')
    await asyncio.sleep(0)
    self.loop = asyncio.get_running_loop()

  async def fetch(self):
    self._note('fetch')
    self.fetches += 1
    while self.commands.empty():
      await asyncio.sleep(0.0005)
    return self.commands.get()()

  def interrupt(self) -> None:
    self._note('interrupt')

  async def shut(self) -> None:
    await asyncio.sleep(0)
    self._note('shut')


KINDS = [Scripted, ScriptedAsync]


class BackgroundTest(unittest.TestCase):
  """Closes what a test opens, and sees that no thread is left."""
  def setUp(self):
    self.assertEqual([], fetch_threads())
    self.stack = contextlib.ExitStack()

  def tearDown(self):
    self.stack.close()
    for thread in fetch_threads():
      thread.join(PATIENCE_SECONDS)
    self.assertEqual([], fetch_threads())

  def opened(self, reader: BackgroundReader) -> BackgroundReader:
    self.stack.callback(reader.close)
    reader.start()
    return reader

  def patch(self, name: str, value) -> None:
    self.stack.enter_context(mock.patch.object(fetcher_module, name, value))


class Model:
  """What is to become of the commands, without threads."""
  def __init__(self, capacity: int) -> None:
    self.capacity = capacity
    self.commands: collections.deque = collections.deque()
    self.one_by_one: collections.deque = collections.deque()
    self.buffer: list = []
    self.full = False
    self.empty = False
    self.finished = False
    self.failure = None
    self.most = 0

  def run(self) -> None:
    while not (self.finished or self.failure):
      limit = self.capacity // 2 if self.full else self.capacity - 1
      self.full = len(self.buffer) > limit
      if self.full:
        return
      if self.one_by_one:
        self.buffer.append(self.one_by_one.popleft())
        continue
      if not self.commands:
        return
      what, items = self.commands.popleft()
      if items:
        self.empty = False
      if what == 'feed_one_by_one':
        self.one_by_one.extend(items)
      elif what in ('feed', 'feed_last'):
        self.most = max(self.most, len(items))
        self.buffer += items
        self.finished = what == 'feed_last'
      elif what == 'fail':
        self.failure = items
        self.empty = False
        continue
      if not items:
        self.empty = True


class BackgroundReaderMachine(RuleBasedStateMachine):
  """Any commands and any advances: as the model, which has no threads."""
  reader: Scripted
  kind = Scripted

  @initialize(capacity=st.integers(1, 6))
  def start(self, capacity):
    self.reader = self.kind(capacity)
    self.model = Model(capacity)
    self.next = 0
    self.given: list = []
    self.ended = False
    self.reader.start()
    self._settle()

  def _settle(self):
    self.reader.settle()
    self.model.run()

  @precondition(lambda self: not self.ended)
  @rule(
      what=st.sampled_from(['feed', 'feed', 'feed_one_by_one']),
      count=st.integers(0, 8))
  def feed(self, what, count):
    items = list(range(self.next, self.next + count))
    self.next += count
    self.model.commands.append((what, items))
    getattr(self.reader, what)(*items)
    self._settle()

  @precondition(lambda self: not self.ended)
  @rule(count=st.integers(0, 3))
  def finish(self, count):
    self.ended = True
    items = list(range(self.next, self.next + count))
    self.model.commands.append(('feed_last', items))
    self.reader.feed_last(*items)
    self._settle()

  @precondition(lambda self: not self.ended)
  @rule(exc=st.sampled_from([ValueError('no'), RetryLater(3)]))
  def fail(self, exc):
    self.ended = True
    self.model.commands.append(('fail', exc))
    self.reader.fail(exc)
    self._settle()

  @rule(times=st.integers(1, 9))
  def advance(self, times):
    for _ in range(times):
      if self.model.buffer:
        assert self.reader.advance()
        self.given.append(self.model.buffer.pop(0))
        assert self.reader.current == self.given[-1]
      elif self.model.failure:
        try:
          self.reader.advance()
          raise AssertionError('The failure was not raised.')
        except type(self.model.failure) as exc:
          assert exc is self.model.failure
      else:
        assert not self.reader.advance()
      self._settle()

  @invariant()
  def as_the_model(self):
    model, reader = self.model, self.reader
    assert reader.given == self.given == list(range(len(self.given)))
    assert reader.buffered() == len(model.buffer)
    assert reader.buffered() <= model.capacity - 1 + max(model.most, 1)
    assert reader.idle == (model.empty and not model.buffer)
    assert reader.finished == (model.finished and not model.buffer)
    expectant = not (model.empty or model.finished or model.failure)
    assert (reader.next_poll_delay() is not None) == expectant

  def teardown(self):
    if not hasattr(self, 'reader'):
      return
    self.reader.close()
    calls = [name for name, _ in self.reader.calls if name != 'delivered']
    assert calls[0] == 'open' and calls[-1] == 'shut', calls
    assert calls.count('open') == calls.count('shut') == 1
    assert not fetch_threads()


class AsyncMachine(BackgroundReaderMachine):
  kind = ScriptedAsync


class MachineTest(BackgroundTest):
  """What a thread waits for by the clock is cut short here.

  Except for the looks whether the reader is still there: these would hide that
  a thread was not woken.
  """
  def setUp(self):
    super().setUp()
    self.patch('_EMPTY_FETCH_SECONDS', 0.0)
    self.patch('_EXPECTANT_SECONDS', 0.001)
    self.patch('LOOK_SECONDS', 1000.0)
    self.stack.enter_context(
        mock.patch(
            'apache_beam.io._unbounded_fetcher_async.LOOK_SECONDS', 1000.0))
    self.settings = hypothesis.settings(
        max_examples=60, stateful_step_count=25, deadline=None)

  def test_any_schedule_with_a_client_that_blocks(self):
    run_state_machine_as_test(BackgroundReaderMachine, settings=self.settings)

  def test_any_schedule_with_a_client_for_asyncio(self):
    run_state_machine_as_test(AsyncMachine, settings=self.settings)

  def test_threads_at_full_speed_miss_nothing(self):
    """No command is waited for: both threads run as they like.

    Passes if all items come in order, and neither thread sleeps for ever, for
    buffers that are always full, always empty, and in between.
    """
    total = 3000
    randoms = random.Random(1)
    interval = sys.getswitchinterval()
    self.stack.callback(sys.setswitchinterval, interval)
    sys.setswitchinterval(1e-6)
    for capacity in (1, 2, 3, 50, 2000):
      for one_by_one in (False, True):
        with self.subTest(capacity=capacity, one_by_one=one_by_one):

          class Reader(BackgroundReader):
            fetched = 0

            def fetch(self):
              begin = self.fetched
              self.fetched = min(total, begin + randoms.randrange(40))
              if self.fetched == total:
                self.finish()
              items = range(begin, self.fetched)
              return items if one_by_one else list(items)

          reader = Reader(capacity)
          given = []
          there = reader.start()
          deadline = time.monotonic() + PATIENCE_SECONDS
          while there or not reader.finished:
            if there:
              given.append(reader.current)
            self.assertLess(time.monotonic(), deadline)
            there = reader.advance()
          reader.close()
          self.assertEqual(list(range(total)), given)


class OrdersTest(BackgroundTest):
  """The other thread comes in between, at the worst moment."""
  def setUp(self):
    super().setUp()
    self.patch('LOOK_SECONDS', 1000.0)

  def hooked(self, reader, name: str, before=None, after=None):
    """Has something happen around each setting of a fetcher's attribute."""
    class Hooked(fetcher_module.Fetcher):
      pass

    def get(self):
      return self.__dict__[name]

    def put(self, value):
      if before and name in self.__dict__:
        before(value)
      self.__dict__[name] = value
      if after:
        after(value)

    setattr(Hooked, name, property(get, put))
    self.stack.enter_context(
        mock.patch(
            'apache_beam.io._unbounded_background.Fetcher', Hooked))
    return self.opened(reader)

  def test_all_is_taken_before_the_thread_says_that_it_is_full(self):
    """Then the taking wakes nobody, so the thread must not go to sleep."""
    reader = Scripted(capacity=2)

    def take_all(full):
      if full:
        while reader.buffered():
          reader.advance()

    self.hooked(reader, '_full', before=take_all)
    reader.feed(1, 2)
    reader.feed(3)
    until(reader.buffered, 'the second fetch')
    self.assertTrue(reader.advance())
    self.assertEqual([1, 2, 3], reader.given)

  def test_all_is_taken_after_the_thread_says_that_it_is_full(self):
    reader = Scripted(capacity=2)

    def take_all(full):
      if full:
        while reader.buffered():
          reader.advance()

    self.hooked(reader, '_full', after=take_all)
    reader.feed(1, 2)
    reader.feed(3)
    until(lambda: reader.given == [1, 2], 'the first fetch')
    until(reader.buffered, 'the second fetch')

  def test_an_end_is_not_seen_before_the_items_that_came_with_it(self):
    """Else the split would end, and its last records were lost."""
    reader = Scripted()
    seen = []
    self.hooked(
        reader,
        '_finished',
        before=lambda _: seen.append((reader.finished, reader.buffered())),
        after=lambda _: seen.append((reader.finished, reader.buffered())))
    seen.clear()
    reader.feed_last(1, 2)
    until(lambda: len(seen) == 2, 'the end')
    self.assertEqual([(False, 2), (False, 2)], seen)
    reader.advance()
    self.assertFalse(reader.finished)
    reader.advance()
    self.assertTrue(reader.finished)

  def test_items_and_a_failure_that_come_between_two_looks(self):
    """A look finds no items; before the next, items and a failure come.

    Passes if the items are given, and then the failure is raised, whichever
    look it is.
    """
    looks = 0
    for number in range(1, 12):

      class Items(collections.deque):
        looks = 0

        def __len__(self):
          seen = super().__len__()
          if threading.current_thread() is threading.main_thread():
            Items.looks += 1
            if Items.looks == number:
              reader.feed(1, 2)
              reader.fail(ValueError('no'))
              until(lambda: reader.fetcher._failed, 'the failure')
          return seen

        def __bool__(self):
          # Python 3.10 would not ask for the length.
          return len(self) > 0

      class Hooked(fetcher_module.Fetcher):
        def __init__(self, *args):
          super().__init__(*args)
          self.items = Items()

      with self.subTest(number), mock.patch(
          'apache_beam.io._unbounded_background.Fetcher', Hooked):
        reader = Scripted()
        self.stack.callback(reader.close)
        with self.assertRaisesRegex(ValueError, 'no'):
          reader.start()
          for _ in range(100):
            reader.advance()
        self.assertEqual([1, 2], reader.given)
        reader.close()
      looks = max(looks, Items.looks)
    self.assertGreaterEqual(looks, 12)

  def test_idle_is_not_seen_between_an_empty_fetch_and_the_next_items(self):
    reader = Scripted()
    seen = []
    self.patch('_EMPTY_FETCH_SECONDS', 0.0)
    self.hooked(
        reader,
        '_empty',
        before=lambda empty: seen.append((empty, reader.idle)),
        after=lambda empty: seen.append((empty, reader.idle)))
    seen.clear()
    reader.feed()
    until(lambda: len(seen) == 2, 'the empty fetch')
    reader.feed(1)
    until(lambda: len(seen) == 4, 'the next')
    self.assertEqual(
        [(True, False), (True, True), (False, True), (False, False)], seen)
    until(reader.buffered, 'the item')
    self.assertFalse(reader.idle)


class ThreadsTest(BackgroundTest):
  def test_what_runs_where(self):
    for kind in KINDS:
      with self.subTest(kind.__name__):
        reader = self.opened(kind())
        reader.feed(1)
        until(reader.buffered, 'an item')
        reader.advance()
        reader.close()
        threads = collections.defaultdict(set)
        for name, thread in reader.calls:
          threads[name].add(thread)
        here = {threading.current_thread()}
        self.assertEqual(here, threads.pop('delivered'))
        self.assertEqual(here, threads.pop('interrupt'))
        self.assertEqual(['open', 'fetch', 'shut'], list(threads))
        self.assertEqual(1, len(set.union(*threads.values())))
        self.assertNotEqual(here, threads['open'])

  def test_advance_does_not_wait_for_a_fetch(self):
    for kind in KINDS:
      with self.subTest(kind.__name__):
        reader = kind()
        begun = time.monotonic()
        self.opened(reader)
        for _ in range(5):
          self.assertFalse(reader.advance())
        self.assertLess(time.monotonic() - begun, 2.0)

  def test_advance_waits_a_moment_for_a_fetch_that_brings_something(self):
    """Else the bundle would end at each turn of the client's."""
    self.patch('_EXPECTANT_SECONDS', PATIENCE_SECONDS)
    reader = Scripted()
    reader.feed(1)
    self.opened(reader)
    self.assertEqual([1], reader.given)
    threading.Timer(0.05, reader.feed, [2]).start()
    self.assertTrue(reader.advance())
    self.assertEqual(2, reader.current)

  def test_fetching_stops_when_the_buffer_is_full(self):
    for kind in KINDS:
      with self.subTest(kind.__name__):
        reader = self.opened(kind(capacity=4))
        for first in range(0, 30, 3):
          reader.feed(first, first + 1, first + 2)
        reader.settle()
        self.assertEqual((2, 6), (reader.called('fetch'), reader.buffered()))
        for _ in range(3):
          reader.advance()
        reader.settle()
        self.assertEqual(2, reader.called('fetch'))
        reader.advance()  # Half empty.
        until(lambda: reader.called('fetch') == 3, 'a third fetch')
        reader.settle()
        self.assertEqual(5, reader.buffered())

  def test_a_generator_is_asked_only_while_there_is_room(self):
    class Yielding(Scripted):
      def fetch(self):
        for n in range(100):
          self._note('asked')
          yield n

    class YieldingAsync(ScriptedAsync):
      async def fetch(self):
        for n in range(100):
          self._note('asked')
          yield n

    for kind in (Yielding, YieldingAsync):
      with self.subTest(kind.__name__):
        reader = self.opened(kind(capacity=4))
        for _ in range(6):
          reader.settle()
          self.assertLessEqual(reader.buffered(), 4)
          # One was asked for that there is no room for.
          self.assertEqual(
              len(reader.given) + reader.buffered() + 1, reader.called('asked'))
          for _ in range(3):
            reader.advance()

  def test_a_thread_that_waits_for_room_sleeps(self):
    """Also the second time."""
    for kind in KINDS:
      with self.subTest(kind.__name__):
        reader = self.opened(kind(capacity=2))
        for _ in range(3):
          reader.feed(1, 2)
        reader.settle()
        for _ in range(2):
          self.assertTrue(reader.advance())
        until(reader.buffered, 'the next fetch')
        reader.settle()
        begun = time.process_time()
        time.sleep(0.4)
        self.assertLess(time.process_time() - begun, 0.2)
        reader.close()

  def test_a_full_buffer_keeps_the_connection_alive(self):
    """Else brokers that want a heartbeat would take the reader for dead."""
    self.patch('LOOK_SECONDS', 0.01)
    self.stack.enter_context(
        mock.patch(
            'apache_beam.io._unbounded_fetcher_async.LOOK_SECONDS', 0.01))

    class Beating(Scripted):
      def keep_alive(self):
        self._note('beat')

    class BeatingAsync(ScriptedAsync):
      async def keep_alive(self):
        await asyncio.sleep(0)
        self._note('beat')

    for kind in (Beating, BeatingAsync):
      for feed in ('feed', 'feed_one_by_one'):
        with self.subTest(kind.__name__, feed=feed):
          reader = self.opened(kind(capacity=2))
          until(lambda: reader.waiting, 'a fetch')
          self.assertEqual(0, reader.called('beat'))
          getattr(reader, feed)(1, 2, 3)
          until(lambda: reader.called('beat') > 3, 'the beats')
          self.assertEqual({'open', 'fetch', 'beat'},
                           {name for name, thread in reader.calls
                            if thread is not threading.current_thread()})
          for _ in range(3):
            until(reader.buffered, 'an item')
            self.assertTrue(reader.advance())
          until(lambda: reader.waiting, 'a fetch')
          reader.close()
          self.assertEqual([1, 2, 3], reader.given)

  def test_a_connection_that_is_not_kept_alive(self):
    self.patch('LOOK_SECONDS', 0.01)

    class Failing(Scripted):
      def keep_alive(self):
        raise RetryLater(5)

    reader = self.opened(Failing(capacity=1))
    reader.feed(1, 2)
    until(lambda: reader.fetcher._failed, 'the failure')
    self.assertTrue(reader.advance() and reader.advance())
    with self.assertRaises(RetryLater):
      reader.advance()

  def test_a_fetch_that_does_not_block_does_not_keep_a_processor_busy(self):
    class Eager(Scripted):
      def fetch(self):
        self._note('fetch')
        return ()

    class EagerAsync(ScriptedAsync):
      async def fetch(self):
        self._note('fetch')
        return ()

    for kind in (Eager, EagerAsync):
      with self.subTest(kind.__name__):
        reader = self.opened(kind())
        time.sleep(0.5)
        self.assertLessEqual(reader.called('fetch'), 12)
        until(lambda: reader.called('fetch') > 3, 'more fetches')

  def test_idle_ends_when_a_fetch_hangs(self):
    """A client that is cut off has not caught up, whatever it said before."""
    self.patch('MAX_IDLE_FETCH_SECONDS', 0.2)
    reader = self.opened(Scripted())
    self.assertFalse(reader.idle)
    reader.feed()
    until(lambda: reader.idle, 'idle')
    until(lambda: not reader.idle, 'no longer idle')
    reader.feed()
    until(lambda: reader.idle, 'idle again')

  def test_a_busy_reader_is_asked_again_soon(self):
    reader = self.opened(Scripted())
    self.assertEqual(0.1, reader.next_poll_delay())
    reader.feed()
    until(lambda: reader.idle, 'idle')
    self.assertIsNone(reader.next_poll_delay())
    reader.feed(1)
    until(reader.buffered, 'an item')
    self.assertEqual(0.1, reader.next_poll_delay())


class FailureTest(BackgroundTest):
  def test_comes_after_what_was_fetched_before(self):
    for kind in KINDS:
      with self.subTest(kind.__name__):
        reader = self.opened(kind())
        reader.feed(1, 2)
        failure = ValueError('gone')
        reader.fail(failure)
        reader.settle()
        self.assertTrue(reader.advance())
        self.assertTrue(reader.advance())
        for _ in range(2):
          with self.assertRaises(ValueError) as caught:
            reader.advance()
          self.assertIs(failure, caught.exception)
        self.assertFalse(reader.idle)
        self.assertEqual(0, reader.called('shut'))  # Acknowledging goes on.
        reader.close()
        self.assertEqual(1, reader.called('shut'))

  def test_of_open(self):
    class Failing(Scripted):
      def open(self):
        super().open()
        raise RetryLater(7, 'restarting')

    class FailingAsync(ScriptedAsync):
      async def open(self):
        await super().open()
        raise RetryLater(7, 'restarting')

    for kind in (Failing, FailingAsync):
      with self.subTest(kind.__name__):
        reader = kind()
        self.stack.callback(reader.close)
        with self.assertRaises(RetryLater) as caught:
          reader.start()
          reader.settle()
          reader.advance()
        self.assertEqual(7, caught.exception.seconds)
        # There is no client that could be used, closed or interrupted.
        with self.assertNoLogs(level='WARNING'):
          reader.close()
        self.assertEqual(['open'], [name for name, _ in reader.calls])

  def test_of_a_generator(self):
    reader = self.opened(Scripted())

    def failing():
      yield 1
      raise ValueError('gone')

    reader.command(failing)
    reader.settle()
    self.assertTrue(reader.advance())
    with self.assertRaisesRegex(ValueError, 'gone'):
      reader.advance()

  def test_that_is_meant_for_its_own_thread_is_wrapped(self):
    for kind, exc in [
        (Scripted, SystemExit(3)),
        (Scripted, KeyboardInterrupt()),
        (ScriptedAsync, asyncio.CancelledError()),
        (ScriptedAsync, SystemExit(3)),
    ]:
      with self.subTest(repr(exc), kind=kind.__name__):
        reader = self.opened(kind())
        reader.fail(exc)
        reader.settle()
        with self.assertRaisesRegex(RuntimeError, r'fetch\(\) of a Scripted'):
          reader.advance()
        reader.close()
        self.assertEqual(1, reader.called('shut'))

  def test_of_shut_is_logged(self):
    class Failing(Scripted):
      def shut(self):
        raise ValueError('no')

    class FailingAsync(ScriptedAsync):
      async def shut(self):
        raise ValueError('no')

    for kind in (Failing, FailingAsync):
      with self.subTest(kind.__name__):
        reader = self.opened(kind())
        reader.settle()
        with self.assertLogs(LOGGER, 'WARNING') as logs:
          reader.close()
        self.assertIn(f'shut() of a {kind.__name__} failed', logs.output[0])
        self.assertIn('ValueError: no', logs.output[0])

  def test_of_interrupt_is_logged(self):
    class Failing(Scripted):
      def interrupt(self):
        super().interrupt()
        raise ValueError('no')

    reader = self.opened(Failing())
    reader.settle()
    with self.assertLogs(LOGGER.replace('fetcher', 'background')) as logs:
      reader.close()
    self.assertIn('interrupt() of a Failing failed', logs.output[0])
    self.assertEqual(1, reader.called('shut'))

  def test_of_a_fetch_that_was_interrupted_is_no_news(self):
    reader = self.opened(Scripted())
    until(lambda: reader.waiting, 'a fetch that blocks')
    with self.assertNoLogs(level='WARNING'):
      reader.close()
    self.assertEqual(1, reader.called('shut'))

  def test_what_fetch_must_not_return(self):
    for what, name in [(None, 'NoneType'), (b'record', 'bytes'),
                       ('record', 'str'), (7, 'int')]:
      for kind in KINDS:
        with self.subTest(name, kind=kind.__name__):
          reader = self.opened(kind())
          reader.command(lambda what=what: what)
          reader.settle()
          with self.assertRaisesRegex(
              TypeError, rf'Scripted\w*.fetch\(\) returned a {name}.*iterable'):
            reader.advance()
          reader.close()


class CloseTest(BackgroundTest):
  def test_wakes_a_fetch_that_blocks(self):
    for kind in KINDS:
      with self.subTest(kind.__name__):
        reader = self.opened(kind())
        until(lambda: reader.waiting, 'a fetch that blocks')
        begun = time.monotonic()
        reader.close()
        self.assertLess(time.monotonic() - begun, 2.0)
        self.assertEqual([], fetch_threads())
        self.assertEqual(1, reader.called('shut'))
        self.assertEqual(1, reader.called('interrupt'))

  def test_shuts_when_interrupt_is_done(self):
    """It uses the client that shut() closes."""
    class Slow(Scripted):
      def interrupt(self):
        super().interrupt()
        time.sleep(0.1)
        self._note('interrupted')

    class SlowAsync(ScriptedAsync):
      def interrupt(self):
        time.sleep(0.1)
        self._note('interrupted')

    for kind in (Slow, SlowAsync):
      with self.subTest(kind.__name__):
        reader = self.opened(kind())
        reader.settle()
        reader.close()
        self.assertEqual(['interrupted', 'shut'],
                         [name for name, _ in reader.calls][-2:])

  def test_wakes_a_thread_that_waits_for_room(self):
    self.patch('LOOK_SECONDS', 1000.0)
    for kind in KINDS:
      for feed in ('feed', 'feed_one_by_one'):
        with self.subTest(kind.__name__, feed=feed):
          reader = self.opened(kind(capacity=1))
          getattr(reader, feed)(1, 2, 3)
          reader.settle()
          reader.close()
          self.assertEqual([], fetch_threads())
          self.assertEqual(0, reader.buffered())

  def test_ends_a_fetch_that_yields_for_ever(self):
    class Endless(Scripted):
      def fetch(self):
        yield from itertools.count()

    class EndlessAsync(ScriptedAsync):
      async def fetch(self):
        for n in itertools.count():
          await asyncio.sleep(0)
          yield n

    for kind in (Endless, EndlessAsync):
      for taken in (0, 100):
        with self.subTest(kind.__name__, taken=taken):
          reader = self.opened(kind())
          until(lambda: reader.advance() or reader.given, 'an item')
          while len(reader.given) < taken:
            reader.advance()
          reader.close()
          self.assertEqual([], fetch_threads())
          self.assertEqual(1, reader.called('shut'))

  def test_gives_up_on_a_thread_that_does_not_end_and_says_which(self):
    self.patch('CLOSE_SECONDS', 0.05)
    self.patch('LOOK_SECONDS', 0.01)
    for where in ('fetch', 'keep_alive', 'shut', 'open'):
      with self.subTest(where):
        go = threading.Event()
        inside = threading.Event()

        def block(go=go, inside=inside):
          inside.set()
          go.wait(PATIENCE_SECONDS)
          return []

        class Stuck(Scripted):
          pass

        setattr(Stuck, where, lambda self, block=block: block())
        reader = self.opened(Stuck(capacity=1))
        if where == 'keep_alive':
          reader.feed(1, 2)
        if where != 'shut':
          inside.wait(PATIENCE_SECONDS)
        with self.assertLogs(LOGGER, 'WARNING') as logs:
          reader.close()
        self.assertIn('close() of a Stuck gave up after 0.05 s', logs.output[0])
        self.assertIn("thread 'Stuck-fetch'", logs.output[0])
        self.assertIn(f'still in {where}()', logs.output[0])
        go.set()
        until(lambda: not fetch_threads(), 'the end of the thread')
        if where != 'shut':
          self.assertEqual(1, reader.called('shut'))
        self.assertEqual(where != 'open', reader.called('interrupt'))

  def test_any_number_of_times_from_any_thread(self):
    reader = self.opened(Scripted())
    reader.settle()
    threads = [threading.Thread(target=reader.close) for _ in range(8)]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
    reader.close()
    self.assertEqual(1, reader.called('shut'))
    self.assertEqual(1, reader.called('interrupt'))

  def test_from_the_background_thread(self):
    reader = self.opened(Scripted())
    reader.command(lambda: reader.close() or reader._note('closed') or [])
    until(lambda: not fetch_threads(), 'the end of the thread')
    calls = [name for name, _ in reader.calls]
    self.assertEqual(['interrupt', 'closed', 'shut'], calls[-3:])

  def test_before_start(self):
    reader = Scripted()
    reader.close()
    with self.assertRaisesRegex(RuntimeError, r'Scripted: start\(\) after cl'):
      reader.start()
    self.assertEqual([], reader.calls)

  def test_when_all_is_finished(self):
    for kind in KINDS:
      with self.subTest(kind.__name__):
        reader = self.opened(kind())
        reader.feed_last()
        reader.settle()
        self.assertFalse(reader.advance())
        self.assertTrue(reader.finished)
        self.assertEqual(0, reader.called('shut'))
        reader.close()
        self.assertEqual(1, reader.called('shut'))
        self.assertEqual(0, reader.called('interrupt'))
        self.assertEqual(1, reader.called('fetch'))

  def test_a_reader_that_is_dropped_takes_its_thread_along(self):
    self.patch('LOOK_SECONDS', 0.02)
    self.stack.enter_context(
        mock.patch(
            'apache_beam.io._unbounded_fetcher_async.LOOK_SECONDS', 0.02))

    class Plain(BackgroundReader):
      def __init__(self, fetch):
        super().__init__(capacity=2)
        self._fetch = fetch

      def fetch(self):
        return self._fetch()

    class PlainAsync(Plain):
      async def fetch(self):
        await asyncio.sleep(0.01)
        return self._fetch()

    def failing():
      raise ValueError('no')

    for kind in (Plain, PlainAsync):
      for name, fetch in [('idle', list), ('full', lambda: [1, 2, 3]),
                          ('failed', failing)]:
        with self.subTest(name, kind=kind.__name__):
          with self.assertLogs(LOGGER, 'WARNING') as logs:
            reader = kind(fetch)
            with contextlib.suppress(ValueError):
              reader.start()
            del reader
            # What was raised refers to the reader, and the reader to it.
            gc.collect()
            until(lambda: not fetch_threads(), 'the end of the thread')
          self.assertIn('dropped without close()', logs.output[0])


class AsyncTest(BackgroundTest):
  def test_yields(self):
    class Reader(BackgroundReader):
      turn = 0

      async def fetch(self):
        self.turn += 1
        if self.turn == 3:
          self.finish()
        for n in range(3):
          await asyncio.sleep(0)
          yield self.turn, n

    reader = Reader(capacity=2)
    self.stack.callback(reader.close)
    given = []
    there = reader.start()
    while there or not reader.finished:
      if there:
        given.append(reader.current)
      there = reader.advance()
    self.assertEqual([(i, n) for i in (1, 2, 3) for n in range(3)], given)

  def test_close_cancels_what_waits_and_does_not_cancel_shut(self):
    class Waiting(ScriptedAsync):
      async def wait(self):
        self._note('waits')
        try:
          await asyncio.Event().wait()
        finally:
          self._note('cancelled')

      async def shut(self):
        await asyncio.sleep(0.1)
        self._note('shut')

    class InOpen(Waiting):
      async def open(self):
        await self.wait()

    class InFetch(Waiting):
      async def fetch(self):
        await self.wait()

    class InYielding(Waiting):
      async def fetch(self):
        yield 1
        await self.wait()

    for kind in (InOpen, InFetch, InYielding):
      with self.subTest(kind.__name__):
        reader = self.opened(kind())
        until(lambda: reader.called('waits'), 'the wait')
        reader.close()
        calls = [name for name, _ in reader.calls]
        if kind is InOpen:
          self.assertEqual(['waits', 'cancelled'], calls)
        else:
          self.assertEqual(['interrupt', 'cancelled', 'shut'], calls[-3:])

  def test_the_loop_serves_others_while_the_buffer_is_full(self):
    """And after a failure: acknowledgements go by the same connection."""
    for how in ('full', 'failed', 'finished'):
      with self.subTest(how):
        reader = self.opened(ScriptedAsync(capacity=1))
        if how == 'full':
          reader.feed(1, 2)
        elif how == 'failed':
          reader.fail(ValueError('no'))
        else:
          reader.feed_last(1)
        reader.settle()

        async def acknowledge():
          return threading.current_thread().name

        name = asyncio.run_coroutine_threadsafe(acknowledge(),
                                                reader.loop).result(10)
        self.assertEqual('ScriptedAsync-fetch', name)
        reader.close()

  def test_half_of_the_methods(self):
    class Mixed(Scripted):
      async def open(self):
        pass

    reader = Mixed()
    self.stack.callback(reader.close)
    with self.assertRaisesRegex(
        TypeError, r'Mixed: open\(\) is "async def", but fetch\(\) is not'):
      reader.start()


class ArgumentsTest(BackgroundTest):
  def test_capacity(self):
    for capacity, error in [(0, ValueError), (-1, ValueError),
                            (True, TypeError), (1.0, TypeError),
                            ('1', TypeError), (None, TypeError),
                            (float('nan'), TypeError)]:
      with self.subTest(capacity):
        with self.assertRaisesRegex(error, f'capacity={capacity!r} must be'):
          Scripted(capacity)

  def test_started_twice(self):
    reader = self.opened(Scripted())
    with self.assertRaisesRegex(
        RuntimeError, r'Scripted: start\(\) was called before'):
      reader.start()

  def test_not_started(self):
    reader = Scripted()
    with self.assertRaisesRegex(RuntimeError, 'Scripted was not started'):
      reader.advance()
    self.assertEqual(
        (False, False, 0, None),
        (reader.idle, reader.finished, reader.buffered(),
         reader.next_poll_delay()))

  def test_advance_after_close(self):
    reader = self.opened(Scripted())
    reader.feed(1, 2)
    until(reader.buffered, 'an item')
    reader.close()
    with self.assertRaisesRegex(RuntimeError, 'Scripted was closed'):
      reader.advance()

  def test_init_of_the_base_was_not_called(self):
    class Forgetful(Scripted):
      def __init__(self):
        pass

    with self.assertRaisesRegex(
        RuntimeError,
        r'Forgetful.__init__\(\) did not call super\(\).__init__\(\)'):
      Forgetful().start()

  def test_fetch_is_missing(self):
    class Nothing(BackgroundReader):
      pass

    reader = Nothing()
    self.stack.callback(reader.close)
    with self.assertRaisesRegex(NotImplementedError, 'Nothing'):
      reader.start()
      while True:
        reader.advance()

  def test_pickled_or_copied(self):
    reader = self.opened(Scripted())
    for what in (pickle.dumps, copy.copy, copy.deepcopy):
      with self.subTest(what.__name__):
        with self.assertRaisesRegex(
            TypeError, 'A Scripted cannot be pickled or copied: it has a thr'):
          what(reader)

  def test_no_attribute_that_an_author_could_use_by_accident(self):
    class Plain(BackgroundReader):
      def fetch(self):
        return []

    reader = self.opened(Plain())
    names = [n for n in vars(reader) if '_BackgroundReader__' not in n]
    self.assertEqual(['current'], names)

  def test_forked(self):
    """In a process of its own: a fork of this one would share too much."""
    code = '''
import os, sys, threading
from apache_beam.io._unbounded_background import BackgroundReader

class Reader(BackgroundReader):
  def fetch(self):
    threading.Event().wait(0.2)
    return []
  def interrupt(self):
    print('interrupted in', os.getpid() == parent, flush=True)
  def shut(self):
    print('shut in', os.getpid() == parent, flush=True)

parent = os.getpid()
reader = Reader()
reader.start()
child = os.fork()
if not child:
  try:
    reader.advance()
  except RuntimeError as exc:
    print(exc, flush=True)
  reader.close()
  os._exit(0)
os.waitpid(child, 0)
reader.close()

# One that is never closed does not keep the process from ending.
left = Reader()
left.start()
'''
    output = subprocess.run([sys.executable, '-c', code],
                            check=True,
                            capture_output=True,
                            timeout=60).stdout.decode()
    lines = output.splitlines()
    self.assertIn('the process was forked after start()', lines[0])
    self.assertEqual(['interrupted in True', 'shut in True'], lines[1:])


if __name__ == '__main__':
  unittest.main()
