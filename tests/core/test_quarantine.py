"""Where trash is and how it comes back, and what is decided on a file from where it is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.maintenance.quarantine import (
    Fate,
    Quarantined,
    QuarantineStep,
    Sides,
    is_trash,
    original_path,
    second_look,
    trash_path,
    way_back,
)

LOCATIONS = ("s3://lake/db/t", "s3a://lake/db/t/", "file:/wh/db/t", "/wh/db/t", "file:///wh/with space/t")
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="/"), min_size=1)


@pytest.mark.parametrize(
    ("path", "location", "trash"),
    [
        ("s3://b/t/data/x.parquet", "s3://b/t", "s3://b/t/.neve-trash/r1/data/x.parquet"),
        ("s3://b/t/data/x.parquet", "s3://b/t/", "s3://b/t/.neve-trash/r1/data/x.parquet"),
        ("/wh/t/metadata/v1.metadata.json", "/wh/t", "/wh/t/.neve-trash/r1/metadata/v1.metadata.json"),
        ("s3a://b/t/data/x.parquet", "s3://b/t", "s3a://b/t/.neve-trash/r1/data/x.parquet"),
        # A sibling whose name begins as the table's does, another bucket, dots: beside the file itself.
        ("s3://b/t_2/data/x.parquet", "s3://b/t", "s3://b/t_2/data/.neve-trash/r1/x.parquet"),
        ("s3://other/data/x.parquet", "s3://b/t", "s3://other/data/.neve-trash/r1/x.parquet"),
        ("/wh/t/../../x.parquet", "/wh/t", "/wh/t/../../.neve-trash/r1/x.parquet"),
        ("file:/wh/t/x.parquet", "/wh/t", "file:/wh/t/.neve-trash/r1/x.parquet"),
    ],
)
def test_trash_is_under_the_table_s_location_or_else_beside_the_file(path: str, location: str, trash: str) -> None:
    assert trash_path(path, "r1", location) == trash
    assert is_trash(trash)
    assert not is_trash(path)
    assert original_path(trash) == path


@given(st.sampled_from(LOCATIONS), st.sampled_from(LOCATIONS), st.lists(names, min_size=1), st.uuids())
def test_every_path_comes_back_from_its_place_in_the_trash(home: str, location: str, parts: list[str], run: object) -> None:
    path = "/".join([home, *parts])
    assert original_path(trash_path(path, str(run), location)) == path


def test_two_runs_and_two_files_never_share_a_place_in_the_trash() -> None:
    places = {trash_path(path, run, "s3://b/t") for path in ("s3://b/t/a", "s3://b/t/d/a", "s3://c/a") for run in ("r1", "r2")}
    assert len(places) == 6


@pytest.mark.parametrize(
    ("here", "there", "free", "needed"),
    [
        (5, None, QuarantineStep.TRASH, QuarantineStep.STAY),
        (5, 5, QuarantineStep.TRASH, QuarantineStep.STAY),  # a copy was made, and the original not yet deleted
        (None, 5, QuarantineStep.DONE, QuarantineStep.BACK),
        (None, None, QuarantineStep.GONE, QuarantineStep.LOST),
        (5, 6, QuarantineStep.REFUSE, QuarantineStep.REFUSE),
        (0, 0, QuarantineStep.TRASH, QuarantineStep.STAY),
        (0, None, QuarantineStep.TRASH, QuarantineStep.STAY),
        (None, 0, QuarantineStep.DONE, QuarantineStep.BACK),
    ],
)
def test_the_second_look(here: int | None, there: int | None, free: QuarantineStep, needed: QuarantineStep) -> None:
    assert second_look(Sides(here, there), needed=False) is free
    assert second_look(Sides(here, there), needed=True) is needed


@pytest.mark.parametrize(
    ("here", "there", "moving", "trashed"),
    [
        (5, None, QuarantineStep.STAY, QuarantineStep.STAY),
        (
            5,
            5,
            QuarantineStep.STAY,
            QuarantineStep.REFUSE,
        ),  # after a move that was interrupted they are the same; otherwise somebody wrote one
        (5, 6, QuarantineStep.REFUSE, QuarantineStep.REFUSE),
        (None, 5, QuarantineStep.BACK, QuarantineStep.BACK),
        (None, None, QuarantineStep.GONE, QuarantineStep.GONE),
        (0, 0, QuarantineStep.STAY, QuarantineStep.REFUSE),
    ],
)
def test_the_way_back(here: int | None, there: int | None, moving: QuarantineStep, trashed: QuarantineStep) -> None:
    words = {"path": "/t/x", "reason": "", "run_id": "r", "recorded_ms": 1, "changed_ms": 1, "trash_path": "/t/.neve-trash/r/x"}
    assert way_back(Quarantined(**words, fate=Fate.RECORDED), Sides(here, there)) is moving
    assert way_back(Quarantined(**words, fate=Fate.TRASHED), Sides(here, there)) is trashed
