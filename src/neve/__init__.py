"""Neve keeps Apache Iceberg tables fast and cheap. Importing it is cheap too: nothing heavy is loaded before it is needed."""

from neve.python_api import (
    after_write,
    cluster,
    commit,
    compact,
    connect,
    deletes,
    execute,
    inspect,
    plan,
    resume,
    rollback,
    table,
)

__all__ = [
    "after_write",
    "cluster",
    "commit",
    "compact",
    "connect",
    "deletes",
    "execute",
    "inspect",
    "plan",
    "resume",
    "rollback",
    "table",
]
