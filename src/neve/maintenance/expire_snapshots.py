"""Expires snapshots: first from the metadata alone, then what only they needed is written down for the quarantine.

Called by `compose`. What goes is decided by `core.retention` on the newest metadata, anew for each attempt. No file is deleted
or moved, and none is written down while a ref is missing, or that any ref still needs.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from neve.core.expiry import ExpiryRecord, Setting
from neve.core.maintenance import Operation
from neve.core.model import MAIN, TableName
from neve.core.quarantine import Doomed, Fate
from neve.core.record import RunOutcome
from neve.core.retention import BINDING, History, Retention, Rules, age_order, retain
from neve.core.units import counted
from neve.errors import (
    BadRequestError,
    CatalogUnreachableError,
    CommitIncidentError,
    CommitUnknownError,
    LeaseHeldError,
    StorageError,
)
from neve.flow.commit import Retry, taken_over
from neve.flow.lease import leased
from neve.flow.tools import Sleeper
from neve.ports import Clock, Leases, Past, Progress, Quarantine, Reachability, TableWriter

log = logging.getLogger(__name__)

LISTED = 10_000
"""The most files that a dry run lists; it counts them all."""
METADATA_MAX = "write.metadata.previous-versions-max"


@dataclass(frozen=True)
class ExpiryRequest:
    """What is asked for."""

    table: TableName
    table_uuid: str
    rules: Rules
    settings: tuple[Setting, ...] = ()
    """How the rules came about; for the record."""
    snapshots: tuple[int, ...] = ()
    """Only these, by their ids."""
    metadata_keep: int | None = None
    """As many versions are to stay in the metadata's log; None to leave that as it is."""
    metadata_only: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class ExpiryTools:
    """Made by `compose` for one table."""

    writer: TableWriter
    past: Past
    files: Reachability
    clock: Clock
    sleep: Sleeper
    quarantine: Quarantine | None = None
    leases: Leases | None = None
    progress: Progress | None = None
    pinned: Callable[[], Mapping[int, str]] = dict
    """Snapshots that runs need which were begun and never ended, and why."""
    begun: Callable[[str, str], None] = lambda *_: None
    """Told the run and the metadata that it starts from before the first change, so that a killed run's files are found."""
    interrupted: Callable[[], Sequence[str]] = tuple
    """The metadata that runs started from which were killed, oldest first."""


def expire(request: ExpiryRequest, tools: ExpiryTools) -> ExpiryRecord:
    """Carries an expiry out, or tells what it would do. Raises where something could not be read, or a ref is missing."""
    run = _Expiry(request, tools, uuid4().hex, tools.clock.now_ms())
    if request.dry_run:
        return run.tell()
    table = (str(request.table), request.table_uuid)
    with leased(*table, run.run_id, leases=tools.leases, writer=tools.writer, clock=tools.clock):
        return run.carry_out()


@dataclass
class _Expiry:
    request: ExpiryRequest
    tools: ExpiryTools
    run_id: str
    started_ms: int
    sent: list[Retention] = field(default_factory=list)
    """What landed, or may have."""
    failure: str = ""

    def look(self) -> tuple[History, Retention]:
        """The newest history, and what is to be done about it."""
        history, wanted = self.tools.past.history(), self.request.snapshots
        only = [found for found in wanted if found in history.ids] if wanted else None
        now, pinned = self.tools.clock.now_ms(), self.tools.pinned()
        found = retain(history, self.request.rules, now_ms=now, pinned=pinned, only=only)
        held = (found.kept[asked] for asked in wanted if asked in found.kept)
        if (bound := next((kept for kept in held if kept.keep in BINDING), None)) is not None:
            raise BadRequestError(f"Cannot expire snapshot {bound.snapshot_id} of {self.request.table}: {bound.why}")
        return history, found

    def first_look(self) -> tuple[History, Retention]:
        """The same, where it matters that snapshots asked for are there at all."""
        history, found = self.look()
        if unknown := [str(asked) for asked in self.request.snapshots if asked not in history.ids]:
            raise BadRequestError(
                f"Cannot expire snapshot {', '.join(unknown)} of {self.request.table}: there is no such",
                hint="neve inspect --json lists them, and so does SELECT snapshot_id FROM TABLE.snapshots.",
            )
        return history, found

    def tell(self) -> ExpiryRecord:
        """What would be done, file by file."""
        history, found = self.first_look()
        told = self._told(history, found)
        if told.outcome is RunOutcome.NOTHING_TO_DO or told.metadata_only:
            return told
        kinds, listed = Counter[str](), list[str]()
        for doomed in _counted(self.tools.files.lost_without(found.expired), kinds):
            if len(listed) < LISTED:
                listed.append(doomed.path)
        return told.model_copy(update={"files": dict(kinds), "listed": tuple(sorted(listed))})

    def carry_out(self) -> ExpiryRecord:
        """Under the lease."""
        start, found = self.first_look()
        told = self._told(start, found)
        killed = list(self.tools.interrupted())
        if told.outcome is RunOutcome.NOTHING_TO_DO and not killed:
            return told
        self.tools.begun(self.run_id, start.metadata_location)
        ended = self._commit(start)
        now = self.tools.past.history()
        told = self._measured(told, start, now)
        if not ended and not (told.expired or told.refs_removed):
            return told.model_copy(update={"outcome": RunOutcome.FAILED, "reason": self.failure})
        if (missing := self._missing(start, now)) is not None:
            return told.model_copy(update={"outcome": RunOutcome.PARTLY_DONE, "reason": missing})
        return told if told.metadata_only else self._write_down(told, [start.metadata_location, *killed])

    def _commit(self, start: History) -> bool:
        """Whether there is nothing more to be tried."""
        retry = Retry.of(dict(start.properties))
        for attempt in range(retry.attempts):
            if attempt:
                self.tools.sleep(retry.wait_seconds(attempt - 1, random.random()))  # noqa: S311
            try:
                if self._attempt():
                    return True
            except (CatalogUnreachableError, StorageError) as error:
                self.failure = str(error)
            log.warning("expiry of %s, attempt %s: %s", self.request.table, attempt + 1, self.failure)
        return False

    def _attempt(self) -> bool:
        """Whether it landed, or nothing is left to do. A lost answer is settled by looking: what is gone cannot go twice."""
        history, found = self.look()
        if self.sent and not history.ids & {gone for plan in self.sent for gone in plan.expired}:
            return True
        properties = self._properties(history)
        if not (found.expired or found.refs or properties):
            return True
        if (other := taken_over(self.tools.writer, self.run_id, self.tools.clock)) is not None:
            raise LeaseHeldError(f"Cannot expire snapshots of {self.request.table}: {other}", hint="Try again later.")
        if self.tools.progress:
            self.tools.progress("expire", 0, len(found.expired))
        try:
            if not self.tools.past.expire(history, found.expired, refs=found.refs, properties=properties):
                self.failure = "others changed the table at the same moment, each time"
                return False
        except CommitUnknownError as error:
            self.failure = str(error)
            self.sent.append(found)
            return False
        self.sent.append(found)
        return True

    def _properties(self, history: History) -> dict[str, str]:
        keep = self.request.metadata_keep
        changes = keep is not None and history.properties.get(METADATA_MAX) != str(keep)
        return {METADATA_MAX: str(keep)} if changes else {}

    def _measured(self, told: ExpiryRecord, start: History, now: History) -> ExpiryRecord:
        """The record with what is really gone, whatever the answers were."""
        gone = {found for plan in self.sent for found in plan.expired} - now.ids
        refs = {name for plan in self.sent for name in plan.refs} - {ref.name for ref in now.refs}
        latest = self.sent[-1] if self.sent else None
        return told.model_copy(
            update={
                "expired": tuple(s.snapshot_id for s in sorted(start.snapshots, key=age_order) if s.snapshot_id in gone),
                "refs_removed": tuple(sorted(refs)),
                "kept": latest.counts if latest is not None else told.kept,
                "metadata_only": self._metadata_only(now),
                "outcome": RunOutcome.DONE,
                "reason": None,
                "finished_ms": self.tools.clock.now_ms(),
            }
        )

    def _missing(self, start: History, now: History) -> str | None:
        """Why no file may be written down: a ref is gone that was to stay. A catalog that merges changes drops one that was
        moved onto an expired snapshot at the same moment, and all that it names would look as if nothing needed it."""
        planned = {name for plan in self.sent for name in plan.refs}
        lost = sorted({ref.name for ref in start.refs} - {ref.name for ref in now.refs} - planned)
        if MAIN in lost:
            raise CommitIncidentError(
                f"Cannot stand by the expiry of {self.request.table}: branch {MAIN} is gone, since somebody moved it meanwhile",
                hint=f"Set it again: the table was at snapshot {start.head} in {start.metadata_location}. No file was touched.",
            )
        return f"{', '.join(lost)} went meanwhile, so files are left for orphan removal" if lost else None

    def _write_down(self, told: ExpiryRecord, since: Sequence[str]) -> ExpiryRecord:
        """What nothing needs any more since any of these versions; the first is that of this run."""
        if self.tools.quarantine is None:
            raise BadRequestError(f"Cannot expire snapshots of {self.request.table}: there is no quarantine for their files")
        unread, kinds, new = list[str](), Counter[str](), 0
        for location in since:
            found = Counter[str]()
            try:
                # Manifests are read while files are recorded: those of a killed run may have gone as orphans meanwhile.
                doomed, now = self._reported(self.tools.files.lost_since(location), found), self.tools.clock.now_ms()
                new += self.tools.quarantine.record_doomed(self.request.table_uuid, self.run_id, doomed, now)
                kinds += found
            except (CatalogUnreachableError, StorageError) as error:
                log.warning("what %s named is not looked for: %s", location, error)
                unread.append(f"what {location} named could not be found out, and is left for orphan removal: {error}")
        struck = self._strike_needed(self.tools.quarantine)
        again = [f"{counted(struck, 'file')} came into use again meanwhile and stay"] if struck else []
        return told.model_copy(
            update={
                "outcome": RunOutcome.PARTLY_DONE if unread else RunOutcome.DONE,
                "files": dict(kinds),
                "recorded": new - struck,
                "reason": "; ".join(unread + again) or None,
                "finished_ms": self.tools.clock.now_ms(),
            }
        )

    def _reported(self, lost: Iterable[Doomed], kinds: Counter[str]) -> Iterator[Doomed]:
        for number, doomed in enumerate(_counted(lost, kinds)):
            if self.tools.progress and number % 1_000 == 0:
                self.tools.progress("record", number, None)
            yield doomed

    def _strike_needed(self, quarantine: Quarantine) -> int:
        """Takes off the list again whatever the table needs now; how many these were."""
        uuid = self.request.table_uuid
        written = (found.path for found in quarantine.quarantined(uuid, fates=[Fate.RECORDED], run_id=self.run_id))
        needed = list(self.tools.files.needed(written))
        if needed:
            log.error("run %s wrote down %s files that are needed, such as %s", self.run_id, len(needed), needed[0])
            quarantine.settle_doomed(uuid, ((path, Fate.NEEDED, None) for path in needed), self.tools.clock.now_ms())
        return len(needed)

    def _told(self, history: History, found: Retention) -> ExpiryRecord:
        """The plan as a record."""
        request, properties = self.request, self._properties(history)
        idle = not (found.expired or found.refs or properties)
        return ExpiryRecord(
            run_id=self.run_id,
            table=str(request.table),
            table_uuid=request.table_uuid,
            operation=Operation.EXPIRE,
            dry_run=request.dry_run,
            outcome=RunOutcome.NOTHING_TO_DO if idle else RunOutcome.DONE,
            reason="every snapshot is kept" if idle else None,
            started_ms=self.started_ms,
            finished_ms=self.tools.clock.now_ms(),
            snapshot_before=history.head,
            snapshots_before=len(history.snapshots),
            expired=found.expired,
            refs_removed=found.refs,
            metadata_keep=request.metadata_keep if properties else None,
            kept=found.counts,
            settings=request.settings,
            metadata_only=self._metadata_only(history),
        )

    def _metadata_only(self, history: History) -> str | None:
        if history.properties.get("gc.enabled", "true").lower() == "false":
            return "the table says gc.enabled=false: its files may be needed where this catalog cannot see it"
        return "as was asked for" if self.request.metadata_only else None


def _counted(lost: Iterable[Doomed], kinds: Counter[str]) -> Iterator[Doomed]:
    for doomed in lost:
        kinds[doomed.reason] += 1
        yield doomed
