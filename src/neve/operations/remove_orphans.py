"""orphans: finds files at a table's location that no snapshot needs, and hands them to the quarantine.

The order matters: everything is listed first, this table and all others are loaded after that, and only
then compared, so that whatever was committed before the comparison is known. Any doubt whose files these are ends the run with
nothing done.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import Any, Protocol
from uuid import uuid4

from neve.commit.lease import leased
from neve.context.runs import keep_record
from neve.context.table import TableContext
from neve.errors import BadRequestError, InDoubtError
from neve.health.not_due import NotDue
from neve.index_ports import OrphanSearch
from neve.maintenance.file_index import BelowRoot, Comparison, Real, Trust
from neve.maintenance.orphans import (
    Judged,
    Neighbour,
    OrphanRecord,
    OrphanRules,
    Untaken,
    Verdict,
    chosen_root,
    hidden_partitions,
    interrupted,
    left_by_others,
    next_orphans,
    nothing_taken,
    overlapping,
    required_age,
    running_files,
)
from neve.maintenance.quarantine import Candidate, Fate, Quarantined
from neve.maintenance.record import Operation
from neve.maintenance.steps import Judgement, by_interval
from neve.operations.file_index import OptionalStore, open_index, refuse_doubt, trust_of
from neve.operations.other_versions import Unlisted, open_versions
from neve.operations.requests import OrphansRequest
from neve.rewrite.journal import JournaledRun
from neve.rewrite.record import RunOutcome
from neve.state.rows import Run
from neve.table.location import Spellings
from neve.table.properties import GC_ENABLED, files_may_be_removed
from neve.table.state import TableName
from neve.table.units import counted, parse_seconds

log = logging.getLogger(__name__)

_BATCH = 1_000
_SEARCHED = 100
"""How many searches are looked through for one that has ended."""


@dataclass(frozen=True)
class OrphanTerms:
    """A request with the table's policy. `root` is the location to list, `older_than_seconds` was checked against the floor."""

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


class TableIndexes(Protocol):
    """What all tables of all catalogs need (`operations.file_index`)."""

    def refresh(self) -> Iterable[Neighbour]:
        """Brings the index up to date, and gives every table of every catalog."""
        ...

    def needed(self, comparison: Comparison, own: TableName) -> Iterable[tuple[str, str]]:
        """What any table needs of the files that a comparison asks about, each with the table's name."""
        ...


class Versions(Protocol):
    """Versions of the table that its history does not have (`operations.other_versions`)."""

    def reload(self) -> None:
        """Loads the current version."""
        ...

    def owners(self, metadata_files: Iterable[str], *, may_be_gone: bool = False) -> Mapping[str, str]:
        """Table uuids by path. Raises InDoubtError where a file does not tell, or is gone unless that may be."""
        ...

    def needs(self, metadata_files: Iterable[str]) -> Unlisted:
        """What these versions need beyond the table. Raises InDoubtError for too many, and for what cannot be read."""
        ...


def run(context: TableContext, request: OrphansRequest) -> OrphanRecord:
    """Records orphans in the quarantine, or shows which there are. The search itself is recorded too."""
    terms = terms_of(context, request)
    if request.dry_run:
        return _searched(context, terms)
    context.require_free()
    record = _searched(context, terms)
    if record.outcome is RunOutcome.NOTHING_TO_DO:
        # That somebody looked decides when it is due again.
        keep_record(context.store, context.timed(record), record.operation.value)
    else:
        context.end(record)
    for killed in context.unended(record.operation.value):  # this search had the lease, so that none of them is at work
        if killed.started_ms < record.started_ms:
            context.end(interrupted(killed.run_id, killed.started_ms, by=record))
    return record


def is_due(context: TableContext) -> Judgement:
    """Whether the last search of the whole table that took every orphan was long enough ago."""
    properties, records = context.state.properties, context.records
    if not files_may_be_removed(properties):
        what = f"the table property gc.enabled is {properties[GC_ENABLED]}"
        return Judgement.unmet(NotDue(rule=GC_ENABLED, what=what, knob=GC_ENABLED, until="it is true"))
    runs = records.runs(context.uuid, kind=Operation.ORPHANS.value, limit=_SEARCHED) if records is not None else ()
    last = next((run.finished_ms for run in runs if _was_whole(run, context.state.location)), None)
    return by_interval(last, context.clock.now_ms(), context.policy().orphan_interval_seconds, "orphan-interval")


def _was_whole(run: Run, location: str) -> bool:
    """Whether a search has ended, looked at the whole table and left no orphan for the next one."""
    has_ended = run.outcome in (RunOutcome.DONE.value, RunOutcome.NOTHING_TO_DO.value)
    return has_ended and run.record.get("location") == location.rstrip("/") and not run.record.get("limited")


def terms_of(context: TableContext, request: OrphansRequest) -> OrphanTerms:
    """By the table's policy and the settings, where the request does not say."""
    if request.limit < 1:
        raise BadRequestError(f"Cannot take {request.limit} orphans: at least 1 is needed")
    state, settings = context.state, context.connection.settings.orphans
    spellings = Spellings.of(request.equal_schemes, request.equal_authorities)
    age = context.policy().orphan_age_seconds if request.older_than is None else _seconds(request.older_than)
    return OrphanTerms(
        chosen_root(request.location, state, spellings),
        required_age(age, writers_may_be_running=request.writers_may_be_running),
        request.limit,
        spellings,
        hidden_partitions(state.specs),
        request.inventory,
        trust_of(context.connection, *request.ignore_tables),
        request.no_other_table_is_here,
        frozenset(uuid.lower() for uuid in (*settings.dropped_tables, *request.dropped_tables)),
        request.dry_run,
    )


def _seconds(text: Any) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise BadRequestError(f"Cannot read the age of orphans: {error}") from None


def _searched(context: TableContext, terms: OrphanTerms) -> OrphanRecord:
    from neve.spark.maintenance.orphans import SparkOrphanSearch
    from neve.storage.files import RealDirectories
    from neve.storage.rules import deleting_rules

    with ExitStack() as resources:
        store = OptionalStore(context.records) if terms.dry_run else context.store
        index = open_index(context.connection, store, resources, context.progress)
        versions = open_versions(context)
        search = SparkOrphanSearch(context.spark, context.writer, context.storage_properties, versions.history)
        rules = partial(deleting_rules, context.storage_properties(), terms.root)
        return find_orphans(context, terms, search, index, versions, real=RealDirectories(), deleting_rules=rules)


def find_orphans(
    context: TableContext,
    terms: OrphanTerms,
    search: OrphanSearch,
    index: TableIndexes,
    versions: Versions,
    *,
    real: Real = str,
    deleting_rules: Callable[[], Sequence[str]] = tuple,
) -> OrphanRecord:
    """Finds orphans and records them. Raises InDoubtError, with nothing recorded, where anything contradicts.

    `real` resolves the symbolic links of a local directory; `deleting_rules` gives those by which the store deletes files
    there, whoever needs them, each in a sentence.
    """
    run = _Search(terms, context, search, index, versions, real, deleting_rules, uuid4().hex, context.clock.now_ms())
    if terms.dry_run:
        return run.carry_out().unrecorded()
    table = (str(context.name), context.uuid)
    with leased(*table, run.run_id, leases=context.leases, writer=context.writer, clock=context.clock) as lease:
        return replace(run, assert_held=lease.assert_held).carry_out()


@dataclass(frozen=True)
class _Search:
    terms: OrphanTerms
    context: TableContext
    search: OrphanSearch
    index: TableIndexes
    versions: Versions
    real: Real
    deleting_rules: Callable[[], Sequence[str]]
    run_id: str
    started_ms: int
    assert_held: Callable[[], None] = field(default=lambda: None)
    """Raises if another process has taken the table over (`commit.lease`)."""

    def carry_out(self) -> OrphanRecord:
        """The stages, one after another."""
        terms = self.terms
        self._refuse_kept_tables()
        self._progress("list")
        self.search.list_files(terms.root, self._rules(), terms.inventory)
        itself = self._look_around()
        self._reload()
        self._progress("compare")
        judged = self.search.judge()
        self._refuse_unreadable(itself)
        self._refuse_doubt(judged)
        judged = self._share(judged)
        judged = self._hold(judged)
        log.info("%s: run %s compared %s files at %s", self.context.name, self.run_id, judged.listed, terms.root)
        return self._take(judged)

    def _refuse_kept_tables(self) -> None:
        if not files_may_be_removed(properties := self.context.writer.properties()):
            raise BadRequestError(
                f"Cannot look for orphans of {self.context.name}: its property {GC_ENABLED} is {properties[GC_ENABLED]}",
                hint="Others may need files that this catalog does not know of, such as branches in Nessie.",
            )

    def _look_around(self) -> list[Neighbour]:
        """Refuses where another table has a place inside or around this one, or cannot be read and may have files anywhere.

        Returns the table itself as the file index found it: if it cannot be read, the comparison says best what is wrong.
        """
        terms = self.terms
        self._progress("neighbours")
        neighbours = list(self.index.refresh())
        root = terms.spellings.parse(terms.root)
        # The files of the table itself are not in doubt under any name: the index finds what each of its entries needs.
        others = [one for one in neighbours if not one.is_table(str(self.context.name), self.context.uuid)]
        if overlap := overlapping(root, others, terms.spellings, self.real):
            name, place = next(iter(overlap.items()))
            raise InDoubtError(
                f"Cannot look for orphans in {terms.root}: {name} has files in {place}",
                hint="The files of one would be orphans to the other. Give each table a location of its own.",
            )
        self._refuse_unreadable([one for one in neighbours if one.name != str(self.context.name)])
        if alive := next((one for one in neighbours if one.uuid is not None and one.uuid.lower() in terms.dropped), None):
            raise InDoubtError(
                f"Cannot treat table {str(alive.uuid).lower()} as dropped: it is {alive.name}",
                hint="Leave it out of --dropped-table and orphans.dropped-tables.",
            )
        return [one for one in neighbours if one.name == str(self.context.name)]

    def _reload(self) -> None:
        """Loads the table after everything is listed: what was committed meanwhile is in use."""
        self.versions.reload()
        self.context.writer.refresh()

    def _refuse_unreadable(self, tables: list[Neighbour]) -> None:
        terms, root = self.terms, self.terms.root
        if not terms.is_alone:
            refuse_doubt(tables, [root], terms.trust, terms.spellings, purpose=f"look for orphans in {root}")

    def _share(self, judged: Judged) -> Judged:
        """Keeps files that another table needs, such as imported ones, and those that this table names through a link."""
        terms, users = self.terms, dict[str, None]()
        comparison = Comparison(BelowRoot(terms.root, terms.spellings, self.real), self.real, terms.spellings)

        def paths() -> Iterator[str]:
            for path, table in self.index.needed(comparison, self.context.name):
                users.setdefault(table)
                yield path

        needed = paths()
        first = next(needed, None)
        if first is None:
            return judged
        return self.search.share(chain([first], needed)).model_copy(update={"users": tuple(users)})

    def _rules(self) -> OrphanRules:
        """The age counts from before the listing, whenever a file was listed."""
        terms = self.terms
        return OrphanRules(
            root=terms.spellings.parse(terms.root),
            spellings=terms.spellings,
            cutoff_ms=self.context.clock.now_ms() - int(terms.older_than_seconds * 1000),
            hidden=terms.hidden,
            running=running_files(self._unfinished(), terms.spellings),
        )

    def _refuse_doubt(self, judged: Judged) -> None:
        terms = self.terms
        if judged.objection is not None:
            reason, hint = judged.objection
            raise InDoubtError(f"Cannot tell orphans in {terms.root}: {reason}", hint=hint)

    def _hold(self, judged: Judged) -> Judged:
        """Keeps what versions need that the catalog does not know, as long as nobody vouches that these are no table."""
        terms = self.terms
        owners = self.versions.owners(judged.strange, may_be_gone=terms.inventory is not None)
        own = [path for path, uuid in owners.items() if uuid.lower() == self.context.uuid.lower()]
        judged = self._drop(judged, {path: owners[path] for path in owners.keys() - set(own)})
        if not own or terms.is_alone or not judged.count(Verdict.ORPHAN):
            return judged
        self._progress("versions")
        needs = self.versions.needs(own)
        if not needs.versions:
            return judged
        known = {"users": judged.users, "dropped": judged.dropped, "holders": needs.versions}
        return self.search.hold(needs.paths).model_copy(update=known)

    def _drop(self, judged: Judged, owners: Mapping[str, str]) -> Judged:
        """Takes metadata files of dropped tables. Raises InDoubtError for those of tables that nobody vouches for.

        Files that wait in the quarantine were vouched for when they were recorded.
        """
        if not owners:
            return judged
        terms, waiting = self.terms, {file.path for file in self._recorded() if file.path in owners}
        uuids = {path: uuid.lower() for path, uuid in owners.items()}
        doubtful = {path: uuid for path, uuid in uuids.items() if uuid not in terms.dropped and path not in waiting}
        if doubtful:
            raise left_by_others(terms.root, str(self.context.name), doubtful)
        known = {"users": judged.users, "dropped": tuple(sorted(set(uuids.values())))}
        return self.search.drop(sorted(owners)).model_copy(update=known)

    def _take(self, judged: Judged) -> OrphanRecord:
        terms, now_ms = self.terms, self.context.clock.now_ms()
        waiting = self._waiting()
        seen = Counter[str]()
        new = (file for file in self.search.orphans() if self._is_new(file, waiting, seen))
        chosen, told, taken = islice(new, terms.limit), list[Candidate](), 0
        while some := list(islice(chosen, _BATCH)):
            self.assert_held()
            if not taken and not terms.dry_run:
                self.context.begin(self.run_id, Operation.ORPHANS.value)
            taken += len(some)
            self._progress("record", taken, judged.count(Verdict.ORPHAN) + judged.count(Verdict.DROPPED))
            if terms.dry_run:
                told += some
            else:
                self.context.quarantine.record_candidates(self.context.uuid, self.run_id, some, now_ms)
        limited = taken == terms.limit and next(new, None) is not None
        adopted = (
            0 if terms.dry_run else sum(self.context.store.adopt_trash(uuid, self.context.uuid) for uuid in judged.dropped)
        )
        untaken = Untaken(waiting=seen["waiting"], linked=seen["linked"])
        return self._record(judged, taken, untaken, limited=limited, adopted=adopted, files=tuple(told))

    def _is_new(self, file: Candidate, waiting: set[int], seen: Counter[str]) -> bool:
        """Whether an orphan is to be recorded; counts those that are not."""
        if self._is_linked(file.path):
            seen["linked"] += 1
            return False
        if hash(file.path) in waiting:
            seen["waiting"] += 1
            return False
        return True

    def _is_linked(self, path: str) -> bool:
        """Whether a link leads to the file, so that it lies elsewhere. A listing follows no links; an inventory may."""
        spellings, root = self.terms.spellings, self.terms.spellings.parse(self.terms.root)
        if root.scheme not in ("", "file"):
            return False
        directory = spellings.parse(path).key.rpartition("/")[0]
        return self.real(directory) != self.real(root.key) + directory[len(root.key) :]

    def _waiting(self) -> set[int]:
        """What the quarantine has already and has not moved yet; as numbers, since there may be a million."""
        return {hash(file.path) for file in self._recorded()}

    def _recorded(self) -> Iterable[Quarantined]:
        records = self.context.records
        return records.quarantined(self.context.uuid, fates=[Fate.RECORDED]) if records is not None else ()

    def _unfinished(self) -> Iterable[JournaledRun]:
        return self.context.records.unfinished() if self.context.records is not None else ()

    def _record(
        self, judged: Judged, taken: int, untaken: Untaken, *, limited: bool, adopted: int, files: tuple[Candidate, ...]
    ) -> OrphanRecord:
        terms = self.terms
        return OrphanRecord(
            run_id=self.run_id,
            table=str(self.context.name),
            table_uuid=self.context.uuid,
            operation=Operation.ORPHANS,
            dry_run=terms.dry_run,
            outcome=RunOutcome.DONE if taken else RunOutcome.NOTHING_TO_DO,
            reason=None if taken else nothing_taken(judged, untaken, terms.older_than_seconds),
            not_due=() if taken else next_orphans(judged, untaken, terms.older_than_seconds),
            started_ms=self.started_ms,
            finished_ms=self.context.clock.now_ms(),
            snapshot_before=self.context.writer.head(),
            location=terms.root,
            older_than_seconds=terms.older_than_seconds,
            listed=judged.listed,
            verdicts=judged.files,
            orphan_bytes=judged.orphan_bytes,
            taken=taken,
            already_recorded=untaken.waiting,
            limited=limited,
            files=files,
            warnings=(*judged.warnings, *_adopted(adopted), *self.deleting_rules()),
        )

    def _progress(self, stage: str, done: int = 0, total: int | None = None) -> None:
        self.context.report(stage, done, total)


def _adopted(files: int) -> tuple[str, ...]:
    return (f"{counted(files, 'file')} in the trash of dropped tables: purged with those of this table",) if files else ()
