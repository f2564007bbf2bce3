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

"""Finds a Prism that is installed as a Python package.

A package brings a Prism by an entry point of the group ``apache_beam.prism``:

* its name is the platform that the binary is for, in Go's words, such as
  ``linux-amd64``;
* it loads to a function without arguments that returns the binary's path;
* the version of the package is that of Beam, with or without a local part.

The binary has to know ``--version``: it is run with it, once, so that what
cannot run is told before a pipeline waits for it.
"""

import importlib.metadata
import logging
import os
import platform
import subprocess
from typing import Optional

from packaging.version import InvalidVersion
from packaging.version import Version

from apache_beam.options import pipeline_options
from apache_beam.version import __version__ as beam_version

_LOGGER = logging.getLogger(__name__)

GROUP = 'apache_beam.prism'
_SECONDS = 60.0

_MACHINES = {
    'x86_64': 'amd64',
    'x64': 'amd64',
    'aarch64': 'arm64',
}


class InstalledPrismError(RuntimeError):
  """There is a Prism that is installed as a package, and it cannot be used.

  A silent download of another one would hide it.
  """


def find() -> Optional[str]:
  """The path of the Prism that is installed, or None if there is none.

  Raises:
    InstalledPrismError: there is one, for another Beam or platform than this,
      or broken. The message says what to do.
  """
  found = list(importlib.metadata.entry_points(group=GROUP))
  if not found:
    return None
  here = _this_platform()
  mine = [entry for entry in found if entry.name == here]
  if not mine:
    raise _unusable(
        found[0],
        f'it is for {", ".join(sorted(entry.name for entry in found))}, and '
        f'this machine is {here}',
        f'install the one for {here}')
  if len(mine) > 1:
    raise _unusable(
        mine[0],
        'there is another one: ' + ', '.join(map(_title, mine[1:])),
        'keep one of them')
  entry = mine[0]
  if not _is_for(entry, beam_version):
    raise _unusable(
        entry,
        f'this is Beam {beam_version}',
        f'install the {entry.dist.name} of Beam {beam_version}')
  try:
    path = entry.load()()
  except Exception as e:
    raise _unusable(
        entry, f'{entry.value} fails with {e!r}', _again(entry)) from e
  said = _version_of(entry, path)
  _LOGGER.info('Using %s, from %s: %s', said, _title(entry), path)
  return path


def asked_for(
    options: pipeline_options.PipelineOptions) -> tuple[Optional[str], ...]:
  """What options say of the binary: a server of another one will not do."""
  prism_options = options.view_as(pipeline_options.PrismRunnerOptions)
  return (
      prism_options.prism_location, prism_options.prism_beam_version_override)


def warn_of(error: Exception) -> None:
  """Warns of an unusable Prism where another runner takes over quietly."""
  if isinstance(error, InstalledPrismError):
    _LOGGER.warning('%s', error)


def _this_platform() -> str:
  machine = platform.machine().lower()
  return f'{platform.system().lower()}-{_MACHINES.get(machine, machine)}'


def _is_for(entry: importlib.metadata.EntryPoint, beam: str) -> bool:
  try:
    return Version(entry.dist.version).public == Version(beam).public
  except InvalidVersion:
    return False


def _version_of(entry: importlib.metadata.EntryPoint, path: str) -> str:
  """What the binary says of itself; this shows that it runs here."""
  if not os.path.isfile(path):
    raise _unusable(entry, f'{path} is gone', _again(entry))
  if not os.access(path, os.X_OK):
    raise _unusable(
        entry,
        f'{path} may not be executed',
        f'chmod a+x {path}, or install it on a file system without noexec')
  try:
    ran = subprocess.run([path, '--version'],
                         stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT,
                         timeout=_SECONDS,
                         check=False)
  except (OSError, subprocess.TimeoutExpired) as e:
    raise _unusable(
        entry, f'{path} does not run on this machine: {e}',
        _again(entry)) from e
  said = ran.stdout.decode(errors='replace').strip()
  if ran.returncode:
    raise _unusable(
        entry,
        f'{path} --version ended with {ran.returncode}: {said[-500:]}',
        _again(entry))
  return said


def _title(entry: importlib.metadata.EntryPoint) -> str:
  return f'{entry.dist.name} {entry.dist.version}'


def _again(entry: importlib.metadata.EntryPoint) -> str:
  return f'install {entry.dist.name} for {_this_platform()} again'


def _unusable(
    entry: importlib.metadata.EntryPoint, reason: str,
    remedy: str) -> InstalledPrismError:
  return InstalledPrismError(
      f'The Prism of {_title(entry)} cannot be used: {reason}. Either '
      f'{remedy}; or name a binary with --prism_location; or pip uninstall '
      f'{entry.dist.name}, and Beam downloads the released one.')
