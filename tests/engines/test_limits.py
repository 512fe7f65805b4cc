"""A Python worker under a limit takes few addresses; one without is left as it is. Each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

_WORKER = """
import resource, sys
limit = int(sys.argv[1])
if limit:
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
from neve.spark.runtime.limits import keep_within_limit
limited = keep_within_limit(), keep_within_limit()
import pyarrow as pa, pyarrow.parquet as pq
rows = pq.read_table(sys.argv[2]).num_rows
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmPeak"))
print(limited, pa.default_memory_pool().backend_name == "system", rows, int(peak) < 600_000)
"""


@pytest.mark.parametrize(
    ("limit", "told"), [(1 << 30, "(True, True) True 200000 True"), (0, "(False, False) False 200000 False")]
)
def test_only_a_worker_under_a_limit_saves_addresses(tmp_path: Path, limit: int, told: str) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"key": [f"a key of some length, number {i:09d}" for i in range(200_000)]}), file)
    command = [sys.executable, "-c", _WORKER, str(limit), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout.strip(), done.returncode) == (told, 0), done.stderr
