"""What a round of the scheduler takes on a fleet of really registered tables: the first, one without changes, one with some.

Run as `python -m bench.fleet --work DIR`. Tables are rows of a SQL catalog (SQLite) with a metadata file each, all of them
copies of two tables that were written for real: manifests can be read. Each size runs in a process of its own, so that its
memory is its own. Exits with 1 when a bar is missed, with 2 when an answer is wrong.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from bench.chart_page import Figures, leave, machine

BAR_SECONDS = 5.0
"""What a round without the first may take at most on 10,000 tables."""
BAR_TABLES = 10_000
CHANGED_SHARE = 0.01
KINDS = {"small": 12, "calm": 2}
"""Files of each kind of table. One in ten is small, and a policy wants it compacted."""
POLICIES = """
kind: policy
name: merge
tables: lake.*
operations: [compact]
triggers:
  small-files: 10
  average-file-size-below: 1 MB
  commits: 1000
---
kind: policy
name: history
tables: lake.ns1*
operations: [expire]
schedule:
  cron: 0 3 * * *
"""


@dataclass(frozen=True)
class Round:
    """One round: seconds of wall and CPU time, tables whose metadata was read, and jobs that it wanted."""

    name: str
    tables: int
    wall_seconds: float
    cpu_seconds: float
    read: int
    inspected: int
    jobs: int
    peak_mib: float


def main() -> int:
    """Generates, measures, prints, writes, judges."""
    options, about = _options(), machine()
    if options.child:
        print(json.dumps([asdict(one) for one in measure(options.work, options.child)]))
        return 0
    rows: list[Round] = []
    for tables in options.tables:
        directory = options.work / str(tables)
        shutil.rmtree(directory, ignore_errors=True)
        write_fleet(directory, tables)
        command = [sys.executable, "-m", "bench.fleet", "--work", str(directory), "--child", str(tables)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return 2
        rows += [Round(**one) for one in json.loads(done.stdout.splitlines()[-1])]
        print(*rows[-4:], sep="\n", file=sys.stderr, flush=True)
    if wrong := [row for row in rows if not _is_right(row)]:
        print("wrong:", *wrong, file=sys.stderr)
        return 2
    content = {**about, "rounds": [asdict(row) for row in rows]}
    leave("fleet", _figures(rows), content, {}, json_file=options.json, quick=options.quick)
    late = [row for row in rows if row.name != "first" and row.tables <= BAR_TABLES and row.wall_seconds > BAR_SECONDS]
    return 1 if late and not options.quick else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="a directory for the fleets")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where figures go (bench/out/fleet.json)")
    parser.add_argument("--quick", action="store_true", help="a hundred tables: only to see that it works")
    parser.add_argument("--tables", type=_sizes, default=[100, 1_000, 10_000], help="sizes of fleets")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.work = options.work.absolute()
    if options.quick:
        options.tables = [100]
    return options


def _sizes(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def write_fleet(directory: Path, tables: int) -> None:
    """Writes one real table of each kind, then registers copies under other names and uuids."""
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    directory.mkdir(parents=True)
    database = directory / "lake.db"
    catalog = SqlCatalog("lake", uri=f"sqlite:///{database}", warehouse=f"file://{directory}/lake")
    catalog.create_namespace("real")
    documents: dict[str, dict[str, Any]] = {}
    for kind, files in KINDS.items():
        # Text that does not compress: calm tables have files of more than a megabyte.
        texts = [f"{number}" for number in range(10)] if kind == "small" else [uuid4().hex + uuid4().hex for _ in range(60_000)]
        rows = pa.table({"id": range(len(texts)), "text": texts})
        table = catalog.create_table(("real", kind), schema=rows.schema)
        for _ in range(files):
            table.append(rows)
        documents[kind] = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text(encoding="utf-8"))
    catalog.close()
    with closing(sqlite3.connect(database)) as connection:
        rows_ = [_registered(directory, documents, number) for number in range(tables)]
        connection.executemany(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type) "
            "VALUES ('lake', ?, ?, ?, 'TABLE')",
            rows_,
        )
        connection.execute("DELETE FROM iceberg_tables WHERE table_namespace = 'real'")
        connection.commit()
    (directory / "neve.yaml").write_text(
        f"default-catalog: lake\ncatalogs:\n  lake:\n    type: sql\n    uri: sqlite:///{database}\n"
        f"    warehouse: {directory}/lake\nstate:\n  url: sqlite:///{directory}/state.db\n"
        f"cache:\n  directory: {directory}/cache\n",
        encoding="utf-8",
    )
    (directory / "policies.yaml").write_text(POLICIES, encoding="utf-8")


def _registered(directory: Path, documents: dict[str, dict[str, Any]], number: int) -> tuple[str, str, str]:
    """Writes the metadata of one table; returns its row."""
    document = documents["small" if number % 10 == 0 else "calm"]
    folder = directory / "metadata" / f"{number // 1000}"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{number}-0.metadata.json"
    file.write_text(json.dumps(document | {"table-uuid": str(UUID(int=number + 1))}), encoding="utf-8")
    return f"ns{number % 100}", f"t{number}", f"file://{file}"


def _change(directory: Path, tables: int) -> int:
    """Somebody commits to some tables: their rows name another metadata file. Returns how many."""
    changed = range(0, tables, round(1 / CHANGED_SHARE))
    with closing(sqlite3.connect(directory / "lake.db")) as connection:
        for number in changed:
            old = directory / "metadata" / f"{number // 1000}" / f"{number}-0.metadata.json"
            new = old.with_name(f"{number}-1.metadata.json")
            shutil.copy(old, new)
            row = (f"file://{new}", f"t{number}")
            connection.execute("UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?", row)
        connection.commit()
    return len(changed)


def measure(directory: Path, tables: int) -> list[Round]:
    """Runs rounds in this process."""
    from neve.api import Neve
    from neve.service.policies import Policies
    from neve.service.scheduler import Scheduler
    from neve.settings import load_settings

    rounds = []
    with Neve.open(load_settings(file=directory / "neve.yaml", environ={}), environ={}) as neve:
        Policies(neve.connection).apply(str(directory / "policies.yaml"))
        with neve.connection.store() as store:
            scheduler = Scheduler(neve.connection, store, holder="bench")
            for name in ("first", "no change", "no change", "1 % changed"):
                if name == "1 % changed":
                    _change(directory, tables)
                wall, cpu = time.perf_counter(), time.process_time()
                decided = scheduler.tick()
                seconds = time.perf_counter() - wall, time.process_time() - cpu
                observed = scheduler.observed
                assert decided is not None
                assert observed is not None
                peak = _peak_mib()
                rounds.append(
                    Round(
                        name,
                        tables,
                        round(seconds[0], 3),
                        round(seconds[1], 3),
                        read=observed.read,
                        inspected=len(observed.inspected),
                        jobs=len(store.jobs.waiting()),
                        peak_mib=round(peak, 1),
                    )
                )
    return rounds


def _peak_mib() -> float:
    """Of this process alone: what `getrusage` says is inherited from the one that started it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _is_right(row: Round) -> bool:
    """Every table was read once, and only what changed again; jobs are for small tables alone."""
    read = {"first": row.tables, "no change": 0, "1 % changed": len(range(0, row.tables, round(1 / CHANGED_SHARE)))}
    return row.read == read[row.name] and 0 < row.jobs <= max(1, row.tables // 10)


def _figures(rows: list[Round]) -> Figures:
    head = ("tables", "round", "wall s", "CPU s", "metadata read", "inspected", "jobs wanted so far", "peak MiB")
    lines = [
        (
            f"{row.tables:,}",
            row.name,
            f"{row.wall_seconds:.2f}",
            f"{row.cpu_seconds:.2f}",
            f"{row.read:,}",
            str(row.inspected),
            str(row.jobs),
            f"{row.peak_mib:.0f}",
        )
        for row in rows
    ]
    return Figures(head, lines, left=2)


if __name__ == "__main__":
    sys.exit(main())
