"""Runs the ledger in the docstring of `apache_beam.io._unbounded_ledger`."""

# examples of sdks/python/apache_beam/io/_unbounded_ledger.py

# What is left goes with the next receipt, the decoded one has no say in it.
import pickle

pickle.loads(pickle.dumps(ledger.cut())).finalize()
assert ledger.pending() == ['d']
ledger.cut().finalize()
assert sent == [['a', 'b', 'c'], ['d']]
