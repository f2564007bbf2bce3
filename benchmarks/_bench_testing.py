# Licensed under the Apache License, Version 2.0: see LICENSE.
"""What tests of several benchmarks do."""

import contextlib
import io
import pathlib
import sys
import tempfile


def drive(main, name, script, *arguments):
  """Runs a driver with a script in place of all programs that it measures.

  Args:
    main: of the driver.
    name: what the names of its results begin with.
    script: in Python. Its path stands for PROGRAM in the arguments.
    arguments: of the driver, but for --out and --quick.

  Returns:
    The exit code, what was printed, what was told, and the results by name.
  """
  with tempfile.TemporaryDirectory() as folder:
    program = pathlib.Path(folder) / 'program'
    program.write_text(f'#!{sys.executable}\n{script}')
    program.chmod(0o755)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
      code = main([
          '--out', folder, '--quick',
          *(str(program) if a == 'PROGRAM' else a for a in arguments)
      ])
    files = {
        path.name: path.read_text()
        for path in pathlib.Path(folder).glob(f'{name}*')
    }
  return code, out.getvalue(), err.getvalue(), files
