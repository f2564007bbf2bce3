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

"""What an AckLedger acknowledges, and when."""

import copy
import gc
import pickle
import threading
import unittest
import weakref

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import invariant
from hypothesis.stateful import precondition
from hypothesis.stateful import rule
from hypothesis.stateful import run_state_machine_as_test

from apache_beam.io._unbounded_ledger import AckLedger
from apache_beam.io._unbounded_ledger import Receipt

PATIENCE_SECONDS = 20.0


class Lost(Exception):
  """What acknowledge() raises when the connection is gone."""


class AckLedgerMachine(RuleBasedStateMachine):
  """Any schedule, against a plain list and how far it is acknowledged."""
  def __init__(self):
    super().__init__()
    self.added: list[int] = []
    self.sent: list[int] = []
    self.failing = False
    self.calls = 0
    self.receipts: list[tuple[Receipt, int]] = []
    self.upto = 0
    self.closed = False
    self.ledger = AckLedger(self._acknowledge)

  def _acknowledge(self, ids):
    self.calls += 1
    assert ids, 'There was nothing to acknowledge.'
    if self.failing:
      ids.clear()  # The list is its own to use.
      raise Lost()
    self.sent += ids
    # A ledger that held its lock over this would not come back.
    self._add(1)
    self.receipts.append((self.ledger.cut(), len(self.added)))

  def _add(self, count):
    for _ in range(count):
      self.added.append(len(self.added))
      self.ledger.add(self.added[-1])

  @rule(count=st.integers(1, 5))
  def add(self, count):
    self._add(count)

  @rule()
  def cut(self):
    self.receipts.append((self.ledger.cut(), len(self.added)))

  @precondition(lambda self: self.receipts)
  @rule(data=st.data(), fails=st.booleans(), elsewhere=st.booleans())
  def finalize(self, data, fails, elsewhere):
    """Any receipt, so out of order, again, and with gaps."""
    receipt, upto = data.draw(st.sampled_from(self.receipts))
    self.failing = fails
    due = not self.closed and upto > self.upto
    calls = self.calls
    raised = []

    def finalize():
      try:
        receipt.finalize()
      except Lost as exc:
        raised.append(exc)

    if elsewhere:
      thread = threading.Thread(target=finalize)
      thread.start()
      thread.join(PATIENCE_SECONDS)
      assert not thread.is_alive()
    else:
      finalize()
    self.failing = False
    assert self.calls == calls + due
    assert bool(raised) == (due and fails)
    if due and not fails:
      self.upto = upto

  @precondition(lambda self: self.receipts)
  @rule(data=st.data())
  def finalize_a_decoded_one(self, data):
    """Case B46: a mark that came through its coder has no connection."""
    receipt, _ = data.draw(st.sampled_from(self.receipts))
    calls = self.calls
    pickle.loads(pickle.dumps(receipt)).finalize()
    copy.copy(receipt).finalize()
    copy.deepcopy(receipt).finalize()
    assert self.calls == calls

  @rule(closes=st.integers(0, 9))
  def close(self, closes):
    if not closes:
      self.closed = True
      self.ledger.close()

  @invariant()
  def acknowledges_what_is_covered_once_and_in_order(self):
    assert self.sent == self.added[:self.upto]
    assert self.ledger.pending() == self.added[self.upto:]
    assert len(self.ledger) == len(self.added) - self.upto
    assert self.ledger


class AckLedgerTest(unittest.TestCase):
  def setUp(self):
    self.sent: list[list] = []
    self.ledger = AckLedger(self.sent.append)

  def add(self, *ids) -> Receipt:
    for ack_id in ids:
      self.ledger.add(ack_id)
    return self.ledger.cut()

  def test_any_schedule(self):
    run_state_machine_as_test(
        AckLedgerMachine,
        settings=hypothesis.settings(
            max_examples=150, stateful_step_count=30, deadline=None))

  def test_a_later_receipt_covers_one_that_was_never_finalized(self):
    """Case B53: of the marks m1 and m2 only m2 is finalized."""
    self.add(1)
    second = self.add(2)
    self.add(3)
    second.finalize()
    self.assertEqual([[1, 2]], self.sent)
    self.assertEqual([3], self.ledger.pending())

  def test_a_receipt_covers_nothing_that_was_added_after_it(self):
    """Cases B48 and B49: a mark that is the reader's own, mutable object."""
    receipt = self.add(1, 2)
    self.assertIsNot(receipt, self.ledger.cut())
    self.add(3, 4, 5)
    receipt.finalize()
    self.assertEqual([[1, 2]], self.sent)

  def test_twice_from_two_threads_at_once(self):
    """Case B47. The second comes while the first acknowledges."""
    inside = threading.Event()
    go = threading.Event()
    sent = []

    def acknowledge(ids):
      inside.set()
      go.wait(PATIENCE_SECONDS)
      sent.append(ids)

    self.ledger = AckLedger(acknowledge)
    receipt = self.add(1, 2)
    second = self.add(3)
    threads = [
        threading.Thread(target=one.finalize)
        for one in (receipt, receipt, second)
    ]
    threads[0].start()
    self.assertTrue(inside.wait(PATIENCE_SECONDS))
    threads[1].start()
    threads[2].start()
    # Reading goes on in the meantime.
    self.add(4)
    self.assertEqual(4, len(self.ledger))
    self.assertEqual([1, 2, 3, 4], self.ledger.pending())
    go.set()
    for thread in threads:
      thread.join(PATIENCE_SECONDS)
    self.assertEqual([[1, 2], [3]], sent)

  def test_any_threads_at_once(self):
    """Adds and cuts by one, finalizes by four: each id once, in order."""
    sent = []
    ledger = AckLedger(sent.extend)
    receipts = []
    total = 20000

    def finalize(step):
      at = step
      while at < total // 10:
        if at < len(receipts):
          receipts[at].finalize()
          at += step

    threads = [
        threading.Thread(target=finalize, args=(n, )) for n in (1, 2, 3, 5)
    ]
    for thread in threads:
      thread.start()
    for n in range(total):
      ledger.add(n)
      if n % 10 == 9:
        receipts.append(ledger.cut())
    receipts.append(ledger.cut())
    for thread in threads:
      thread.join(PATIENCE_SECONDS)
    receipts[-1].finalize()
    self.assertEqual(list(range(total)), sent)
    self.assertEqual(0, len(ledger))

  def test_what_was_not_acknowledged_is_tried_again(self):
    calls = []

    def acknowledge(ids):
      calls.append(ids)
      if len(calls) < 3:
        raise Lost('no connection')

    self.ledger = AckLedger(acknowledge)
    first = self.add(1, 2)
    second = self.add(3)
    for receipt in (first, second):
      with self.assertRaisesRegex(Lost, 'no connection'):
        receipt.finalize()
    self.assertEqual([1, 2, 3], self.ledger.pending())
    first.finalize()
    second.finalize()
    second.finalize()
    self.assertEqual([[1, 2], [1, 2, 3], [1, 2], [3]], calls)

  def test_after_close_nothing_is_acknowledged(self):
    """Case B46: the connection is gone."""
    receipt = self.add(1)
    self.ledger.close()
    self.ledger.close()
    receipt.finalize()
    self.assertEqual([], self.sent)
    self.assertEqual([1], self.ledger.pending())
    self.assertRegex(repr(self.ledger), '1 pending, 0 done, closed')

  def test_close_waits_for_what_is_being_acknowledged(self):
    """Else the connection would be closed under it."""
    inside = threading.Event()
    go = threading.Event()
    events = []

    def acknowledge(ids):
      inside.set()
      go.wait(PATIENCE_SECONDS)
      events.append('acknowledged')

    self.ledger = AckLedger(acknowledge)
    receipt = self.add(1)

    def close():
      self.ledger.close()
      events.append('closed')

    finalizing = threading.Thread(target=receipt.finalize)
    finalizing.start()
    self.assertTrue(inside.wait(PATIENCE_SECONDS))
    closing = threading.Thread(target=close)
    closing.start()
    closing.join(0.1)
    self.assertEqual([], events)
    go.set()
    for thread in (finalizing, closing):
      thread.join(PATIENCE_SECONDS)
    self.assertEqual(['acknowledged', 'closed'], events)
    self.assertEqual([], self.ledger.pending())

  def test_close_by_acknowledge_itself(self):
    """What it does when it finds that the connection is lost."""
    def acknowledge(ids):
      self.ledger.close()
      raise Lost()

    self.ledger = AckLedger(acknowledge)
    receipt = self.add(1)
    with self.assertRaises(Lost):
      receipt.finalize()
    receipt.finalize()
    self.assertEqual([1], self.ledger.pending())

  def test_finalize_by_acknowledge_itself(self):
    self.ledger = AckLedger(lambda ids: receipt.finalize())
    receipt = self.add(1)
    with self.assertRaisesRegex(
        RuntimeError, r'acknowledge\(\) finalized a receipt of the ledger'):
      receipt.finalize()
    self.assertEqual([1], self.ledger.pending())

  def test_an_id_is_released_as_soon_as_it_is_acknowledged(self):
    """Receipts that the runner keeps do not keep ids."""
    class Id:
      pass

    ids = [Id() for _ in range(3)]
    alive = [weakref.ref(one) for one in ids]
    receipts = [self.add(one) for one in ids]
    del ids
    receipts[1].finalize()
    self.sent.clear()
    gc.collect()
    self.assertEqual([False, False, True], [a() is not None for a in alive])

  def test_many_receipts_that_are_never_finalized_cost_what_their_ids_do(self):
    """Case B52: 1,000 marks without finalization, then one."""
    for n in range(100000):
      self.ledger.add(n)
      if n % 100 == 99:
        receipt = self.ledger.cut()
    self.assertEqual(100000, len(self.ledger))
    receipt.finalize()
    self.assertEqual(0, len(self.ledger))
    self.assertEqual([100000], [len(ids) for ids in self.sent])

  def test_a_receipt_of_nothing(self):
    self.ledger.cut().finalize()
    Receipt().finalize()
    self.assertEqual([], self.sent)
    self.assertEqual('Receipt()', repr(Receipt()))

  def test_ids_do_not_get_into_logs(self):
    """Some systems take the id of a delivery for the right to it."""
    receipt = self.add('secret')
    self.assertNotIn('secret', repr(receipt))
    self.assertRegex(
        repr(receipt), 'Receipt for the first 1 of <AckLedger: 1 pending')

  def test_not_pickled_or_copied(self):
    for what in (pickle.dumps, copy.copy, copy.deepcopy):
      with self.subTest(what.__name__):
        with self.assertRaisesRegex(
            TypeError, 'AckLedger cannot be pickled or copied.*a mark holds a '
            'receipt'):
          what(self.ledger)

  def test_what_is_no_acknowledge(self):
    async def coroutine(ids):
      pass

    for wrong, message in [
        (None, 'acknowledge=None cannot be called'),
        (7, 'acknowledge=7 cannot be called'),
        (coroutine, 'is a coroutine function.*run_coroutine_threadsafe'),
    ]:
      with self.subTest(message):
        with self.assertRaisesRegex(TypeError, message):
          AckLedger(wrong)

  def test_an_acknowledge_that_nobody_would_await(self):
    """A lambda around a coroutine looks like any other."""
    async def acknowledge(ids):
      self.sent.append(ids)

    self.ledger = AckLedger(lambda ids: acknowledge(ids))
    receipt = self.add(1)
    with self.assertRaisesRegex(
        TypeError, 'returned an awaitable.*run_coroutine_threadsafe'):
      receipt.finalize()
    self.assertEqual([1], self.ledger.pending())


if __name__ == '__main__':
  unittest.main()
