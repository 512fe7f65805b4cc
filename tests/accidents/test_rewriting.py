"""Accidents of rewriting: rows that a kernel loses or mistakes, deletes that no longer fit their files, ids that are gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from neve.catalogs import avro
from neve.commit import conflicts
from neve.errors import NeveError
from neve.kernels import orders
from neve.kernels.arrow import projection
from neve.kernels.opening import check_footer, without_arrow_schema
from neve.kernels.orders import run_order
from neve.kernels.parquet import strict
from neve.kernels.parquet.output import CopiedOutput, as_read_back
from neve.maintenance.delete_files import Upkeep
from neve.operations import delete_files as deletes
from neve.operations import execute
from neve.operations.expire_snapshots import _Expiry
from neve.operations.reachable import Reachable
from neve.rewrite import planner as planning
from neve.rewrite import proof
from neve.rewrite.group import Kernel
from neve.rewrite.proof import Proof
from neve.rewrite.record import GroupState
from neve.rewrite.work_order import FailedOrder, WorkOrder, WorkResult
from neve.spark.maintenance.reachable import SparkReachability
from neve.spark.tasks.rewrite import SparkEngine
from neve.spark.tasks.spark_kernel import SparkKernel
from neve.storage.files import Storage
from tests.accidents.unguarded import accident, answering
from tests.builders.arrow_files import field, parquet, schema
from tests.builders.damaged_tables import DamagedTable
from tests.builders.expired_tables import Expiring, in_python, on_spark
from tests.builders.footer_mutations import Seed, seeds
from tests.builders.id_tables import ROWS, append, filled, filled_v3, states, without_ids
from tests.builders.parquet_files import Struct, edited, group, other_kind, thrift, with_field_ids
from tests.builders.spark_files import TableFiles
from tests.builders.spark_tables import Bench
from tests.builders.table_contents import entries, local
from tests.builders.table_integrity import assert_whole

ENGINE = "tests.builders.spark_tables.SparkEngine"
LINEAGE = "_row_id, _last_updated_sequence_number, id"

proves_nothing = answering(Proof.holds, "True")


class Forgetful(SparkEngine):
    """Loses the last row of every file that it writes, and counts accordingly."""

    def run(self, orders: Sequence[WorkOrder]) -> Iterator[WorkResult]:
        for result in super().run(orders):
            assert isinstance(result, WorkResult)
            (output,) = result.outputs
            rows = pq.read_table(local(output.path))
            pq.write_table(rows.slice(0, rows.num_rows - 1), local(output.path))
            counts = {i: c.model_copy(update={"values": c.values - 1}) for i, c in result.kept.items() if c.values}
            metrics = {i: m.model_copy(update={"values": m.values - 1}) for i, m in output.metrics.items() if m.values}
            size = local(output.path).stat().st_size
            shorter = output.model_copy(update={"records": output.records - 1, "size_bytes": size, "metrics": metrics})
            lost = {"outputs": (shorter,), "rows_read": result.rows_read - 1, "kept": counts}
            yield result.model_copy(update=lost)


class InProcess(SparkEngine):
    """Runs orders here instead of in Spark's workers, where a guard cannot be taken out."""

    def run(self, orders: Sequence[WorkOrder]) -> Iterator[WorkResult]:
        yield from (run_order(order, Storage({})) for order in orders)


@accident(
    "Rows are lost where a file is split",
    evidence="iceberg #2195",
    guard="Before each commit a group is proved: rows read are those that the manifests tell, rows read minus rows deleted are "
    "the rows written, and values, nulls and bounds of every column agree.",
    without=[proves_nothing],
    sees="other rows",
)
def test_a_rewrite_that_loses_a_row_is_not_committed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(bench)
    monkeypatch.setattr(ENGINE, Forgetful)
    record = bench.compact(paths=bench.inputs)
    assert_whole(bench.load(), {"main": ROWS})
    assert states(record) == [GroupState.FAILED]
    assert "rows read: 19, expected 20" in record.groups[0].reason


class Refusing(InProcess):
    """Reports an order that fails as tasks do."""

    def run(self, orders: Sequence[WorkOrder]) -> Iterator[WorkResult | FailedOrder]:  # type: ignore[override]
        for order in orders:
            try:
                yield run_order(order, Storage({}))
            except NeveError as error:
                yield FailedOrder(group_id=order.group_id, reason=str(error))


@accident(
    "One damaged byte in a data file's footer costs the rows of the good files that are merged with it",
    evidence="a trial of our own: a Thrift field of another kind, copied into an output that nobody can open",
    guard="Footers are checked against the tables of the Parquet format before anything is copied. Before the commit every "
    "output is opened, from storage, by a reader that did not write it.",
    behind=[answering(strict.check_kind, "None")],
    without=[
        answering(CopiedOutput._check_opens, "None"),
        answering(as_read_back, "copied"),
        answering(orders.confirmed_outputs, "outputs"),
        answering(proof.outputs_open, "Check(name='outputs open', holds=True, detail='')"),
    ],
    sees="good rows are gone",
)
def test_a_damaged_footer_costs_no_other_file(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(bench)
    damaged = min(bench.inputs)
    local(damaged).write_bytes(other_kind(local(damaged).read_bytes()))
    before = readable_ids(bench)
    monkeypatch.setattr(ENGINE, Refusing)
    record = bench.compact(Kernel.COPY, paths=bench.inputs)
    assert len(before) == 20
    assert readable_ids(bench) == before, "good rows are gone"
    assert states(record) == [GroupState.FAILED]
    assert damaged.removeprefix("file://") in record.groups[0].reason


def readable_ids(bench: Bench) -> list[int]:
    """The ids in all live files that pyarrow opens."""
    found: list[int] = []
    for entry in entries(bench.load()):
        with suppress(OSError):
            found += pq.read_table(local(entry.data_file.file_path))["id"].to_pylist()
    return sorted(found)


@accident(
    "Columns are found by name: after a rename, values end up in another column",
    evidence="clickhouse #110069",
    guard="Kernels find columns by field id alone; should one not, the nulls of some column differ from what the manifests "
    "told, and the proof fails.",
    behind=[
        answering(
            projection.source_columns,
            "{f['id']: physical.names.index(f['name']) for f in schema['fields'] if f['name'] in physical.names}",
        )
    ],
    without=[proves_nothing],
    sees="other rows",
)
def test_values_stay_in_their_column_whatever_it_is_called(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.sql("CREATE TABLE {} (id BIGINT, a BIGINT) USING iceberg")
    for start in (0, 10, 20):
        bench.sql(f"INSERT INTO {{}} SELECT id, id + 1000 FROM range({start}, {start + 10}, 1, 1)")
    bench.sql("ALTER TABLE {} RENAME COLUMN a TO b")
    bench.sql("ALTER TABLE {} ADD COLUMN a BIGINT")
    before = bench.duckdb()
    monkeypatch.setattr(ENGINE, InProcess)
    bench.compact(Kernel.ARROW)
    assert_whole(bench.load(), {"main": ROWS})
    assert bench.duckdb() == before, "other rows"


AS_ONE_PARTITION = """pack(
    np.zeros(len(rows), dtype=np.int64),
    self.files.column("size_bytes")[rows],
    self._written_order()[rows],
    self.policy.target_file_size_bytes,
)"""


@accident(
    "Files of several partition specs are mixed",
    evidence="clickhouse #109838",
    guard="A group is of one partition of one spec, and no work order is made of files of several. Files of other specs go to "
    "the current one only on request, row by row.",
    behind=[answering(planning._Planner._numbers, AS_ONE_PARTITION)],
    without=[answering(execute.partitions_of, "set()")],
    sees="other rows",
)
def test_files_of_two_specs_are_not_put_into_one(bench: Bench) -> None:
    filled(bench)
    bench.sql("ALTER TABLE {} ADD PARTITION FIELD truncate(100, id)")
    for start in (30, 130, 35, 135):
        append(bench, start, 5)
    bench.compact()
    assert_whole(bench.load(), {"main": [*ROWS, *range(30, 40), *range(130, 140)]})
    # A reader that looks for these ids opens the files of their partition, and all files of the older spec.
    found = [bench.load().scan(row_filter=which).to_arrow()["id"].to_pylist() for which in ("id < 100", "id >= 100")]
    assert [len(ids) for ids in found] == [40, 10], "other rows by partition"
    files = [entry.data_file for entry in entries(bench.load())]
    assert {(file.spec_id, *file.partition) for file in files} == {(0,), (1, 0), (1, 100)}


@accident(
    "Rows get the value of another partition: two decimals that differ in their last digits were read as one",
    evidence="a search for siblings of issue 15, item 10: Python's decimals are rounded to 28 digits, Iceberg's have up to 38",
    guard="Decimals of manifests are read to the last digit, and no work order is made of files of several partitions.",
    behind=[answering(avro.exact_decimal, "Decimal(unscaled).scaleb(-scale)")],
    without=[answering(execute.partitions_of, "set()")],
    sees="other rows",
)
def test_partitions_of_long_decimals_are_not_put_into_one(bench: Bench) -> None:
    bench.sql("CREATE TABLE {} (id BIGINT, d DECIMAL(38, 0)) USING iceberg PARTITIONED BY (d)")
    for i in range(4):
        bench.sql(f"INSERT INTO {{}} SELECT {i}, CAST('1234567890123456789012345678901234567{8 + i % 2}' AS DECIMAL(38, 0))")
    before = bench.rows()
    bench.compact()
    assert_whole(bench.load(), {"main": [0, 1, 2, 3]})
    # Spark takes the column from the partition in the manifest, as every reader may; DuckDB reads the files.
    assert bench.rows() == before, "other rows"


@accident(
    "Row lineage is lost: a rewrite numbers the rows anew",
    evidence="iceberg #13555, #16263, #16699, #17039; paimon #9245; icebird #24; iceberg-go #1391",
    guard="In format v3 every kernel writes the rows' ids and numbers into the new files.",
    without=[answering(execute.has_row_lineage, "False")],
    sees="other lineage",
)
def test_every_row_keeps_its_id_and_its_number(bench: Bench) -> None:
    filled_v3(bench)
    before = bench.rows(LINEAGE)
    record = bench.compact(paths=bench.inputs)
    assert states(record) == [GroupState.COMMITTED]
    assert_whole(bench.load(), {"main": ROWS})
    assert bench.rows(LINEAGE) == before, "other lineage"


def vectors(bench: Bench) -> list[int]:
    """How many live deletes by position each data file has that has some, as the manifests tell."""
    bench.sql("REFRESH TABLE {}")
    rows = bench.sql("SELECT count(*) AS n FROM {}.delete_files WHERE content = 1 GROUP BY referenced_data_file").collect()
    return sorted(row.n for row in rows)


@accident(
    "A data file has two live deletion vectors, and nobody can read the table",
    evidence="iceberg-go #1372, #1221, #1868; hive #6072",
    guard="Deletes are kept by the data file that they are for: a new vector holds the rows of the old one, and the old one "
    "goes in the same commit.",
    without=[answering(deletes._Upkeep._replaced, "{}")],
    sees="two live vectors",
)
def test_a_data_file_has_one_deletion_vector(bench: Bench) -> None:
    filled_v3(bench).moves_deletes = True
    bench.sql("ALTER TABLE {} SET TBLPROPERTIES ('commit.retry.num-retries' = '0', 'commit.status-check.num-retries' = '0')")
    bench.sql("DELETE FROM {} WHERE id = 3")
    bench.delete_equal(5, 15)
    bench.keep_up(Upkeep.CONVERT)
    assert vectors(bench) == [1, 1], "two live vectors"
    assert_whole(bench.load(), {"main": without_ids(3, 5, 15)})


@accident(
    "Deletes dangle: they name data files that are gone",
    evidence="iceberg-go #1372; iceberg-compaction #162",
    guard="Deletes that concern replaced files alone are removed by name in the same commit. (Deletion vectors Iceberg drops "
    "by itself; position deletes it keeps.)",
    without=[answering(conflicts.ours_to_drop, "set()")],
    sees="dangling",
)
def test_deletes_go_with_the_files_that_they_are_for(bench: Bench) -> None:
    filled(bench)
    bench.sql("DELETE FROM {} WHERE id = 3")
    bench.compact(paths=bench.inputs)
    assert_whole(bench.load(), {"main": without_ids(3)})
    assert vectors(bench) == [], "dangling deletes"


@accident(
    "An expiry removes a Puffin file while one of its vectors is live",
    evidence="iceberg #15006",
    guard="Files are compared by their path with all that the remaining metadata names, of vectors too; and what an expiry has "
    "written down is compared once more with the newest metadata.",
    behind=[
        answering(
            SparkReachability._needed_by,
            "self._iceberg.everything(self._iceberg.static(metadata)).where(\"path NOT LIKE '%.puffin'\")",
        ),
        answering(
            Reachable._kept_manifests,
            "{path: one for path, one in self._manifests(after.version, after.lists).items() if not one.holds_deletes}",
        ),
    ],
    without=[answering(_Expiry._strike_needed, "0")],
    sees="lost files",
)
@pytest.mark.parametrize("reach", [on_spark, in_python])
def test_a_puffin_file_outlives_one_of_its_vectors(bench: Bench, reach: Any) -> None:
    filled_v3(bench)
    bench.sql("DELETE FROM {} WHERE id IN (3, 13)")
    hand = TableFiles.on(bench, 3)
    first, second, _ = hand.live()
    (vector,) = first.own
    assert vector["file-path"] == second.own[0]["file-path"]
    output = hand.merged([first], without=[3])
    hand.bridge.rewrite([first.data_file], [output], head=hand.head(), sequence_number=None, summary={})
    expiring = Expiring(bench, reach=reach)
    expiring.expire()
    assert first.path in expiring.remove_recorded()
    assert_whole(bench.load(), {"main": without_ids(3, 13)})


GROUPED = next(seed for seed in seeds() if seed.name == "flat-page-index-groups")
"""Row groups of 13, 13, 13 and 1 rows."""


@accident(
    "A data file's footer claims a wrong size of a row group, and after a rewrite its rows are gone: Iceberg's reader in Spark "
    "leaves them out without an error",
    evidence="a trial of our own: damaged footers, given to the spark kernel",
    guard="Inputs of Spark's own kernel have their footers checked like those of the others. The rows that its reader finds "
    "are counted, and the proof compares them with the table's metadata.",
    behind=[answering(check_footer, "known")],
    without=[answering(SparkKernel._read_rows, "sum(file.records for file in order.inputs)")],
    sees="other rows",
)
def test_rows_that_the_reader_leaves_out_are_missed(bench: Bench, tmp_path: Path) -> None:
    def larger(footer: Struct) -> None:
        group(footer, 1)[6] = (thrift.I64, 10**6)

    table = DamagedTable(bench, [GROUPED], tmp_path)
    with table.adding() as delta:
        table.add(delta, "larger group", GROUPED, edited(GROUPED.data, larger), has_deletes=True)
    wrong = table.compact()
    assert not wrong, f"other rows: {wrong}"
    assert table.groups[0].state is GroupState.FAILED


LOST = schema(field(1, "id", "long"), field(2, "name", "string"))


@accident(
    "A column that readers find empty, since its field id is only in the Arrow schema of the files, has values after a rewrite",
    evidence="a trial of our own: damaged footers, read by pyarrow and by Iceberg",
    guard="The Arrow schema that some writers store in their files is ignored: field ids and types are those of the Parquet "
    "schema, as for Iceberg. Files of which readers disagree are left to Spark's own kernel.",
    without=[answering(without_arrow_schema, "tail")],
    sees="other rows",
)
def test_a_column_that_lost_its_field_id_stays_empty(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = parquet([{"id": i, "name": f"n{i}"} for i in range(40)], LOST, store_schema=True)
    table = DamagedTable(bench, [Seed("lost", data, data, LOST)], tmp_path)
    with table.adding() as delta:
        table.add(delta, "lost", table.seeds[0], with_field_ids(data, 1, None), has_deletes=False)
    before = bench.rows()
    monkeypatch.setattr(ENGINE, InProcess)
    record = bench.compact(Kernel.ARROW)
    assert states(record) == [GroupState.COMMITTED]
    assert bench.rows() == before, "other rows"
