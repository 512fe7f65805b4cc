"""Names as Spark SQL takes them. Called wherever a statement or an expression names a table, a column or a field."""

from __future__ import annotations


def quoted(*parts: str) -> str:
    """The parts of a name with dots between them. A part may hold dots, spaces and backquotes itself."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)
