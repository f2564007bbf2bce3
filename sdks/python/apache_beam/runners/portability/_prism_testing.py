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

"""What tests of splittable DoFns on Prism have in common."""

from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.io.restriction_trackers import OffsetRestrictionTracker
from apache_beam.transforms.core import RestrictionProvider


class Positions(RestrictionProvider):
  """As many positions as the element says, in one piece."""
  def split(self, source, positions):
    return [positions]

  def restriction_size(self, source, positions):
    return positions.stop - positions.start

  def create_tracker(self, positions):
    return OffsetRestrictionTracker(positions)

  def initial_restriction(self, source):
    _, count = source
    return OffsetRange(0, count)
