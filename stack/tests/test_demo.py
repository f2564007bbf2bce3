"""Where the demo runs."""

import pytest

from beamstack import demo


@pytest.mark.parametrize(
    'arguments, chosen',
    [
        ([], False),
        (['--seconds', '5'], False),
        (['--runner', 'fnapi'], True),
        (['--runner=fnapi'], True),
        (['--prism=/opt/prism'], True),
        (['--help'], True),
    ])
def test_the_user_may_choose_the_runner(arguments, chosen):
  assert demo.chooses_runner(arguments) == chosen
