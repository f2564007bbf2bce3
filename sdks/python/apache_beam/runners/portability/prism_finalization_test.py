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

"""Finalization of bundles on Prism; it fails on the Prism of 2.75.

The test runs where ``PRISM_LOCATION`` names a binary.
"""

import unittest
from unittest import mock

import apache_beam as beam
from apache_beam.io._runner_testing import needs_prism
from apache_beam.io._runner_testing import prism_pipeline
from apache_beam.runners.portability._prism_testing import Positions
from apache_beam.runners.worker import sdk_worker
from apache_beam.utils.timestamp import Duration

# What the callbacks saw: DoFns are pickled, this is not.
COMMITTED: list[int] = []


class CommitFn(beam.DoFn):
  """One position a bundle. Position 1 is to be committed."""
  def process(
      self,
      element,
      finalizer=beam.DoFn.BundleFinalizerParam,
      tracker=beam.DoFn.RestrictionParam(Positions())):
    name, count = element
    at = tracker.current_restriction().start
    if tracker.try_claim(at):
      if at == 1:
        finalizer.register(lambda: COMMITTED.append(at))
      yield name, at
      if at + 1 < count:
        tracker.defer_remainder(Duration(0.1))


@needs_prism
class FinalizationTest(unittest.TestCase):
  def setUp(self):
    COMMITTED.clear()

  def test_only_bundles_that_ask_are_finalized(self):
    """Of four bundles, one registers a callback."""
    finalize = sdk_worker.SdkWorker.finalize_bundle
    asked = []

    def count(worker, request, instruction_id):
      asked.append(request.instruction_id)
      return finalize(worker, request, instruction_id)

    with mock.patch.object(sdk_worker.SdkWorker, 'finalize_bundle', count):
      with prism_pipeline() as p:
        _ = p | beam.Create([('source', 4)]) | beam.ParDo(CommitFn())
    self.assertEqual([1], COMMITTED)
    self.assertEqual(1, len(asked))


if __name__ == '__main__':
  unittest.main()
