"""Which tests share a process."""

import made_up
from beamstack import bases
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
