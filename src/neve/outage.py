"""Says in plain words why a server did not serve us: the cause and the address, without the client's own text.

Adapters use it to word the errors that they raise. What kind of error that is, and whether it is worth a retry, is decided by
them: the words here are for people only, and never hold a credential.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

_CAUSES = {
    "certificate not trusted": (
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|self.signed certificate|curlCode: (60|77)\b|PKIX path"
    ),
    "TLS handshake failed": r"WRONG_VERSION_NUMBER|SSLError|SSLHandshakeException|curlCode: 35\b|SSL connect error",
    "host name not known": (
        r"Name or service not known|nodename nor servname|[Nn]ame resolution|No address associated|getaddrinfo failed"
        r"|could not translate host name|Could not resolve host|curlCode: 6\b|UnknownHostException"
    ),
    "connection refused": "Connection refused|ConnectionRefusedError",
    "timed out": (
        r"timed out|TimeoutError|timeout expired|imeout on endpoint|curlCode: 28\b|SocketTimeoutException|Timeout was reached"
    ),
    "host not reachable": "No route to host|Network is unreachable",
    "connection refused or host not reachable": r"curlCode: 7\b|Could not connect to|Failed to connect",
    "connection closed by the server": (
        r"Connection reset|RemoteDisconnected|Connection aborted|closed the connection unexpectedly|IncompleteRead"
        r"|curlCode: (52|55|56)\b|Broken pipe|[Cc]onnection closed|NoHttpResponseException"
    ),
}
"""What clients write about each cause; the first that fits counts."""
_STATUS = re.compile(
    r"HTTP (?:status|response)(?: code)?:? (\d{3})|\b(\d{3}) (?:Server|Client) Error|[Ss]tatus [Cc]ode:? (\d{3})"
)
_ADDRESSES = tuple(
    re.compile(pattern)
    for pattern in (
        r"host='(?P<host>[^']+)', port=(?P<port>\d+)",
        r"Failed to connect to (?P<host>\S+) port (?P<port>\d+)",
        r"Failed to connect to (?P<host>\S+)",
        r"Connect to (?P<host>\S+) ",
        r'server at "(?P<host>[^"]+)"(?: \([^)]*\))?, port (?P<port>\d+)',
        r"Could not resolve host: (?P<host>[^\s;]+)",
        r'host name "(?P<host>[^"]+)"',
        r'endpoint URL: "(?P<host>[^"]+)"',
    )
)
_DENIALS = (
    (re.compile("INVALID_?ACCESS_?KEY_?ID", re.IGNORECASE), "the access key is not known"),
    (re.compile("SIGNATURE_?DOES_?NOT_?MATCH", re.IGNORECASE), "the secret key does not belong to the access key"),
    (re.compile("EXPIRED_?TOKEN|AuthorizationExpired", re.IGNORECASE), "the token has expired"),
    (re.compile("NoCredentials|Unable to locate credentials"), "no credentials were found"),
    (re.compile("password authentication failed"), "the password was not accepted"),
)
_FORBIDDEN = re.compile("ACCESS_?DENIED", re.IGNORECASE)
_LOCAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)
_MOST_CAUSES = 20


class Outage(NamedTuple):
    """Why a server did not serve us, and its address as far as the client's message names it."""

    cause: str
    address: str | None = None


def outage(error: BaseException) -> Outage | None:
    """The outage behind an error; None for an error that no server's absence explains."""
    chain = list(_chain(error))
    if any(isinstance(each, _LOCAL) for each in chain):
        return None
    text = _text(chain)
    cause = next((cause for cause, pattern in _CAUSES.items() if re.search(pattern, text)), None) or _answered(chain, text)
    return Outage(cause, _address(text)) if cause else None


def denial(error: BaseException) -> str | None:
    """Why a server refused our credentials; None if its message has no words that we know."""
    chain = list(_chain(error))
    text = _text(chain)
    known = next((words for pattern, words in _DENIALS if pattern.search(text)), None)
    return known or _answered(chain, text) or ("answered 403" if _FORBIDDEN.search(text) else None)


def public_address(url: str | None) -> str | None:
    """Scheme, host and port of a URL: no user, no password, no path."""
    if not url:
        return None
    if "://" not in url:
        return url.rpartition("@")[2].partition("/")[0]
    parts = urlsplit(url)
    return f"{parts.scheme.partition('+')[0]}://{parts.netloc.rpartition('@')[2]}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from; SQLAlchemy and urllib3 keep that in attributes of their own."""
    seen, waiting = set[int](), [error]
    while waiting and len(seen) < _MOST_CAUSES:
        each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        nested = (each.__cause__, each.__context__, getattr(each, "orig", None), getattr(each, "reason", None))
        waiting += [inner for inner in nested if isinstance(inner, BaseException)]


def _text(chain: list[BaseException]) -> str:
    return "\n".join(f"{type(each).__name__}: {each}" for each in chain)


def _answered(chain: list[BaseException], text: str) -> str | None:
    statuses = (getattr(getattr(each, "response", None), "status_code", None) for each in chain)
    status = next((status for status in statuses if isinstance(status, int)), None)
    if status is None and (found := _STATUS.search(text)) is not None:
        status = int(next(group for group in found.groups() if group))
    return f"answered {status}" if status is not None and status >= 400 else None


def _address(text: str) -> str | None:
    found = next(filter(None, (pattern.search(text) for pattern in _ADDRESSES)), None)
    if found is None:
        return None
    port = found.groupdict().get("port")
    return public_address(f"{found['host']}:{port}" if port else found["host"])
