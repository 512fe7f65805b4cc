"""The checker sees damage of every kind, and stays silent without damage. No Spark: pyiceberg on a local catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from tests.builders.table_contents import local
from tests.histories.checker import CHANGE, Checker, Refs, Seen, Verdict
from tests.histories.lake import Lake
from tests.histories.rows import Change, Expected, row

SCHEMA = pa.schema([("zone", pa.int32()), ("id", pa.int64()), ("v", pa.int64()), ("text", pa.string())])


@dataclass
class Desk:
    """A table that the test writes, with the checker beside it."""

    table: Table
    checker: Checker
    changes: dict[int, Change]
    expected: Expected = field(default_factory=Expected)
    refs: Refs = field(default_factory=Refs)

    def change(self, keys: Mapping[int, int | None], *, outcome: str = "acknowledge", lands: bool = True) -> int:
        """One change of a writer: a version for each key, None to delete it."""
        number = len(self.changes) + 1
        made = Change(number, "spark", "update", {key: (self.expected.certain.get(key), after) for key, after in keys.items()})
        self.changes[number] = made
        self.expected.begin(made)
        if lands:
            self.write(keys, {CHANGE: str(number)})
        getattr(self.expected, outcome)(number)
        return number

    def write(self, keys: Mapping[int, int | None], properties: dict[str, str] | None = None) -> None:
        """Writes past the writers' log unless properties name the change."""
        added = [row(key, version) for key, version in keys.items() if version is not None]
        content = pa.Table.from_pylist([vars(one) for one in added], schema=SCHEMA)
        self.table.refresh().overwrite(content, In("id", list(keys)), snapshot_properties=properties or {})

    def check(self) -> Verdict:
        return self.checker.check(Seen.at(self.table, self.expected, self.refs))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=tmp_path.as_uri())
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", schema=SCHEMA)
    with table.update_spec() as update:
        update.add_field("zone", IdentityTransform())

    def listing() -> dict[str, int]:
        home = local(table.location())
        return {f"file://{file}": file.stat().st_size for file in home.rglob("*") if file.is_file()}

    def reload() -> tuple[object, str]:
        table.refresh()
        return table.metadata, table.metadata_location

    changes: dict[int, Change] = {}
    made = Desk(table, Checker(Lake(table.io), listing, reload, changes), changes)
    made.change(dict.fromkeys(range(8), 1))
    made.change({0: 2, 1: None})
    yield made
    catalog.destroy_tables()
    catalog.engine.dispose()


pytestmark = pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning")


def problems(verdict: Verdict) -> str:
    return "\n".join(verdict.wrong)


def test_nothing_is_wrong_without_damage(desk: Desk) -> None:
    verdict = desk.check()
    assert (verdict.wrong, verdict.rows, verdict.unrelated) == ((), 7, 0)
    desk.change({2: None, 8: 3})
    verdict = desk.check()
    assert (verdict.wrong, verdict.rows) == ((), 7)


@pytest.mark.parametrize(
    ("gone", "properties", "wrong"),
    [
        ([4, 5], {"spark.app.id": "local-1"}, ""),
        ([4, 5], {}, "no writer"),
        ([4], {"spark.app.id": "local-1"}, "no writer"),
        ([4, 5, 6], {"spark.app.id": "local-1"}, "no writer"),
    ],
)
def test_a_delete_of_whole_files_without_the_number_of_its_change_is_told_by_what_it_removed(
    desk: Desk, gone: list[int], properties: dict[str, str], wrong: str
) -> None:
    desk.check()
    number = len(desk.changes) + 1
    change = desk.changes[number] = Change(number, "spark", "delete", {4: (1, None), 5: (1, None)})
    desk.expected.begin(change)
    desk.table.refresh().delete(In("id", gone), snapshot_properties=properties)
    desk.expected.acknowledge(number)
    found = problems(desk.check())
    assert wrong in found
    assert bool(found) is bool(wrong)


def test_a_row_deleted_behind_the_writers_is_seen(desk: Desk) -> None:
    desk.write({5: None})
    found = problems(desk.check())
    assert "1 rows are lost: 5" in found
    assert "no writer) against its parent: 1 rows are lost: 5" in found


def test_a_deleted_row_that_comes_back_is_seen(desk: Desk) -> None:
    desk.write({1: 1})
    assert "1 rows are there that no writer left there: 1" in problems(desk.check())


def test_an_old_version_that_comes_back_is_seen(desk: Desk) -> None:
    desk.write({0: 1})
    assert "1 rows have another version (id, found, expected): (0, 1, 2)" in problems(desk.check())


def test_a_doubled_row_is_seen(desk: Desk) -> None:
    desk.table.refresh().append(pa.Table.from_pylist([vars(row(3, 1))], schema=SCHEMA))
    assert "1 rows are doubled: 3" in problems(desk.check())


def test_an_altered_row_is_seen(desk: Desk) -> None:
    altered = pa.Table.from_pylist([vars(row(3, 1)) | {"text": "other"}], schema=SCHEMA)
    desk.table.refresh().overwrite(altered, In("id", [3]))
    assert "1 rows were altered: 3" in problems(desk.check())


def test_damage_that_is_repaired_by_the_next_commit_is_seen_in_the_snapshots(desk: Desk) -> None:
    desk.write({5: None})
    desk.write({5: 1})
    verdict = desk.check()
    assert all("against its parent" in sentence for sentence in verdict.wrong)
    assert len(verdict.wrong) == 2


@pytest.mark.parametrize("kind", ["data", "manifest", "manifest list"])
def test_a_missing_file_of_an_old_snapshot_is_seen(desk: Desk, kind: str) -> None:
    table = desk.table
    first = table.snapshots()[0]
    manifest = first.manifests(table.io)[0]
    entry = manifest.fetch_manifest_entry(table.io)[0]
    paths = {"data": entry.data_file.file_path, "manifest": manifest.manifest_path, "manifest list": first.manifest_list}
    desk.check()
    local(paths[kind]).unlink()
    assert problems(desk.check()) == f"file is missing: {paths[kind]}; snapshots that need it: 1, refs: none"


def test_a_missing_file_is_seen_by_a_checker_that_never_read_it(desk: Desk) -> None:
    manifest = desk.table.snapshots()[0].manifests(desk.table.io)[0]
    local(manifest.manifest_path).unlink()
    assert f"file is missing: {manifest.manifest_path}" in problems(desk.check())


def test_a_file_of_another_size_is_seen(desk: Desk) -> None:
    path = next(iter(desk.table.scan().plan_files())).file.file_path
    desk.check()
    local(path).write_bytes(local(path).read_bytes() + b"x")
    assert " bytes instead of " in problems(desk.check())


def test_a_missing_file_of_an_expired_snapshot_is_nobodys_loss(desk: Desk) -> None:
    table = desk.table
    seen = Seen.at(table, desk.expected)
    first = table.snapshots()[0]
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    local(first.manifest_list).unlink()
    assert desk.checker.check(seen).wrong == ()


@pytest.mark.parametrize("lands", [True, False])
def test_a_change_of_unknown_outcome_may_be_there_or_not_and_is_settled_then(desk: Desk, lands: bool) -> None:
    number = desk.change({4: 9, 6: None, 9: 9}, outcome="doubt", lands=lands)
    verdict = desk.check()
    assert (verdict.wrong, verdict.committed) == ((), {number: lands})
    desk.expected.settled(number, committed=lands)
    assert desk.check().wrong == ()


def test_a_change_that_is_there_in_part_is_torn(desk: Desk) -> None:
    number = desk.change({4: 9, 6: None, 9: 9}, outcome="doubt", lands=False)
    desk.write({4: 9}, {CHANGE: str(number)})
    assert f"change {number} (update by spark) is torn" in problems(desk.check())


def test_a_change_that_did_not_land_and_lands_later_is_seen(desk: Desk) -> None:
    number = desk.change({9: 9}, outcome="doubt", lands=False)
    desk.expected.settled(number, committed=desk.check().committed[number])
    desk.write({9: 9}, {CHANGE: str(number)})
    assert "1 rows are there that no writer left there: 9" in problems(desk.check())


def test_a_lost_or_moved_tag_and_a_lost_branch_are_seen(desk: Desk) -> None:
    first, last = desk.table.snapshots()[0].snapshot_id, desk.table.snapshots()[-1].snapshot_id
    desk.table.manage_snapshots().create_tag(last, "moved").commit()
    desk.refs = Refs(tags={"moved": first, "lost": first, "unknown": None}, branches={"gone": []})
    found = desk.check().wrong
    assert found == ("tag lost is lost", f"tag moved is at {last} instead of {first}", "branch gone is lost")


def test_rows_that_are_lost_on_a_branch_are_seen(desk: Desk) -> None:
    desk.table.manage_snapshots().create_branch(desk.table.snapshots()[0].snapshot_id, "side").commit()
    change = Change(99, "updater", "branch", {50: (None, 99)}, "side")
    desk.refs = Refs(branches={"side": [change]})
    assert "branch side lost 1 rows of its own: [50]" in problems(desk.check())
