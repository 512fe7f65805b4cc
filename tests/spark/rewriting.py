"""A table under test on real Iceberg: planned and rewritten with the code under test, read back without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from neve.catalogs.embedded import open_warehouse
from neve.catalogs.opening import IcebergCatalog
from neve.core.depth import Depth
from neve.core.model import TableName, TableState
from neve.core.plan import Plan
from neve.core.plan_words import Kernel, Tier
from neve.core.policy import Policy
from neve.core.record import RunRecord
from neve.core.upkeep import Upkeep, UpkeepRecord
from neve.core.work import FailedOrder, WorkOrder, WorkResult
from neve.engines.spark.bridge import TableBridge
from neve.engines.spark.resolving import Resolver
from neve.engines.spark.rewrite import SparkEngine
from neve.engines.spark.spark_kernel import SparkKernel
from neve.flow import inspect
from neve.flow.deletes import UpkeepRequest, keep_up
from neve.flow.plan import Request, plan
from neve.flow.run import compact
from neve.flow.tools import Tools
from neve.kernels.deletes.store import StoredDeletes
from neve.samples import Target
from neve.samples.equality_deletes import add_equality_deletes
from neve.storage import Storage
from tests.samples.reading import duckdb_rows, plain_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Strike = Callable[[], object]


class Still:
    """A clock that stands."""

    def now_ms(self) -> int:
        return 10**13


@dataclass
class StrikingEngine:
    """An engine after whose last result something happens, before anything is committed; tiny files may be copied."""

    engine: SparkEngine
    strike: Strike
    results: list[WorkResult | FailedOrder] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)

    def run(self, orders: Sequence[WorkOrder]) -> Iterator[WorkResult | FailedOrder]:
        eager = [o.model_copy(update={"write": o.write.model_copy(update={"min_chunk_bytes": 0})}) for o in orders]
        self.results = list(self.engine.run(eager))
        self.strike()
        yield from self.results

    def discard(self, paths: Iterable[str]) -> None:
        gone = list(paths)
        self.discarded += gone
        self.engine.discard(gone)

    def leftovers(self, prefixes: Iterable[str]) -> list[str]:
        return self.engine.leftovers(prefixes)


class StrikingBridge(TableBridge):
    """A bridge before whose first commit something happens, after everything was checked."""

    strike: Strike | None = None

    def rewrite(self, *args: Any, **kwargs: Any) -> None:
        if self.strike is not None:
            strike, self.strike = self.strike, None
            strike()
        super().rewrite(*args, **kwargs)


@dataclass
class Bench:
    """One table of the catalog `local`, and what can be done to it."""

    spark: SparkSession
    warehouse: Path
    namespace: str
    name: str
    inputs: set[str] = field(default_factory=set)
    moves_deletes: bool = False
    """Whether deletes that come late are moved, as `compose` has it."""

    @property
    def sql_name(self) -> str:
        return f"local.{self.namespace}.{self.name}"

    def sql(self, statement: str) -> Any:
        """Runs a statement in which {} is the table."""
        return self.spark.sql(statement.format(self.sql_name))

    def load(self) -> Table:
        with closing(self.catalog()) as catalog:
            return catalog.load_table((self.namespace, self.name))

    def catalog(self) -> SqlCatalog:
        return SqlCatalog("local", uri=f"sqlite:///{self.warehouse}/catalog.db", warehouse=str(self.warehouse))

    def delete_equal(self, *ids: int) -> None:
        """An equality delete on `id`, as Flink would write it."""
        with closing(self.catalog()) as catalog:
            target = Target(catalog, spark=self.spark, namespace=self.namespace)
            add_equality_deletes(target, self.name, rows=[{"id": i} for i in ids])

    def state(self) -> TableState:
        name, described = open_warehouse(str(self.warehouse))
        catalog = IcebergCatalog(name, described, environ={})
        try:
            table = TableName(catalog=name, namespace=(self.namespace,), name=self.name)
            return inspect.read(catalog.open(table), Depth.FILES)
        finally:
            catalog.client.close()

    def plan(self, kernel: Kernel | None = None, *, paths: Set[str] | None = None) -> tuple[TableState, Plan]:
        """Every file, or these."""
        state = self.state()
        policy = Policy.model_validate({"min-input-files": 2})
        request = Request(tier=Tier.FULL, kernel=kernel, force=True, paths=paths)
        return state, plan(state, policy, now_ms=10**13, request=request)

    def compact(
        self,
        kernel: Kernel | None = None,
        *,
        strike: Strike = lambda: None,
        strike_at_commit: Strike | None = None,
        paths: Set[str] | None = None,
    ) -> RunRecord:
        """`strike` happens between execute and commit, `strike_at_commit` between the last check and the commit itself."""
        state, planned = self.plan(kernel, paths=paths)
        assert planned.snapshot_id is not None
        return compact(planned, self._tools(state, strike, strike_at_commit))

    def keep_up(self, operation: Upkeep) -> UpkeepRecord:
        """`neve deletes` on the table."""
        state = self.state()
        return keep_up(UpkeepRequest(state.name, state.uuid, operation), self._tools(state, lambda: None, None))

    def _tools(self, state: TableState, strike: Strike, strike_at_commit: Strike | None) -> Tools:
        self.bridge = StrikingBridge(self.spark, state.name)
        self.bridge.strike = strike_at_commit
        kernel = SparkKernel(self.spark, self.bridge, state.snapshot_id or 0)
        self.engine = StrikingEngine(SparkEngine(self.spark, kernel, {}, max_parallelism=4), strike)
        return Tools(
            writer=self.bridge,
            engine=self.engine,
            specs=state.specs,
            clock=Still(),
            sleep=lambda _: None,
            deletes=StoredDeletes(lambda: Storage({})) if self.moves_deletes else None,
            resolver=Resolver(self.spark, {}),
        )

    def expire(self) -> None:
        """Every snapshot goes but the newest."""
        jvm: Any = self.spark._jvm
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self.spark._jsparkSession, self.sql_name)
        table.refresh()
        table.expireSnapshots().expireOlderThan(2**53).retainLast(1).commit()

    def duckdb(self) -> list[str]:
        return duckdb_rows(self.load())

    def rows(self, columns: str = "*") -> list[str]:
        """As plain Spark reads them, past its cache of tables."""
        self.spark.sql(f"REFRESH TABLE {self.sql_name}")
        frame = self.spark.sql(f"SELECT {columns} FROM {self.sql_name}")
        arrow = frame.toArrow() if hasattr(frame, "toArrow") else pa.Table.from_batches(frame._collect_as_arrow())
        return plain_rows(arrow.to_pylist())

    def ids(self) -> list[int]:
        self.spark.sql(f"REFRESH TABLE {self.sql_name}")
        return sorted(row.id for row in self.spark.sql(f"SELECT id FROM {self.sql_name}").collect())

    def paths(self) -> set[str]:
        """The live data files, as the metadata spells them."""
        self.spark.sql(f"REFRESH TABLE {self.sql_name}")
        return {row.file_path for row in self.spark.sql(f"SELECT file_path FROM {self.sql_name}.data_files").collect()}

    def deletes(self) -> set[str]:
        self.spark.sql(f"REFRESH TABLE {self.sql_name}")
        return {row.file_path for row in self.spark.sql(f"SELECT file_path FROM {self.sql_name}.delete_files").collect()}

    def on_disk(self) -> set[str]:
        """Data files in the table's directory, live or not."""
        return {str(path) for path in (self.warehouse / self.namespace / self.name / "data").rglob("*.parquet")}
