"""As much of HTTP/1.1 as a proxy needs to pass messages on byte for byte: heads, and where bodies end.

Nothing is re-encoded: S3 signatures cover headers as they were sent, so they arrive as they were sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

HEAD_LIMIT = 256 * 1024
_PIECE = 64 * 1024
# Never passed on: they would turn the connection into something that is not HTTP/1.1.
_UPGRADES = (b"upgrade", b"http2-settings")


class BrokenMessageError(Exception):
    """What came is no HTTP/1.1 message, or it ended too early."""


@dataclass(frozen=True)
class Head:
    """A start line and headers, with the bytes as they came."""

    start: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    raw: bytes

    @property
    def method(self) -> str:
        """Of a request."""
        return self.start.split(b" ")[0].decode("latin-1")

    @property
    def target(self) -> str:
        """Path and query of a request."""
        return self.start.split(b" ")[1].decode("latin-1")

    @property
    def status(self) -> int:
        """Of an answer."""
        return int(self.start.split(b" ")[1])

    def value(self, name: bytes) -> bytes:
        """All values of a header, joined; empty if it is absent."""
        return b",".join(value for key, value in self.headers if key == name)

    def has_token(self, name: bytes, token: bytes) -> bool:
        """Whether a header's comma-separated value has the token, in any case."""
        return token in {part.strip().lower() for part in self.value(name).split(b",")}

    @property
    def keeps_alive(self) -> bool:
        """Whether the sender means to use the connection again."""
        if b"HTTP/1.1" in self.start:
            return not self.has_token(b"connection", b"close")
        return self.has_token(b"connection", b"keep-alive")

    def to_forward(self) -> bytes:
        """The bytes to send on: as they came, unless an upgrade was asked for."""
        if not self.value(b"upgrade"):
            return self.raw
        lines = self.raw.split(b"\r\n")
        kept = [line for line in lines[1:] if line.split(b":")[0].strip().lower() not in (*_UPGRADES, b"connection")]
        return b"\r\n".join([lines[0], *kept])


@dataclass(frozen=True)
class Body:
    """How a body ends: after `length` bytes, with the last chunk, or with the connection (neither)."""

    length: int | None = None
    chunked: bool = False

    @property
    def ends_with_connection(self) -> bool:
        """True if only the end of the connection ends it."""
        return self.length is None and not self.chunked


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next head; None if the connection ended before it began."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial.strip():
            return None
        raise BrokenMessageError("the head was cut") from error
    except asyncio.LimitOverrunError as error:
        raise BrokenMessageError("the head is too long") from error
    return _parse(raw.lstrip(b"\r\n"))


def _parse(raw: bytes) -> Head:
    start, *lines = raw[:-4].split(b"\r\n")
    if start.count(b" ") < 1 or b"HTTP/1." not in start:
        raise BrokenMessageError(f"not HTTP/1.1: {start[:60]!r}")
    pairs = [line.partition(b":") for line in lines if line]
    return Head(start, tuple((name.strip().lower(), value.strip()) for name, _, value in pairs), raw)


def request_body(head: Head) -> Body:
    """How the body of a request ends; without any word on it there is none."""
    if head.has_token(b"transfer-encoding", b"chunked"):
        return Body(chunked=True)
    return Body(length=_length(head) or 0)


def answer_body(head: Head, method: str) -> Body:
    """How the body of an answer ends; some answers have none, whatever their headers say."""
    if method == "HEAD" or head.status in (204, 304) or head.status < 200:
        return Body(length=0)
    if head.has_token(b"transfer-encoding", b"chunked"):
        return Body(chunked=True)
    return Body(length=_length(head))


def _length(head: Head) -> int | None:
    text = head.value(b"content-length")
    if not text:
        return None
    if not text.isdigit():
        raise BrokenMessageError(f"Content-Length {text!r}")
    return int(text)


async def pieces(reader: asyncio.StreamReader, body: Body) -> AsyncIterator[bytes]:
    """The body as it is on the wire, chunk marks included. Raises BrokenMessageError if it ends too early."""
    try:
        if body.chunked:
            async for piece in _chunks(reader):
                yield piece
        elif body.length is not None:
            async for piece in _exactly(reader, body.length):
                yield piece
        else:
            while piece := await reader.read(_PIECE):
                yield piece
    except asyncio.IncompleteReadError as error:
        raise BrokenMessageError("the body was cut") from error


async def _exactly(reader: asyncio.StreamReader, length: int) -> AsyncIterator[bytes]:
    left = length
    while left:
        piece = await reader.read(min(left, _PIECE))
        if not piece:
            raise BrokenMessageError(f"the body was cut {left} bytes before its end")
        left -= len(piece)
        yield piece


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        line = await reader.readuntil(b"\r\n")
        yield line
        try:
            size = int(line.split(b";")[0], 16)
        except ValueError as error:
            raise BrokenMessageError(f"chunk size {line!r}") from error
        if size == 0:
            break
        async for piece in _exactly(reader, size + 2):
            yield piece
    while True:
        trailer = await reader.readuntil(b"\r\n")
        yield trailer
        if trailer == b"\r\n":
            return
