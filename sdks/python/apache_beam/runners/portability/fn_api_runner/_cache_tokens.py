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

"""Cache tokens for the bundles of FnApiRunner.

Purpose: the generator of FnApiRunner defines two classes each time that it is
  asked for, and the runner asks for it with each bundle.
Guarantees: gives the tokens of ``get_cache_token_generator(static=False)``.
Threads: any; no two get the same token.
"""

import itertools

from apache_beam.portability.api import beam_fn_api_pb2


class CacheTokens:
  """An iterator over cache tokens for user state; each is another one."""
  def __init__(self) -> None:
    # Takes the next number in one step, whatever thread asks.
    self._numbers = itertools.count(1)

  def __iter__(self) -> 'CacheTokens':
    return self

  def __next__(self) -> beam_fn_api_pb2.ProcessBundleRequest.CacheToken:
    token = beam_fn_api_pb2.ProcessBundleRequest.CacheToken
    return token(
        user_state=token.UserState(),
        token=b'cache_token_%d' % next(self._numbers))
