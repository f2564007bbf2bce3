"""A pipeline on the Prism that is installed beside Beam, by no option.

Checks that the binary of that package ran it: its own log gives its version.
Arguments: --expect=VERSION, then Beam's options.
"""

import argparse
import logging
import re
import subprocess
import sys

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to


class Lines(logging.Handler):
  """Keeps what is logged."""

  def __init__(self):
    super().__init__()
    self.all = []

  def emit(self, record):
    self.all.append(record.getMessage())


def main(arguments):
  parser = argparse.ArgumentParser()
  parser.add_argument('--expect', required=True)
  known, options = parser.parse_known_args(arguments)
  lines = Lines()
  logging.getLogger().addHandler(lines)
  logging.getLogger().setLevel(logging.INFO)
  with beam.Pipeline(options=PipelineOptions(options)) as pipeline:
    counts = (
        pipeline
        | beam.Create(range(1000))
        | beam.Map(lambda number: (number % 3, 1))
        | beam.CombinePerKey(sum))
    assert_that(counts, equal_to([(0, 334), (1, 333), (2, 333)]))
  said = f'starting Prism.*version=[\'"]?{re.escape(known.expect)}'
  starts = [line for line in lines.all if re.search(said, line)]
  if len(starts) != 1:
    print('\n'.join(lines.all))
    sys.exit(f'{len(starts)} Prisms {known.expect} were started, not one')
  command = [sys.executable, '-m', 'beam_unending_prism']
  path = subprocess.run(command, capture_output=True, text=True, check=True)
  if not any(path.stdout.strip() in line for line in lines.all):
    sys.exit(f'{path.stdout.strip()} is not the one that ran')
  runner = options[0].partition('=')[2] if options else 'the default runner'
  print(f'{runner} took the installed Prism, good on Beam {beam.__version__}')


if __name__ == '__main__':
  main(sys.argv[1:])
