"""Prints where the program lies."""

from beam_unending_prism import binary

print(binary())
