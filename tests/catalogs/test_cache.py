"""The metadata cache: what it keeps, what it drops, and that it never gets in the way."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from neve.catalogs.cache import MetadataCache


@pytest.fixture
def cache(tmp_path: Path) -> MetadataCache:
    return MetadataCache(tmp_path / "cache", max_bytes=1000, ttl_seconds=3600)


def entries(cache: MetadataCache) -> list[Path]:
    return [path for path in cache.directory.rglob("*") if path.is_file()]


def test_produces_once_and_finds_after(cache: MetadataCache) -> None:
    calls = []

    def produce() -> bytes:
        calls.append(1)
        return b"data"

    assert [cache.fetch("manifest", "s3://b/m", produce) for _ in range(3)] == [b"data"] * 3
    assert len(calls) == 1


def test_kinds_and_locations_are_kept_apart(cache: MetadataCache) -> None:
    cache.keep("a", "x", b"1")
    cache.keep("b", "x", b"2")
    cache.keep("a", "y", b"3")
    assert [cache.find("a", "x"), cache.find("b", "x"), cache.find("a", "y"), cache.find("b", "y")] == [b"1", b"2", b"3", None]


def test_an_entry_past_its_time_is_gone(cache: MetadataCache) -> None:
    cache.keep("a", "x", b"1")
    (path,) = entries(cache)
    os.utime(path, (time.time() - 3601, time.time() - 3601))
    assert cache.find("a", "x") is None
    assert entries(cache) == []


def test_stays_within_its_size_and_drops_what_was_unused_for_longest(cache: MetadataCache) -> None:
    for i in range(30):
        cache.keep("a", f"x{i}", bytes(90))
        (newest,) = [path for path in entries(cache) if path == cache._path("a", f"x{i}")]
        os.utime(newest, (time.time() - 1000 + i, time.time() - 1000 + i))
    cache.sweep()
    assert sum(path.stat().st_size for path in entries(cache)) <= 1000
    assert cache.find("a", "x29") is not None
    assert cache.find("a", "x0") is None


def test_a_hit_counts_as_use(cache: MetadataCache) -> None:
    cache.keep("a", "old", bytes(60))
    cache.keep("a", "new", bytes(50))
    cache.max_bytes = 100
    for name, age in (("old", 200), ("new", 100)):
        os.utime(cache._path("a", name), (time.time() - age, time.time() - age))
    cache.find("a", "old")
    cache.sweep()
    assert (cache.find("a", "old") is not None, cache.find("a", "new") is not None) == (True, False)


def test_a_directory_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    cache = MetadataCache(blocked / "cache", max_bytes=1000, ttl_seconds=3600)
    assert cache.fetch("a", "x", lambda: b"data") == b"data"
    assert cache.find("a", "x") is None
