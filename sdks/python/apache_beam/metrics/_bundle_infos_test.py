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

"""Metrics of a bundle on their way into the worker's response."""

import threading
import unittest
from datetime import datetime
from datetime import timezone
from unittest import mock

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.metrics import _bundle_infos
from apache_beam.metrics import monitoring_infos
from apache_beam.metrics.cells import DistributionData
from apache_beam.metrics.cells import GaugeData
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.portability.api import metrics_pb2
from apache_beam.runners.portability import fn_api_runner
from apache_beam.runners.worker import sdk_worker

IDS = st.sampled_from(['', 'a', 'b', 'ü', 'x' * 200])
LABELS = st.none() | IDS
URNS = st.sampled_from(
    [monitoring_infos.ELEMENT_COUNT_URN, monitoring_infos.TOTAL_MSECS_URN])
NUMBERS = st.integers(-3, 300) | st.integers(-2**62, 2**62)


def maker(make, *arguments):
  """A call that makes a MonitoringInfo, to be made more than once."""
  return st.builds(
      lambda *values: (lambda: make(*values)),
      *(arguments))


MAKERS = st.one_of(
    maker(
        lambda urn, number, step, pcollection: monitoring_infos.int64_counter(
            urn, number, ptransform=step, pcollection=pcollection),
        URNS,
        NUMBERS,
        LABELS,
        LABELS),
    maker(
        lambda urn, number, labels: monitoring_infos.int64_counter(
            urn, number, labels=dict(labels)),
        URNS,
        NUMBERS,
        st.dictionaries(IDS, IDS, max_size=3)),
    maker(monitoring_infos.int64_counter, URNS, st.binary(max_size=300)),
    maker(
        monitoring_infos.int64_distribution,
        URNS,
        st.builds(DistributionData, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
        LABELS,
        LABELS),
    maker(monitoring_infos.int64_user_counter, IDS, IDS, NUMBERS, LABELS),
    maker(
        monitoring_infos.int64_user_distribution,
        IDS,
        IDS,
        st.builds(DistributionData, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
        LABELS),
    maker(
        monitoring_infos.int64_user_gauge,
        IDS,
        IDS,
        st.builds(GaugeData, NUMBERS, st.integers(0, 2**31)),
        LABELS),
    maker(
        monitoring_infos.user_set_string,
        IDS,
        IDS,
        st.lists(IDS, max_size=5) | st.just(['y' * 2000]),
        LABELS),
    # As a splittable DoFn reports its progress: without the SDK's functions.
    maker(
        lambda step, payload: metrics_pb2.MonitoringInfo(
            urn=monitoring_infos.WORK_REMAINING_URN,
            type=monitoring_infos.PROGRESS_TYPE,
            labels=monitoring_infos.create_labels(ptransform=step),
            payload=payload),
        LABELS,
        st.binary()))


class Processor:
  """Reports like a bundle processor: one metric of each key, the last."""
  def __init__(self, makers, start_time=None):
    self._makers = makers
    self._start_time = start_time

  def monitoring_infos(self):
    keyed = {}
    for number, make in enumerate(self._makers):
      info = make()
      if self._start_time is not None and number % 2:
        info.start_time.FromDatetime(self._start_time)
      keyed[monitoring_infos.to_key(info)] = info
    return list(keyed.values())


def response_without(processor, short_ids):
  """The response as the SDK makes it from messages."""
  infos = processor.monitoring_infos()
  return beam_fn_api_pb2.ProcessBundleResponse(
      requires_finalization=True,
      monitoring_infos=infos,
      monitoring_data={
          short_ids.get_short_id(info): info.payload
          for info in infos
      })


def response_with(processor, short_ids):
  return _bundle_infos.response_of(beam_fn_api_pb2.ProcessBundleResponse)(
      requires_finalization=True,
      monitoring_infos=_bundle_infos.collect(processor),
      short_ids=short_ids)


class Counts(beam.DoFn):
  """Reports metrics of all kinds."""
  def process(self, element):
    Metrics.counter('kinds', 'counter').inc(element)
    Metrics.counter('kinds', 'counter-%d' % (element % 5)).inc()
    Metrics.distribution('kinds', 'distribution').update(element)
    Metrics.gauge('kinds', 'gauge').set(element)
    Metrics.string_set('kinds', 'words').add('word-%d' % element)
    Metrics.bounded_trie('kinds', 'trie').add(('a', str(element)))
    yield element


class BundleInfosTest(unittest.TestCase):
  @given(
      st.lists(st.lists(MAKERS, max_size=8), max_size=4),
      st.none() | st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)))
  @settings(deadline=None, max_examples=200)
  def test_response_is_the_one_of_messages(self, bundles, start_time):
    if start_time is not None:
      start_time = start_time.replace(tzinfo=timezone.utc)
    short_ids, theirs = sdk_worker.ShortIdCache(), sdk_worker.ShortIdCache()
    for makers in bundles:
      processor = Processor(makers, start_time)
      expected = response_without(processor, theirs)
      self.assertEqual(expected, response_with(processor, short_ids))
      # Again: what was remembered gives the same.
      self.assertEqual(expected, response_with(processor, short_ids))
      ids = list(expected.monitoring_data)
      self.assertEqual(theirs.get_infos(ids), short_ids.get_infos(ids))

  def test_progress_report_too(self):
    short_ids = sdk_worker.ShortIdCache()
    processor = Processor([lambda: monitoring_infos.int64_counter('u', 7)])
    report = _bundle_infos.response_of(
        beam_fn_api_pb2.ProcessBundleProgressResponse)(
            monitoring_infos=_bundle_infos.collect(processor),
            short_ids=short_ids,
            consuming_received_data=True)
    self.assertTrue(report.consuming_received_data)
    self.assertEqual(processor.monitoring_infos(), list(
        report.monitoring_infos))
    self.assertEqual({'1': b'\x07'}, dict(report.monitoring_data))

  def test_short_ids_are_those_of_the_worker_that_asks(self):
    processor = Processor([lambda: monitoring_infos.int64_counter('u', 7)])
    one, other = sdk_worker.ShortIdCache(), sdk_worker.ShortIdCache()
    response_with(Processor([lambda: monitoring_infos.int64_counter('v', 7)]),
                  other)
    for short_ids, expected in ((one, '1'), (other, '2'), (one, '1')):
      self.assertEqual(
          {expected}, set(response_with(processor, short_ids).monitoring_data))

  def test_bad_arguments_fail_as_ever(self):
    for make in (lambda: monitoring_infos.create_monitoring_info(
        'urn', 'type', 'not bytes'),
                 lambda: monitoring_infos.create_monitoring_info(
                     'urn', 'type', b'', {'label': 1}),
                 lambda: monitoring_infos.create_monitoring_info(
                     'urn', 'type', b'', {'label': []})):
      with self.assertRaises(RuntimeError) as outside:
        make()
      with self.assertRaises(RuntimeError) as inside:
        _bundle_infos.collect(Processor([make]))
      self.assertEqual(str(outside.exception), str(inside.exception))

  def test_other_threads_get_messages_meanwhile(self):
    """In FnApiRunner the runner itself makes infos in the worker's process."""
    collecting, made = threading.Event(), threading.Event()
    infos = []

    class Slow:
      def monitoring_infos(self):
        collecting.set()
        assert made.wait(10)
        return [monitoring_infos.int64_counter('u', 1)]

    def make():
      assert collecting.wait(10)
      infos.append(monitoring_infos.int64_counter('u', 1))
      one = DistributionData(1, 1, 1, 1)
      infos.append(monitoring_infos.int64_distribution('u', one))
      infos.append(monitoring_infos.create_monitoring_info('u', 't', b''))
      made.set()

    thread = threading.Thread(target=make)
    thread.start()
    try:
      collected, = _bundle_infos.collect(Slow())
    finally:
      thread.join(10)
    self.assertIs(_bundle_infos.Info, type(collected))
    self.assertEqual([metrics_pb2.MonitoringInfo] * 3, list(map(type, infos)))

  def test_a_failed_collection_ends(self):
    class Fails:
      def monitoring_infos(self):
        raise IOError('no metrics')

    with self.assertRaises(IOError):
      _bundle_infos.collect(Fails())
    self.assertIs(
        metrics_pb2.MonitoringInfo,
        type(monitoring_infos.int64_counter('u', 1)))

  def test_what_is_remembered_is_bounded(self):
    short_ids, theirs = sdk_worker.ShortIdCache(), sdk_worker.ShortIdCache()
    with mock.patch.object(_bundle_infos, 'MAX_KINDS', 10):
      for number in list(range(50)) + [0]:
        processor = Processor([
            lambda: monitoring_infos.int64_counter('u%d' % number, 1),
            lambda: monitoring_infos.int64_user_counter(
                'n', 'name%d' % number, 1)
        ])
        self.assertEqual(
            response_without(processor, theirs),
            response_with(processor, short_ids))
        self.assertLessEqual(len(_bundle_infos._kinds), 10)

  def test_large_payloads_are_not_remembered(self):
    words = ['w' * 100] * 100
    response_with(
        Processor([lambda: monitoring_infos.user_set_string('n', 's', words)]),
        sdk_worker.ShortIdCache())
    self.assertLess(
        max(len(kind.written[1]) for kind in _bundle_infos._kinds.values()),
        _bundle_infos.MAX_KEPT_BYTES + 1)

  def test_worker_reports_what_it_reported(self):
    """Requires: each response of a real worker, over many bundles, says what
    it says when it is made of messages."""
    reports = []
    process_bundle = sdk_worker.SdkWorker.process_bundle
    collect = _bundle_infos.collect

    def spy_collect(processor):
      collected = collect(processor)
      reports.append((collected, processor.monitoring_infos()))
      return collected

    def spy_process(self, request, instruction_id):
      response = process_bundle(self, request, instruction_id)
      reports[-1] += (response.process_bundle, )
      return response

    with mock.patch.object(_bundle_infos, 'collect', spy_collect):
      with mock.patch.object(sdk_worker.SdkWorker, 'process_bundle',
                             spy_process):
        # Each bundle is run three times.
        pipeline = beam.Pipeline(
            runner=fn_api_runner.FnApiRunner(bundle_repeat=2))
        # pylint: disable=expression-not-assigned
        (
            pipeline
            | beam.Create(range(20))
            | beam.Reshuffle()
            | beam.ParDo(Counts())
            | beam.GroupBy(lambda number: number % 3)
            | beam.combiners.Count.Globally())
        pipeline.run()
    self.assertGreater(len(reports), 8)
    seen = set()
    for collected, expected, response in reports:
      by_id = {
          sdk_worker.SHORT_ID_CACHE.get_short_id(info): info
          for info in expected
      }
      self.assertEqual(set(by_id), set(response.monitoring_data))
      for info, told in zip(expected, response.monitoring_infos):
        short_id = sdk_worker.SHORT_ID_CACHE.get_short_id(info)
        self.assertEqual(told.payload, response.monitoring_data[short_id])
        if 'msecs' in info.urn:
          # A sample of the time may have come between.
          info.payload = told.payload
      self.assertEqual(expected, list(response.monitoring_infos))
      self.assertEqual({_bundle_infos.Info}, set(map(type, collected)))
      seen.update(info.urn for info in expected)
    self.assertLess(monitoring_infos.USER_METRIC_URNS - {
        monitoring_infos.USER_HISTOGRAM_URN}, seen)

  def test_a_metric_is_looked_up_once(self):
    """Requires: what does not change from bundle to bundle is not asked for in
    each. Without the hooks it was about 25 times a bundle."""
    asked = []
    get_short_id = sdk_worker.ShortIdCache.get_short_id

    def spy(self, info):
      asked.append(monitoring_infos.to_key(info))
      return get_short_id(self, info)

    with mock.patch.object(sdk_worker.ShortIdCache, 'get_short_id', spy):
      with beam.Pipeline(
          runner=fn_api_runner.FnApiRunner(bundle_repeat=9)) as pipeline:
        # pylint: disable=expression-not-assigned
        pipeline | beam.Create([1]) | beam.ParDo(Counts())
    self.assertTrue(asked)
    self.assertEqual(len(set(asked)), len(asked))


if __name__ == '__main__':
  unittest.main()
