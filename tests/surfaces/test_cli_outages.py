"""Servers that are down: one plain line with what was asked, the address and the cause, a hint, and no noise of clients."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from neve.settings import databases

Run = Callable[..., Any]


NOISE = ("HTTPConnectionPool", "Max retries", "curlCode", "urllib3", "botocore", "Errno", "psycopg", "OSError", "Retrying")


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of this machine where nobody listens: bound, so that nobody else takes it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port of this machine where connections are accepted and nothing is ever answered."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)
        yield server.getsockname()[1]


def told(result: Any) -> list[str]:
    """What the command wrote on stderr."""
    for noise in NOISE:
        assert noise not in result.stderr, result.stderr
    return str(result.stderr).splitlines()


def rest(port: int, **more: str) -> str:
    lines = [f"    {key}: {value}" for key, value in {"type": "rest", "uri": f"http://127.0.0.1:{port}", **more}.items()]
    return "\n".join(["default-catalog: lake", "catalogs:", "  lake:", *lines]) + "\n"


@pytest.mark.parametrize("arguments", [("inspect", "db.t"), ("plan", "db.t"), ("compact", "db.t")])
def test_a_rest_catalog_that_is_down(neve: Run, fresh_machine: Path, closed_port: int, arguments: tuple[str, ...]) -> None:
    (fresh_machine / "neve.yaml").write_text(rest(closed_port))
    result = neve(*arguments)
    assert result.exit_code == 1
    assert told(result) == [
        f"Error: Cannot load catalog lake: the catalog did not answer at http://127.0.0.1:{closed_port} (connection refused)",
        "Hint: Check catalogs.lake.uri, and that its server is up; `neve doctor` tests it.",
    ]


def test_a_host_that_nobody_knows(neve: Run, fresh_machine: Path) -> None:
    (fresh_machine / "neve.yaml").write_text(rest(80).replace("127.0.0.1:80", "catalog.invalid"))
    first, _ = told(neve("tables"))
    assert first == (
        "Error: Cannot load catalog lake: the catalog did not answer at http://catalog.invalid (host name not known)"
    )


def test_an_s3_endpoint_that_is_down(neve: Run, fresh_machine: Path, closed_port: int, tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    uri = f"sqlite:///{tmp_path}/catalog.db"
    SqlCatalog("lake", uri=uri, warehouse="s3://lake/wh").create_namespace("db")
    _register(tmp_path / "catalog.db", "s3://lake/wh/db/t/metadata/00000-a.metadata.json")
    (fresh_machine / "neve.yaml").write_text(
        f"default-catalog: lake\ncatalogs:\n  lake:\n    type: sql\n    uri: {uri}\n    warehouse: s3://lake/wh\n    storage:\n"
        f"      s3:\n        endpoint: http://127.0.0.1:{closed_port}\n        region: us-east-1\n"
        "        access-key-id: ${env:S3_TEST_KEY}\n        secret-access-key: ${env:S3_TEST_KEY}\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("S3_TEST_KEY", "k")
        result = neve("inspect", "db.t")
        doctor = neve("doctor")
    assert result.exit_code == 1
    cause = "(connection refused or host not reachable)"
    assert told(result) == [
        f"Error: Cannot read table lake.db.t: the storage did not answer at http://127.0.0.1:{closed_port} {cause}",
        "Hint: Check the endpoint under catalogs.lake.storage, and that its server is up; `neve doctor` tests it.",
    ]
    assert told(doctor) == []
    assert not any(noise in doctor.stdout for noise in NOISE), doctor.stdout


def _register(database: Path, metadata_location: str) -> None:
    import sqlite3

    with sqlite3.connect(database) as connection:
        connection.execute(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) VALUES (?, ?, ?, ?)",
            ("lake", "db", "t", metadata_location),
        )
    connection.close()


@pytest.mark.parametrize("arguments", [("runs",), ("state", "show"), ("state", "upgrade"), ("doctor", "--json")])
def test_a_postgresql_state_store_that_is_down(
    neve: Run, fresh_machine: Path, closed_port: int, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_PASSWORD", "hunter2")
    url = f"postgresql://neve:${{env:STATE_PASSWORD}}@127.0.0.1:{closed_port}/neve"
    (fresh_machine / "neve.yaml").write_text(f"state:\n  url: {url}\n")
    result = neve(*arguments)
    assert result.exit_code == 1
    lines = " ".join(" ".join([*told(result), result.stdout]).split())
    assert "hunter2" not in lines
    assert f"state store postgresql://neve:***@127.0.0.1:{closed_port}/neve: the database did not answer" in " ".join(
        lines.split()
    )
    assert "Check state.url, and that the database server is up" in lines


def test_a_postgresql_catalog_that_is_down(neve: Run, fresh_machine: Path, closed_port: int) -> None:
    uri = f"postgresql+psycopg2://neve@127.0.0.1:{closed_port}/lake"
    (fresh_machine / "neve.yaml").write_text(
        f"default-catalog: lake\ncatalogs:\n  lake:\n    type: sql\n    uri: {uri}\n    warehouse: /data\n"
    )
    first, _ = told(neve("tables"))
    at = f"postgresql://127.0.0.1:{closed_port}"
    assert first == f"Error: Cannot load catalog lake: the catalog did not answer at {at} (connection refused)"


SHORTEST_WAIT = 2
"""Seconds: libpq waits no shorter."""
LONGER = "If the server is slow, add ?connect_timeout=SECONDS to"


@pytest.mark.parametrize("query", ["", f"?connect_timeout={SHORTEST_WAIT}"])
def test_a_postgresql_state_store_that_never_answers(
    neve: Run, fresh_machine: Path, silent_port: int, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr(databases, "CONNECT_SECONDS", 60 if query else SHORTEST_WAIT)
    url = f"postgresql://neve@127.0.0.1:{silent_port}/neve{query}"
    (fresh_machine / "neve.yaml").write_text(f"state:\n  url: {url}\n")
    begun = time.monotonic()
    result = neve("runs")
    assert time.monotonic() - begun < 30
    assert result.exit_code == 1
    assert told(result) == [
        f"Error: Cannot read state store {url}: the database did not answer (timed out)",
        f"Hint: Check state.url, and that the database server is up; `neve doctor` tests it. {LONGER} state.url.",
    ]


@pytest.mark.parametrize("query", ["", f"?connect_timeout={SHORTEST_WAIT}"])
def test_a_postgresql_catalog_that_never_answers(
    neve: Run, fresh_machine: Path, silent_port: int, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr(databases, "CONNECT_SECONDS", 60 if query else SHORTEST_WAIT)
    uri = f"postgresql://neve@127.0.0.1:{silent_port}/lake{query}"
    (fresh_machine / "neve.yaml").write_text(
        f"default-catalog: lake\ncatalogs:\n  lake:\n    type: sql\n    uri: {uri}\n    warehouse: /data\n"
    )
    begun = time.monotonic()
    result = neve("tables")
    assert time.monotonic() - begun < 30
    at = f"postgresql://127.0.0.1:{silent_port}"
    assert told(result) == [
        f"Error: Cannot load catalog lake: the catalog did not answer at {at} (timed out)",
        f"Hint: Check catalogs.lake.uri, and that its server is up; `neve doctor` tests it. {LONGER} catalogs.lake.uri.",
    ]


SIGNED = '{{rest.sigv4-enabled: "true", rest.sigv4.max-retries: "1"}}'


@pytest.mark.parametrize(
    "settings",
    [
        {"type": "rest", "uri": "http://127.0.0.1:{port}"},
        {"type": "rest", "uri": "http://127.0.0.1:{port}", "properties": SIGNED},
        {"type": "nessie", "uri": "http://127.0.0.1:{port}"},
        {"type": "hive", "uri": "thrift://127.0.0.1:{port}"},
    ],
    ids=["rest", "rest signed", "nessie", "hive"],
)
def test_a_catalog_that_never_answers(
    neve: Run, fresh_machine: Path, silent_port: int, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(variable, "us-east-1")
    lines = "".join(f"    {key}: {value.format(port=silent_port)}\n" for key, value in settings.items())
    (fresh_machine / "neve.yaml").write_text(f"default-catalog: lake\ncatalogs:\n  lake:\n{lines}    timeout: 1s\n")
    result = neve("tables")
    address = settings["uri"].format(port=silent_port)
    assert told(result) == [
        f"Error: Cannot load catalog lake: the catalog did not answer at {address} (timed out)",
        "Hint: Check catalogs.lake.uri, and that its server is up; `neve doctor` tests it.",
    ]


def test_retries_of_clients_are_shown_from_level_info_on(neve: Run, fresh_machine: Path, closed_port: int) -> None:
    (fresh_machine / "neve.yaml").write_text(rest(closed_port))
    assert "Retrying" in neve("--log-level", "info", "tables").stderr
    assert "Retrying" not in neve("--log-level", "error", "tables").stderr
