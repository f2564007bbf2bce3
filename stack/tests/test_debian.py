"""Programs are found or installed, or there is an error that says how.

`apt-get` and `sudo` are scripts here that note how they were called; `apt-get
install` makes the program.
"""

import os
import pathlib
import subprocess

import pytest

from beamstack import debian
from beamstack.errors import CannotRun
from beamstack.workspace import Workspace

THING = debian.Program('thing-server', 'thing', 'THING_SERVER')
APT = '''#!/bin/sh
echo "apt-get $DEBIAN_FRONTEND $*" >> '{here}/calls'
if [ -e '{here}/broken' ]; then echo 'E: no such package'; exit 100; fi
case "$*" in *install*) {makes} ;; esac
'''
SUDO = '''#!/bin/sh
echo "sudo $*" >> '{here}/calls'
if [ -e '{here}/asks' ]; then exit 1; fi
shift
exec "$@"
'''


class Place:
  """A checkout and a PATH of its own."""

  def __init__(self, root):
    self.here = root / 'bin'
    self.here.mkdir()
    self.space = Workspace(root / 'checkout')
    for name in ('env', 'sh', 'cp', 'chmod', 'true'):
      real = subprocess.run(['which', name], capture_output=True, text=True,
                            check=True).stdout.strip()
      (self.here / name).symlink_to(real)

  def script(self, name, text='#!/bin/sh\n'):
    path = self.here / name
    path.write_text(text)
    path.chmod(0o755)
    return path

  def apt(self, makes=''):
    thing = self.here / 'thing-server'
    self.script('apt-get', APT.format(
        here=self.here,
        makes=makes or f"cp '{self.here}/apt-get' '{thing}'"))

  def calls(self):
    path = self.here / 'calls'
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(name='place')
def _place(tmp_path, monkeypatch):
  place = Place(tmp_path)
  monkeypatch.setenv('PATH', str(place.here))
  monkeypatch.delenv('THING_SERVER', raising=False)
  monkeypatch.setattr(os, 'geteuid', lambda: 0)
  return place


def test_a_program_that_is_there_is_used(place):
  place.apt()
  path = place.script('thing-server')
  assert debian.find(place.space, THING) == path
  assert not place.calls()


def test_a_missing_one_is_installed_once(place):
  place.apt()
  found = debian.find(place.space, THING)
  assert found == place.here / 'thing-server'
  lock = '-o DPkg::Lock::Timeout=120'
  assert place.calls() == [
      f'apt-get noninteractive {lock} update',
      f'apt-get noninteractive {lock} install -y --no-install-recommends thing'
  ]
  debian.find(place.space, THING)
  assert len(place.calls()) == 2


def test_a_variable_goes_first(place, monkeypatch):
  place.script('thing-server')
  other = place.script('other')
  monkeypatch.setenv('THING_SERVER', str(other))
  assert debian.find(place.space, THING) == other
  monkeypatch.setenv('THING_SERVER', '/nowhere')
  with pytest.raises(CannotRun, match='THING_SERVER=/nowhere is no program'):
    debian.find(place.space, THING)


def test_others_than_root_use_sudo(place, monkeypatch):
  monkeypatch.setattr(os, 'geteuid', lambda: 1000)
  place.apt()
  place.script('sudo', SUDO.format(here=place.here))
  assert debian.find(place.space, THING).name == 'thing-server'
  assert place.calls()[0] == 'sudo -n true'
  assert place.calls()[1].startswith('sudo -n env DEBIAN_FRONTEND=')


@pytest.mark.parametrize('has_sudo', [False, True])
def test_without_rights_the_command_is_told(place, monkeypatch, has_sudo):
  monkeypatch.setattr(os, 'geteuid', lambda: 1000)
  place.apt()
  if has_sudo:
    place.script('sudo', SUDO.format(here=place.here))
    (place.here / 'asks').touch()
  with pytest.raises(CannotRun, match='only root can') as caught:
    debian.find(place.space, THING)
  assert 'apt-get install thing' in caught.value.remedy
  assert not any('install' in call for call in place.calls())


def test_without_apt_the_variable_is_told(place):
  with pytest.raises(CannotRun, match='so is apt-get') as caught:
    debian.find(place.space, THING)
  assert 'THING_SERVER' in caught.value.remedy


def test_why_it_failed_is_told(place):
  place.apt()
  (place.here / 'broken').touch()
  with pytest.raises(CannotRun, match='no such package') as caught:
    debian.find(place.space, THING)
  assert 'debian-thing.log' in caught.value.remedy
  assert 'apt-get install thing' in caught.value.remedy


def test_a_package_without_the_program_is_told(place):
  place.apt(makes=':')
  with pytest.raises(CannotRun, match='thing is installed, but thing-server'):
    debian.find(place.space, THING)


def test_tests_are_told_of_all_programs(place, monkeypatch):
  found = {}
  for program in debian.PROGRAMS:
    monkeypatch.delenv(program.variable, raising=False)
    found[program.variable] = str(place.script(program.name))
  assert {'REDIS_SERVER', 'JAVAC', 'MVN'} <= set(found)
  assert debian.environment(place.space) == found
  assert isinstance(debian.find(place.space, debian.REDIS_SERVER),
                    pathlib.Path)
