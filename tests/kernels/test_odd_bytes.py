"""String columns whose bytes are not UTF-8, as other engines store them: every kernel keeps them, and their bounds hold."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.kernels.arrow.schema import arrow_schema
from neve.kernels.content.rows import fingerprint
from neve.kernels.orders import run_order
from neve.operations.verify import described_outputs, proof_of
from neve.rewrite.group import Kernel
from neve.rewrite.live_files import LiveFile
from neve.rewrite.work_order import DeleteFile, DeleteKind, InputFile, WorkOrder, WorkResult, WriteSettings
from neve.spark.tasks.cuts import literal
from neve.storage.files import Storage
from neve.table.layout import Layout
from tests.builders.arrow_files import field, list_of, map_of, schema, struct

ODD = [b"x" + b"\xc3" * 30, b"\xff", b"", b"\x00", b"a\x00b", b"caf\xc3\xa9", b"\xed\xa0\x80", None, b"\xf4\x8f\xbf\xbf", b"x"]
"""Among them cut and lone bytes, zero bytes, a surrogate and the last code point."""

SCHEMA = schema(
    field(1, "id", "long", required=True),
    field(2, "text", "string"),
    field(3, "inner", struct(field(4, "text", "string"))),
    field(5, "many", list_of(6, "string")),
    field(7, "by", map_of(8, "string", 9, "string")),
    field(10, "raw", "binary"),
)


def loose(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Bytes as strings, which nobody validates."""
    if pa.types.is_string(kind):
        return pa.array(values, pa.binary()).cast(pa.string(), safe=False)
    return pa.array(values, kind)


def odd_table(start: int = 0) -> pa.Table:
    target = arrow_schema(SCHEMA)
    text = loose(ODD, pa.string())
    rows = len(ODD)
    keys = loose([value or b"k" for value in ODD], pa.string())
    offsets = pa.array(range(rows + 1), pa.int32())
    return pa.Table.from_arrays(
        [
            pa.array(range(start, start + rows), pa.int64()),
            text,
            pa.StructArray.from_arrays([text], fields=list(target.field("inner").type)),
            pa.ListArray.from_arrays(offsets, text, type=target.field("many").type),
            pa.MapArray.from_arrays(offsets, keys, text, type=target.field("by").type),
            pa.array(ODD, pa.binary()),
        ],
        schema=target,
    )


def as_bytes(table: pa.Table) -> list[tuple[Any, ...]]:
    """Every value as bytes, in the order of ids."""
    kind = pa.schema(
        [
            ("id", pa.int64()),
            ("text", pa.binary()),
            ("inner", pa.struct([("text", pa.binary())])),
            ("many", pa.list_(pa.binary())),
            ("by", pa.map_(pa.binary(), pa.binary())),
            ("raw", pa.binary()),
        ]
    )
    plain = [table.column(name).combine_chunks() for name in kind.names]
    columns = [_bytes(column).to_pylist() for column in plain]
    return sorted(zip(*columns, strict=True), key=lambda row: row[0])


def _bytes(array: pa.Array) -> pa.Array:
    if pa.types.is_string(array.type):
        return array.cast(pa.binary())
    if pa.types.is_struct(array.type):
        return pa.StructArray.from_arrays([_bytes(array.field(0))], ["text"])
    if pa.types.is_map(array.type):
        return pa.MapArray.from_arrays(array.offsets, _bytes(array.keys), _bytes(array.items))
    if pa.types.is_list(array.type):
        return pa.ListArray.from_arrays(array.offsets, _bytes(array.flatten()))
    return array


def make_order(directory: Path, kernel: Kernel, **changes: Any) -> WorkOrder:
    inputs = []
    for number in range(2):
        path = directory / "in" / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(odd_table(number * len(ODD)), path, store_schema=False)
        inputs.append(InputFile(path=str(path), size_bytes=path.stat().st_size, records=len(ODD), sequence_number=1))
    plain: dict[str, Any] = {
        "order_id": "o",
        "group_id": 0,
        "kernels": (kernel,),
        "inputs": tuple(inputs),
        "table_schema": SCHEMA,
        "output_prefix": str(directory / "out" / "neve-1"),
        "write": WriteSettings(min_chunk_bytes=0),
    }
    return WorkOrder(**plain | changes)


def written(result: WorkResult) -> pa.Table:
    return pa.concat_tables(pq.ParquetFile(output.path).read() for output in result.outputs)


EXPECTED = [row for start in (0, len(ODD)) for row in as_bytes(odd_table(start))]
LAYOUTS = [None, "sort(text)", "sort(text desc)", "sort(truncate[3](text), id)", "z-order(text, raw)", "hilbert(text, id)"]


@pytest.mark.parametrize(("kernel", "layout"), [(Kernel.COPY, None), *((Kernel.ARROW, layout) for layout in LAYOUTS)], ids=str)
def test_a_kernel_keeps_bytes_that_are_not_utf_8(tmp_path: Path, kernel: Kernel, layout: str | None) -> None:
    order = make_order(tmp_path, kernel, layout=Layout.parse(layout) if layout else None)
    result = run_order(order, Storage({}))
    found = written(result)
    assert as_bytes(found) == EXPECTED
    if layout == "sort(text)":
        keys = [value or b"" for value in found.column("text").cast(pa.binary()).to_pylist()]
        assert all(one <= other for one, other in pairwise(keys))
    # The order and its result travel as JSON, and so do the bounds.
    assert WorkResult.model_validate_json(result.model_dump_json()).outputs == result.outputs


@pytest.mark.parametrize("mode", ["truncate(16)", "truncate(1)", "full"])
@pytest.mark.parametrize("kernel", [Kernel.COPY, Kernel.ARROW])
def test_bounds_of_such_columns_hold_for_the_bytes_and_are_text(tmp_path: Path, kernel: Kernel, mode: str) -> None:
    result = run_order(make_order(tmp_path, kernel), Storage({}))
    inputs = [live(file.path) for file in make_order(tmp_path, kernel).inputs]
    assert proof_of(result, inputs, SCHEMA, ()).holds
    (described,) = described_outputs(result, inputs, SCHEMA, {"write.metadata.metrics.default": mode})
    values = [value for value in ODD if value is not None]
    for side, worst in (("lower-bounds", min(values)), ("upper-bounds", max(values))):
        bounds = dict(zip(described[side]["keys"], described[side]["values"], strict=True)) if side in described else {}
        for field_id in (2, 4):
            if field_id in bounds:
                bound = bytes.fromhex(bounds[field_id])
                bound.decode()
                assert bound <= worst if side == "lower-bounds" else bound >= worst


def live(path: str) -> LiveFile:
    """As Iceberg's Java writer describes it: each byte that is not UTF-8 became U+FFFD."""
    lower, upper = (b"".hex().upper(), "\ufffe".encode().hex().upper())
    described = {
        "spec-id": 0,
        "content": "data",
        "file-path": path,
        "file-format": "parquet",
        "partition": [],
        "file-size-in-bytes": Path(path).stat().st_size,
        "record-count": len(ODD),
        "lower-bounds": {"keys": [2, 4], "values": [lower, lower]},
        "upper-bounds": {"keys": [2, 4], "values": [upper, upper]},
    }
    return LiveFile(described)


def test_equality_deletes_find_such_keys(tmp_path: Path) -> None:
    keys = schema(field(2, "text", "string"))
    path = tmp_path / "deletes.parquet"
    doomed = [b"x" + b"\xc3" * 30, b"\xff", b"a\x00b"]
    pq.write_table(pa.Table.from_arrays([loose(doomed, pa.string())], schema=arrow_schema(keys)), path, store_schema=False)
    delete = DeleteFile(
        kind=DeleteKind.EQUALITY,
        path=str(path),
        size_bytes=path.stat().st_size,
        records=len(doomed),
        sequence_number=2,
        equality_ids=(2,),
    )
    order = make_order(tmp_path, Kernel.ARROW, deletes=(delete,), key_fields=(field(2, "text", "string"),))
    result = run_order(order, Storage({}))
    assert as_bytes(written(result)) == [row for row in EXPECTED if row[1] not in doomed]
    assert result.rows_dropped == 2 * len(doomed)


def test_a_text_of_such_bytes_is_exact_in_spark_sql() -> None:
    (text,) = loose([b"x\xc3\x00"], pa.string())
    assert literal(text) == "CAST(X'78c300' AS STRING)"


def test_the_content_check_tells_such_bytes_apart() -> None:
    def of(text: bytes) -> object:
        return fingerprint([pa.record_batch([loose([text], pa.string())], ["text"])])

    assert of(b"x\xc3") == of(b"x\xc3")
    assert len({str(of(text)) for text in (b"x\xc3", b"x\xc4", b"x\xef\xbf\xbd", b"x")}) == 4
