"""The verb `demo`: runs the example that reads an outbox that grows."""

import pathlib

MODULE = 'apache_beam.examples.unbounded_outbox_demo'
SECONDS = 600.0


def command(python: pathlib.Path, *arguments: str) -> list[str]:
  return [str(python), '-m', MODULE, *arguments]
