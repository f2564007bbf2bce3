"""Lays many jars together into one that runs by itself, byte for byte.

What is compressed already is copied as it is: a job server is made of 200
jars, and to compress all of that anew takes half a minute.
"""

import copy
import pathlib
import re
import zipfile
from collections.abc import Iterable
from collections.abc import Mapping

MANIFEST = 'META-INF/MANIFEST.MF'
EPOCH = (1980, 1, 1, 0, 0, 0)
# Signatures are of jars that are no more; a module's description and an index
# would be of one of many.
_DROPPED = re.compile(
    r'META-INF/([^/]+\.(SF|DSA|RSA|EC)|INDEX\.LIST|MANIFEST\.MF)|'
    r'(META-INF/versions/\d+/)?module-info\.class')
# Files of which each jar may have its own, and all are wanted.
_JOINED = re.compile(r'META-INF/services/[^/]+|reference\.conf')
_LINE_BYTES = 72


def manifest(attributes: Mapping[str, str]) -> bytes:
  """The text of a manifest; long lines go on after a space."""
  lines = []
  for key, value in {'Manifest-Version': '1.0', **attributes}.items():
    line = f'{key}: {value}'
    while len(line) > _LINE_BYTES:
      lines.append(line[:_LINE_BYTES])
      line = ' ' + line[_LINE_BYTES:]
    lines.append(line)
  return ('\r\n'.join(lines) + '\r\n\r\n').encode('ascii')


def attribute(jar: pathlib.Path, name: str) -> str:
  """An attribute of a jar's manifest; empty if it has none."""
  with zipfile.ZipFile(jar) as archive:
    text = archive.read(MANIFEST).decode('utf-8')
  unfolded = re.sub(r'\r?\n ', '', text)
  found = re.search(rf'(?m)^{re.escape(name)}: (.*?)\r?$', unfolded)
  return found.group(1) if found else ''


def names(jar: pathlib.Path) -> list[str]:
  with zipfile.ZipFile(jar) as archive:
    return archive.namelist()


def merge(
    jars: Iterable[pathlib.Path],
    target: pathlib.Path,
    attributes: Mapping[str, str]) -> None:
  """Writes one jar with all that the jars hold.

  Of files of the same name the first is taken, as on a class path, but for
  those of which all count: services, and reference.conf. Folders are kept,
  even empty: programs look for some as a resource.
  """
  joined: dict[str, list[str]] = {}
  seen = {MANIFEST}
  with zipfile.ZipFile(target, 'w', zipfile.ZIP_DEFLATED) as merged:
    _write(merged, MANIFEST, manifest(attributes))
    for jar in jars:
      with zipfile.ZipFile(jar) as archive:
        for info in archive.infolist():
          name = info.filename
          if _DROPPED.fullmatch(name):
            continue
          if _JOINED.fullmatch(name):
            joined.setdefault(name, []).append(
                archive.read(name).decode('utf-8'))
          elif name not in seen:
            seen.add(name)
            _copy(archive, info, merged)
    for name, texts in sorted(joined.items()):
      _write(merged, name, _join(name, texts).encode('utf-8'))


def _join(name: str, texts: list[str]) -> str:
  if not name.startswith('META-INF/services/'):
    return '\n'.join(text.rstrip('\n') for text in texts) + '\n'
  lines = (
      line.partition('#')[0].strip() for text in texts
      for line in text.splitlines())
  return ''.join(f'{line}\n' for line in dict.fromkeys(filter(None, lines)))


def write(
    files: Mapping[str, bytes], target: pathlib.Path,
    attributes: Mapping[str, str]) -> None:
  """Writes a jar of files alone, by their names."""
  with zipfile.ZipFile(target, 'w', zipfile.ZIP_DEFLATED) as archive:
    _write(archive, MANIFEST, manifest(attributes))
    for name, data in sorted(files.items()):
      _write(archive, name, data)


def lay_over(
    jar: pathlib.Path,
    files: Mapping[str, bytes],
    target: pathlib.Path,
    attributes: Mapping[str, str],
    without: Iterable[str] = ()) -> None:
  """Writes a jar with files put in or in place of its own.

  Args:
    jar: what to begin with.
    files: what to put in, by name.
    target: the jar to write.
    attributes: the manifest's.
    without: names to leave out.
  """
  gone = {MANIFEST, *files, *without}
  with zipfile.ZipFile(jar) as archive, \
      zipfile.ZipFile(target, 'w', zipfile.ZIP_DEFLATED) as laid:
    _write(laid, MANIFEST, manifest(attributes))
    for info in archive.infolist():
      if info.filename not in gone:
        _copy(archive, info, laid)
    for name, data in sorted(files.items()):
      _write(laid, name, data)


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
  info = zipfile.ZipInfo(name, EPOCH)
  info.compress_type = zipfile.ZIP_DEFLATED
  info.external_attr = 0o644 << 16
  archive.writestr(info, data)


def _copy(
    source: zipfile.ZipFile, info: zipfile.ZipInfo,
    target: zipfile.ZipFile) -> None:
  """Copies an entry without unpacking it.

  zipfile has no call for that: the entry is written as zipfile itself writes
  one, from its header on.
  """
  entry = copy.copy(info)
  entry.date_time = EPOCH
  entry.extra = b''
  entry.comment = b''
  entry.external_attr = 0o644 << 16
  entry.flag_bits &= 0x800  # The name is UTF-8: nothing else holds here.
  entry.header_offset = target.fp.tell()
  target.fp.write(entry.FileHeader(zip64=False))
  source.fp.seek(info.header_offset)
  head = source.fp.read(zipfile.sizeFileHeader)
  skipped = int.from_bytes(head[26:28], 'little') + int.from_bytes(
      head[28:30], 'little')
  source.fp.seek(skipped, 1)
  target.fp.write(source.fp.read(info.compress_size))
  target.filelist.append(entry)
  target.NameToInfo[entry.filename] = entry
  target.start_dir = target.fp.tell()
