"""Reads the metadata of many tables with a few threads, and turns each document into an observation as soon as it is read.

Called by `observer`. A table that cannot be read never stops others; a catalog or storage that is down is not asked for every
table.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from neve.catalogs.fleet_catalog import FleetCatalog, ListedTable
from neve.errors import CorruptMetadataError, NeveError
from neve.scheduling.observation import Observation
from neve.scheduling.table_metadata import observation_of, uuid_of

log = logging.getLogger(__name__)

OUTAGE_AFTER = 5
"""So many failures in a row that may end by themselves count as an outage: no more tables are read in this round."""

_UUID_LENGTH = 64
"""The most that the state store has room for."""

Before = Callable[[str, str | None], Observation | None]
"""Returns the last observation of a table by its full name and its uuid; the uuid is None where the metadata has none."""
Outcome = tuple[ListedTable, Observation | NeveError]


def observe_table(catalog: FleetCatalog, table: ListedTable, before: Before, now_ms: int) -> Observation | NeveError:
    """Returns the table at its current metadata file, or why that cannot be read."""
    name = table.full_name
    try:
        document, location = catalog.document(table)
        known = before(name, uuid_of(document, location) if document.get("table-uuid") is not None else None)
        return _storable(observation_of(name, document, location, before=known, now_ms=now_ms))
    except NeveError as error:
        return error
    except Exception as error:  # a table never stops others
        log.exception("%s cannot be observed", name)
        return NeveError(f"Cannot observe table {name}: {' '.join(f'{type(error).__name__}: {error}'.split())[:300]}")


def _storable(seen: Observation) -> Observation:
    """One table's odd metadata must not fail the batch that it would be stored with."""
    if len(seen.uuid) > _UUID_LENGTH or "\0" in seen.uuid or "\0" in seen.metadata_location:
        raise CorruptMetadataError(f"Cannot observe table {seen.table}: its uuid or the name of its metadata file is invalid")
    return seen


def read_tables(
    tables: Iterable[ListedTable], read: Callable[[ListedTable], Observation | NeveError], *, threads: int
) -> Iterator[Outcome]:
    """Yields each table with its observation, in order, and ends early in an outage. Only a few are under way at a time."""
    failures = 0
    for table, result in _ahead(tables, read, threads):
        yield table, result
        failures = failures + 1 if isinstance(result, NeveError) and result.retryable else 0
        if failures >= OUTAGE_AFTER:
            return


def _ahead(
    tables: Iterable[ListedTable], read: Callable[[ListedTable], Observation | NeveError], threads: int
) -> Iterator[Outcome]:
    if threads < 2:
        yield from ((table, read(table)) for table in tables)
        return
    waiting: deque[tuple[ListedTable, Future[Observation | NeveError]]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="observer") as executor:
        try:
            for table in tables:
                waiting.append((table, executor.submit(read, table)))
                if len(waiting) > 2 * threads:
                    done, future = waiting.popleft()
                    yield done, future.result()
            while waiting:
                done, future = waiting.popleft()
                yield done, future.result()
        finally:
            for _, future in waiting:
                future.cancel()
