"""Spark: Beam's own tests of its Python runners, those that it skips for Spark.

Purpose: Beam's class of tests for this runner leaves out what the released job
server cannot do. Here these run, on the job server of the series.

Left out still is `test_register_finalizations`: its DoFn goes on until it sees
itself finalized. On Spark nothing is finalized before the task has succeeded,
and that DoFn is a part of the task.
"""

import pytest
from apache_beam.runners.portability import portable_runner_test
from apache_beam.runners.portability import spark_runner_test

RUN = (
    'test_callbacks_with_exception',
    'test_sdf',
    'test_sdf_synthetic_source',
    'test_sdf_with_dofn_as_watermark_estimator',
    'test_sdf_with_sdf_initiated_checkpointing',
    'test_sdf_with_watermark_tracking',
)


class _OnJobServer:
  """Beam's class, on a job server that runs already."""

  @pytest.fixture(autouse=True)
  def parse_options(self, job_server):
    type(self).port = job_server.port
    self.environment_type = 'LOOPBACK'
    self.environment_options = None

  @classmethod
  def _get_job_endpoint(cls):
    return f'localhost:{cls.port}'


def _beams_own():
  """The class; pytest would also run Beam's own if it had a name here."""
  beams = spark_runner_test.SparkRunnerTest
  return type(
      'BeamsOwnTest', (_OnJobServer, beams), {
          # pytest leaves out what is None.
          **dict.fromkeys(n for n in dir(beams) if n.startswith('test_')),
          # As Beam's class for all portable runners has them.
          **{
              name: getattr(portable_runner_test.PortableRunnerTest, name)
              for name in RUN
          },
          '__module__': __name__,
      })


BeamsOwnTest = _beams_own()
