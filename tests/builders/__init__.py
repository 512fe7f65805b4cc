"""What several test modules build on: values, files, tables, fakes and readers, one module per kind of thing.

Test modules import from here and never from each other or from a conftest (`tests/test_shape.py`).
"""
