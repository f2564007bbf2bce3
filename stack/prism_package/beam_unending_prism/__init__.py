"""A Prism for this machine: Beam's local runner with the series applied.

`PrismRunner` of the dev wheel finds it by the entry point of this package.
For any other use, `python -m beam_unending_prism` prints the path.
"""

import os


def binary() -> str:
  """The path of the program."""
  return os.path.join(os.path.dirname(os.path.abspath(__file__)), 'prism')
