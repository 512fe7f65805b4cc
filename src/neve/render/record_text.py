"""How records of one type are shown. The module that renders a record declares it once; `render.records` lists them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rich.console import RenderableType

from neve.render.phrases import count
from neve.rewrite.record import Record
from neve.table.units import counted


class RecordText(NamedTuple):
    """How records of one type are shown."""

    record: type[Record]
    kinds: tuple[str, ...]
    """What such runs are called in the state store."""
    text: Callable[[Any], RenderableType]
    """The whole page."""
    line: Callable[[Any], str]
    """How the run ended, in one line."""
    cell: Callable[[Mapping[str, Any]], str] = lambda _: ""
    """What the run did, for the list of runs. Reads the stored JSON, so that a list of runs validates no record."""


def arrow(before: int, after: int, what: str) -> str:
    """`40 → 3 files`."""
    return f"{count(before)} → {counted(after, what)}"
