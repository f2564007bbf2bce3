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


"""Which keys a watch has seen, as its process remembers them.

Purpose: a poll lists the same outputs over and over; to tell that one was seen
  must cost no more than a look-up in a set.
Guarantees: a key is known by the digest of its encoding, and by nothing else.
  The look-up by value is a short cut for types of which equal values are the
  same value. ``1``, ``1.0`` and ``True`` are equal and not the same, so that
  each type has a set of its own, and floats (``0.0 == -0.0``) and containers
  have none.
Threads: owned by one bundle at a time.

Rebuilt from the packed digests when a process does not have it.
"""

import hashlib
from typing import Any
from typing import Callable
from typing import Iterable

from apache_beam import coders
from apache_beam.io._watch_errors import PollError
from apache_beam.io._watch_errors import short
from apache_beam.io._watch_restriction import DIGEST_BYTES

# Types whose equal values have one encoding. Never a subclass: that may compare
# as it likes.
_PLAIN_TYPES = (str, bytes, int, bool)
_BLOCK = 1024


def digester(coder: coders.Coder) -> Callable[[Any], bytes]:
  """The function from a key to its digest.

  The digest is persisted: another hash would take every output for new.

  Raises:
    PollError: by the function, if the coder does not take the key.
  """
  encode = coder.encode
  blake2b = hashlib.blake2b

  def digest(key: Any) -> bytes:
    try:
      encoded = encode(key)
    except Exception as exc:
      raise PollError(
          f'the key {short(key)} cannot be encoded by {coder!r}: {exc!r}. Give '
          'Watch an output_key_fn that takes from an output what identifies '
          'it, a str for example; or an output_key_coder') from exc
    return blake2b(encoded, digest_size=DIGEST_BYTES).digest()

  return digest


class SeenKeys:
  """Keys that were seen.

  Args:
    digests: of those that are known already.
  """
  def __init__(self, digests: Iterable[bytes] = ()) -> None:
    self._digests = set(digests)
    self._values: dict[type, set] = {plain: set() for plain in _PLAIN_TYPES}

  def __len__(self) -> int:
    return len(self._digests)

  @property
  def weight(self) -> int:
    """How many keys there are in memory."""
    return len(self)

  def unseen(
      self, keys: list, digest: Callable[[Any],
                                         bytes]) -> list[tuple[int, bytes]]:
    """The index and the digest of each key that was not seen before.

    They count as seen from now on; of one that is there twice, the first is
    given.
    """
    unknown = self._unknown(keys)
    hashed = [digest(keys[index]) for index in unknown]
    digests = self._digests
    found = []
    for index, each in zip(unknown, hashed):
      if each not in digests:
        digests.add(each)
        found.append((index, each))
    self._remember(hashed, [keys[index] for index in unknown])
    return found

  def _unknown(self, keys: list) -> list[int]:
    """The indices of those that are not known by value."""
    values = self._values
    types = set(map(type, keys))
    if len(types) != 1 or not types <= values.keys():
      return [
          index for index, key in enumerate(keys)
          if type(key) not in values or key not in values[type(key)]
      ]
    known = values[types.pop()]
    unknown = []
    # What is new comes in runs. To ask for a block is several times faster than
    # to ask for each key.
    for begin in range(0, len(keys), _BLOCK):
      block = keys[begin:begin + _BLOCK]
      if not known.issuperset(block):
        unknown += [
            index for index, key in enumerate(block, begin) if key not in known
        ]
    return unknown

  def _remember(self, hashed: list[bytes], keys: list) -> None:
    """Makes keys known by value, with their digests beside them."""
    types = set(map(type, keys))
    if len(types) == 1:
      known = self._values.get(types.pop())
      if known is not None:
        known.update(keys)
      return
    for key in keys:
      known = self._values.get(type(key))
      if known is not None:
        known.add(key)
