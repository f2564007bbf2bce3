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

"""Lets FnApiRunner undo what a repeated bundle did to OrderedListState.

The runner's state has an entry for each time in a list, and beside it an index:
which times a list has. With `bundle_repeat` it runs each bundle several times
and undoes all but the last. It undid the entries; the index stayed as the
bundle had left it, so what a bundle had cleared was not found by its repeats.
"""

# mypy: disallow-untyped-defs

from collections.abc import Mapping

from sortedcontainers import SortedSet


class TimesInBundle(dict[bytes, SortedSet]):
  """An index whose changes leave the one it is made from as it was.

  The times of a list are copied when a bundle first asks for them. Only a
  bundle that is going to be undone pays for that.

  Args:
    before: the times of each list, by state key.
  """
  def __init__(self, before: Mapping[bytes, SortedSet]):
    super().__init__()
    self.before = before

  def __missing__(self, state_key: bytes) -> SortedSet:
    times = self[state_key] = SortedSet(self.before.get(state_key, ()))
    return times
