"""Keeps the service's history as Iceberg tables: appends what has ended since the last time, and has them maintained.

Called by `scheduler`, in the process that has the role. The tables can be read by every engine, and outlast the state store,
which forgets. A policy of their own is applied when they are made; it may be changed like any other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from neve.errors import CommitConflictError, NeveError
from neve.policy.document import PolicyDocument
from neve.scheduling.history_tables import HISTORY_TABLES, HistoryTable, Kind
from neve.service.policies import HISTORY_POLICY
from neve.table.units import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from neve.catalogs.appended_table import AppendedTable
    from neve.context.connection import Connection
    from neve.state import StateStore

log = logging.getLogger(__name__)

MONTH = "month"
"""The column by which the tables are partitioned. Writing a partition transform would need one more library."""
_BATCH = 20_000
_LATE_MS = 2 * 86_400_000
"""Rows whose time is so much before the newest may still come: other hosts have other clocks, and runs end late."""
_TRIES = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_10000_MS = 253_402_300_800_000
_PROPERTIES: Mapping[str, str] = {
    "comment": "Written by `neve serve`; docs/guide/history.md describes the columns.",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class HistoryWriter:
    """Writes the tables of one connection's namespace, if the settings name one."""

    def __init__(self, connection: Connection, store: StateStore) -> None:
        self._connection, self._store = connection, store
        self._settings = connection.settings.service
        self._next_ms = 0
        self._trouble: str | None = None

    def write_due(self, now_ms: int) -> None:
        """Appends what has ended, if it is time. What fails is logged once, and tried again the next time."""
        every_ms = round(self._settings.history_every_seconds * 1000)
        if self._settings.history_namespace is None or not (now_ms >= self._next_ms or self._next_ms - now_ms > every_ms):
            return
        self._next_ms = now_ms + every_ms
        try:
            self._write_all(now_ms)
            self._trouble = None
        except Exception as error:  # the rest of the round does not depend on it
            if str(error) != self._trouble:
                log.warning("the history is not written: %s", error, exc_info=not isinstance(error, NeveError))
            self._trouble = str(error)

    def _write_all(self, now_ms: int) -> None:
        for described in HISTORY_TABLES:
            for attempt in range(_TRIES):
                try:
                    self._write(described, now_ms)
                    break
                except CommitConflictError:  # its own maintenance
                    if attempt + 1 == _TRIES:
                        raise
        self._apply_policy(now_ms)

    def _write(self, described: HistoryTable, now_ms: int) -> None:
        from neve.catalogs.appended_table import AppendedTable

        name = self._connection.name(f"{self._settings.history_namespace}.{described.name}")
        catalog = self._connection.catalog(name.catalog)
        table = AppendedTable(catalog, name, schema_of(described), moment=described.moment, partition=MONTH)
        table.open(_PROPERTIES)
        added = sum(self._appended(described, table, now_ms))
        if added:
            log.info("%s appended to %s", counted(added, "row"), name)

    def _appended(self, described: HistoryTable, table: AppendedTable, now_ms: int) -> Iterator[int]:
        since_ms = max(0, table.until_ms - _LATE_MS)
        columns = [column for column in described.columns if described.source(column) in described.key]
        known = table.keys_since(columns, since_ms)
        view_columns = [described.source(column) for column in described.columns]
        moment = described.source(described.moment)
        found = self._store.view_rows(
            described.view, view_columns, moment=moment, key=described.key, since_ms=since_ms, batch=_BATCH
        )
        for batch in found:
            rows = [_converted(described, row) for row in batch if 0 <= row[moment] < _YEAR_10000_MS]
            new = [row for row in rows if tuple(row[column] for column in columns) not in known]
            if new:
                until_ms = max(table.until_ms, min(now_ms, batch[-1][moment]))
                table.append(_arrow(described, new), until_ms=until_ms)
                yield len(new)

    def _apply_policy(self, now_ms: int) -> None:
        from neve.state.policies import PolicyChange

        if self._store.policies.history("policy", HISTORY_POLICY, limit=1):
            return  # once: it may have been changed or removed since
        first = self._connection.name(f"{self._settings.history_namespace}.{HISTORY_TABLES[0].name}")
        pattern = ".".join((first.catalog, *first.namespace, "*"))
        document = PolicyDocument.model_validate(
            {
                "name": HISTORY_POLICY,
                "description": "Keeps the tables of the service's own history healthy.",
                "tables": pattern,
                "operations": ["compact", "expire", "manifests"],
                "triggers": {"small-files": 24, "at-most-every": "12 h"},
            }
        )
        change = PolicyChange(kind="policy", name=HISTORY_POLICY, document=document)
        self._store.policies.apply([change], by="the service", now_ms=now_ms, source="service.history-namespace")
        log.info("policy %s is in force for %s", HISTORY_POLICY, pattern)


def schema_of(described: HistoryTable) -> pa.Schema:
    """The columns of a table. None of them is required, so that a later release can leave one out."""
    import pyarrow as pa

    types: dict[Kind, pa.DataType] = {
        "text": pa.string(),
        "whole": pa.int64(),
        "number": pa.float64(),
        "flag": pa.bool_(),
        "moment": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([(column, types[kind]) for column, kind in described.columns.items()] + [(MONTH, pa.string())])


def _arrow(described: HistoryTable, rows: Collection[Mapping[str, Any]]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(list(rows), schema=schema_of(described))


def _moment(ms: Any) -> datetime | None:
    return _EPOCH + timedelta(milliseconds=int(ms)) if 0 <= ms < _YEAR_10000_MS else None


_CONVERTED: Mapping[Kind, Callable[[Any], Any]] = {
    "text": str,
    "whole": int,
    "number": float,
    "flag": bool,
    "moment": _moment,
}


def _converted(described: HistoryTable, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the view as one of the table. A value that an odd record left behind is left out."""
    found: dict[str, Any] = {}
    for column, kind in described.columns.items():
        value = row[described.source(column)]
        try:
            found[column] = None if value is None else _CONVERTED[kind](value)
        except (TypeError, ValueError, OverflowError):
            found[column] = None
    return found | {MONTH: f"{found[described.moment]:%Y-%m}"}
