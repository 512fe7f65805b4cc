"""State stores with the schema of earlier releases, with a run in each table that they had."""

from __future__ import annotations

import json
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from neve.state import migrate
from neve.state.database import connect, writing
from neve.state.location import make_directory, sqlite_file

FINISHED = {"run_id": "old", "table_uuid": "t", "table_name": "db.t", "kind": "compact", "started_ms": 1, "finished_ms": 2}


def make_old_store(url: str, version: str) -> None:
    """A store with that schema version."""
    file = sqlite_file(url)
    if file is not None:
        make_directory(file.parent)
    config = Config()
    config.set_main_option("script_location", migrate.__file__.replace("migrate.py", "migrations"))
    engine = connect(url, create=True)
    with writing(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, version)
        rows = {
            "runs": {**FINISHED, "outcome": "done", "record": json.dumps({"a": 1})},
            "partitions_compacted": {"run_id": "old", "spec_id": 0, "partition": "d=1", "table_uuid": "t", "committed_ms": 2},
            "outputs": {"table_uuid": "t", "path": "f", "run_id": "old", "row_groups": 3, "bytes": 4, "rows": 5},
        }
        if version >= "0002":
            rows["runs"] |= {"owner": "h:1", "plan": json.dumps({"long": "ago"})}
            rows["run_groups"] = {"run_id": "old", "group_id": 0, "state": "committed", "output_prefix": "p", "result": "{}"}
        for table, row in rows.items():
            _insert(connection, table, row)
    engine.dispose()


def add_old_compactions(url: str, run_id: str, partitions: list[str], record: dict[str, Any] | None) -> None:
    """Partitions that a run compacted, as releases before 0007 recorded them; without a record the run has been pruned."""
    engine = connect(url, create=False)
    with writing(engine) as connection:
        if record is not None:
            _insert(connection, "runs", {**FINISHED, "run_id": run_id, "outcome": "done", "record": json.dumps(record)})
        for partition in partitions:
            home = {"spec_id": 0, "partition": partition, "table_uuid": "t", "committed_ms": 2}
            _insert(connection, "partitions_compacted", {"run_id": run_id, **home})
    engine.dispose()


def _insert(connection: Connection, table: str, row: dict[str, Any]) -> None:
    columns, values = ", ".join(row), ", ".join(f":{name}" for name in row)
    connection.execute(text(f"INSERT INTO {table} ({columns}) VALUES ({values})"), row)
