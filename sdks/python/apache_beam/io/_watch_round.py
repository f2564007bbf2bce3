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


"""From what a poll lists to what a bundle outputs.

Purpose: :func:`sift` finds what is new in a poll, :func:`cut` takes of it what
  fits into a round and says where the watch then stands. Neither reads a clock
  or talks to a runner.
Guarantees:
  * Each key is encoded and hashed once, when it is new to this process.
  * The watermark never passes what is still to come from this poll: the rest
    beyond the round, and what has not settled.
  * What waits for the next round is in memory only, and not yet in the
    restriction: where that memory is lost, it is polled and found once more.
"""

import dataclasses
import logging
import math
from typing import Any
from typing import Callable
from typing import NamedTuple
from typing import Optional

from apache_beam import coders
from apache_beam.io import _watch_cursor
from apache_beam.io._watch_conditions import TerminationCondition
from apache_beam.io._watch_cursor import CLOCK_SKEW
from apache_beam.io._watch_cursor import RecentKeys
from apache_beam.io._watch_errors import PollError
from apache_beam.io._watch_errors import short
from apache_beam.io._watch_memory import Memory
from apache_beam.io._watch_poll import PollResult
from apache_beam.io._watch_restriction import Packed
from apache_beam.io._watch_restriction import Polling
from apache_beam.io._watch_seen import SeenKeys
from apache_beam.io._watch_seen import digester
from apache_beam.io._watch_tracker import Round
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.timestamp import Timestamp

_LOGGER = logging.getLogger(__name__)

# The state that travels with each poll has then 8 MB.
MANY_KEYS = 500000

@dataclasses.dataclass(frozen=True)
class Rules:
  """What a watch was told about its outputs; times in microseconds.

  Attributes:
    key_fn: from an output to its key; None: it is its own.
    key_coder: deterministic.
    lateness: how far an output may be behind the cursor; None: no cursor.
    start: only what is newer is output.
    settle: how old an output must be.
    max_outputs: how many outputs a round may have.
  """
  key_fn: Optional[Callable[[Any], Any]]
  key_coder: coders.Coder
  condition: TerminationCondition
  lateness: Optional[int] = None
  start: Optional[int] = None
  settle: int = 0
  max_outputs: int = 10000

  @property
  def by_time(self) -> bool:
    return self.lateness is not None


class New(NamedTuple):
  """An output that was never seen, with the digest of its key."""
  output: TimestampedValue
  digest: bytes
  micros: int


@dataclasses.dataclass
class Found:
  """What a poll found, as far as it was not output yet.

  Attributes:
    new: the new outputs; the oldest first, if they do not fit into a round.
    watermark: where it may go once all of them are output, in microseconds;
      None: it stays.
    complete: whether there is nothing to poll for any more.
    any: whether the poll found something new at all.
    delay: seconds to the next poll; None: as usual.
    seen: how many outputs had been seen before.
    dropped: how many were too far behind the cursor, counted here first.
  """
  new: list[New]
  watermark: Optional[int]
  complete: bool
  any: bool
  delay: Optional[float]
  seen: int = 0
  dropped: int = 0


def sift(
    rules: Rules,
    seen: SeenKeys,
    restriction: Polling,
    result: PollResult,
    now: Timestamp) -> Found:
  """Finds what is new.

  Args:
    seen: what was seen; takes in what is new.
    now: when the poll began.
  """
  outputs = result.outputs
  held = None
  dropped = 0
  if rules.settle or rules.start is not None:
    outputs, held = _settled(rules, result, now)
  listed = len(outputs)
  if rules.by_time:
    floor = _watch_cursor.floor_of(restriction.cursor, rules.lateness)
    outputs, dropped = seen.split(outputs, floor, rules.key_fn)
  keys = [output.value for output in outputs]
  if rules.key_fn is not None:
    keys = list(map(rules.key_fn, keys))
  new = []
  for at, digest in seen.unseen(keys, digester(rules.key_coder)):
    output = outputs[at]
    new.append(New(output, digest, output.timestamp.micros))
  times = [each.micros for each in new]
  if times:
    _check_times(new, times)
  if len(new) > rules.max_outputs:
    new.sort(key=lambda each: each.micros)
  return Found(
      new,
      _watermark(result, min(times, default=None), held, now),
      result.is_complete,
      bool(new),
      result.next_poll_delay,
      listed - len(new) - dropped,
      dropped)


def _settled(
    rules: Rules, result: PollResult,
    now: Timestamp) -> tuple[list[TimestampedValue], Optional[int]]:
  """What is new and old enough, and the earliest time that is not old enough.
  """
  start = MIN_TIMESTAMP.micros - 1 if rules.start is None else rules.start
  until = math.inf
  # Where nothing follows, nothing is gained by waiting.
  if rules.settle and not result.is_complete:
    until = now.micros - rules.settle
  times = [output.timestamp.micros for output in result.outputs]
  held = min((time for time in times if time > until), default=None)
  settled = [
      output for output, time in zip(result.outputs, times)
      if start < time <= until
  ]
  return settled, held


def _check_times(new: list[New], times: list[int]) -> None:
  for extreme in (min(times), max(times)):
    if not MIN_TIMESTAMP.micros <= extreme <= MAX_TIMESTAMP.micros:
      output = new[times.index(extreme)].output
      raise PollError(
          f'the event time of {short(output.value)} is {extreme} '
          'microseconds, which is outside of what Beam can represent')


def _watermark(
    result: PollResult,
    earliest: Optional[int],
    held: Optional[int],
    now: Timestamp) -> Optional[int]:
  if result.watermark is not None:
    watermark = result.watermark.micros
  elif earliest is not None and earliest <= now.micros + CLOCK_SKEW:
    watermark = earliest
  else:
    # A time that is wrong by years would make all that follows late.
    return None
  return watermark if held is None else min(watermark, held)


def cut(
    rules: Rules,
    memory: Memory,
    restriction: Polling,
    found: Found,
    now: Timestamp) -> Round:
  """Takes the next round from what was found; leaves the rest in memory."""
  part = found.new[:rules.max_outputs]
  rest = found.new[rules.max_outputs:]
  watermark = restriction.watermark
  target = found.watermark
  if rest and target is not None:
    target = min(target, rest[0].micros)
  # What is at the end of time ends nothing, unless the poll says so.
  if target is not None and watermark.micros < target < MAX_TIMESTAMP.micros:
    watermark = Timestamp(micros=target)
  changes: dict[str, Any] = {'watermark': watermark, 'size': len(rest)}
  changes.update(_keys_after(rules, memory, restriction, part, now))
  if rest:
    memory.waiting = dataclasses.replace(
        found, new=rest, seen=0, dropped=0)
  else:
    memory.waiting = None
    coder = rules.condition.state_coder()
    state = coder.decode(restriction.condition)
    if found.any:
      state = rules.condition.on_seen_new_output(now, state)
    state = rules.condition.on_poll_complete(state)
    changes['condition'] = coder.encode(state)
    changes['polls'] = restriction.polls + 1
    if found.complete or rules.condition.can_stop_polling(now, state):
      changes.update(finished=True, watermark=MAX_TIMESTAMP)
  return Round(
      tuple(each.output for each in part),
      dataclasses.replace(restriction, **changes))


def _keys_after(
    rules: Rules,
    memory: Memory,
    restriction: Polling,
    part: list[New],
    now: Timestamp) -> dict[str, Any]:
  if not rules.by_time:
    keys = restriction.keys.plus(b''.join(each.digest for each in part))
    before, after = restriction.key_count, restriction.key_count + len(part)
    if before < MANY_KEYS <= after:
      _LOGGER.warning(
          'A Watch keeps %d keys by now, and %d bytes travel with each of its '
          'polls. timestamp_cursor=True lets keys expire by event time.',
          after,
          keys.size)
    return {'keys': keys}
  recent: RecentKeys = memory.keys
  recent.keep([_watch_cursor.entry(each.micros, each.digest) for each in part])
  cursor = recent.cursor(restriction.cursor, now.micros)
  floor = _watch_cursor.floor_of(cursor, rules.lateness)
  if floor is not None:
    recent.expire(floor)
  return {'keys': Packed(recent.packed()), 'cursor': cursor}
