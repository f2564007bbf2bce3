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

"""Says so when a worker has another module in this one's place.

Purpose: a pipeline's DoFns and coders reach the worker as pickles that refer
  to this package by name. A worker container of another Beam release may hold
  other code under that name (2.76 and later ship a module
  ``apache_beam.io.unbounded_source`` of their own) or none. Reading with that
  would be wrong, or fail with a bare "no attribute".
Guarantees: unpickling a :class:`Guarded` object on such a worker raises an
  error that says what is there, what was expected and how to mend it.
"""

# What the pickled bytes of the DoFns and coders mean. To be raised when an
# object pickled by an older release could no longer be used by this one.
PROTOCOL = 1

_REMEDY = (
    'Install the same wheel on the workers as where the pipeline was '
    'submitted (a custom container, or --extra_package), or submit with the '
    'Beam release that the workers have.')


def loader(protocol, public):
  """The function that makes a :class:`Guarded` object from its pickle.

  Called on the worker, before the class is looked up by name.

  Args:
    protocol: of the one who submitted the pipeline.
    public: the module that the pipeline uses.
  """
  if protocol != PROTOCOL:
    from apache_beam.io._unbounded_errors import WorkerModuleError
    raise WorkerModuleError(
        f'This pipeline was submitted with another version of {public} than '
        f'the one on this worker (protocol {protocol}, here {PROTOCOL}). '
        f'{_REMEDY}')
  return _make


def _make(cls, state):
  made = cls.__new__(cls)
  made.__dict__.update(state)
  return made


class _Loader:
  """Stands for ``loader(PROTOCOL, public)`` in a pickle.

  By itself a pickle can only name a function, and a worker without this module
  could only answer that there is no such name. So what is pickled is an
  expression that looks for the module and raises an error of its own.
  """

  _EXPRESSION = (
      "(lambda found: __import__('importlib').import_module(found.name)"
      ".loader(%d, %r) if found else (_ for _ in ()).throw(RuntimeError(%r)))("
      "__import__('importlib.util').util.find_spec("
      "'apache_beam.io._unbounded_guard'))")

  def __init__(self, public):
    self._public = public

  def __call__(self, cls, state):  # What pickle asks of a reducing callable.
    return _make(cls, state)

  def __reduce__(self):
    told = (
        f'The {self._public} on this worker is not the one that this pipeline '
        f'was submitted with. {_REMEDY}')
    return eval, (self._EXPRESSION % (PROTOCOL, self._public, told), )


class Guarded:
  """Mixin for what is pickled into a pipeline: checks the worker's module.

  Attributes:
    public: the module that people know it by.
  """
  public = 'apache_beam.io.unbounded_source'

  def __reduce__(self):
    # Before Python 3.11 not every object has __getstate__; coders do, and
    # leave their unpicklable implementation out.
    getstate = getattr(self, '__getstate__', None)
    state = getstate() if getstate else self.__dict__
    return _Loader(self.public), (type(self), dict(state or {}))
