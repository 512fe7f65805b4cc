"""expire: expires snapshots, first from the metadata alone, then records what only they needed in the quarantine.

What goes is decided by `maintenance.retention` on the newest metadata, for each attempt. No file is deleted or moved, and none
is recorded while a ref is missing, or that any ref still needs.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from neve.commit.lease import leased
from neve.commit.protocol import Change, Retry, Settled, Terms, commit_or_raise
from neve.context.table import TableContext
from neve.errors import (
    BadRequestError,
    CatalogUnreachableError,
    CommitConflictError,
    CommitIncidentError,
    StorageError,
)
from neve.health.not_due import NotDue
from neve.maintenance.expiry import ExpiryRecord, Setting, age_ms, taken_over
from neve.maintenance.last_write import facts_to_keep
from neve.maintenance.quarantine import Candidate, Fate, FateChange
from neve.maintenance.record import Operation
from neve.maintenance.retention import BINDING, Retention, Rules, SnapshotHistory, age_order, next_expiry, retain
from neve.maintenance.steps import Judgement
from neve.operations.reachable import open_reachable
from neve.operations.requests import ExpireRequest
from neve.ports import Quarantine, Reachability
from neve.rewrite.record import RunOutcome
from neve.settings.origins import OriginKind
from neve.settings.table_policy import show
from neve.state.rows import Run
from neve.table.properties import GC_ENABLED, files_may_be_removed
from neve.table.state import MAIN
from neve.table.units import counted, exact_seconds, whole_number

if TYPE_CHECKING:
    from neve.spark.table.bridge import TableBridge

log = logging.getLogger(__name__)

_NAMED = 5
"""Snapshots that a refusal names."""

LISTED = 10_000
"""The most files that a dry run lists; it counts them all."""
METADATA_MAX = "write.metadata.previous-versions-max"
_BEFORE = "metadata_before"
"""The key under which an expiry that has begun stores the metadata that it started from."""
_DECIDING = (
    "snapshot-keep",
    "snapshot-min-count",
    "snapshot-consumers",
    "snapshot-consumer-keep",
    "snapshot-refs",
    "snapshot-limit",
    "metadata-keep",
)


@dataclass(frozen=True)
class ExpiryTerms:
    """A request with the rules of the table's policy."""

    rules: Rules
    settings: tuple[Setting, ...] = ()
    """How the rules came about; for the record."""
    snapshots: tuple[int, ...] = ()
    """Only these, by their ids."""
    metadata_keep: int | None = None
    """As many versions are to stay in the metadata's log; None to leave that as it is."""
    metadata_only: bool = False
    dry_run: bool = False
    after_run: str | None = None
    """A run that has ended and holds the lease: the snapshots that it needed are not in use any more."""


class SnapshotRemoval(Protocol):
    """A table's snapshots and refs where they are committed to."""

    def history(self) -> SnapshotHistory:
        """The newest."""
        ...

    def expire(
        self, history: SnapshotHistory, snapshots: Collection[int], *, refs: Collection[str] = (), properties: Mapping[str, str]
    ) -> bool:
        """Removes snapshots and refs from the metadata, and sets properties, in one commit; touches no file. Returns False if
        the table has changed since `history`. Raises CommitUnknownError, and VerificationError if another ref would go."""
        ...


def run(context: TableContext, request: ExpireRequest) -> ExpiryRecord:
    """Expires snapshots that nothing needs, and records what only they needed."""
    if request.snapshot_ids and (request.older_than is not None or request.keep is not None):
        raise BadRequestError("Cannot expire by id and by age or count at once", hint="Ask for one after the other.")
    terms = terms_of(context, request)
    if request.dry_run:
        return expire(context, *_ports(context, context.bridge), terms)
    context.require_free()
    return expire_and_record(context, terms, terms_again=lambda: terms_of(context.fresh(), request))


def is_due(context: TableContext) -> Judgement:
    """Whether `run` would do anything, by metadata and our own records alone."""
    terms = terms_of(context, ExpireRequest())
    if reasons := reasons_to_expire(context, terms):
        return Judgement(due=True, why="; ".join(reasons))
    return Judgement.unmet(due_next(context, terms))


def due_next(context: TableContext, terms: ExpiryTerms) -> NotDue:
    """When there will be something to expire, by metadata alone."""
    history, pinned = SnapshotHistory.of(context.state), context.pinned(context.uuid, terms.after_run)
    return next_expiry(history, terms.rules, now_ms=context.clock.now_ms(), pinned=pinned)


def terms_of(context: TableContext, request: ExpireRequest, *, flag: str = "--older-than") -> ExpiryTerms:
    """By table property, policy and default; by the request itself before all of them."""
    policy, origins = context.policy_origins()
    rules, values = Rules.of(policy), policy.model_dump(by_alias=True)
    told = {key: Setting(key=key, value=show(key, values[key]), origin=str(origins[key])) for key in _DECIDING}
    if request.older_than is not None:
        now = context.clock.now_ms()
        age = age_ms(request.older_than, now)
        rules, text = replace(rules, keep_ms=age, since_ms=now - age), exact_seconds(age / 1000)
        told["snapshot-keep"] = Setting(key="snapshot-keep", value=text, origin=f"flag {flag}")
    if request.keep is not None:
        if request.keep < 1:
            raise BadRequestError(f"Cannot keep {request.keep} snapshots: a branch keeps at least one")
        rules = replace(rules, min_count=request.keep)
        told["snapshot-min-count"] = Setting(key="snapshot-min-count", value=str(request.keep), origin="flag --keep")
    is_default = origins["metadata-keep"].kind is OriginKind.DEFAULT
    keep = None if is_default or request.snapshot_ids else policy.metadata_keep
    ids = tuple(request.snapshot_ids)
    return ExpiryTerms(rules, tuple(told.values()), ids, keep, request.metadata_only, request.dry_run)


def reasons_to_expire(context: TableContext, terms: ExpiryTerms) -> list[str]:
    """Why an expiry has something to do, by metadata and our own records alone."""
    state, keep, now, pinned = context.state, terms.metadata_keep, context.clock.now_ms(), context.pinned(context.uuid)
    found = retain(SnapshotHistory.of(state), terms.rules, now_ms=now, pinned=pinned)
    reasons = [f"{counted(len(found.expired), 'snapshot')} past their time"] if found.expired else []
    reasons += [f"{', '.join(found.refs)} past the age of their own"] if found.refs else []
    is_kept = keep in (None, whole_number(state.properties.get(METADATA_MAX) or ""))
    reasons += [] if is_kept else [f"{METADATA_MAX} is to be {keep}"]
    reasons += ["an expiry was interrupted"] if context.records is not None and _killed(context) else []
    return reasons


def expire_and_record(
    context: TableContext,
    terms: ExpiryTerms,
    assert_held: Callable[[], None] | None = None,
    terms_again: Callable[[], ExpiryTerms] | None = None,
) -> ExpiryRecord:
    """Expires, stores the record unless there was nothing to do, and ends the records of killed runs."""
    # Once its snapshot has been expired, a compaction that was rolled back looks like others.
    context.withdraw_compactions(context.state)
    record = expire(context, *_ports(context, context.writer), terms, assert_held, terms_again)
    if record.run_id is None:
        return record
    context.end(record)
    if record.outcome is not RunOutcome.FAILED and not terms.metadata_only:  # which writes none of their files down
        for run in _killed(context):
            context.end(taken_over(run.run_id, run.started_ms, by=record))
    return record


def _ports(context: TableContext, bridge: TableBridge) -> tuple[SnapshotRemoval, Reachability]:
    from neve.spark.maintenance.expiry import SparkSnapshotRemoval

    return SparkSnapshotRemoval(bridge), open_reachable(context, bridge)


def _killed(context: TableContext) -> list[Run]:
    """Expiries that began and never ended, oldest first."""
    return [run for run in context.unended(Operation.EXPIRE.value) if _BEFORE in run.record]


def expire(
    context: TableContext,
    past: SnapshotRemoval,
    files: Reachability,
    terms: ExpiryTerms,
    assert_held: Callable[[], None] | None = None,
    terms_again: Callable[[], ExpiryTerms] | None = None,
) -> ExpiryRecord:
    """Carries an expiry out, or shows what it would do. Raises where something could not be read, or a ref is missing.

    `assert_held` is given by a caller that holds the table's lease, and raises if that was lost. `terms_again` is called under
    the lease: since the terms were made Spark has started, and somebody may have changed the retention.
    """
    run = _Expiry(terms, context, past, files, uuid4().hex, context.clock.now_ms())
    if terms.dry_run:
        return run.tell().unrecorded()
    if assert_held is not None:
        run.assert_held = assert_held
        return run.carry_out()
    table = (str(context.name), context.uuid)
    with leased(*table, run.run_id, leases=context.leases, writer=context.writer, clock=context.clock) as lease:
        run.assert_held = lease.assert_held
        run.terms = terms_again() if terms_again is not None else terms
        return run.carry_out()


@dataclass(eq=False)
class _Expiry(Change[Retention, None]):
    terms: ExpiryTerms
    context: TableContext
    past: SnapshotRemoval
    files: Reachability
    run_id: str
    started_ms: int
    newest: tuple[SnapshotHistory, Retention] = field(init=False)
    """The newest history, and what is to be done about it."""
    assert_held: Callable[[], None] = field(default=lambda: None)
    """Raises if another process has taken the table over (`commit.lease`)."""

    def __post_init__(self) -> None:
        super().__init__()

    def look(self) -> tuple[SnapshotHistory, Retention]:
        """The newest history, and what is to be done about it."""
        history, wanted = self.past.history(), self.terms.snapshots
        only = [found for found in wanted if found in history.ids] if wanted else None
        now, pinned = self.context.clock.now_ms(), self.context.pinned(self.context.uuid, self.terms.after_run)
        found = retain(history, self.terms.rules, now_ms=now, pinned=pinned, only=only)
        held = (found.kept[asked] for asked in wanted if asked in found.kept)
        if (bound := next((kept for kept in held if kept.keep in BINDING), None)) is not None:
            raise BadRequestError(f"Cannot expire snapshot {bound.snapshot_id} of {self.context.name}: {bound.why}")
        return history, found

    def first_look(self) -> tuple[SnapshotHistory, Retention]:
        """The same, where it matters that snapshots asked for are there at all."""
        history, found = self.look()
        if unknown := [str(asked) for asked in self.terms.snapshots if asked not in history.ids]:
            newest = sorted(history.snapshots, key=lambda snapshot: snapshot.timestamp_ms)[-_NAMED:]
            raise BadRequestError(
                f"Cannot expire snapshot {', '.join(unknown)} of {self.context.name}: there is no such snapshot",
                hint=f"It has {counted(len(history.snapshots), 'snapshot')}, the newest are "
                f"{', '.join(str(snapshot.snapshot_id) for snapshot in newest)}.",
            )
        return history, found

    def tell(self) -> ExpiryRecord:
        """What would be done, file by file."""
        history, found = self.first_look()
        told = self._told(history, found)
        if told.outcome is RunOutcome.NOTHING_TO_DO or told.metadata_only:
            return told
        tally, listed = _Tally(), list[str]()
        for doomed in tally.counting(self.files.lost_without(found.expired)):
            if len(listed) < LISTED:
                listed.append(doomed.path)
        return told.model_copy(update={**tally.fields(), "listed": tuple(sorted(listed))})

    def carry_out(self) -> ExpiryRecord:
        """Under the lease."""
        start, found = self.first_look()
        told = self._told(start, found)
        killed = [run.record[_BEFORE] for run in _killed(self.context)]
        if not (told.leaves_traces or killed):
            return told.unrecorded()
        self.context.begin(self.run_id, Operation.EXPIRE.value, {_BEFORE: start.metadata_location})
        failure = self._commit(start)
        now = self.past.history()
        told = self._measured(told, start, now)
        if failure is not None and not (told.expired or told.refs_removed):
            return told.model_copy(update={"outcome": RunOutcome.FAILED, "reason": failure})
        if (missing := self._missing(start, now)) is not None:
            return told.model_copy(update={"outcome": RunOutcome.PARTLY_DONE, "reason": missing})
        return told if told.metadata_only else self._write_down(told, [start.metadata_location, *killed])

    def _commit(self, start: SnapshotHistory) -> str | None:
        """Why not everything was expired; None if it was."""
        context, retry = self.context, Retry.of(dict(start.properties))
        terms = Terms(f"expiry of {self.context.name}", retry, context.clock, context.sleep, self.assert_held)
        ended = commit_or_raise(self, terms)
        return None if ended.settled is not None else ended.failure

    def refresh(self) -> None:
        """Plans on the newest history."""
        self.newest = self.look()

    def prepare(self) -> Retention | Settled[None]:
        """What the newest history lets go."""
        history, found = self.newest
        if not (found.expired or found.refs or self._properties(history)):
            return Settled(None)
        self.context.report("expire", 0, len(found.expired))
        return found

    def send(self, found: Retention) -> Settled[None]:
        """Expires by one exchange of metadata, which fails if anything has changed since the history was read."""
        history, _ = self.newest
        properties = self._properties(history) | self._last_writes(history, found)
        if not self.past.expire(history, found.expired, refs=found.refs, properties=properties):
            raise CommitConflictError("another writer changed the table at the same moment")
        return Settled(None)

    def landed(self) -> Settled[None] | None:
        """A lost answer is settled by the history: what is gone cannot go twice."""
        history, _ = self.newest
        gone = {snapshot for plan in self.open for snapshot in plan.expired}
        return Settled(None) if gone and not history.ids & gone else None

    def _properties(self, history: SnapshotHistory) -> dict[str, str]:
        keep = self.terms.metadata_keep
        changes = keep is not None and history.properties.get(METADATA_MAX) != str(keep)
        return {METADATA_MAX: str(keep)} if changes else {}

    def _last_writes(self, history: SnapshotHistory, found: Retention) -> dict[str, str]:
        """What the expired snapshots tell of the last write, which a later `ttl` needs (`ttl-since: last-write`)."""
        return facts_to_keep(history, found.expired, now_ms=self.context.clock.now_ms())

    def _measured(self, told: ExpiryRecord, start: SnapshotHistory, now: SnapshotHistory) -> ExpiryRecord:
        """The record with what is really gone, whatever the answers were."""
        gone = {found for plan in self.open for found in plan.expired} - now.ids
        refs = {name for plan in self.open for name in plan.refs} - {ref.name for ref in now.refs}
        latest = self.open[-1] if self.open else None
        return told.model_copy(
            update={
                "expired": tuple(s.snapshot_id for s in sorted(start.snapshots, key=age_order) if s.snapshot_id in gone),
                "refs_removed": tuple(sorted(refs)),
                "kept": latest.counts if latest is not None else told.kept,
                "metadata_only": self._metadata_only(now),
                "outcome": RunOutcome.DONE,
                "reason": None,
                "finished_ms": self.context.clock.now_ms(),
            }
        )

    def _missing(self, start: SnapshotHistory, now: SnapshotHistory) -> str | None:
        """Why no file may be written down: a ref is gone that was to stay. A catalog that merges changes drops one that was
        moved onto an expired snapshot at the same moment, and all that it names would look as if nothing needed it."""
        planned = {name for plan in self.open for name in plan.refs}
        lost = sorted({ref.name for ref in start.refs} - {ref.name for ref in now.refs} - planned)
        if MAIN in lost:
            raise CommitIncidentError(
                f"Cannot stand by the expiry of {self.context.name}: branch {MAIN} is gone, since somebody moved it meanwhile",
                hint=f"Set it again: the table was at snapshot {start.head} in {start.metadata_location}. No file was touched.",
            )
        return f"{', '.join(lost)} went meanwhile, so files are left for orphan removal" if lost else None

    def _write_down(self, told: ExpiryRecord, since: Sequence[str]) -> ExpiryRecord:
        """What nothing needs any more since any of these versions; the first is that of this run."""
        if self.context.quarantine is None:
            raise BadRequestError(f"Cannot expire snapshots of {self.context.name}: there is no quarantine for their files")
        self.assert_held()
        unread, tally, new = list[str](), _Tally(), 0
        for location in since:
            found = _Tally()
            try:
                # Manifests are read while files are recorded: those of a killed run may have gone as orphans meanwhile.
                doomed, now = self._reported(self.files.lost_since(location), found), self.context.clock.now_ms()
                new += self.context.quarantine.record_candidates(self.context.uuid, self.run_id, doomed, now)
                tally.add(found)
            except (CatalogUnreachableError, StorageError) as error:
                log.warning("what %s named is not looked for: %s", location, error)
                unread.append(f"what {location} named could not be found out, and is left for orphan removal: {error}")
        struck = self._strike_needed(self.context.quarantine)
        again = [f"{counted(struck, 'file')} came into use again meanwhile and stay"] if struck else []
        return told.model_copy(
            update={
                "outcome": RunOutcome.PARTLY_DONE if unread else RunOutcome.DONE,
                **tally.fields(),
                "recorded": new - struck,
                "reason": "; ".join(unread + again) or None,
                "finished_ms": self.context.clock.now_ms(),
            }
        )

    def _reported(self, lost: Iterable[Candidate], tally: _Tally) -> Iterator[Candidate]:
        for number, doomed in enumerate(tally.counting(lost)):
            if number % 1_000 == 0:
                self.context.report("record", number)
            yield doomed

    def _strike_needed(self, quarantine: Quarantine) -> int:
        """Takes off the list again whatever the table needs now; how many these were."""
        uuid = self.context.uuid
        written = (found.path for found in quarantine.quarantined(uuid, fates=[Fate.RECORDED], run_id=self.run_id))
        needed = list(self.files.needed(written))
        if needed:
            log.error("run %s wrote down %s files that are needed, such as %s", self.run_id, len(needed), needed[0])
            quarantine.settle_candidates(uuid, (FateChange(path, Fate.NEEDED) for path in needed), self.context.clock.now_ms())
        return len(needed)

    def _told(self, history: SnapshotHistory, found: Retention) -> ExpiryRecord:
        """The plan as a record."""
        terms, properties = self.terms, self._properties(history)
        idle = not (found.expired or found.refs or properties)
        return ExpiryRecord(
            run_id=self.run_id,
            table=str(self.context.name),
            table_uuid=self.context.uuid,
            operation=Operation.EXPIRE,
            dry_run=terms.dry_run,
            outcome=RunOutcome.NOTHING_TO_DO if idle else RunOutcome.DONE,
            reason="every snapshot is kept" if idle else None,
            not_due=self._next(history) if idle else (),
            started_ms=self.started_ms,
            finished_ms=self.context.clock.now_ms(),
            snapshot_before=history.head,
            snapshots_before=len(history.snapshots),
            expired=found.expired,
            refs_removed=found.refs,
            metadata_keep=terms.metadata_keep if properties else None,
            kept=found.counts,
            settings=terms.settings,
            metadata_only=self._metadata_only(history),
        )

    def _next(self, history: SnapshotHistory) -> tuple[NotDue, ...]:
        """When there is something to expire."""
        now, pinned = self.context.clock.now_ms(), self.context.pinned(self.context.uuid, self.terms.after_run)
        return (next_expiry(history, self.terms.rules, now_ms=now, pinned=pinned),)

    def _metadata_only(self, history: SnapshotHistory) -> str | None:
        if not files_may_be_removed(history.properties):
            return f"the table says gc.enabled={history.properties[GC_ENABLED]}: another catalog may need its files"
        return "as was asked for" if self.terms.metadata_only else None


@dataclass
class _Tally:
    """Counts files as they stream by."""

    kinds: Counter[str] = field(default_factory=Counter)
    size_bytes: int = 0
    without_size: int = 0

    def counting(self, lost: Iterable[Candidate]) -> Iterator[Candidate]:
        for doomed in lost:
            self.kinds[doomed.reason] += 1
            self.size_bytes += doomed.size_bytes or 0
            self.without_size += doomed.size_bytes is None
            yield doomed

    def add(self, other: _Tally) -> None:
        self.kinds += other.kinds
        self.size_bytes += other.size_bytes
        self.without_size += other.without_size

    def fields(self) -> dict[str, object]:
        """As the record has them."""
        return {"files": dict(self.kinds), "size_bytes": self.size_bytes, "files_without_size": self.without_size}
