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

"""The marks of one run, and what has to hold for them."""

import dataclasses
import functools
import threading
from typing import Any
from typing import Optional

from apache_beam import coders
from apache_beam.io.unbounded_source import CheckpointMark
from apache_beam.io.unbounded_source import UnboundedReader
from apache_beam.testing._unbounded_properties import listed
from apache_beam.testing._unbounded_world import wait_until
from apache_beam.utils.timestamp import Timestamp


@dataclasses.dataclass
class Cut:
  """A mark, and what the model knows about it.

  Attributes:
    reader: the one that cut it.
    covers: all records up to it, whichever reader gave them.
    own: those of them that its reader gave.
    watermark: what was reported before anything behind it was read.
    committed: whether the runner committed so far.
    finalized: whether the mark was finalized.
    decoded_finalized: whether another one, made of its bytes, was.
  """
  mark: CheckpointMark
  encoded: bytes
  reader: UnboundedReader
  covers: list[Any]
  own: list[Any]
  watermark: Timestamp
  committed: bool = False
  finalized: bool = False
  decoded_finalized: bool = False


class Marks:
  """Cuts, commits and finalizes marks as a runner does, and worse.

  Args:
    run: whose marks they are.

  Attributes:
    cuts: the marks that were cut and not lost by a crash, in order.
    committed: where reading resumes.
  """
  def __init__(self, run) -> None:
    self._run = run
    self._task = run.task
    self.cuts: list[Cut] = []
    self.committed: Optional[Cut] = None
    self.coder: coders.Coder = run.ask(
        'mark-coder', run.source.get_checkpoint_mark_coder)

  @property
  def newest(self) -> Optional[Cut]:
    """The last mark of the reader that is open."""
    if self.cuts and self.cuts[-1].reader is self._run.reader:
      return self.cuts[-1]
    return None

  def decode_committed(self) -> Optional[CheckpointMark]:
    """What another reader is opened with."""
    if self.committed is None:
      return None
    encoded = self.committed.encoded
    return self._run.ask(
        'mark-coder', lambda: self.coder.decode(encoded), 'decode')

  def cut(
      self, records: list[Any], own: list[Any], watermark: Timestamp) -> None:
    """The reader's mark.

    Args:
      records: what was read since the mark before.
      own: all that the reader gave.
    """
    run = self._run
    mark = run.ask('frozen-marks', run.reader.get_checkpoint_mark)
    self._task.marks += 1
    self._task.name(CheckpointMark, mark)
    for number, cut in enumerate(self.cuts, 1):
      if mark is cut.mark:
        run.broken(
            'frozen-marks',
            f'Mark {number} was returned again, as the same object.')
    encoded = self._encode(mark)
    before = self.newest or self.committed
    # A queue may give another reader the same records, and so the same mark.
    comparable = before is self.newest or self._task.replays
    if before is not None and encoded == before.encoded and comparable:
      run.broken(
          'moving-marks',
          f'The mark after {listed(records)} encodes as the one before: '
          f'{encoded.hex() or "no bytes"}. A restart would repeat them.')
    covers = (before.covers if before else []) + records
    self.cuts.append(
        Cut(mark, encoded, run.reader, covers, list(own), watermark))

  def _encode(self, mark: Any) -> bytes:
    run = self._run

    def encode(this) -> bytes:
      return run.ask('mark-coder', lambda: self.coder.encode(this), 'encode')

    encoded = encode(mark)
    if not isinstance(encoded, bytes):
      run.broken('mark-coder', f'encode() returned {encoded!r}, not bytes.')
    again = encode(mark)
    if again != encoded:
      run.broken(
          'mark-coder',
          f'One mark was encoded as {encoded.hex()}, then as {again.hex()}.')
    decoded = run.ask(
        'mark-coder', lambda: self.coder.decode(encoded), 'decode')
    again = encode(decoded)
    if again != encoded:
      run.broken(
          'mark-coder',
          f'{encoded.hex()}, decoded and encoded again, is {again.hex()}.')
    return encoded

  def commit(self) -> None:
    """The runner commits up to the newest mark."""
    if self.newest is not None:
      self.committed = self.newest
      for cut in self.cuts:
        cut.committed = True

  def lose_uncommitted(self) -> None:
    self.cuts = [cut for cut in self.cuts if cut.committed]

  def finalize(self, step: str) -> None:
    """One of the ways in which a runner may finalize a committed mark."""
    if self.committed is None:
      return
    if step == 'finalize' and self.committed.finalized:
      return
    cut = self.cuts[0] if step == 'finalize-first' else self.committed
    self._task.finalized += 1
    if step == 'finalize-decoded':
      cut.decoded_finalized = True
      mark = self._run.ask(
          'mark-coder', lambda: self.coder.decode(cut.encoded), 'decode')
      self._run.ask('finalization', mark.finalize_checkpoint)
      return
    cut.finalized = True
    if step == 'finalize-elsewhere':
      self._on_threads(cut.mark, 1)
    elif step == 'finalize-twice-at-once':
      self._on_threads(cut.mark, 2)
    else:
      self._run.ask('finalization', cut.mark.finalize_checkpoint)

  def _on_threads(self, mark: CheckpointMark, count: int) -> None:
    errors: list[BaseException] = []
    together = threading.Barrier(count)

    def finalize():
      try:
        together.wait()
        mark.finalize_checkpoint()
      except BaseException as exc:  # pylint: disable=broad-except
        errors.append(exc)

    threads = [threading.Thread(target=finalize) for _ in range(count)]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
    if errors:
      self._run.broken(
          'finalization',
          f'finalize_checkpoint() on another thread raised {errors[0]!r}.',
          errors[0])

  def look_after(self, step: str) -> None:
    """What has to hold after any step."""
    run = self._run
    for number, cut in enumerate(self.cuts, 1):
      if cut.finalized or cut.reader is not run.reader:
        continue
      encoded = run.ask(
          'frozen-marks', functools.partial(self.coder.encode, cut.mark),
          'encode')
      if encoded != cut.encoded:
        run.broken(
            'frozen-marks',
            f'Mark {number} was {cut.encoded.hex()} when it was cut, and is '
            f'{encoded.hex()} after {step}.')
    if self._task.acked is not None:
      self._look_at_acks(step)

  def _look_at_acks(self, step: str) -> None:
    run = self._run
    finalized = [cut for cut in self.cuts if cut.finalized]
    allowed = max((
        cut.covers
        for cut in self.cuts if cut.finalized or cut.decoded_finalized),
                  key=len,
                  default=[])
    acked = run.world.acked()
    for record in acked:
      if record not in allowed:
        run.broken(
            'finalization',
            f'{record!r} was acknowledged, when no mark that covers it was '
            'finalized.')
      if run.lives == 1 and acked.count(record) > allowed.count(record):
        run.broken('finalization', f'{record!r} was acknowledged twice.')
    if not step.startswith('finalize'):
      return
    # Of a mark whose reader is closed, nothing is asked.
    due = [
        record for cut in finalized if cut.reader is run.reader
        for record in cut.own
    ]

    def missing():
      acked = run.world.acked()
      return [record for record in due if record not in acked]

    if not wait_until(lambda: not missing(), self._task.patience_seconds):
      run.broken(
          'finalization',
          f'{listed(missing())} is covered by a mark that was finalized, and '
          'was not acknowledged within '
          f'{self._task.patience_seconds:g} s.')
