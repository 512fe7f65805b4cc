"""The state store's fleet as the observer needs it. Called by `observer`, in the process that has the scheduler's role."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from neve.scheduling.observation import Observation

if TYPE_CHECKING:
    from neve.state.fleet import FleetStore


class StoredFleet:
    """Implements `fleet_round.ObservedTables`."""

    def __init__(self, store: FleetStore) -> None:
        self._store = store

    def observations(self) -> Mapping[str, Observation]:
        """The last observation of each table, by full name."""
        return {entry.table: entry.observation for entry in self._store.entries() if entry.observation is not None}

    def known(self) -> tuple[dict[str, Observation], dict[str, str]]:
        """The last observation of each table, and why a table, namespace or catalog could not be observed, by full name."""
        entries = self._store.entries()
        observations = {entry.table: entry.observation for entry in entries if entry.observation is not None}
        return observations, {entry.table: entry.trouble for entry in entries if entry.trouble is not None}

    def vanished(self) -> Mapping[str, Observation]:
        """The last observations of tables that vanished, by uuid: of several for one table the newest."""
        entries = [entry for entry in self._store.entries(vanished=True) if entry.vanished_ms is not None]
        entries.sort(key=lambda entry: entry.vanished_ms or 0)
        return {one.uuid: one for entry in entries if (one := entry.observation) is not None}

    def keep(
        self,
        observations: Sequence[Observation],
        troubles: Mapping[str, str | None],
        vanished: Collection[str],
        now_ms: int,
    ) -> None:
        """Stores one batch of a round, and what inspections found as history."""
        self._store.record(observations)
        self._store.add_health(observations)
        self._store.record_trouble({name: reason for name, reason in troubles.items() if reason is not None}, now_ms)
        if ended := [name for name, reason in troubles.items() if reason is None]:
            self._store.end_trouble(ended)
        if vanished:
            self._store.vanish(vanished, now_ms)
