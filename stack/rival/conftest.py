"""Lets a newer Beam's test module import the names that ours does not have.

Placed beside that test module for a run. The test module imports everything at
once; without this the first private name would keep all of it from running.

* RIVAL_LENT names what is taken from the newer Beam's module: test data that
  says nothing about how a source is read. Its classes are put on our base
  classes.
* Any other name gets a stand-in that fails whatever test uses it. Such a test
  is about the newer Beam's private parts; the list beside this file says so.
"""

import ast
import importlib
import os
import pathlib

OURS = os.environ['RIVAL_OURS']
LENT = os.environ['RIVAL_LENT'].split(',')
TESTS = pathlib.Path(os.environ['RIVAL_TESTS'])


class Missing:
  """Fails the test that uses it."""

  def __init__(self, name):
    self._missing = name

  def __call__(self, *unused_args, **unused_kwargs):
    raise AssertionError(f'{self._missing} is private to the newer Beam')

  def __getattr__(self, unused_name):
    self()


def imported_names():
  """What the test module takes from the module under test."""
  for node in ast.walk(ast.parse(TESTS.read_text())):
    if isinstance(node, ast.ImportFrom) and node.module == OURS:
      yield from (alias.name for alias in node.names)


def put_on_our_bases(theirs, ours):
  """Their subclasses of a public class become subclasses of ours."""
  for value in list(vars(theirs).values()):
    if isinstance(value, type) and value.__module__ == theirs.__name__:
      bases = tuple(
          getattr(ours, base.__name__, base)
          if base.__module__ == theirs.__name__ else base
          for base in value.__bases__)
      if bases != value.__bases__ and not hasattr(ours, value.__name__):
        value.__bases__ = bases


def pytest_configure(config):
  del config
  ours = importlib.import_module(OURS)
  theirs = importlib.import_module('rival_module')
  put_on_our_bases(theirs, ours)
  for name in imported_names():
    if not hasattr(ours, name):
      setattr(
          ours, name, getattr(theirs, name) if name in LENT else Missing(name))
