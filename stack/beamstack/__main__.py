"""Runs the program by its path: `python stack/beamstack VERB`."""

import pathlib
import sys

# The folder of the package is on the path instead of the package itself.
sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from beamstack import cli  # pylint: disable=wrong-import-position

sys.exit(cli.main(sys.argv[1:]))
