"""Moving and deleting whole files on a disk: nothing is overwritten, what fails is told by path, empty trash goes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from neve.errors import BadRequestError, MissingExtraError, NeveError, StorageError
from neve.maintenance.quarantine import StoredFile, trash_path
from neve.maintenance.removal import Unreachable
from neve.storage.moves import LocalFiles, StoredFiles
from neve.storage.s3 import is_same
from tests.builders.fake_quarantines import proof


@pytest.fixture
def files() -> StoredFiles:
    return StoredFiles({})


def put(directory: Path, name: str, content: str = "content") -> str:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return str(path)


def sizes(files: StoredFiles, *paths: str) -> list[int | None]:
    return [found and found.size_bytes for found in files.stat(paths)]


def seen(files: StoredFiles, *paths: str) -> dict[str, StoredFile]:
    return {path: found or StoredFile(7, 0) for path, found in zip(paths, files.stat(paths), strict=True)}


@pytest.mark.parametrize("spelling", ["{}", "file:{}", "file://{}"])
@pytest.mark.parametrize("name", ["data/plain", "data/day=2024-02-29/x", "with space", "100%25", "a#b?c", "über"])
def test_a_file_goes_to_the_trash_and_back_however_it_is_spelled(
    tmp_path: Path, files: StoredFiles, spelling: str, name: str
) -> None:
    path = spelling.format(put(tmp_path, name))
    trash = trash_path(path, "r1", spelling.format(tmp_path))
    assert sizes(files, path, trash) == [7, None]
    assert files.move([(path, trash)], proof(path), seen(files, path)) == {}
    assert sizes(files, path, trash) == [None, 7]
    assert (tmp_path / ".neve-trash" / "r1" / name).read_text() == "content"
    assert files.put_back([(trash, path)]) == {}
    assert (tmp_path / name).read_text() == "content"
    assert not (tmp_path / ".neve-trash").exists()


def test_a_move_overwrites_nothing_and_the_others_go_on(tmp_path: Path, files: StoredFiles) -> None:
    a, b = put(tmp_path, "a"), put(tmp_path, "b")
    taken = put(tmp_path, "taken", "mine")
    gone = str(tmp_path / "gone")
    failures = files.move([(a, taken), (gone, f"{gone}2"), (b, f"{b}2")], proof(a, b, gone), seen(files, a, b, gone))
    assert failures == {
        a: f"Cannot move {a}: there is a file at {taken}",
        gone: f"Cannot move {gone}: [Errno 2] No such file or directory: '{gone}' -> '{gone}2'",
    }
    assert (Path(a).read_text(), Path(taken).read_text(), Path(f"{b}2").read_text()) == ("content", "mine", "content")


def test_a_file_that_was_written_again_since_it_was_seen_stays(tmp_path: Path, files: StoredFiles) -> None:
    path = put(tmp_path, "a")
    before = seen(files, path)
    put(tmp_path, "a", "another")
    os.utime(path, (1, 1))
    assert files.move([(path, f"{path}2")], proof(path), before) == {
        path: f"Cannot move {path}: it was written again since it was checked"
    }
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_file_that_is_replaced_between_the_check_and_the_rename_is_put_back(
    tmp_path: Path, files: StoredFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rename = put(tmp_path, "a"), Path.rename

    def replaced(old: Path, new: Path) -> Path:
        put(tmp_path, "a", "of a writer")
        return rename(old, new)

    monkeypatch.setattr(Path, "rename", replaced)
    target = f"{tmp_path}/.neve-trash/r/a"
    assert files.move([(path, target)], proof(path), seen(files, path)) == {
        path: f"Cannot move {path}: it was written again since it was checked"
    }
    assert Path(path).read_text() == "of a writer"
    assert not Path(target).exists()


def test_deleting_what_is_not_there_is_fine_and_empty_trash_goes_with_the_last_file(tmp_path: Path, files: StoredFiles) -> None:
    kept = put(tmp_path, "data/kept")
    first, last = put(tmp_path, ".neve-trash/r1/data/a"), put(tmp_path, ".neve-trash/r1/data/deep/b")
    gone = str(tmp_path / "data" / "gone")
    proved = proof(first, last, kept, gone)
    assert files.delete([first, gone], proved) == {}
    assert Path(last).exists()
    assert files.delete([last], proved) == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
    assert files.delete([kept], proved) == {}
    assert (tmp_path / "data").is_dir()  # a table's own directory stays


def test_what_cannot_be_deleted_is_told_by_path(tmp_path: Path, files: StoredFiles) -> None:
    directory = str(tmp_path / "d")
    Path(directory).mkdir()
    (failure,) = files.delete([directory], proof(directory)).items()
    assert failure[0] == directory
    assert failure[1].startswith(f"Cannot delete {directory}: ")


@pytest.mark.parametrize("store", [StoredFiles({}), LocalFiles()], ids=["any storage", "a disk"])
def test_without_a_proof_that_covers_every_file_none_is_touched(tmp_path: Path, store: Any) -> None:
    proved, other = put(tmp_path, "proved"), put(tmp_path, "other")
    with pytest.raises(NeveError, match=rf"^Cannot remove {other}: nobody has checked that no snapshot needs it$"):
        store.delete([proved, other], proof(proved))
    with pytest.raises(NeveError, match=rf"^Cannot remove {other}: nobody has checked that no snapshot needs it$"):
        store.move([(proved, f"{proved}2"), (other, f"{other}2")], proof(proved), {})
    with pytest.raises(NeveError, match=rf"^Cannot remove {other}: nobody has checked that no snapshot needs it$"):
        store.delete([other], Unreachable.of_nothing())
    with pytest.raises(TypeError, match=r"^Cannot remove files: a proof is needed that nothing needs them, not frozenset$"):
        store.delete([other], frozenset([other]))
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'proof'$"):
        store.delete([other])
    with pytest.raises(NeveError, match=rf"^Cannot put {other} back: it is in no trash directory$"):
        store.put_back([(other, f"{other}2")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "proved"]


def test_a_file_in_the_way_of_a_directory_is_no_file(tmp_path: Path, files: StoredFiles) -> None:
    path = put(tmp_path, "a")
    assert sizes(files, f"{path}/b", path) == [None, 7]


def test_a_disk_keeps_no_versions(tmp_path: Path, files: StoredFiles) -> None:
    path = str(tmp_path / "a")
    assert not files.keeps_versions(path)
    assert files.undelete([path]) == {path: "a disk keeps no older versions"}


def test_other_storage_is_refused(files: StoredFiles) -> None:
    with pytest.raises(BadRequestError, match=r"^Cannot move files on gs: only those on local disks and on S3") as caught:
        files.stat(["gs://b/k"])
    assert caught.value.hint == "They stay in the quarantine's list, and in their place."


def test_a_storage_property_that_would_be_ignored_is_refused() -> None:
    with pytest.raises(
        BadRequestError, match=r"^Cannot use objects on S3: the storage property s3\.sse\.type is not implemented"
    ):
        StoredFiles({"s3.sse.type": "kms"}).keeps_versions("s3://b/k")


def test_the_extra_that_brings_boto3_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingExtraError, match=r"^Cannot use objects on S3: boto3 is not installed$") as caught:
        StoredFiles({}).keeps_versions("s3://b/k")
    assert caught.value.hint == "Install it with: pip install 'neve[aws]'"


def test_a_server_that_is_gone_is_worth_a_retry() -> None:
    gone = {"s3.endpoint": "http://127.0.0.1:9", "s3.region": "us-east-1", "s3.connect-timeout": "1", "s3.request-timeout": "1"}
    keys = {"s3.access-key-id": "a", "s3.secret-access-key": "b"}
    with pytest.raises(StorageError, match=r"^Cannot look at s3://b/k: ") as caught:
        StoredFiles({**gone, **keys}).stat(["s3://b/k"])
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("original", "copy", "same"),
    [
        ({"ETag": '"a"'}, {"ETag": '"a"'}, True),
        ({"ETag": '"a"'}, {"ETag": '"b"'}, False),
        ({"ETag": '"a"', "ContentLength": 6}, {"ETag": '"a"'}, False),
        ({"ETag": '"a-2"'}, {"ETag": '"b"'}, True),
        ({"ETag": '"a"'}, {"ETag": '"b-2"'}, True),
        ({"ETag": '"a-2"', "ContentLength": 6}, {"ETag": '"b"'}, False),
        ({"ETag": '"a"', "ServerSideEncryption": "AES256"}, {"ETag": '"b"', "ServerSideEncryption": "AES256"}, False),
        ({"ETag": '"a"', "ServerSideEncryption": "aws:kms"}, {"ETag": '"b"', "ServerSideEncryption": "aws:kms"}, True),
    ],
)
def test_a_copy_is_compared_by_size_and_by_etags_that_are_hashes(
    original: dict[str, object], copy: dict[str, object], same: bool
) -> None:
    assert is_same({"ContentLength": 5, **original}, {"ContentLength": 5, **copy}) is same
