"""Inspects a table for the scheduler: reads its manifests in plain Python, and counts what compaction would work on.

Called by `observer` for tables whose summary suggests work. Never starts Spark: a table with more files than Python should read
is left to triggers that need no inspection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neve.errors import NeveError
from neve.operations.inspect import examine, with_source
from neve.scheduling.observation import Inspected, Observation
from neve.table.files import DATA

if TYPE_CHECKING:
    from neve.context.connection import Connection
    from neve.table.files import FileColumns


class TooLargeToInspectError(NeveError):
    """The table has more files than Python should read."""

    code = "too-large-to-inspect"


def inspect_table(connection: Connection, table: Observation, now_ms: int) -> Inspected | None:
    """Returns what the manifests show; None if the name now belongs to another table. Raises NeveError."""
    from neve.context.table import TableContext

    with TableContext(connection, table.table) as context:
        reader = connection.catalog(context.name.catalog).open(context.name)
        state = reader.state()
        if state.uuid != table.uuid:
            return None
        manifests = reader.manifests()
        _require_readable(table.table, sum(manifest.live_files or 0 for manifest in manifests), connection)
        files = reader.files(manifests)
        state = with_source(state.model_copy(update={"manifests": manifests, "files": files}), reader)
        found = examine(context, state)
        small_bytes = _small_bytes(files, context.policy(state).small_bytes)
    return Inspected(
        snapshot_id=found.snapshot_id,
        inspected_ms=now_ms,
        health=found.health.score,
        data_files=found.data_files or 0,
        data_bytes=found.data_bytes or 0,
        small_files=found.small_files or 0,
        small_bytes=small_bytes,
        delete_files=found.deletes.files if found.deletes is not None else 0,
        requests=0 if found.metadata_from_cache else 1 + len(manifests),
        commits=table.counters.commits,
        own_snapshot_id=table.own_snapshot_id,
    )


def _require_readable(table: str, files: int, connection: Connection) -> None:
    most = connection.settings.inspect.python_max_files
    if files > most:
        raise TooLargeToInspectError(
            f"Cannot inspect {table} in the service: it has {files:,} files (at most {most:,} are read in Python)",
            hint="Use triggers that need no inspection, such as average-file-size-below or bytes-added, or raise "
            "inspect.python-max-files.",
        )


def _small_bytes(files: FileColumns, threshold: int) -> int:
    sizes = files.column("size_bytes")[files.column("content") == DATA]
    return int(np.sum(sizes[sizes < threshold]))
