"""The state store that both Neves share: a PostgreSQL database of the history's own, with backups that can be restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from stack.endpoints import PostgresEndpoint


class SharedStore:
    """A new database; `drop` removes it."""

    def __init__(self, server: PostgresEndpoint, name: str) -> None:
        self._server, self.endpoint, self._backups = server, replace(server, database=name), 0
        with _connected(server) as cursor:
            cursor.execute(f'CREATE DATABASE "{name}"')

    @property
    def url(self) -> str:
        return self.endpoint.url

    def drop(self) -> None:
        with _connected(self._server) as cursor:
            cursor.execute(f'DROP DATABASE IF EXISTS "{self.endpoint.database}" WITH (FORCE)')

    def back_up(self) -> int:
        """Copies every table; gives the number of the backup, 0 if there is nothing to copy yet."""
        with _connected(self.endpoint) as cursor:
            tables = _tables(cursor)
            if not tables:
                return 0
            self._backups += 1
            cursor.execute(f"CREATE SCHEMA backup_{self._backups}")
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            for table in tables:
                cursor.execute(f'CREATE TABLE backup_{self._backups}."{table}" AS TABLE public."{table}"')
            cursor.execute("COMMIT")
        return self._backups

    def restore(self) -> int:
        """Puts the newest backup in place of what is there, as after a crash of the server: all connections are cut."""
        if not self._backups:
            return 0
        with _connected(self.endpoint) as cursor:
            # Without this, deferred checks of foreign keys would dictate an order.
            cursor.execute("SET session_replication_role = replica")
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
                (self.endpoint.database,),
            )
            cursor.execute("BEGIN")
            tables = _tables(cursor)
            cursor.execute("TRUNCATE " + ", ".join(f'public."{table}"' for table in tables))
            for table in tables:
                cursor.execute(f'INSERT INTO public."{table}" SELECT * FROM backup_{self._backups}."{table}"')
            cursor.execute("COMMIT")
        return self._backups


def _tables(cursor: Any) -> list[str]:
    cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename")
    return [name for (name,) in cursor.fetchall()]


@contextmanager
def _connected(endpoint: PostgresEndpoint) -> Iterator[Any]:
    import psycopg2  # type: ignore[import-untyped]

    where = {"host": endpoint.host, "port": endpoint.port, "user": endpoint.user, "password": endpoint.password}
    with closing(psycopg2.connect(**where, dbname=endpoint.database, connect_timeout=10)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            yield cursor
