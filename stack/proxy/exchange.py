"""One client connection: request after request, each passed on, held back, answered in the server's stead or cut.

Only `front` calls it. The proxy adds no failure of its own: where the server closes, the client's connection closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from stack.proxy import http1
from stack.proxy.faults import Fault, Faults
from stack.proxy.http1 import Body, BrokenMessageError, Head
from stack.proxy.requests import Request, Requests, kind_of

_LEFTOVER_SECONDS = 1.0
_S3_CODES = {500: "InternalError", 503: "SlowDown", 403: "AccessDenied", 404: "NoSuchKey", 429: "TooManyRequests"}
_CATALOG_TYPES = {401: "NotAuthorizedException", 403: "ForbiddenException", 503: "ServiceUnavailableException"}


class _CutError(Exception):
    """The connection is to be cut here, on purpose or because a side has gone."""


@dataclass
class Link:
    """A client's connection and, once there was a request, the one to the server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    address: tuple[str, int]
    faults: Faults
    requests: Requests
    server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The connection to the server, opened on first use."""
        if self.server is None:
            self.server = await asyncio.open_connection(*self.address, limit=http1.HEAD_LIMIT)
        return self.server

    def abort(self) -> None:
        """Closes both connections at once, without sending what is still waiting."""
        self.writer.transport.abort()
        if self.server is not None:
            self.server[1].transport.abort()


@dataclass
class _Exchange:
    """One request on its way, and what will be written down about it."""

    head: Head
    begun: float = field(default_factory=time.monotonic)
    fault: str | None = None
    status: int | None = None
    sent: int = 0
    received: int = 0

    def record(self) -> Request:
        target = self.head.target
        seconds = time.monotonic() - self.begun
        method, kind = self.head.method, kind_of(target)
        return Request(method, target, kind, self.status, self.fault, self.sent, self.received, seconds)


async def serve(link: Link) -> None:
    """Handles requests until a side closes, or a fault does."""
    with contextlib.suppress(OSError, BrokenMessageError, _CutError):
        while (head := await _next_request(link)) is not None:
            exchange = _Exchange(head)
            link.requests.arrived(head.method, kind_of(head.target))
            try:
                keep = await _handle(link, exchange)
            finally:
                link.requests.ended(exchange.record())
            if not keep:
                break
        await _close_politely(link.writer)


async def _next_request(link: Link) -> Head | None:
    """The next request, or None if the client has left, or the server has: then the client must know it as well."""
    request = asyncio.ensure_future(http1.read_head(link.reader))
    if link.server is None:
        return await request
    # Nothing is due from the server between requests, so this ends only when it closes.
    closing = asyncio.ensure_future(link.server[0].read(1))
    try:
        await asyncio.wait({request, closing}, return_when=asyncio.FIRST_COMPLETED)
        if closing.done() and request.done():
            # They crossed. The request has not been sent on yet, so a fresh connection can take it.
            link.server[1].transport.abort()
            link.server = None
        return request.result() if request.done() else None
    finally:
        for task in (request, closing):
            task.cancel()
        await asyncio.gather(request, closing, return_exceptions=True)


async def _handle(link: Link, exchange: _Exchange) -> bool:
    """One request. Returns whether the connection can take another."""
    end: Fault | None = None
    for fault in link.faults.draw(exchange.head.method, exchange.head.target):
        exchange.fault = fault.kind
        if fault.kind == "delay":
            await asyncio.sleep(fault.seconds)
        else:
            end = fault
    if end and end.kind == "drop":
        raise _CutError
    if end and end.kind == "answer":
        return await _answer(link, exchange, end)
    return await _pass_on(link, exchange, end)


async def _answer(link: Link, exchange: _Exchange, fault: Fault) -> bool:
    """An error of our own, after the request's body: an early answer would look like a cut to many clients."""
    head = exchange.head
    waits = head.has_token(b"expect", b"100-continue")
    if not waits:
        async for piece in http1.pieces(link.reader, http1.request_body(head)):
            exchange.sent += len(piece)
    message = _error_message(head, fault, close=waits)
    exchange.status = fault.status
    link.writer.write(message)
    await link.writer.drain()
    return head.keeps_alive and not waits


def _error_message(head: Head, fault: Fault, *, close: bool) -> bytes:
    kind, body = _error_body(head, fault.status)
    headers = [("Content-Type", kind), ("Content-Length", str(len(body))), *fault.headers]
    if close or not head.keeps_alive:
        headers.append(("Connection", "close"))
    lines = [f"HTTP/1.1 {fault.status} Injected", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1") + (b"" if head.method == "HEAD" else body)


def _error_body(head: Head, status: int) -> tuple[str, bytes]:
    message = "Injected by the fault proxy"
    if head.value(b"authorization").startswith(b"AWS4") or b"X-Amz-Signature" in head.start:
        code, resource = _S3_CODES.get(status, "InternalError"), escape(head.target)
        inner = f"<Code>{code}</Code><Message>{message}</Message><Resource>{resource}</Resource>"
        return "application/xml", f'<?xml version="1.0" encoding="UTF-8"?><Error>{inner}</Error>'.encode()
    kind = _CATALOG_TYPES.get(status, "InternalServerError")
    return "application/json", json.dumps({"error": {"message": message, "type": kind, "code": status}}).encode()


async def _pass_on(link: Link, exchange: _Exchange, fault: Fault | None) -> bool:
    head = exchange.head
    reader, writer = await link.connect()
    writer.write(head.to_forward())
    limit = _limit(fault, "cut-upload", http1.request_body(head))
    upload = asyncio.create_task(_upload(link, exchange, writer, limit))
    try:
        answer = await _final_head(link, reader, upload)
        if fault and fault.kind == "drop-answer":
            raise _CutError
        exchange.status = answer.status
        body = http1.answer_body(answer, head.method)
        link.writer.write(answer.raw)
        await _download(link, exchange, reader, body, _limit(fault, "cut", body))
        whole = await _is_over(upload)
        return whole and head.keeps_alive and answer.keeps_alive and not body.ends_with_connection
    finally:
        upload.cancel()
        await asyncio.gather(upload, return_exceptions=True)


def _limit(fault: Fault | None, kind: str, body: Body) -> int | None:
    """After how many bytes of the body to cut; None for never."""
    if fault is None or fault.kind != kind:
        return None
    return fault.after_bytes if fault.after_bytes is not None else (body.length or 0) // 2


async def _final_head(link: Link, reader: asyncio.StreamReader, upload: asyncio.Task[bool]) -> Head:
    """Waits for the answer while the request's body is still going up; 1xx answers are passed on by the way."""
    waiting = asyncio.create_task(_read_answer(link, reader))
    try:
        await asyncio.wait({waiting, upload}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            upload.result()
        return await waiting
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def _read_answer(link: Link, reader: asyncio.StreamReader) -> Head:
    while True:
        head = await http1.read_head(reader)
        if head is None:
            raise _CutError
        if head.status >= 200:
            return head
        link.writer.write(head.raw)
        await link.writer.drain()


async def _upload(link: Link, exchange: _Exchange, writer: asyncio.StreamWriter, limit: int | None) -> bool:
    """Sends the request's body up. False if the server stopped listening: its answer may be there all the same."""
    async for piece in http1.pieces(link.reader, http1.request_body(exchange.head)):
        try:
            exchange.sent += await _write(writer, piece, limit, exchange.sent)
        except OSError:
            return False
    if limit is not None:
        raise _CutError
    return True


async def _download(link: Link, exchange: _Exchange, reader: asyncio.StreamReader, body: Body, limit: int | None) -> None:
    async for piece in http1.pieces(reader, body):
        exchange.received += await _write(link.writer, piece, limit, exchange.received)
    await link.writer.drain()
    if limit is not None:
        await _close_politely(link.writer)
        raise _CutError


async def _write(writer: asyncio.StreamWriter, piece: bytes, limit: int | None, before: int) -> int:
    """Writes the piece, or as much of it as the limit leaves and then cuts."""
    if limit is not None and before + len(piece) > limit:
        writer.write(piece[: limit - before])
        await _close_politely(writer)
        raise _CutError
    writer.write(piece)
    await writer.drain()
    return len(piece)


async def _is_over(upload: asyncio.Task[bool]) -> bool:
    """Whether the request's body has gone up whole: a server may answer before it has read all, and mean it."""
    await asyncio.wait({upload}, timeout=_LEFTOVER_SECONDS)
    return upload.done() and upload.exception() is None and upload.result()


async def _close_politely(writer: asyncio.StreamWriter) -> None:
    """Sends what is waiting, then closes."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
