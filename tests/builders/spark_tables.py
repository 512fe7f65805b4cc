"""A table under test on real Iceberg: planned and rewritten with the code under test, read back without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from neve.catalogs.embedded import open_warehouse
from neve.catalogs.opening import IcebergCatalog
from neve.kernels.deletes.store import StoredDeletes
from neve.maintenance.delete_files import Upkeep, UpkeepRecord
from neve.operations import inspect
from neve.operations.delete_files import maintain_deletes
from neve.operations.requests import DeletesRequest
from neve.policy.model import Policy
from neve.rewrite.group import Kernel, Tier
from neve.rewrite.plan import Plan
from neve.rewrite.planner import Request, plan
from neve.rewrite.record import RunRecord
from neve.rewrite.work_order import FailedOrder, WorkOrder, WorkResult
from neve.samples import Target
from neve.samples.equality_deletes import add_equality_deletes
from neve.spark.table.bridge import TableBridge
from neve.spark.tasks.resolving import Resolver
from neve.spark.tasks.rewrite import SparkEngine
from neve.spark.tasks.spark_kernel import SparkKernel
from neve.storage.files import Storage
from neve.table.depth import Depth
from neve.table.state import TableName, TableState
from tests.builders.contexts import FakeContext, compact
from tests.builders.fake_tables import FakeQuarantine
from tests.builders.table_contents import duckdb_rows, plain_rows

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

    def run(self, orders: Sequence[WorkOrder]) -> Iterator[WorkResult | FailedOrder]:
        eager = [o.model_copy(update={"write": o.write.model_copy(update={"min_chunk_bytes": 0})}) for o in orders]
        self.results = list(self.engine.run(eager))
        self.strike()
        yield from self.results

    def unused(self) -> list[str]:
        return self.engine.unused()

    def leftovers(self, prefixes: Iterable[str]) -> Iterator[str]:
        return self.engine.leftovers(prefixes)

    def open_outputs(self, result: WorkResult) -> WorkResult:
        return self.engine.open_outputs(result)


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
    """Whether deletes that come late are moved, as an operation has it."""
    quarantine: FakeQuarantine = field(default_factory=FakeQuarantine)

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
        tools = self._tools(state, lambda: None, None)
        context: Any = replace(tools, name=state.name, uuid=state.uuid)
        return maintain_deletes(context, DeletesRequest(operation))

    def _tools(self, state: TableState, strike: Strike, strike_at_commit: Strike | None) -> FakeContext:
        self.bridge = StrikingBridge(self.spark, state.name)
        self.bridge.strike = strike_at_commit
        kernel = SparkKernel(self.spark, self.bridge, state.snapshot_id or 0)
        self.engine = StrikingEngine(SparkEngine(self.spark, kernel, {}, max_parallelism=4), strike)
        return FakeContext(
            writer=self.bridge,
            engine=self.engine,
            specs=state.specs,
            clock=Still(),
            sleep=lambda _: None,
            deletes=StoredDeletes(lambda: Storage({})) if self.moves_deletes else None,
            resolver=Resolver(self.spark, {}),
            quarantine=self.quarantine,
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

    def unexplained(self) -> set[str]:
        """Those that are neither live nor in the quarantine."""
        return self.on_disk() - self.paths() - {*self.quarantine.paths}
