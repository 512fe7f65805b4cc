"""Opening files: by readers that did not write them, where they are stored, and never so that the process ends."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.errors import StorageError
from neve.kernels.arrow import ArrowInput, WriteOptions, rewrite
from neve.kernels.faults import CopyRefusedError, CorruptFileError, UnreadableOutputError
from neve.kernels.opening import check_footer, confirm_output, misread_column, open_parquet, read_tail
from neve.kernels.orders import run_order
from neve.kernels.parquet.copying import copy_row_groups
from neve.kernels.streams import BytesSource, Sink
from neve.rewrite.group import Kernel
from neve.rewrite.work_order import OpenedFile
from neve.storage.files import Storage
from tests.builders.parquet_files import (
    MemorySink,
    Struct,
    edited,
    group,
    make_file,
    meta,
    other_kind,
    raw_footer,
    sample_table,
    thrift,
)
from tests.builders.work_orders import TABLE_SCHEMA, make_order, two_files, written


def copied(*files: bytes) -> bytes:
    sink = MemorySink()
    copy_row_groups([BytesSource(data, f"{i}.parquet") for i, data in enumerate(files)], None, sink)
    return sink.data


def re_encoded(data: bytes) -> None:
    rewrite([ArrowInput(BytesSource(data, "0.parquet"), 100)], TABLE_SCHEMA, WriteOptions(), lambda _: MemorySink())


def other_levels(data: bytes) -> bytes:
    """The same file with one level more in a histogram of levels, which makes pyarrow end the process."""

    def change(footer: Struct) -> None:
        meta(footer, 1)[16][1][3][1][1].append(0)

    return edited(data, change)


def test_one_byte_that_changes_a_fields_kind_is_refused_before_the_output_exists() -> None:
    good, damaged = make_file(), other_kind(make_file(sample_table(50, 100)))
    with pytest.raises(OSError, match="Couldn't deserialize thrift"):
        pq.read_metadata(io.BytesIO(damaged))
    with pytest.raises(CorruptFileError, match=r"^Cannot read 1.parquet: .*field 1 of PageEncodingStats is of kind 6, not 5$"):
        copied(good, damaged)


def test_an_input_that_only_pyarrow_finds_unreadable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neve.kernels.parquet.strict.check_kind", lambda *_: None)
    with pytest.raises(CorruptFileError, match=r"^Cannot read 1.parquet: pyarrow cannot open it, Couldn't deserialize thrift"):
        copied(make_file(), other_kind(make_file(sample_table(50, 100))))


KERNELS: dict[str, Callable[[bytes], object]] = {"copy": copied, "arrow": re_encoded}


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_footer_over_which_pyarrow_would_end_the_process_is_called_corrupt(kernel: str) -> None:
    damaged = other_levels(make_file())
    with pytest.raises(CorruptFileError, match=r"^Cannot read 0.parquet: .*column name counts 3 levels in field 3 and has 2$"):
        KERNELS[kernel](damaged)


def test_pyarrow_ends_the_process_over_a_histogram_of_another_length(tmp_path: Path) -> None:
    """The reason for checking footers before pyarrow does. Once this fails, pyarrow has been fixed."""
    path = tmp_path / "damaged.parquet"
    path.write_bytes(other_levels(make_file()))
    code = f"import pyarrow.parquet as pq; pq.read_metadata({str(path)!r}).row_group(0).column(1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode < 0
    assert "histogram size mismatch" in done.stderr


def test_a_footer_that_cannot_be_copied_is_checked_all_the_same() -> None:
    """An objection ends the parsing for a copy early; the arrow kernel must not meet the rest unchecked."""

    def unknown_codec(footer: Struct) -> None:
        meta(footer)[4] = (thrift.I32, 99)
        meta(footer, 1)[16][1][3][1][1].append(0)

    damaged = edited(make_file(), unknown_codec)
    with pytest.raises(CopyRefusedError, match="field 4 of ColumnMetaData is 99, which this version does not know"):
        copied(damaged)
    with pytest.raises(CorruptFileError, match="column name counts 3 levels"):
        re_encoded(damaged)


def beyond_the_end(footer: Struct) -> None:
    group(footer)[6] = (thrift.I64, 10**6)


def before_the_start(footer: Struct) -> None:
    group(footer)[6] = (thrift.I64, -(10**6))


def unknown_codec(footer: Struct) -> None:
    """Nothing is wrong with it, but it cannot be copied."""
    meta(footer, 1)[4] = (thrift.I32, 99)


@pytest.mark.parametrize("can_be_copied", [True, False])
@pytest.mark.parametrize(("edit", "claim"), [(beyond_the_end, "1000000"), (before_the_start, "-1000000")])
def test_a_row_group_whose_middle_is_outside_of_the_file_is_corrupt(
    edit: Callable[[Struct], None], claim: str, can_be_copied: bool
) -> None:
    """Iceberg's reader in Spark leaves out its rows."""
    data = edited(make_file(), edit)
    data = data if can_be_copied else edited(data, unknown_codec)
    with pytest.raises(CorruptFileError, match=rf"^Cannot read 0.parquet: its footer makes no sense, a row group .*{claim} "):
        check_footer("0.parquet", len(data), data)


@pytest.mark.parametrize("can_be_copied", [True, False])
def test_a_column_chunk_that_is_larger_than_its_file_is_corrupt(can_be_copied: bool) -> None:
    """Iceberg's reader in Spark asks for as much memory."""
    data = edited(make_file(), lambda footer: meta(footer).update({7: (thrift.I64, 10**9)}))
    data = data if can_be_copied else edited(data, unknown_codec)
    with pytest.raises(CorruptFileError, match=r"^Cannot read 0.parquet: .*spans bytes 4 to 1000000004, the data 4 to \d+$"):
        check_footer("0.parquet", len(data), data)


def test_files_that_cannot_be_copied_are_right_all_the_same() -> None:
    def elsewhere(footer: Struct) -> None:
        """Its first column is in a file of its own, of which this one knows no size."""
        group(footer)[1][1][1][0][1] = (thrift.BINARY, b"other.parquet")
        meta(footer)[7] = (thrift.I64, 10**9)

    def empty_group(footer: Struct) -> None:
        group(footer)[3] = (thrift.I64, 0)
        meta(footer)[9] = (thrift.I64, 0)

    for edit in (unknown_codec, elsewhere, lambda footer: (unknown_codec(footer), empty_group(footer))):
        data = edited(make_file(), edit)
        assert [leaf.name for leaf in check_footer("0.parquet", len(data), data).leaves] == sample_table().schema.names


@pytest.mark.parametrize("strictly", [False, True])
def test_an_opened_file_tells_rows_row_groups_and_columns(strictly: bool) -> None:
    data = make_file(row_group_size=30)
    reader = "pyarrow and strict parser" if strictly else "pyarrow"
    expected = OpenedFile(reader=reader, size_bytes=len(data), rows=100, row_groups=4, columns=3)
    assert open_parquet(BytesSource(data), strictly=strictly) == expected


@pytest.mark.parametrize("strictly", [False, True])
@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ([("id", pa.int64()), ("x", pa.int64()), ("x", pa.int64())], "x"),
        ([("x", pa.struct([("a", pa.int64())])), ("x", pa.struct([("b", pa.int64())]))], "x"),
        ([("s", pa.struct([("a", pa.int64()), ("a", pa.int64())]))], "s.a"),
    ],
)
def test_an_output_with_two_columns_of_one_name_is_refused(
    tmp_path: Path, columns: list[tuple[str, pa.DataType]], name: str, strictly: bool
) -> None:
    path = tmp_path / "a.parquet"
    rows = [pa.nulls(2, kind) for _, kind in columns]
    pq.write_table(pa.Table.from_arrays(rows, schema=pa.schema([pa.field(*column) for column in columns])), path)
    with pytest.raises(UnreadableOutputError, match=f"two of its columns are called {name}"):
        confirm_output(Storage({}), str(path), path.stat().st_size, strictly=strictly)


def test_a_file_that_was_changed_since_it_was_written_is_not_opened(tmp_path: Path) -> None:
    path, data = tmp_path / "a.parquet", make_file()
    path.write_bytes(data)
    assert confirm_output(Storage({}), str(path), len(data), strictly=True).rows == 100
    path.write_bytes(data + b"\0")
    with pytest.raises(UnreadableOutputError, match=f"has {len(data) + 1} bytes, and {len(data)} were written") as caught:
        confirm_output(Storage({}), str(path), len(data), strictly=False)
    assert "Nothing was committed" in str(caught.value.hint)
    path.write_bytes(other_kind(data))
    with pytest.raises(UnreadableOutputError, match=f"Cannot use the new file {re.escape(str(path))}: pyarrow cannot open it"):
        confirm_output(Storage({}), str(path), len(data), strictly=False)
    path.unlink()
    with pytest.raises(StorageError, match="No such file"):
        confirm_output(Storage({}), str(path), len(data), strictly=False)


class Garbling(Storage):
    """Stores other bytes than were written: the last page of every file is lost, or a byte of its footer is."""

    def __init__(self, change: bytes) -> None:
        super().__init__({})
        self.change = change

    def sink(self, location: str) -> Sink:
        return _GarblingSink(super().sink(location), self.change)


class _GarblingSink:
    def __init__(self, sink: Sink, change: bytes) -> None:
        self._sink, self._change, self._data = sink, change, bytearray()

    def write(self, data: bytes | memoryview) -> None:
        self._data += data

    def close(self) -> None:
        at = len(self._data) - 8 - int.from_bytes(self._data[-8:-4], "little")
        self._data[at : at + len(self._change)] = self._change
        self._sink.write(bytes(self._data))
        self._sink.close()

    def abort(self) -> None:
        self._sink.abort()

    def take_back(self) -> None:
        self._sink.take_back()


@pytest.mark.parametrize("kernel", [Kernel.COPY, Kernel.ARROW])
def test_an_output_that_does_not_open_where_it_is_stored_fails_the_order_and_is_removed(tmp_path: Path, kernel: Kernel) -> None:
    order = make_order(tmp_path, two_files(), kernels=(kernel,))
    with pytest.raises(UnreadableOutputError, match=r"^Cannot use the new file .*out/neve-1-.*\.parquet: "):
        run_order(order, Garbling(b"\x18"))
    assert written(tmp_path) == []
    result = run_order(order, Garbling(b""))
    assert [output.opened.rows for output in result.outputs if output.opened] == [150]


def test_arrow_outputs_are_opened_by_a_reader_that_is_not_pyarrow(tmp_path: Path) -> None:
    result = run_order(make_order(tmp_path, two_files(), kernels=(Kernel.ARROW,)), Storage({}))
    (output,) = result.outputs
    assert output.opened is not None
    assert output.opened.reader == "pyarrow and strict parser"
    assert (output.opened.rows, output.opened.columns, output.opened.size_bytes) == (150, 3, output.size_bytes)


# Extremes


def test_three_thousand_columns_are_copied_and_open() -> None:
    fields = [pa.field(f"c{i}", pa.int32(), metadata={"PARQUET:field_id": str(i + 1)}) for i in range(3000)]
    table = pa.table([[1, 2]] * 3000, schema=pa.schema(fields))
    output = copied(make_file(table), make_file(table))
    assert open_parquet(BytesSource(output), strictly=True).columns == 3000
    assert pq.read_table(io.BytesIO(output)).column(2999).to_pylist() == [1, 2, 1, 2]


def test_as_many_row_groups_as_can_be_numbered_are_copied_and_one_more_is_refused() -> None:
    schema = pa.schema([pa.field("id", pa.int32(), metadata={"PARQUET:field_id": "1"})])
    table = pa.table([range(4096)], schema=schema)
    one, last = (make_file(table.slice(0, n), row_group_size=1, use_dictionary=False, compression="none") for n in (4096, 4095))
    output = copied(*[one] * 7, last)
    assert open_parquet(BytesSource(output)).row_groups == 32_767
    assert pq.read_metadata(io.BytesIO(output)).row_group(32_766).num_rows == 1
    with pytest.raises(CopyRefusedError, match="32768 row groups are more than the 32767 that one file can number"):
        copied(*[one] * 8)


@pytest.mark.parametrize("claim", [2**31 - 1, 2**62], ids=["2 G", "2 E"])
@pytest.mark.parametrize("field", [5, 6, 7, 9])
def test_a_number_that_asks_for_more_memory_than_there_is_is_refused_without_asking(field: int, claim: int) -> None:
    def change(footer: Struct) -> None:
        meta(footer)[field] = (thrift.I64, claim)
        footer[3] = (thrift.I64, claim)
        footer[4][1][1][0][3] = (thrift.I64, claim)

    with pytest.raises((CorruptFileError, CopyRefusedError)):
        copied(edited(make_file(), change))


def test_a_list_that_claims_a_billion_elements_is_refused() -> None:
    data = make_file()
    raw = raw_footer(data)
    at = raw.index(b"\x19\x4c")  # the schema, a list of four structs
    longer = raw[: at + 1] + b"\xfc\xff\xff\xff\xff\x07" + raw[at + 2 :]
    whole = data[: -8 - len(raw)] + longer + len(longer).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(CorruptFileError, match=r"0\.parquet"):
        copied(whole)


def test_of_an_encrypted_footer_only_the_size_is_known() -> None:
    data = make_file()[:-4] + b"PARE"
    assert open_parquet(BytesSource(data)) == OpenedFile(reader="its size", size_bytes=len(data))


@pytest.mark.parametrize(
    ("column", "kind", "reason"),
    [
        (pa.array([1], pa.timestamp("us")), "timestamp", None),
        (pa.array([1], pa.timestamp("ms", "UTC")), "timestamptz", "column c has milliseconds, which"),
        (pa.array([1], pa.timestamp("ns")), "timestamp", "column c has nanoseconds, which"),
        (pa.array([1], pa.timestamp("ns")), "timestamp_ns", None),
        (pa.array([Decimal("1.50")], pa.decimal128(9, 2)), "decimal(12, 2)", None),
        (pa.array([Decimal("1.500")], pa.decimal128(9, 3)), "decimal(9, 2)", "column c is decimal128(9, 3), which"),
    ],
)
def test_values_that_icebergs_vectorized_reader_takes_for_others_are_noticed(
    column: pa.Array, kind: str, reason: str | None
) -> None:
    out = io.BytesIO()
    pq.write_table(pa.table([column], schema=pa.schema([pa.field("c", column.type, metadata={"PARQUET:field_id": "1"})])), out)
    found = misread_column("f", read_tail(BytesSource(out.getvalue())), {1: kind})
    assert found is None if reason is None else str(found).startswith(reason)


def test_int96_is_read_right_whatever_its_unit() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"c": pa.array([1], pa.timestamp("ns"))}), out, use_deprecated_int96_timestamps=True)
    assert misread_column("f", read_tail(BytesSource(out.getvalue())), {1: "timestamp"}) is None
