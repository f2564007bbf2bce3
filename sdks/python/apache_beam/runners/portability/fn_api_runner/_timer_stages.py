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

"""Gives each DoFn with event-time timers a stage that makes them right.

FnApiRunner knows the watermark before a stage, and none within it. A stage that
begins with a splittable DoFn has all of its input as soon as that was
impulsed; so a timer in this stage fires at once, whatever its time is, while
most of the source is still to be read. It is the same behind the timers of
another DoFn. And a stage with two DoFns that have timers counts as done when
those of one have fired; what the other's give is late for what follows.

In a stage of its own a DoFn gets all that comes before it, and then its timers
fire.
"""

# mypy: disallow-untyped-defs

from collections.abc import Iterable

from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.utils import proto_utils

_SOURCE = (
    common_urns.sdf_components.PROCESS_SIZED_ELEMENTS_AND_RESTRICTIONS.urn)


def must_stay_apart(
    producing: Iterable[beam_runner_api_pb2.PTransform],
    consuming: Iterable[beam_runner_api_pb2.PTransform]) -> bool:
  """Whether the transforms of two stages must not become one stage."""
  return any(_has_event_timers(transform) for transform in consuming) and any(
      transform.spec.urn == _SOURCE or _has_event_timers(transform)
      for transform in producing)


def _has_event_timers(transform: beam_runner_api_pb2.PTransform) -> bool:
  if transform.spec.urn != common_urns.primitives.PAR_DO.urn:
    return False
  payload = proto_utils.parse_Bytes(
      transform.spec.payload, beam_runner_api_pb2.ParDoPayload)
  return any(
      family.time_domain == beam_runner_api_pb2.TimeDomain.EVENT_TIME
      for family in payload.timer_family_specs.values())
