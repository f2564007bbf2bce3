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

"""Tells the way of each user through a web server's log.

Made to be copied. A server writes a request into its log when it has answered,
with the time at which it came: a slow request is behind quick ones that came
later, and several servers' logs are anyhow side by side. Each request comes out
with the two before it of the same user, in the order in which they came::

  python -m apache_beam.examples.ordered_log_paths \\
      --input='/var/log/httpd/access_log*' --output=paths

Lines are in the Common Log Format, or in the Combined one, which has more at
the end::

  10.0.0.7 - ada [30/Nov/2026:10:00:01 +0000] "GET /cart HTTP/1.1" 200 512

The output has a JSON object a line, for instance::

  {"user": "ada", "time": "2026-11-30T10:00:01+00:00", "path": "/cart",
   "before": ["/", "/shoes"], "seconds": 12.0}

A user without a name is known by address. ``seconds`` have passed since the
request before; ``null`` if there is none. Lines that are no requests go to
files of their own, ``paths-bad``.

The log has whole seconds. Requests of one second are in the order in which they
stand in the log, as far as one worker reads them in one go; a log with
microseconds would do better.

``RequestPaths`` works on an unbounded source, too, if its watermark waits for
the slowest request: say so with ``allowed_lateness``. A request that is later
still is a bad line.
"""

import argparse
import datetime
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io import ReadFromText
from apache_beam.io import WriteToText
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.timestamp_buffer import OrderedProcess
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

# The tag of lines that have no place in the output.
BAD = 'bad'

_LINE = re.compile(
    r'(?P<host>\S+) \S+ (?P<user>\S+) \[(?P<time>[^]]+)\] '
    r'"[A-Z]+ (?P<path>\S+)[^"]*" \d{3} (\d+|-)( |$)')


class ParseLine(beam.DoFn):
  """Makes (user, path) of a line, at the time of the request."""
  def process(self, line: str) -> Iterator[Any]:
    match = _LINE.match(line)
    try:
      if not match:
        raise ValueError('not in the Common Log Format')
      time = datetime.datetime.strptime(match['time'], '%d/%b/%Y:%H:%M:%S %z')
    except ValueError:
      yield TaggedOutput(BAD, line)
      return
    user = match['host'] if match['user'] == '-' else match['user']
    yield TimestampedValue((user, match['path']), time.timestamp())


def path_to(
    user: str,
    timestamp: Timestamp,
    path: str,
    before: list[tuple[Timestamp, str]]) -> Iterator[str]:
  """Writes a request and the way to it as JSON."""
  seconds = float(timestamp - before[-1][0]) if before else None
  yield json.dumps({
      'user': user,
      'time': timestamp.to_utc_datetime(has_tz=True).isoformat(),
      'path': path,
      'before': [earlier for _, earlier in before],
      'seconds': seconds,
  })


class RequestPaths(beam.PTransform):
  """From lines of a log to JSON; `BAD` is the tag of what is none, or late.

  Args:
    allowed_lateness: seconds that a request of an unbounded log may be behind
      the watermark.
  """
  def __init__(self, allowed_lateness: float = 0) -> None:
    super().__init__()
    self._allowed_lateness = allowed_lateness

  def expand(self, lines):
    parsed = lines | beam.ParDo(ParseLine()).with_outputs(BAD, main='requests')
    requests = parsed.requests | beam.Map(
        lambda request: request).with_output_types(tuple[str, str])
    paths = requests | OrderedProcess(
        path_to,
        context_size=2,
        allowed_lateness=self._allowed_lateness,
        late_tag='late')
    late = paths.late | beam.Map(lambda request: 'late: %s %s' % request)
    return {
        'paths': paths.main,
        BAD: (parsed[BAD], late) | beam.Flatten(),
    }


def main(argv: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(
      description='Tells the way of each user through a log.')
  parser.add_argument(
      '--input', required=True, help='log files, a pattern as *.log')
  parser.add_argument(
      '--output', required=True, help='what the names of files begin with')
  args, others = parser.parse_known_args(argv)
  with beam.Pipeline(options=PipelineOptions(others)) as p:
    result = p | ReadFromText(args.input) | RequestPaths()
    _ = result['paths'] | 'WritePaths' >> WriteToText(args.output)
    _ = result[BAD] | 'WriteBad' >> WriteToText(args.output + '-bad')


if __name__ == '__main__':
  logging.getLogger().setLevel(logging.WARNING)
  main()
