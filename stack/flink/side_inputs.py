"""Reads whose records get their keys from a side input."""

import apache_beam as beam
import exact_reads

NAMES = {exact_reads.BUSY: 'renamed', exact_reads.WAITING: 'late'}


def rename(record, names):
  kind, number = record
  return names[kind], number


class Renamed(beam.PTransform):
  """The records of exact_reads.two_splits, by other names."""

  def __init__(self, folder):
    super().__init__()
    self.folder = folder

  def expand(self, pbegin):
    names = pbegin | beam.Create(list(NAMES.items()))
    return (
        pbegin
        | exact_reads.two_splits(self.folder)
        | 'Rename' >> beam.Map(rename, beam.pvalue.AsDict(names)))


def renamed(folder):
  return Renamed(folder)
