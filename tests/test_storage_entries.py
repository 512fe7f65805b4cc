"""What lies in a directory, on disk and on a real S3 server, with ages, however the directory is spelled."""

from __future__ import annotations

import os
import time
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from neve.errors import AccessDeniedError
from neve.storage.files import RealDirectories, Storage, StorageEntry

if TYPE_CHECKING:
    from stack.endpoints import S3Endpoint

NAMES = ["a", "b/c d", "b/e%20#?/f", "_g/h"]


def make(root: Path) -> None:
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"12")
        os.utime(root / name, ns=(0, 1_700_000_000_123_456_789))


@pytest.mark.parametrize("spelling", ["{}", "file:{}", "file://{}"])
def test_local_entries_have_size_and_age_and_are_spelled_as_their_directory(tmp_path: Path, spelling: str) -> None:
    make(tmp_path)
    root, storage = spelling.format(tmp_path), Storage({})
    found = sorted(storage.entries(root))
    directories = [StorageEntry(f"{root}/{name}", None, None) for name in ("_g", "b")]
    assert found == [directories[0], StorageEntry(f"{root}/a", 2, 1_700_000_000_123), directories[1]]
    files = [entry for entry in storage.entries(root, recursive=True) if entry.size_bytes is not None]
    assert sorted(entry.path for entry in files) == sorted(f"{root}/{name}" for name in NAMES)


@pytest.mark.parametrize(
    ("on_disk", "asked"),
    [("region=EU", "region=eu"), ("region=eu", "region=EU"), ("d\u00e9", "de\u0301"), ("de\u0301", "d\u00e9")],
)
def test_a_disk_that_ignores_case_or_accents_has_one_name_for_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_disk: str, asked: str
) -> None:
    (tmp_path / on_disk / "x").mkdir(parents=True)
    assert RealDirectories()(f"{tmp_path}/{asked}/x") == f"{tmp_path}/{asked}/x"  # another directory, on most disks
    names = {unicodedata.normalize("NFC", str(path)).casefold() for path in (tmp_path / on_disk, tmp_path / on_disk / "x")}
    exists = os.path.lexists

    def ignoring(path: str) -> bool:
        return exists(path) or unicodedata.normalize("NFC", str(path)).casefold() in names

    monkeypatch.setattr(os.path, "lexists", ignoring)
    assert RealDirectories()(f"{tmp_path}/{asked}/x") == f"{tmp_path}/{on_disk}/x"
    assert RealDirectories()(f"{tmp_path}/{on_disk}/x") == f"{tmp_path}/{on_disk}/x"


def test_names_that_differ_in_case_are_two_directories_where_both_are_listed(tmp_path: Path) -> None:
    for name in ("p=A", "P=a"):
        (tmp_path / name).mkdir()
        assert RealDirectories()(f"{tmp_path}/{name}") == f"{tmp_path}/{name}"


def test_links_are_not_followed_and_what_is_gone_is_empty(tmp_path: Path) -> None:
    make(tmp_path / "there")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "there")
    (tmp_path / "here" / "file").symlink_to(tmp_path / "there" / "a")
    assert list(Storage({}).entries(str(tmp_path / "here"), recursive=True)) == []
    assert list(Storage({}).entries(str(tmp_path / "gone"), recursive=True)) == []


@pytest.mark.stack
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_entries_of_a_bucket_say_the_same(s3: S3Endpoint, scheme: str) -> None:
    properties = {"s3.endpoint": s3.endpoint, "s3.access-key-id": s3.access_key, "s3.secret-access-key": s3.secret_key}
    storage, root = Storage(properties), f"{scheme}://{s3.bucket}/{uuid4().hex}/t"
    for name in [*NAMES, "../t_2/x"]:
        sink = storage.sink(f"{root}/{name}".replace("t/../", ""))
        sink.write(b"12")
        sink.close()
    level = {entry.path: entry for entry in storage.entries(root)}
    assert {path: entry.size_bytes for path, entry in level.items()} == {f"{root}/a": 2, f"{root}/b": None, f"{root}/_g": None}
    moment = level[f"{root}/a"].modified_ms
    assert moment is not None
    assert abs(time.time() * 1000 - moment) < 600_000
    files = [entry.path for entry in storage.entries(root, recursive=True) if entry.size_bytes is not None]
    assert sorted(files) == sorted(f"{root}/{name}" for name in NAMES)
    assert list(storage.entries(f"{root}/none")) == []
    with pytest.raises(AccessDeniedError, match=r"^Cannot list s3"):
        list(Storage(properties | {"s3.secret-access-key": "wrong"}).entries(root))
