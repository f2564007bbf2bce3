"""What a Spark on this machine is told: the options of its Java."""

# What Spark's own launcher opens of Java 17 to Spark: its reflection, its
# memory outside of the heap, and what it serializes.
_OPENED = (
    'java.lang', 'java.lang.invoke', 'java.lang.reflect', 'java.io',
    'java.net', 'java.nio', 'java.util', 'java.util.concurrent',
    'java.util.concurrent.atomic', 'sun.nio.ch', 'sun.nio.cs',
    'sun.security.action', 'sun.util.calendar')
JAVA_OPTIONS = tuple(
    f'--add-opens=java.base/{name}=ALL-UNNAMED' for name in _OPENED)
