"""Connections to checked addresses: a name is resolved once, its addresses are checked, and exactly these are connected to.

Called by `webhook` and `mail`. A name that resolves differently a moment later changes nothing. Certificates are checked
against the name. A deadline bounds the whole exchange, also with a server that sends one byte at a time.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from neve.errors import NotificationError
from neve.service.notify.addresses import checked_addresses, is_odd_number

Resolve = Callable[[str, int], Sequence[str]]
"""The addresses of a host, in the order in which to try them."""


def resolve(host: str, port: int) -> tuple[str, ...]:
    """The addresses of a host by the system's resolver."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True)
class Network:
    """How channels reach servers: which hosts may be private, who resolves names, and which certificates are trusted."""

    allowed: Collection[str] = ()
    resolve: Resolve = resolve
    tls: Callable[[], ssl.SSLContext] = field(default=ssl.create_default_context)

    def connect(self, host: str, port: int, *, seconds: float) -> socket.socket:
        """A connection to the first checked address that answers. Raises NotificationError."""
        if is_odd_number(host):
            raise NotificationError(f"Cannot send to {host}: write the address as four decimal numbers")
        addresses = checked_addresses(host, self._resolved(host, port), self.allowed)
        trouble = ""
        for address in addresses:
            try:
                found = socket.create_connection((address, port), timeout=seconds / len(addresses))
                found.settimeout(seconds)
                return found
            except OSError as error:
                trouble = reason_of(error)
        raise NotificationError(f"Cannot connect to {host}:{port}: {trouble}")

    def encrypt(self, connection: socket.socket, host: str) -> ssl.SSLSocket:
        """The connection with TLS, once the certificate was found to be the host's."""
        return self.tls().wrap_socket(connection, server_hostname=host)

    def _resolved(self, host: str, port: int) -> Sequence[str]:
        try:
            return self.resolve(host, port)
        except (OSError, ValueError):
            raise NotificationError(f"Cannot send to {host}: the name cannot be resolved") from None


@contextmanager
def deadline(connection: socket.socket, seconds: float) -> Iterator[None]:
    """Ends the connection when the time is over, also after TLS was started on it.

    What breaks by that raises TimeoutError.
    """
    is_over = threading.Event()

    def end() -> None:
        is_over.set()
        with suppress(OSError):
            guard.shutdown(socket.SHUT_RDWR)

    with connection.dup() as guard:
        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except Exception:
            # The shutdown looks like a server that hangs up.
            if is_over.is_set():
                raise TimeoutError from None
            raise
        finally:
            timer.cancel()


def reason_of(error: BaseException) -> str:
    """What went wrong, without anything that a server or a setting wrote."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not valid ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return "the TLS handshake failed"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return type(error).__name__
