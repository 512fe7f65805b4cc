"""What operations need of the outside world, as small interfaces. Adapters implement them; `context` picks which."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

from neve.commit.lease_terms import Lease, Taken
from neve.health.queries import Planned
from neve.maintenance.manifests import ManifestPlan, WrittenManifests
from neve.maintenance.quarantine import Candidate, Fate, FateChange, Quarantined, StoredFile
from neve.maintenance.removal import Unreachable
from neve.maintenance.tags import Tag
from neve.rewrite.compactions import CompactionCommit
from neve.rewrite.content import ContentProof
from neve.rewrite.equality_rows import ResolveDelete, ResolvedFile, ResolveInput
from neve.rewrite.journal import JournaledRun
from neve.rewrite.live_files import Ancestor, DataFile, LiveFile
from neve.rewrite.record import GroupState, RunRecord
from neve.rewrite.work_order import FailedOrder, WorkOrder, WorkResult
from neve.table.files import FileColumns, Partition
from neve.table.positions import Longs
from neve.table.state import MAIN, Manifest, StatisticsFile, TableName, TableState


class Clock(Protocol):
    """The time, so that tests need not wait for it."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...


class Progress(Protocol):
    """Told how far long work has come; a surface draws it, a library ignores it."""

    def __call__(self, stage: str, done: int, total: int | None, unit: Literal["", "bytes"] = "") -> None:
        """`total` is None while nobody knows it."""
        ...


class TableReader(Protocol):
    """One loaded table at one metadata version. Each method reads only what it names, through the cache."""

    def state(self) -> TableState:
        """Depth SUMMARY: what the metadata file says."""
        ...

    def at(self, snapshot_id: int) -> TableReader:
        """The same table as it was at another snapshot of this metadata version: a branch's head, or one of the past."""
        ...

    def manifests(self) -> tuple[Manifest, ...]:
        """The snapshot's manifest list."""
        ...

    def files(
        self, manifests: tuple[Manifest, ...], progress: Progress | None = None, *, bounds: Collection[int] = ()
    ) -> FileColumns:
        """The live files in these manifests; with the bounds of these columns, where asked for."""
        ...

    def sample_row_groups(self, paths: Iterable[str]) -> Mapping[str, int]:
        """Row groups per file from footers; reads data files' ends, so only on request."""
        ...

    def from_cache(self) -> bool:
        """Whether all that was read so far came from the cache, and nothing from storage."""
        ...


class Catalog(Protocol):
    """A place where tables are found by name."""

    def open(self, name: TableName) -> TableReader:
        """Loads a table: one catalog call. Raises TableNotFoundError, AccessDeniedError, CatalogUnreachableError."""
        ...

    def tables(self, namespace: tuple[str, ...] | None = None) -> Iterable[TableName]:
        """The tables of a namespace, or of the whole catalog."""
        ...


class DeleteFiles(Protocol):
    """What deletes by position hold, and new ones."""

    def positions(self, deletes: Sequence[DataFile], path: str) -> Longs:
        """The rows of one data file that these delete, ascending and each once."""
        ...

    def each(self, deletes: Mapping[str, Sequence[DataFile]]) -> Iterable[tuple[str, Longs]]:
        """The same for many data files, one after another; a delete that many have is not read once for each."""
        ...

    def write(self, rows: Iterable[tuple[str, Longs]], homes: Mapping[str, DataFile], *, vectors: bool) -> list[DataFile]:
        """New deletes for rows of these data files, whose descriptions are in `homes`; described as the commit adds them.

        Rows are taken one data file at a time; a file without any gets none.
        """
        ...


class EqualityResolver(Protocol):
    """Finds the rows behind equality deletes, however large these are."""

    def resolve(
        self,
        data: Sequence[ResolveInput],
        deletes: Sequence[ResolveDelete],
        *,
        key_fields: Sequence[Mapping[str, Any]],
        output_prefix: str,
        name_mapping: Sequence[Any] | None = None,
    ) -> list[ResolvedFile]:
        """A vector for every data file that loses rows, in Puffin files whose names begin with the prefix."""
        ...

    def unused(self) -> list[str]:
        """Files that were written and that no answer names, by task attempts that were lost. Each is given once."""
        ...


class QueryPlanner(Protocol):
    """Plans queries on a table as an engine would, without running them."""

    def planned(self, snapshot_id: int | None, query: str) -> Planned:
        """The files that a query on a snapshot has to read; the query is a Spark SQL predicate."""
        ...


class TableEntry(Protocol):
    """A table's entry in its catalog: one loaded version, moved on by `refresh`. Leases and the quarantine need no more."""

    def refresh(self) -> None:
        """Loads the newest metadata. Raises TableGoneError if the table was dropped, renamed or replaced."""
        ...

    def uuid(self) -> str | None:
        """Of the table as it is loaded; None for very old tables, which have none."""
        ...

    def follow(self) -> str | None:
        """After a rename: moves on to the same table under its new name, and returns that; None if it is not found."""
        ...

    def metadata_location(self) -> str:
        """The location of the loaded metadata file."""
        ...

    def location(self) -> str:
        """The table's own location."""
        ...

    def properties(self) -> dict[str, str]:
        """The table's properties."""
        ...

    def swap_properties(self, expected: Mapping[str, str | None], values: Mapping[str, str | None]) -> bool:
        """The same as `swap_property` for several at once; `expected` may name others than those that change."""
        ...

    def swap_property(self, key: str, expected: str | None, value: str | None) -> bool:
        """Changes one property if it is as expected, in one step; False if it is not. None stands for no such property."""
        ...


class TableWriter(TableEntry, Protocol):
    """The table where snapshots are committed to."""

    def head(self, branch: str = MAIN) -> int | None:
        """The branch's snapshot."""
        ...

    def knows(self, snapshot_id: int) -> bool:
        """Whether the snapshot is there, or has been expired."""
        ...

    def shape(self) -> dict[str, int]:
        """What must not change between plan and commit, by name."""
        ...

    def schema_json(self) -> dict[str, Any]:
        """The current schema in Iceberg's JSON."""
        ...

    def schemas_json(self) -> list[dict[str, Any]]:
        """Every schema that the table has had, oldest first."""
        ...

    def data_location(self, model: LiveFile, file_name: str) -> str:
        """Where the table's own rules put a new file beside this one."""
        ...

    def missing(self, paths: Iterable[str]) -> set[str]:
        """Those of the files that do not exist in the table's storage."""
        ...

    def scan(self, snapshot_id: int | None, *, statistics: bool = True) -> list[LiveFile]:
        """Every live data file of a snapshot with its deletes, from an unfiltered plan."""
        ...

    def delete_files(self, snapshot_id: int) -> list[DataFile]:
        """Every delete file and vector of a snapshot, those that apply to nothing included."""
        ...

    def sequence_numbers(self, snapshot_id: int) -> Mapping[str, int]:
        """Data sequence numbers by path: of a snapshot's live data files, and of the deletes attached to one."""
        ...

    def ancestry(self, snapshot_id: int, until: int | None, *, most: int | None = None) -> list[Ancestor]:
        """The snapshots after `until` up to `snapshot_id`, newest first, and at most so many."""
        ...

    def rewrite(
        self,
        removed: Sequence[DataFile],
        added: Sequence[DataFile],
        *,
        head: int,
        sequence_number: int | None,
        summary: Mapping[str, str],
        branch: str = MAIN,
        removed_deletes: Sequence[DataFile] = (),
        added_deletes: Sequence[DataFile] = (),
    ) -> None:
        """Commits a replacement. Raises CommitConflictError if it certainly did not land, CommitUnknownError if it may have.

        `added_deletes` are vectors (v3) or position deletes of one file each (v2) for the files added; with them there may be
        two snapshots, of which the newer has the whole summary. A conflict if a file to be removed is gone.
        """
        ...

    def row_delta(
        self,
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        *,
        referenced: Iterable[str],
        head: int,
        summary: Mapping[str, str],
        branch: str = MAIN,
    ) -> None:
        """Commits other deletes for the same rows; raises as `rewrite` does.

        `referenced` are the data files that must still be live: all those that `added` or `removed` apply to. A conflict if one
        was removed since `head`, or was given a vector where `added` has one, or if a file of `removed` is gone.
        """
        ...

    def roll_back(self, snapshot_id: int, to: int, branch: str = MAIN) -> bool:
        """Moves the branch from one snapshot back to another, unless it has moved on: then nothing is done, and False."""
        ...

    def snapshots_with(self, key: str, value: str) -> list[int]:
        """Snapshots on any branch, or on none, whose summary says so."""
        ...


class ManifestRewriter(Protocol):
    """Writes a table's manifests anew and commits them; the entries stay as they are."""

    def write(self, plan: ManifestPlan) -> WrittenManifests:
        """Writes what the plan asks for, from the table as it is loaded. Nobody sees it yet."""
        ...

    def commit(self, written: WrittenManifests, summary: Mapping[str, str]) -> None:
        """Puts new manifests in place of old ones; raises as `TableWriter.rewrite` does. Main only: Iceberg knows no other."""
        ...

    def listed(self, snapshot_id: int) -> dict[str, int | None]:
        """The manifests of a snapshot with the first row id that each was given."""
        ...


class StatisticsWriter(Protocol):
    """Counts a table's values."""

    def write(self, snapshot_id: int, *, columns: Sequence[str], partitions: bool) -> tuple[StatisticsFile, ...]:
        """Writes statistics of a snapshot: of columns first, then of partitions. No table names them yet."""
        ...

    def publish(self, files: Sequence[StatisticsFile], *, in_place_of: Collection[str]) -> bool:
        """Lets the table name them, in one step; False if anything changed meanwhile. Statistics of the same snapshot give way
        only if they are in `in_place_of`, by their paths."""
        ...


class Tagger(Protocol):
    """Makes and drops tags."""

    def change_tags(self, created: Sequence[Tag], dropped: Sequence[Tag]) -> bool:
        """All of it in one step; False if the table changed meanwhile, a name is in use, or a tag is not as it was seen."""
        ...


class Engine(Protocol):
    """Carries out work orders."""

    def run(self, orders: Sequence[WorkOrder]) -> Iterable[WorkResult | FailedOrder]:
        """Each order's result, in the order in which they finish."""
        ...

    def unused(self) -> list[str]:
        """Files that no result names and nobody needs any more: of task attempts that were lost, and scratch files. Each is
        given once."""
        ...

    def leftovers(self, prefixes: Iterable[str]) -> Iterable[str]:
        """Files whose names begin so: what an order that never reported may have written."""
        ...

    def open_outputs(self, result: WorkResult) -> WorkResult:
        """The result with each output opened where it is stored now, by a reader that did not write it, or with the reason."""
        ...


class ContentVerifier(Protocol):
    """Compares a group's rows before and after its rewrite, by an engine that did not write them."""

    def compare(self, result: WorkResult, inputs: Sequence[LiveFile], outputs: Sequence[DataFile]) -> ContentProof:
        """The proof; `outputs` are the new files as the commit would add them. Raises VerificationError if there is none."""
        ...


class Journal(Protocol):
    """Where a run writes down how far it has come (the state store's journal).

    Only the run's owner writes: anyone else's writes raise RunTakenOverError.
    """

    def begin(self, run: JournaledRun) -> None:
        """Writes the plan and its groups down, before any work."""
        ...

    def take_over(self, run_id: str, *, owner: str, gone: str | None, now_ms: int, lease_ms: int) -> JournaledRun:
        """Makes this process the owner of an unfinished run, and returns the run as it was left.

        Raises LeaseHeldError while its owner's heartbeat is valid, unless that owner is `gone`, which has certainly ended. From
        then on every write of the former owner raises RunTakenOverError.
        """
        ...

    def pause(self, run_id: str) -> None:
        """Ends the heartbeat of a run that stopped before its end, so that any process may resume it."""
        ...

    def redone(self, run_id: str, prefixes: Mapping[int, str]) -> None:
        """Notes the beginnings of the names under which groups are written once more."""
        ...

    def written(self, run_id: str, results: Iterable[WorkResult]) -> None:
        """Notes that these groups' files exist."""
        ...

    def settled(self, run_id: str, states: Mapping[int, GroupState]) -> None:
        """Notes what became of these groups."""
        ...

    def landed_before(self, table_uuid: str, prefixes: Collection[str]) -> Mapping[str, RunRecord]:
        """By the beginning of file names, the first ended run that committed such files or found them superseded."""
        ...


class Leases(Protocol):
    """Who holds which table, among those who share a state store."""

    def take_lease(
        self, table_uuid: str, *, run_id: str, owner: str, now_ms: int, lease_ms: int, gone: int | None = None
    ) -> Taken:
        """The lease as it is now: the process's own if the table was free, otherwise that of the process that holds it.

        `gone` is the token of a lease whose process has certainly ended. Stores on a server go by its clock, not by `now_ms`.
        """
        ...

    def renew_lease(self, table_uuid: str, run_id: str, token: int, *, now_ms: int, lease_ms: int) -> bool:
        """Renews the lease and the run's heartbeat; False if another process has taken either."""
        ...

    def release_lease(self, table_uuid: str, run_id: str, token: int) -> None:
        """Frees the table, if the run holds it."""
        ...

    def lease(self, table_uuid: str) -> Lease | None:
        """The lease on a table, which may have ended; None if it is free."""
        ...

    def clock_ms(self, now_ms: int) -> int:
        """Now, by the clock that leases end by: that of the server, or `now_ms` where the store has none."""
        ...


class Quarantine(Protocol):
    """Where files are written down that nothing seems to need (the state store's list of them)."""

    def record_candidates(self, table_uuid: str, run_id: str, files: Iterable[Candidate], now_ms: int) -> int:
        """Writes files down as RECORDED, in batches; how many were new. One that is there already keeps its first moment,
        unless it was RESTORED, PURGED or NEEDED before: then it begins anew."""
        ...

    def quarantined(
        self,
        table_uuid: str,
        *,
        fates: Collection[Fate] | None = None,
        run_id: str | None = None,
        changed_before_ms: int | None = None,
    ) -> Iterator[Quarantined]:
        """Files of a table, oldest first, a batch at a time: a million of them need not be in memory."""
        ...

    def settle_candidates(self, table_uuid: str, changes: Iterable[FateChange], now_ms: int) -> None:
        """Records what became of files."""
        ...


class FileStore(Protocol):
    """Whole files in a table's storage. Each method takes many and goes on where one fails: what it gives back are reasons, by
    path. A file of a table leaves its place only with a proof; without one that covers it, nothing is done and this raises."""

    def stat(self, paths: Sequence[str]) -> list[StoredFile | None]:
        """The size and time of each; None where there is no such file. Raises where that cannot be told."""
        ...

    def move(self, moves: Sequence[tuple[str, str]], proof: Unreachable, seen: Mapping[str, StoredFile]) -> dict[str, str]:
        """Moves files, and overwrites none; a source goes only after its copy is known to be whole.

        `seen` has what `stat` returned for each source when it was judged. One that is another file by now stays.
        """
        ...

    def put_back(self, moves: Sequence[tuple[str, str]]) -> dict[str, str]:
        """The same for files in a trash, which need no proof; from anywhere else it is refused."""
        ...

    def copy_back(self, moves: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Copies files out of a trash and leaves them there as well: something else may read them there. Overwrites none."""
        ...

    def delete(self, paths: Sequence[str], proof: Unreachable) -> dict[str, str]:
        """Removes files; one that is not there is fine."""
        ...

    def keeps_versions(self, path: str) -> bool:
        """Whether what is deleted there can be had again."""
        ...

    def undelete(self, paths: Sequence[str]) -> dict[str, str]:
        """Brings files back that were deleted where versions are kept."""


class Reachability(Protocol):
    """The files of all kinds that a table's metadata needs, over all of its refs and snapshots."""

    def lost_since(self, metadata_location: str) -> Iterator[Candidate]:
        """Files that an older metadata file needs and the current one does not, streamed."""
        ...

    def lost_without(self, snapshots: Collection[int]) -> Iterator[Candidate]:
        """Files that the current metadata would not need any more if these snapshots went, streamed; for dry runs."""
        ...

    def needed(self, paths: Iterable[str]) -> Iterator[str]:
        """Those of the paths that the newest metadata needs, however they are spelled; the table is loaded anew first."""
        ...


class Records(Protocol):
    """What earlier runs left behind, as far as an inspection asks (the state store's reading side)."""

    def row_groups(self, table_uuid: str) -> Mapping[str, int]:
        """Row groups by path, of files that we wrote."""
        ...

    def compaction_commits(self, table_uuid: str) -> Sequence[CompactionCommit]:
        """Every commit of a compaction that is recorded for a table."""
        ...

    def last_compactions(self, table_uuid: str, without: Collection[CompactionCommit] = ()) -> Mapping[Partition, int]:
        """Milliseconds of the last recorded compaction, by partition, apart from some commits."""
        ...
