"""How inputs are read: few requests, windows within the budget, memory that does not grow with the input."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.errors import NeveError
from neve.kernels.arrow import WriteOptions
from neve.kernels.arrow.schema import arrow_schema
from neve.kernels.faults import CorruptFileError
from neve.table.units import KIB, MIB
from tests.builders.arrow_files import CountingSource, field, given, parquet, read, run, schema

NUMBERS = schema(*[field(i, f"c{i}", "long") for i in range(1, 5)])


def numbers(rows: int, row_group_rows: int) -> tuple[bytes, pa.Table]:
    """Numbers that do not compress: 32 bytes a row."""
    rng = np.random.default_rng(3)
    columns = [rng.integers(-(2**62), 2**62, rows) for _ in range(4)]
    table = pa.Table.from_arrays([pa.array(c) for c in columns], schema=arrow_schema(NUMBERS))
    return parquet(table, row_group_size=row_group_rows, use_dictionary=False), table


def requests(data: bytes, table: pa.Table, memory_bytes: int) -> list[tuple[int, int]]:
    source = CountingSource(data)
    result, files = run([given(data, source=source)], NUMBERS, WriteOptions(memory_bytes=memory_bytes))
    assert pa.concat_tables(pa.table(pa.Table.from_pylist(read(f))) for f in files).equals(
        pa.Table.from_pylist(table.to_pylist())
    )
    assert result.rows_read == table.num_rows
    return source.requests


def test_a_small_file_is_one_request() -> None:
    data, table = numbers(10_000, 2_500)
    assert requests(data, table, 64 * MIB) == [(0, len(data))]


def test_a_large_file_is_its_tail_and_a_request_per_window_of_row_groups() -> None:
    data, table = numbers(64_000, 8_000)
    asked = requests(data, table, 8 * MIB)
    assert len(asked) == 3
    assert asked[0][0] + asked[0][1] == len(data)
    assert all(length <= MIB for _, length in asked)
    assert sorted(asked[1:]) == asked[1:]


def test_a_row_group_larger_than_the_window_is_read_in_pieces() -> None:
    data, table = numbers(64_000, 64_000)
    asked = requests(data, table, 4 * MIB)
    assert max(length for _, length in asked) <= 512 * KIB
    assert sum(length for _, length in asked) < 1.5 * len(data)


def test_columns_that_the_table_dropped_are_not_read() -> None:
    data, _ = numbers(64_000, 64_000)
    source = CountingSource(data)
    first = schema(NUMBERS["fields"][0])
    result, _ = run([given(data, source=source)], first, WriteOptions(memory_bytes=8 * MIB))
    assert result.rows_read == 64_000
    assert sum(length for _, length in source.requests) < len(data) / 3


MEMORY = """
import resource, sys
from neve.table.units import MIB
from neve.kernels.arrow import ArrowInput, WriteOptions, rewrite
from neve.kernels.streams import LocalSource
from tests.builders.arrow_files import MemorySink, field, schema
path, rows = sys.argv[1], int(sys.argv[2])
of = schema(*[field(i, f"c{i}", "long") for i in range(1, 5)])
class Nowhere(MemorySink):
    def write(self, data): pass
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rewrite([ArrowInput(LocalSource(path), rows)], of, WriteOptions(memory_bytes=64 * MIB), lambda _: Nowhere())
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("row_group_rows", [100_000, 8_000_000])
def test_memory_stays_near_the_budget_whatever_the_row_group(
    tmp_path_factory: pytest.TempPathFactory, row_group_rows: int
) -> None:
    path = tmp_path_factory.mktemp("memory") / "in.parquet"
    data, _ = numbers(8_000_000, row_group_rows)
    path.write_bytes(data)
    del data
    command = [sys.executable, "-c", MEMORY, str(path), "8000000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 128, "MiB grown while rewriting 256 MB with a budget of 64 MiB"


TEXTS = schema(field(1, "id", "long"), field(2, "text", "string"))


def texts(**options: object) -> bytes:
    rows = [{"id": number, "text": "abc"[number % 3] if number % 7 else None} for number in range(40)]
    return parquet(rows, TEXTS, compression="none", **options)


def decodes(data: bytes) -> bool:
    """Whether pyarrow decodes the text column."""
    try:
        pq.ParquetFile(pa.BufferReader(data)).read(["text"])
    except (pa.ArrowException, OSError):
        return False
    return True


def test_a_column_that_stays_a_dictionary_is_refused_wherever_decoding_would_fail() -> None:
    good = texts()
    chunk = pq.read_metadata(pa.BufferReader(good)).row_group(0).column(1)
    refused = 0
    for at in range(chunk.dictionary_page_offset, chunk.dictionary_page_offset + chunk.total_compressed_size):
        for bit in range(8):
            data = good[:at] + bytes([good[at] ^ 1 << bit]) + good[at + 1 :]
            if not decodes(data):
                refused += 1
                with pytest.raises(NeveError, match=r"^Cannot "):
                    run([given(data)], TEXTS, WriteOptions())
    assert refused > 100


def test_a_page_with_a_wrong_checksum_is_refused() -> None:
    good = texts(write_page_checksum=True, use_dictionary=False)
    at = good.index((7).to_bytes(8, "little"))
    run([given(good)], TEXTS, WriteOptions())
    with pytest.raises(CorruptFileError, match="CRC checksum verification failed"):
        run([given(good[:at] + b"\x06" + good[at + 1 :])], TEXTS, WriteOptions())
