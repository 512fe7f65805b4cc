"""Reads the manifests of the tables whose summaries suggest work, a few each round. Called by `observer`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from neve.errors import NeveError
from neve.scheduling.observation import Inspected, Observation
from neve.scheduling.rotation import Turn, rotation
from neve.scheduling.worth_inspecting import worth_inspecting
from neve.service.fleet_round import FleetRound, ObserverBounds
from neve.service.request_budget import Retries
from neve.service.table_reading import OUTAGE_AFTER
from neve.table.units import counted

log = logging.getLogger(__name__)


class Inspections:
    """Chooses tables to inspect and inspects them. A table that cannot be inspected is tried again later."""

    def __init__(
        self,
        inspect: Callable[[Observation, int], Inspected | None],
        small_bytes: Callable[[Observation], int | None],
        bounds: ObserverBounds,
    ) -> None:
        self._inspect, self._small_bytes, self._bounds = inspect, small_bytes, bounds
        self._retries = Retries()
        self._tried_ms: dict[str, int] = {}
        """Tables whose last inspection failed: that was their turn."""
        self._outages = 0

    def carry_out(self, fleet: FleetRound) -> list[Observation]:
        """Returns the observations of the tables that were inspected, with what was found."""
        self._forget(self._tried_ms.keys() - fleet.known.keys())
        reasons = {name: reason for name, table in fleet.known.items() if (reason := self._reason(name, table, fleet))}
        turns = (self._turn(name, fleet) for name in reasons)
        chosen = rotation(turns, fleet.now_ms, self._bounds.inspections)
        found, self._outages = list[Observation](), 0
        for name in chosen:
            if fleet.report.manifest_requests >= self._bounds.manifest_requests or self._outages >= OUTAGE_AFTER:
                break
            if not fleet.may_ask(name):
                continue
            if (inspected := self._inspected(fleet.known[name], fleet)) is not None:
                fleet.report.inspected[name] = reasons[name]
                fleet.report.manifest_requests += inspected.requests
                _tell_health(fleet.known[name], inspected)
                fleet.known[name] = fleet.known[name].model_copy(update={"inspected": inspected})
                found.append(fleet.known[name])
        fleet.report.waiting += len(reasons) - len(found)
        return found

    def _reason(self, name: str, table: Observation, fleet: FleetRound) -> str | None:
        if not fleet.may_ask(name) or not self._retries.may_try(name, fleet.now_ms, table.metadata_location):
            return None
        return worth_inspecting(table, fleet.now_ms, small_bytes=self._small_bytes(table))

    def _turn(self, name: str, fleet: FleetRound) -> Turn:
        inspected = fleet.known[name].inspected
        last_ms = self._tried_ms.get(name, None if inspected is None else inspected.inspected_ms)
        # Half of the turns are for urgent tables, so a single one is for all.
        return Turn(name, last_ms, urgent=self._bounds.inspections > 1 and fleet.is_urgent(name, last_ms))

    def _forget(self, names: Iterable[str]) -> None:
        for name in list(names):
            del self._tried_ms[name]
            self._retries.succeeded(name)

    def _failed(self, table: Observation, fleet: FleetRound) -> None:
        self._tried_ms[table.table] = fleet.now_ms
        self._retries.failed(table.table, fleet.now_ms, table.metadata_location)

    def _inspected(self, table: Observation, fleet: FleetRound) -> Inspected | None:
        try:
            found = self._inspect(table, fleet.now_ms)
        except Exception as error:  # a table never stops others
            if not isinstance(error, NeveError):
                log.exception("%s cannot be inspected", table.table)
            self._outages = self._outages + 1 if isinstance(error, NeveError) and error.retryable else 0
            self._failed(table, fleet)
            fleet.note(table.table, error)
            return None
        self._outages = 0
        if found is None:  # its name is another table's by now; it is observed before it is tried again
            self._failed(table, fleet)
        else:
            self._forget({table.table} & self._tried_ms.keys())
        return found


def _tell_health(table: Observation, now: Inspected) -> None:
    before = None if table.inspected is None else table.inspected.health
    if before != now.health:
        change = f"health {now.health}" if before is None else f"health {before} → {now.health}"
        files = f"{now.small_files:,} of {counted(now.data_files, 'file')} small"
        deletes = f", {counted(now.delete_files, 'delete file')}" if now.delete_files else ""
        log.info("%s: %s of 100 (%s%s)", table.table, change, files, deletes)
