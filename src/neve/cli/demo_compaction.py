"""The second half of the demo: some of its tables are compacted, with the same queries before and after.

Called by `neve demo`, in the Spark session that wrote the samples. Tables that a former demo has compacted are left alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from neve.cli.call import Call

if TYPE_CHECKING:
    from neve.api import Neve
    from neve.render.demo import DemoCompaction

QUERIES = {
    "stream": {
        "events and value by type": "SELECT event_type, count(*), sum(CAST(event_value AS decimal(12, 2))) FROM {} "
        "GROUP BY event_type ORDER BY event_type",
        "sessions on mobiles": "SELECT count(DISTINCT session_id), max(event_timestamp) FROM {} WHERE device_type = 'mobile'",
    },
    "cdc": {
        "accounts and balance by region": "SELECT region, count(*), sum(balance), max(version) FROM {} "
        "GROUP BY region ORDER BY region",
    },
}
"""By sample: what is asked before and after. Sums are exact: adding doubles in another order may differ in the last bit."""


def compact_some(call: Call, neve: Neve, namespace: str, names: frozenset[str]) -> Iterator[DemoCompaction]:
    """Compacts those of the samples that have queries and need it."""
    from neve.render.demo import DemoCompaction, Query

    for name, queries in QUERIES.items():
        planned = neve.plan(f"{namespace}.{name}") if name in names else None
        if planned is None or not len(planned.groups):
            continue
        table = str(planned.table)
        call.tell(f"Compacting {table} ...")
        before = {query: _timed(neve.spark, sql.format(table)) for query, sql in queries.items()}
        record = neve.compact(table)
        neve.spark.sql(f"REFRESH TABLE {table}")
        after = {query: _timed(neve.spark, sql.format(table)) for query, sql in queries.items()}
        pairs = ((query, before[query], after[query]) for query in queries)
        yield DemoCompaction(record, tuple(Query(query, table, b[1], a[1], b[0] == a[0]) for query, b, a in pairs))


def _timed(spark: Any, sql: str) -> tuple[list[tuple[Any, ...]], float]:
    """The rows, and the time of a second run: the first one warms up, before and after alike."""
    spark.sql(sql).collect()
    started = time.monotonic()
    rows = spark.sql(sql).collect()
    return [tuple(row) for row in rows], time.monotonic() - started
