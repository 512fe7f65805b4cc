"""64-bit roaring bitmaps in the portable format, with numpy alone: tasks have nothing else.

Used by `puffin`. Decoding checks what it reads and raises ValueError; encoding gives every container its smallest form.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.uint16]

_COOKIE, _RUN_COOKIE = 12346, 12347
_MOST_IN_ARRAY = 4096
_BITMAP_BYTES = 8192
_OFFSETS_FROM = 4
"""Bitmaps with runs say where their containers start from this many on."""
_NONE = np.zeros(0, np.int64)


def decode(data: bytes | memoryview) -> Longs:
    """The positions, ascending."""
    parts: list[Longs] = []
    try:
        at = _decode_all(memoryview(data), parts)
    except (struct.error, IndexError) as error:
        raise ValueError("the bitmap ends too early") from error
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the bitmap")
    positions = np.concatenate(parts) if parts else _NONE
    if len(positions) > 1 and not np.all(positions[1:] > positions[:-1]):
        raise ValueError("the positions of the bitmap do not ascend")
    return positions


def _decode_all(data: memoryview, parts: list[Longs]) -> int:
    (count,) = struct.unpack_from("<Q", data)
    at = 8
    for _ in range(count):
        (high,) = struct.unpack_from("<I", data, at)
        if high >= 2**31:
            raise ValueError("a position of the bitmap is negative")
        at = _decode_one(data, at + 4, high << 32, parts)
    return at


def _decode_one(data: memoryview, at: int, base: int, parts: list[Longs]) -> int:
    (cookie,) = struct.unpack_from("<I", data, at)
    flags = np.zeros(0, bool)
    if cookie & 0xFFFF == _RUN_COOKIE:
        count = (cookie >> 16) + 1
        length = (count + 7) // 8
        flags = np.unpackbits(_bytes(data, at + 4, length), bitorder="little")[:count].astype(bool)
        at += 4 + length
        has_offsets = count >= _OFFSETS_FROM
    elif cookie == _COOKIE:
        (count,) = struct.unpack_from("<I", data, at + 4)
        at += 8
        has_offsets = True
    else:
        raise ValueError(f"the bitmap has cookie {cookie}")
    described = _shorts(data, at, 2 * count).reshape(-1, 2).astype(np.int64)
    at += 4 * count * (2 if has_offsets else 1)
    for i, (key, less_one) in enumerate(described.tolist()):
        is_run = bool(flags[i]) if len(flags) else False
        low, at = _container(data, at, less_one + 1, is_run=is_run)
        parts.append(low + (base + (key << 16)))
    return at


def _container(data: memoryview, at: int, cardinality: int, *, is_run: bool) -> tuple[Longs, int]:
    """Positions of one container, and where the next begins."""
    if is_run:
        (count,) = struct.unpack_from("<H", data, at)
        runs = _shorts(data, at + 2, 2 * count).astype(np.int64).reshape(-1, 2)
        lengths = runs[:, 1] + 1
        starts = np.repeat(runs[:, 0] - np.cumsum(lengths) + lengths, lengths)
        found, at = starts + np.arange(len(starts)), at + 2 + 4 * count
    elif cardinality <= _MOST_IN_ARRAY:
        found, at = _shorts(data, at, cardinality).astype(np.int64), at + 2 * cardinality
    else:
        bits = np.unpackbits(_bytes(data, at, _BITMAP_BYTES), bitorder="little")
        found, at = np.flatnonzero(bits), at + _BITMAP_BYTES
    if len(found) != cardinality:
        raise ValueError(f"a container holds {len(found)} positions and says {cardinality}")
    return found, at


def _shorts(data: memoryview, at: int, count: int) -> Shorts:
    return _bytes(data, at, 2 * count).view("<u2")


def _bytes(data: memoryview, at: int, count: int) -> npt.NDArray[np.uint8]:
    if at + count > len(data):
        raise IndexError
    return np.frombuffer(data, np.uint8, count, at)


def encode(positions: Longs) -> bytes:
    """The bitmap of these positions, which ascend, each once."""
    encoder = Encoder()
    encoder.add(positions)
    return encoder.finish()


class Encoder:
    """Builds a bitmap from positions that come in order, in any number of calls; holds little more than the result."""

    def __init__(self) -> None:
        self.cardinality = 0
        self._last = -1
        self._key = -1
        self._open: list[Shorts] = []
        self._bitmaps: dict[int, _Bitmap] = {}

    def add(self, positions: Longs) -> None:
        """More positions, larger than all before. Raises ValueError if they are not."""
        if not len(positions):
            return
        if positions[0] <= self._last or np.any(positions[1:] <= positions[:-1]):
            raise ValueError("Cannot encode positions: they must ascend, each once, from 0 on")
        self._last = int(positions[-1])
        self.cardinality += len(positions)
        keys, low = positions >> 16, (positions & 0xFFFF).astype("<u2")
        starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        for key, start, stop in zip(keys[starts].tolist(), starts.tolist(), [*starts[1:].tolist(), len(low)], strict=True):
            if key != self._key:
                self._close()
                self._key = key
            self._open.append(low[start:stop].copy())

    def finish(self) -> bytes:
        """The whole bitmap."""
        self._close()
        parts = [struct.pack("<Q", len(self._bitmaps))]
        for high, bitmap in self._bitmaps.items():
            parts += [struct.pack("<I", high), *bitmap.parts()]
        return b"".join(parts)

    def _close(self) -> None:
        if self._open:
            low = np.concatenate(self._open)
            self._bitmaps.setdefault(self._key >> 16, _Bitmap()).add(self._key & 0xFFFF, low)
            self._open = []


class _Bitmap:
    """A bitmap of 32-bit values: its containers, encoded."""

    def __init__(self) -> None:
        self._described: list[tuple[int, int]] = []
        self._is_run: list[bool] = []
        self._containers: list[bytes] = []

    def add(self, key: int, low: Shorts) -> None:
        breaks = np.flatnonzero(np.diff(low.astype(np.int32)) != 1)
        plain_bytes = min(2 * len(low), _BITMAP_BYTES)
        is_run = 2 + 4 * (len(breaks) + 1) < plain_bytes
        self._described.append((key, len(low) - 1))
        self._is_run.append(is_run)
        self._containers.append(_runs(low, breaks) if is_run else _plain(low))

    def parts(self) -> list[bytes]:
        count = len(self._containers)
        header = struct.pack("<II", _COOKIE, count)
        if any(self._is_run):
            flags = np.packbits(np.array(self._is_run), bitorder="little")
            header = struct.pack("<I", _RUN_COOKIE | (count - 1) << 16) + flags.tobytes()
        header += np.array(self._described, "<u2").tobytes()
        if count >= _OFFSETS_FROM or not any(self._is_run):
            sizes = np.array([len(header) + 4 * count, *map(len, self._containers[:-1])])
            header += np.cumsum(sizes).astype("<u4").tobytes()
        return [header, *self._containers]


def _runs(low: Shorts, breaks: Longs) -> bytes:
    starts = low[np.concatenate(([0], breaks + 1))]
    stops = low[np.concatenate((breaks, [len(low) - 1]))]
    return struct.pack("<H", len(starts)) + np.stack([starts, stops - starts], axis=1).astype("<u2").tobytes()


def _plain(low: Shorts) -> bytes:
    if len(low) <= _MOST_IN_ARRAY:
        return low.tobytes()
    bits = np.zeros(1 << 16, bool)
    bits[low] = True
    return np.packbits(bits, bitorder="little").tobytes()
