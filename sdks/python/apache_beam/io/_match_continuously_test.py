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


"""MatchContinuously on real directories.

With a clock that tests set, through the SDK's own invoker, each poll in a
process that knows nothing but the bytes of the state; and on FnApiRunner,
DirectRunner and Prism (where ``PRISM_LOCATION`` names its binary).
"""

import collections
import contextlib
import functools
import os
import shutil
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any
from typing import Callable
from unittest import mock

import hypothesis
import hypothesis.strategies as st

import apache_beam as beam
from apache_beam.io import _match_continuously
from apache_beam.io import _watch_metrics
from apache_beam.io import fileio
from apache_beam.io._match_continuously import TimeTable
from apache_beam.io._runner_testing import needs_prism
from apache_beam.io._runner_testing import prism_pipeline
from apache_beam.io._watch_conditions import time_span
from apache_beam.io._watch_memory import MEMORIES
from apache_beam.io._watch_testing import FakeClock
from apache_beam.io._watch_testing import WatchHarness
from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.watch import PollError
from apache_beam.metrics import MetricsFilter
from apache_beam.runners.portability import fn_api_runner
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to
from apache_beam.transforms.periodicsequence import (
    ImpulseSeqGenRestrictionProvider)
from apache_beam.transforms.window import GlobalWindow
from apache_beam.transforms.window import IntervalWindow
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp


START = 1000000.0
INTERVAL = 10.0


class Folder:
  """A directory of its own, with files that have the times a test says."""
  def __init__(self, test: unittest.TestCase) -> None:
    self.path = tempfile.mkdtemp()
    test.addCleanup(shutil.rmtree, self.path)

  @property
  def pattern(self) -> str:
    return os.path.join(self.path, '*')

  def write(self, name: str, content: str = '', modified=None) -> None:
    path = os.path.join(self.path, name)
    # As a whole, so that no poll sees it before it has its time.
    with tempfile.NamedTemporaryFile('w', dir=self.path, prefix='.',
                                     delete=False) as file:
      file.write(content)
    if modified is not None:
      os.utime(file.name, (modified, modified))
    os.rename(file.name, path)

  def remove(self, *names: str) -> None:
    for name in names:
      os.remove(os.path.join(self.path, name))


class FolderTest(unittest.TestCase):
  """Polls a folder at the times that a test gives."""
  def watch(
      self,
      pattern=None,
      stop=MAX_TIMESTAMP,
      treatment=fileio.EmptyMatchTreatment.ALLOW,
      updated=False,
      cursor=False,
      lateness=0,
      start=START,
      on_match: Callable[[], Any] = lambda: None) -> Folder:
    self.folder = Folder(self)
    self.clock = FakeClock(start)
    self.matches = 0
    match = fileio._MatchAllFn(treatment).process

    def counted(file_pattern):
      self.matches += 1
      on_match()
      # What is not renamed yet is not there.
      return [
          file for file in match(file_pattern)
          if not os.path.basename(file.path).startswith('.')
      ]

    self.harness = WatchHarness(
        _match_continuously.watch_files(
            counted,
            INTERVAL,
            start,
            stop,
            updated,
            cursor,
            lateness,
            self.clock),
        pattern or self.folder.pattern)
    self.rest = [self.harness.initial()]
    self.result = None
    return self.folder

  def poll(self, at: float) -> list[str]:
    """The names that a bundle at this time outputs, sorted."""
    self.clock.now = START + at
    MEMORIES.close_all()
    self.result = self.harness.bundle(self.rest.pop()).raise_error()
    self.rest = list(self.result.residuals)
    return sorted(
        os.path.basename(file.path) for _, file in self.result.values)

  def times(self) -> list[float]:
    return [stamp.micros / 1e6 - START for _, stamp in self.result.records]

  def watermark(self) -> float:
    return self.result.watermarks[0].micros / 1e6 - START

  @property
  def ended(self) -> bool:
    return not self.rest

  def state_size(self) -> int:
    return len(self.harness._coder.encode(self.rest[0]))


class PathsTest(FolderTest):
  """By default a file is its path."""
  def test_files_that_appear_change_vanish_and_come_back(self):
    folder = self.watch()
    folder.write('a', 'old', START)
    self.assertEqual(['a'], self.poll(0))
    self.assertEqual([], self.poll(10))
    folder.write('a', 'new', START + 15)
    folder.write('b', '', START + 15)
    self.assertEqual(['b'], self.poll(20))
    folder.remove('a')
    self.assertEqual([], self.poll(30))
    folder.write('a', 'back', START + 35)
    folder.write('c')
    self.assertEqual(['c'], self.poll(40))

  def test_gives_path_size_and_modification_time(self):
    folder = self.watch()
    folder.write('a', 'four', 1234567.25)
    self.poll(0)
    self.assertEqual([(
        folder.pattern,
        FileMetadata(os.path.join(folder.path, 'a'), 4, 1234567.25))],
                     self.result.values)

  def test_needs_no_modification_time(self):
    folder = self.watch()
    folder.write('a', modified=0)
    self.assertEqual(['a'], self.poll(0))

  def test_event_times_are_ticks_and_the_watermark_is_the_next(self):
    """Case B27: the watermark does not lag by an interval."""
    folder = self.watch()
    folder.write('a', modified=START - 500)
    self.poll(0.25)
    self.assertEqual([0], self.times())
    self.assertEqual(10, self.watermark())
    self.poll(10)
    self.assertEqual(20, self.watermark())
    folder.write('b')
    self.poll(23)
    self.assertEqual([20], self.times())
    self.assertEqual(30, self.watermark())
    self.assertAlmostEqual(7, self.result.delays[0], delta=0.5)

  def test_keeps_sixteen_bytes_a_file(self):
    folder = self.watch()
    self.poll(0)
    empty = self.state_size()
    for number in range(1000):
      folder.write(f'file-with-a-long-name-{number:05}')
    self.assertEqual(1000, len(self.poll(10)))
    self.assertEqual(empty + 16000, self.state_size())
    self.assertEqual([], self.poll(20))
    self.assertEqual(empty + 16000, self.state_size())

  def test_draining_ends_it(self):
    """Cases B15 and B25."""
    self.watch()
    self.poll(0)
    self.assertIsNone(
        self.harness._provider.truncate(self.folder.pattern, self.rest[0]))


class VersionsTest(FolderTest):
  """With match_updated_files a file is its path and modification time."""
  def test_cases_of_change(self):
    """Case B11."""
    folder = self.watch(updated=True)
    folder.write('a', 'one', START)
    folder.write('b', 'one', START)
    self.assertEqual(['a', 'b'], self.poll(0))
    self.assertEqual([], self.poll(10))
    with self.subTest('a later time, whatever the size'):
      folder.write('a', 'two', START + 11)
      self.assertEqual(['a'], self.poll(20))
    with self.subTest('within the same second'):
      folder.write('a', 'two', START + 11.25)
      self.assertEqual(['a'], self.poll(30))
    with self.subTest('another size at the same time is not noticed'):
      folder.write('a', 'three', START + 11.25)
      self.assertEqual([], self.poll(40))
    with self.subTest('an earlier time, as of a restored backup'):
      folder.write('a', 'zero', START - 50)
      self.assertEqual(['a'], self.poll(50))
    with self.subTest('a version that was there before'):
      folder.write('a', 'one', START)
      self.assertEqual([], self.poll(60))
    with self.subTest('gone and back as it was'):
      folder.remove('b')
      self.assertEqual([], self.poll(70))
      folder.write('b', 'one', START)
      self.assertEqual([], self.poll(80))
    with self.subTest('gone and back with another time'):
      folder.remove('b')
      self.assertEqual([], self.poll(90))
      folder.write('b', 'one', START + 95)
      self.assertEqual(['b'], self.poll(100))

  def test_several_files_of_one_second_and_size(self):
    folder = self.watch(updated=True)
    for name in 'abc':
      folder.write(name, 'x', START)
    self.assertEqual(['a', 'b', 'c'], self.poll(0))
    folder.write('d', 'x', START)
    self.assertEqual(['d'], self.poll(10))

  def test_event_times_are_ticks(self):
    folder = self.watch(updated=True)
    folder.write('a', modified=START - 500)
    self.poll(0)
    self.assertEqual([0], self.times())

  def test_no_time_is_an_error_that_names_the_path(self):
    for kwargs in {'updated': True}, {'cursor': True}:
      folder = self.watch(**kwargs)
      folder.write('a', modified=START)
      folder.write('broken', modified=0)
      path = os.path.join(folder.path, 'broken')
      with self.assertRaisesRegex(PollError,
                                  f'no modification time for {path}'):
        self.poll(0)


class CursorTest(FolderTest):
  """With timestamp_cursor the modification time is the event time."""
  def test_event_time_to_the_microsecond(self):
    """Case B02: such times came back below themselves."""
    folder = self.watch(cursor=True)
    folder.write('a', modified=START + 0.000499)
    self.assertEqual(['a'], self.poll(10))
    micros = Timestamp.of(
        os.path.getmtime(os.path.join(folder.path, 'a'))).micros
    (_, stamp), = self.result.records
    self.assertEqual(micros, stamp.micros)
    self.assertEqual([], self.poll(20))

  def test_is_given_again_when_it_changes(self):
    folder = self.watch(cursor=True)
    folder.write('a', modified=START)
    self.assertEqual(['a'], self.poll(0))
    folder.write('a', modified=START + 5)
    self.assertEqual(['a'], self.poll(10))

  def test_equal_times_in_different_polls(self):
    """Case B19."""
    folder = self.watch(cursor=True)
    folder.write('a', modified=START)
    self.assertEqual(['a'], self.poll(0))
    folder.write('b', modified=START)
    self.assertEqual(['b'], self.poll(10))
    self.assertEqual([], self.poll(20))

  def test_late_files(self):
    """Case B18: made before the newest one, and there after it."""
    folder = self.watch(cursor=True, lateness=3)
    folder.write('newest', modified=START + 8)
    self.assertEqual(['newest'], self.poll(10))
    self.assertEqual(5, self.watermark())
    folder.write('late', modified=START + 5)
    folder.write('too-late', modified=START + 4)
    self.assertEqual(['late'], self.poll(20))
    folder.write('next', modified=START + 25)
    self.assertEqual(['next'], self.poll(30))
    self.assertEqual(22, self.watermark())

  def test_no_output_is_behind_the_watermark(self):
    """Case B27: files have times of their own, so no tick moves it on."""
    folder = self.watch(cursor=True, lateness=3)
    for poll, modified in enumerate([8, 5, 6, 14, 11, 30, 27, 29, 31]):
      watermark = self.watermark() if poll else float('-inf')
      folder.write(f'f{poll}', modified=START + modified)
      self.assertEqual([f'f{poll}'], self.poll(10 * poll))
      self.assertGreaterEqual(modified, watermark)

  def test_a_file_of_the_far_future_silences_nothing(self):
    folder = self.watch(cursor=True)
    folder.write('wrong', modified=START + 10**8)
    folder.write('a', modified=START)
    self.assertEqual(['a', 'wrong'], self.poll(0))
    self.assertEqual(0, self.watermark())
    folder.write('b', modified=START + 5)
    self.assertEqual(['b'], self.poll(10))
    self.assertEqual(5, self.watermark())

  def test_an_empty_folder_has_no_watermark_yet(self):
    self.watch(cursor=True)
    self.assertEqual([], self.poll(0))
    self.assertLess(self.watermark(), 0)

  def test_the_state_stays_flat(self):
    """Cases B01 and B17: and what is listed still is not given again."""
    folder = self.watch(cursor=True, lateness=15)
    sizes = []
    for poll in range(40):
      for number in range(5):
        folder.write(f'{poll}-{number}', modified=START + 10 * poll + number)
      self.assertEqual(5, len(self.poll(10 * poll + 5)))
      sizes.append(self.state_size())
    self.assertEqual(1, len(set(sizes[5:])), sizes)


class TreatmentTest(FolderTest):
  """EmptyMatchTreatment is honoured at every poll. Case B10."""
  def test_disallow(self):
    folder = self.watch(treatment=fileio.EmptyMatchTreatment.DISALLOW)
    with self.assertRaisesRegex(PollError, f'Empty match.*{folder.path}'):
      self.poll(0)
    folder = self.watch(treatment=fileio.EmptyMatchTreatment.DISALLOW)
    folder.write('a')
    self.assertEqual(['a'], self.poll(0))
    folder.remove('a')
    with self.assertRaisesRegex(PollError, f'Empty match.*{folder.path}'):
      self.poll(10)

  def test_allow(self):
    folder = self.watch()
    self.assertEqual([], self.poll(0))
    folder.write('a')
    self.assertEqual(['a'], self.poll(10))

  def test_allow_if_wildcard(self):
    treatment = fileio.EmptyMatchTreatment.ALLOW_IF_WILDCARD
    self.watch(treatment=treatment)
    self.assertEqual([], self.poll(0))
    self.watch(pattern='/no/such/folder', treatment=treatment)
    with self.assertRaisesRegex(PollError, 'Empty match.*/no/such/folder'):
      self.poll(0)

  def test_an_unreadable_folder(self):
    """It is as if empty, as for MatchFiles; nothing is lost by it."""
    for treatment in 'ALLOW', 'DISALLOW':
      folder = self.watch(treatment=treatment)
      folder.write('a')
      self.assertEqual(['a'], self.poll(0))
      folder.write('b')
      os.chmod(folder.path, 0)
      with unprivileged():
        if treatment == 'ALLOW':
          self.assertEqual([], self.poll(10))
        else:
          rest = list(self.rest)
          with self.assertRaisesRegex(PollError,
                                      f'Empty match.*{folder.path}'):
            self.poll(10)
          self.rest = rest
      os.chmod(folder.path, 0o755)
      self.assertEqual(['b'], self.poll(20))

  def test_a_folder_among_others_that_cannot_be_read(self):
    folder = self.watch()
    os.chmod(folder.path, 0o755)
    for name in 'open', 'closed':
      os.mkdir(os.path.join(folder.path, name))
      folder.write(os.path.join(name, f'in-{name}'))
    self.watch(pattern=os.path.join(folder.path, '*', '*'))
    os.chmod(os.path.join(folder.path, 'closed'), 0)
    with unprivileged():
      self.assertEqual(['in-open'], self.poll(0))
    os.chmod(os.path.join(folder.path, 'closed'), 0o755)
    self.assertEqual(['in-closed'], self.poll(10))

  def test_a_folder_that_is_gone_for_a_while(self):
    folder = self.watch()
    folder.write('a')
    self.assertEqual(['a'], self.poll(0))
    shutil.rmtree(folder.path)
    self.assertEqual([], self.poll(10))
    os.mkdir(folder.path)
    folder.write('a')
    folder.write('b')
    self.assertEqual(['b'], self.poll(20))

  def test_a_folder_that_is_not_there_yet(self):
    folder = self.watch()
    self.watch(pattern=os.path.join(folder.path, 'later', '*'))
    self.assertEqual([], self.poll(0))
    os.mkdir(os.path.join(folder.path, 'later'))
    folder.write(os.path.join('later', 'a'))
    self.assertEqual(['a'], self.poll(10))

  def test_a_file_that_is_gone_when_it_is_looked_at(self):
    """As is one that a link leads to."""
    folder = self.watch()
    folder.write('a')
    os.symlink('gone', os.path.join(folder.path, 'link'))
    self.assertEqual(['a'], self.poll(0))
    folder.write('gone')
    self.assertEqual(['gone', 'link'], self.poll(10))

  def test_a_listing_that_fails(self):
    """The bundle fails, and the retry begins where the last poll ended."""
    fail = []

    def on_match():
      if fail:
        raise OSError('the share is not mounted')

    folder = self.watch(on_match=on_match)
    folder.write('a')
    self.assertEqual(['a'], self.poll(0))
    folder.write('b')
    fail.append(1)
    rest = list(self.rest)
    with self.assertRaisesRegex(PollError, 'poll 2.*the share is not mounted'):
      self.poll(10)
    fail.clear()
    self.rest = rest
    self.assertEqual(['b'], self.poll(11))


class ManyFilesTest(FolderTest):
  def test_a_hundred_thousand(self):
    """Each once, in portions of one listing; none again after a restart.

    Case B01, second.
    """
    folder = self.watch()
    names = [f'f{number:05}' for number in range(100000)]
    for name in names:
      os.close(os.open(os.path.join(folder.path, name), os.O_CREAT))
    for cursor in False, True:
      with self.subTest(cursor=cursor):
        self.watch(pattern=folder.pattern, cursor=cursor)
        given = []
        self.clock.now = time.time()
        for _ in range(10):
          self.result = self.harness.bundle(self.rest.pop()).raise_error()
          self.rest = list(self.result.residuals)
          portion = [
              os.path.basename(file.path) for _, file in self.result.values
          ]
          self.assertEqual(10000, len(portion))
          given += portion
        self.assertEqual(names, sorted(given))
        self.assertEqual(1, self.matches)
        # A restart: nothing is left but the bytes of the state.
        folder.write('new', modified=time.time() + 1)
        self.assertEqual(['new'], self.poll(time.time() - START))
        self.assertEqual(2, self.matches)
        self.assertLess(self.state_size(), 200 if cursor else 1600100)
        folder.remove('new')


@contextlib.contextmanager
def unprivileged():
  """Root may read what it likes; so this is not root, for a moment."""
  if os.geteuid():
    yield
    return
  os.seteuid(65534)
  try:
    yield
  finally:
    os.seteuid(0)


class ClockTest(FolderTest):
  """When it polls, and when it ends."""
  def run_to_the_end(self, seconds_a_poll=0.0, late=0.0):
    """The times of the polls, by a runner that keeps to the delays."""
    self.clock.now += late
    polls = []
    while not self.ended:
      before = self.matches
      self.poll(self.clock.now - START)
      if self.matches > before:
        polls.append(self.clock.now - START)
        self.clock.now += seconds_a_poll
      if self.rest:
        # The delay is from when the poll ended, by another clock than ours.
        delay = self.result.delays[0] - seconds_a_poll
        self.clock.now = round(self.clock.now + max(0.0, delay) + 1e-4, 2)
      self.assertLess(len(polls), 1000)
    return polls

  def test_polls_at_the_ticks_before_the_stop(self):
    for stop, polls in ((50, [0, 10, 20, 30, 40]),
                        (50.01, [0, 10, 20, 30, 40, 50]),
                        (49.99, [0, 10, 20, 30, 40]), (0.01, [0])):
      self.watch(stop=START + stop)
      self.assertEqual(polls, self.run_to_the_end())

  def test_an_empty_window(self):
    for stop in 0, -20:
      self.watch(
          stop=START + stop, treatment=fileio.EmptyMatchTreatment.DISALLOW)
      self.assertEqual([], self.poll(0))
      self.assertTrue(self.ended)
      self.assertEqual(0, self.matches)

  def test_a_start_in_the_future(self):
    folder = self.watch()
    folder.write('a')
    self.assertEqual([], self.poll(-3600))
    self.assertEqual(0, self.matches)
    self.assertAlmostEqual(3600, self.result.delays[0], delta=1)
    self.assertEqual([], self.poll(-0.01))
    self.assertEqual(0, self.matches)
    self.assertEqual(['a'], self.poll(0))

  def test_a_resume_that_comes_early_does_not_poll(self):
    """Case B32; here in another process, where nothing else is in the way."""
    self.watch(stop=START + 25)
    self.poll(0)
    for early in 5, 1, 0.01:
      self.poll(10 - early)
      self.assertEqual(1, self.matches)
      self.assertAlmostEqual(early, self.result.delays[0], delta=0.005)
    self.poll(10)
    self.assertEqual(2, self.matches)
    self.assertFalse(self.ended)

  def test_polls_to_come_are_no_work(self):
    """Case B30: for ten years of them, runners asked for 100 workers."""
    self.watch(stop=START + 10 * 365 * 86400)
    self.assertEqual(
        0,
        self.harness._provider.restriction_size(
            self.folder.pattern, self.rest[0]))
    self.poll(0)
    self.assertEqual([0], self.result.sizes)

  def test_missed_polls_are_made_up_for(self):
    """Case B28: as many as there were ticks."""
    self.watch(stop=START + 100)
    self.assertEqual([35, 35, 35, 35, 40, 50, 60, 70, 80, 90],
                     self.run_to_the_end(late=35))

  def test_slow_polls_do_not_outlast_the_stop(self):
    """It ends by the clock, and not when it made ten polls."""
    folder = self.watch(stop=START + 100)
    folder.write('a')
    self.assertEqual([0, 25, 50, 75, 100],
                     self.run_to_the_end(seconds_a_poll=25))

  def test_the_pause_is_shorter_by_what_the_listing_took(self):
    self.watch(on_match=lambda: time.sleep(0.3))
    self.poll(0)
    self.assertLess(self.result.delays[0], 9.75)

  def test_a_job_that_was_down_over_the_stop_polls_once(self):
    folder = self.watch(stop=START + 100)
    folder.write('a')
    self.assertEqual(['a'], self.poll(0))
    folder.write('b')
    self.assertEqual(['b'], self.poll(5000))
    self.assertTrue(self.ended)

  def test_a_window_that_is_over(self):
    """Twice: what follows from the files of the first poll is found."""
    folder = self.watch(stop=START + 100)
    folder.write('a')
    self.assertEqual(['a'], self.poll(5000))
    folder.write('b')
    self.assertEqual(['b'], self.poll(5000))
    self.assertTrue(self.ended)
    self.watch(stop=START + 10)
    self.poll(5000)
    self.assertTrue(self.ended)

  def test_a_file_just_before_the_last_poll(self):
    folder = self.watch(stop=START + 20.2)
    self.poll(0)
    self.poll(10)
    folder.write('a')
    self.assertEqual(['a'], self.poll(20.1))
    self.assertTrue(self.ended)

  def test_a_clock_that_steps_back(self):
    for cursor in False, True:
      folder = self.watch(stop=START + 100, cursor=cursor)
      folder.write('a', modified=START)
      self.assertEqual(['a'], self.poll(0))
      self.assertEqual([], self.poll(10))
      folder.write('b', modified=START + 15)
      with self.subTest('by less than an interval: waits for its time'):
        self.assertEqual([], self.poll(14))
        self.assertAlmostEqual(6, self.result.delays[0], delta=0.1)
        self.assertEqual(['b'], self.poll(20))
      with self.subTest('by an hour: polls each interval'):
        for poll in range(12):
          folder.write(f'back-{poll}', modified=START + 20 + poll)
          self.assertEqual([f'back-{poll}'], self.poll(10 * poll - 3600))
          self.assertAlmostEqual(10, self.result.delays[0], delta=0.1)
          self.assertFalse(self.ended)
      with self.subTest('and ends when the clock has come to the end'):
        folder.write('c', modified=START + 85)
        self.assertEqual([], self.poll(85))
        self.assertAlmostEqual(5, self.result.delays[0], delta=0.1)
        self.assertEqual(['c'], self.poll(90))
        self.assertTrue(self.ended)


class TimeTableTest(unittest.TestCase):
  @hypothesis.given(
      st.integers(0, 10**13), st.integers(0, 10**9), st.floats(1e-5, 1e5))
  def test_has_the_ticks_of_periodic_impulse(self, start, length, interval):
    micros = time_span('interval', interval).micros
    table = TimeTable(start, start + length, micros)
    ticks = ImpulseSeqGenRestrictionProvider().initial_restriction(
        (Timestamp(micros=start), Timestamp(micros=start + length),
         interval)).stop
    self.assertEqual(ticks, table.ticks)
    if ticks:
      self.assertLess(table.due(ticks - 1), table.stop)
      self.assertGreaterEqual(table.due(ticks - 1) + micros, table.stop)

  @hypothesis.given(
      st.integers(1, 30),
      st.integers(0, 300),
      st.lists(st.integers(0, 100), min_size=1, max_size=20))
  def test_against_a_list_of_ticks(self, interval, length, durations):
    """Any number of ticks, polls of any length, by a clock that runs."""
    table = TimeTable(0, length, interval)
    ticks = list(range(0, length, interval))
    self.assertEqual(len(ticks), table.ticks)
    now = number = 0
    polls = []
    while ticks:
      self.assertEqual(0, table.early(number, now))
      polls.append(now)
      last = table.is_last(number, now)
      now += durations[number % len(durations)]
      now += table.pause(number, now)
      number += 1
      if last:
        break
    expected = []
    now = 0
    for tick in ticks:
      if expected and expected[-1] >= length and len(expected) > 1:
        break
      now = max(now, tick)
      expected.append(now)
      now += durations[(len(expected) - 1) % len(durations)]
    self.assertEqual(expected, polls)


class ArgumentsTest(unittest.TestCase):
  def test_errors_name_the_argument(self):
    """Cases B04 and B22."""
    for error, message, kwargs in (
        (ValueError, 'timestamp_cursor=True.*has_deduplication=True',
         {'timestamp_cursor': True, 'has_deduplication': False}),
        (ValueError, 'allowed_lateness=5.*timestamp_cursor=True',
         {'allowed_lateness': 5}),
        (ValueError, 'allowed_lateness=-5',
         {'allowed_lateness': -5, 'timestamp_cursor': True}),
        (TypeError, 'file_pattern=None must be a str', {'file_pattern': None}),
        (TypeError, "file_pattern=.*'/tmp'", {'file_pattern': Path('/tmp')}),
        (ValueError, 'file_pattern is empty', {'file_pattern': ''}),
        (ValueError, "empty_match_treatment='maybe' must be one of.*DISALLOW",
         {'empty_match_treatment': 'maybe'}),
        (TypeError, 'timestamp_cursor=1 must be a bool',
         {'timestamp_cursor': 1}),
        (ValueError, 'interval=0 must be more than 0', {'interval': 0}),
        (ValueError, 'interval=1e.30', {'interval': 1e30}),
        (ValueError, 'interval=1e-09', {'interval': 1e-9}),
        (ValueError, 'interval=-1', {'interval': -1}),
        (ValueError, 'interval=nan', {'interval': float('nan')}),
        (TypeError, "interval='5'", {'interval': '5'}),
        (TypeError, "start_timestamp='now'", {'start_timestamp': 'now'}),
        (ValueError, 'start_timestamp=nan', {'start_timestamp': float('nan')}),
        (TypeError, 'stop_timestamp=None', {'stop_timestamp': None})):
      with self.subTest(kwargs=kwargs):
        with self.assertRaisesRegex(error, message):
          fileio.MatchContinuously(**{'file_pattern': '/tmp/*', **kwargs})

  def test_type_label_and_boundedness(self):
    """Those of 2.75, with whatever arguments. Case B29."""
    for kwargs in ({}, {'has_deduplication': False},
                   {'match_updated_files': True}, {'timestamp_cursor': True},
                   {'apply_windowing': True}):
      pipeline = beam.Pipeline()
      files = pipeline | fileio.MatchContinuously('/tmp/*', 5, **kwargs)
      self.assertIs(FileMetadata, files.element_type)
      self.assertFalse(files.is_bounded)
      self.assertEqual(
          'MatchContinuously', files.producer.full_label.split('/')[0])
      _ = pipeline | 'Again' >> fileio.MatchContinuously('/tmp/*', 5, **kwargs)
      self.assertEqual({}, fileio.MatchContinuously('/tmp/*').display_data())

  def test_is_a_class_of_fileio(self):
    self.assertEqual(
        'apache_beam.io.fileio', fileio.MatchContinuously.__module__)
    self.assertEqual((
        'self', 'file_pattern', 'interval', 'has_deduplication',
        'start_timestamp', 'stop_timestamp', 'match_updated_files',
        'apply_windowing', 'empty_match_treatment', 'timestamp_cursor',
        'allowed_lateness'),
                     fileio.MatchContinuously.__init__.__code__.co_varnames)


def on_time(test):
  """Repeats a test that failed as the machine was busy.

  Once the stop is over, one poll stands for all that are left, and there are
  fewer than the test counts on. The next run has twice the time to begin.
  """
  @functools.wraps(test)
  def run(self):
    while True:
      try:
        return test(self)
      except Exception:  # pylint: disable=broad-except
        was_late = self.listings and self.listings[-1] > self.seconds
        if not was_late or self.lead > 60:
          raise
      type(self).lead *= 2
      self.begin_anew()

  return run


class RunnerTests:
  """What holds on every runner; subclasses make the pipeline.

  The clock is the machine's. What a poll must find is written when the one
  before it has listed, and the first poll is as far ahead as it takes a
  pipeline to begin.
  """
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    begin = time.monotonic()
    with cls.pipeline() as pipeline:
      _ = pipeline | beam.Create([1]) | beam.Map(str)
    cls.lead = 1 + 3 * (time.monotonic() - begin)

  def setUp(self):
    self.begin_anew()
    process = fileio._MatchAllFn.process

    @functools.wraps(process)
    def spy(fn, file_pattern):
      files = process(fn, file_pattern)
      number = len(self.listings)
      self.listings.append(time.time() - self.begin.micros / 1e6)
      for write in self.writes.get(number, ()):
        self.folder.write(*write)
      return files

    patch = mock.patch.object(fileio._MatchAllFn, 'process', spy)
    patch.start()
    self.addCleanup(patch.stop)

  def begin_anew(self):
    self.folder = Folder(self)
    # When, in seconds since the first tick, a poll had listed the files.
    self.listings = []
    self.writes = {}
    self.begin_soon()

  def begin_soon(self):
    self.begin = Timestamp.of(round(time.time() + self.lead, 3))

  def match(self, seconds, interval=0.5, **kwargs):
    self.seconds = seconds
    return fileio.MatchContinuously(
        os.path.join(self.folder.path, '[a-z]*'),
        interval,
        start_timestamp=self.begin,
        stop_timestamp=self.begin + seconds,
        **kwargs)

  def write_after(self, poll, name, content='', *modified):
    """Writes a file as soon as a poll, counted from 0, has listed the others.
    """
    self.writes.setdefault(poll, []).append((name, content, *modified))

  def run_pipeline(self, pipeline):
    """The counters of the watch, and when it ended, after the first poll."""
    result = pipeline.run()
    result.wait_until_finish()
    ended = time.time() - self.begin.micros / 1e6
    counters = result.metrics().query(
        MetricsFilter().with_namespace(_watch_metrics.NAMESPACE))['counters']
    return collections.Counter({
        counter.key.metric.name: counter.committed
        for counter in counters
    }), ended

  @on_time
  def test_finds_files_until_the_stop(self):
    """A watch of 5 s ended after one second, and missed most. Case B32."""
    self.folder.write('before')
    self.write_after(0, 'first')
    self.write_after(4, 'second')
    self.write_after(7, 'just-before-the-last-poll')
    pipeline = self.pipeline()
    names = pipeline | self.match(4.2) | beam.Map(
        lambda file: os.path.basename(file.path))
    assert_that(
        names,
        equal_to([
            'before',
            'first',
            'second',
            'just-before-the-last-poll'
        ]))
    counts, ended = self.run_pipeline(pipeline)
    self.assertEqual(9, counts['polls'])
    for tick, listed in enumerate(self.listings):
      self.assertGreaterEqual(listed, 0.5 * tick)
    self.assertGreater(ended, 4)
    self.assertLess(ended, 20)

  def test_an_empty_window(self):
    self.begin += 3600
    pipeline = self.pipeline()
    files = pipeline | self.match(
        0, empty_match_treatment=fileio.EmptyMatchTreatment.DISALLOW)
    # That nothing is matched would be an error.
    assert_that(files, equal_to([]))
    _, ended = self.run_pipeline(pipeline)
    self.assertLess(ended, 0, 'it does not wait for the start')
    self.assertEqual([], self.listings)

  @on_time
  def test_windows_of_the_polls(self):
    self.folder.write('a')
    self.folder.write('b')
    self.write_after(1, 'c')
    pipeline = self.pipeline()
    found = (
        pipeline
        | self.match(3.5, interval=1.0, apply_windowing=True)
        | beam.Map(lambda file: ('files', os.path.basename(file.path)))
        | beam.GroupByKey()
        | beam.MapTuple(
            lambda key, names, window=beam.DoFn.WindowParam:
            (window, sorted(names))))
    windows = [
        IntervalWindow(second, second + 1)
        for second in range(int(self.begin) - 1, int(self.begin) + 4)
    ]
    windows = [
        next(window for window in windows
             if window.start <= self.begin + tick < window.end)
        for tick in range(4)
    ]
    assert_that(
        found,
        equal_to([(windows[0], ['a', 'b']), (windows[2], ['c'])]),
        reify_windows=False)
    self.run_pipeline(pipeline)

  @on_time
  def test_modification_times_as_event_times(self):
    for name, modified in ('a', 1000), ('b', 1001), ('c', 1100):
      self.folder.write(name, modified=modified)
    self.write_after(0, 'too-late', '', 1039)
    self.write_after(0, 'late', '', 1041)
    pipeline = self.pipeline()
    found = (
        pipeline
        | self.match(1.2, timestamp_cursor=True, allowed_lateness=60)
        | beam.Map(
            lambda file, stamp=beam.DoFn.TimestampParam, window=beam.DoFn.
            WindowParam: (os.path.basename(file.path), int(stamp), window)))
    assert_that(
        found,
        equal_to([('a', 1000, GlobalWindow()), ('b', 1001, GlobalWindow()),
                  ('c', 1100, GlobalWindow()),
                  ('late', 1041, GlobalWindow())]))
    counts, _ = self.run_pipeline(pipeline)
    self.assertEqual(1, counts['outputs_dropped_late'])

  @on_time
  def test_updates_while_it_runs(self):
    """Each version is found that a poll could see."""
    self.folder.write('a')
    self.write_after(1, 'a')
    self.write_after(3, 'a')
    pipeline = self.pipeline()
    names = pipeline | self.match(
        3.2, match_updated_files=True) | beam.Map(
            lambda file: os.path.basename(file.path))
    assert_that(names, equal_to(['a'] * 3))
    self.run_pipeline(pipeline)

  def test_without_deduplication(self):
    """As it was: a file is given by each poll."""
    self.folder.write('a')
    pipeline = self.pipeline()
    names = pipeline | self.match(
        1.2, has_deduplication=False) | beam.Map(
            lambda file: os.path.basename(file.path))
    assert_that(names, equal_to(['a'] * 3))
    counts, _ = self.run_pipeline(pipeline)
    self.assertEqual(0, counts['polls'])

  def test_many_files(self):
    """Of 3,000 files each is given once, whatever the number of polls."""
    for number in range(3000):
      self.folder.write(f'f{number}')
    self.begin_soon()
    pipeline = self.pipeline()
    names = pipeline | self.match(1.2) | beam.Map(
        lambda file: os.path.basename(file.path))
    assert_that(names, equal_to([f'f{number}' for number in range(3000)]))
    counts, _ = self.run_pipeline(pipeline)
    self.assertGreater(counts['polls'], 1)
    self.assertEqual(len(self.listings), counts['polls'])
    self.assertEqual(3000, counts['outputs_new'])
    self.assertEqual(3000 * (counts['polls'] - 1), counts['outputs_seen'])

  def test_read_matches_takes_them(self):
    self.folder.write('a', 'what is in it')
    pipeline = self.pipeline()
    texts = (
        pipeline
        | self.match(0.2)
        | fileio.ReadMatches()
        | beam.Map(lambda file: file.read_utf8()))
    assert_that(texts, equal_to(['what is in it']))
    self.run_pipeline(pipeline)


class FnApiRunnerTest(RunnerTests, unittest.TestCase):
  @staticmethod
  def pipeline(**kwargs):
    return beam.Pipeline(runner=fn_api_runner.FnApiRunner(**kwargs))

  def test_draining(self):
    """Cases B25 and B44: a folder is not listed any more."""
    self.folder.write('a')
    for has_deduplication in True, False:
      with self.pipeline(is_drain=True) as pipeline:
        files = pipeline | self.match(1, has_deduplication=has_deduplication)
        assert_that(files, equal_to([]))
    self.assertEqual([], self.listings)


class DirectRunnerTest(RunnerTests, unittest.TestCase):
  @staticmethod
  def pipeline():
    return beam.Pipeline(runner='DirectRunner')


@needs_prism
class PrismTest(RunnerTests, unittest.TestCase):
  @staticmethod
  def pipeline():
    return prism_pipeline()


if __name__ == '__main__':
  unittest.main()
