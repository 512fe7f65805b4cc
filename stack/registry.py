"""The servers there are, by name, and which need which."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from neve.errors import BadRequestError
from stack.server import Server
from stack.servers.azure import Azure
from stack.servers.gcs import Gcs
from stack.servers.glue import Glue
from stack.servers.hive import Hive
from stack.servers.nessie import Nessie
from stack.servers.postgres import Postgres
from stack.servers.proxy import Proxy
from stack.servers.rest import Rest, RestOnFiles
from stack.servers.s3 import S3
from stack.servers.spark import Spark

_ALL: tuple[Server, ...] = (S3(), Rest(), RestOnFiles(), Nessie(), Postgres(), Spark(), Proxy(), Glue(), Hive(), Gcs(), Azure())
SERVERS: dict[str, Server] = {server.name: server for server in _ALL}
# What a plain `up` starts: the rest is only started by name, or by a fixture that asks for it.
DEFAULT = tuple(name for name in ("s3", "rest", "nessie", "postgres", "spark", "proxy") if name in SERVERS)


def find(name: str) -> Server:
    """The server of that name. Raises BadRequestError with the nearest name there is."""
    try:
        return SERVERS[name]
    except KeyError:
        near = difflib.get_close_matches(name, SERVERS, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(SERVERS)}."
        raise BadRequestError(f"Cannot find server {name}: no such name", hint=hint) from None


def with_needs(names: Iterable[str]) -> list[Server]:
    """The named servers, or the default ones, each after those that it needs."""
    ordered: dict[str, Server] = {}

    def add(name: str) -> None:
        server = find(name)
        for need in server.needs:
            add(need)
        ordered.setdefault(name, server)

    for name in tuple(names) or DEFAULT:
        add(name)
    return list(ordered.values())


def needing(names: Iterable[str]) -> set[str]:
    """The named servers and all that need them, directly or not."""
    chosen = {find(name).name for name in names}
    while True:
        more = {name for name, server in SERVERS.items() if chosen & set(server.needs)} - chosen
        if not more:
            return chosen
        chosen |= more
