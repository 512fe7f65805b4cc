"""The state store as the rest sees it: opening, reading (`neve.ports.Records`) and writing.

`compose` opens it; inspection reads from it, and the flow's last stage writes to it. Looking never creates a database. The
database libraries are loaded when a store is really opened, since most first looks find none.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from neve.core.files import Partition
from neve.errors import StateError
from neve.state.location import make_directory, sqlite_file
from neve.state.rows import Output, Run

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from neve.core.journal import JournaledRun
    from neve.core.lease import Lease
    from neve.core.quarantine import Doomed, Fate, Quarantined, QuarantinedRun
    from neve.core.record import GroupState, RunRecord
    from neve.core.work import WorkResult

log = logging.getLogger(__name__)


class StateStore:
    """An open store. Safe to use from several threads; each process opens its own."""

    def __init__(self, engine: Engine, *, keep_seconds: float | None = None) -> None:
        self._engine = engine
        self._keep_seconds = keep_seconds

    @classmethod
    def open(cls, url: str, *, keep_seconds: float | None = None) -> Self:
        """Opens for writing: creates what is missing and upgrades what is old, after copying a SQLite file aside.

        With `keep_seconds`, keeping a run forgets those that ended longer ago, once a day.
        """
        from neve.state.database import connect
        from neve.state.migrate import upgrade

        file = sqlite_file(url)
        if file is not None:
            make_directory(file.parent)
        engine = connect(url, create=True)
        try:
            upgrade(engine, file)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, keep_seconds=keep_seconds)

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
            log.warning("state store has schema %s and is left out until `neve state upgrade` brings it to %s", version, HEAD)
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

    def runs(self, table_uuid: str | None = None, *, kind: str | None = None, limit: int = 100) -> tuple[Run, ...]:
        """Runs, of one table or of all, of one kind or of all, newest first."""
        from neve.state import reading

        return reading.runs(self._engine, table_uuid, kind=kind, limit=limit)

    def start_run(self, run: Run) -> None:
        """Notes that a run began."""
        from neve.state import writing

        writing.start_run(self._engine, run)

    def finish_run(self, run_id: str, *, finished_ms: int, outcome: str, record: Mapping[str, Any]) -> None:
        """Notes how a run ended; then forgets old runs, if that is due."""
        from neve.state import writing

        writing.finish_run(self._engine, run_id, finished_ms=finished_ms, outcome=outcome, record=record)
        self._tidy(finished_ms)

    def add_commit(self, run_id: str, *, partitions: Iterable[Partition], outputs: Iterable[Output], committed_ms: int) -> None:
        """Notes what one commit of a run did; wholly or not at all. Telling the same again changes nothing."""
        from neve.state import writing

        writing.add_commit(self._engine, run_id, partitions=partitions, outputs=outputs, committed_ms=committed_ms)

    def keep_run(self, record: RunRecord, partitions: Iterable[Partition]) -> None:
        """Stores a finished run, wholly or not at all: its record, the partitions it compacted and the files it wrote.

        Its plan and results are forgotten, except results in doubt; then old runs, if that is due.
        """
        from neve.state import writing

        writing.keep_run(self._engine, record, partitions)
        self._tidy(record.finished_ms)

    def _tidy(self, now_ms: int) -> None:
        from neve.state import pruning

        if self._keep_seconds is None:
            return
        try:
            pruning.tidy(self._engine, now_ms=now_ms, keep_seconds=self._keep_seconds)
        except StateError as error:
            log.warning("old runs were not removed: %s", error)  # the run itself is kept, and that was asked for

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

    def take_lease(self, table_uuid: str, *, run_id: str, owner: str, now_ms: int, until_ms: int) -> Lease:
        """Tries to take the lease on a table; gives back who holds it now, which may be another run.

        A run takes its own lease again, and an ended one is anyone's. Each take has a higher token than the one before.
        """
        from neve.state import leases

        return leases.take(self._engine, table_uuid, run_id=run_id, owner=owner, now_ms=now_ms, until_ms=until_ms)

    def renew_lease(self, table_uuid: str, run_id: str, token: int, until_ms: int) -> bool:
        """Moves the end of a lease; False if somebody else has taken it, or it was given back."""
        from neve.state import leases

        return leases.renew(self._engine, table_uuid, run_id, token, until_ms=until_ms)

    def release_lease(self, table_uuid: str, run_id: str, token: int) -> None:
        """Gives a lease back; one that somebody else has taken meanwhile stays theirs."""
        from neve.state import leases

        leases.release(self._engine, table_uuid, run_id, token)

    def lease(self, table_uuid: str) -> Lease | None:
        """The lease on a table, which may have ended; None if it was never taken or was given back."""
        from neve.state import leases

        return leases.current(self._engine, table_uuid)

    def record_doomed(self, table_uuid: str, run_id: str, files: Iterable[Doomed], now_ms: int) -> int:
        """Writes files into the quarantine, in batches; how many were new, or began anew."""
        from neve.state import quarantine

        return quarantine.record(self._engine, table_uuid, run_id, files, now_ms)

    def quarantined(
        self,
        table_uuid: str,
        *,
        fates: Collection[Fate] | None = None,
        run_id: str | None = None,
        changed_before_ms: int | None = None,
    ) -> Iterator[Quarantined]:
        """Files of a table in the quarantine, oldest first, a batch at a time."""
        from neve.state import quarantine

        words = {"fates": fates, "run_id": run_id, "changed_before_ms": changed_before_ms}
        return quarantine.quarantined(self._engine, table_uuid, **words)  # type: ignore[arg-type]

    def settle_doomed(self, table_uuid: str, changes: Iterable[tuple[str, Fate, str | None]], now_ms: int) -> None:
        """What became of files in the quarantine: path, fate, and where it lies in the trash."""
        from neve.state import quarantine

        quarantine.settle(self._engine, table_uuid, changes, now_ms)

    def quarantined_runs(self, table_uuid: str) -> tuple[QuarantinedRun, ...]:
        """How many files of a table each run put into the quarantine, by reason and fate."""
        from neve.state import quarantine

        return quarantine.runs(self._engine, table_uuid)

    def check(self) -> str:
        """Writes a row, reads it and takes it back; says what was found. Raises StateError if any of it fails."""
        from neve.state import writing

        return writing.check(self._engine)
