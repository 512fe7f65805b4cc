"""Equality deletes become positions: those that a plain model finds, and those that Iceberg itself applies."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from neve.errors import BadRequestError
from neve.kernels.arrow.schema import arrow_schema
from neve.rewrite.equality_rows import KeyFile, KeyTask, Realm, ResolveDelete, ResolvedFile, ResolveInput, key_files
from neve.rewrite.work_order import DeleteFile, DeleteKind, InputFile
from neve.samples import Target
from neve.samples.equality_deletes import add_equality_deletes
from neve.spark.tasks.resolving import Resolver, ResolvingError
from neve.spark.tasks.resolving_keys import Screen
from neve.spark.tasks.resolving_tasks import ReadKeys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# PySpark 3.5 compares versions with it.
pytestmark = pytest.mark.filterwarnings("ignore:The distutils package is deprecated:DeprecationWarning")

NAN, OTHER_NAN = float("nan"), np.uint64(0x7FF8000000000001).view(np.float64).item()
POOLS: dict[str, list[Any]] = {
    "boolean": [True, False],
    "int": [0, -1, 2**31 - 1],
    "long": [0, -(2**63), 2**40],
    "float": [0.0, -0.0, NAN, 1.5],
    "double": [0.0, -0.0, NAN, OTHER_NAN, math.inf],
    "date": [date(1970, 1, 1), date(1969, 12, 31)],
    "time": [time(0), time(23, 59, 59, 999_999)],
    "timestamp": [datetime(1969, 12, 31, 23), datetime(2024, 1, 1)],  # noqa: DTZ001
    "timestamptz": [datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)],
    "timestamp_ns": [1, 2],
    "string": ["", "a", "ab", "\N{SNOWFLAKE}" * 100],
    "binary": [b"", b"\0", b"a\0"],
    "uuid": [bytes(16), bytes(range(16))],
    "fixed[3]": [b"\0\0\0", b"abc"],
    "decimal(9, 2)": [Decimal("0.00"), Decimal("-1.25")],
    "decimal(38, 10)": [Decimal("12345678901234567890.0000000001"), Decimal(0)],
}
FIELDS = [{"id": i, "name": f"c{i}", "required": False, "type": kind} for i, kind in enumerate(POOLS, 1)]
IDS = {kind: i for i, kind in enumerate(POOLS, 1)}
SETS = [(i,) for i in IDS.values()] + [
    (IDS["string"], IDS["binary"]),
    (IDS["binary"], IDS["string"]),
    (IDS["double"], IDS["long"], IDS["uuid"]),
]


@dataclass
class Lake:
    """Files in a directory, and what they hold."""

    directory: Path
    fields: Sequence[Mapping[str, Any]] = field(default_factory=lambda: FIELDS)
    data: list[ResolveInput] = field(default_factory=list)
    deletes: list[ResolveDelete] = field(default_factory=list)
    rows: dict[str, list[dict[int, Any]]] = field(default_factory=dict)

    def add_data(
        self,
        rows: Sequence[Mapping[int, Any]],
        *,
        sequence: int,
        scope: int = 0,
        columns: Sequence[int] | None = None,
        **more: Any,
    ) -> str:
        path, size = self._write(rows, columns or [f["id"] for f in self.fields])
        file = InputFile(path=path, size_bytes=size, records=len(rows), sequence_number=sequence, **more)
        self.data.append(ResolveInput(file=file, scope=scope))
        return path

    def add_delete(self, ids: Sequence[int], rows: Sequence[Mapping[int, Any]], *, sequence: int, scope: int | None = 0) -> str:
        path, size = self._write(rows, ids)
        file = DeleteFile(
            kind=DeleteKind.EQUALITY,
            path=path,
            size_bytes=size,
            records=len(rows),
            sequence_number=sequence,
            equality_ids=tuple(ids),
        )
        self.deletes.append(ResolveDelete(file=file, scope=scope))
        return path

    def _write(self, rows: Sequence[Mapping[int, Any]], ids: Sequence[int]) -> tuple[str, int]:
        fields = [f for f in self.fields if f["id"] in ids]
        path = self.directory / f"{len(self.rows)}.parquet"
        schema = arrow_schema({"fields": fields})
        table = pa.Table.from_pylist([{f["name"]: row.get(f["id"]) for f in fields} for row in rows], schema=schema)
        pq.write_table(table, path, store_decimal_as_integer=True)
        self.rows[str(path)] = [dict(row) for row in rows]
        return str(path), path.stat().st_size

    def expected(self) -> dict[str, list[int]]:
        """What the specification says, pair by pair."""
        found: dict[str, set[int]] = {}
        for delete in self.deletes:
            ids = delete.file.equality_ids
            gone = {_key(row, ids) for row in self.rows[delete.file.path]}
            for one in self.data:
                older = (one.file.sequence_number or 0) < delete.file.sequence_number
                if older and delete.scope in (None, one.scope):
                    hits = {at for at, row in enumerate(self.rows[one.file.path]) if _key(row, ids) in gone}
                    found.setdefault(one.file.path, set()).update(hits)
        return {path: sorted(hits) for path, hits in found.items() if hits}

    def resolve(self, spark: SparkSession) -> list[ResolvedFile]:
        self.resolver = Resolver(spark, {})
        return self.resolver.resolve(
            self.data, self.deletes, key_fields=self.fields, output_prefix=f"{self.directory}/vectors/x"
        )

    def written(self) -> set[str]:
        return {str(path) for path in (self.directory / "vectors").glob("*")}


def _key(row: Mapping[int, Any], ids: Sequence[int]) -> str:
    """Python writes every NaN alike, and 0.0 and -0.0 apart."""
    return repr([row.get(i) for i in sorted(ids)])


def positions(resolved: Sequence[ResolvedFile]) -> dict[str, list[int]]:
    """What pyiceberg reads from the Puffin files."""
    found: dict[str, list[int]] = {}
    for path in {file.path for file in resolved}:
        puffin = PuffinFile(Path(path).read_bytes())
        vectors = deletion_vectors_from_puffin_file(puffin)
        found |= {vector.referenced_data_file: vector.to_vector().to_pylist() for vector in vectors}
        for blob in puffin.footer.blobs:
            file = next(one for one in resolved if one.data_path == blob.properties["referenced-data-file"])
            assert (file.path, file.offset, file.length) == (path, blob.offset, blob.length)
            assert file.cardinality == int(blob.properties["cardinality"]) == len(found[file.data_path])
            assert file.size_bytes == Path(path).stat().st_size
    return found


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def random_row(random: Random, ids: Sequence[int]) -> dict[int, Any]:
    pools = list(POOLS.values())
    return {i: random.choice([None, *pools[i - 1]]) for i in ids}


@pytest.mark.parametrize("seed", [1, 2])
def test_finds_what_a_plain_model_finds_over_types_scopes_and_sequence_numbers(
    spark: SparkSession, lake: Lake, seed: int
) -> None:
    random = Random(seed)
    everything = list(IDS.values())
    for _ in range(24):
        rows = [random_row(random, everything) for _ in range(30)]
        lake.add_data(rows, sequence=random.randrange(1, 5), scope=random.randrange(4))
    for ids in SETS * 2:
        scope = random.choice([None, 0, 1, 2, 3, 9])
        rows = [random_row(random, ids) for _ in range(random.choice([1, 1, 2]))]
        lake.add_delete(ids, rows, sequence=random.randrange(1, 6), scope=scope)
    resolved = lake.resolve(spark)
    assert positions(resolved) == lake.expected()
    assert len(resolved) >= 10
    assert lake.written() == {file.path for file in resolved}


def test_a_delete_spares_rows_as_new_as_itself_other_scopes_and_what_it_does_not_name(spark: SparkSession, lake: Lake) -> None:
    same, older = ({IDS["int"]: 0}, {IDS["int"]: -1}), ({IDS["int"]: -1}, {IDS["int"]: 0})
    lake.add_data(same, sequence=3)
    hit = lake.add_data(older, sequence=2)
    lake.add_data(older, sequence=2, scope=1)
    lake.add_data([{IDS["int"]: None}], sequence=2)
    lake.add_delete([IDS["int"]], [{IDS["int"]: 0}], sequence=3)
    assert positions(lake.resolve(spark)) == {hit: [1]}


def test_nothing_is_read_or_written_where_no_delete_is_newer(spark: SparkSession, lake: Lake) -> None:
    Path(lake.add_data([{IDS["int"]: 0}], sequence=3)).unlink()
    lake.add_delete([IDS["int"]], [{IDS["int"]: 0}], sequence=3, scope=None)
    assert lake.resolve(spark) == []
    assert lake.written() == set()


def test_no_file_is_written_where_no_row_is_deleted(spark: SparkSession, lake: Lake) -> None:
    lake.add_data([{IDS["int"]: 0}], sequence=1)
    lake.add_delete([IDS["int"]], [{IDS["int"]: -1}], sequence=2)
    assert lake.resolve(spark) == []
    assert lake.written() == set()


def test_a_column_that_a_file_lacks_is_its_partition_value_its_default_or_null(spark: SparkSession, tmp_path: Path) -> None:
    fields = [
        {"id": 1, "name": "kept", "required": False, "type": "long"},
        {"id": 2, "name": "later", "required": False, "type": "int", "initial-default": 7},
        {"id": 3, "name": "day", "required": False, "type": "date"},
    ]
    lake = Lake(tmp_path, fields)
    lacking = lake.add_data([{1: 5}] * 3, sequence=1, columns=[1], constants={3: "2024-01-02"})
    bare = lake.add_data([{1: 5}] * 3, sequence=1, columns=[1], scope=1, constants={3: None})
    lake.add_delete([2, 3], [{2: 7, 3: date(2024, 1, 2)}], sequence=2, scope=0)
    lake.add_delete([2, 3], [{2: 7, 3: None}], sequence=2, scope=1)
    assert positions(lake.resolve(spark)) == {lacking: [0, 1, 2], bare: [0, 1, 2]}


def test_narrower_types_and_fields_of_structs_are_compared_by_id(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path, [{"id": 1, "name": "k", "required": True, "type": "long"}])
    ids = [{b"PARQUET:field_id": str(i).encode()} for i in range(1, 10)]
    child = pa.field("another_name", pa.int32(), metadata=ids[0])
    nested = pa.schema([pa.field("x", pa.string(), metadata=ids[4]), pa.field("s", pa.struct([child]), metadata=ids[5])])
    rows = [{"x": "a", "s": {"another_name": 5}}, {"x": "b", "s": None}, {"x": "c", "s": {"another_name": 6}}]
    path = tmp_path / "nested.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=nested), path)
    file = InputFile(path=str(path), size_bytes=path.stat().st_size, records=3, sequence_number=1)
    lake.data.append(ResolveInput(file=file, scope=0))
    schema = pa.schema([pa.field("k", pa.int64(), metadata=ids[0])])
    for keys in ([5], [None]):
        pq.write_table(pa.table({"k": keys}, schema=schema), tmp_path / f"delete{keys}.parquet")
        delete = DeleteFile(
            kind=DeleteKind.EQUALITY,
            path=f"{tmp_path}/delete{keys}.parquet",
            size_bytes=(tmp_path / f"delete{keys}.parquet").stat().st_size,
            records=1,
            sequence_number=2,
            equality_ids=(1,),
        )
        lake.deletes.append(ResolveDelete(file=delete))
    assert positions(lake.resolve(spark)) == {str(path): [0, 1]}


def skewed(lake: Lake, rows: int) -> str:
    """Nine rows in ten have the key 0; every second other key is deleted too."""
    ids = np.where(np.arange(rows) % 10 == 9, np.arange(rows), 0)
    schema = arrow_schema({"fields": [FIELDS[IDS["long"] - 1]]})
    path = lake.directory / "skewed.parquet"
    pq.write_table(pa.table([pa.array(ids)], schema=schema), path, row_group_size=100_000)
    file = InputFile(path=str(path), size_bytes=path.stat().st_size, records=rows, sequence_number=1)
    lake.data.append(ResolveInput(file=file, scope=0))
    return str(path)


def test_a_key_that_most_rows_have_is_found_in_all_of_them(spark: SparkSession, lake: Lake) -> None:
    rows = 300_000
    path = skewed(lake, rows)
    for sequence in range(2, 6):
        keys = [0] * 20_000 + list(range(9, rows, 20))
        lake.add_delete([IDS["long"]], [{IDS["long"]: key} for key in keys], sequence=sequence)
    (resolved,) = lake.resolve(spark)
    gone = sorted(set(range(rows)) - set(range(19, rows, 20)))
    assert positions([resolved]) == {path: gone}


def task_rows(lake: Lake, files: Sequence[KeyFile]) -> Iterator[dict[str, Any]]:
    task = pa.RecordBatch.from_pydict({"value": [KeyTask(files=tuple(files)).model_dump_json()]})
    for batch in ReadKeys({}, lake.fields, None)([task]):
        yield from batch.to_pylist()


def test_a_key_that_most_rows_have_makes_few_rows_to_shuffle(lake: Lake) -> None:
    path = skewed(lake, 200_000)
    lake.add_delete([IDS["long"]], [{IDS["long"]: 0}] * 1000, sequence=2)
    data, deletes = key_files(lake.data, lake.deletes)
    rows = list(task_rows(lake, data))
    assert rows[0] | {"key": b""} == {"key": b"", "sequence": 0, "place": 0, "positions": path.encode()}
    most = max(rows[1:], key=lambda row: len(row["positions"]))
    frequent = [row for row in rows if row["key"] == most["key"]]
    # 65,536 positions of nine in ten are 58,983: fifteen rows for a container, of which there are three and a bit.
    assert [row["place"] for row in frequent] == [1] * 15 + [2] * 15 + [3] * 15 + [4]
    assert sum(len(row["positions"]) // 2 for row in frequent) == 180_000
    assert len(rows) == 1 + len(frequent) + 20_000
    assert len(list(task_rows(lake, deletes))) == 1


def test_only_files_and_deletes_that_can_meet_are_read() -> None:
    def data(sequence: int, scope: int) -> ResolveInput:
        file = InputFile(path=f"d{sequence}{scope}", size_bytes=1, records=1, sequence_number=sequence)
        return ResolveInput(file=file, scope=scope)

    def delete(sequence: int, scope: int | None, *ids: int) -> ResolveDelete:
        file = DeleteFile(
            kind=DeleteKind.EQUALITY,
            path=f"e{sequence}{scope}{ids}",
            size_bytes=1,
            records=1,
            sequence_number=sequence,
            equality_ids=ids,
        )
        return ResolveDelete(file=file, scope=scope)

    inputs = [data(5, 0), data(2, 0), data(3, 1), data(1, 2)]
    deletes = [delete(2, 0, 1), delete(4, 0, 2, 1), delete(3, 0, 1, 2), delete(9, 7, 1), delete(2, None, 3)]
    read, used = key_files(inputs, deletes)
    pair, everywhere = Realm(number=1, field_ids=(1, 2)), Realm(number=3, field_ids=(3,))
    assert [(file.path, file.number, file.realms) for file in read] == [("d20", 1, (pair,)), ("d12", 3, (everywhere,))]
    assert [(file.path, file.realms) for file in used] == [
        ("e40(2, 1)", (pair,)),
        ("e30(1, 2)", (pair,)),
        ("e2None(3,)", (everywhere,)),
    ]


def test_a_screen_passes_every_key_that_it_knows_and_few_others() -> None:
    numbers = np.random.default_rng(5).integers(0, 2**64, 200_000, np.uint64)
    words = Screen.words_for(100_000)
    assert words == 32_768
    screen = Screen(np.zeros(words, np.uint64))
    screen.add(numbers[:100_000])
    assert screen.passes(numbers[:100_000]).all()
    assert screen.passes(numbers[100_000:]).mean() < 0.02


def test_a_screen_never_grows_beyond_its_bound() -> None:
    assert [Screen.words_for(keys) for keys in (0, 10_000_000, 33_000_000, 34_000_000)] == [16, 2**21, 2**21, None]


def test_a_screen_spares_the_shuffle_what_no_delete_names(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a screen, and with one, the result is the same."""
    path = lake.add_data([{IDS["long"]: key % 3} for key in range(1000)], sequence=1)
    lake.add_delete([IDS["long"]], [{IDS["long"]: 1}], sequence=2)
    expected = {path: list(range(1, 1000, 3))}
    assert positions(lake.resolve(spark)) == expected
    monkeypatch.setattr(Screen, "words_for", staticmethod(lambda _: None))
    assert positions(lake.resolve(spark)) == expected


def test_finds_exactly_the_rows_that_iceberg_leaves_out(spark: SparkSession, catalog: SqlCatalog, tmp_path: Path) -> None:
    table, target = "local.resolving.plain", Target(catalog, spark=spark, namespace="resolving")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.resolving")
    spark.sql(f"CREATE TABLE {table} (id bigint, text string) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    for round_ in range(3):
        spark.sql(f"INSERT INTO {table} SELECT id, CAST(id AS string) FROM range({round_ * 5}, 60 + {round_ * 5})")
        add_equality_deletes(target, "plain", rows=[{"id": key} for key in range(round_ * 7, 70, 4)])
        spark.sql(f"REFRESH TABLE {table}")
    spark.sql(f"INSERT INTO {table} SELECT id, 'last' FROM range(0, 10)")
    live = {(row._file, row._pos) for row in spark.sql(f"SELECT _file, _pos FROM {table}").collect()}
    entries = spark.sql(f"SELECT data_file.*, sequence_number FROM {table}.entries WHERE status < 2").collect()
    data = [
        ResolveInput(
            file=InputFile(
                path=e.file_path, size_bytes=e.file_size_in_bytes, records=e.record_count, sequence_number=e.sequence_number
            ),
            scope=0,
        )
        for e in entries
        if e.content == 0
    ]
    deletes = [
        ResolveDelete(
            file=DeleteFile(
                kind=DeleteKind.EQUALITY,
                path=e.file_path,
                size_bytes=e.file_size_in_bytes,
                records=e.record_count,
                sequence_number=e.sequence_number,
                equality_ids=tuple(e.equality_ids),
            )
        )
        for e in entries
        if e.content == 2
    ]
    fields = [{"id": 1, "name": "id", "required": False, "type": "long"}]
    resolved = Resolver(spark, {}).resolve(data, deletes, key_fields=fields, output_prefix=f"{tmp_path}/x")
    found = {(path, position) for path, gone in positions(resolved).items() for position in gone}
    assert found == {(one.file.path, at) for one in data for at in range(one.file.records)} - live
    assert len(found) > 50


def test_the_callers_session_keeps_its_settings(spark: SparkSession, lake: Lake) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    lake.add_data([{IDS["int"]: 0}], sequence=1)
    lake.add_delete([IDS["int"]], [{IDS["int"]: 0}], sequence=2)
    assert [file.cardinality for file in lake.resolve(spark)] == [1]
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


def test_a_missing_delete_file_is_named_and_nothing_is_left(spark: SparkSession, lake: Lake) -> None:
    lake.add_data([{IDS["int"]: 0}], sequence=1)
    lake.add_delete([IDS["int"]], [{IDS["int"]: 0}], sequence=2)
    gone = lake.add_delete([IDS["int"]], [{IDS["int"]: 0}], sequence=3)
    Path(gone).unlink()
    with pytest.raises(ResolvingError, match=f"^Cannot resolve equality deletes: .*{re.escape(gone)}"):
        lake.resolve(spark)
    assert lake.written() == set()


def test_files_of_lost_attempts_are_unused_and_nothing_is_deleted(spark: SparkSession, lake: Lake) -> None:
    lake.add_data([{IDS["int"]: 0}], sequence=1)
    lake.add_delete([IDS["int"]], [{IDS["int"]: 0}], sequence=2)
    stray, other = lake.directory / "vectors" / "x-stray.puffin", lake.directory / "vectors" / "other.puffin"
    stray.parent.mkdir(exist_ok=True)
    for path in (stray, other):
        path.write_bytes(b"")
    (resolved,) = lake.resolve(spark)
    assert lake.written() == {resolved.path, str(stray), str(other)}
    assert (lake.resolver.unused(), lake.resolver.unused()) == ([str(stray)], [])


def test_a_damaged_data_file_is_named(spark: SparkSession, lake: Lake) -> None:
    path = lake.add_data([{IDS["int"]: 0}], sequence=1)
    Path(path).write_bytes(b"PAR1" + bytes(lake.data[0].file.size_bytes - 4))
    lake.add_delete([IDS["int"]], [{IDS["int"]: 0}], sequence=3)
    with pytest.raises(ResolvingError, match=f"^Cannot resolve equality deletes: .*Cannot read {re.escape(path)}: "):
        lake.resolve(spark)


def test_deletes_in_other_formats_and_places_are_refused_before_any_task(spark: SparkSession, lake: Lake) -> None:
    lake.add_data([{IDS["int"]: 0}], sequence=1)
    lake.add_delete([IDS["int"]], [{IDS["int"]: 0}], sequence=3)
    (delete,) = lake.deletes
    lake.deletes = [delete.model_copy(update={"file": delete.file.model_copy(update={"format": "avro"})})]
    with pytest.raises(ResolvingError, match=r"1.parquet: it holds equality deletes as avro$"):
        lake.resolve(spark)
    lake.deletes = [delete.model_copy(update={"file": delete.file.model_copy(update={"path": "gs://bucket/x"})})]
    with pytest.raises(ResolvingError, match="tasks do not read storage gs"):
        lake.resolve(spark)


def test_a_column_without_equality_is_refused_by_name(spark: SparkSession, lake: Lake) -> None:
    lake.add_data([{IDS["int"]: 0}], sequence=1)
    lake.add_delete([IDS["int"]], [{IDS["int"]: 0}], sequence=3)
    lake.fields = [{"id": IDS["int"], "name": "v", "required": False, "type": "variant"}]
    with pytest.raises(ResolvingError, match="an equality delete compares column v of type variant"):
        lake.resolve(spark)


def test_what_has_no_sequence_number_or_no_columns_is_refused() -> None:
    data = ResolveInput(file=InputFile(path="d", size_bytes=1, records=1), scope=0)
    delete = DeleteFile(kind=DeleteKind.EQUALITY, path="e", size_bytes=1, records=1, sequence_number=1, equality_ids=(1,))
    with pytest.raises(BadRequestError, match=r"^Cannot resolve deletes of d: its sequence number is not known$"):
        key_files([data], [ResolveDelete(file=delete)])
    with pytest.raises(BadRequestError, match=r"^Cannot resolve e: it names no columns to compare$"):
        key_files([data], [ResolveDelete(file=delete.model_copy(update={"equality_ids": ()}))])
