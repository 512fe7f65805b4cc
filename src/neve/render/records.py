"""Records of every kind of run as text: the page and the line that each has in a module of its own. Called by the CLI's output,
by `neve runs show` and by the report of an upkeep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel
from rich.console import RenderableType

from neve.core.auto_tags import TagsRecord
from neve.core.expiry import ExpiryRecord
from neve.core.maintain import MaintainRecord
from neve.core.maintenance import Operation
from neve.core.manifest_plan import ManifestsRecord
from neve.core.orphans import OrphanRecord
from neve.core.prevention import PreventionRecord
from neve.core.quarantine import QuarantineRecord
from neve.core.record import RunRecord
from neve.core.table_statistics import StatisticsRecord
from neve.core.ttl import TtlRecord
from neve.core.upkeep import UpkeepRecord
from neve.render import deletes, expiry, keeping, maintain, orphans, prevention, quarantine, run, ttl


class Words(NamedTuple):
    """How a record is told."""

    text: Callable[[Any], RenderableType]
    line: Callable[[Any], str]


WORDS: Mapping[type[BaseModel], Words] = {
    RunRecord: Words(run.record_text, run.run_line),
    UpkeepRecord: Words(deletes.upkeep_text, deletes.upkeep_line),
    ExpiryRecord: Words(expiry.expiry_text, expiry.expiry_line),
    OrphanRecord: Words(orphans.orphans_text, orphans.orphans_line),
    QuarantineRecord: Words(quarantine.record_text, quarantine.record_line),
    ManifestsRecord: Words(keeping.keeping_text, keeping.keeping_line),
    StatisticsRecord: Words(keeping.keeping_text, keeping.keeping_line),
    TagsRecord: Words(keeping.keeping_text, keeping.keeping_line),
    TtlRecord: Words(ttl.ttl_text, ttl.ttl_line),
    PreventionRecord: Words(prevention.prevention_text, prevention.prevention_line),
    MaintainRecord: Words(maintain.maintain_text, maintain.maintain_line),
}

KINDS: Mapping[str, type[BaseModel]] = {
    "compact": RunRecord,
    "deletes": UpkeepRecord,
    "quarantine": QuarantineRecord,
    Operation.EXPIRE.value: ExpiryRecord,
    Operation.ORPHANS.value: OrphanRecord,
    Operation.MANIFESTS.value: ManifestsRecord,
    Operation.STATS.value: StatisticsRecord,
    Operation.TAGS.value: TagsRecord,
    Operation.TTL.value: TtlRecord,
    Operation.PREVENT.value: PreventionRecord,
    Operation.MAINTAIN.value: MaintainRecord,
}
"""By the word that the state store has for the run."""


def text_of(record: BaseModel) -> RenderableType:
    """The whole page."""
    return WORDS[type(record)].text(record)


def line_of(record: Any) -> str:
    """How it ended, in one line."""
    return WORDS[type(record)].line(record)


def stored(kind: str, document: Mapping[str, Any]) -> BaseModel | None:
    """The record of a run from the state store; None where its kind has none, or it tells too little to be one."""
    found = KINDS.get(kind)
    return found.model_validate(document) if found is not None and "run_id" in document else None
