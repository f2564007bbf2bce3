"""Runs the watermarks in the docstrings of their module."""

# examples of sdks/python/apache_beam/io/_unbounded_watermarks.py

assert isinstance(watermark, IdleWatermark)
assert watermark.value(now, caught_up=True) == Timestamp(1975)
