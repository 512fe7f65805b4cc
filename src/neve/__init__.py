"""Neve keeps Apache Iceberg tables fast and cheap. Importing it is cheap too: nothing heavy is loaded before it is needed."""

from neve.python_api import after_write, compact, connect, inspect, plan, table

__all__ = ["after_write", "compact", "connect", "inspect", "plan", "table"]
