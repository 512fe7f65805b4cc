"""Reading ahead, and the local sources and sinks."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from neve.errors import StorageError
from neve.kernels import prefetch
from neve.kernels.prefetch import HOLE_BYTES, RANGE_BYTES, Range, coalesced, read_ahead, whole_if_small
from neve.kernels.streams import BytesSource, LocalSink, LocalSource
from tests.builders.parquet_files import FailingSource, RecordingSource

MIB = 1024 * 1024


class MeetingSource(BytesSource):
    """Answers only once as many requests are under way as are to meet; without that, the barrier breaks."""

    def __init__(self, parties: int) -> None:
        super().__init__(bytes(range(256)), "slow.parquet")
        self._barrier = threading.Barrier(parties, timeout=20)

    def read_at(self, offset: int, length: int) -> bytes:
        self._barrier.wait()
        return super().read_at(offset, length)


def reading_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("neve-read")]


def test_quick_storage_is_read_in_order_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "QUICK_SECONDS", 60)
    source = RecordingSource(bytes(range(256)))
    arriving = read_ahead(Range(source, at, 2) for at in range(0, 40, 2))
    assert next(arriving) == b"\0\1"
    assert source.requests == [(0, 2)]
    assert list(arriving) == [bytes([at, at + 1]) for at in range(2, 40, 2)]
    assert reading_threads() == []


def test_slow_storage_is_read_in_parallel_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "QUICK_SECONDS", -1)
    quick, slow = BytesSource(b"ab"), MeetingSource(4)
    ranges = [Range(quick, 0, 1), Range(quick, 1, 1), *(Range(slow, at, 1) for at in range(8))]
    assert b"".join(read_ahead(ranges, threads=4)) == b"ab" + bytes(range(8))
    assert reading_threads() == []


def test_no_more_is_asked_for_ahead_than_may_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "QUICK_SECONDS", -1)
    source = RecordingSource(bytes(100))
    arriving = read_ahead((Range(source, at, 10) for at in range(0, 100, 10)), ahead_bytes=30, threads=2)
    for asked_at_most in (1, 2, 5, 6, 7):
        next(arriving)
        assert len(source.requests) <= asked_at_most
    arriving.close()
    assert reading_threads() == []


@pytest.mark.parametrize("quick_seconds", [60, -1])
def test_a_failed_request_is_raised_in_its_turn_and_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch, quick_seconds: float
) -> None:
    monkeypatch.setattr(prefetch, "QUICK_SECONDS", quick_seconds)
    source = FailingSource(bytes(100), "cut.parquet", fails_at=4)
    arriving = read_ahead((Range(source, at, 10) for at in range(0, 100, 10)), threads=1)
    assert [len(next(arriving)) for _ in range(3)] == [10, 10, 10]
    with pytest.raises(StorageError, match=r"^Cannot read cut.parquet: the connection was cut$"):
        next(arriving)
    assert reading_threads() == []


def test_an_answer_of_the_wrong_length_is_an_error() -> None:
    class ShortSource(BytesSource):
        def read_at(self, offset: int, length: int) -> bytes:
            return super().read_at(offset, length - 1)

    source = ShortSource(bytes(10), "short.parquet")
    with pytest.raises(StorageError, match=r"^Cannot read short.parquet: 9 of 10 bytes at 0 came back$"):
        list(read_ahead([Range(source, 0, 10)]))


def test_near_pieces_share_a_request_and_large_ones_are_cut() -> None:
    source = BytesSource(b"")
    near = [(4, 100), (104 + HOLE_BYTES, 50)]
    far = (204 + 2 * HOLE_BYTES + 1, 2 * RANGE_BYTES + 1)
    found = coalesced(source, [*near, far], until=10**12)
    first_end = 154 + HOLE_BYTES
    assert [(part.offset, part.length) for part in found] == [
        (4, first_end - 4),
        (far[0], RANGE_BYTES),
        (far[0] + RANGE_BYTES, RANGE_BYTES),
        (far[0] + 2 * RANGE_BYTES, 1),
    ]
    assert [(part.offset, part.length) for part in coalesced(source, near, until=50)] == [(4, 46)]
    assert coalesced(source, near, until=4) == []


def test_a_small_file_is_fetched_once_and_a_large_one_by_its_end() -> None:
    small, large = RecordingSource(bytes(range(256)) * 10), RecordingSource(bytes(17 * MIB))
    source = whole_if_small(small)
    assert source.read_at(300, 3) == bytes([44, 45, 46])
    assert source.read_at(0, 2560) == bytes(range(256)) * 10
    assert small.requests == [(0, 2560)]
    source.release()
    source.read_at(5, 5)
    assert len(small.requests) == 2
    source = whole_if_small(large)
    tail = 17 * MIB // 64
    assert source.read_at(17 * MIB - 8, 8) == bytes(8)
    assert source.read_at(17 * MIB - tail, 100) == bytes(100)
    assert source.read_at(0, 4) == bytes(4)
    assert large.requests == [(17 * MIB - tail, tail), (0, 4)]


def test_bytes_outside_a_file_cannot_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    for source in (LocalSource(path), BytesSource(b"0123456789", str(path)), whole_if_small(LocalSource(path))):
        assert source.read_at(3, 4) == b"3456"
        assert source.read_at(10, 0) == b""
        for offset, length in ((-1, 2), (8, 3), (2, -1)):
            with pytest.raises(
                StorageError, match=rf"^Cannot read .*: bytes {offset} to {offset + length} of 10 were asked for$"
            ):
                source.read_at(offset, length)


def test_local_files_that_vanish_or_shrink_are_storage_errors(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    source = LocalSource(path)
    path.write_bytes(b"01234")
    with pytest.raises(StorageError, match=r"^Cannot read .*file: it ended after 5 bytes$"):
        source.read_at(0, 10)
    path.unlink()
    with pytest.raises(StorageError, match=r"^Cannot read .*file: No such file or directory$"):
        source.read_at(0, 10)
    with pytest.raises(StorageError, match=r"^Cannot open .*file: No such file or directory$"):
        LocalSource(path)


def test_a_local_sink_gives_the_file_its_name_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out"
    sink = LocalSink(path)
    sink.write(b"abc")
    sink.write(memoryview(b"def"))
    assert not path.exists()
    sink.close()
    assert path.read_bytes() == b"abcdef"
    sink.abort()
    assert path.read_bytes() == b"abcdef"
    with pytest.raises(StorageError, match=r"^Cannot write .*out: it is closed$"):
        sink.write(b"")
    with pytest.raises(StorageError, match=r"^Cannot complete .*out: it is closed$"):
        sink.close()


def test_an_aborted_local_sink_leaves_nothing(tmp_path: Path) -> None:
    sink = LocalSink(tmp_path / "out")
    sink.write(b"abc")
    sink.abort()
    sink.abort()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StorageError, match=r"^Cannot create .*out: No such file or directory$"):
        LocalSink(tmp_path / "missing" / "out")
