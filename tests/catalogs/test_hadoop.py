"""The survey of a hadoop catalog: every directory that Spark loads as a table, and doubt where that cannot be told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyarrow.fs import FileSelector, LocalFileSystem

from neve.catalogs.opening import IcebergCatalog
from neve.settings.catalog import CatalogSettings
from neve.table.state import TableName


def opened(root: Path) -> IcebergCatalog:
    return IcebergCatalog("h", CatalogSettings.model_validate({"type": "hadoop", "warehouse": str(root)}), environ={})


def add_table(root: Path, name: str, file: str = "v1.metadata.json") -> None:
    (root / name / "data").mkdir(parents=True)
    (root / name / "metadata").mkdir()
    (root / name / "metadata" / file).write_text("{}")


def surveyed(root: Path) -> tuple[set[str], dict[str, str]]:
    found = list(opened(root).survey())
    doubts = {one[0]: str(one[1]) for one in found if isinstance(one, tuple)}
    return {"/".join(one.identifier) for one in found if isinstance(one, TableName)}, doubts


@pytest.mark.parametrize(
    "names",
    [
        ("n/sales", "n/metadata"),
        ("n/metadata", "n/metadata/inner"),
        ("metadata/sales", "metadata/metadata"),
        ("n/data", "n/sales"),
        ("n/.hidden", "n/_hidden", ".n/t", "_n/t"),
        ("n/t", "n/t/inner", "n/t/deep/er/u"),
        ("n/t", "n/t/data"),
        ("n/t", "n/t/metadata"),
        ("n/t", "n/t/metadata/u"),
        ("n/Case", "n/t t", "n/t.dot", "n/t%20", "a=b/t", "é/t"),
        ("at_root", "at_root/inner"),
    ],
    ids=str,
)
def test_a_survey_has_every_table_that_can_be_loaded_by_its_name(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in sorted(names):
        for part in ("data", "metadata"):
            (tmp_path / name / part).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "metadata" / "v1.metadata.json").write_text("{}")
    assert surveyed(tmp_path) == (set(names), {})


@pytest.mark.parametrize("file", ["v1.metadata.json", "v3.gz.metadata.json", "v2.metadata.json.gz", "00000-a.metadata.json"])
def test_a_directory_with_any_metadata_file_is_surveyed(tmp_path: Path, file: str) -> None:
    add_table(tmp_path, "n/t", file)
    assert surveyed(tmp_path) == ({"n/t"}, {})


@pytest.mark.parametrize("left", ["n/gone/metadata", "n/gone/data", "n/gone/metadata/v1.metadata.json"])
def test_what_a_dropped_table_left_is_no_table(tmp_path: Path, left: str) -> None:
    add_table(tmp_path, "n/t")
    (tmp_path / left).mkdir(parents=True)
    assert surveyed(tmp_path) == ({"n/t"}, {})


def test_the_tables_of_a_namespace_are_listed_beside_one_named_metadata(tmp_path: Path) -> None:
    for name in ("n/sales", "n/metadata", "n/inner/t"):
        add_table(tmp_path, name)
    (tmp_path / "n" / "left_over" / "metadata").mkdir(parents=True)
    assert [str(name) for name in opened(tmp_path).tables()] == ["h.n.metadata", "h.n.sales", "h.n.inner.t"]


def test_tables_behind_links_are_surveyed(tmp_path: Path) -> None:
    add_table(tmp_path / "elsewhere", "t")
    (tmp_path / "w" / "n").mkdir(parents=True)
    (tmp_path / "w" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "w" / "n" / "u").symlink_to(tmp_path / "elsewhere" / "t")
    (tmp_path / "w" / "n" / "dangling").symlink_to(tmp_path / "gone")
    assert surveyed(tmp_path / "w") == ({"linked/t", "n/u"}, {})


def test_links_that_lead_back_end(tmp_path: Path) -> None:
    add_table(tmp_path, "n/t")
    (tmp_path / "n" / "again").symlink_to(tmp_path / "n")
    (tmp_path / "n" / "once_more").symlink_to(tmp_path / "n")
    (tmp_path / "n" / "top").symlink_to(tmp_path)
    assert surveyed(tmp_path) == ({"n/t"}, {})
    assert [str(name) for name in opened(tmp_path).tables()] == ["h.n.t"]


def test_a_link_to_what_the_warehouse_lies_in_is_doubt(tmp_path: Path) -> None:
    add_table(tmp_path, "w/n/t")
    (tmp_path / "w" / "n" / "out").symlink_to(tmp_path)
    tables, doubts = surveyed(tmp_path / "w")
    assert tables == {"n/t"}
    assert list(doubts) == ["h.n.out"]
    assert "leads out of the warehouse" in doubts["h.n.out"]


@pytest.mark.parametrize("closed", ["n/closed", "n/closed/metadata"])
def test_a_directory_that_cannot_be_listed_is_doubt_and_hides_no_other(
    tmp_path: Path, closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("n/closed", "n/t"):
        add_table(tmp_path, name)

    class Closed(LocalFileSystem):  # type: ignore[misc]
        def get_file_info(self, asked: FileSelector) -> object:
            if getattr(asked, "base_dir", "") == str(tmp_path / closed):
                raise PermissionError(13, "Permission denied")
            return super().get_file_info(asked)

    monkeypatch.setattr("neve.catalogs.hadoop._filesystem", lambda _, location: (Closed(), location))
    tables, doubts = surveyed(tmp_path)
    assert tables == {"n/t"}
    assert list(doubts) == ["h.n.closed"]
    assert f"Cannot read {tmp_path}/{closed}: access denied" in doubts["h.n.closed"]


def test_names_that_are_not_utf8_hide_no_table(tmp_path: Path) -> None:
    add_table(tmp_path, "n/t")
    os.mkdir(os.fsencode(tmp_path / "n") + b"/\xff")  # noqa: PTH102
    (tmp_path / "n" / "t" / "metadata" / os.fsdecode(b"\xff.avro")).write_text("")
    assert surveyed(tmp_path) == ({"n/t"}, {})


def test_a_warehouse_that_is_missing_is_doubt(tmp_path: Path) -> None:
    tables, doubts = surveyed(tmp_path / "not_mounted")
    assert (tables, list(doubts)) == (set(), ["h"])
    assert "there is no such directory" in doubts["h"]
