"""The proxy itself: one listening address in front of one server, in a thread of its own, so that tests need no asyncio."""

from __future__ import annotations

import asyncio
import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from stack.errors import StartFailedError
from stack.proxy import http1
from stack.proxy.exchange import Link, serve
from stack.proxy.faults import Faults
from stack.proxy.requests import Requests

_START_SECONDS = 10
_BACKLOG = 512


class FaultProxy:
    """Passes HTTP/1.1 on to `upstream`, counting in `requests` and breaking what `faults` says.

    Keep-alive, chunked bodies, HEAD, ranges and 100-continue pass as they are; the Host header too, so S3 signatures made
    for the proxy's address hold. Each client connection has one upstream connection, and lives no longer than it.
    """

    def __init__(self, upstream: str, *, port: int = 0, seed: int = 0) -> None:
        parts = urlsplit(upstream)
        if parts.scheme != "http" or not parts.hostname:
            raise StartFailedError(f"Cannot start a proxy: {upstream!r} is no http address")
        self.upstream = upstream
        self.faults = Faults(seed)
        self.requests = Requests()
        self._address = (parts.hostname, parts.port or 80)
        self._port = port
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        self._listening = threading.Event()
        self._problem: OSError | None = None
        self._links: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The address to give to clients instead of the server's own."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    def start(self) -> Self:
        """Listens; returns when clients can connect."""
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        self._listening.wait(_START_SECONDS)
        if self._problem:
            self._thread.join()
            raise StartFailedError(f"Cannot start a proxy: port {self._port}: {self._problem}") from self._problem
        return self

    def close(self) -> None:
        """Stops listening and cuts every connection. May be called twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def break_connections(self) -> None:
        """Cuts every connection that is open now, requests in flight included; goes on listening."""
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in self._links])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._listen())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
            self._listening.set()

    async def _listen(self) -> None:
        self._stop = asyncio.Event()
        try:
            listener = socket.create_server(("127.0.0.1", self._port), backlog=_BACKLOG)
        except OSError as error:
            self._problem = error
            return
        with listener:
            listener.setblocking(False)
            self._port = listener.getsockname()[1]
            # Not asyncio's own server: it loses track of a connection that is accepted while it closes.
            self._loop.add_reader(listener, self._take, listener)
            self._listening.set()
            await self._stop.wait()
            self._loop.remove_reader(listener)
        await self._drop_all()

    async def _drop_all(self) -> None:
        links = list(self._links)
        for task in links:
            task.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    def _take(self, listener: socket.socket) -> None:
        """Accepts one connection, and knows of it from then on."""
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._serve(connection))
        self._links.add(task)
        task.add_done_callback(lambda done: self._forget(done, connection))

    def _forget(self, task: asyncio.Task[None], connection: socket.socket) -> None:
        self._links.discard(task)
        # A task that is cancelled before its first step has no transport that would close it.
        connection.close()

    async def _serve(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=http1.HEAD_LIMIT)
        link = Link(reader, writer, self._address, self.faults, self.requests)
        try:
            await serve(link)
        finally:
            link.abort()
