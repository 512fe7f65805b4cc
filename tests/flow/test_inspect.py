"""The inspect stage over hand-made readers: what each depth tells, and what memory and samples add."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

from neve.errors import BadRequestError
from neve.health.inspection import Inspection
from neve.health.skipping import Clustering
from neve.operations.examine import examine
from neve.operations.inspect import read, remembered, sample
from neve.policy.model import Policy
from neve.ports import Progress
from neve.rewrite.memory import Memory
from neve.rewrite.table_layout import layout_of
from neve.state import Run, StateStore, StoredOutput
from neve.table.depth import Depth
from neve.table.files import FileColumns, Partition, bounds_schema
from neve.table.layout import Layout
from neve.table.state import (
    Column,
    Manifest,
    Ref,
    RefKind,
    SortOrder,
    TableState,
)
from neve.table.units import MIB
from tests.builders.files import make_files
from tests.builders.table_states import DAY, NOW, make_state, snapshot

FILES = make_files(
    [{"partition": i % 2, "size_bytes": MIB, "row_groups": 1, "sort_order_id": i % 2} for i in range(10)]
    + [
        {"content": 1, "records": 7, "partition": 0},
        {"content": 2, "records": 5, "partition": 1},
        {"content": 1, "records": 3, "format": "puffin", "partition": 1},
    ],
    partitions=("day=2025-01-17", "day=2025-01-18"),
)


class FakeReader:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def state(self) -> TableState:
        self.calls.append("state")
        return make_state()

    def at(self, snapshot_id: int) -> FakeReader:
        raise NotImplementedError(f"these tests read the current snapshot, not {snapshot_id}")

    def manifests(self) -> tuple[Manifest, ...]:
        self.calls.append("manifests")
        line = {"length_bytes": 100, "spec_id": 0, "sequence_number": 1, "added_snapshot_id": 3}
        return (
            Manifest(path="m1", holds_deletes=False, live_files=10, **line),
            Manifest(path="m2", holds_deletes=True, live_files=3, **line),
        )

    def files(
        self,
        manifests: tuple[Manifest, ...],
        progress: Progress | None = None,  # noqa: ARG002
        *,
        bounds: Collection[int] = (),
    ) -> FileColumns:
        self.calls.append(f"files of {len(manifests)}" + (f" with bounds of {sorted(bounds)}" if bounds else ""))
        return FILES

    def sample_row_groups(self, paths: Iterable[str]) -> Mapping[str, int]:
        return dict.fromkeys(paths, 2)

    def from_cache(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("depth", "calls"),
    [
        (Depth.SUMMARY, ["state"]),
        (Depth.MANIFESTS, ["state", "manifests"]),
        (Depth.FILES, ["state", "manifests", "files of 2"]),
    ],
)
def test_each_depth_asks_for_what_it_needs_and_no_more(depth: Depth, calls: list[str]) -> None:
    reader = FakeReader()
    assert read(reader, depth).depth is depth
    assert reader.calls == calls


def test_the_bounds_of_the_columns_asked_for_are_read_with_the_files() -> None:
    reader = FakeReader()
    read(reader, Depth.FILES, bounds=[7, 3])
    assert reader.calls[-1] == "files of 2 with bounds of [3, 7]"


COLUMNS = tuple(
    Column(field_id=n, name=name, type=kind)
    for n, (name, kind) in enumerate([("id", "long"), ("city", "string"), ("place.zip", "int"), ("amount", "double")], start=1)
)


def laid_out(by: str | None = None, **changes: object) -> Layout | None:
    return layout_of(make_state(**{"fields": COLUMNS} | changes), Policy.model_validate({"cluster-by": by}))


def test_a_table_is_to_be_laid_out_as_the_policy_says_and_else_by_its_sort_order() -> None:
    assert str(laid_out()) == "sort(id asc nulls-first)"
    assert str(laid_out("city, place.zip")) == "hilbert(city, place.zip)"
    assert laid_out(default_sort_order_id=0) is None


def test_a_sort_order_that_no_layout_can_be_written_for_is_none() -> None:
    assert laid_out(sort_orders=(SortOrder(order_id=1, fields=("a,b asc nulls-first",)),)) is None


def test_only_a_layout_that_is_the_sort_order_has_its_id() -> None:
    orders = [laid_out("id"), laid_out("sort(id desc)"), laid_out("z-order(id)")]
    assert [layout.order_id for layout in orders if layout] == [1, 0, 0]


@pytest.mark.parametrize(
    ("by", "name", "hint"),
    [
        ("cty, amount", "cty", "Did you mean city?"),
        ("CITY", "CITY", "Did you mean city?"),
        ("z-order(id, zip)", "zip", "Did you mean place.zip?"),
        ("q", "q", "It has id, city, place.zip, amount."),
    ],
)
def test_a_column_that_the_table_does_not_have_is_told_with_those_like_it(by: str, name: str, hint: str) -> None:
    with pytest.raises(BadRequestError, match=f"^Cannot lay c.db.t out by {name}: it has no such column of single") as refused:
        laid_out(by)
    assert refused.value.hint == hint


def test_of_very_many_columns_only_some_are_listed() -> None:
    many = tuple(Column(field_id=n, name=f"c{n}", type="int") for n in range(10))
    with pytest.raises(BadRequestError) as refused:
        laid_out("q", fields=many)
    assert refused.value.hint == "It has c0, c1, c2, c3, c4, c5, c6, c7 and 2 more."


def clustering(lower: list[bytes], upper: list[bytes], layout: Layout | None) -> Clustering | None:
    # Of the ten data files, each of 100 rows and 1 MB in one of two partitions; deletes tell no bounds.
    silent = [None] * (len(FILES) - 10)
    bounds = pa.table([lower + silent, upper + silent], schema=bounds_schema([2]))
    state = make_state(fields=COLUMNS, files=replace(FILES, bounds=bounds))
    policy = Policy.model_validate({"target-file-size": MIB, "row-group-min-size": 1})
    return examine(state, policy, now_ms=NOW, layout=layout).clustering


BY_CITY = Layout.parse("city")
LETTERS = [letter.encode() for letter in "ABCDEFGHIJ"]


def test_files_that_hold_every_value_are_as_deep_as_there_are_files_in_a_partition() -> None:
    found = clustering([b"A"] * 10, [b"J"] * 10, BY_CITY)
    assert found is not None
    assert (found.layout, found.depth, found.run_files, found.run_bytes) == ("sort(city asc nulls-first)", 5, 10, 10 * MIB)
    [city] = found.columns
    assert (city.name, city.depth, city.point_read) == ("city", 5, 1)
    assert city.point_read_after < 0.5


def test_files_that_follow_one_another_are_left_alone() -> None:
    found = clustering(LETTERS, LETTERS, BY_CITY)
    assert found is not None
    assert (found.depth, found.worst_depth, found.run_files, found.run_bytes) == (1, 1, 0, 0)


def test_without_a_layout_or_without_bounds_there_is_no_word_on_clustering() -> None:
    assert clustering(LETTERS, LETTERS, None) is None
    assert examine(make_state(fields=COLUMNS, files=FILES), Policy(), now_ms=NOW, layout=BY_CITY).clustering is None


def look(depth: Depth, **changes: object) -> Inspection:
    return examine(read(FakeReader(), depth).model_copy(update=changes), Policy(), now_ms=NOW)


def test_the_summary_tells_totals_and_an_upper_bound_of_what_merging_saves() -> None:
    found = look(Depth.SUMMARY)
    assert (found.data_files, found.data_bytes, found.rows, found.average_file_bytes) == (10, 10 * MIB, 1000, MIB)
    assert (found.histogram, found.partitions, found.manifests, found.small_files) == (None, None, None, None)
    assert [(f.code, round(f.severity, 3)) for f in found.health.findings] == [
        ("small-files", 0.9),
        ("deletes", 0.6),
        ("snapshots", 0.01),
    ]


def test_the_manifest_list_tells_manifests() -> None:
    found = look(Depth.MANIFESTS)
    assert found.manifests is not None
    assert found.manifests.model_dump() == {"data_manifests": 1, "delete_manifests": 1, "bytes": 200, "average_files": 6.5}


def test_files_tell_the_rest() -> None:
    found = look(Depth.FILES)
    assert (found.small_files, found.small_file_share, found.fragments, found.partition_count) == (10, 1.0, 10, 2)
    assert found.deletes is not None
    assert found.deletes.model_dump() == {
        "position_files": 1,
        "position_rows": 7,
        "equality_files": 1,
        "equality_rows": 5,
        "vectors": 1,
        "vector_rows": 3,
    }
    assert found.duplicate_ratio == 15 / 1000
    assert (found.sorted_files, found.formats) == (5, {"parquet": 10})
    assert sum(bucket.files for bucket in found.histogram or ()) == 10


def test_an_inspection_survives_json_and_says_its_schema_version() -> None:
    found = look(Depth.FILES)
    assert Inspection.model_validate_json(found.model_dump_json()) == found
    assert json.loads(found.model_dump_json())["schema_version"] == 1


def test_a_snapshot_that_a_tag_holds_is_not_expirable() -> None:
    finding = next(f for f in look(Depth.SUMMARY).health.findings if f.code == "snapshots")
    assert finding.evidence == "1 snapshot older than 7 days"


def test_our_records_tell_row_groups_and_the_last_compaction() -> None:
    memory = Memory(row_groups={"file-0.parquet": 40}, compacted={Partition(0, "day=2025-01-17"): NOW - 1000})
    found = examine(read(FakeReader(), Depth.FILES), Policy(), now_ms=NOW, memory=memory)
    assert found.row_groups is not None
    assert (found.row_groups.row_groups, found.row_groups.source) == (49, "mixed")
    ours = next(p for p in found.partitions or () if p.partition == "day=2025-01-17")
    assert ours.last_compaction_ms == NOW - 1000


def test_a_recorded_compaction_whose_snapshot_is_not_in_the_history_does_not_count() -> None:
    day = Partition(0, "day=2025-01-17")
    with StateStore.open("sqlite://") as store:
        store.start_run(Run("r", "u", "c.db.t", "compact", 1))
        store.add_commit("r", partitions=[day], outputs=[StoredOutput("a", 3, 1, 1)], committed_ms=7, snapshot_id=2)
        main = (Ref(name="main", kind=RefKind.BRANCH, snapshot_id=3),)
        history = [snapshot(1, 30), snapshot(2, 20), snapshot(3, 1)]
        after = make_state(snapshots=(*history[:2], history[2].model_copy(update={"parent_id": 2})), refs=main)
        rolled_back = make_state(snapshots=(*history[:2], history[2].model_copy(update={"parent_id": 1})), refs=main)
        assert remembered(store, after) == Memory(row_groups={"a": 3}, compacted={day: 7})
        assert remembered(store, rolled_back) == Memory(row_groups={"a": 3}, compacted={})
    assert remembered(None, after) == Memory()


def test_a_table_without_a_snapshot_is_healthy() -> None:
    found = look(Depth.SUMMARY, snapshot_id=None, snapshots=(), refs=())
    assert (found.health.score, found.data_files, found.workload.kind) == (100, 0, "empty")


def test_the_workload_is_that_of_the_inspected_branch() -> None:
    main = [snapshot(1, 3), snapshot(2, 2).model_copy(update={"parent_id": 1})]
    changed = {"parent_id": 1, "operation": "overwrite"}
    audit = [snapshot(i, 1, added_data_files="1", added_delete_files="1").model_copy(update=changed) for i in (3, 4)]
    audit[1] = audit[1].model_copy(update={"parent_id": 3})
    found = look(Depth.SUMMARY, snapshot_id=2, snapshots=(*main, *audit))
    assert (found.workload.kind, found.workload.evidence) == ("batch", "2 appends, 24 h apart")
    assert (found.workload.operations, found.workload.last_write_ms) == ({"append": 2}, NOW - 2 * DAY)
    other = look(Depth.SUMMARY, snapshot_id=4, snapshots=(*main, *audit))
    assert (other.workload.kind, other.workload.evidence) == ("cdc", "2 of 3 writes bring row-level deletes")
    assert other.workload.operations == {"append": 1, "update": 2}


def test_a_sample_is_the_same_for_the_same_table_and_names_no_delete_file() -> None:
    first = sample(FILES, 4)
    assert first == sample(FILES, 4)
    assert len(first) == 4
    assert set(first) <= {f"file-{i}.parquet" for i in range(10)}
    assert len(sample(FILES, 1000)) == 10
