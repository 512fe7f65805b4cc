"""The file index over a large catalog: how long it takes to build and to refresh, and a search for orphans that uses it.

Run as `python -m bench.orphan_index --work DIR`. 1,000 tables with 10,000,000 entries in real manifests, 250,000 files on disk
in the directory of one table, of which other tables imported some, and an inventory of all tables. Exits with 2 when the search
finds anything but the orphans.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.chart_page import Figures, leave, machine
from bench.own_tree import OwnTree
from bench.rewrite import CATALOG, opened
from bench.shapes_index import Forest, sized
from neve.api import Neve
from neve.maintenance.orphans import Verdict
from neve.operations.file_index import open_index
from neve.operations.requests import OrphansRequest
from neve.state import StateStore
from neve.table.units import GIB, MIB


class WrongAnswerError(Exception):
    """The search found other files than the orphans."""


@dataclass
class Row:
    """One measurement."""

    case: str
    wall_seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    loads: int = 0
    reads: int = 0
    """Files that Python opened: metadata, manifest lists, manifests."""
    counts: dict[str, int] = field(default_factory=dict)

    def cells(self) -> list[str]:
        """For the table."""
        memory = f"{self.peak_rss_bytes / MIB:,.0f}"
        return [self.case, f"{self.wall_seconds:.1f}", f"{self.cpu_seconds:.1f}", memory, f"{self.loads:,}", f"{self.reads:,}"]


class Clock:
    """The time."""

    def now_ms(self) -> int:
        """Since 1970."""
        return time.time_ns() // 10**6


def main() -> int:
    """Generates, measures, prints, writes, judges."""
    options, about = _options(), machine()
    shutil.rmtree(options.work, ignore_errors=True)
    try:
        rows, notes = _measured(options)
    except WrongAnswerError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(options.work, ignore_errors=True)
    head = ("what", "wall s", "CPU s", "peak MiB", "table loads", "files read")
    figures = Figures(head, [row.cells() for row in rows], notes=notes)
    content = {**about, "rows": [asdict(row) for row in rows]}
    leave("orphan_index", figures, content, {}, json_file=options.json, quick=options.quick)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--work", type=Path, required=True, metavar="DIR", help="a directory for the tables, removed at the end"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where figures go (bench/out/orphan_index.json)")
    parser.add_argument("--quick", action="store_true", help="few small tables: only to see that it works")
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=["index", "search"], help="index: without the searches on Spark"
    )
    parser.add_argument("--tables", type=int, default=1_000, metavar="N", help="tables (1000)")
    parser.add_argument("--entries", type=int, default=10_000_000, metavar="N", help="entries of all manifests (10000000)")
    parser.add_argument("--on-disk", type=int, default=250_000, metavar="N", help="files on disk (250000)")
    options = parser.parse_args()
    if options.quick:
        options.tables, options.entries, options.on_disk = 6, 600, 500
    return options


def _measured(options: argparse.Namespace) -> tuple[list[Row], list[str]]:
    from pyiceberg.catalog.sql import SqlCatalog

    changed = max(1, options.tables // 100)
    with opened(options.work, cores=2) as neve:
        warehouse = (options.work / "warehouse").resolve()
        catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
        started = time.monotonic()
        counts = {"tables": options.tables, "entries": options.entries, "on_disk": options.on_disk}
        forest = Forest(catalog, manifests=4, imports=min(9, changed), **counts)
        catalog.drop_table(f"bench.{forest.template.name}")
        inventory = options.work / "inventory.parquet"
        lines = forest.write_inventory(inventory)
        written = sum(sized(warehouse))
        _say(f"written in {time.monotonic() - started:.0f} s: {written / GIB:.2f} GiB")
        rows = [_index(neve, "index, cold")]
        rows.append(_index(neve, "index, no table changed"))
        forest.commit_to(changed)
        rows.append(_index(neve, f"index, {changed:,} tables changed"))
        index_bytes = (options.work / "state.db").stat().st_size
        for case, words in _searches(forest, inventory, lines) if "search" in options.only else ():
            row = _search(neve, forest, case, words)
            rows += [row] if case else []
        catalog.close()
    manifests, size = f"{rows[0].counts['manifests']:,} manifests", f"{written / GIB:.1f} GiB"
    notes = [
        f"{options.tables:,} tables, {forest.entries:,} entries in {manifests} ({size}); {len(forest.on_disk):,} files on disk",
        f"The state store with the index has {index_bytes / MIB:.1f} MiB.",
    ]
    if "search" in options.only:
        kept = f"{len(forest.imported):,} files that others imported"
        notes.append(f"The search finds {len(forest.orphans):,} orphans and keeps {kept}.")
    return rows, notes


def _searches(forest: Forest, inventory: Path, lines: int) -> Iterator[tuple[str, dict[str, Any]]]:
    # The first one starts Spark.
    yield "", {}
    yield f"neve orphans, {len(forest.on_disk):,} files listed", {}
    yield f"neve orphans, inventory of {lines:,} files", {"inventory": str(inventory)}


def _index(neve: Neve, case: str) -> Row:
    """One refresh, with processes of its own."""
    place = neve.connection

    def refresh() -> dict[str, int]:
        with StateStore.open(place.state_url) as store, ExitStack() as resources:
            index = open_index(place, store, resources)
            troubles = [one for one in index.refresh() if one.trouble]
            if troubles:
                raise WrongAnswerError(f"{troubles[0].name}: {troubles[0].trouble}")
            return dict(index.counts)

    return _row(case, refresh)


def _search(neve: Neve, forest: Forest, case: str, words: dict[str, Any]) -> Row:
    def search() -> dict[str, int]:
        record = neve.orphans(f"{CATALOG}.{forest.searched}", OrphansRequest(dry_run=True, limit=10**7, **words))
        found, kept = {file.path for file in record.files}, record.verdicts.get(Verdict.SHARED, 0)
        if found != forest.orphans or kept != len(forest.imported):
            missed, wrong = len(forest.orphans - found), len(found - forest.orphans)
            raise WrongAnswerError(f"{missed:,} orphans missed, {wrong:,} live files taken, {kept:,} kept")
        return {}

    return _row(case, search)


def _row(case: str, work: Callable[[], dict[str, int]]) -> Row:
    with OwnTree() as tree, _counted_reads() as reads:
        counts = work()
    used = tree.used
    row = Row(case, used.wall_seconds, used.cpu_seconds, used.peak_rss_bytes, counts.get("loads", 0), reads[0], counts)
    _say(f"{row.cells()}")
    return row


@contextmanager
def _counted_reads() -> Iterator[list[int]]:
    from neve.catalogs.local_file_io import LocalFile

    original, number = LocalFile.open, [0]

    def counted(self: LocalFile, *args: Any, **words: Any) -> Any:
        number[0] += 1
        return original(self, *args, **words)

    LocalFile.open = counted  # type: ignore[method-assign]
    try:
        yield number
    finally:
        LocalFile.open = original  # type: ignore[method-assign]


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
