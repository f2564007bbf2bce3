"""Jars are those that are pinned, or there is an error that says why not.

`mvn` is a script here that does what the real one does with the few options
that it gets: it puts jars into a local repository and lists them.
"""

import hashlib
import os
import pathlib
import sys

import pytest

from beamstack import maven
from beamstack.errors import CannotRun
from beamstack.maven import Coordinates
from beamstack.workspace import Workspace

MVN = '''#!{python}
import pathlib, re, sys
here = pathlib.Path({here!r})
with open(here / 'calls', 'a') as calls:
  calls.write(' '.join(sys.argv[1:]) + chr(10))
for line in (here / 'says').read_text().splitlines():
  print(line)
if (here / 'says').read_text():
  sys.exit(1)
pom = pathlib.Path('pom.xml').read_text()
(here / 'pom.xml').write_text(pom)
out = next(a for a in sys.argv if a.startswith('-DoutputFile='))
lines = ['', 'The following files have been resolved:']
for part in pom.split('<dependency>')[1:]:
  def of(key):
    found = re.search(f'<{{key}}>([^*<]+)</{{key}}>', part)
    return found.group(1) if found else ''
  names = [of('groupId'), of('artifactId'), 'jar']
  if of('classifier'):
    names.append(of('classifier'))
  names += [of('version'), 'compile']
  jar = here / ('-'.join(names) + '.jar')
  jar.write_text((here / 'content').read_text() + of('artifactId'))
  lines.append('   ' + ':'.join(names) + f':{{jar}} -- module some.thing')
if '<exclusions>' not in pom:
  jar = here / 'more.jar'
  jar.write_text('more')
  lines.append(f'   org.x:more:jar:7:runtime:{{jar}}')
  lines.append(f'   org.x:junit:jar:7:test:{{jar}}')
pathlib.Path(out.partition('=')[2]).write_text(chr(10).join(lines))
'''
ONE = Coordinates('org.x', 'one', '1.0')
TWO = Coordinates('org.x', 'two', '2.0', 'tests')


def sha256(text):
  return hashlib.sha256(text.encode()).hexdigest()


class Place:
  """A checkout with a mvn that obeys."""

  def __init__(self, root):
    self.here = root / 'fake'
    self.space = Workspace(root / 'checkout')
    self.pins = self.space.stack / 'maven' / 'things.toml'
    self.pins.parent.mkdir(parents=True)
    self.here.mkdir()
    for tool, text in (
        ('mvn', MVN.format(python=sys.executable, here=str(self.here))),
        ('java', '#!/bin/sh\n')):
      path = self.here / tool
      path.write_text(text)
      path.chmod(0o755)
    self.says('')
    self.content('the jar of ')

  def says(self, text):
    (self.here / 'says').write_text(text)

  def content(self, text):
    (self.here / 'content').write_text(text)

  def calls(self):
    path = self.here / 'calls'
    return path.read_text().splitlines() if path.exists() else []

  def pin(self, one=sha256('the jar of one'), two=sha256('the jar of two')):
    self.pins.write_text(
        'roots = ["org.x:one:1.0"]\n\n[sha256]\n'
        f'"org.x:one:1.0" = "{one}"\n"org.x:two:2.0:tests" = "{two}"\n')

  def left(self):
    folders = (self.space.work / 'maven').glob('*/')
    return sorted(path.name for path in folders if path.is_dir())


@pytest.fixture(name='place')
def _place(tmp_path, monkeypatch):
  place = Place(tmp_path)
  monkeypatch.setenv('PATH', f'{place.here}:{os.environ["PATH"]}')
  return place


def test_jars_are_fetched_once_in_the_order_of_the_pins(place):
  place.pin()
  jars = maven.fetch(place.space, 'things')
  assert [jar.read_text() for jar in jars] == [
      'the jar of one', 'the jar of two'
  ]
  assert jars == maven.fetch(place.space, 'things')
  assert len(place.calls()) == 1
  assert '--strict-checksums' in place.calls()[0]
  assert maven.classpath(place.space, 'things') == ':'.join(map(str, jars))


def test_only_what_is_pinned_is_asked_for(place):
  place.pin()
  maven.fetch(place.space, 'things')
  pom = (place.here / 'pom.xml').read_text()
  assert pom.count('<exclusions>') == 2
  assert '<classifier>tests</classifier>' in pom


def test_another_file_than_the_pinned_one_is_refused(place):
  place.pin(two='0' * 64)
  with pytest.raises(CannotRun, match='org.x:two:2.0:tests: the sha256 is'):
    maven.fetch(place.space, 'things')
  assert place.left() == []


def test_a_jar_that_changed_since_is_refused(place):
  place.pin()
  jars = maven.fetch(place.space, 'things')
  jars[1].write_text('changed')
  with pytest.raises(CannotRun, match='org.x:two') as caught:
    maven.fetch(place.space, 'things')
  assert f'rm -r {jars[1].parent}' in caught.value.remedy
  jars[1].unlink()
  with pytest.raises(CannotRun, match='missing'):
    maven.fetch(place.space, 'things')


def test_other_pins_have_a_folder_of_their_own(place):
  place.pin()
  before = maven.fetch(place.space, 'things')
  place.content('another jar of ')
  place.pin(sha256('another jar of one'), sha256('another jar of two'))
  assert maven.fetch(place.space, 'things')[0].parent != before[0].parent


def test_pins_are_what_the_roots_need(place):
  place.pins.write_text('# What for.\nroots = ["org.x:one:1.0"]\n')
  with pytest.raises(CannotRun, match='no sha256 of org.x:one') as caught:
    maven.fetch(place.space, 'things')
  assert './beamstack maven --pin things' in caught.value.remedy
  pinned = maven.pin(place.space, 'things')
  assert pinned.sha256 == {
      ONE: sha256('the jar of one'),
      Coordinates('org.x', 'more', '7'): sha256('more'),
  }
  text = place.pins.read_text()
  assert text.startswith('# What for.\nroots = ["org.x:one:1.0"]\n\n[sha256]')
  maven.pin(place.space, 'things')
  assert place.pins.read_text() == text
  assert place.left() == []


def test_a_missing_mvn_names_the_command_that_installs_it(place, monkeypatch):
  place.pin()
  monkeypatch.setenv('PATH', '')
  with pytest.raises(CannotRun) as caught:
    maven.fetch(place.space, 'things')
  assert 'apt-get install maven' in caught.value.remedy


def test_a_missing_java_names_the_command_that_installs_it(place, monkeypatch):
  place.pin()
  (place.here / 'java').unlink()
  monkeypatch.setenv('PATH', str(place.here))
  with pytest.raises(CannotRun) as caught:
    maven.fetch(place.space, 'things')
  assert 'apt-get install openjdk-17' in caught.value.remedy


@pytest.mark.parametrize(('says', 'told'), [
    ('[ERROR] Unknown host repo.example', 'could not reach its repository'),
    ('[ERROR] Could not find artifact org.x:one:jar:1.0 in a', 'has no org.x:'),
    ('[ERROR] something else', 'dependency:list for things failed'),
])
def test_why_mvn_failed_is_told(place, says, told):
  place.pin()
  place.says(says)
  with pytest.raises(CannotRun, match=told) as caught:
    maven.fetch(place.space, 'things')
  assert 'maven-things.log' in caught.value.remedy
  assert place.left() == []


@pytest.mark.parametrize(('text', 'told'), [
    ('roots = ["org.x:one"]', "'org.x:one' is not group:artifact:version"),
    ('roots = []', 'no sha256 of anything'),
    ('roots = ["a:b:1"]\n[sha256]\n"a:b:1" = "12"', 'a:b:1 has no sha256'),
    ('roots = ["a:b:1"]\nmore = 1', 'unknown keys: more'),
])
def test_wrong_pins_are_refused(place, text, told):
  place.pins.write_text(text)
  with pytest.raises(CannotRun, match=told):
    maven.load(place.space, 'things')


def test_an_unknown_set_names_the_known_ones(place):
  place.pin()
  with pytest.raises(CannotRun) as caught:
    maven.fetch(place.space, 'thing')
  assert 'things' in caught.value.remedy


def test_what_mvn_lists_is_read_with_and_without_colours():
  found = maven.parse_listed(
      'The following files have been resolved:\n'
      '   a.b:c-d:jar:1.2:compile:/m/c-d-1.2.jar\x1b[36m -- module c.d '
      '(auto)\x1b[0m\n'
      '   a.b:e_2.13:jar:tests:1-2:runtime:/m/e 1.jar\n'
      '   a.b:f:jar:1:compile (optional):/m/f.jar -- module f\n'
      '   a.b:g:jar:1:test:/m/g.jar\n'
      '   a.b:h:pom:1:compile:/m/h.pom\n')
  assert found == {
      Coordinates('a.b', 'c-d', '1.2'): pathlib.Path('/m/c-d-1.2.jar'),
      Coordinates('a.b', 'e_2.13', '1-2', 'tests'):
          pathlib.Path('/m/e 1.jar'),
      Coordinates('a.b', 'f', '1'): pathlib.Path('/m/f.jar'),
  }


def test_file_names_differ_where_maven_has_the_same():
  one = Coordinates('org.x', 'core', '1')
  other = Coordinates('org.y', 'core', '1')
  assert one.file_name == 'org.x.core-1.jar' != other.file_name


def test_the_pins_of_this_checkout_can_be_read():
  space = Workspace(pathlib.Path(__file__).resolve().parents[2])
  for path in sorted((space.stack / 'maven').glob('*.toml')):
    assert maven.load(space, path.stem).roots
