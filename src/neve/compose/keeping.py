"""Keeping in order what lies around a table's rows: manifests, statistics, tags. The operations, with a place's adapters."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from neve.compose.looking import Looking
from neve.compose.place import Place
from neve.compose.upkeep import keep_record
from neve.errors import BadRequestError

if TYPE_CHECKING:
    from neve.maintenance.manifests import ManifestsRecord
    from neve.maintenance.record import MaintenanceRecord
    from neve.maintenance.statistics import StatisticsRecord
    from neve.maintenance.tags import TagsRecord
    from neve.operations.means import Means
    from neve.policy.auto_tags import Period
    from neve.policy.model import Policy
    from neve.ports import Clock, Progress
    from neve.spark.table.bridge import TableBridge
    from neve.state import StateStore
    from neve.table.state import TableState

Kept = TypeVar("Kept", bound="MaintenanceRecord")


class Keeping:
    """Calls the operations; each is remembered unless there was nothing to do, or it was only told."""

    def __init__(self, place: Place, looking: Looking, clock: Clock) -> None:
        self._place, self._looking, self._clock = place, looking, clock

    def manifests(
        self, table: str, by: Sequence[str], *, limit: int, dry_run: bool, progress: Progress | None
    ) -> ManifestsRecord:
        """Rewrites manifests."""
        from neve.operations.rewrite_manifests import ManifestsRequest, foretell, rewrite_manifests

        if limit < 2:
            raise BadRequestError(f"Cannot rewrite at most {limit} manifests: at least 2 are needed")
        reader = self._looking.reader(table)
        state = reader.state()
        request = ManifestsRequest(self._looking.policy(state), tuple(by), limit)
        if dry_run:
            return foretell(request, reader, self._clock)
        with self._means(table, state, progress) as (means, bridge, store):
            from neve.spark.maintenance.manifests import SparkManifests

            return _kept(store, rewrite_manifests(request, means, SparkManifests(self._place.spark, bridge)))

    def statistics(
        self, table: str, columns: Sequence[str], *, force: bool, dry_run: bool, progress: Progress | None
    ) -> StatisticsRecord:
        """Counts values."""
        from neve.operations.statistics import foretell, keep_statistics

        state = self._looking.reader(table).state()
        policy = self._looking.policy(state)
        if dry_run:
            return foretell(state, policy, columns=columns, force=force, clock=self._clock)
        with self._means(table, state, progress) as (means, bridge, store):
            from neve.spark.maintenance.statistics import SparkStatistics

            writer = SparkStatistics(self._place.spark, bridge)
            return _kept(store, keep_statistics(means, writer, policy, columns=columns, force=force))

    def tags(self, table: str, *, dry_run: bool, progress: Progress | None) -> TagsRecord:
        """Makes and drops tags."""
        from neve.operations.tags import foretell, keep_tags

        state = self._looking.reader(table).state()
        policy = self._looking.policy(state)
        keep = _keep(state, policy)
        if dry_run:
            return foretell(state, keep, prefix=policy.auto_tag_prefix, clock=self._clock)
        with self._means(table, state, progress) as (means, bridge, store):
            from neve.spark.maintenance.tags import SparkTags

            return _kept(store, keep_tags(means, SparkTags(bridge), keep, prefix=policy.auto_tag_prefix))

    @contextmanager
    def _means(
        self, table: str, state: TableState, progress: Progress | None
    ) -> Iterator[tuple[Means, TableBridge, StateStore]]:
        from neve.operations.means import Means
        from neve.spark.table.bridge import TableBridge

        place = self._place
        self._looking.require_free(state)
        place.check_commits(state.name)
        bridge = TableBridge(place.spark, state.name)
        with place.store() as store:
            means = Means(
                table=state.name,
                table_uuid=state.uuid,
                writer=bridge,
                look=lambda: self._looking.reader(table),
                clock=self._clock,
                sleep=time.sleep,
                progress=progress,
                leases=store,
                quarantine=store,
            )
            yield means, bridge, store


def _keep(state: TableState, policy: Policy) -> dict[Period, int]:
    from neve.policy.auto_tags import parse_keep

    if policy.auto_tags is None:
        raise BadRequestError(
            f"Cannot keep tags of {state.name}: auto-tags does not say which",
            hint="Set it in neve.yaml, as the table property neve.auto-tags, or with --auto-tags 'daily 7, weekly 4'.",
        )
    return parse_keep(policy.auto_tags)


def _kept(store: StateStore, record: Kept) -> Kept:
    from neve.rewrite.record import RunOutcome

    if record.outcome is not RunOutcome.NOTHING_TO_DO:
        keep_record(store, record, record.operation.value)
    return record
