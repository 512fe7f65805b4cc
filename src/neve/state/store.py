"""The state store as the rest sees it: opening, reading (`neve.ports.Records`) and writing.

`compose` opens it; inspection reads from it, and the flow's last stage writes to it. Looking never creates a database. The
database libraries are loaded when a store is really opened, since most first looks find none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from neve.core.files import Partition
from neve.errors import StateError
from neve.state.location import sqlite_file
from neve.state.rows import Output, Run

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from neve.core.journal import JournaledRun
    from neve.core.record import GroupState, RunRecord
    from neve.core.work import WorkResult

log = logging.getLogger(__name__)


class StateStore:
    """An open store. Safe to use from several threads; each process opens its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @classmethod
    def open(cls, url: str) -> Self:
        """Opens for writing: creates what is missing and upgrades what is old, after copying a SQLite file aside."""
        from neve.state.database import connect
        from neve.state.migrate import upgrade

        file = sqlite_file(url)
        if file is not None:
            _make_directory(file.parent)
        engine = connect(url, create=True)
        try:
            upgrade(engine, file)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine)

    @classmethod
    def open_existing(cls, url: str) -> Self | None:
        """Opens for reading; None where there is nothing to read yet. Writes nothing, and does not load Alembic."""
        file = sqlite_file(url)
        if file is not None and not file.is_file():
            return None
        from neve.state.database import connect, guarded
        from neve.state.schema import HEAD
        from neve.state.version import read_version

        engine = connect(url, create=False)
        version = None
        try:
            with guarded(engine, "read"), engine.connect() as connection:
                version = read_version(connection)
        finally:
            if version != HEAD:
                engine.dispose()
        if version is not None and version != HEAD:
            log.warning("state store is at schema version %s and is left out until it is upgraded to %s", version, HEAD)
        return cls(engine) if version == HEAD else None

    def close(self) -> None:
        """Gives back every connection."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def row_groups(self, table_uuid: str) -> Mapping[str, int]:
        """Row groups by path, of files that we wrote."""
        from neve.state import reading

        return reading.row_groups(self._engine, table_uuid)

    def last_compactions(self, table_uuid: str) -> Mapping[Partition, int]:
        """Milliseconds of our last committed compaction, by partition."""
        from neve.state import reading

        return reading.last_compactions(self._engine, table_uuid)

    def run(self, run_id: str) -> Run | None:
        """One run, None if there is no such."""
        from neve.state import reading

        return reading.run(self._engine, run_id)

    def runs(self, table_uuid: str | None = None, *, limit: int = 100) -> tuple[Run, ...]:
        """Runs, of one table or of all, newest first."""
        from neve.state import reading

        return reading.runs(self._engine, table_uuid, limit=limit)

    def start_run(self, run: Run) -> None:
        """Notes that a run began."""
        from neve.state import writing

        writing.start_run(self._engine, run)

    def finish_run(self, run_id: str, *, finished_ms: int, outcome: str, record: Mapping[str, Any]) -> None:
        """Notes how a run ended."""
        from neve.state import writing

        writing.finish_run(self._engine, run_id, finished_ms=finished_ms, outcome=outcome, record=record)

    def add_commit(self, run_id: str, *, partitions: Iterable[Partition], outputs: Iterable[Output], committed_ms: int) -> None:
        """Notes what one commit of a run did; wholly or not at all. Telling the same again changes nothing."""
        from neve.state import writing

        writing.add_commit(self._engine, run_id, partitions=partitions, outputs=outputs, committed_ms=committed_ms)

    def keep_run(self, record: RunRecord, partitions: Iterable[Partition]) -> None:
        """Stores a finished run: its record, the partitions that it compacted and the files that it wrote."""
        committed = [output for group in record.groups if group.snapshot_id is not None for output in group.outputs]
        if self.run(record.run_id) is None:
            self.start_run(Run(record.run_id, record.table_uuid, record.table, "compact", record.started_ms))
        outputs = [Output(path=o.path, row_groups=o.row_groups, bytes=o.size_bytes, rows=o.records) for o in committed]
        self.add_commit(record.run_id, partitions=partitions, outputs=outputs, committed_ms=record.finished_ms)
        document = record.model_dump(mode="json")
        self.finish_run(record.run_id, finished_ms=record.finished_ms, outcome=record.outcome.value, record=document)

    def begin(self, run: JournaledRun) -> None:
        """Writes a run down before any work."""
        from neve.state import journal

        journal.begin(self._engine, run)

    def written(self, run_id: str, results: Iterable[WorkResult]) -> None:
        """Notes that these groups' files exist."""
        from neve.state import journal

        journal.written(self._engine, run_id, results)

    def settled(self, run_id: str, states: Mapping[int, GroupState]) -> None:
        """Notes what became of these groups."""
        from neve.state import journal

        journal.settled(self._engine, run_id, states)

    def unfinished(self) -> tuple[JournaledRun, ...]:
        """Runs that were begun and never ended, oldest first."""
        from neve.state import journal

        return journal.unfinished(self._engine)

    def check(self) -> str:
        """Writes a row, reads it and takes it back; says what was found. Raises StateError if any of it fails."""
        from neve.state import writing

        return writing.check(self._engine)


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StateError(
            f"Cannot create state store directory {directory}: {error.strerror}",
            hint="Make its parent writable, or set state.url.",
        ) from error
