"""Java on pages: each block has one place, and errors tell the page's line.

That the blocks compile is shown by `./beamstack java --test`.
"""

import textwrap

from beamstack import javadocs
from beamstack.errors import Problem

PAGE = 'website/www/page.md'
UNIT = 'stack/docs/page.java'


def _write(root, **files):
  for name, text in files.items():
    path = root / {'page': PAGE, 'unit': UNIT}[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


def _page(root):
  _write(
      root,
      page='''\
        # A page

        ```java
        int a = 1;
        int b = 2;
        ```

        ```python
        nothing_of_java()
        ```

          ```java
          class C {}
          ```
        ''')


def test_blocks_go_to_their_places(tmp_path):
  _page(tmp_path)
  _write(
      tmp_path,
      unit=f'''\
        class Page {{
          void run() {{
            // block 1 of {PAGE}
          }}
          // block 2 of {PAGE}
        }}
        ''')
  (unit, ), problems = javadocs.units(tmp_path)
  assert problems == []
  assert unit.file == UNIT
  assert unit.source().decode() == (
      'class Page {\n  void run() {\nint a = 1;\nint b = 2;\n  }\n'
      'class C {}\n}\n')
  assert unit.places == (
      f'{UNIT}:1', f'{UNIT}:2', f'{PAGE}:4', f'{PAGE}:5', f'{UNIT}:4',
      f'{PAGE}:13', f'{UNIT}:6')


def test_a_block_without_a_place(tmp_path):
  _page(tmp_path)
  _write(tmp_path, unit=f'// block 2 of {PAGE}\n')
  _, problems = javadocs.units(tmp_path)
  assert [problem.where for problem in problems] == [f'{PAGE}:4']
  assert problems[0].next.endswith(f'// block 1 of {PAGE}')


def test_a_place_without_a_block(tmp_path):
  """Also a second place of one."""
  _page(tmp_path)
  _write(
      tmp_path,
      unit=f'''\
        // block 1 of {PAGE}
        // block 1 of {PAGE}
        // block 2 of {PAGE}
        // block 3 of {PAGE}
        ''')
  _, problems = javadocs.units(tmp_path)
  assert [problem.where for problem in problems] == [f'{UNIT}:2', f'{UNIT}:4']


def test_errors_are_told_where_a_reader_sees_them(tmp_path):
  _page(tmp_path)
  _write(tmp_path, unit=f'// of it\n// block 1 of {PAGE}\n')
  found, _ = javadocs.units(tmp_path)
  for where, told in [(f'{UNIT}:1', f'{UNIT}:1'), (f'{UNIT}:3', f'{PAGE}:5'),
                      ('javac', 'javac'), ('other.java:1', 'other.java:1')]:
    problem = javadocs.at_reader(Problem(where, 'wrong', 'mend it'), found)
    assert problem == Problem(told, 'wrong', 'mend it')
