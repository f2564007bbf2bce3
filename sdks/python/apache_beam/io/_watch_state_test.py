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


"""The state of a watch: its bytes, its splits, and what a process remembers."""

import hashlib
import itertools
import time
import unittest

import hypothesis
from hypothesis import strategies as st

from apache_beam import coders
from apache_beam.io._watch_errors import WatchStateError
from apache_beam.io._watch_restriction import Packed
from apache_beam.io._watch_restriction import Polling
from apache_beam.io._watch_restriction import Replay
from apache_beam.io._watch_restriction import RestrictionCoder
from apache_beam.io._watch_seen import SeenKeys
from apache_beam.io._watch_seen import digester
from apache_beam.io._watch_tracker import WORK
from apache_beam.io._watch_tracker import Round
from apache_beam.io._watch_tracker import WatchTracker
from apache_beam.runners.sdf_utils import RestrictionTrackerView
from apache_beam.runners.sdf_utils import ThreadsafeRestrictionTracker
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Duration
from apache_beam.utils.timestamp import Timestamp

CODER = RestrictionCoder(coders.StrUtf8Coder())
DIGEST = digester(coders.StrUtf8Coder())
WATCH = b'watch-id'
GENERATION = b'\0\1\2\3\4\5\6\7'


def outputs(*values, at=5):
  return tuple(
      TimestampedValue(value, Timestamp(at + n))
      for n, value in enumerate(values))


def values_of(restriction):
  return [output.value for output in restriction.outputs]


MICROS = st.integers(MIN_TIMESTAMP.micros, MAX_TIMESTAMP.micros)
IDS = st.binary(min_size=8, max_size=8)
POLLINGS = st.booleans().flatmap(
    lambda by_time: st.builds(
        Polling,
        IDS,
        IDS,
        keys=st.lists(
            st.binary(
                min_size=24 if by_time else 16, max_size=24
                if by_time else 16)).map(lambda keys: Packed(*keys)),
        by_time=st.just(by_time),
        cursor=st.none() | MICROS,
        watermark=MICROS.map(lambda micros: Timestamp(micros=micros)),
        polls=st.integers(0, 1 << 40),
        condition=st.binary(max_size=30),
        finished=st.booleans()))
REPLAYS = st.builds(
    Replay,
    IDS,
    IDS,
    outputs=st.lists(
        st.builds(
            TimestampedValue,
            st.text(),
            MICROS.map(lambda micros: Timestamp(micros=micros)))).map(tuple),
    watermark=MICROS.map(lambda micros: Timestamp(micros=micros)))


class RestrictionCoderTest(unittest.TestCase):
  """The format is persisted with running pipelines."""
  def test_bytes_of_a_polling_are_pinned(self):
    polling = Polling(
        WATCH,
        GENERATION,
        Packed(b'k' * 16, b'l' * 16),
        watermark=Timestamp(micros=1_700_000_000_000_001),
        polls=3,
        condition=b'cond')
    encoded = bytes.fromhex(
        '01' '00'
        '77617463682d6964' '0001020304050607' '00060a24181e4001'
        '0000000000000000' '0000000000000003' '00000004' '636f6e64') + (
            b'k' * 16 + b'l' * 16)
    self.assertEqual(encoded, CODER.encode(polling))
    self.assertEqual(polling, CODER.decode(encoded))

  def test_bytes_of_a_polling_with_a_cursor_are_pinned(self):
    polling = Polling(
        WATCH,
        GENERATION,
        Packed(b'\x80' + b'\0' * 6 + b'\x09' + b'k' * 16),
        by_time=True,
        cursor=-2,
        watermark=MIN_TIMESTAMP,
        finished=True)
    encoded = bytes.fromhex(
        '01' '0e'
        '77617463682d6964' '0001020304050607' '8000000000000328'
        'fffffffffffffffe' '0000000000000000' '00000000'
        '8000000000000009') + b'k' * 16
    self.assertEqual(encoded, CODER.encode(polling))
    self.assertEqual(polling, CODER.decode(encoded))

  def test_bytes_of_a_replay_are_pinned(self):
    replay = Replay(
        WATCH, GENERATION, outputs('a', 'ü', at=0), Timestamp(micros=7))
    encoded = bytes.fromhex(
        '01' '01'
        '77617463682d6964' '0001020304050607' '0000000000000007'
        '00000002'
        '0000000000000000' '00000001' '61'
        '00000000000f4240' '00000002' 'c3bc')
    self.assertEqual(encoded, CODER.encode(replay))
    self.assertEqual(replay, CODER.decode(encoded))

  def test_digests_are_pinned(self):
    """Another hash would take all that was output for new."""
    self.assertEqual(
        bytes.fromhex('cae66941d9efbd404e4d88758ea67670'), DIGEST(''))
    self.assertEqual(
        hashlib.blake2b(b'a', digest_size=16).digest(), DIGEST('a'))

  @hypothesis.given(POLLINGS | REPLAYS)
  def test_round_trip(self, restriction):
    self.assertEqual(restriction, CODER.decode(CODER.encode(restriction)))
    self.assertEqual(
        CODER.encode(restriction),
        CODER.encode(CODER.decode(CODER.encode(restriction))))

  def test_a_key_takes_16_bytes(self):
    one = Polling(WATCH, GENERATION, Packed(b'k' * 16))
    many = Polling(WATCH, GENERATION, Packed(b'k' * 16000))
    self.assertEqual(
        999 * 16, len(CODER.encode(many)) - len(CODER.encode(one)))

  def test_earlier_rounds_are_not_encoded_again(self):
    """The pieces go into the encoding as the objects that they are."""
    first = Polling(WATCH, GENERATION, Packed(b'k' * 16))
    second = CODER.decode(CODER.encode(first))
    grown = second.keys.plus(b'l' * 16)
    self.assertIs(grown.pieces[0], second.keys.pieces[0])
    self.assertIs(grown, grown.plus(b''))
    self.assertEqual(b'k' * 16 + b'l' * 16, grown.joined())
    self.assertEqual(Packed(b'k' * 16, b'l' * 16), grown)
    self.assertEqual([b'k' * 16, b'l' * 16], grown.cut_up(16))

  def test_refuses_what_it_does_not_read(self):
    good = CODER.encode(Polling(WATCH, GENERATION, Packed(b'k' * 16)))
    replay = CODER.encode(Replay(WATCH, GENERATION, outputs('a')))
    for encoded, told in (
        (b'', 'none, as it has no bytes'), (b'\x02' + good[1:], 'format 2;'),
        (good[:1] + b'\x40' + good[2:], '1 with unknown flags 0x40'),
        (good[:10], '1, cut off after 10 bytes'),
        (good[:40], '1, cut off after 40 bytes'),
        (good[:-1], '1, cut off after'), (replay[:-1], '1, cut off after')):
      with self.subTest(told):
        with self.assertRaisesRegex(WatchStateError, told):
          CODER.decode(encoded)
        with self.assertRaisesRegex(WatchStateError, 'or a newer one'):
          CODER.decode(encoded)

  def test_a_restriction_is_never_falsy(self):
    """The SDK drops a falsy residual."""
    self.assertTrue(Polling(WATCH, GENERATION))
    self.assertTrue(Replay(WATCH, GENERATION))

  def test_texts_say_how_far_it_is(self):
    self.assertEqual(
        'Polling(776174 gen=000102 polls=2 keys=1 watermark=Timestamp(5))',
        repr(
            Polling(
                WATCH,
                GENERATION,
                Packed(b'k' * 16),
                watermark=Timestamp(5),
                polls=2)))
    self.assertEqual(
        'Replay(776174 gen=000102 outputs=2 watermark=Timestamp(5))',
        repr(Replay(WATCH, GENERATION, outputs('a', 'b'), Timestamp(5))))


class TrackerTest(unittest.TestCase):
  def setUp(self):
    self.polling = Polling(
        WATCH, GENERATION, Packed(b'k' * 16), watermark=Timestamp(3), polls=1)
    self.after = Polling(
        WATCH,
        GENERATION,
        Packed(b'k' * 16, b'l' * 16),
        watermark=Timestamp(5),
        polls=2)

  def test_split_before_the_claim_leaves_all_to_the_residual(self):
    """Case B08: nothing was polled, so nothing is lost."""
    tracker = WatchTracker(self.polling)
    primary, residual = tracker.try_split(0)
    self.assertTrue(primary.is_done)
    self.assertEqual((), primary.outputs)
    self.assertNotEqual(GENERATION, residual.generation)
    self.assertEqual(residual.generation, primary.successor)
    self.assertIs(primary, tracker.current_restriction())
    self.assertFalse(tracker.try_claim(WORK))
    self.assertTrue(tracker.check_done())
    self.assertEqual(self.polling.keys, residual.keys)
    self.assertEqual(1, residual.polls)
    self.assertIsNone(tracker.try_split(0))

  def test_a_poll_in_flight_is_not_split(self):
    """Case B08: asked five times, it declines five times."""
    tracker = WatchTracker(self.polling)
    self.assertTrue(tracker.try_claim(WORK))
    for _ in range(5):
      self.assertIsNone(tracker.try_split(0))
    self.assertTrue(tracker.try_claim(Round(outputs('a'), self.after)))
    primary, residual = tracker.try_split(0)
    self.assertEqual(['a'], values_of(primary))
    self.assertEqual(2, residual.polls)

  def test_split_after_the_claim_replays_exactly_the_round(self):
    tracker = WatchTracker(self.polling)
    tracker.try_claim(WORK)
    tracker.try_claim(Round(outputs('a', 'b'), self.after))
    primary, residual = tracker.try_split(0)
    self.assertEqual(outputs('a', 'b'), primary.outputs)
    # What is output again must not be late where it was not.
    self.assertEqual(Timestamp(3), primary.watermark)
    self.assertEqual(self.after.keys, residual.keys)
    self.assertEqual(Timestamp(5), residual.watermark)
    self.assertTrue(tracker.check_done())
    self.assertTrue(tracker.is_bounded())
    self.assertIsNone(tracker.try_split(0))

  def test_a_replay_is_output_once(self):
    replay = Replay(WATCH, GENERATION, outputs('a'), Timestamp(3))
    tracker = WatchTracker(replay)
    self.assertTrue(tracker.is_bounded())
    with self.assertRaisesRegex(ValueError, 'before it ran it'):
      tracker.check_done()
    self.assertTrue(tracker.try_claim(WORK))
    self.assertTrue(tracker.check_done())
    self.assertFalse(tracker.try_claim(WORK))
    self.assertIsNone(tracker.try_split(0))

  def test_a_replay_that_is_split_before_its_claim(self):
    tracker = WatchTracker(Replay(WATCH, GENERATION, outputs('a')))
    primary, residual = tracker.try_split(0)
    self.assertEqual([], values_of(primary))
    self.assertEqual(['a'], values_of(residual))
    self.assertFalse(tracker.try_claim(WORK))

  def test_only_a_checkpoint_can_be_split_off(self):
    """Case B09."""
    for restriction in (self.polling, Replay(
        WATCH, GENERATION, outputs('a', 'b'))):
      tracker = WatchTracker(restriction)
      for fraction in (0.1, 0.5, 1, 1.0):
        self.assertIsNone(tracker.try_split(fraction))
      self.assertIs(restriction, tracker.current_restriction())

  def test_a_last_round_leaves_nothing(self):
    tracker = WatchTracker(self.polling)
    tracker.try_claim(WORK)
    last = Polling(WATCH, GENERATION, finished=True)
    tracker.try_claim(Round(outputs('a'), last))
    self.assertIsNone(tracker.try_split(0))
    self.assertTrue(tracker.check_done())
    self.assertFalse(WatchTracker(last).try_claim(WORK))
    self.assertTrue(WatchTracker(last).check_done())

  def test_progress_is_a_fraction(self):
    tracker = WatchTracker(self.polling)
    fractions = [tracker.current_progress()]
    tracker.try_claim(WORK)
    fractions.append(tracker.current_progress())
    tracker.try_claim(Round(outputs('a'), self.after))
    fractions.append(tracker.current_progress())
    tracker.try_split(0)
    fractions.append(tracker.current_progress())
    self.assertEqual([0, 0, 0, 1],
                     [progress.fraction_completed for progress in fractions])
    # What the SDK adds is not a number before the first output.
    self.assertEqual(
        0, fractions[0].with_completed(float('nan')).fraction_completed)

  def test_what_is_not_ended_is_a_fault(self):
    tracker = WatchTracker(self.polling)
    with self.assertRaisesRegex(ValueError, 'No poll is in flight'):
      tracker.try_claim(Round((), self.after))
    with self.assertRaisesRegex(ValueError, 'without saying what becomes'):
      tracker.check_done()
    tracker.try_claim(WORK)
    with self.assertRaisesRegex(ValueError, 'A poll is in flight'):
      tracker.try_claim(WORK)
    with self.assertRaisesRegex(ValueError, 'without saying what becomes'):
      tracker.check_done()

  def test_names_the_runner_that_cannot(self):
    with self.assertRaisesRegex(ValueError, 'bundle-based DirectRunner'):
      WatchTracker(self.polling).check_done()

  @hypothesis.given(
      st.lists(st.sampled_from(['claim', 'split 0', 'split 0.5']), max_size=12),
      st.lists(st.lists(st.sampled_from('abcdef'), max_size=3), max_size=4))
  def test_primary_and_residual_make_up_the_original(self, steps, polled):
    """Case B09: whatever is claimed and split, each output belongs to one.

    Polls give `polled`, one after another; the residual is gone on with. What
    the bundles output is what the primaries hold.
    """
    rounds = [outputs(*values) for values in polled]
    restriction = self.polling
    given, held = [], []
    number = 0
    tracker = WatchTracker(restriction)

    def end_bundle(tracker):
      answer = tracker.try_split(0)
      primary = tracker.current_restriction()
      held.extend(getattr(primary, 'outputs', ()))
      return answer[1] if answer else None

    for step in steps:
      if step.startswith('split'):
        if float(step[6:]):
          self.assertIsNone(tracker.try_split(float(step[6:])))
          continue
      elif tracker.try_claim(WORK):
        self.assertIsNone(tracker.try_split(0))
        current = tracker.current_restriction()
        last = number + 1 >= len(rounds)
        new = rounds[number] if number < len(rounds) else ()
        number += 1
        tracker.try_claim(
            Round(
                new,
                Polling(
                    WATCH,
                    current.generation,
                    current.keys.plus(b''.join(map(DIGEST, 'x' * len(new)))),
                    polls=current.polls + 1,
                    finished=last)))
        given.extend(new)
        if last:
          held.extend(new)
          break
      residual = end_bundle(tracker)
      self.assertIsNotNone(residual)
      self.assertEqual(number + 1, residual.polls)
      tracker = WatchTracker(CODER.decode(CODER.encode(residual)))
    self.assertEqual(given, held)

  def test_deferring_after_a_split_by_the_runner_does_nothing(self):
    tracker = ThreadsafeRestrictionTracker(WatchTracker(self.polling))
    view = RestrictionTrackerView(tracker)
    view.try_claim(WORK)
    view.try_claim(Round(outputs('a'), self.after))
    self.assertIsNotNone(tracker.try_split(0))
    view.defer_remainder(Duration(1))
    self.assertIsNone(tracker.deferred_status())


class SeenKeysTest(unittest.TestCase):
  def unseen(self, seen, keys, digest=DIGEST):
    return [keys[at] for at, _ in seen.unseen(keys, digest)]

  def test_each_key_once(self):
    seen = SeenKeys()
    self.assertEqual(['a', 'b'], self.unseen(seen, ['a', 'b', 'a']))
    self.assertEqual(['c'], self.unseen(seen, ['c', 'b', 'a', 'c']))
    self.assertEqual([], self.unseen(seen, ['c', 'a']))
    self.assertEqual([], self.unseen(seen, []))
    self.assertEqual(3, len(seen))

  def test_rebuilt_from_digests(self):
    seen = SeenKeys([DIGEST('a'), DIGEST('b')])
    self.assertEqual(['c'], self.unseen(seen, ['a', 'b', 'c']))

  def test_what_is_known_is_not_hashed_again(self):
    hashed = []

    def digest(key):
      hashed.append(key)
      return DIGEST(key)

    seen = SeenKeys()
    for keys in (['a', 'b'], ['b', 'a'], ['a', 'c', 'b']):
      seen.unseen(keys, digest)
    self.assertEqual(['a', 'b', 'c'], hashed)

  def test_equal_is_not_identical(self):
    """1, 1.0 and True are equal, have equal hashes, and are three keys."""
    coder = coders.FastPrimitivesCoder().as_deterministic_coder('test')
    digest = digester(coder)
    keys = [1, 1.0, True, '1', b'1', 0.0, -0.0, False, 0, (1, ), (True, ),
            (1.0, )]
    for order in (keys, keys[::-1], keys[5:] + keys[:5]):
      seen = SeenKeys()
      self.assertEqual(
          list(map(repr, order)),
          list(map(repr, self.unseen(seen, order, digest))))
      self.assertEqual([], self.unseen(seen, order[::-1], digest))
      for key in order:  # One a poll: all of one type.
        self.assertEqual([], self.unseen(seen, [key], digest))
    for first, second in itertools.permutations(keys, 2):
      seen = SeenKeys()
      self.assertEqual([first], self.unseen(seen, [first], digest))
      self.assertEqual([second], self.unseen(seen, [second], digest))

  def test_keys_with_one_encoding_are_one(self):
    digest = digester(CaseBlindCoder())
    seen = SeenKeys()
    self.assertEqual(['a', 'b'], self.unseen(seen, ['a', 'A', 'b'], digest))
    self.assertEqual([], self.unseen(seen, ['B', 'A', 'b'], digest))

  def test_a_subclass_may_compare_as_it_likes(self):
    class Sly(str):
      def __eq__(self, other):
        return True

      __hash__ = str.__hash__

    seen = SeenKeys()
    self.unseen(seen, ['a'])
    sly = Sly('a')
    self.assertEqual(
        [sly], self.unseen(seen, [sly], lambda key: b'another digest--'))

  @hypothesis.given(
      st.lists(
          st.lists(
              st.integers(0, 3) | st.sampled_from('abc') | st.booleans() |
              st.sampled_from([0.0, 1.0, 2.0]),
              max_size=8)))
  def test_is_what_a_set_of_encodings_is(self, polls):
    coder = coders.FastPrimitivesCoder().as_deterministic_coder('test')
    seen, model = SeenKeys(), set()
    for keys in polls:
      expected = []
      for at, key in enumerate(keys):
        if coder.encode(key) not in model:
          model.add(coder.encode(key))
          expected.append(at)
      found = seen.unseen(keys, digester(coder))
      self.assertEqual(expected, [at for at, _ in found])
      seen = seen if len(keys) % 2 else SeenKeys(
          hashlib.blake2b(each, digest_size=16).digest() for each in model)

  def test_relisting_costs_a_look_up(self):
    """2,000 of 200,000 are new: less time than hashing a tenth would take."""
    listed = ['item-%09d' % n for n in range(200000)]
    seen = SeenKeys()
    seen.unseen(listed[:-2000], DIGEST)
    begin = time.process_time()
    for key in listed[:20000]:
      DIGEST(key)
    hashing = time.process_time() - begin
    begin = time.process_time()
    self.assertEqual(2000, len(seen.unseen(listed, DIGEST)))
    self.assertLess(time.process_time() - begin, 2 * hashing)


class CaseBlindCoder(coders.Coder):
  def encode(self, value):
    return value.lower().encode()

  def is_deterministic(self):
    return True


if __name__ == '__main__':
  unittest.main()
