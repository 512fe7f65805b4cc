"""Where a job runs."""

from __future__ import annotations

import pytest

from neve.scheduling.job import Decision
from neve.scheduling.targets import RunTarget, choose, room
from neve.table.units import GIB, MIB
from tests.builders.scheduling import claimed_job

SMALL = RunTarget(name="small", max_bytes=GIB)
MEDIUM = RunTarget(name="medium", max_bytes=10 * GIB, max_concurrency=3)
ANY = RunTarget(name="any", kind="submit")


@pytest.mark.parametrize(
    ("size", "name", "max_bytes", "reason"),
    [
        (0, "small", GIB, "the smallest target for 0 B: it takes up to 1 GB"),
        (GIB, "small", GIB, "the smallest target for 1 GB: it takes up to 1 GB"),
        (GIB + 1, "medium", 10 * GIB, "the smallest target for 1 GB: it takes up to 10 GB"),
        (100 * GIB, "any", None, "the smallest target for 100 GB: it takes any size"),
        (None, "any", None, "the size of the job is unknown, and any takes any size"),
    ],
)
def test_the_smallest_target_that_fits_is_chosen(size: int | None, name: str, max_bytes: int | None, reason: str) -> None:
    found = choose("auto", size, [ANY, MEDIUM, SMALL])
    assert (found.name, found.max_bytes, found.reason) == (name, max_bytes, reason)


def test_what_no_target_takes_goes_to_the_largest_within_its_bound() -> None:
    found = choose("auto", 100 * GIB, [MEDIUM, SMALL])
    assert (found.name, found.max_bytes) == ("medium", 10 * GIB)
    assert found.reason == "100 GB are more than any target takes; medium takes the most, up to 10 GB"
    assert choose("auto", None, [MEDIUM, SMALL]).name == "medium"


def test_of_two_alike_the_first_is_chosen() -> None:
    assert choose("auto", MIB, [RunTarget(name="b"), RunTarget(name="a")]).name == "b"


def test_a_target_that_the_policy_names_is_taken_whatever_the_size() -> None:
    assert choose("small", 100 * GIB, [SMALL, ANY]) == choose("small", None, [SMALL, ANY])
    assert choose("small", None, [SMALL, ANY]).max_bytes == GIB


@pytest.mark.parametrize(
    ("wanted", "targets", "reason"),
    [
        ("yarn", [SMALL, ANY], "the policy names the target yarn, and the settings describe small, any"),
        ("yarn", [], "the policy names the target yarn, and the settings describe none"),
        ("auto", [], "the settings describe no target"),
    ],
)
def test_a_target_that_does_not_exist_is_none(wanted: str, targets: list[RunTarget], reason: str) -> None:
    assert (choose(wanted, 1, targets).name, choose(wanted, 1, targets).reason) == (None, reason)


def test_room_is_what_running_jobs_leave() -> None:
    on = [Decision(table="t", table_uuid=f"{n}", operation="compact", reason="", target=n) for n in ("medium", "small", "gone")]
    jobs = [claimed_job(one) for one in [*on, on[1]]]
    assert room([SMALL, MEDIUM, ANY], jobs) == {"small": 0, "medium": 2, "any": 1}
