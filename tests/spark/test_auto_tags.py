"""Tags on real Iceberg under a clock that moves: each reads the rows of its day, whatever is written or expired since."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from neve.api import Neve
from neve.errors import BadRequestError, CommitUnknownError
from neve.maintenance.tags import FOREVER_MS, TagsRecord
from neve.rewrite.record import RunOutcome
from neve.spark.maintenance.tags import SparkTags
from tests.builders.spark_connections import Moved, opened
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)
DAY = 86_400_000


@pytest.fixture(scope="module")
def clock() -> Moved:
    return Moved()


@pytest.fixture(scope="module")
def neve(spark: SparkSession, warehouse: Path, clock: Moved, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neve]:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.tagged")
    state = tmp_path_factory.mktemp("state") / "state.db"
    with opened(spark, warehouse, state, clock=clock) as neve:
        yield neve


@pytest.fixture
def bench(spark: SparkSession, warehouse: Path, neve: Neve, clock: Moved) -> Bench:  # noqa: ARG001
    """Id 0, and the clock stands at the moment when it was committed."""
    bench = Bench(spark, warehouse, "tagged", f"t{next(NUMBERS)}")
    bench.sql("CREATE TABLE {} (id BIGINT) USING iceberg TBLPROPERTIES ('neve.auto-tags' = 'daily 2')")
    bench.sql("INSERT INTO {} VALUES (0)")
    clock.now = bench.load().metadata.snapshots[0].timestamp_ms
    return bench


def run(neve: Neve, bench: Bench, **words: Any) -> TagsRecord:
    return neve.tags(f"{bench.namespace}.{bench.name}", **words)


def day(bench: Bench) -> str:
    """Of the first commit."""
    return datetime.fromtimestamp(bench.load().metadata.snapshot_log[0].timestamp_ms / 1000, UTC).date().isoformat()


def tags(bench: Bench) -> dict[str, int]:
    return {name: ref.snapshot_id for name, ref in bench.load().metadata.refs.items() if name != "main"}


def test_a_day_is_tagged_when_it_is_over_and_reads_its_rows_for_good(bench: Bench, neve: Neve, clock: Moved) -> None:
    head = bench.load().metadata.current_snapshot_id
    name = f"neve-daily-{day(bench)}"
    early = run(neve, bench)
    assert (early.outcome, tags(bench)) == (RunOutcome.NOTHING_TO_DO, {})
    clock.now += DAY
    told = run(neve, bench, dry_run=True)
    assert (told.outcome, [t.name for t in told.created], tags(bench)) == (RunOutcome.DONE, [name], {})
    record = run(neve, bench)
    assert (record.outcome, record.created) == (RunOutcome.DONE, told.created)
    assert tags(bench) == {name: head}
    bench.sql("INSERT INTO {} VALUES (1)")
    bench.expire()
    assert [row.id for row in bench.sql(f"SELECT id FROM {{}} VERSION AS OF '{name}'").collect()] == [0]
    assert run(neve, bench).outcome is RunOutcome.NOTHING_TO_DO
    assert neve.runs(limit=1)[0].kind == "tags"
    assert "neve.lease" not in bench.load().properties


def test_old_tags_of_ours_go_and_those_of_others_stay(bench: Bench, neve: Neve, clock: Moved) -> None:
    ours = ["neve-daily-2020-01-01", "neve-daily-2020-01-02", "neve-monthly-2020-01"]
    others = ["release", "neve-daily-2020-01-01-audit", "neve-weekly-2020-W01"]
    for name in [*ours, *others]:
        bench.sql(f"ALTER TABLE {{}} CREATE TAG `{name}`")
    bench.sql("ALTER TABLE {} SET TBLPROPERTIES ('neve.auto-tags' = 'daily 2, monthly 1')")
    clock.now += 400 * DAY
    record = run(neve, bench)
    assert [t.name for t in record.dropped] == ["neve-daily-2020-01-01", "neve-monthly-2020-01"]
    assert set(tags(bench)) == {*others, "neve-daily-2020-01-02", f"neve-daily-{day(bench)}", f"neve-monthly-{day(bench)[:7]}"}


def test_tags_outlive_a_limit_that_the_table_sets_for_all(bench: Bench, neve: Neve, clock: Moved) -> None:
    bench.sql("ALTER TABLE {} SET TBLPROPERTIES ('history.expire.max-ref-age-ms' = '1')")
    bench.sql("ALTER TABLE {} CREATE TAG loose")
    clock.now += DAY
    (made,) = run(neve, bench).created
    bench.sql("INSERT INTO {} VALUES (1)")
    bench.expire()
    assert list(tags(bench)) == [made.name]
    assert bench.load().metadata.refs[made.name].max_ref_age_ms == FOREVER_MS


def test_a_tag_that_somebody_moves_at_this_moment_is_not_dropped(
    bench: Bench, neve: Neve, clock: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("neve-daily-2020-01-01", "neve-daily-2020-01-02"):
        bench.sql(f"ALTER TABLE {{}} CREATE TAG `{name}`")
    clock.now += DAY
    change, tried = SparkTags.change_tags, list[bool]()

    def struck(self: SparkTags, *args: Any) -> bool:
        if not tried:
            bench.sql("INSERT INTO {} VALUES (1)")
            bench.sql("ALTER TABLE {} REPLACE TAG `neve-daily-2020-01-01`")
        tried.append(change(self, *args))
        return tried[-1]

    monkeypatch.setattr(SparkTags, "change_tags", struck)
    monkeypatch.setattr("neve.operations.tags.ATTEMPTS", 1)
    assert run(neve, bench).outcome is RunOutcome.FAILED
    assert tried == [False]
    assert set(tags(bench)) == {"neve-daily-2020-01-01", "neve-daily-2020-01-02"}


def test_an_answer_that_was_lost_is_found_in_the_table(
    bench: Bench, neve: Neve, clock: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.now += DAY
    change = SparkTags.change_tags

    def lost(self: SparkTags, *args: Any) -> bool:
        change(self, *args)
        raise CommitUnknownError("Cannot tell whether the commit landed: the line broke")

    monkeypatch.setattr(SparkTags, "change_tags", lost)
    record = run(neve, bench)
    assert (record.outcome, [t.name for t in record.created]) == (RunOutcome.DONE, [f"neve-daily-{day(bench)}"])


def test_a_table_without_a_policy_is_told_how_to_get_one(
    bench: Bench, spark: SparkSession, warehouse: Path, tmp_path: Path
) -> None:
    bench.sql("ALTER TABLE {} UNSET TBLPROPERTIES ('neve.auto-tags')")
    with (
        opened(spark, warehouse, tmp_path / "s.db") as plain,
        pytest.raises(BadRequestError, match=r"Cannot keep tags of .*: auto-tags does not say which"),
    ):
        run(plain, bench)
