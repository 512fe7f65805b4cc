"""The same compaction with every kind of class archive: the same result, and nothing printed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from neve.context.class_archives import Prepared, Recording, prepare, wanted_for
from neve.spark.runtime.class_archive import CLASSES, RECORD, checksum
from neve.spark.runtime.session import SparkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = ["none", "good", "stale", "truncated", "flipped", "read-only"]
LONG_AGO = 1_000_000_000


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(SparkOptions(), ["sqlite"])


def test_the_session_of_the_tests_maps_the_archive_and_sees_its_jars(spark: SparkSession, prepared: Prepared) -> None:
    if prepared.archive is None:
        pytest.skip(f"no archive: {prepared.reason}")
    maps = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps")
    if maps.exists():
        assert f"{prepared.archive}/{CLASSES}" in maps.read_text(encoding="utf-8")
    assert spark.sparkContext.getConf().get("spark.jars", "") == ""
    class_path = spark._jvm.java.lang.System.getProperty("java.class.path")
    assert class_path.endswith(":".join(prepared.jars))


def write_table(warehouse: Path) -> None:
    warehouse.mkdir()
    catalog = SqlCatalog("local", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}")
    catalog.create_namespace("db")
    table = catalog.create_table(("db", "t"), schema=pa.schema([("id", pa.int64())]))
    for number in range(4):
        table.append(pa.table({"id": [number]}))
    catalog.close()


def ids_in(warehouse: Path) -> list[int]:
    catalog = SqlCatalog("local", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}")
    try:
        return sorted(catalog.load_table("db.t").scan().to_arrow()["id"].to_pylist())
    finally:
        catalog.close()


def compact(tmp_path: Path, cache: Path, jars: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    """A compaction as a user types it; its document, and what it printed besides."""
    write_table(tmp_path / "warehouse")
    environ = {**os.environ, "NEVE_JARS": os.pathsep.join(jars), "NEVE_JARS_CACHE": str(cache)}
    command = [sys.executable, "-m", "neve", "compact", "db.t", "--force", "--json", "--warehouse", str(tmp_path / "warehouse")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def arrange(kind: str, cache: Path, jars: tuple[str, ...], archive: Path, monkeypatch: pytest.MonkeyPatch) -> Path | None:
    """Puts an archive of this kind where a run with these jars looks for one; its record, where there is one."""
    if kind == "none":
        return None
    if kind == "read-only":  # also for root, who may write into any directory
        cache.write_text("", encoding="utf-8")
        return None
    monkeypatch.setenv("NEVE_JARS", os.pathsep.join(jars))
    key = wanted_for(SparkOptions(), ())[0].key
    monkeypatch.delenv("NEVE_JARS")
    place = cache / "archives" / key
    shutil.copytree(archive, place)
    classes = place / CLASSES
    classes.chmod(0o644)
    if kind == "truncated":
        os.truncate(classes, classes.stat().st_size // 2)
    elif kind == "flipped":
        with classes.open("r+b") as file:
            file.seek(classes.stat().st_size // 3)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 0x10]))
    os.utime(place / RECORD, (LONG_AGO, LONG_AGO))
    return place / RECORD


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_any_archive_gives_the_same_result_and_says_nothing(
    tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    assert prepared.archive is not None, prepared.reason
    jars = prepared.jars
    if kind == "stale":  # recorded from jars in another place: our own check finds nothing wrong, Java must
        jars = tuple(shutil.copy2(jar, str(tmp_path)) for jar in jars)
    record = arrange(kind, tmp_path / "cache", jars, Path(prepared.archive), monkeypatch)
    document, stderr = compact(tmp_path, tmp_path / "cache", jars)
    if record is not None:  # an archive that a run takes is marked as used
        assert (record.stat().st_mtime > LONG_AGO) is (kind in ("good", "stale"))
    assert stderr == ""
    assert (document["outcome"], document["stats"]["files_compacted"], document["stats"]["files_after"]) == ("done", 4, 1)
    assert ids_in(tmp_path / "warehouse") == [0, 1, 2, 3]


@pytest.mark.slow
def test_two_processes_that_make_it_at_once_make_one(tmp_path: Path, prepared: Prepared) -> None:
    environ = {**os.environ, "NEVE_JARS_CACHE": str(tmp_path)}
    recording = Recording(prepared.jars, None, "", background=False).text
    command = [sys.executable, "-P", "-m", "neve.archive_recording", recording]
    processes = [subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate(timeout=600) for process in processes] == [(b"", b"")] * 2
    assert [process.returncode for process in processes] == [0, 0]
    (made,) = (path for path in (tmp_path / "archives").iterdir() if path.name != ".lock")
    record = json.loads((made / RECORD).read_text(encoding="utf-8"))
    assert record["files"][CLASSES]["crc32"] == checksum(made / CLASSES)
