"""remove_orphans: finds files at a table's location that no snapshot needs, and hands them to the quarantine.

Called by `compose`. The order matters: everything is listed first, the table is loaded anew after that, and only then compared,
so that whatever was committed before the comparison is known. Any doubt whose files these are ends the run with nothing done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from uuid import uuid4

from neve.core.journal import JournaledRun
from neve.core.locations import Spellings
from neve.core.maintenance import Operation
from neve.core.model import TableName
from neve.core.orphans import Judged, Neighbour, OrphanRecord, Rules, Verdict, overlapping, running_files
from neve.core.quarantine import Doomed, Fate
from neve.core.record import RunOutcome
from neve.errors import BadRequestError, InDoubtError
from neve.flow.lease import leased
from neve.ports import Clock, Leases, OrphanSearch, Progress, Quarantine, TableWriter

log = logging.getLogger(__name__)

GC_ENABLED = "gc.enabled"
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
    is_alone: bool = False
    """Somebody vouches that no other table is there, nor this one in another catalog, where ours could not tell."""
    dry_run: bool = False


@dataclass(frozen=True)
class OrphanTools:
    """What a search works with. `neighbours` are the other tables of the catalog."""

    writer: TableWriter
    search: OrphanSearch
    neighbours: Callable[[], Iterable[Neighbour]]
    unfinished: Callable[[], Iterable[JournaledRun]]
    clock: Clock
    begin: Callable[[str], None] = lambda _: None
    """Told the run's id before anything is recorded under it."""
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
    ):
        return run.carry_out()


@dataclass(frozen=True)
class _Search:
    request: OrphanRequest
    tools: OrphanTools
    run_id: str
    started_ms: int

    def carry_out(self) -> OrphanRecord:
        """The stages, one after another."""
        request, tools = self.request, self.tools
        self._refuse_kept_tables()
        self._look_around()
        self._progress("list")
        tools.search.list_files(request.root, self._rules(), request.inventory)
        tools.writer.refresh()
        self._progress("compare")
        judged = tools.search.judge()
        self._refuse_doubt(judged)
        judged = self._hold(judged)
        log.info("%s: run %s compared %s files at %s", request.table, self.run_id, judged.listed, request.root)
        return self._take(judged)

    def _refuse_kept_tables(self) -> None:
        if self.tools.writer.properties().get(GC_ENABLED, "true").lower() == "false":
            raise BadRequestError(
                f"Cannot look for orphans of {self.request.table}: its property {GC_ENABLED} is false",
                hint="Others may need files that this catalog does not know of, such as branches in Nessie.",
            )

    def _look_around(self) -> None:
        """Asks the catalog for tables inside or around the place; one whose place nobody knows may be anywhere."""
        request = self.request
        self._progress("neighbours")
        neighbours = list(self.tools.neighbours())
        root = request.spellings.parse(request.root)
        if overlap := overlapping(root, neighbours, request.spellings):
            name, place = next(iter(overlap.items()))
            raise InDoubtError(
                f"Cannot look for orphans in {request.root}: {name} has files in {place}",
                hint="The files of one would be orphans to the other. Give each table a location of its own.",
            )
        unknown = [neighbour for neighbour in neighbours if neighbour.trouble is not None]
        if unknown and not request.is_alone:
            raise InDoubtError(
                f"Cannot look for orphans in {request.root}: nobody knows where {unknown[0].name} has its files"
                f" ({unknown[0].trouble})",
                hint="If no other table has files there, add --i-know-that-no-other-table-is-here.",
            )

    def _rules(self) -> Rules:
        """The age counts from before the listing, whenever a file was listed."""
        request = self.request
        return Rules(
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
        for path, uuid in owners.items():
            if uuid.lower() != request.table_uuid.lower():
                raise InDoubtError(
                    f"Cannot tell orphans in {request.root}: {path} is metadata of another table ({uuid})",
                    hint="Files of that table are here too. Give each table a location of its own; if it was dropped, "
                    "remove its files first.",
                )
        if not owners or request.is_alone or not judged.count(Verdict.ORPHAN):
            return judged
        self._progress("versions")
        return search.hold(owners)

    def _take(self, judged: Judged) -> OrphanRecord:
        request, quarantine, now_ms = self.request, self.tools.quarantine, self.tools.clock.now_ms()
        waiting = self._waiting()
        new = (file for file in self.tools.search.orphans() if hash(file.path) not in waiting)
        chosen, told, taken = islice(new, request.limit), list[Doomed](), 0
        while some := list(islice(chosen, _BATCH)):
            if not taken and not request.dry_run:
                self.tools.begin(self.run_id)
            taken += len(some)
            self._progress("record", taken, judged.count(Verdict.ORPHAN))
            if request.dry_run:
                told += some
            elif quarantine is not None:
                quarantine.record_doomed(request.table_uuid, self.run_id, some, now_ms)
        limited = taken == request.limit and next(new, None) is not None
        return self._record(judged, taken, limited=limited, files=tuple(told))

    def _waiting(self) -> set[int]:
        """What the quarantine has already and has not moved yet; as numbers, since there may be a million."""
        quarantine, uuid = self.tools.quarantine, self.request.table_uuid
        if quarantine is None:
            return set()
        return {hash(file.path) for file in quarantine.quarantined(uuid, fates=[Fate.RECORDED])}

    def _record(self, judged: Judged, taken: int, *, limited: bool, files: tuple[Doomed, ...]) -> OrphanRecord:
        request, orphans = self.request, judged.count(Verdict.ORPHAN)
        reason = None
        if not taken:
            reason = f"all {orphans:,} orphans wait in the quarantine already" if orphans else "every file is accounted for"
        return OrphanRecord(
            run_id=self.run_id,
            table=str(request.table),
            table_uuid=request.table_uuid,
            operation=Operation.ORPHANS,
            dry_run=request.dry_run,
            outcome=RunOutcome.DONE if taken else RunOutcome.NOTHING_TO_DO,
            reason=reason,
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
            warnings=(*judged.warnings, *self.tools.deleting_rules()),
        )

    def _progress(self, stage: str, done: int = 0, total: int | None = None) -> None:
        if self.tools.progress:
            self.tools.progress(stage, done, total)
