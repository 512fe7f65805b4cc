"""Deletes of an order: read once per process, within bounds, refused with a reason, and never applied by a copy."""

from __future__ import annotations

import pytest

from neve.errors import StorageError
from neve.kernels.arrow.schema import ROW_ID
from neve.kernels.deletes.cache import DeleteCache
from neve.kernels.deletes.loading import DeleteLoader
from neve.kernels.faults import CorruptFileError
from neve.kernels.orders import OrderFailedError
from neve.rewrite.group import Kernel
from neve.rewrite.work_order import WriteSettings
from neve.table.units import MIB
from tests.builders.arrow_files import field
from tests.builders.delete_orders import Case

ID = field(1, "id", "long")


def make(files: int = 2, rows: int = 5) -> Case:
    case = Case(ID)
    for i in range(files):
        case.data([{"id": 100 * i + j} for j in range(rows)])
    return case


def test_each_delete_is_read_once_per_process() -> None:
    case = make()
    case.vectors({0: [1], 1: [0, 2]})
    case.position_file({case.inputs[0].path: [3]})
    case.equality([{"id": 4}], [1])
    results = [case.run() for _ in range(3)]
    assert [result.delete_reads for result, _ in results] == [4, 0, 0]
    assert [[row["id"] for row in rows] for _, rows in results] == [[0, 2, 101, 103, 104]] * 3
    read = [path for path in case.storage.opened if "/deletes/" in path]
    assert len(read) == len(set(read)) == 3


def test_deletes_that_the_order_carries_are_not_read() -> None:
    case = make()
    case.vectors({0: [1], 1: [0, 2]}, inline=True)
    case.position_file({case.inputs[0].path: [3]}, inline=True)
    case.equality([{"id": 4}], [1], inline=True)
    result, rows = case.run()
    assert (result.delete_reads, [row["id"] for row in rows]) == (0, [0, 2, 101, 103, 104])
    assert not [path for path in case.storage.opened if "/deletes/" in path]


def test_vectors_that_lie_together_are_one_request() -> None:
    case = make(20)
    path = case.vectors({i: [i % 5] for i in range(20)})
    case.run()
    (source,) = [source for source in case.storage.sources if source.path == path]
    assert len(source.requests) == 1


def test_vectors_that_lie_far_apart_are_not_read_with_what_is_between() -> None:
    case = make(3)
    path = case.vectors({0: [1], 1: list(range(0, 3_000_000, 2)), 2: [4]})
    case.inputs[1] = case.inputs[1].model_copy(update={"deletes": ()})
    assert len(case.run()[1]) == 13
    asked = [length for source in case.storage.sources if source.path == path for _, length in source.requests]
    assert asked == [case.deletes[0].size_bytes, case.deletes[2].size_bytes]


def test_deletes_that_concern_no_input_are_not_read() -> None:
    case = make()
    case.equality([{"id": 1}], [1], number=1)
    case.position_file({"other": [1]})
    detached = [file.model_copy(update={"deletes": ()}) for file in case.inputs]
    case.inputs = detached
    result, rows = case.run()
    assert (result.delete_reads, len(rows), result.dropped) == (0, 10, {})


def test_a_position_file_that_the_cache_cannot_hold_is_read_for_the_inputs_alone() -> None:
    case = make()
    case.position_file({case.inputs[1].path: [0, 4], "other": list(range(100))})
    cache = DeleteCache(400)
    loader = DeleteLoader(case.order(), case.storage, cache)
    none, deleted = loader.positions()
    assert none is None
    assert deleted is not None
    assert (deleted.positions().tolist(), cache.held_bytes, loader.reads) == ([0, 4], 0, 1)


@pytest.mark.parametrize(("kind", "memory_bytes"), [("long", 400_000), ("string", 4 * MIB)])
def test_more_keys_than_a_quarter_of_the_memory_are_refused(kind: str, memory_bytes: int) -> None:
    """Numbers are refused by their count before anything is read, texts once they turn out to be long."""
    case = Case(field(1, "id", kind))
    keys = [{"id": i if kind == "long" else f"{i:01000d}"} for i in range(2000)]
    case.data(keys[:3])
    case.equality(keys, [1])
    with pytest.raises(OrderFailedError, match=r"arrow: .*: 2,000 keys of equality deletes take more than \d MiB$"):
        case.run(write=WriteSettings(memory_bytes=memory_bytes))
    assert [path.rpartition("/")[2] for path in case.storage.opened] == ([] if kind == "long" else ["0.parquet"])
    assert case.run(write=WriteSettings(memory_bytes=4 * memory_bytes))[0].rows_dropped == 3


def test_more_positions_of_one_file_than_a_quarter_of_the_memory_are_refused() -> None:
    case = make(1, 1000)
    case.vectors({0: list(range(0, 1000, 2))})
    with pytest.raises(OrderFailedError, match=r"500 deleted positions of .*0\.parquet take more than 0 MiB"):
        case.run(write=WriteSettings(memory_bytes=10_000))


@pytest.mark.parametrize("kind", ["positions", "equality"])
def test_deletes_in_other_formats_are_refused(kind: str) -> None:
    case = make()
    if kind == "positions":
        case.position_file({case.inputs[0].path: [3]})
    else:
        case.equality([{"id": 4}], [1])
    case.deletes = [case.deletes[0].model_copy(update={"format": "avro"})]
    with pytest.raises(OrderFailedError, match=f"0.parquet holds {kind} in avro, not in Parquet"):
        case.run()


def test_equality_deletes_need_the_numbers_of_the_inputs() -> None:
    case = make(1)
    case.data([{"id": 9}], None)
    case.equality([{"id": 4}], [1])
    with pytest.raises(OrderFailedError, match="there are equality deletes, and the sequence number of an input is not known"):
        case.run()


def test_a_key_of_no_schema_or_of_a_type_without_equality_is_refused() -> None:
    case = make()
    case.equality([{"id": 4}], [77])
    with pytest.raises(OrderFailedError, match="compares field 77, which no schema of the table has"):
        case.run()
    with pytest.raises(OrderFailedError, match="compares column v of type variant"):
        case.run(key_fields=(field(77, "v", "variant"),))


def test_a_missing_delete_file_fails_with_its_name() -> None:
    for kind in ("vector", "positions", "equality"):
        case = make()
        if kind == "vector":
            case.vectors({0: [1]})
        elif kind == "positions":
            case.position_file({case.inputs[0].path: [1]})
        else:
            case.equality([{"id": 4}], [1])
        del case.storage.files[case.deletes[0].path]
        with pytest.raises(StorageError, match=f"Cannot open {case.deletes[0].path}: there is no such file"):
            case.run()


def test_a_vector_with_a_wrong_checksum_fails_with_its_name_and_leaves_no_output() -> None:
    case = make()
    path = case.vectors({0: [1], 1: [2]})
    right = case.storage.files[path]
    data = bytearray(right)
    last = case.deletes[1]
    data[(last.offset or 0) + last.size_bytes - 1] ^= 1
    case.storage.files[path] = bytes(data)
    with pytest.raises(CorruptFileError, match=f"Cannot read {path}: the checksum of its deletion vector is wrong"):
        case.run()
    assert not [name for name in case.storage.files if name.startswith("out/")]
    case.storage.files[path] = right
    assert len(case.run()[1]) == 8


def test_a_copy_is_refused_where_rows_are_deleted() -> None:
    case = make()
    case.vectors({1: [0, 2]})
    result, rows = case.run(Kernel.COPY, Kernel.ARROW)
    assert result.kernel is Kernel.ARROW
    assert result.refusals == (f"copy: rows of {case.inputs[1].path} are deleted (2)",)
    assert (len(rows), result.delete_reads) == (8, 1)

    case = make()
    case.equality([{"id": -1}], [1])
    result, rows = case.run(Kernel.COPY, Kernel.ARROW)
    assert (result.refusals, len(rows)) == (("copy: equality deletes apply (1)",), 10)


def test_a_copy_heeds_only_deletes_that_concern_it_and_says_where_rows_went() -> None:
    case = make()
    case.data([])
    case.data([{"id": 7}])
    case.position_file({"other": [1]})
    case.equality([{"id": 1}], [1], number=1)
    result, rows = case.run(Kernel.COPY)
    assert (result.kernel, len(rows), result.delete_reads) == (Kernel.COPY, 11, 1)
    positions = result.positions
    assert positions is not None
    assert [positions.inputs.tolist(), positions.output_starts.tolist()] == [[0, 1, 3], [0, 5, 10]]
    assert positions.lengths.tolist() == [5, 5, 1]


def test_an_order_whose_rows_are_all_deleted_writes_nothing_and_says_so() -> None:
    case = make(1)
    case.vectors({0: list(range(5))})
    result, _ = case.run()
    assert (result.outputs, result.rows_dropped, result.dropped[1].values) == ((), 5, 5)
    assert result.positions is not None
    assert len(result.positions) == 0


def test_rows_that_stay_keep_their_lineage() -> None:
    case = Case(ID)
    case.data([{"id": i} for i in range(6)], 3, first_row_id=1000)
    case.vectors({0: [0, 4]})
    case.equality([{"id": 2}], [1], 5)
    result, rows = case.run(row_lineage=True)
    assert [(row["id"], row["_row_id"], row["_last_updated_sequence_number"]) for row in rows] == [
        (1, 1001, 3),
        (3, 1003, 3),
        (5, 1005, 3),
    ]
    assert (result.kept[ROW_ID].values, result.dropped[ROW_ID].values) == (3, 3)


def test_the_cache_holds_so_many_bytes_and_forgets_what_was_not_asked_for_longest() -> None:
    cache = DeleteCache(10)
    for name in "abc":
        cache.put(name, name.upper(), 3)
    assert cache.get("a") == "A"
    cache.put("d", "D", 3)
    assert [cache.get(name) for name in "abcd"] == ["A", None, "C", "D"]
    cache.put("a", "AA", 4)
    assert (cache.get("a"), cache.held_bytes) == ("AA", 10)
    cache.put("a", "too large", 11)
    assert (cache.get("a"), cache.held_bytes) == (None, 6)
