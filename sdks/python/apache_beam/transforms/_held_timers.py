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

"""Event-time timers that hold the watermark earlier than they fire.

A buffered element may come out once the watermark is past it, and has to come
out with its own time, or it is late. So the timer that lets it out fires after
that time and holds the watermark at it. The SDK's timers have both times in
their messages to the runner, but `set` gives both the same value.
"""

from apache_beam.transforms import userstate
from apache_beam.utils.timestamp import Timestamp


def set_held(
    timer: userstate.BaseTimer, tag: str, fire: int, hold: int) -> None:
  """Sets an event-time timer.

  A timer that is not the SDK worker's (the DirectRunner's that runs TestStream)
  gets no hold: what it lets out may be late there.

  Args:
    timer: as a TimerParam gives it.
    tag: its dynamic tag.
    fire: when it fires, in milliseconds since 1970.
    hold: up to where the watermark of the output may go until it has fired, in
      milliseconds. At most `fire`.
  """
  if not hasattr(timer, '_timer_coder_impl'):
    timer.set(Timestamp(micros=fire * 1000), dynamic_timer_tag=tag)
    return
  timer._timer_coder_impl.encode_to_stream(
      userstate.Timer(
          user_key=timer._key,
          dynamic_timer_tag=tag,
          windows=(timer._window, ),
          clear_bit=False,
          fire_timestamp=Timestamp(micros=fire * 1000),
          hold_timestamp=Timestamp(micros=hold * 1000),
          paneinfo=timer._paneinfo),
      timer._output_stream,
      True)
  timer._output_stream.maybe_flush()
