"""The state store as the rest sees it: opening, reading (`neve.ports.Records`) and writing.

`context` opens it; inspection reads from it, and the flow's last stage writes to it. Looking never creates a database. The
database libraries are loaded when a store is really opened, since most first looks find none.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from neve.errors import StateError, StateReplacedError
from neve.state.location import identity, make_directory, sqlite_file
from neve.state.rows import Claim, Run, StoredOutput
from neve.table.files import Partition
from neve.table.state import MAIN

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

    from neve.commit.lease_terms import Lease, Taken
    from neve.maintenance.file_index import TableIndex
    from neve.maintenance.quarantine import Candidate, Fate, FateChange, Quarantined, QuarantinedRun
    from neve.rewrite.compactions import Compacted, CompactionCommit
    from neve.rewrite.journal import JournaledRun
    from neve.rewrite.record import GroupState, RunRecord
    from neve.rewrite.work_order import WorkResult
    from neve.state.fleet import FleetStore
    from neve.state.history import History
    from neve.state.job_queue import JobQueue
    from neve.state.last_runs import Pauses
    from neve.state.notices import NoticeStore
    from neve.state.policies import PolicyStore
    from neve.state.roles import Roles

log = logging.getLogger(__name__)


class StateStore:
    """An open store. Safe to use from several threads; each process opens its own."""

    def __init__(self, engine: Engine, *, keep_seconds: float | None = None, file: Path | None = None) -> None:
        self._engine = engine
        self._keep_seconds = keep_seconds
        self._file, self._identity = file, identity(file)
        self._claims: dict[str, Claim] = {}
        """The runs that this process began or took over: every later write to their journals names its claim."""

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
        return cls(engine, keep_seconds=keep_seconds, file=file)

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

    def require_in_place(self) -> None:
        """Raises StateReplacedError if the file of a SQLite store was removed or replaced since it was opened.

        What is written to a file that nobody else can find is lost.
        """
        if self._file is not None and identity(self._file) != self._identity:
            raise StateReplacedError(
                f"Cannot go on with state store {self._file}: the file was removed or replaced while it was open",
                hint="Stop what uses the store before you restore a copy, and start it again afterwards.",
            )

    def close(self) -> None:
        """Gives back every connection."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def jobs(self) -> JobQueue:
        """The queue of jobs."""
        from neve.state.job_queue import JobQueue

        return JobQueue(self._engine)

    @property
    def pauses(self) -> Pauses:
        """The pauses of operations on tables."""
        from neve.state.last_runs import Pauses

        return Pauses(self._engine)

    @property
    def fleet(self) -> FleetStore:
        """The tables that the catalogs list."""
        from neve.state.fleet import FleetStore

        return FleetStore(self._engine)

    @property
    def policies(self) -> PolicyStore:
        """The policy documents."""
        from neve.state.policies import PolicyStore

        return PolicyStore(self._engine)

    @property
    def notices(self) -> NoticeStore:
        """The notices that wait to be sent."""
        from neve.state.notices import NoticeStore

        return NoticeStore(self._engine)

    @property
    def roles(self) -> Roles:
        """The roles of processes, and the workers."""
        from neve.state.roles import Roles

        return Roles(self._engine)

    def view_rows(self, view: str, columns: Sequence[str], **wanted: Any) -> Iterator[list[dict[str, Any]]]:
        """Yields rows of a view in batches; see `view_rows.view_rows`."""
        from neve.state import view_rows

        return view_rows.view_rows(self._engine, view, columns, **wanted)

    def history(self, wanted: str, *, since_ms: int, runs: int) -> History:
        """Health, runs and cost of the tables that match a glob or have this name, since a moment."""
        from neve.state import history

        return history.read_history(self._engine, wanted, since_ms=since_ms, runs=runs)

    def row_groups(self, table_uuid: str) -> Mapping[str, int]:
        """Row groups by path, of files that we wrote."""
        from neve.state import reading

        return reading.row_groups(self._engine, table_uuid)

    def compaction_commits(self, table_uuid: str) -> tuple[CompactionCommit, ...]:
        """Every commit of a compaction that is recorded for a table."""
        from neve.state import reading

        return reading.compaction_commits(self._engine, table_uuid)

    def last_compactions(self, table_uuid: str, without: Collection[CompactionCommit] = ()) -> Mapping[Partition, int]:
        """Milliseconds of the last recorded compaction, by partition, apart from some commits."""
        from neve.state import reading

        return reading.last_compactions(self._engine, table_uuid, without)

    def withdraw_compactions(self, commits: Iterable[CompactionCommit]) -> None:
        """Removes commits of compactions that no branch of their table has in its history."""
        from neve.state import writing

        writing.withdraw_compactions(self._engine, commits)

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

        claim = self._claims.get(run_id)
        writing.finish_run(self._engine, run_id, finished_ms=finished_ms, outcome=outcome, record=record, claim=claim)
        self._tidy(finished_ms)

    def add_commit(
        self,
        run_id: str,
        *,
        partitions: Iterable[Partition],
        outputs: Iterable[StoredOutput],
        committed_ms: int,
        snapshot_id: int | None = None,
        branch: str = MAIN,
    ) -> None:
        """Records what one commit of a run did, completely or not at all. Recording it again changes nothing."""
        from neve.rewrite.compactions import Compacted
        from neve.state import writing

        compacted = [Compacted(partition, snapshot_id, committed_ms) for partition in partitions]
        writing.add_commit(self._engine, run_id, compacted=compacted, outputs=outputs, branch=branch)

    def keep_run(self, record: RunRecord, compacted: Iterable[Compacted]) -> None:
        """Stores a finished run, wholly or not at all: its record, the partitions it compacted and the files it wrote.

        Its plan and results are forgotten, except results in doubt; then old runs, if that is due.
        """
        from neve.state import writing

        writing.keep_run(self._engine, record, compacted, self._claims.get(record.recorded_id))
        self._tidy(record.finished_ms)

    def _tidy(self, now_ms: int) -> None:
        from neve.state import pruning

        if self._keep_seconds is None:
            return
        try:
            pruning.tidy(self._engine, now_ms=now_ms, keep_seconds=self._keep_seconds)
        except StateError as error:
            log.warning("old runs were not removed: %s", error)  # the run itself is kept, and that was asked for

    def holders(self, now_ms: int) -> Mapping[str, str]:
        """The owner of each run that has a valid heartbeat or holds a table, by run."""
        from neve.state import reading

        return reading.holders(self._engine, now_ms)

    def begin(self, run: JournaledRun) -> None:
        """Writes a run down before any work; its owner must be this process."""
        from neve.state import journal

        self._claims[run.run_id] = journal.begin(self._engine, run)

    def take_over(self, run_id: str, *, owner: str, gone: str | None, now_ms: int, lease_ms: int) -> JournaledRun:
        """Makes this process the owner of an unfinished run; returns the run as it was left.

        Raises LeaseHeldError while the heartbeat of its owner is valid, unless that is `gone`.
        """
        from neve.state import journal

        words = {"owner": owner, "gone": gone, "now_ms": now_ms, "lease_ms": lease_ms}
        found, self._claims[run_id] = journal.take_over(self._engine, run_id, **words)  # type: ignore[arg-type]
        return found

    def require_resumable(self, run_id: str, *, owner: str, gone: str | None, now_ms: int) -> None:
        """Raises LeaseHeldError if the run may not be taken over now; changes nothing."""
        from neve.state import journal

        journal.require_resumable(self._engine, run_id, owner=owner, gone=gone, now_ms=now_ms)

    def pause(self, run_id: str) -> None:
        """Ends the heartbeat of a run that stopped before its end, so that any process may resume it."""
        from neve.state import journal

        if (claim := self._claims.get(run_id)) is not None:
            journal.pause(self._engine, run_id, claim)

    def pause_all(self) -> tuple[str, ...]:
        """Ends the heartbeat of every run that this process began or took over and did not end; their ids."""
        from neve.state import journal

        return journal.pause_all(self._engine, self._claims)

    def redone(self, run_id: str, prefixes: Mapping[int, str]) -> None:
        """Notes under which new names groups are written once more."""
        from neve.state import journal

        journal.redone(self._engine, run_id, self._claims.get(run_id), prefixes)

    def written(self, run_id: str, results: Iterable[WorkResult]) -> None:
        """Notes that these groups' files exist."""
        from neve.state import journal

        journal.written(self._engine, run_id, self._claims.get(run_id), results)

    def settled(self, run_id: str, states: Mapping[int, GroupState]) -> None:
        """Notes what became of these groups."""
        from neve.state import journal

        journal.settled(self._engine, run_id, self._claims.get(run_id), states)

    def landed_before(self, table_uuid: str, prefixes: Collection[str]) -> Mapping[str, RunRecord]:
        """By prefix, the first ended run of a table that has a committed or superseded group with this prefix."""
        from neve.state import journal

        return journal.landed_before(self._engine, table_uuid, prefixes)

    def unfinished(self, begins: str = "") -> tuple[JournaledRun, ...]:
        """Runs that were begun and never ended, oldest first; those whose id begins so. Raises StateError if one cannot be
        read."""
        from neve.state import journal

        return journal.unfinished(self._engine, begins)

    def planned_snapshots(self, table_uuid: str) -> Mapping[str, int]:
        """The snapshot that each unfinished run of a table was planned from, by run."""
        from neve.state import journal

        return journal.planned_snapshots(self._engine, table_uuid)

    def take_lease(
        self, table_uuid: str, *, run_id: str, owner: str, now_ms: int, lease_ms: int, gone: int | None = None
    ) -> Taken:
        """Tries to take the lease on a table; says who holds it now, which may be another process.

        A process takes its own lease again; one that has ended, or whose token is `gone`, is anyone's. Each take has a higher
        token than the one before.
        """
        from neve.state import leases

        words = {"run_id": run_id, "owner": owner, "now_ms": now_ms, "lease_ms": lease_ms, "gone": gone}
        return leases.take(self._engine, table_uuid, **words)  # type: ignore[arg-type]

    def renew_lease(self, table_uuid: str, run_id: str, token: int, *, now_ms: int, lease_ms: int) -> bool:
        """Moves the end of a lease and of the run's heartbeat; False if another process has taken either."""
        from neve.state import leases

        claim = self._claims.get(run_id)
        return leases.renew(self._engine, table_uuid, run_id, token, now_ms=now_ms, lease_ms=lease_ms, claim=claim)

    def release_lease(self, table_uuid: str, run_id: str, token: int) -> None:
        """Gives a lease back; one that somebody else has taken meanwhile stays theirs."""
        from neve.state import leases

        leases.release(self._engine, table_uuid, run_id, token)

    def lease(self, table_uuid: str) -> Lease | None:
        """The lease on a table, which may have ended; None if it was never taken or was given back."""
        from neve.state import leases

        return leases.current(self._engine, table_uuid)

    def clock_ms(self, now_ms: int) -> int:
        """Now, by the clock that leases and heartbeats end by."""
        from neve.state import leases

        return leases.now(self._engine, now_ms)

    def record_candidates(self, table_uuid: str, run_id: str, files: Iterable[Candidate], now_ms: int) -> int:
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

    def settle_candidates(self, table_uuid: str, changes: Iterable[FateChange], now_ms: int) -> None:
        """Records what became of files in the quarantine."""
        from neve.state import quarantine

        quarantine.settle(self._engine, table_uuid, changes, now_ms)

    def adopt_trash(self, dropped_uuid: str, table_uuid: str) -> int:
        """Hands files in the trash of a dropped table to another one, which purges or restores them; how many."""
        from neve.state import quarantine

        return quarantine.adopt_trash(self._engine, dropped_uuid, table_uuid)

    def quarantined_runs(self, table_uuid: str) -> tuple[QuarantinedRun, ...]:
        """How many files of a table each run put into the quarantine, by reason and fate."""
        from neve.state import quarantine

        return quarantine.runs(self._engine, table_uuid)

    def index_fingerprints(self, tables: Collection[str]) -> Mapping[str, str]:
        """The fingerprints that the file index has for these tables."""
        from neve.state import file_index

        return file_index.fingerprints(self._engine, tables)

    def table_indexes(self, tables: Collection[str]) -> Mapping[str, TableIndex]:
        """What the file index has for these tables."""
        from neve.state import file_index

        return file_index.entries(self._engine, tables)

    def keep_table_indexes(self, found: Mapping[str, TableIndex], now_ms: int) -> None:
        """Replaces the entries of these tables in the file index, all or none."""
        from neve.state import file_index

        file_index.keep(self._engine, found, now_ms)

    def forget_table_indexes(self, catalog: str, keep: Collection[str]) -> None:
        """Removes the entries of a catalog's other tables from the file index."""
        from neve.state import file_index

        file_index.forget(self._engine, catalog, keep)

    def check(self) -> str:
        """Writes a row, reads it and takes it back; says what was found. Raises StateError if any of it fails."""
        from neve.state import writing

        return writing.check(self._engine)
