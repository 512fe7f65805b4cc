"""Records of every kind of run as text: the page and the line that each has in a module of its own. Called by the CLI's output,
by `neve runs show` and by the report of an upkeep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel
from rich.console import RenderableType

from neve.maintenance.delete_files import UpkeepRecord
from neve.maintenance.expiry import ExpiryRecord
from neve.maintenance.manifests import ManifestsRecord
from neve.maintenance.orphans import OrphanRecord
from neve.maintenance.prevention import PreventionRecord
from neve.maintenance.quarantine import QuarantineRecord
from neve.maintenance.record import Operation
from neve.maintenance.statistics import StatisticsRecord
from neve.maintenance.steps import MaintainRecord
from neve.maintenance.tags import TagsRecord
from neve.maintenance.ttl import TtlRecord
from neve.render import deletes, expiry, maintain, metadata_records, orphans, prevention, quarantine, run, ttl
from neve.rewrite.group import RunKind
from neve.rewrite.record import RunRecord


class RecordText(NamedTuple):
    """How a record is told."""

    text: Callable[[Any], RenderableType]
    line: Callable[[Any], str]


WORDS: Mapping[type[BaseModel], RecordText] = {
    RunRecord: RecordText(run.record_text, run.run_line),
    UpkeepRecord: RecordText(deletes.upkeep_text, deletes.upkeep_line),
    ExpiryRecord: RecordText(expiry.expiry_text, expiry.expiry_line),
    OrphanRecord: RecordText(orphans.orphans_text, orphans.orphans_line),
    QuarantineRecord: RecordText(quarantine.record_text, quarantine.record_line),
    ManifestsRecord: RecordText(metadata_records.metadata_text, metadata_records.metadata_line),
    StatisticsRecord: RecordText(metadata_records.metadata_text, metadata_records.metadata_line),
    TagsRecord: RecordText(metadata_records.metadata_text, metadata_records.metadata_line),
    TtlRecord: RecordText(ttl.ttl_text, ttl.ttl_line),
    PreventionRecord: RecordText(prevention.prevention_text, prevention.prevention_line),
    MaintainRecord: RecordText(maintain.maintain_text, maintain.maintain_line),
}

KINDS: Mapping[str, type[BaseModel]] = {
    RunKind.COMPACT.value: RunRecord,
    RunKind.CLUSTER.value: RunRecord,
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
