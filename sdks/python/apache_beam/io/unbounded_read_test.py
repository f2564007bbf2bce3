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

"""``beam.io.Read`` and sources without an end."""

import unittest

import apache_beam as beam
from apache_beam.io._unbounded_testing import CountingSource
from apache_beam.io._unbounded_testing import Journal
from apache_beam.io.unbounded_source import ReadFromUnboundedSource
from apache_beam.pipeline import Pipeline
from apache_beam.portability import python_urns
from apache_beam.runners.portability import fn_api_runner
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to


class ReadTest(unittest.TestCase):
  def setUp(self):
    self.journal = Journal.new(self.id())
    self.source = CountingSource(self.id(), 30, parts=2)

  def test_reads(self):
    with beam.Pipeline(runner=fn_api_runner.FnApiRunner()) as p:
      assert_that(
          p | beam.io.Read(self.source), equal_to(list(range(30))))
    self.assertEqual(2, self.journal.opened)

  def test_is_unbounded_and_typed(self):
    read = beam.Pipeline() | beam.io.Read(self.source)
    self.assertFalse(read.is_bounded)
    self.assertEqual(int, read.element_type)

  def test_reaches_the_runner_as_a_composite(self):
    """No runner has a primitive for it, so none must be asked for one."""
    pipeline = beam.Pipeline()
    _ = pipeline | 'Orders' >> beam.io.Read(self.source)
    proto = pipeline.to_runner_api()
    read, = [
        t for t in proto.components.transforms.values()
        if t.unique_name == 'Orders'
    ]
    self.assertEqual(python_urns.GENERIC_COMPOSITE_TRANSFORM, read.spec.urn)
    self.assertTrue(read.subtransforms)
    Pipeline.from_runner_api(
        proto, runner='FnApiRunner', options=pipeline.options)

  def test_is_read_by_the_transform_with_its_default_arguments(self):
    read = beam.Pipeline() | beam.io.Read(self.source)
    transform = read.producer.parent.transform
    self.assertIsInstance(transform, ReadFromUnboundedSource)
    default = ReadFromUnboundedSource(self.source)
    self.assertEqual(default._caps, transform._caps)

  def test_bounded_sources_and_transforms_go_where_they_went(self):
    with beam.Pipeline(runner=fn_api_runner.FnApiRunner()) as p:
      assert_that(p | beam.io.Read(beam.Create([1, 2])), equal_to([1, 2]))


if __name__ == '__main__':
  unittest.main()
