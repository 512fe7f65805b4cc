"""What the flow needs of the outside world, as small interfaces. Adapters implement them; `compose` picks which."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

from neve.core.auto_tags import Tag
from neve.core.content import ContentProof
from neve.core.files import FileColumns, Partition
from neve.core.journal import JournaledRun
from neve.core.lease import Lease
from neve.core.live import Ancestor, DataFile, LiveFile
from neve.core.manifest_plan import ManifestPlan, WrittenManifests
from neve.core.model import MAIN, Manifest, StatisticsFile, TableName, TableState
from neve.core.orphans import Judged, Rules
from neve.core.positions import Longs
from neve.core.quarantine import Doomed, Fate, Quarantined
from neve.core.queries import Planned
from neve.core.record import GroupState
from neve.core.resolving import ResolveDelete, ResolvedFile, ResolveInput
from neve.core.retention import History
from neve.core.ttl import Limits, TtlRule
from neve.core.work import FailedOrder, WorkOrder, WorkResult


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


class QueryPlanner(Protocol):
    """Plans queries on a table as an engine would, without running them."""

    def planned(self, snapshot_id: int | None, query: str) -> Planned:
        """The files that a query on a snapshot has to read; the query is a Spark SQL predicate."""
        ...


class TableWriter(Protocol):
    """The table where it is committed to: one loaded version of it, moved on by `refresh`."""

    def refresh(self) -> None:
        """Loads the newest metadata."""
        ...

    def head(self, branch: str = MAIN) -> int | None:
        """The branch's snapshot."""
        ...

    def knows(self, snapshot_id: int) -> bool:
        """Whether the snapshot is there, or has been expired."""
        ...

    def shape(self) -> dict[str, int]:
        """What must not change between plan and commit, by name."""
        ...

    def properties(self) -> dict[str, str]:
        """The table's properties."""
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

    def scan(self, snapshot_id: int | None, *, statistics: bool = True) -> list[LiveFile]:
        """Every live data file of a snapshot with its deletes, from an unfiltered plan."""
        ...

    def delete_files(self, snapshot_id: int) -> list[DataFile]:
        """Every delete file and vector of a snapshot, those that apply to nothing included."""
        ...

    def sequence_numbers(self, snapshot_id: int) -> Mapping[str, int]:
        """Data sequence numbers by path: of a snapshot's live data files, and of the deletes attached to one."""
        ...

    def ancestry(self, snapshot_id: int, until: int | None) -> list[Ancestor]:
        """The snapshots after `until` up to `snapshot_id`, newest first."""
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

    def swap_properties(self, expected: Mapping[str, str | None], values: Mapping[str, str | None]) -> bool:
        """The same for several properties at once; `expected` may name others than those that change."""
        ...

    def swap_property(self, key: str, expected: str | None, value: str | None) -> bool:
        """Changes one property if it is as expected, in one step; False if it is not. None stands for no such property."""
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

    def discard(self, paths: Iterable[str]) -> None:
        """Removes files that were written and never committed."""
        ...

    def leftovers(self, prefixes: Iterable[str]) -> list[str]:
        """Files whose names begin so: what an order that never reported may have written."""
        ...


class ContentVerifier(Protocol):
    """Compares a group's rows before and after its rewrite, by an engine that did not write them."""

    def compare(self, result: WorkResult, inputs: Sequence[LiveFile], outputs: Sequence[DataFile]) -> ContentProof:
        """The proof; `outputs` are the new files as the commit would add them. Raises VerificationError if there is none."""
        ...


class Journal(Protocol):
    """Where a run writes down how far it has come (the state store's journal)."""

    def begin(self, run: JournaledRun) -> None:
        """Writes the plan and its groups down, before any work."""
        ...

    def written(self, run_id: str, results: Iterable[WorkResult]) -> None:
        """Notes that these groups' files exist."""
        ...

    def settled(self, run_id: str, states: Mapping[int, GroupState]) -> None:
        """Notes what became of these groups."""
        ...


class Leases(Protocol):
    """Who holds which table, among those who share a state store."""

    def take_lease(self, table_uuid: str, *, run_id: str, owner: str, now_ms: int, until_ms: int) -> Lease:
        """The lease as it is now: the run's own if the table was free, otherwise that of the run that holds it."""
        ...

    def renew_lease(self, table_uuid: str, run_id: str, token: int, until_ms: int) -> bool:
        """Whether the run still holds it."""
        ...

    def release_lease(self, table_uuid: str, run_id: str, token: int) -> None:
        """Frees the table, if the run holds it."""
        ...


class Quarantine(Protocol):
    """Where files are written down that nothing seems to need (the state store's list of them)."""

    def record_doomed(self, table_uuid: str, run_id: str, files: Iterable[Doomed], now_ms: int) -> int:
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

    def settle_doomed(self, table_uuid: str, changes: Iterable[tuple[str, Fate, str | None]], now_ms: int) -> None:
        """What became of files: path, fate, and where it lies in the trash, if it does."""
        ...


class FileStore(Protocol):
    """Whole files in a table's storage. Each method takes many and goes on where one fails: what it gives back are reasons, by
    path."""

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """The size of each; None where there is no such file. Raises where that cannot be told."""
        ...

    def move(self, moves: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Moves files, and overwrites none; a source goes only after its copy is known to be whole."""
        ...

    def delete(self, paths: Sequence[str]) -> dict[str, str]:
        """Removes files; one that is not there is fine."""
        ...

    def keeps_versions(self, path: str) -> bool:
        """Whether what is deleted there can be had again."""
        ...

    def undelete(self, paths: Sequence[str]) -> dict[str, str]:
        """Brings files back that were deleted where versions are kept."""


class PastRows(Protocol):
    """Rows of a table that are past their time, in the files of a snapshot."""

    def candidates(self, snapshot_id: int, rule: TtlRule, limits: Limits) -> list[LiveFile]:
        """Data files that may hold some, with the bounds of the rule's column."""
        ...

    def counts(self, snapshot_id: int, paths: Sequence[str], rule: TtlRule, limits: Limits) -> Mapping[str, int]:
        """How many rows of each of these files are past and not deleted yet; files without any are left out."""
        ...

    def drop(self, files: Sequence[DataFile], summary: Mapping[str, str], branch: str) -> None:
        """Takes whole files out of the table. Raises as `TableWriter.rewrite` does; a conflict if one of them is gone."""
        ...

    def delete(self, rule: TtlRule, limits: Limits, summary: Mapping[str, str], branch: str) -> None:
        """Deletes the rows one by one, the way that the table's properties ask for. Raises as `drop` does."""
        ...


class Reachability(Protocol):
    """What a table's metadata needs, over all of its refs and snapshots: data and delete files, manifests, lists, metadata and
    its log, statistics, the version hint."""

    def lost_since(self, metadata_location: str) -> Iterator[Doomed]:
        """Files that an older metadata file needs and the current one does not, streamed."""
        ...

    def lost_without(self, snapshots: Collection[int]) -> Iterator[Doomed]:
        """Files that the current metadata would not need any more if these snapshots went, streamed; for dry runs."""
        ...

    def needed(self, paths: Iterable[str]) -> Iterator[str]:
        """Those of the paths that the newest metadata needs, however they are spelled; the table is loaded anew first."""
        ...


class Past(Protocol):
    """A table's snapshots and refs where they are committed to."""

    def history(self) -> History:
        """The newest."""
        ...

    def expire(
        self, history: History, snapshots: Collection[int], *, refs: Collection[str] = (), properties: Mapping[str, str]
    ) -> bool:
        """Takes snapshots and refs out of the metadata, and sets properties, in one step; no file is touched.

        False if anybody has changed the table since `history`, the last that was asked for. Raises CommitUnknownError where
        nobody knows, and VerificationError, before anything is sent, if another ref would go as well.
        """


class OrphanSearch(Protocol):
    """Lists what lies at a place, and compares it with what a table needs. Its methods are called in this order."""

    def list_files(self, root: str, rules: Rules, inventory: str | None = None) -> None:
        """Lists everything below a place, wholly, or reads a list of it."""
        ...

    def judge(self) -> Judged:
        """What the files are, by the rules and by the table's metadata as it is loaded now."""
        ...

    def owners(self, metadata_files: Iterable[str]) -> Mapping[str, str]:
        """Table uuids of metadata files. Raises InDoubtError where one does not tell, or is gone since it was listed; of a list
        that others made, those that are gone are left out."""
        ...

    def hold(self, metadata_files: Iterable[str]) -> Judged:
        """What the files are if snapshots are needed too that only these versions have, as far as they can be read.

        Raises InDoubtError if there are many.
        """
        ...

    def orphans(self) -> Iterator[Doomed]:
        """The orphans, ordered by path, a batch at a time."""
        ...


class Records(Protocol):
    """What earlier runs left behind, as far as an inspection asks (the state store's reading side)."""

    def row_groups(self, table_uuid: str) -> Mapping[str, int]:
        """Row groups by path, of files that we wrote."""
        ...

    def last_compactions(self, table_uuid: str) -> Mapping[Partition, int]:
        """Milliseconds of our last committed compaction, by partition."""
        ...
