"""Spark SQL statements that hints show. Each can be typed as it stands, with the catalog, and runs in a Spark test.

Called where a message offers a statement to a person. Neve itself does not run them; for its own, see `neve.spark.quoting`.
"""

from __future__ import annotations

import re

from neve.table.state import MAIN

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def identifier(*parts: str) -> str:
    """The parts of a name with dots between them, in backquotes only where Spark needs them."""
    return ".".join(part if _PLAIN.fullmatch(part) else f"`{part.replace('`', '``')}`" for part in parts)


def read_snapshot(table: str, snapshot_id: int) -> str:
    """Reads a table, given with its catalog, as it was at a snapshot."""
    return f"SELECT * FROM {identifier(*table.split('.'))} VERSION AS OF {snapshot_id}"  # noqa: S608 - shown, not run


def move_back(table: str, branch: str, snapshot_id: int) -> str:
    """Moves a branch of a table, given with its catalog, back to an earlier snapshot, whatever was committed since."""
    catalog, *names = table.split(".")
    if branch != MAIN:
        return f"ALTER TABLE {identifier(catalog, *names)} REPLACE BRANCH {identifier(branch)} AS OF VERSION {snapshot_id}"
    return f"CALL {identifier(catalog)}.system.rollback_to_snapshot({_text(identifier(*names))}, {snapshot_id})"


def uncache(*name: str) -> str:
    """Drops a table from Spark's memory."""
    return f"UNCACHE TABLE {identifier(*name)}"


def _text(value: str) -> str:
    """A literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
