"""What the steps of the verb `test` take together."""

import sys

import made_up
from beamstack import bases
from beamstack import processes
from beamstack import suite
from beamstack.workspace import Workspace


def test_native_clients_have_a_process_of_their_own(tmp_path):
  series = made_up.series(
      tmp_path,
      made_up.pull_request(name='a', tests=('x.b_test', 'go:./p')),
      made_up.pull_request(name='k', tests=('x.k_test', ), alone=True),
      made_up.pull_request(name='z', tests=('x.a_test', 'x.b_test')))
  one = suite.Suite(Workspace(tmp_path), series, bases.Pins((), ()))
  assert one.test_groups() == {'': ['x.a_test', 'x.b_test'], '-k': ['x.k_test']}


def test_go_packages_by_whose_tests_they_have(tmp_path):
  series = made_up.series(
      tmp_path,
      made_up.pull_request(
          name='a',
          tests=('x.b_test', 'go:./p'),
          upstream_tests=('go:./...', )),
      made_up.pull_request(
          name='b', tests=('go:./q', ), upstream_tests=('x.c_test', 'go:./p')))
  one = suite.Suite(Workspace(tmp_path), series, bases.Pins((), ()))
  assert one.go_packages() == (['./p', './q'], ['./...'])


def test_without_network_nothing_is_left_of_a_download(tmp_path):
  variables = suite.without_network(str(tmp_path))
  output = processes.must_run(
      [
          sys.executable, '-c',
          'import os, urllib.request\n'
          'print(os.path.expanduser("~"))\n'
          'print(urllib.request.getproxies()["https"])\n'
          'print(urllib.request.proxy_bypass("localhost"))'
      ],
      what='python',
      env=variables)
  assert output.split() == [str(tmp_path), 'http://127.0.0.1:9', 'True']
