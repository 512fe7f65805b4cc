"""The whole upkeep of a table: when each step is due by metadata and by our own records, and the operation that does it.

Nothing here starts Spark to find out that there is nothing to do, but for rows past their time, which nobody else can count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from neve.compose.looking import Looking
from neve.compose.place import Place
from neve.core.depth import Depth
from neve.core.maintenance import Operation

if TYPE_CHECKING:
    from neve.compose.operations import Neve
    from neve.core.inspection import Inspection
    from neve.core.maintain import Judgement, MaintainRecord, Step
    from neve.core.model import TableState
    from neve.core.policy import Policy
    from neve.core.quarantine import Fate
    from neve.core.record import RunOutcome
    from neve.maintenance.maintain import Ended, MaintainRequest, Stage
    from neve.ports import Clock, Progress

KIND = Operation.MAINTAIN.value
"""What such a run is called in the state store."""
Due = Callable[[str], "Judgement"]
"""Whether a step of a table is due."""
_SEARCHED = 100
_OWNER = "owner"


class _Record(Protocol):
    """Of any operation."""

    @property
    def run_id(self) -> str: ...
    @property
    def outcome(self) -> RunOutcome: ...
    @property
    def seconds(self) -> float: ...


class Maintaining:
    """Calls operations of `Neve` in the order of the upkeep."""

    def __init__(self, neve: Neve, place: Place, looking: Looking, clock: Clock, *, due: tuple[Due, Due]) -> None:
        """`due` judges the expiry, and then the rows past their time."""
        self._neve, self._place, self._looking, self._clock, self._due = neve, place, looking, clock, due

    def run(
        self, table: str, *, only: Sequence[str], skip: Sequence[str], dry_run: bool, progress: Progress | None
    ) -> MaintainRecord:
        """Carries the upkeep out, or tells what is due; remembered unless there was nothing to do."""
        from neve.core.maintain import left_out
        from neve.maintenance.maintain import MaintainRequest, MaintainTools, maintain

        state = self._looking.reader(table).state()
        request = MaintainRequest(state.name, state.uuid, left_out(self._looking.policy(state), only, skip), dry_run)
        upkeep = _Table(self._neve, self._place, self._looking, self._clock, self._due, str(state.name), progress)
        begun = list[str]()
        tools = MaintainTools(
            stages=upkeep.stages(),
            health=upkeep.health,
            clock=self._clock,
            begin=lambda run_id: begun.append(self._begin(request, run_id)),
            progress=progress,
        )
        record = maintain(request, tools)
        if begun:
            self._end(record)
        return record

    def _begin(self, request: MaintainRequest, run_id: str) -> str:
        """Notes that it began; what an earlier one left open is ended, unless that is at work: this one goes on with it."""
        from neve.flow.lease import is_alive, owner
        from neve.state.rows import Run

        with self._place.store() as store:
            now = self._clock.now_ms()
            for run in store.runs(request.table_uuid, kind=KIND, limit=_SEARCHED):
                if run.finished_ms is None and not is_alive(run.record.get(_OWNER, "")):
                    told = {"reason": f"it was interrupted; run {run_id[:8]} went on with it"}
                    store.finish_run(run.run_id, finished_ms=now, outcome="failed", record=told)
            store.start_run(Run(run_id, request.table_uuid, str(request.table), KIND, now, record={_OWNER: owner()}))
        return run_id

    def _end(self, record: MaintainRecord) -> None:
        with self._place.store() as store:
            document = record.model_dump(mode="json")
            store.finish_run(record.run_id, finished_ms=record.finished_ms, outcome=record.outcome.value, record=document)


class _Table:
    """The steps of one table."""

    def __init__(
        self,
        neve: Neve,
        place: Place,
        looking: Looking,
        clock: Clock,
        due: tuple[Due, Due],
        name: str,
        progress: Progress | None,
    ) -> None:
        self._neve, self._place, self._looking, self._clock = neve, place, looking, clock
        self._name, self._progress = name, progress
        self._expiry_due, self._ttl_due = due

    def stages(self) -> dict[Step, Stage]:
        """Every step."""
        from neve.core.maintain import Step
        from neve.maintenance.maintain import Stage

        neve, name, progress = self._neve, self._name, self._progress
        return {
            Step.RESUME: Stage(self._resume_due, self._resume),
            Step.TAGS: Stage(self._tags_due, lambda: _ended(neve.tags(name, progress=progress))),
            Step.EXPIRE: Stage(lambda: self._expiry_due(name), lambda: _ended(neve.expire(name, progress=progress))),
            Step.TTL: Stage(lambda: self._ttl_due(name), lambda: _ended(neve.ttl(name, enforce=True, progress=progress))),
            Step.COMPACT: Stage(self._compact_due, lambda: _ended(neve.compact(name, progress=progress))),
            Step.CONVERT: self._deletes("convert", "equality-deletes", "the table has no equality deletes"),
            Step.REWRITE: self._deletes("rewrite", "deletes", "deletes do not slow readers down"),
            Step.PRUNE: self._deletes("prune", "deletes", "deletes do not slow readers down"),
            Step.MANIFESTS: Stage(
                lambda: _foretold(neve.manifests(name, dry_run=True)), lambda: _ended(neve.manifests(name, progress=progress))
            ),
            Step.STATS: Stage(self._stats_due, lambda: _ended(neve.stats(name, progress=progress))),
            Step.ORPHANS: Stage(self._orphans_due, lambda: _ended(neve.orphans(name, progress=progress))),
            Step.SETTLE: Stage(self._settle_due, lambda: _ended(neve.settle(name, progress=progress))),
            Step.PURGE: Stage(self._purge_due, lambda: _ended(neve.purge(name, progress=progress))),
        }

    def health(self) -> int | None:
        """The score, None where the table cannot be looked at: an upkeep is not lost for that."""
        from neve.errors import NeveError

        try:
            return self._inspection().health.score
        except NeveError:
            return None

    def _inspection(self) -> Inspection:
        return self._looking.inspect(self._name, depth=Depth.FILES, sample=0, progress=None)

    def _state(self) -> tuple[TableState, Policy]:
        state = self._looking.reader(self._name).state()
        return state, self._looking.policy(state)

    def _resume_due(self) -> Judgement:
        from neve.core.maintain import Judgement

        uuid = self._state()[0].uuid
        found = [run for run in self._neve.unfinished() if run.plan.table_uuid == uuid]
        why = f"run {found[0].run_id[:8]} was interrupted" if found else "no compaction was interrupted"
        return Judgement(due=bool(found), why=why)

    def _resume(self) -> Ended:
        from neve.errors import LeaseHeldError
        from neve.flow.lease import is_alive

        uuid = self._state()[0].uuid
        run = next(run for run in self._neve.unfinished() if run.plan.table_uuid == uuid)
        if is_alive(run.owner):
            raise LeaseHeldError(f"Cannot maintain {self._name}: run {run.run_id[:8]} compacts it right now ({run.owner})")
        return _ended(self._neve.resume(run, progress=self._progress))

    def _tags_due(self) -> Judgement:
        from neve.core.maintain import Judgement

        if self._state()[1].auto_tags is None:
            return Judgement(due=False, why="auto-tags is not set")
        return _foretold(self._neve.tags(self._name, dry_run=True))

    def _compact_due(self) -> Judgement:
        from neve.render.plan import plan_line

        plan = self._neve.plan(self._name)
        return _judged(due=bool(plan.groups), line=plan_line(plan))

    def _deletes(self, operation: str, code: str, otherwise: str) -> Stage:
        from neve.core.maintain import by_finding
        from neve.maintenance.maintain import Stage

        return Stage(
            lambda: by_finding(self._inspection().health.findings, code, otherwise),
            lambda: _ended(self._neve.deletes(self._name, operation, progress=self._progress)),
        )

    def _stats_due(self) -> Judgement:
        from neve.core.maintain import Judgement

        state, policy = self._state()
        if policy.stats_columns is None and not state.statistics and not state.partition_statistics:
            return Judgement(due=False, why="the table has none, and stats-columns is not set")
        return _foretold(self._neve.stats(self._name, dry_run=True))

    def _orphans_due(self) -> Judgement:
        from neve.core.maintain import Judgement, by_interval

        state, policy = self._state()
        if state.properties.get("gc.enabled", "true").lower() == "false":
            return Judgement(due=False, why="the table says gc.enabled=false")
        records = self._place.records()
        runs = records.runs(state.uuid, kind=Operation.ORPHANS.value, limit=_SEARCHED) if records is not None else ()
        last = next((run.finished_ms for run in runs if run.finished_ms is not None), None)
        return by_interval(last, self._clock.now_ms(), policy.orphan_interval_seconds)

    def _settle_due(self) -> Judgement:
        from neve.core.quarantine import Fate

        return self._waited(Fate.RECORDED, lambda policy: policy.quarantine_grace_seconds, "in the quarantine")

    def _purge_due(self) -> Judgement:
        from neve.core.quarantine import Fate

        return self._waited(Fate.TRASHED, lambda policy: policy.trash_keep_seconds, "in the trash")

    def _waited(self, fate: Fate, seconds: Callable[[Policy], float], where: str) -> Judgement:
        """Whether a file has been there for long enough."""
        from neve.core.maintain import Judgement
        from neve.core.units import counted, exact_seconds

        state, policy = self._state()
        records, wait = self._place.records(), seconds(policy)
        before = self._clock.now_ms() - round(wait * 1000)
        there = sum(row.files for row in records.quarantined_runs(state.uuid) if row.fate is fate) if records else 0
        if records is None or not there:
            return Judgement(due=False, why=f"no file is {where}")
        ripe = next(records.quarantined(state.uuid, fates=[fate], changed_before_ms=before), None)
        which = "some" if ripe is not None else "none"
        why = f"{counted(there, 'file')} {where}, {which} for {exact_seconds(wait)}"
        return Judgement(due=ripe is not None, why=why)


def _foretold(record: _Record) -> Judgement:
    """By an operation's own dry run."""
    from neve.core.record import RunOutcome
    from neve.render.records import line_of

    return _judged(due=record.outcome is not RunOutcome.NOTHING_TO_DO, line=line_of(record))


def _judged(*, due: bool, line: str) -> Judgement:
    from neve.core.maintain import Judgement

    return Judgement(due=due, why=line.removeprefix("Nothing to do: "))


def _ended(record: Any) -> Ended:
    from neve.maintenance.maintain import Ended
    from neve.render.records import line_of

    return Ended(record.outcome, line_of(record), record.run_id, record.seconds)
