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


"""What tests need to run pipelines elsewhere than in their own process.

``PRISM_LOCATION`` names the binary of Prism, ``OTHER_BEAM_PYTHON`` a Python
with a newer Beam. Tests that need one are skipped without it.
"""

import os
import subprocess
import sys
import tempfile
import unittest

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

PRISM = os.environ.get('PRISM_LOCATION')
OTHER_PYTHON = os.environ.get('OTHER_BEAM_PYTHON')

needs_prism = unittest.skipUnless(PRISM, 'PRISM_LOCATION is not set')
needs_other_python = unittest.skipUnless(
    OTHER_PYTHON, 'OTHER_BEAM_PYTHON is not set')


def prism_options() -> PipelineOptions:
  return PipelineOptions([
      '--runner=PrismRunner',
      f'--prism_location={PRISM}',
      '--environment_type=LOOPBACK',
      # Else it would be the server of whichever test came first.
      '--experiments=disable_prism_server_singleton',
  ])


def prism_pipeline() -> beam.Pipeline:
  return beam.Pipeline(options=prism_options())


def run_main_script(text: str, *arguments: str) -> str:
  """Runs a program as the main script of a process; returns what it prints."""
  with tempfile.TemporaryDirectory() as folder:
    script = os.path.join(folder, 'main_script.py')
    with open(script, 'w') as f:
      f.write(text)
    done = subprocess.run([sys.executable, script, *arguments],
                          capture_output=True,
                          text=True,
                          timeout=120,
                          check=False,
                          cwd=folder)
  return done.stdout + done.stderr
