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

"""Metrics of many bundles, added up, and the tokens of bundles."""

import itertools
import threading
import unittest
from collections import defaultdict
from unittest import mock

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

import apache_beam as beam
from apache_beam import coders
from apache_beam.metrics import monitoring_infos
from apache_beam.metrics.cells import DistributionData
from apache_beam.metrics.cells import GaugeData
from apache_beam.runners.portability import fn_api_runner
from apache_beam.runners.portability.fn_api_runner import _cache_tokens
from apache_beam.runners.portability.fn_api_runner import _stage_metrics
from apache_beam.transforms.core import DoFn
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.io.restriction_trackers import OffsetRestrictionTracker

NAMES = st.sampled_from(['a', 'b'])
TRANSFORMS = st.sampled_from([None, 's', 't'])
# So that no sum of a hundred leaves 64 bits, where the coder ends.
NUMBERS = st.integers(-2**55, 2**55)
INFOS = st.one_of(
    st.builds(
        monitoring_infos.int64_user_counter,
        st.just('n'),
        NAMES,
        NUMBERS,
        TRANSFORMS),
    st.builds(
        monitoring_infos.int64_counter,
        st.just(monitoring_infos.ELEMENT_COUNT_URN),
        NUMBERS,
        pcollection=st.sampled_from(['p', 'q'])),
    st.builds(
        monitoring_infos.int64_user_distribution,
        st.just('n'),
        NAMES,
        st.builds(
            DistributionData, NUMBERS, st.integers(0, 2**40), NUMBERS, NUMBERS),
        TRANSFORMS),
    st.builds(
        monitoring_infos.int64_user_gauge,
        st.just('n'),
        NAMES,
        st.builds(GaugeData, st.integers(0, 99), st.integers(0, 99)),
        TRANSFORMS),
    st.builds(
        monitoring_infos.user_set_string,
        st.just('n'),
        NAMES,
        st.lists(st.sampled_from(['x', 'y', 'z'])),
        TRANSFORMS))


def by_key(infos):
  keyed = defaultdict(list)
  for info in infos:
    keyed[monitoring_infos.to_key(info), info.type].append(info)
  return dict(keyed)


def consolidated(bundles):
  """What the SDK makes of it, the latest bundle first, as the runner asks.

  It leaves gauges and sets of several bundles side by side.
  """
  keyed = by_key(
      monitoring_infos.consolidate(
          itertools.chain.from_iterable(reversed(bundles))))
  for infos in keyed.values():
    if len(infos) == 1:
      continue
    if monitoring_infos.is_gauge(infos[0]):
      # max() takes the first of equals, which is the latest.
      infos[:] = [
          max(infos, key=lambda i: monitoring_infos.extract_gauge_value(i)[0])
      ]
    elif monitoring_infos.is_string_set(infos[0]):
      words = set().union(
          *map(monitoring_infos.extract_string_set_value, infos))
      infos[0].payload = coders.IterableCoder(
          coders.StrUtf8Coder()).encode(sorted(words))
      del infos[1:]
    for info in infos:
      if info.type != monitoring_infos.HISTOGRAM_TYPE:
        info.ClearField('start_time')
  return keyed


class Repeats(RestrictionProvider):
  """A range of which each bundle does one, and puts off the rest."""
  def restriction_size(self, element, restriction):
    return restriction.size()

  def create_tracker(self, restriction):
    return OffsetRestrictionTracker(restriction)

  def initial_restriction(self, element):
    return OffsetRange(0, element)


class Reports(DoFn):
  """Reports metrics of each kind in each of many bundles."""
  def process(self, element, tracker=DoFn.RestrictionParam(Repeats())):
    at = tracker.current_restriction().start
    if tracker.try_claim(at):
      beam.metrics.Metrics.counter('n', 'count').inc(at)
      beam.metrics.Metrics.distribution('n', 'spread').update(at)
      beam.metrics.Metrics.gauge('n', 'level').set(at)
      beam.metrics.Metrics.string_set('n', 'words').add(str(at % 3))
      beam.metrics.Metrics.bounded_trie('n', 'trie').add(('a', str(at % 3)))
      yield at
      tracker.defer_remainder()


class StageMetricsTest(unittest.TestCase):
  # Kinds of one name would have one key and be merged by whichever came first;
  # what the SDK reports has another URN for each kind.
  @given(st.lists(st.lists(INFOS, max_size=6), max_size=8))
  @settings(deadline=None)
  def test_gives_what_the_sdk_consolidates(self, bundles):
    metrics = _stage_metrics.StageMetrics()
    for number, bundle in enumerate(bundles):
      metrics.add(bundle)
      # Read each time, so that reading is seen to change nothing.
      self.assertEqual(
          consolidated([[info] for infos in bundles[:number + 1]
                        for info in infos]),
          by_key(metrics))
    self.assertEqual(by_key(metrics), by_key(metrics))

  def test_keeps_no_response(self):
    """What is kept is a copy: a part of a response keeps all of it."""
    info = monitoring_infos.int64_user_gauge('n', 'a', GaugeData(1, 2), 's')
    metrics = _stage_metrics.StageMetrics()
    metrics.add([info])
    kept, = metrics
    info.payload = b'changed'
    self.assertNotEqual(info, kept)

  def test_does_not_grow_with_bundles(self):
    metrics = _stage_metrics.StageMetrics()
    for number in range(100):
      metrics.add([
          monitoring_infos.int64_user_gauge(
              'n', 'a', GaugeData(number, number), 's')
      ])
    latest, = metrics
    self.assertEqual((99, 99), monitoring_infos.extract_gauge_value(latest))

  def test_a_kind_that_is_not_known_is_kept_whole(self):
    infos = [
        monitoring_infos.create_monitoring_info('u', 'some:type', b'%d' % at)
        for at in range(3)
    ]
    metrics = _stage_metrics.StageMetrics()
    for info in infos:
      metrics.add([info])
    self.assertEqual(infos[::-1], list(metrics))

  def test_runner_reports_what_the_sdk_consolidates(self):
    """Requires: of a job of many bundles the runner says of each metric what
    stock Beam says: consolidated over all responses of the stage."""
    responses = defaultdict(list)
    add_bundle = _stage_metrics.add_bundle

    def spy(by_stage, stage, infos):
      infos = list(infos)
      responses[stage].append(infos)
      add_bundle(by_stage, stage, infos)

    with mock.patch.object(_stage_metrics, 'add_bundle', spy):
      pipeline = beam.Pipeline(runner=fn_api_runner.FnApiRunner())
      # pylint: disable=expression-not-assigned
      pipeline | beam.Create([40]) | beam.ParDo(Reports())
      result = pipeline.run()
    self.assertGreater(max(map(len, responses.values())), 40)
    # A collection between two stages has counts of both. Tries are looked at
    # below: the SDK leaves them, too, side by side.
    expected = [
        info for bundles in responses.values()
        for infos in consolidated(bundles).values() for info in infos
        if not monitoring_infos.is_bounded_trie(info)
    ]
    reported = [
        info for info in result.monitoring_infos()
        if not monitoring_infos.is_bounded_trie(info)
    ]
    self.assertEqual(by_key(expected), by_key(reported))
    self.assertEqual(1, len(list(result.monitoring_infos())) - len(reported))

    query = result.metrics().query()
    counter, = query['counters']
    self.assertEqual(sum(range(40)), counter.committed)
    level, = query['gauges']
    self.assertEqual(39, level.committed.value)
    words, = query['string_sets']
    self.assertEqual({'0', '1', '2'}, words.committed)
    trie, = query['bounded_tries']
    self.assertEqual({('a', str(at), False)
                      for at in range(3)},
                     set(trie.committed.flattened()))
    spread, = query['distributions']
    self.assertEqual((40, sum(range(40)), 0, 39), (
        spread.committed.count,
        spread.committed.sum,
        spread.committed.min,
        spread.committed.max))


class CacheTokensTest(unittest.TestCase):
  def test_gives_what_the_runner_gives(self):
    theirs = fn_api_runner.FnApiRunner.get_cache_token_generator(static=False)
    self.assertEqual(
        list(itertools.islice(theirs, 3)),
        list(itertools.islice(_cache_tokens.CacheTokens(), 3)))

  def test_threads_share_one(self):
    tokens = _cache_tokens.CacheTokens()
    taken = []
    threads = [
        threading.Thread(
            target=lambda: taken.extend(itertools.islice(tokens, 500)))
        for _ in range(4)
    ]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
    self.assertEqual(2000, len({each.token for each in taken}))

  def test_runner_uses_it(self):
    made = []

    class Counted(_cache_tokens.CacheTokens):
      def __init__(self):
        super().__init__()
        made.append(self)

    with mock.patch.object(_cache_tokens, 'CacheTokens', Counted):
      with beam.Pipeline(runner=fn_api_runner.FnApiRunner()) as pipeline:
        # pylint: disable=expression-not-assigned
        pipeline | beam.Create([1])
    self.assertTrue(made)


if __name__ == '__main__':
  unittest.main()
