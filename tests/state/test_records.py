"""JSON of records: what earlier releases have stored is read, and written again with every field in its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neve.maintenance.delete_files import UpkeepRecord
from neve.maintenance.expiry import ExpiryRecord
from neve.maintenance.manifests import ManifestsRecord
from neve.maintenance.orphans import OrphanRecord
from neve.maintenance.prevention import PreventionRecord
from neve.maintenance.quarantine import QuarantineRecord
from neve.maintenance.statistics import StatisticsRecord
from neve.maintenance.steps import MaintainRecord
from neve.maintenance.tags import TagsRecord
from neve.maintenance.ttl import TtlRecord
from neve.render.records import RECORDS
from neve.rewrite.record import Record, RunRecord

STORED = Path(__file__).parent / "records"
KINDS: dict[str, type[Record]] = {
    "compact": RunRecord,
    "deletes": UpkeepRecord,
    "expire": ExpiryRecord,
    "maintain": MaintainRecord,
    "manifests": ManifestsRecord,
    "nothing-to-compact": RunRecord,
    "orphans": OrphanRecord,
    "prevent": PreventionRecord,
    "settle": QuarantineRecord,
    "stats": StatisticsRecord,
    "tags": TagsRecord,
    "ttl": TtlRecord,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_record_is_written_again_with_every_field_in_its_place(kind: str) -> None:
    """A release may add fields; those that were there keep their values and their order."""
    text = (STORED / f"{kind}.json").read_text(encoding="utf-8")
    record = KINDS[kind].model_validate_json(text)
    stored, written = json.loads(text), json.loads(record.model_dump_json())
    assert json.dumps({name: value for name, value in written.items() if name in stored}) == json.dumps(stored)
    assert KINDS[kind].model_validate(record.model_dump(mode="json")) == record


def test_every_stored_record_is_read() -> None:
    assert {file.stem for file in STORED.iterdir()} == KINDS.keys()


def test_records_of_every_type_have_been_stored() -> None:
    assert {shown.record for shown in RECORDS} == set(KINDS.values())
