"""Several processes on one store: all open at once, all write at once, nothing is lost."""

from __future__ import annotations

import subprocess
import sys

import pytest

from neve.state import StateStore
from tests.builders.state_databases import POSTGRES

PROCESSES, RUNS = 3, 20

WRITER = """
import sys
from neve.table.files import Partition
from neve.state import StoredOutput, Run, StateStore

url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
with StateStore.open(url) as store:
    for n in range(count):
        run_id = f"{name}-{n}"
        store.start_run(Run(run_id=run_id, table_uuid="t", table_name="db.t", kind="compact", started_ms=n))
        store.row_groups("t")
        outputs = [StoredOutput(path=f"{run_id}.parquet", row_groups=n, bytes=1, rows=1)]
        store.add_commit(run_id, partitions=[Partition(0, "day=1")], outputs=outputs, committed_ms=n)
        store.finish_run(run_id, finished_ms=n, outcome="committed", record={"n": n})
"""


def run_writers(url: str) -> None:
    command = [sys.executable, "-c", WRITER, url]
    writers = [
        subprocess.Popen(
            [*command, str(name), str(RUNS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in range(PROCESSES)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        errors = [writer.communicate(timeout=120)[1] for writer in writers]
        assert errors == [""] * PROCESSES
        assert [writer.returncode for writer in writers] == [0] * PROCESSES
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()


@pytest.mark.parametrize("url", ["sqlite", POSTGRES], indirect=True)
def test_processes_that_create_and_write_at_the_same_time_lose_nothing(url: str) -> None:
    run_writers(url)
    with StateStore.open(url) as store:
        assert len(store.runs(limit=1000)) == PROCESSES * RUNS
        expected = {f"{name}-{n}.parquet": n for name in range(PROCESSES) for n in range(RUNS)}
        assert store.row_groups("t") == expected
        assert list(store.last_compactions("t").values()) == [RUNS - 1]
        assert {run.outcome for run in store.runs(limit=1000)} == {"committed"}
