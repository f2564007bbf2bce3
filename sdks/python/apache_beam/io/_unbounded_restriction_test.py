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

"""The persisted formats of an unbounded read, pinned, and its tracker."""

import dataclasses
import unittest

from hypothesis import given
from hypothesis import strategies as st

from apache_beam import coders
from apache_beam.io._unbounded_errors import RestrictionFormatError
from apache_beam.io._unbounded_restriction import Restriction
from apache_beam.io._unbounded_restriction import RestrictionCoder
from apache_beam.io._unbounded_restriction import Split
from apache_beam.io._unbounded_restriction import SplitCoder
from apache_beam.io._unbounded_tracker import CHUNK
from apache_beam.io._unbounded_tracker import Claim
from apache_beam.io._unbounded_tracker import UnboundedTracker
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

TIMESTAMPS = st.integers(
    MIN_TIMESTAMP.micros,
    MAX_TIMESTAMP.micros).map(lambda micros: Timestamp(micros=micros))
IDS = st.binary(min_size=8, max_size=8)
RESTRICTIONS = st.builds(
    Restriction,
    split_id=IDS,
    generation=IDS,
    mark=st.none() | st.binary(max_size=40),
    watermark=TIMESTAMPS,
    finished=st.booleans(),
    limit=st.none() | st.integers(0, 2**63))
SPLITS = st.builds(
    Split,
    index=st.integers(0, 2**32 - 1),
    count=st.integers(0, 2**32 - 1),
    source=st.binary(max_size=40))

# What release 1 of the format wrote. Never change these: jobs that run hold
# such bytes. A new format gets a new version byte and lines of its own.
PINNED_RESTRICTIONS = [
    (
        Restriction(b'split-id', b'generatn'),
        '0100' '73706c69742d6964' '67656e657261746e'
        '8000000000000328' '0000000000000000'),
    (
        Restriction(
            b'split-id',
            b'generatn',
            mark=b'mark',
            watermark=Timestamp(micros=1_700_000_000_123_456),
            finished=True),
        '0103' '73706c69742d6964' '67656e657261746e'
        '00060a2418202240' '0000000000000000' '6d61726b'),
    (
        Restriction(b'split-id', b'generatn', mark=b'', limit=300),
        '0105' '73706c69742d6964' '67656e657261746e'
        '8000000000000328' '000000000000012c'),
]
PINNED_SPLIT = (
    Split(2, 5, b'pickle'), '01' '00000002' '00000005' '7069636b6c65')


class RestrictionCoderTest(unittest.TestCase):
  @given(RESTRICTIONS)
  def test_round_trip(self, restriction):
    coder = RestrictionCoder()
    self.assertEqual(restriction, coder.decode(coder.encode(restriction)))

  @given(RESTRICTIONS, RESTRICTIONS)
  def test_round_trip_inside_another_coder(self, one, two):
    """Case B50."""
    coder = coders.TupleCoder([RestrictionCoder(), RestrictionCoder()])
    self.assertEqual((one, two), coder.decode(coder.encode((one, two))))

  def test_bytes_are_pinned(self):
    for restriction, pinned in PINNED_RESTRICTIONS:
      with self.subTest(restriction):
        self.assertEqual(pinned, RestrictionCoder().encode(restriction).hex())
        self.assertEqual(
            restriction, RestrictionCoder().decode(bytes.fromhex(pinned)))

  def test_no_mark_and_an_empty_mark_differ(self):
    coder = RestrictionCoder()
    for mark in (None, b''):
      restriction = dataclasses.replace(Restriction.initial(), mark=mark)
      self.assertEqual(mark, coder.decode(coder.encode(restriction)).mark)

  def test_deterministic(self):
    self.assertTrue(RestrictionCoder().is_deterministic())

  def test_unknown_formats_say_so(self):
    good = RestrictionCoder().encode(Restriction.initial())
    for what, encoded in [
        ('format 9', b'\x09' + good[1:]),
        ('format 1 with unknown flags 0x40', good[:1] + b'\x40' + good[2:]),
        ('format 1, cut off after 12 bytes', good[:12]),
        ('format none', b''),
    ]:
      with self.subTest(what):
        with self.assertRaisesRegex(RestrictionFormatError,
                                    f'{what}.*reads format 1'):
          RestrictionCoder().decode(encoded)

  def test_never_falsy(self):
    done = dataclasses.replace(Restriction.initial(), finished=True, limit=0)
    self.assertTrue(done)

  def test_ids_are_never_the_same_twice(self):
    made = [Restriction.initial() for _ in range(100)]
    self.assertEqual(100, len({r.split_id for r in made}))
    self.assertEqual(100, len({r.generation for r in made}))

  def test_repr_is_short_and_shows_no_mark(self):
    restriction = dataclasses.replace(Restriction.initial(), mark=b'secret')
    self.assertIn('6 bytes', repr(restriction))
    self.assertNotIn('secret', repr(restriction))


class SplitCoderTest(unittest.TestCase):
  @given(SPLITS, SPLITS)
  def test_round_trip(self, one, two):
    self.assertEqual(one, SplitCoder().decode(SplitCoder().encode(one)))
    coder = coders.TupleCoder([SplitCoder(), SplitCoder()])
    self.assertEqual((one, two), coder.decode(coder.encode((one, two))))

  def test_bytes_are_pinned(self):
    split, pinned = PINNED_SPLIT
    self.assertEqual(pinned, SplitCoder().encode(split).hex())
    self.assertEqual(split, SplitCoder().decode(bytes.fromhex(pinned)))

  def test_unknown_formats_say_so(self):
    good = SplitCoder().encode(PINNED_SPLIT[0])
    for what, encoded in [('format 7', b'\x07' + good[1:]),
                          ('format 1, cut off after 5 bytes', good[:5]),
                          ('format none', b'')]:
      with self.assertRaisesRegex(RestrictionFormatError, what):
        SplitCoder().decode(encoded)

  def test_registered_for_its_type(self):
    self.assertEqual(SplitCoder(), coders.registry.get_coder(Split))


class TrackerModel:
  """Reads numbers 0, 1, 2 … through a tracker, as the DoFn does."""
  def __init__(self, restriction):
    self.restriction = restriction
    self.tracker = UnboundedTracker(restriction)
    self.next = 0 if restriction.mark is None else int(restriction.mark)
    self.outputs = []
    self.in_flight = []

  def begin(self, count):
    if not self.tracker.try_claim(CHUNK):
      return False
    if self.restriction.limit is not None:
      count = min(count, self.restriction.limit - len(self.outputs))
    self.in_flight = list(range(self.next, self.next + count))
    return True

  def end(self, finished=False):
    self.next += len(self.in_flight)
    mark = str(self.next).encode()
    assert self.tracker.try_claim(
        Claim(len(self.in_flight), mark, Timestamp(self.next), finished))
    self.outputs += self.in_flight


class UnboundedTrackerTest(unittest.TestCase):
  @given(
      st.lists(
          st.tuples(
              st.integers(0, 5),
              st.sampled_from(['', 'before', 'in', 'after'])),
          max_size=20))
  def test_primary_and_residual_are_the_whole(self, chunks):
    """Whenever a split is asked for, nothing is lost and nothing is double.

    The primary, run again, gives what it gave; the residual gives the rest;
    asked for while a chunk is in flight, the split is declined.
    """
    model = TrackerModel(Restriction.initial())
    outputs = []
    primaries = []
    for count, when in chunks:

      def split():
        answer = model.tracker.try_split(0)
        if answer is not None:
          primaries.append((answer[0], list(model.outputs)))
        return answer

      answer = split() if when == 'before' else None
      began = model.begin(count)
      self.assertEqual(answer is None, began)
      if began:
        if when == 'in':
          self.assertIsNone(split())
        model.end()
        if when == 'after':
          answer = split()
      if answer is not None:
        outputs += model.outputs
        self.assertTrue(model.tracker.check_done())
        model = TrackerModel(answer[1])
    outputs += model.outputs
    self.assertEqual(list(range(len(outputs))), outputs)

    for primary, expected in primaries:
      again = TrackerModel(primary)
      while again.begin(3):
        again.end()
      self.assertTrue(again.tracker.check_done())
      self.assertEqual(expected, again.outputs)

  def test_residual_has_a_generation_of_its_own(self):
    restriction = Restriction.initial()
    residuals = [UnboundedTracker(restriction).try_split(0) for _ in range(2)]
    generations = {r.generation for _, r in residuals}
    generations.add(restriction.generation)
    self.assertEqual(3, len(generations))
    for primary, residual in residuals:
      self.assertEqual(residual.generation, primary.successor)
      self.assertEqual(restriction.split_id, residual.split_id)

  def test_only_a_checkpoint_splits(self):
    tracker = UnboundedTracker(Restriction.initial())
    for fraction in (0.5, 1.0, 1e-9, float('nan')):
      self.assertIsNone(tracker.try_split(fraction))

  def test_splits_once(self):
    tracker = UnboundedTracker(Restriction.initial())
    self.assertIsNotNone(tracker.try_split(0))
    self.assertIsNone(tracker.try_split(0))
    self.assertFalse(tracker.try_claim(CHUNK))

  def test_a_finished_split_has_no_rest(self):
    model = TrackerModel(Restriction.initial())
    self.assertTrue(model.begin(2))
    model.end(finished=True)
    self.assertIsNone(model.tracker.try_split(0))
    self.assertTrue(model.tracker.check_done())

  def test_not_done_unless_split_or_finished(self):
    tracker = UnboundedTracker(Restriction.initial())
    with self.assertRaisesRegex(ValueError, 'before it ran it'):
      tracker.check_done()
    tracker.try_claim(CHUNK)
    with self.assertRaisesRegex(ValueError, 'what becomes of the rest'):
      tracker.check_done()
    tracker.try_claim(Claim(1, b'm', Timestamp(1), False))
    with self.assertRaisesRegex(ValueError, 'what becomes of the rest'):
      tracker.check_done()

  def test_misuse_raises(self):
    tracker = UnboundedTracker(Restriction.initial())
    with self.assertRaisesRegex(ValueError, 'Nothing is in flight'):
      tracker.try_claim(Claim(1, b'm', Timestamp(1), False))
    tracker.try_claim(CHUNK)
    with self.assertRaisesRegex(ValueError, 'in flight'):
      tracker.try_claim(CHUNK)
    limited = UnboundedTracker(
        dataclasses.replace(Restriction.initial(), limit=1))
    limited.try_claim(CHUNK)
    with self.assertRaisesRegex(ValueError, '2 records were read where 1'):
      limited.try_claim(Claim(2, b'm', Timestamp(1), False))

  def test_progress_stays_finite(self):
    """The SDK adds the bytes output so far: NaN before the first sample."""
    for restriction in (
        Restriction.initial(),
        dataclasses.replace(Restriction.initial(), finished=True)):
      progress = UnboundedTracker(restriction).current_progress()
      for completed in (float('nan'), float('inf'), 0, 17):
        with_completed = progress.with_completed(completed)
        for figure in (with_completed.completed_work,
                       with_completed.remaining_work,
                       with_completed.fraction_completed,
                       with_completed.fraction_remaining):
          self.assertTrue(0 <= figure <= 1, figure)

  def test_bounded_is_the_primary_alone(self):
    primary, residual = UnboundedTracker(Restriction.initial()).try_split(0)
    self.assertTrue(UnboundedTracker(primary).is_bounded())
    self.assertFalse(UnboundedTracker(residual).is_bounded())


if __name__ == '__main__':
  unittest.main()
