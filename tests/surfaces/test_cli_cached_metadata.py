"""An answer that rests on cached metadata says so: a REST catalog hands out the table, and storage need not be read."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

Run = Callable[..., Any]


NOTE = "metadata from cache, storage was not read"


@pytest.fixture
def rest_catalog(warehouse: Path) -> Iterator[str]:
    """A REST catalog with one table, `db.floats`."""
    source = SqlCatalog("local", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
    location = source.load_table("db.floats").metadata_location
    metadata = json.loads(Path(location.removeprefix("file://")).read_text())
    answers = {
        "/v1/config": {"defaults": {}, "overrides": {}},
        "/v1/namespaces/db/tables/floats": {"metadata-location": location, "metadata": metadata, "config": {}},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            body = json.dumps(answer or {"error": {"message": "no", "type": "NoSuchTable", "code": 404}}).encode()
            self.send_response(200 if answer else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("command", ["inspect", "plan"])
def test_a_second_answer_says_that_it_rests_on_the_cache(
    neve: Run, fresh_machine: Path, rest_catalog: str, command: str
) -> None:
    (fresh_machine / "neve.yaml").write_text(
        f"default-catalog: lake\ncatalogs:\n  lake:\n    type: rest\n    uri: {rest_catalog}\n"
    )
    first = neve(command, "db.floats", "--json")
    assert first.exit_code == 0, first.stderr
    assert json.loads(first.stdout)["metadata_from_cache"] is False
    assert json.loads(neve(command, "db.floats", "--json").stdout)["metadata_from_cache"] is True
    assert NOTE in " ".join(neve(command, "db.floats").stdout.split())
    without = neve(command, "db.floats", "--set", "cache.enabled=false")
    assert without.exit_code == 0, without.stderr
    assert NOTE not in " ".join(without.stdout.split())


DRY_RUNS = {
    "compact": ("compact", "db.floats", "--dry-run"),
    "cluster": ("cluster", "db.floats", "--by", "id", "--dry-run"),
    "maintain": ("maintain", "db.floats", "--dry-run"),
    "manifests": ("manifests", "db.floats", "--dry-run"),
    "prevent": ("prevent", "db.floats"),
    "stats": ("stats", "db.floats", "--dry-run"),
    "tags": ("tags", "db.floats", "--auto-tags", "daily 7", "--dry-run"),
}
"""Those that read metadata alone, and start no Spark."""


@pytest.mark.parametrize("operation", DRY_RUNS)
def test_a_second_dry_run_says_that_it_rests_on_the_cache(
    neve: Run, fresh_machine: Path, rest_catalog: str, operation: str
) -> None:
    (fresh_machine / "neve.yaml").write_text(
        f"default-catalog: lake\ncatalogs:\n  lake:\n    type: rest\n    uri: {rest_catalog}\n"
    )
    typed = DRY_RUNS[operation]
    first = neve(*typed, "--json")
    assert first.exit_code == 0, first.stderr
    assert json.loads(first.stdout)["metadata_from_cache"] is False
    assert json.loads(neve(*typed, "--json").stdout)["metadata_from_cache"] is True
    assert NOTE in " ".join(neve(*typed).stdout.split())
    without = neve(*typed, "--set", "cache.enabled=false")
    assert without.exit_code == 0, without.stderr
    assert NOTE not in " ".join(without.stdout.split())


@pytest.mark.parametrize("command", ["inspect", "plan"])
def test_a_catalog_that_reads_the_metadata_file_has_reached_storage(neve: Run, warehouse: Path, command: str) -> None:
    for _ in range(2):
        result = neve(command, "db.floats", "--warehouse", str(warehouse), "--json")
        assert json.loads(result.stdout)["metadata_from_cache"] is False


def test_footers_are_read_from_storage(neve: Run, fresh_machine: Path, rest_catalog: str) -> None:
    (fresh_machine / "neve.yaml").write_text(
        f"default-catalog: lake\ncatalogs:\n  lake:\n    type: rest\n    uri: {rest_catalog}\n"
    )
    neve("inspect", "db.floats", "--json")
    sampled = neve("inspect", "db.floats", "--sample", "1", "--json")
    assert json.loads(sampled.stdout)["metadata_from_cache"] is False
