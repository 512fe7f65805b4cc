"""What the operations on deletes would find, judged from columns of files by the rules by which they choose."""

from __future__ import annotations

import pytest

from neve.maintenance.delete_files import Upkeep
from neve.maintenance.delete_work import DeleteWork, by_deletes
from tests.builders.delete_files import Row, data, equality, positions, vector
from tests.builders.files import make_files
from tests.builders.tables import make_table


def work_of(rows: list[Row], version: int = 2) -> DeleteWork:
    return DeleteWork.of(make_table(format_version=version), make_files(rows))


def own(path: str, of: str, number: int = 2) -> Row:
    return positions(path, number, of=of)


AVRO = {"format": "avro"}


@pytest.mark.parametrize(
    ("rows", "version", "scattered"),
    [
        ([data("a", 1)], 2, 0),
        ([data("a", 1), equality("e", 2)], 2, 0),
        ([data("a", 1), own("p", "a")], 2, 0),
        ([data("a", 1), data("b", 1), own("p", "a"), own("q", "b")], 2, 0),
        ([data("a", 1), own("p", "a"), own("q", "a")], 2, 1),
        ([data("a", 1), positions("p", 2)], 2, 1),
        ([data("a", 1), data("b", 1), positions("p", 2)], 2, 2),
        ([data("a", 3), positions("p", 2)], 2, 0),
        ([data("a", 1), own("p", "a")], 3, 1),
        ([data("a", 1), vector("v", 2, of="a")], 3, 0),
        ([data("a", 1), own("p", "a"), vector("v", 3, of="a")], 3, 0),
        ([data("a", 1), positions("p", 2), {**own("q", "a"), **AVRO}], 2, 0),
        ([data("a", 1), data("b", 1), positions("p", 2), {**own("q", "b"), **AVRO}], 2, 0),
    ],
)
def test_a_rewrite_is_due_for_files_that_have_several_or_shared_deletes_by_position(
    rows: list[Row], version: int, scattered: int
) -> None:
    assert work_of(rows, version).scattered == scattered


def test_six_deletes_of_their_own_files_leave_nothing_to_rewrite_or_to_prune() -> None:
    rows = [data(str(i), 1) for i in range(6)] + [own(f"p{i}", str(i)) for i in range(6)]
    work = work_of(rows)
    assert work.delete_files == 6
    rewrite, prune, convert = (by_deletes(work, one) for one in (Upkeep.REWRITE, Upkeep.PRUNE, Upkeep.CONVERT))
    assert (rewrite.due, prune.due, convert.due) == (False, False, False)
    assert rewrite.why == (
        "data files with several position deletes, or with one that is shared: 0, due from 1, once rows are deleted by position"
    )
    assert prune.why == (
        "deletes that apply to no live file: 0, due from 1, once data files are rewritten or dropped without their deletes"
    )
    assert convert.why == (
        "equality deletes that apply to a file that can be converted: 0, due from 1, once a writer commits an equality delete"
    )


def test_work_that_metadata_shows_is_counted() -> None:
    work = work_of([data("a", 1), own("p", "a"), own("q", "a"), own("gone", "z")])
    rewrite, prune = by_deletes(work, Upkeep.REWRITE), by_deletes(work, Upkeep.PRUNE)
    assert (rewrite.due, rewrite.why) == (True, "1 data file with several position deletes, or with one that is shared")
    assert (prune.due, prune.why) == (True, "1 delete file that applies to no live file")


def test_equality_deletes_that_may_apply_are_checked_rather_than_claimed() -> None:
    work = work_of([data("a", 1), equality("e", 2), equality("f", 3)])
    convert, prune = by_deletes(work, Upkeep.CONVERT), by_deletes(work, Upkeep.PRUNE)
    assert (convert.due, convert.why) == (True, "checks 2 equality delete files that may delete rows")
    assert (prune.due, prune.why) == (True, "checks 2 equality delete files")


def test_an_equality_delete_that_is_older_than_every_file_is_pruned_and_not_converted() -> None:
    work = work_of([data("a", 5), equality("e", 2)])
    assert not by_deletes(work, Upkeep.CONVERT).due
    assert by_deletes(work, Upkeep.PRUNE).why == "1 delete file that applies to no live file"


def test_a_table_without_deletes_has_no_work() -> None:
    assert work_of([data("a", 1)]) == DeleteWork()
