"""Runs the reader in the docstring of `apache_beam.io._unbounded_background`."""

# examples of sdks/python/apache_beam/io/_unbounded_background.py


def read(reader, count):
  given = []
  there = reader.start()
  while len(given) < count:
    if there:
      given.append(reader.get_current())
    if len(given) < count:
      there = reader.advance()
  return given


reader = Reader(None)
assert read(reader, 2) == ['a', 'b']
# All was fetched; the mark covers what was given.
mark = reader.get_checkpoint_mark()
assert mark.offset == 2
reader.close()

reader = Reader(mark)
assert read(reader, 1) == ['c']
Client.log.append('e')
while not reader.advance():
  pass
assert reader.get_current() == 'd'
while not reader.advance():
  time.sleep(reader.next_poll_delay() or 0.01)
assert reader.get_current() == 'e'
while not reader.idle:
  assert not reader.advance()
reader.close()
