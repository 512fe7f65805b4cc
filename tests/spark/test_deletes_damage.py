"""Delete files that are missing or damaged: an error that names the file, and a table that is as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neve.rewrite.record import GroupRecord, GroupState, RunOutcome
from tests.builders.spark_deletes import MERGE_ON_READ, delete_equal
from tests.builders.spark_tables import Bench
from tests.builders.table_contents import local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)

Damage = Callable[[Path], object]
Make = Callable[[int], Bench]


def flip(path: Path) -> None:
    """One bit in the middle of a vector, which begins at byte 4 of a Puffin file: its checksum is wrong then."""
    content = bytearray(path.read_bytes())
    content[30] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    """The beginning of the file alone, as an upload that broke off would leave it."""
    path.write_bytes(path.read_bytes()[:20])


def scribble(path: Path) -> None:
    """The same size, and no content that means anything."""
    path.write_bytes(b"\x5a" * path.stat().st_size)


DAMAGES: dict[str, Damage] = {"missing": Path.unlink, "cut off": cut, "overwritten": scribble}
KINDS = {"positions": 2, "equality": 2, "vector": 3}


@pytest.fixture(scope="module")
def make(spark: SparkSession, warehouse: Path) -> Make:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.damage")

    def make(version: int) -> Bench:
        bench = Bench(spark, warehouse, "damage", f"t{next(NUMBERS)}", moves_deletes=True)
        properties = f"'format-version' = '{version}', {MERGE_ON_READ}"
        bench.sql(f"CREATE TABLE {{}} (id BIGINT) USING iceberg TBLPROPERTIES ({properties})")
        for start in (0, 100):
            bench.sql(f"INSERT INTO {{}} SELECT id FROM range({start}, {start + 100}, 1, 1)")
        return bench

    return make


def delete(bench: Bench, kind: str) -> Path:
    """One delete file of the first data file; gives where it is."""
    if kind == "equality":
        delete_equal(bench, [{"id": i} for i in range(0, 50, 3)])
    else:
        bench.sql("DELETE FROM {} WHERE id < 50 AND id % 3 = 0")
    (path,) = bench.deletes()
    return local(path)


def untouched(bench: Bench, compact: Callable[[], GroupRecord]) -> GroupRecord:
    """What became of the only group; the table has the snapshot and the directory the files that they had."""
    head, files = bench.load().metadata.current_snapshot_id, bench.on_disk()
    group = compact()
    assert bench.load().metadata.current_snapshot_id == head
    assert bench.on_disk() == files
    return group


def failed(bench: Bench) -> GroupRecord:
    record = bench.compact()
    assert record.outcome is RunOutcome.FAILED
    (group,) = record.groups
    assert group.state is GroupState.FAILED
    return group


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_delete_file_is_named_and_nothing_is_committed(kind: str, damage: str, make: Make) -> None:
    bench = make(KINDS[kind])
    path = delete(bench, kind)
    DAMAGES[damage](path)
    group = untouched(bench, lambda: failed(bench))
    assert group.reason.startswith("Cannot ")
    assert path.name in group.reason


def test_a_vector_with_a_wrong_checksum_is_named(make: Make) -> None:
    bench = make(3)
    path = delete(bench, "vector")
    flip(path)
    reason = untouched(bench, lambda: failed(bench)).reason
    assert path.name in reason
    assert "checksum" in reason


@pytest.mark.parametrize("damage", [*DAMAGES, "wrong checksum"])
@pytest.mark.parametrize("version", [2, 3])
def test_a_damaged_delete_that_came_late_is_named_and_costs_the_group_alone(version: int, damage: str, make: Make) -> None:
    bench = make(version)
    found: list[Path] = []

    def strike() -> None:
        found.append(delete(bench, "positions"))
        files.update(bench.on_disk())
        (DAMAGES | {"wrong checksum": flip if version == 3 else scribble})[damage](found[0])

    files: set[str] = set()
    record = bench.compact(strike=strike)
    (group,) = record.groups
    assert group.state is GroupState.DROPPED
    assert found[0].name in group.reason
    assert group.outputs
    assert bench.on_disk() - {*bench.quarantine.paths} <= files - {output.path for output in group.outputs}
    assert bench.load().metadata.snapshots[-1].summary["operation"] != "replace"


def test_the_command_says_which_delete_file_is_damaged(make: Make, tmp_path: Path) -> None:
    bench = make(2)
    path = delete(bench, "positions")
    scribble(path)
    head = bench.load().metadata.current_snapshot_id
    arguments = ["compact", f"damage.{bench.name}", "--force", "--warehouse", str(bench.warehouse)]
    options = ["--set", "spark.master=local[1]", "--set", "spark.driver-memory=1 GB"]
    result = subprocess.run(
        [sys.executable, "-m", "neve", *arguments, *options],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    said = result.stdout + result.stderr
    assert result.returncode == 1, said
    assert path.name in "".join(said.split())  # long names are folded
    assert "Traceback" not in said
    assert bench.load().metadata.current_snapshot_id == head
