# Licensed under the Apache License, Version 2.0: see LICENSE.
"""Tests of the Redis Streams benchmark's own logic; they need no Beam.

A script stands in for the Python that has Beam: it prints a RESULT. So does a
program for the server, that only listens.
"""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import redis_streams  # pylint: disable=wrong-import-position

SERVER = '''#!{python}
import socket, sys
at = sys.argv.index('--port')
listener = socket.create_server(('127.0.0.1', int(sys.argv[at + 1])))
while True:
  listener.accept()[0].close()
'''
PYTHON = '''#!{python}
import json, sys
request = json.loads(sys.argv[2])
rate = {client} if request['what'] == 'client' else {ours}
print('RESULT ' + json.dumps(dict(
    entries_per_cpu_s=rate, cpu_s=1, wall_s=1, python='3', redis='8',
    beam='' if request['what'] == 'client' else '2.75.0+stack.1')))
sys.exit({code})
'''


class RedisStreamsBenchTest(unittest.TestCase):
  def setUp(self):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)
    self.server = self.script('server', SERVER)

  def script(self, name, text, **values):
    path = self.folder / name
    path.write_text(text.format(python=sys.executable, **values))
    path.chmod(0o755)
    return str(path)

  def bench(self, client=50_000, ours=40_000, code=0, **options):
    python = self.script('python', PYTHON, client=client, ours=ours, code=code)
    arguments = {
        'ours': python, 'redis-server': self.server, 'out': self.folder / 'out',
        'entries': 10, 'repeats': 1, **options
    }
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
      code = redis_streams.main(
          [f'--{name}={value}' for name, value in arguments.items()])
    return code, out.getvalue(), err.getvalue()

  def test_writes_medians_and_says_that_targets_are_met(self):
    code, out, err = self.bench()
    self.assertEqual(0, code, err)
    self.assertIn('4 of 4 targets met', out)
    page = (self.folder / 'out' / 'redis_streams.md').read_text()
    self.assertIn('| 20 | 1,000 | 10,000 | 50.0 | 40.0 | 80 % |', page)
    self.assertIn('Beam 2.75.0+stack.1', page)
    lines = (self.folder / 'out' / 'redis_streams.jsonl').read_text()
    runs = [json.loads(line) for line in lines.splitlines()]
    self.assertEqual(8, len(runs))
    self.assertEqual(['client', 'ours'] * 4, [run['what'] for run in runs])

  def test_a_missed_target_fails_it(self):
    code, out, _ = self.bench(ours=29_900)
    self.assertEqual(1, code)
    self.assertIn('MISSED 60 %', out)
    self.assertIn('0 of 4 targets met', out)

  def test_a_failed_run_spoils_no_earlier_results(self):
    self.bench()
    before = (self.folder / 'out' / 'redis_streams.md').read_text()
    code, _, _ = self.bench(ours=1, code=3)
    self.assertEqual(1, code)
    self.assertEqual(
        before, (self.folder / 'out' / 'redis_streams.md').read_text())

  def test_without_a_server_it_says_what_to_install(self):
    code, _, err = self.bench(**{'redis-server': '/nowhere'})
    self.assertEqual(2, code)
    self.assertIn('apt-get install redis-server', err)

  def test_a_server_that_does_not_start_is_told(self):
    self.server = self.script('broken', '#!/bin/sh\nexit 1\n')
    code, _, err = self.bench()
    self.assertEqual(2, code)
    self.assertIn('does not start', err)


if __name__ == '__main__':
  unittest.main()
