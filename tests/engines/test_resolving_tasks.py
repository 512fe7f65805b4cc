"""Vectors that tasks write when equality deletes are resolved: each is read back from where it is stored."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from neve.kernels.faults import UnreadableOutputError
from neve.spark.tasks import resolving_tasks
from neve.spark.tasks.resolving_tasks import WriteVectors
from tests.builders.delete_orders import GarblingStorage, MemoryStorage


def vectors_written(storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The cardinality of each vector; place 0 has the name of the data file, place 1 its first deleted rows."""
    monkeypatch.setattr(resolving_tasks, "Storage", lambda _: storage)
    monkeypatch.setattr(resolving_tasks, "keep_within_limit", lambda: None)
    rows = np.array([1, 5], "<u2").tobytes()
    found = pa.RecordBatch.from_arrays([pa.array([0, 1]), pa.array([b"a.parquet", rows])], names=["place", "positions"])
    written = WriteVectors({}, "out", apart=True)([found])
    return [cardinality for batch in written for cardinality in batch.column("cardinality").to_pylist()]


def test_a_vector_that_a_task_stored_otherwise_than_it_was_written_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert vectors_written(MemoryStorage(), monkeypatch) == [2]
    with pytest.raises(UnreadableOutputError, match=r"^Cannot use the new file out-"):
        vectors_written(GarblingStorage(20), monkeypatch)
