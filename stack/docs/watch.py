"""Runs the archive in the docstring of `apache_beam.io.watch`."""

import collections

from apache_beam.utils.timestamp import Timestamp

Report = collections.namedtuple('Report', 'name created')
LISTS = collections.Counter()


class Folder:
  """Has one report more each time it is listed, and is closed after three."""

  def __init__(self, customer):
    self.customer = customer

  def list(self):
    LISTS[self.customer] += 1
    names = ['january', 'february', 'march'][:LISTS[self.customer]]
    return [Report(name, Timestamp(n)) for n, name in enumerate(names)]

  def is_closed(self):
    return LISTS[self.customer] == 3


class Archive:
  folder_of = Folder


archive = Archive()

# examples of sdks/python/apache_beam/io/watch.py

# The pipeline polled copies, since all of a main script travels by value.
assert [
    [output.value for output in result.outputs] + [result.is_complete]
    for result in (list_reports('miller') for _ in range(3))
] == [['january', False], ['january', 'february', False],
      ['january', 'february', 'march', True]]
