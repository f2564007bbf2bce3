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

"""Tests of how PrismRunner finds a Prism that is installed as a package.

The packages are made up, and lie on ``sys.path`` as pip would install them;
their binary is a script. That a pipeline runs on the real one is tested where
both wheels are built.
"""

import logging
import os
import platform
import stat
import sys
import tempfile
import unittest
import zipfile
from unittest import mock

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability import _installed_prism
from apache_beam.runners.portability import prism_runner
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to
from apache_beam.utils import shared
from apache_beam.version import __version__ as beam_version

HERE = _installed_prism._this_platform()
SAYS_ITS_VERSION = '#!/bin/sh\n[ "$1" = --version ] && echo Prism of a test\n'
_LOGGER = 'apache_beam.runners.portability._installed_prism'


@unittest.skipIf(os.name == 'nt', 'The binary of these tests is a script')
class InstalledPrismTestCase(unittest.TestCase):
  def setUp(self):
    temporary = tempfile.TemporaryDirectory()
    self.addCleanup(temporary.cleanup)
    self.folder = temporary.name
    # A Prism that is really installed is none of these tests' business.
    self.change(_installed_prism, 'GROUP', 'apache_beam.prism_of_a_test')
    self.change(
        prism_runner.PrismJobServer, 'BIN_CACHE', self.path('downloads'))
    self.change(sys, 'path', [self.folder, *sys.path])
    self.addCleanup(
        lambda: [
            sys.modules.pop(name) for name in list(sys.modules)
            if name.startswith('prism_of_a_test')
        ])

  def change(self, where, name, value):
    patch = mock.patch.object(where, name, value)
    patch.start()
    self.addCleanup(patch.stop)

  def path(self, *names):
    return os.path.join(self.folder, *names)

  def write(self, path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w') as file:
      file.write(text)
    os.chmod(path, mode)
    return path

  def install(
      self,
      name='a',
      version=beam_version,
      for_platform=HERE,
      program=SAYS_ITS_VERSION,
      mode=0o755,
      module=None):
    """Installs a package that brings a Prism; returns the binary's path."""
    package = f'prism_of_a_test_{name}'
    info = self.path(f'{package}-{version}.dist-info')
    self.write(
        os.path.join(info, 'METADATA'),
        f'Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n')
    self.write(
        os.path.join(info, 'entry_points.txt'),
        f'[{_installed_prism.GROUP}]\n{for_platform} = {package}:binary\n')
    path = self.path(package, 'prism')
    self.write(
        self.path(package, '__init__.py'),
        f'def binary():\n  return {path!r}\n' if module is None else module)
    return self.write(path, program, mode)

  def refused(self):
    with self.assertRaises(_installed_prism.InstalledPrismError) as caught:
      _installed_prism.find()
    message = str(caught.exception)
    # Whatever it is, there are two ways around it.
    self.assertIn('--prism_location', message)
    self.assertIn('pip uninstall prism_of_a_test_', message)
    return message


class FindTest(InstalledPrismTestCase):
  def test_none_is_installed(self):
    self.assertIsNone(_installed_prism.find())

  def test_one_is_installed(self):
    path = self.install()
    with self.assertLogs(_LOGGER, logging.INFO) as logs:
      self.assertEqual(_installed_prism.find(), path)
    self.assertIn(
        'Using Prism of a test, from prism_of_a_test_a', logs.output[0])

  def test_a_local_version_is_of_that_beam(self):
    path = self.install(version=f'{beam_version}+stack.1')
    self.assertEqual(_installed_prism.find(), path)

  def test_one_for_another_platform_beside_it(self):
    self.install('a', for_platform='plan9-mips')
    path = self.install('b')
    self.install('c', for_platform='plan9-vax')
    self.assertEqual(_installed_prism.find(), path)

  def test_another_platform(self):
    self.install(for_platform='plan9-mips')
    message = self.refused()
    self.assertIn(
        f'it is for plan9-mips, and this machine is {HERE}', message)
    self.assertIn(f'install the one for {HERE}', message)

  def test_another_beam(self):
    self.install(version='2.1.0+stack.1')
    message = self.refused()
    self.assertIn('prism_of_a_test_a 2.1.0+stack.1 cannot be used', message)
    self.assertIn(
        f'install the prism_of_a_test_a of Beam {beam_version}', message)

  def test_two_for_this_platform(self):
    self.install('a')
    self.install('b')
    message = self.refused()
    self.assertIn('prism_of_a_test_a', message)
    self.assertIn('prism_of_a_test_b', message)

  def test_the_binary_is_gone(self):
    path = self.install()
    os.remove(path)
    message = self.refused()
    self.assertIn(f'{path} is gone', message)
    self.assertIn(f'install prism_of_a_test_a for {HERE} again', message)

  def test_it_may_not_be_executed(self):
    path = self.install(mode=0o644)
    self.assertIn(f'chmod a+x {path}', self.refused())
    # It is not for Beam to change what is installed.
    self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o644)

  def test_it_is_no_program_of_this_machine(self):
    # The head of a program for another machine: the kernel refuses it.
    self.install(program='\x7fELF\x02\x01\x01' + 200 * '\0')
    self.assertIn('does not run on this machine: ', self.refused())

  def test_it_ends_badly(self):
    self.install(program='#!/bin/sh\necho no such flag\nexit 2\n')
    self.assertIn('--version ended with 2: no such flag', self.refused())

  def test_the_package_is_broken(self):
    self.install(module='import prism_of_a_test_that_is_missing\n')
    message = self.refused()
    self.assertIn('ModuleNotFoundError', message)
    self.assertIn('prism_of_a_test_a:binary', message)


class JobServerTest(InstalledPrismTestCase):
  def binary(self, *arguments):
    server = prism_runner.PrismJobServer(PipelineOptions(arguments))
    command, _ = server.subprocess_cmd_and_endpoint()
    return command[0]

  def downloaded(self, version):
    """Puts a release where earlier downloads are; returns its binary."""
    url = prism_runner.PrismJobServer._construct_download_url(
        version, version, platform.system(), platform.machine())
    name = os.path.basename(url)
    os.makedirs(self.path('downloads'), exist_ok=True)
    with zipfile.ZipFile(self.path('downloads', name), 'w') as archive:
      archive.writestr(os.path.splitext(name)[0], 'a release')
    return self.path('downloads', os.path.splitext(name)[0])

  def test_what_is_installed_comes_before_a_download(self):
    path = self.install()
    self.downloaded('v' + beam_version)
    self.assertEqual(self.binary(), path)

  def test_nothing_is_done_to_it(self):
    path = self.install(mode=0o555)
    before = os.stat(path)
    with mock.patch('os.chmod', side_effect=PermissionError):
      with self.assertNoLogs(prism_runner.__name__, logging.WARNING):
        self.assertEqual(self.binary(), path)
    self.assertEqual(os.stat(path), before)

  def test_a_release_is_used_where_none_is_installed(self):
    release = self.downloaded('v' + beam_version)
    self.assertEqual(self.binary(), release)

  def test_a_location_wins(self):
    self.install()
    own = self.write(self.path('own'), SAYS_ITS_VERSION)
    self.assertEqual(self.binary(f'--prism_location={own}'), own)

  def test_a_location_wins_over_one_that_is_broken(self):
    self.install(for_platform='plan9-mips')
    own = self.write(self.path('own'), SAYS_ITS_VERSION)
    self.assertEqual(self.binary(f'--prism_location={own}'), own)

  def test_a_release_that_is_asked_for_wins(self):
    self.install()
    release = self.downloaded('v2.1.0')
    self.assertEqual(
        self.binary('--prism_beam_version_override=v2.1.0'), release)

  def test_a_running_server_of_another_binary_is_not_used(self):
    def server(*arguments):
      return prism_runner.PrismRunner().default_job_server(
          PipelineOptions(arguments))

    first = server()
    self.assertIs(server(), first)
    named = server('--prism_location=own')
    self.assertIsNot(named, first)
    self.assertIs(server('--prism_location=own'), named)
    self.assertIsNot(server('--prism_location=other'), named)


class DirectRunnerTest(InstalledPrismTestCase):
  def test_it_says_why_another_runner_takes_over(self):
    self.install(for_platform='plan9-mips')
    self.change(prism_runner.PrismRunner, 'shared_handle', shared.Shared())
    with self.assertLogs(_LOGGER, logging.WARNING) as logs:
      with beam.Pipeline('DirectRunner') as pipeline:
        assert_that(
            pipeline | beam.Create([1, 2]) | beam.Map(lambda n: n + 1),
            equal_to([2, 3]))
    self.assertEqual(len(logs.output), 1)
    self.assertIn('it is for plan9-mips', logs.output[0])


if __name__ == '__main__':
  unittest.main()
