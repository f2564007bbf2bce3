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

import unittest

from apache_beam.io._unbounded_ledger import AckLedger


class AckLedgerTest(unittest.TestCase):
  def test_a_later_receipt_covers_one_that_was_never_finalized(self):
    """Case B53."""
    sent = []
    ledger = AckLedger(sent.append)
    ledger.add(1)
    ledger.cut()
    ledger.add(2)
    second = ledger.cut()
    ledger.add(3)
    second.finalize()
    self.assertEqual([[1, 2]], sent)
    self.assertEqual([3], ledger.pending())


if __name__ == '__main__':
  unittest.main()
