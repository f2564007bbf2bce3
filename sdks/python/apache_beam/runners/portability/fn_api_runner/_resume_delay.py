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

"""How FnApiRunner honours the resume delay that a residual asks for.

Purpose: a residual with a delay is parked instead of made ready at once. The
runner does whatever else is ready, then waits for the earliest residual.

Guarantees:
  - A residual is resumed once, not before its delay is over, whatever the
    delays of its stage's other residuals are. If nothing else runs then, it is
    resumed at most 10 ms later.
  - Other ready work goes first, but never keeps out a residual that is due.
  - While something is parked, the job goes on, and nothing downstream of it
    starts that waits for its completion.
  - Waiting costs no CPU, and a signal such as Ctrl-C ends it.

Threads: all of this runs in the thread that runs the stages.
"""

# mypy: disallow-untyped-defs

import itertools
import logging
import math
import time
from typing import Callable
from typing import Iterable
from typing import Union

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.direct.clock import RealClock
from apache_beam.runners.direct.clock import TestClock
from apache_beam.runners.portability.fn_api_runner import execution
from apache_beam.runners.portability.fn_api_runner import translations
from apache_beam.runners.worker import bundle_processor
from apache_beam.utils import timestamp

_LOGGER = logging.getLogger(__name__)

# time.sleep() refuses numbers that a protobuf Duration may well hold.
_LONGEST_SLEEP_SECS = 3600.0

# The residuals of one bundle ask for delays that differ by microseconds, since
# each counts from a moment of its own. So that they share a bundle again, due
# times are rounded up to multiples of this, unless the delay is a short one.
_GRID_SECS = 0.01
_SHORT_DELAY_SECS = 0.2


def park_delayed(
    context: execution.FnApiRunnerExecutionContext,
    bundle_context_manager: execution.BundleContextManager,
    result: beam_fn_api_pb2.InstructionResponse,
    splits: Iterable[beam_fn_api_pb2.ProcessBundleSplitResponse]) -> None:
  """Moves a bundle's delayed residuals from its responses to the parked ones.

  Called: once per bundle, when the worker has answered. The delays count from
  here, the moment at which the runner got to know of them.

  What asks for no delay stays in `result` and `splits`.
  """
  now = _now(context.clock)
  responses = itertools.chain([result.process_bundle], splits)
  for roots in [response.residual_roots for response in responses]:
    delayed = [i for i, root in enumerate(roots) if _delay_secs(root) > 0]
    for i in delayed:
      application = roots[i].application
      context.delayed.park(
          _due(now, _delay_secs(roots[i])),
          bundle_context_manager.stage.name,
          bundle_context_manager.input_for(
              application.transform_id, application.input_id),
          application.element)
    for i in reversed(delayed):
      del roots[i]


def schedule(
    context: execution.FnApiRunnerExecutionContext,
    schedule_ready_bundles: Callable[[execution.FnApiRunnerExecutionContext],
                                     None]
) -> None:
  """Makes work ready; waits if all that is left is parked.

  Called: after each bundle.

  Args:
    context: of the running pipeline.
    schedule_ready_bundles: makes ready what waited for watermarks and timers.
  """
  ready = context.queues.ready_inputs
  _hold_watermarks(context)
  if not len(ready):
    schedule_ready_bundles(context)
  # Even while other work is ready: a source that is always busy would
  # otherwise keep the others from ever being resumed.
  _resume_due(context)
  while not len(ready) and len(context.delayed):
    _wait_for_next(context)
    schedule_ready_bundles(context)
    _resume_due(context)


def _resume_due(context: execution.FnApiRunnerExecutionContext) -> None:
  """Makes ready what is due; a stage's due residuals share one bundle."""
  if not len(context.delayed):
    return
  due = context.delayed.take_due(_now(context.clock))
  for stage_name, elements_by_input in due.items():
    manager = context.bundle_manager_for(context.stages[stage_name])
    data: dict[str, execution.PartitionableBuffer] = {}
    # The worker expects data, if only none, on each input of the stage.
    for name, transform in (
        manager.process_bundle_descriptor.transforms.items()):
      if transform.spec.urn == bundle_processor.DATA_INPUT_URN:
        data[name] = execution.ListBuffer(
            coder_impl=manager.get_input_coder_impl(name))
    for name, elements in elements_by_input.items():
      for element in elements:
        data[name].append(element)
    context.queues.ready_inputs.enque(
        (stage_name, translations.DataInput(data, {})))


def _hold_watermarks(context: execution.FnApiRunnerExecutionContext) -> None:
  """Holds back the watermarks around the inputs that are partly parked.

  Without delays nothing is ever scheduled before all residuals are through,
  so a stage may look complete for a while without any harm. It must not once
  there is scheduling between two resumptions: a bundle of which all that is
  left is parked, or another bundle of its stage, has just moved the watermarks
  to the end. The last bundle of the stage moves them there again.
  """
  if not len(context.delayed):
    return
  watermarks = context.watermark_manager
  for stage_name, input_name in context.delayed.held_inputs():
    _, pcoll_name = translations.split_buffer_id(
        context.input_transform_to_buffer_id[input_name])
    watermarks.get_pcoll_node(pcoll_name).hold()
    # Its consumers look at either, by whether it has one producer or several.
    for output in watermarks.get_stage_node(stage_name).outputs:
      output.set_produced_watermark(timestamp.MIN_TIMESTAMP)


def _wait_for_next(context: execution.FnApiRunnerExecutionContext) -> None:
  """Waits until the next residual is due, or a little less."""
  next_due = context.delayed.next_due()
  assert next_due is not None
  wait = next_due - _now(context.clock)
  if wait <= 0:
    return
  _LOGGER.debug('Nothing is ready. Waiting %g s: %r', wait, context.delayed)
  if isinstance(context.clock, TestClock):
    # Nobody else moves this clock on while nothing else is ready.
    context.clock.advance_time(timestamp.Duration(micros=_micros(wait)))
  else:
    time.sleep(min(wait, _LONGEST_SLEEP_SECS))


def _now(clock: Union[RealClock, TestClock]) -> float:
  # Real delays are measured by a clock that nobody sets.
  return clock.time() if isinstance(clock, TestClock) else time.monotonic()


def _due(now: float, delay: float) -> float:
  due = now + delay
  if delay < _SHORT_DELAY_SECS:
    return due
  return math.ceil(due / _GRID_SECS) * _GRID_SECS


def _micros(secs: float) -> int:
  # Rounded up, since a clock that moves by nothing would never get there.
  return math.ceil(secs * 1000000)


def _delay_secs(root: beam_fn_api_pb2.DelayedBundleApplication) -> float:
  delay = root.requested_time_delay
  return delay.seconds + delay.nanos / 1e9

