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

"""A job may take longer than an answer of its server; this needs Prism.

The test runs where ``PRISM_LOCATION`` names a binary.
"""

import time
import unittest

import apache_beam as beam
from apache_beam.io._runner_testing import needs_prism
from apache_beam.io._runner_testing import prism_options
from apache_beam.options.pipeline_options import PortableOptions
from apache_beam.runners.runner import PipelineState


@needs_prism
class JobStreamsTest(unittest.TestCase):
  def test_a_job_longer_than_the_timeout_of_its_server(self):
    options = prism_options()
    options.view_as(PortableOptions).job_server_timeout = 4
    p = beam.Pipeline(options=options)
    _ = p | beam.Create([8]) | beam.Map(time.sleep)
    self.assertEqual(PipelineState.DONE, p.run().wait_until_finish())


if __name__ == '__main__':
  unittest.main()
