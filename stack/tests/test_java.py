"""Java: modules are parts, edits find their places, jars are laid together.

Nothing here runs a Java: what compiles and what JUnit says is shown by the
step of `./beamstack test` that does it.
"""

import pathlib
import zipfile

import made_up
import pytest

from beamstack import bases
from beamstack import edits
from beamstack import jars
from beamstack import javabuild
from beamstack import javasdk
from beamstack import jobserver
from beamstack import maven
from beamstack import overlay
from beamstack import parts
from beamstack import products
from beamstack import pytests
from beamstack import tree
from beamstack.errors import CannotRun
from beamstack.errors import Problem
from beamstack.errors import ProblemsFound

FOLDER = 'runners/flink/src/main/java/'
READER = FOLDER + 'org/x/Reader.java'
OWN = FOLDER + 'org/x/Counter.java'
SOURCE = '''package org.x;

import java.util.List;
import java.util.Map;

/** Reads. */
public class Reader {
  private final int size = 1;

  public int read(int most) {
    int data = size; // Some.
    return data;
  }

  public void close() {}
}
'''


def _jar(path, files):
  with zipfile.ZipFile(path, 'w') as archive:
    for name, content in files.items():
      archive.writestr(name, content)
  return path


def _base(folder, **files):
  return bases.SourcesBase(
      '2.70.0', parts.FLINK,
      _jar(
          folder / 'x-sources.jar',
          {
              'META-INF/MANIFEST.MF': 'Manifest-Version: 1.0\n',
              'log4j.properties': 'a=b\n',
              'org/x/Reader.java': SOURCE,
              **files
          }))


def _edit(**changes):
  standard = {
      'name': 'count',
      'file': READER,
      'rule': {
          'rule': {
              'kind': 'method_declaration',
              'has': {
                  'field': 'name', 'regex': '^read$'
              }
          }
      },
      'text': 'Counter.count();\n'
  }
  return made_up.edit(**{**standard, **changes})


def test_modules_in_java_are_parts():
  assert parts.part_of(READER) is parts.FLINK
  assert parts.part_of('runners/flink/src/test/java/org/x/ATest.java') is (
      parts.FLINK)
  other = 'runners/java-fn-execution/src/main/java/org/x/A.java'
  assert parts.part_of(other) is parts.JAVA_FN_EXECUTION
  assert parts.part_of('runners/samza/src/main/java/org/x/A.java') is None


def test_a_base_of_sources_holds_what_the_repository_holds(tmp_path):
  base = _base(tmp_path)
  assert base.paths() == [READER]
  assert base.read(READER) == SOURCE.encode()
  assert base.read(OWN) is None
  assert base.compiled_sibling(READER) == ''


def test_an_edit_of_java_is_put_where_it_belongs():
  found = edits.apply(SOURCE, parts.FLINK, _edit())
  assert found == SOURCE.replace(
      'most) {\n', 'most) {\n    Counter.count();\n')


def test_imports_and_statements_of_java_are_removed_whole():
  rule = {'rule': {'kind': 'import_declaration', 'regex': r'\.(List|Map);'}}
  found = edits.apply(
      SOURCE, parts.FLINK,
      _edit(rule=rule, place='replace', text='', matches=2))
  assert 'import' not in found and found.count('\n') == SOURCE.count('\n') - 2
  rule = {'rule': {'kind': 'local_variable_declaration'}}
  found = edits.apply(
      SOURCE, parts.FLINK, _edit(rule=rule, place='replace', text=''))
  assert 'Some' not in found and '    return data;' in found


def test_a_method_of_java_can_follow_another():
  rule = {
      'rule': {
          'kind': 'method_declaration',
          'has': {
              'field': 'name', 'regex': '^close$'
          }
      }
  }
  found = edits.apply(
      SOURCE, parts.FLINK,
      _edit(rule=rule, place='after', text='\nint more() {\n  return 2;\n}\n'))
  assert found.endswith(
      'close() {}\n\n  int more() {\n    return 2;\n  }\n}\n')


def test_java_that_does_not_parse_is_a_problem(tmp_path):
  series = made_up.series(
      tmp_path,
      made_up.pull_request(edits=(_edit(text='count(;\n'), )))
  result = overlay.apply_series(series, [_base(tmp_path)])
  assert [p.where for p in result.problems] == [READER]


def test_java_files_and_edits_are_in_the_commits(tmp_path):
  made_up.write(tmp_path, OWN, 'package org.x;\n\nclass Counter {}\n')
  series = made_up.series(
      tmp_path, made_up.pull_request(files=(OWN, ), edits=(_edit(), )))
  tree.lay_out(series, [_base(tmp_path)], tmp_path / 'tree')
  assert 'Counter.count();' in (tmp_path / 'tree' / READER).read_text()
  assert (tmp_path / 'tree' / OWN).is_file()


def test_pins_of_sources_are_read(tmp_path):
  made_up.write(
      tmp_path, 'base.toml', '\n'.join(
          [
              '[[base]]', 'part = "python"', 'kind = "wheel"',
              'package = "p"', 'version = "1"', 'wheel = []', '[[base]]',
              'part = "go"', 'kind = "module"', 'module = "m"',
              'version = "1"', 'sum = "s"', 'go-mod-sum = "g"', '[[base]]',
              'part = "flink"', 'kind = "sources"', 'artifact = "a:b"',
              'version = "2"', 'sha256 = "0"'
          ]))
  pins = bases.load_pins(tmp_path / 'base.toml')
  assert pins.sources == (
      bases.SourcesPin(parts.FLINK, '2', 'a:b', '0'), )
  text = (tmp_path / 'base.toml').read_text()
  (tmp_path / 'base.toml').write_text(text.replace('"flink"', '"samza"'))
  with pytest.raises(CannotRun, match='unknown'):
    bases.load_pins(tmp_path / 'base.toml')


def test_jars_are_laid_together(tmp_path):
  one = _jar(
      tmp_path / 'one.jar', {
          'META-INF/MANIFEST.MF': 'Main-Class: One\n',
          'META-INF/ONE.SF': 'signed',
          'META-INF/services/org.x.S': '# What for.\norg.x.A\n',
          'module-info.class': 'm',
          'META-INF/versions/9/module-info.class': 'm',
          'reference.conf': 'a = 1',
          'same': 'of one' * 100,
          'only/': '',
          'only/one': ''
      })
  two = _jar(
      tmp_path / 'two.jar', {
          'META-INF/services/org.x.S': 'org.x.A\norg.x.B # Two.',
          'reference.conf': 'b = 2\n',
          'same': 'of two'
      })
  made = [tmp_path / name for name in ('made.jar', 'again.jar')]
  for path in made:
    jars.merge([one, two], path, {'Main-Class': 'X' * 80})
  assert made[0].read_bytes() == made[1].read_bytes()
  with zipfile.ZipFile(made[0]) as archive:
    assert archive.testzip() is None
    found = {name: archive.read(name) for name in archive.namelist()}
  assert set(found) == {
      'META-INF/MANIFEST.MF', 'META-INF/services/org.x.S', 'reference.conf',
      'same', 'only/', 'only/one'
  }
  assert found['META-INF/services/org.x.S'] == b'org.x.A\norg.x.B\n'
  assert found['reference.conf'] == b'a = 1\nb = 2\n'
  assert found['same'] == b'of one' * 100
  assert max(map(len, found['META-INF/MANIFEST.MF'].split(b'\r\n'))) <= 72
  assert jars.attribute(made[0], 'Main-Class') == 'X' * 80
  assert jars.attribute(made[0], 'Missing') == ''


def test_files_alone_make_a_jar(tmp_path):
  made = [tmp_path / name for name in ('made.jar', 'again.jar')]
  for path in made:
    jars.write({'b': b'2', 'a/A.class': b'1'}, path, {'Beam-Series': 's.1'})
  assert made[0].read_bytes() == made[1].read_bytes()
  assert jars.names(made[0]) == [jars.MANIFEST, 'a/A.class', 'b']
  assert jars.attribute(made[0], 'Beam-Series') == 's.1'


def test_classes_are_laid_over_a_jar(tmp_path):
  jar = tmp_path / 'base.jar'
  jars.merge([
      _jar(
          tmp_path / 'one.jar', {
              'org/x/A.class': 'old',
              'org/x/A$Gone.class': 'old',
              'org/x/AB.class': 'stays'
          })
  ], jar, {'Beam-Series': 'none'})
  compiled = {'org/x/A.class': b'new', 'org/x/A$In.class': b'new'}
  assert jobserver.stale(jar, compiled) == {'org/x/A.class', 'org/x/A$Gone.class'}
  target = tmp_path / 'laid.jar'
  jars.lay_over(
      jar, compiled, target, {'Beam-Series': 'stack.1'},
      jobserver.stale(jar, compiled))
  with zipfile.ZipFile(target) as archive:
    assert archive.testzip() is None
    assert sorted(archive.namelist()) == [
        'META-INF/MANIFEST.MF', 'org/x/A$In.class', 'org/x/A.class',
        'org/x/AB.class'
    ]
    assert archive.read('org/x/A.class') == b'new'
  assert jars.attribute(target, 'Beam-Series') == 'stack.1'


def test_the_label_names_what_was_compiled(tmp_path):
  series = made_up.series(tmp_path, made_up.pull_request())
  assert javabuild.label(series, {}) == 'none'
  one = javabuild.label(series, {'A.class': b'1'})
  assert one.startswith('stack.') and one == javabuild.label(
      series, {'A.class': b'1'})
  assert one != javabuild.label(series, {'A.class': b'2'})


class _Space:
  """Commands in the place of a JDK, that do what the test says."""

  def __init__(self, root, monkeypatch):
    self.bin = root / 'bin'
    self.bin.mkdir()
    self.space = javabuild.Workspace(root / 'checkout')
    self.space.work.mkdir(parents=True)
    monkeypatch.setenv('PATH', f'{self.bin}:/usr/bin:/bin')
    monkeypatch.setattr(javabuild, 'class_path', lambda *a: [])

  def tool(self, name, text):
    path = self.bin / name
    path.write_text('#!/bin/sh\n' + text)
    path.chmod(0o755)


@pytest.fixture(name='jdk')
def _jdk(tmp_path, monkeypatch):
  return _Space(tmp_path, monkeypatch)


def test_what_javac_finds_are_problems_of_the_file(jdk):
  jdk.tool('javac', 'echo "a/A.java:3: error: no such thing"; exit 1')
  with pytest.raises(ProblemsFound) as caught:
    javabuild.compile_all(jdk.space, products.FLINK, {'a/A.java': b''})
  assert [(p.where, p.what) for p in caught.value.problems] == [
      ('a/A.java:3', 'no such thing')
  ]


def test_tests_are_compiled_for_tests_alone(jdk):
  jdk.tool(
      'javac',
      'for a; do [ "$p" = -d ] && d=$a; p=$a; done\n'
      'for f in $(find . -name "*.java"); do touch $d/$(basename $f).class; '
      'done\n')
  found = {'a/src/main/A.java': b'', 'a/src/test/ATest.java': b''}
  assert set(javabuild.compile_all(jdk.space, products.FLINK, found)) == {'A.java.class'}
  assert set(javabuild.compile_all(jdk.space, products.FLINK, found, tests=True)) == {
      'A.java.class', 'ATest.java.class'
  }
  assert javabuild.compile_all(jdk.space, products.FLINK, {}) == {}


def test_processors_run_where_a_product_names_some(jdk, monkeypatch):
  jdk.tool('javac', 'echo "a/A.java:1: error: $*"; exit 1')
  monkeypatch.setattr(maven, 'classpath', lambda space, name: f'{name}.jar')
  said = {}
  for product in (products.FLINK, products.JAVA_SDK):
    with pytest.raises(ProblemsFound) as caught:
      javabuild.compile_all(jdk.space, product, {'a/A.java': b''})
    said[product] = caught.value.problems[0].what
  assert '-proc:none' in said[products.FLINK]
  assert '-proc:none' not in said[products.JAVA_SDK]
  assert '-processorpath java-processors.jar' in said[products.JAVA_SDK]
  assert '--release 8 ' in said[products.JAVA_SDK]


def test_beams_own_tests_are_those_of_what_the_series_changes(tmp_path):
  path = 'sdks/java/core/src/test/java/org/x/OursTest.java'
  series = made_up.series(
      tmp_path,
      made_up.pull_request(
          name='sdk', files=(path, ),
          tests=('java:org.x.OursTest', 'some.module'),
          upstream_tests=('java:org.x.BeamTest', )),
      made_up.pull_request(
          name='flink', files=(OWN, ),
          upstream_tests=('java:org.x.FlinkTest', )))
  assert javasdk.test_classes(series) == (['org.x.OursTest'],
                                          ['org.x.BeamTest'])


@pytest.mark.parametrize(
    'again, released, expected', [
        ('passed', None, (2, 0, 0)),
        ('failed', 'failed', (1, 0, 1)),
        ('failed', 'passed', (1, 1, 0)),
    ])
def test_beams_own_tests_are_tried_again_and_on_the_released(
    again, released, expected):
  said = {'-theirs': 'failed', '-theirs-again': again,
          '-theirs-released': released}
  asked = []

  def run(classes, name, released=False):
    asked.append((name, classes, released))
    states = {f'{one}::t': 'passed' for one in classes}
    states['org.x.B::t'] = said[name]
    problems = [
        Problem('j', f'{test} failed', '') for test, state in states.items()
        if state == 'failed'
    ]
    return pytests.Result(pytests.count(states), states, problems, '')

  result = javasdk.patiently(run, ['org.x.A', 'org.x.B'])
  counts = result.counts
  assert (counts.passed, counts.failed, counts.skipped) == expected
  assert bool(result.problems) == bool(counts.failed)
  assert asked[1] == ('-theirs-again', ['org.x.B'], False)
  assert [name for name, _, _ in asked[2:]] == (
      ['-theirs-released'] if released else [])


REPORT = '''<testsuite><testcase classname="org.x.ATest" name="good"/>
<testcase classname="org.x.ATest" name="bad"><failure/></testcase></testsuite>
'''


def _junit(jdk, tmp_path, monkeypatch, report, code):
  (tmp_path / 'report.xml').write_text(report)
  monkeypatch.setattr(
      javabuild, 'compile_all', lambda *a, **k: {'A.class': b''})
  monkeypatch.setattr(javabuild, 'sources', lambda *a: {})
  monkeypatch.setattr(products, 'of_test', lambda *a: products.FLINK)
  jdk.tool(
      'java',
      'for a; do case $a in --reports-dir=*) d=${a#*=};; esac; done\n'
      f'mkdir -p $d; cp {tmp_path}/report.xml $d/TEST-junit.xml; exit {code}\n')
  return javabuild.run_tests(
      jdk.space, made_up.series(tmp_path), None, ['org.x.ATest'], 'java')


def test_what_junit_reports_is_counted(jdk, tmp_path, monkeypatch):
  result = _junit(jdk, tmp_path, monkeypatch, REPORT, 1)
  assert result.counts == pytests.Counts(passed=1, failed=1)
  assert [p.what for p in result.problems] == ['org.x.ATest::bad failed']


def test_a_class_of_which_nothing_ran_is_a_problem(
    jdk, tmp_path, monkeypatch):
  result = _junit(jdk, tmp_path, monkeypatch, '<testsuite/>', 0)
  assert result.counts.failed == 1
  assert 'no test of it ran' in result.problems[0].what


def test_java_is_not_fetched_for_a_series_without_java(tmp_path):
  series = made_up.series(tmp_path, made_up.pull_request())
  space = javabuild.Workspace(pathlib.Path('/nowhere'))
  assert javabuild.sources(space, series, None, products.FLINK) == {}


def test_a_class_of_tests_runs_on_the_jars_of_its_module(tmp_path):
  folder = 'runners/{}/src/test/java/org/x/{}Test.java'
  files = [folder.format(*words) for words in (
      ('flink', 'A'), ('spark', 'B'), ('java-fn-execution', 'C'))]
  series = made_up.series(tmp_path, made_up.pull_request(files=files))
  assert [
      products.of_test(series, f'org.x.{name}Test').name for name in 'ABC'
  ] == ['beam-flink-job-server', 'beam-spark-job-server',
        'beam-flink-job-server']
  with pytest.raises(CannotRun, match='no file of the series is org.x.DTest'):
    products.of_test(series, 'org.x.DTest')
