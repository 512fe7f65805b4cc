"""Names as Spark SQL takes them. Called wherever a statement or an expression names a table, a column or a field."""

from __future__ import annotations

import re

_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


def quoted(*parts: str) -> str:
    """The parts of a name with dots between them. A part may hold dots, spaces and backquotes itself."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


def parts_of(name: str) -> tuple[str, ...]:
    """The parts of a name as Spark SQL prints it, the inverse of `quoted`. Only parts with odd characters have backquotes."""
    return tuple(plain or within.replace("``", "`") for within, plain in _PART.findall(name))
