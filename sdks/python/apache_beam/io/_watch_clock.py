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


"""Tells a DoFn whether the runner keeps a time of its own."""

from apache_beam.pipeline import PipelineVisitor
from apache_beam.transforms.core import ParDo


class ClockAwareParDo(ParDo):
  """Sets ``foreign_clock`` of its DoFn: whether a TestStream makes the time."""
  def __init__(self, fn, pipeline, *args, **kwargs) -> None:
    super().__init__(fn, *args, **kwargs)
    self._pipeline = pipeline

  def to_runner_api_parameter(self, context, **extra_kwargs):
    # Not before now is it known which transforms the pipeline has.
    self.fn.foreign_clock = _has_test_stream(self._pipeline)
    return super().to_runner_api_parameter(context, **extra_kwargs)


def _has_test_stream(pipeline) -> bool:
  from apache_beam.testing.test_stream import TestStream
  found = []

  class Visitor(PipelineVisitor):
    def visit_transform(self, applied):
      if isinstance(applied.transform, TestStream):
        found.append(applied)

  pipeline.visit(Visitor())
  return bool(found)
