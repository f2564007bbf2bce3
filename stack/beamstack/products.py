"""What the series builds in Java: each product with its modules and jars."""

import dataclasses

from beamstack import flinkconf
from beamstack import parts
from beamstack import sparkconf
from beamstack.errors import CannotRun
from beamstack.series import Series


@dataclasses.dataclass(frozen=True)
class Product:
  """One jar that is built, and what its Java is compiled and tested on.

  Attributes:
    name: of the jar in dist, without its suffix, and of logs.
    parts: the modules whose files it holds. A module may be in more than one
      product: it is compiled on the jars of each.
    released: the set of jars, below stack/maven, that it is laid over, or
      put before on a class path.
    tools: the set of jars that only compiling and testing needs.
    main: the class that runs; empty for a library.
    options: what Java is given to run it, or its tests.
    release: the oldest Java that it runs on.
    processors: the set of jars with what javac runs over its sources.
  """

  name: str
  parts: tuple[parts.Part, ...]
  released: str
  main: str = ''
  options: tuple[str, ...] = ()
  tools: str = 'java-tests'
  release: str = '11'
  processors: str = ''

  def holds(self, path: str) -> bool:
    return any(part.holds(path) for part in self.parts)


FLINK = Product(
    name='beam-flink-job-server',
    parts=(parts.JAVA_FN_EXECUTION, parts.FLINK),
    released='flink-job-server',
    main='org.apache.beam.runners.flink.FlinkJobServerDriver',
    options=flinkconf.JAVA_OPTIONS)
SPARK = Product(
    name='beam-spark-job-server',
    parts=(parts.JAVA_FN_EXECUTION, parts.SPARK),
    released='spark-job-server',
    main='org.apache.beam.runners.spark.SparkJobServerDriver',
    options=sparkconf.JAVA_OPTIONS)
JAVA_SDK = Product(
    name='beam-sdks-java-watch',
    parts=(parts.JAVA_CORE, ),
    released='java-direct',
    tools='java-direct-tests',
    # That of the released jar, which it is put before.
    release='8',
    processors='java-processors')
ALL = (FLINK, SPARK, JAVA_SDK)


def of_test(series: Series, test: str) -> Product:
  """The product on whose jars a class of tests runs: the first with its file.

  Args:
    series: what has the file.
    test: the class, with its package.
  """
  ending = '/' + test.replace('.', '/') + '.java'
  for product in ALL:
    for path in series.files():
      if path.endswith(ending) and product.holds(path):
        return product
  raise CannotRun(
      f'no file of the series is {test}', 'mend the tests of series.toml')
