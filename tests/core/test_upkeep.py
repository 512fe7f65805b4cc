"""Which data files get a delete of their own, and which deletes may then go."""

from __future__ import annotations

from typing import Any

import pytest

from neve.maintenance.delete_files import (
    Upkeep,
    UpkeepRecord,
    by_position,
    concerned,
    convertible,
    dangling,
    deletes_of,
    still_resolved,
    superseded,
    targets,
)
from neve.rewrite.live_files import DataFile, LiveFile, SharedDeletes
from neve.rewrite.record import RunOutcome

PATH_ID = 2147483546


def data(path: str, *deletes: DataFile, file_format: str = "parquet") -> LiveFile:
    return LiveFile({"file-path": path, "file-format": file_format}, deletes)


def delete(path: str, content: str = "position-deletes", file_format: str = "parquet", **more: Any) -> DataFile:
    return {"file-path": path, "content": content, "file-format": file_format, "record-count": 1, **more}


def equality(path: str, file_format: str = "parquet") -> DataFile:
    return delete(path, "equality-deletes", file_format, **{"equality-ids": [1]})


def vector(path: str, target: str, offset: int = 4) -> DataFile:
    return delete(path, file_format="puffin") | {"referenced-data-file": target, "content-offset": offset}


def bounds(lower: str, upper: str) -> dict[str, Any]:
    return {
        "lower-bounds": {"keys": [PATH_ID], "values": [lower]},
        "upper-bounds": {"keys": [PATH_ID], "values": [upper]},
    }


OWN = delete("p1", **{"referenced-data-file": "a"})
BOUNDED = delete("p1", **bounds("AA", "AA"))
SHARED = delete("p1", **bounds("AA", "BB"))


@pytest.mark.parametrize(
    ("file", "vectors", "chosen"),
    [
        (data("a"), False, False),
        (data("a", equality("e")), False, False),
        (data("a", OWN), False, False),
        (data("a", BOUNDED), False, False),
        (data("a", SHARED), False, True),
        (data("a", delete("p1")), False, True),
        (data("a", OWN, delete("p2", **{"referenced-data-file": "a"})), False, True),
        (data("a", OWN, equality("e")), False, False),
        (data("a", OWN), True, True),
        (data("a", vector("v", "a")), True, False),
        (data("a", vector("v", "a"), equality("e")), True, False),
        (data("a", SHARED, delete("p2", file_format="avro")), False, False),
        (data("a", SHARED, file_format="orc"), False, True),
        (data("a", delete("p1", file_format="PARQUET")), False, True),
    ],
)
def test_a_file_is_rewritten_unless_it_has_one_delete_of_its_own(file: LiveFile, vectors: bool, chosen: bool) -> None:
    assert bool(targets(Upkeep.REWRITE, [file], vectors=vectors)) is chosen


@pytest.mark.parametrize(
    ("file", "chosen"),
    [
        (data("a"), False),
        (data("a", OWN), False),
        (data("a", equality("e")), True),
        (data("a", equality("e", "avro")), False),
        (data("a", equality("e", "avro"), equality("f")), True),
        (data("a", equality("e"), SHARED, vector("v", "a")), True),
        (data("a", equality("e"), delete("p", file_format="orc")), False),
        (data("a", equality("e"), file_format="orc"), False),
    ],
)
def test_a_file_is_converted_if_its_keys_and_deletes_can_be_read(file: LiveFile, chosen: bool) -> None:
    assert bool(targets(Upkeep.CONVERT, [file], vectors=True)) is chosen


def test_pruning_gives_no_file_a_delete() -> None:
    assert targets(Upkeep.PRUNE, [data("a", SHARED, equality("e"))], vectors=False) == []


def test_deletes_are_told_apart_by_what_they_name() -> None:
    file = data("a", SHARED, equality("e"), equality("f", "avro"), vector("v", "a"))
    assert [one["file-path"] for one in by_position(file)] == ["p1", "v"]
    assert [one["file-path"] for part in file.parts for one in part if convertible(one)] == ["e"]


def test_a_delete_goes_only_when_every_file_that_has_it_is_done() -> None:
    both, one = equality("both"), equality("one")
    live = [data("a", both, one), data("b", both), data("c", equality("other"))]
    meant = [both, one]
    assert superseded(live, {"a"}, meant) == {("one", 0): one}
    assert superseded(live, {"a", "b"}, meant) == {("both", 0): both, ("one", 0): one}
    assert superseded(live, set(), meant) == {}


def test_vectors_of_one_puffin_file_go_one_by_one() -> None:
    first, second = vector("v", "a", 4), vector("v", "b", 40)
    live = [data("a", first), data("b", second)]
    assert superseded(live, {"a"}, [first]) == {("v", 4): first}
    assert dangling([first, second], live[:1]) == {("v", 40): second}


def test_only_what_no_live_file_has_is_dangling() -> None:
    used, loose, old = equality("used"), equality("loose"), delete("old")
    assert dangling([used, loose, old], [data("a", used), data("b")]) == {("loose", 0): loose, ("old", 0): old}
    assert dangling([used], [data("a", used)]) == {}


def test_files_that_share_their_deletes_are_looked_at_once() -> None:
    own, shared = (SHARED,), SharedDeletes((equality("e"),))
    files = [LiveFile({"file-path": str(i)}, own, shared) for i in range(3)]
    looked: list[DataFile] = []

    def choose(delete: DataFile) -> bool:
        looked.append(delete)
        return convertible(delete)

    assert list(deletes_of(files, choose)) == [("e", 0)]
    assert len(looked) == 2
    assert concerned([*files, data("c")], {("p1", 0)}) == files


def test_a_file_that_lost_a_resolved_delete_does_not_count_as_resolved() -> None:
    old, new = equality("old"), equality("new")
    then = {"a": data("a", old), "b": data("b", old), "c": data("c", old), "d": data("d", old, SHARED)}
    now = {"a": data("a", old, new), "b": data("b", new), "d": data("d", old), "e": data("e", old)}
    assert still_resolved(then, now) == {"a", "d"}


def test_the_record_counts_what_is_left() -> None:
    record = UpkeepRecord(
        run_id="r",
        table="t",
        table_uuid="u",
        operation=Upkeep.CONVERT,
        outcome=RunOutcome.DONE,
        started_ms=1000,
        finished_ms=3500,
        data_files=2,
        deletes_before=10,
        deletes_removed=7,
    )
    assert (record.deletes_after, record.seconds) == (5, 2.5)
