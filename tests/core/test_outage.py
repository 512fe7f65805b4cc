"""Foreign messages about servers that are down or refuse, in plain words."""

from __future__ import annotations

import socket
import ssl
from types import SimpleNamespace

import pytest

from neve.outage import Outage, denial, outage, public_address


def chained(outer: Exception, inner: Exception) -> Exception:
    try:
        raise outer from inner
    except Exception as error:
        return error


class AnsweredError(Exception):
    """As requests raises one for a status."""

    def __init__(self, status: int) -> None:
        super().__init__("RESTError")
        self.response = SimpleNamespace(status_code=status)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(111, "Connection refused"), Outage("connection refused")),
        (socket.gaierror(-2, "Name or service not known"), Outage("host name not known")),
        (TimeoutError("timed out"), Outage("timed out")),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), Outage("certificate not trusted")),
        (
            OSError(
                "HTTPConnectionPool(host='c.example.com', port=80): Max retries exceeded with url: /v1/config (Caused by "
                "NewConnectionError(\"HTTPConnection(host='c.example.com', port=80): Failed to establish a new connection: "
                '[Errno 111] Connection refused"))'
            ),
            Outage("connection refused", "c.example.com:80"),
        ),
        (
            OSError(
                "When reading information for key 'k' in bucket 'b': AWS Error NETWORK_CONNECTION during HeadObject operation: "
                "curlCode: 7, Could not connect to server; Details: Failed to connect to 127.0.0.1:9 after 0 ms: Could not"
            ),
            Outage("connection refused or host not reachable", "127.0.0.1:9"),
        ),
        (
            OSError("AWS Error NETWORK_CONNECTION: curlCode: 6, Could not resolve; Could not resolve host: s3.nowhere"),
            Outage("host name not known", "s3.nowhere"),
        ),
        (OSError("AWS Error NETWORK_CONNECTION: curlCode: 28, Timeout was reached"), Outage("timed out")),
        (OSError("AWS Error NETWORK_CONNECTION: curlCode: 60, SSL peer certificate"), Outage("certificate not trusted")),
        (OSError("AWS Error UNKNOWN (HTTP status 503) during GetObject: No response body."), Outage("answered 503")),
        (
            Exception('connection to server at "db.example.com" (10.0.0.1), port 5432 failed: Connection refused'),
            Outage("connection refused", "db.example.com:5432"),
        ),
        (
            Exception('could not translate host name "db.nowhere" to address: Name or service not known'),
            Outage("host name not known", "db.nowhere"),
        ),
        (Exception("server closed the connection unexpectedly"), Outage("connection closed by the server")),
        (
            Exception('Could not connect to the endpoint URL: "http://u:p@127.0.0.1:9/bucket?list"'),
            Outage("connection refused or host not reachable", "http://127.0.0.1:9"),
        ),
        (
            chained(RuntimeError("wrapped"), ConnectionResetError(104, "Connection reset by peer")),
            Outage("connection closed by the server"),
        ),
        (chained(RuntimeError("ServiceUnavailableError"), AnsweredError(503)), Outage("answered 503")),
        (AnsweredError(403), Outage("answered 403")),
        (Exception("java.net.ConnectException: Connection refused"), Outage("connection refused")),
        (Exception("java.net.UnknownHostException: s3.nowhere"), Outage("host name not known")),
        (ValueError("the column is missing"), None),
        (FileNotFoundError("/data/Connection refused/file"), None),
        (PermissionError(13, "Permission denied", "/timed out/x"), None),
    ],
)  # fmt: skip
def test_an_outage_has_a_cause_in_plain_words(error: Exception, expected: Outage | None) -> None:
    assert outage(error) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("AWS Error INVALID_ACCESS_KEY_ID during HeadObject operation", "the access key is not known"),
        ("An error occurred (InvalidAccessKeyId) when calling GetObject", "the access key is not known"),
        ("SignatureDoesNotMatch: we calculated", "the secret key does not belong to the access key"),
        ("ExpiredToken: the provided token has expired", "the token has expired"),
        ("Unable to locate credentials NoCredentialsError", "no credentials were found"),
        ('FATAL:  password authentication failed for user "neve"', "the password was not accepted"),
        ("AWS Error ACCESS_DENIED during HeadObject operation: No response body.", "answered 403"),
        ("HTTP status 401", "answered 401"),
        ("oauth: invalid_scope", None),
    ],
)
def test_a_refusal_has_a_cause_in_plain_words(text: str, words: str | None) -> None:
    assert denial(Exception(text)) == words


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:secret@c.example.com:8181/v1?token=t", "http://c.example.com:8181"),
        ("https://c.example.com", "https://c.example.com"),
        ("c.example.com:80", "c.example.com:80"),
        ("postgresql+psycopg2://neve:secret@db/x", "postgresql://db"),
        ("http://[::1]:9/x", "http://[::1]:9"),
        ("", None),
        (None, None),
    ],
)
def test_an_address_is_shown_without_credentials_and_path(url: str | None, shown: str | None) -> None:
    assert public_address(url) == shown
