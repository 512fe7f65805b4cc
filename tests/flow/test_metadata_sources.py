"""Whether a dry run rests on cached metadata alone: every reader of the request counts, and so do Spark and the storage."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from neve.context.table import TableContext
from neve.operations.rollback import RolledBack
from neve.rewrite.remaining import Remaining
from neve.table.state import TableName

DONE = RolledBack(run_id="a", table="l.db.t", branch="main", from_snapshot=2, to_snapshot=1)
PREVIEW = DONE.model_copy(update={"dry_run": True})
LEFT = Remaining(run_id="a", table="l.db.t", branch="main", started_ms=0, groups=())


class Reader:
    """Has read from the cache, or from storage as well."""

    def __init__(self, *, cached: bool) -> None:
        self.cached = cached

    def from_cache(self) -> bool:
        return self.cached

    def state(self) -> Any:
        return SimpleNamespace(snapshots=(), snapshot_id=1)


class Connection:
    """Opens readers one after the other."""

    clock = spark = session = None
    session_uses = 0

    def __init__(self, *readers: Reader) -> None:
        self.readers = list(readers)

    def name(self, _: str) -> TableName:
        return TableName(catalog="l", namespace=("db",), name="t")

    def reader(self, _: TableName) -> Reader:
        return self.readers.pop(0)

    def storage(self, _: TableName) -> dict[str, str]:
        return {}


def context(*cached: bool) -> TableContext:
    connection: Any = Connection(*(Reader(cached=each) for each in cached))
    return TableContext(connection, "db.t")


@pytest.mark.parametrize(
    ("cached", "expected"), [((True, True), True), ((True, False), False), ((False, True), False), ((), False)]
)
def test_a_dry_run_rests_on_the_cache_if_every_reader_does(cached: tuple[bool, ...], expected: bool) -> None:
    opened = context(*cached)
    for _ in cached:
        opened.fresh().reader()
    for preview in (PREVIEW, LEFT):
        assert opened.sourced(preview).metadata_from_cache is expected


def test_a_dry_run_that_started_spark_does_not_rest_on_the_cache() -> None:
    opened = context(True, True)
    opened.reader()
    _ = opened.fresh().spark
    opened.reader()
    assert opened.sourced(PREVIEW).metadata_from_cache is False


def test_a_view_of_the_table_opens_its_storage_when_files_are_looked_for() -> None:
    opened = context(True)
    view = opened.view()
    assert view.missing([]) == set()
    assert opened.sourced(PREVIEW).metadata_from_cache is True
    assert view.missing(["file:///nowhere/a.parquet"]) == {"file:///nowhere/a.parquet"}
    assert opened.sourced(PREVIEW).metadata_from_cache is False


def test_a_run_that_changed_the_table_does_not_say_where_its_metadata_came_from() -> None:
    opened = context(True)
    opened.reader()
    assert opened.sourced(DONE) is DONE
    assert "metadata_from_cache" not in DONE.model_dump(mode="json")
    assert "metadata_from_cache" in opened.sourced(PREVIEW).model_dump(mode="json")
