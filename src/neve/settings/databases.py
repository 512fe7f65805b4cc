"""PostgreSQL databases: which driver opens them, and how long connecting may take, for the state store and for `sql` catalogs.

libpq waits for ever unless the URL or PGCONNECT_TIMEOUT says how long: for a host that drops packets, or for a server that
accepts a connection and never answers.
"""

from __future__ import annotations

import os

CONNECT_SECONDS = 10
CONNECT_TIMEOUT = "connect_timeout"
"""What libpq calls it, in a URL and as an argument."""
_DRIVERS = ("", "psycopg2", "psycopg")
"""Those by libpq; without a name it is psycopg2."""


def driver_url(url: str) -> str:
    """The URL with the PostgreSQL driver that the extra installs, where it names none."""
    scheme, separator, rest = url.partition("://")
    return f"postgresql+psycopg2{separator}{rest}" if scheme in ("postgresql", "postgres") else url


def default_wait(url: str) -> int | None:
    """How many seconds to wait for a connection; None if the user has decided that, or if it is no PostgreSQL database."""
    if not is_postgresql(url) or "PGCONNECT_TIMEOUT" in os.environ:
        return None
    from sqlalchemy.engine import make_url

    return None if CONNECT_TIMEOUT in make_url(url).query else CONNECT_SECONDS


def bounded_url(url: str) -> str:
    """The URL with a driver and a wait, for clients that take nothing else."""
    url = driver_url(url)
    if (seconds := default_wait(url)) is None:
        return url
    from sqlalchemy.engine import make_url

    bounded = make_url(url).update_query_dict({CONNECT_TIMEOUT: str(seconds)})
    return bounded.render_as_string(hide_password=False)


def longer_wait(cause: str, url: str | None, setting: str) -> str:
    """What to add to a hint if connecting to a PostgreSQL database timed out."""
    is_slow = cause == "timed out" and is_postgresql(url or "")
    return f" If the server is slow, add ?{CONNECT_TIMEOUT}=SECONDS to {setting}." if is_slow else ""


def is_postgresql(url: str) -> bool:
    """Whether a URL is that of a PostgreSQL database which is opened by libpq."""
    kind, _, driver = url.partition("://")[0].partition("+")
    return "://" in url and kind in ("postgresql", "postgres") and driver in _DRIVERS
