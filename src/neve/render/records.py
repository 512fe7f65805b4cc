"""Records of every kind of run as text: the page, the line and the cell that each has in a module of its own.

Called by the CLI's output, by `neve runs` and by the report of `maintain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from neve.render import deletes, expiry, maintain, metadata_records, orphans, prevention, quarantine, run, ttl
from neve.render.phrases import FROM_CACHE
from neve.rewrite.preview import Preview
from neve.rewrite.record import Record
from neve.rewrite.versions import NEWER

RECORDS = (
    run.RECORD,
    deletes.RECORD,
    expiry.RECORD,
    orphans.RECORD,
    quarantine.RECORD,
    *metadata_records.RECORDS,
    ttl.RECORD,
    prevention.RECORD,
    maintain.RECORD,
)
KINDS = {kind: shown for shown in RECORDS for kind in shown.kinds}
"""By the word that the state store has for the run."""
_WITHOUT_RECORDS = ("rollback",)
"""Runs that are shown in one line."""
_TYPES = {shown.record: shown for shown in RECORDS}


def text_of(record: Record) -> RenderableType:
    """The whole page. A dry run that read nothing from storage says so."""
    page = _TYPES[type(record)].text(record)
    is_cached = isinstance(record, Preview) and record.metadata_from_cache
    return Group(page, Text(FROM_CACHE, style="dim")) if is_cached else page


def line_of(record: Any) -> str:
    """How it ended, in one line."""
    return _TYPES[type(record)].line(record)


def cell_of(kind: str, document: Mapping[str, Any]) -> str:
    """What a run from the state store did, as short as can be; empty where its record does not tell."""
    if is_unknown(kind):
        return NEWER
    with suppress(KeyError, TypeError):  # of a run that was interrupted, or of another version
        return KINDS[kind].cell(document)
    return ""


def is_unknown(kind: str) -> bool:
    """Whether this release has no operation whose runs are called so."""
    return kind not in KINDS and kind not in _WITHOUT_RECORDS


def stored(kind: str, document: Mapping[str, Any]) -> Record | None:
    """The record of a run from the state store, without fields that only a newer release knows; None where its kind has none,
    or it tells too little to be one. Raises ValidationError for values that only a newer release knows."""
    found = KINDS.get(kind)
    return found.record.model_validate(document, extra="ignore") if found is not None and "run_id" in document else None
