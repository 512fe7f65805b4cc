"""Which files may be taken for orphans, by path and age alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from neve.errors import BadRequestError
from neve.maintenance.orphans import (
    FLOOR_SECONDS,
    Judged,
    Neighbour,
    OrphanRules,
    Verdict,
    chosen_root,
    hidden_partitions,
    overlapping,
    required_age,
)
from neve.table.location import Spellings
from neve.table.state import PartitionField, PartitionSpec
from tests.builders.tables import make_table

SPELLINGS = Spellings.of()
ROOT = "s3://lake/db/t"


def make_rules(**changes: Any) -> OrphanRules:
    return OrphanRules(**{"root": SPELLINGS.parse(ROOT), "spellings": SPELLINGS, "cutoff_ms": 1_000} | changes)


def verdict(path: str, modified_ms: int | None = 1, **changes: Any) -> Verdict | None:
    judged = make_rules(**changes).judge(path, modified_ms)
    return judged[0] if judged else None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("data/f.parquet", Verdict.CANDIDATE),
        ("data//f.parquet", Verdict.CANDIDATE),
        ("metadata/snap-1.avro", Verdict.CANDIDATE),
        ("metadata/1-m0.avro", Verdict.CANDIDATE),
        ("data/f.puffin", Verdict.CANDIDATE),
        ("data/p=_x/f.parquet", Verdict.CANDIDATE),
        ("metadata/00001-a.metadata.json", Verdict.METADATA),
        ("metadata/v1.gz.metadata.json", Verdict.METADATA),
        ("metadata/v1.metadata.json.gz", Verdict.METADATA),
        ("deep/down/metadata/00001-a.metadata.json", Verdict.METADATA),
        ("metadata/version-hint.text", Verdict.PROTECTED),
        ("metadata/20240101-1.stats", Verdict.PROTECTED),
        ("metadata/partition-stats-1.parquet", Verdict.PROTECTED),
        ("data/_SUCCESS", Verdict.PROTECTED),
        ("data/.f.parquet.crc", Verdict.PROTECTED),
        ("data/_temporary/0/f.parquet", Verdict.PROTECTED),
        ("_archive/u/metadata/1.metadata.json", Verdict.PROTECTED),
        ("_neve-trash/data/f.parquet", Verdict.PROTECTED),
        ("data/", Verdict.PROTECTED),
        ("_delta_log/0.json", Verdict.OTHER_FORMAT),
        ("sub/.hoodie/hoodie.properties", Verdict.OTHER_FORMAT),
        ("checkpoint/metadata", Verdict.CHECKPOINT),
        ("metadata", Verdict.CHECKPOINT),
        ("checkpoint/offsets/12", Verdict.CHECKPOINT),
        ("a/b/commits/0", Verdict.CHECKPOINT),
        ("checkpoint/sources/0/9.compact", Verdict.CHECKPOINT),
        ("checkpoint/state/0/3/12.delta", Verdict.CHECKPOINT),
        ("checkpoint/state/0/3/SSTs/12-a.sst", Verdict.CHECKPOINT),
        ("flink/chk-7/3f9c", Verdict.CHECKPOINT),
        ("flink/savepoint-3f9c12-3f9c12d44103/3f9c", Verdict.CHECKPOINT),
        ("data/offsets/1.parquet", Verdict.CANDIDATE),
        ("data/state=1/00000-0.parquet", Verdict.CANDIDATE),
        ("data/0101/0110/1001/10110110/f.parquet", Verdict.CANDIDATE),
    ],
)
def test_a_name_or_a_place_protects(name: str, expected: Verdict) -> None:
    assert verdict(f"{ROOT}/{name}") is expected


@pytest.mark.parametrize("path", ["s3://lake/db/t_2/f", "s3://lake/db/t", "s3://pond/db/t/f", "gs://lake/db/t/f", "/db/t/f"])
def test_what_is_outside_is_not_judged(path: str) -> None:
    assert verdict(path) is None


@pytest.mark.parametrize(
    ("modified_ms", "expected"),
    [
        (999, Verdict.CANDIDATE),
        (1_000, Verdict.FRESH),
        (None, Verdict.FRESH),
        (0, Verdict.FRESH),
        (-5, Verdict.FRESH),
    ],
)
def test_a_file_is_old_only_if_its_store_says_so(modified_ms: int | None, expected: Verdict) -> None:
    assert verdict(f"{ROOT}/data/f", modified_ms) is expected


def test_partitions_that_begin_with_an_underscore_are_looked_at_and_our_own_places_never() -> None:
    fields = [
        PartitionField(name=n, transform="identity", source_id=1, field_id=1000) for n in ("_day", "_a b", "city", "_neve")
    ]
    hidden = hidden_partitions([PartitionSpec(spec_id=0, fields=tuple(fields))])
    assert hidden == ("_a b=", "_a+b=", "_day=", "_neve=")
    found = [verdict(f"{ROOT}/data/{name}/f", hidden=hidden) for name in ("_day=1", "_a+b=1", "_days=1", "_neve=1", "_day")]
    assert found == [
        Verdict.CANDIDATE,
        Verdict.CANDIDATE,
        Verdict.PROTECTED,
        Verdict.PROTECTED,
        Verdict.PROTECTED,
    ]


@pytest.mark.parametrize("asked", ["/wh/db/t", "/wh/db/t/data", "/wh/db/t/data/_day=1", "/wh/db/t/_files", "/wh/db/t/_files/x"])
def test_a_search_may_be_of_a_part_of_the_table(asked: str) -> None:
    field = PartitionField(name="_day", transform="identity", source_id=1, field_id=1000)
    state = make_table(specs=(PartitionSpec(spec_id=0, fields=(field,)),), properties={"write.data.path": "/wh/db/t/_files"})
    assert chosen_root(asked, state, SPELLINGS) == asked


@pytest.mark.parametrize(
    "below", ["_checkpoints", "_checkpoints/query-1", "data/.spark-staging", ".neve-trash", "_delta_log/x"]
)
def test_a_search_is_never_of_a_directory_that_iceberg_does_not_write_to(below: str) -> None:
    with pytest.raises(BadRequestError, match=r"Iceberg does not write below names that begin with _ or \.$"):
        chosen_root(f"/wh/db/t/{below}", make_table(), SPELLINGS)


def test_files_of_running_work_are_told_by_how_their_names_begin() -> None:
    running = {"/db/t/data": ("neve-a", "neve-b")}
    names = ("data/neve-a-1.parquet", "data/neve-c.parquet", "data/x/neve-a-1.parquet", "neve-a")
    found = [verdict(f"{ROOT}/{name}", running=running) for name in names]
    assert found == [Verdict.RUNNING, Verdict.CANDIDATE, Verdict.CANDIDATE, Verdict.CANDIDATE]


def test_the_age_has_a_floor_of_three_days_that_only_a_word_more_lowers() -> None:
    assert required_age(FLOOR_SECONDS, writers_may_be_running=False) == 3 * 86400
    assert required_age(60, writers_may_be_running=True) == 60
    with pytest.raises(BadRequestError, match=r"^Cannot take files of 2\.99 days for orphans: .* up to 3 days to commit"):
        required_age(2.99 * 86400, writers_may_be_running=False)


def test_neighbours_overlap_by_any_of_their_places() -> None:
    neighbours = [
        Neighbour(name="sibling", places=("s3://lake/db/t_2",)),
        Neighbour(name="namesake", places=("s3://pond/db/t",)),
        Neighbour(name="inner", places=("s3://lake/x", "s3a://lake/db/t/data/y/")),
        Neighbour(name="outer", places=("s3://lake/db/",)),
        Neighbour(name="same", places=(ROOT,)),
        Neighbour(name="unknown", trouble="denied"),
    ]
    found = overlapping(SPELLINGS.parse(ROOT), neighbours, SPELLINGS)
    assert found == {"inner": "s3a://lake/db/t/data/y/", "outer": "s3://lake/db/", "same": ROOT}


def test_a_listing_that_lacks_most_of_the_table_is_doubtful() -> None:
    assert Judged(files={Verdict.IN_USE: 5, Verdict.MISSING: 5}).objection is None
    objection = Judged(files={Verdict.IN_USE: 5, Verdict.MISSING: 6}).objection
    assert objection is not None
    assert objection[0] == "the listing lacks 6 of 11 files that the table needs there"
    assert Judged(files={}).objection is None


def test_files_that_are_gone_are_told() -> None:
    assert Judged(files={Verdict.MISSING: 2}).warnings == ()  # committed after the listing
    one, some = (
        Judged(files={Verdict.MISSING: 1}, lost=("/a",)),
        Judged(files={Verdict.MISSING: 9}, lost=("/a", "/b")),
    )
    assert one.warnings == ("1 file that the table needs is not there, such as /a",)
    assert some.warnings == ("at least 2 files that the table needs are not there, such as /a",)


@settings(deadline=None)
@example(["_", "..", "%"], 1)
@given(st.lists(st.text("ab_.%", min_size=1, max_size=3), min_size=1, max_size=4), st.integers(-10, 2_000))
def test_no_file_is_a_candidate_that_iceberg_would_hide_or_that_is_young(parts: list[str], modified_ms: int) -> None:
    found = verdict("/".join([ROOT, *parts]), modified_ms)
    if found is Verdict.CANDIDATE:
        assert 0 < modified_ms < 1_000
        assert not any(part.startswith(("_", ".")) for part in parts)
