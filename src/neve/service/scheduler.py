"""One round of the scheduler: observes the fleet, decides what is due, and changes the queue. In the process that has the role.

Called by `serving` every tick. What is decided comes from `scheduling.decide`, which is pure; here is only what it is made from
and what becomes of it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from neve.errors import StateError
from neve.operations.inspect import rates_of
from neve.operations.policy_options import option_names
from neve.policy.document import Document
from neve.policy.effective import PolicyResolver
from neve.policy.model import Policy
from neve.scheduling.day_budget import day_starts
from neve.scheduling.decide import Decided, Facts, decide
from neve.scheduling.job import Job, JobState, Spent
from neve.scheduling.observation import Observation
from neve.scheduling.prediction import Costs
from neve.scheduling.targets import RunTarget
from neve.service.fleet_round import ObservedRound, ObserverBounds
from neve.service.fleet_store import StoredFleet
from neve.service.history_writer import HistoryWriter
from neve.service.notify.digest_source import open_digests
from neve.service.observer import Observer
from neve.service.policies import in_force_since
from neve.state.roles import SCHEDULER, RoleLostError
from neve.table.units import counted

if TYPE_CHECKING:
    from neve.context.connection import Connection
    from neve.state import StateStore
    from neve.state.policies import StoredDocument

log = logging.getLogger(__name__)

_ROLE_TICKS = 4
"""A process that schedules keeps the role for so many ticks, so that a slow round does not lose it."""
_LEAST_ROLE_MS = 60_000
_ABANDONED_CLAIMS = 5
"""A job whose claim ended so many claims ago goes back into the queue: its target or its workers may be gone."""
_PRUNE_MS = 3_600_000
_SIZE_KNOBS = frozenset({"target-file-size", "small-file-threshold"})


class Scheduler:
    """Rounds of one process. Only the process that holds the role does anything in them."""

    def __init__(self, connection: Connection, store: StateStore, *, holder: str) -> None:
        self._connection, self._store, self._holder = connection, store, holder
        self._settings = connection.settings.service
        bounds = ObserverBounds(catalog_requests=self._settings.catalog_requests, inspections=self._settings.inspections)
        fleet = StoredFleet(store.fleet)
        self._observer = Observer(connection, fleet, bounds, small_bytes=self._small_bytes)
        self._documents: tuple[StoredDocument, ...] = ()
        self._resolver = PolicyResolver((), operations=option_names())
        self._troubles: dict[str, str] = {}
        self._history = HistoryWriter(connection, store)
        self._digests = open_digests(store, connection.settings.notifications)
        self.observed: ObservedRound | None = None
        """What the last round observed."""
        self._looked_ms = self._pruned_ms = 0
        self._had_role: bool | None = None
        self._is_released = False

    def tick(self) -> Decided | None:
        """One round; None if another process has the role. Raises StateReplacedError if the store is no longer in its place."""
        self._store.require_in_place()
        if not self._take_role():
            return None
        now_ms = self._now_ms()
        self._read_policies()
        with self._keeping_role():
            observed = self.observed = self._observer.observe(now_ms, self._just_changed(now_ms))
        if not self._take_role():  # this process was paused for so long that another one has it
            return None
        try:
            self._give_back_abandoned()
            decided = decide(self._facts())
            self._store.jobs.enqueue(decided.enqueue, self._now_ms(), scheduler=self._holder)
            self._withdraw(decided)
        except RoleLostError as error:
            log.info("%s", error)
            return None
        self._tell(observed, decided)
        self._digests.write_due(now_ms)
        with self._keeping_role():
            self._history.write_due(now_ms)
        self._prune(now_ms)
        return decided

    def release(self) -> None:
        """Gives the role back for good, so that another process need not wait for its end."""
        self._is_released = True
        self._store.roles.release(SCHEDULER, self._holder)

    def _now_ms(self) -> int:
        """The time by the state store's clock, which all processes share."""
        return self._store.clock_ms(self._connection.clock.now_ms())

    @property
    def _hold_ms(self) -> int:
        return max(_LEAST_ROLE_MS, round(_ROLE_TICKS * self._settings.tick_seconds * 1000))

    def _take_role(self) -> bool:
        if self._is_released:
            return False
        now_ms, hold_ms = self._connection.clock.now_ms(), self._hold_ms
        has_role = self._store.roles.take(SCHEDULER, self._holder, now_ms=now_ms, hold_ms=hold_ms)
        if has_role != self._had_role:
            told = "observes and decides" if has_role else "carries out jobs; another process observes and decides"
            log.info("this process %s", told)
        self._had_role = has_role
        return has_role

    @contextmanager
    def _keeping_role(self) -> Iterator[None]:
        """Renews the role during a block that may take long. Otherwise two processes could observe in turn and never decide."""
        over = threading.Event()

        def keep() -> None:
            while not over.wait(self._hold_ms / 3000):
                with suppress(StateError):  # whether the role was lost is asked after the block
                    now_ms = self._connection.clock.now_ms()
                    self._store.roles.renew(SCHEDULER, self._holder, now_ms=now_ms, hold_ms=self._hold_ms)

        thread = threading.Thread(target=keep, name="neve-role", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _give_back_abandoned(self) -> None:
        now_ms = self._now_ms()
        since_ms = now_ms - round(_ABANDONED_CLAIMS * self._settings.claim_seconds * 1000)
        given = self._store.jobs.give_back_abandoned(since_ms=since_ms, now_ms=now_ms, scheduler=self._holder)
        if given:
            log.warning("%s back in the queue: their workers died, and nobody took them over", counted(given, "job"))

    def _read_policies(self) -> None:
        stored = self._store.policies.documents()
        if stored == self._documents:
            return
        for one in stored:
            if one.trouble is not None:
                log.warning("%s %s is left out: %s", one.kind, one.name, one.trouble)
        self._documents = stored
        self._resolver = PolicyResolver(self._readable(), operations=option_names())
        log.info("%s in force", counted(len(self._readable()), "policy", "policies"))

    def _readable(self) -> list[Document]:
        return [one.document for one in self._documents if one.document is not None]

    def _just_changed(self, now_ms: int) -> set[str]:
        """Tables on which jobs have ended since the last round: they are observed first."""
        from neve.state.job_reading import JobFilter

        since_ms, self._looked_ms = self._looked_ms, now_ms
        if not since_ms:
            return set()
        return {job.table for job in self._store.jobs.jobs(JobFilter(finished_since_ms=since_ms), limit=1_000)}

    def _small_bytes(self, table: Observation) -> int | None:
        """The size below which files are small by the table's policy; None leaves that to its properties."""
        knobs = self._resolver.effective(table.table, table.properties).knobs
        sizes = frozenset((key, knobs[key].value) for key in _SIZE_KNOBS & knobs.keys() if knobs[key].value != "auto")
        return _small_by(sizes) if sizes else None

    def _facts(self) -> Facts:
        now_ms, documents = self._now_ms(), self._readable()
        cost = self._connection.settings.cost
        return Facts(
            now_ms=now_ms,
            observations=StoredFleet(self._store.fleet).observations(),
            policies=self._resolver,
            last_runs=self._store.jobs.last_runs(),
            in_force_ms=in_force_since(self._documents),
            waiting=self._store.jobs.waiting(),
            claimed=self._store.jobs.claimed(),
            spent=self._spent(documents, now_ms),
            targets=self._targets(),
            costs=Costs(rates=rates_of(cost), prices=cost.version),
        )

    def _spent(self, documents: Iterable[Document], now_ms: int) -> Mapping[str, Spent]:
        starts = day_starts(documents, now_ms)
        return {scope: spent.ended for scope, spent in self._store.jobs.spent_since(starts).items()} if starts else {}

    def _targets(self) -> Sequence[RunTarget]:
        return [
            RunTarget(name=name, kind=target.kind, max_concurrency=target.max_concurrency, max_bytes=target.max_bytes)
            for name, target in self._settings.all_targets().items()
        ]

    def _withdraw(self, decided: Decided) -> None:
        waiting = {job.job_id: job for job in self._store.jobs.waiting()} if decided.withdraw else {}
        for one in decided.withdraw:
            moment = self._now_ms()
            if self._store.jobs.withdraw([one.job_id], message=one.reason, now_ms=moment, scheduler=self._holder):
                self._tell_withdrawn(waiting.get(one.job_id), one.reason)

    @staticmethod
    def _tell_withdrawn(job: Job | None, reason: str) -> None:
        if job is not None:
            log.info("%s: %s is no longer wanted: %s", job.table, job.operation, reason)

    def _tell(self, observed: ObservedRound, decided: Decided) -> None:
        for name, reason in observed.troubles.items():
            if self._troubles.get(name) != reason:
                log.warning("%s: %s", name, reason)
        self._troubles = dict(observed.troubles)
        for decision in decided.enqueue:
            log.info("%s: %s is wanted: %s", decision.table, decision.operation, decision.reason)
        counts = self._store.jobs.counts()
        log.debug(
            "%s, %d read, %d inspected, %d wait for their turn, %s; %d jobs wait, %d run; %s",
            counted(observed.tables, "table"),
            observed.read,
            len(observed.inspected),
            observed.waiting,
            counted(sum(observed.requests.values()), "request"),
            counts[JobState.WAITING],
            counts[JobState.CLAIMED],
            ", ".join(f"{number} {code.value}" for code, number in decided.counts.items()) or "nothing is held back",
        )

    def _prune(self, now_ms: int) -> None:
        if 0 <= now_ms - self._pruned_ms < _PRUNE_MS:
            return
        self._pruned_ms = now_ms
        before_ms = now_ms - round(self._settings.keep_jobs_seconds * 1000)
        self._store.jobs.prune(before_ms)
        self._store.notices.prune(before_ms)
        self._store.fleet.prune(before_ms)


@lru_cache(maxsize=1_000)
def _small_by(sizes: frozenset[tuple[str, object]]) -> int | None:
    try:
        return Policy.model_validate(dict(sizes)).small_bytes
    except ValueError:
        return None  # whoever plans reports it
