"""remove_orphans: finds files at a table's location that no snapshot needs, and hands them to the quarantine.

Called by `compose`. The order matters: everything is listed first, this table and all others are loaded after that, and only
then compared, so that whatever was committed before the comparison is known. Any doubt whose files these are ends the run with
nothing done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from uuid import uuid4

from neve.commit.lease import leased
from neve.errors import BadRequestError, InDoubtError
from neve.maintenance.file_index import BelowRoot, Comparison, Real, Trust
from neve.maintenance.orphans import (
    Judged,
    Neighbour,
    OrphanRecord,
    OrphanRules,
    Verdict,
    left_by_others,
    next_orphans,
    overlapping,
    running_files,
)
from neve.maintenance.quarantine import Doomed, Fate, Quarantined
from neve.maintenance.record import Operation
from neve.operations.file_index import refuse_doubt
from neve.operations.index_ports import OrphanSearch
from neve.ports import Clock, Leases, Progress, Quarantine, TableWriter
from neve.rewrite.journal import JournaledRun
from neve.rewrite.record import RunOutcome
from neve.table.location import Spellings
from neve.table.properties import GC_ENABLED, files_may_be_removed
from neve.table.state import TableName
from neve.table.units import counted

log = logging.getLogger(__name__)

_BATCH = 1_000


@dataclass(frozen=True)
class OrphanRequest:
    """What is asked for. `root` is the place to look at, `older_than_seconds` was checked against the floor."""

    table: TableName
    table_uuid: str
    root: str
    older_than_seconds: float
    limit: int
    spellings: Spellings = field(default_factory=Spellings.of)
    hidden: tuple[str, ...] = ()
    inventory: str | None = None
    trust: Trust = field(default_factory=Trust)
    """Which tables that cannot be read need not stop the search."""
    is_alone: bool = False
    """Somebody vouches that no other table is there, nor this one in another catalog, where ours could not tell."""
    dropped: frozenset[str] = frozenset()
    """Uuids, in lower case, of tables that somebody vouches were dropped: their metadata files here are orphans too."""
    dry_run: bool = False


@dataclass(frozen=True)
class OrphanTools:
    """What a search works with. `neighbours` brings the file index up to date, and gives every table of every catalog."""

    writer: TableWriter
    search: OrphanSearch
    neighbours: Callable[[], Iterable[Neighbour]]
    needed: Callable[[Comparison], Iterable[tuple[str, str]]]
    """What any table needs of the files that a comparison asks about, by the file index: each with the table's name."""
    unfinished: Callable[[], Iterable[JournaledRun]]
    clock: Clock
    real: Real = str
    """Resolves the symbolic links of a local directory."""
    begin: Callable[[str], None] = lambda _: None
    """Told the run's id before anything is recorded under it."""
    adopt_trash: Callable[[str], int] = lambda _: 0
    """Hands files in the trash of a dropped table to this one, which purges them; takes its uuid and returns how many."""
    deleting_rules: Callable[[], Sequence[str]] = tuple
    """By which the store deletes files there, whoever needs them; each in a sentence."""
    quarantine: Quarantine | None = None
    leases: Leases | None = None
    progress: Progress | None = None


def remove_orphans(request: OrphanRequest, tools: OrphanTools) -> OrphanRecord:
    """Finds orphans and records them. Raises InDoubtError, with nothing recorded, where anything contradicts."""
    run = _Search(request, tools, uuid4().hex, tools.clock.now_ms())
    if request.dry_run:
        return run.carry_out()
    if tools.quarantine is None:
        raise BadRequestError(f"Cannot remove orphans of {request.table}: there is no quarantine to put them into")
    with leased(
        str(request.table), request.table_uuid, run.run_id, leases=tools.leases, writer=tools.writer, clock=tools.clock
    ) as lease:
        return replace(run, assert_held=lease.assert_held).carry_out()


@dataclass(frozen=True)
class _Search:
    request: OrphanRequest
    tools: OrphanTools
    run_id: str
    started_ms: int
    assert_held: Callable[[], None] = field(default=lambda: None)
    """Raises if another process has taken the table over (`commit.lease`)."""

    def carry_out(self) -> OrphanRecord:
        """The stages, one after another."""
        request, tools = self.request, self.tools
        self._refuse_kept_tables()
        self._progress("list")
        tools.search.list_files(request.root, self._rules(), request.inventory)
        itself = self._look_around()
        tools.writer.refresh()
        self._progress("compare")
        judged = tools.search.judge()
        self._refuse_unreadable(itself)
        self._refuse_doubt(judged)
        judged = self._share(judged)
        judged = self._hold(judged)
        log.info("%s: run %s compared %s files at %s", request.table, self.run_id, judged.listed, request.root)
        return self._take(judged)

    def _refuse_kept_tables(self) -> None:
        if not files_may_be_removed(properties := self.tools.writer.properties()):
            raise BadRequestError(
                f"Cannot look for orphans of {self.request.table}: its property {GC_ENABLED} is {properties[GC_ENABLED]}",
                hint="Others may need files that this catalog does not know of, such as branches in Nessie.",
            )

    def _look_around(self) -> list[Neighbour]:
        """Refuses where another table has a place inside or around this one, or cannot be read and may have files anywhere.

        Returns the table itself as the file index found it: if it cannot be read, the comparison says best what is wrong.
        """
        request = self.request
        self._progress("neighbours")
        neighbours = list(self.tools.neighbours())
        root = request.spellings.parse(request.root)
        # The files of the table itself are not in doubt under any name: the index finds what each of its entries needs.
        others = [one for one in neighbours if not one.is_table(str(request.table), request.table_uuid)]
        if overlap := overlapping(root, others, request.spellings, self.tools.real):
            name, place = next(iter(overlap.items()))
            raise InDoubtError(
                f"Cannot look for orphans in {request.root}: {name} has files in {place}",
                hint="The files of one would be orphans to the other. Give each table a location of its own.",
            )
        self._refuse_unreadable([one for one in neighbours if one.name != str(request.table)])
        if alive := next((one for one in neighbours if one.uuid is not None and one.uuid.lower() in request.dropped), None):
            raise InDoubtError(
                f"Cannot treat table {str(alive.uuid).lower()} as dropped: it is {alive.name}",
                hint="Leave it out of --dropped-table and orphans.dropped-tables.",
            )
        return [one for one in neighbours if one.name == str(request.table)]

    def _refuse_unreadable(self, tables: list[Neighbour]) -> None:
        request, root = self.request, self.request.root
        if not request.is_alone:
            refuse_doubt(tables, [root], request.trust, request.spellings, purpose=f"look for orphans in {root}")

    def _share(self, judged: Judged) -> Judged:
        """Keeps files that another table needs, such as imported ones, and those that this table names through a link."""
        request, users = self.request, dict[str, None]()
        comparison = Comparison(BelowRoot(request.root, request.spellings, self.tools.real), self.tools.real, request.spellings)

        def paths() -> Iterator[str]:
            for path, table in self.tools.needed(comparison):
                users.setdefault(table)
                yield path

        needed = paths()
        first = next(needed, None)
        if first is None:
            return judged
        return self.tools.search.share(chain([first], needed)).model_copy(update={"users": tuple(users)})

    def _rules(self) -> OrphanRules:
        """The age counts from before the listing, whenever a file was listed."""
        request = self.request
        return OrphanRules(
            root=request.spellings.parse(request.root),
            spellings=request.spellings,
            cutoff_ms=self.tools.clock.now_ms() - int(request.older_than_seconds * 1000),
            hidden=request.hidden,
            running=running_files(self.tools.unfinished(), request.spellings),
        )

    def _refuse_doubt(self, judged: Judged) -> None:
        request = self.request
        if judged.objection is not None:
            reason, hint = judged.objection
            raise InDoubtError(f"Cannot tell orphans in {request.root}: {reason}", hint=hint)

    def _hold(self, judged: Judged) -> Judged:
        """Keeps what versions need that the catalog does not know, as long as nobody vouches that these are no table."""
        request, search = self.request, self.tools.search
        owners = search.owners(judged.strange)
        own = [path for path, uuid in owners.items() if uuid.lower() == request.table_uuid.lower()]
        judged = self._drop(judged, {path: owners[path] for path in owners.keys() - set(own)})
        if not own or request.is_alone or not judged.count(Verdict.ORPHAN):
            return judged
        self._progress("versions")
        return search.hold(own).model_copy(update={"users": judged.users, "dropped": judged.dropped})

    def _drop(self, judged: Judged, owners: Mapping[str, str]) -> Judged:
        """Takes metadata files of dropped tables. Raises InDoubtError for those of tables that nobody vouches for.

        Files that wait in the quarantine were vouched for when they were recorded.
        """
        if not owners:
            return judged
        request, waiting = self.request, {file.path for file in self._recorded() if file.path in owners}
        uuids = {path: uuid.lower() for path, uuid in owners.items()}
        doubtful = {path: uuid for path, uuid in uuids.items() if uuid not in request.dropped and path not in waiting}
        if doubtful:
            raise left_by_others(request.root, str(request.table), doubtful)
        known = {"users": judged.users, "dropped": tuple(sorted(set(uuids.values())))}
        return self.tools.search.drop(sorted(owners)).model_copy(update=known)

    def _take(self, judged: Judged) -> OrphanRecord:
        request, quarantine, now_ms = self.request, self.tools.quarantine, self.tools.clock.now_ms()
        waiting = self._waiting()
        found = (file for file in self.tools.search.orphans() if not self._is_linked(file.path))
        new = (file for file in found if hash(file.path) not in waiting)
        chosen, told, taken = islice(new, request.limit), list[Doomed](), 0
        while some := list(islice(chosen, _BATCH)):
            self.assert_held()
            if not taken and not request.dry_run:
                self.tools.begin(self.run_id)
            taken += len(some)
            self._progress("record", taken, judged.count(Verdict.ORPHAN) + judged.count(Verdict.DROPPED))
            if request.dry_run:
                told += some
            elif quarantine is not None:
                quarantine.record_doomed(request.table_uuid, self.run_id, some, now_ms)
        limited = taken == request.limit and next(new, None) is not None
        adopted = 0 if request.dry_run else sum(self.tools.adopt_trash(uuid) for uuid in judged.dropped)
        return self._record(judged, taken, limited=limited, adopted=adopted, files=tuple(told))

    def _is_linked(self, path: str) -> bool:
        """Whether a link leads to the file, so that it lies elsewhere. A listing follows no links; an inventory may."""
        spellings, root = self.request.spellings, self.request.spellings.parse(self.request.root)
        if root.scheme not in ("", "file"):
            return False
        directory = spellings.parse(path).key.rpartition("/")[0]
        return self.tools.real(directory) != self.tools.real(root.key) + directory[len(root.key) :]

    def _waiting(self) -> set[int]:
        """What the quarantine has already and has not moved yet; as numbers, since there may be a million."""
        return {hash(file.path) for file in self._recorded()}

    def _recorded(self) -> Iterable[Quarantined]:
        quarantine = self.tools.quarantine
        return quarantine.quarantined(self.request.table_uuid, fates=[Fate.RECORDED]) if quarantine is not None else ()

    def _record(self, judged: Judged, taken: int, *, limited: bool, adopted: int, files: tuple[Doomed, ...]) -> OrphanRecord:
        request, orphans = self.request, judged.count(Verdict.ORPHAN) + judged.count(Verdict.DROPPED)
        reason = None
        if not taken:
            reason = f"all {orphans:,} orphans wait in the quarantine already" if orphans else "every file is accounted for"
        rule = next_orphans(judged, request.older_than_seconds, self.started_ms)
        return OrphanRecord(
            run_id=self.run_id,
            table=str(request.table),
            table_uuid=request.table_uuid,
            operation=Operation.ORPHANS,
            dry_run=request.dry_run,
            outcome=RunOutcome.DONE if taken else RunOutcome.NOTHING_TO_DO,
            reason=reason,
            not_due=() if taken else (rule,),
            started_ms=self.started_ms,
            finished_ms=self.tools.clock.now_ms(),
            snapshot_before=self.tools.writer.head(),
            location=request.root,
            older_than_seconds=request.older_than_seconds,
            listed=judged.listed,
            verdicts=judged.files,
            orphan_bytes=judged.orphan_bytes,
            taken=taken,
            limited=limited,
            files=files,
            warnings=(*judged.warnings, *_adopted(adopted), *self.tools.deleting_rules()),
        )

    def _progress(self, stage: str, done: int = 0, total: int | None = None) -> None:
        if self.tools.progress:
            self.tools.progress(stage, done, total)


def _adopted(files: int) -> tuple[str, ...]:
    return (f"{counted(files, 'file')} in the trash of dropped tables: purged with those of this table",) if files else ()
