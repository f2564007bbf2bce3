# Licensed under the Apache License, Version 2.0: see LICENSE.
"""One run of the Redis Streams benchmark, in a process of its own.

Gets a JSON object as its argument, prints its figures as `RESULT {json}`.
"""

import json
import platform
import sys
import time

import redis

STREAM, GROUP = 'measured', 'group'
_FILL = 1000


class Tally:
  """What has arrived: each entry once, or the run is worth nothing."""
  def __init__(self, entries):
    self.entries = entries
    self.count = 0
    self.sum = 0
    self.bytes = 0
    self.started = self.ended = None

  def start(self):
    if self.started is None:
      self.started = time.perf_counter(), time.process_time()

  def take(self, fields):
    self.count += 1
    self.sum += int(fields[b'n'])
    self.bytes += len(fields[b'text'])
    if self.count == self.entries:
      self.end()

  def end(self):
    self.ended = time.perf_counter(), time.process_time()

  def figures(self, size):
    n = self.entries
    if (self.count, self.sum, self.bytes) != (n, n * (n - 1) // 2, n * size):
      raise SystemExit('%d of %d entries arrived' % (self.count, n))
    wall, cpu = (end - start for start, end in zip(self.started, self.ended))
    return {
        'wall_s': wall,
        'cpu_s': cpu,
        'entries_per_cpu_s': n / cpu,
        'python': platform.python_version(),
        'redis': redis.__version__,
    }


def fill(client, entries, size):
  text = 'x' * size
  for start in range(0, entries, _FILL):
    pipeline = client.pipeline(transaction=False)
    for number in range(start, min(start + _FILL, entries)):
      pipeline.xadd(STREAM, {'n': number, 'text': text})
    pipeline.execute()


def read_by_client(client, request, tally):
  client.xgroup_create(STREAM, GROUP, '0')
  tally.start()
  while True:
    reply = client.xreadgroup(
        GROUP, 'me', {STREAM: '>'}, count=request['count'])
    if not reply:
      break
    (_, entries), = reply
    for _, fields in entries:
      tally.take(fields)
    client.xack(STREAM, GROUP, *(entry_id for entry_id, _ in entries))
  tally.end()


def read_by_beam(client, request, tally):
  # Here, so that the client's run does not pay for it.
  import _redis_streams_pipeline as pipeline
  client.set('end', 1)
  pipeline.run(request, STREAM, GROUP, tally)
  import apache_beam
  try:
    from importlib import metadata
    return metadata.version('apache-beam')
  except metadata.PackageNotFoundError:
    return apache_beam.__version__


def main():
  request = json.loads(sys.argv[1])
  client = redis.Redis(port=request['port'], protocol=2)
  fill(client, request['entries'], request['bytes'])
  tally = Tally(request['entries'])
  beam = ''
  if request['what'] == 'client':
    read_by_client(client, request, tally)
  else:
    beam = read_by_beam(client, request, tally)
  pending = client.xpending(STREAM, GROUP)['pending']
  if pending > request['cap']:
    raise SystemExit('%d entries were not acknowledged' % pending)
  figures = tally.figures(request['bytes'])
  print('RESULT ' + json.dumps(dict(figures, beam=beam, pending=pending)))


if __name__ == '__main__':
  main()
