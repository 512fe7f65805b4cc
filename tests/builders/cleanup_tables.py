"""Tables for expiry, orphan removal and quarantine with a real state store and a clock that tests move."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import NoSuchTableError

from neve.api import Neve
from neve.errors import BadRequestError, InDoubtError
from neve.maintenance.quarantine import Fate, Quarantined
from neve.settings import load_settings
from neve.spark.table.bridge import TableBridge
from tests.accidents.unguarded import Taking
from tests.builders.orphan_tables import Yard
from tests.builders.spark_tables import Bench
from tests.builders.table_integrity import assert_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS = count(1)


class Moved:
    """The clock, or that of some days later."""

    days: float = 0

    def now_ms(self) -> int:
        return int((time.time() + self.days * 86400) * 1000)


@dataclass
class Recorded:
    """What a table has in the quarantine and still in its place."""

    neve: Neve
    table: str

    @property
    def files(self) -> dict[str, Quarantined]:
        return {file.path: file for file in self.neve.quarantined(self.table) if file.fate is Fate.RECORDED}


class Written(NamedTuple):
    """A file, as its writer knows it."""

    path: str
    size_bytes: int
    rows: int


@dataclass
class Site(Yard):
    """A table, and what is done to it."""

    clock: Moved

    def search(self, **asked: Any) -> None:
        """Removes orphans, or is refused; and then comes the worst that can come of it: all that was recorded is gone."""
        with suppress(InDoubtError, BadRequestError):
            self.run(**asked)
            self.sweep()

    def clear(self) -> None:
        """The days go by in which what was recorded goes to the trash and then for good."""
        self.clock.days += 2
        self.neve.settle(self.name)
        self.clock.days += 10
        self.neve.purge(self.name)

    def write(self, relative: str, *ids: int, days: float = 10) -> Written:
        """A file with rows that is not committed, as old as this."""
        buffer = pa.BufferOutputStream()
        pq.write_table(rows(ids), buffer)
        content = buffer.getvalue().to_pybytes()
        return Written(self.plant(relative, days=days, content=content), len(content), len(ids))

    def commit(self, file: Written, home: str = "") -> None:
        """What the writer of such a file does in the end, whether it is still there or not; `home` goes before its path."""
        # In a session of its own: the table that others have loaded learns of it only when they ask.
        table = TableBridge(self.bench.spark.newSession(), self.neve.connection.name(self.name)).table
        builder = iceberg(self).DataFiles.builder(table.spec()).withPath(home + file.path).withFormat("parquet")
        table.newAppend().appendFile(builder.withFileSizeInBytes(file.size_bytes).withRecordCount(file.rows).build()).commit()

    def sweep(self) -> None:
        for path in list(self.quarantine.files):
            plain(path).unlink()

    def assert_whole(self, **ids: range | list[int]) -> None:
        assert_whole(self.load(), ids)


def rows(ids: Sequence[int]) -> pa.Table:
    """With the ids of the columns, as every writer of Iceberg leaves them."""
    kinds = (("id", pa.int64()), ("_day", pa.string()))
    fields = [pa.field(name, kind, metadata={"PARQUET:field_id": str(i)}) for i, (name, kind) in enumerate(kinds, 1)]
    return pa.table([pa.array(ids, pa.int64()), ["monday"] * len(ids)], schema=pa.schema(fields))


def plain(path: str) -> Path:
    """Where a file lies on the disk, whatever store it is said to be in."""
    return Path(re.sub(r"^[a-z0-9]+:(//[^/]*)?", "", path))


def assert_there(paths: Iterable[str]) -> None:
    lost = [path for path in paths if not plain(path).is_file()]
    assert not lost, f"lost files: {lost}"


def iceberg(site: Site) -> Any:
    return site.bench.spark._jvm.org.apache.iceberg


def listed(*homes: Path) -> list[tuple[str, int, int]]:
    """Every file below these, as a row of an inventory."""
    found = [path for home in homes for path in sorted(home.rglob("*")) if path.is_file()]
    return [(str(path), path.stat().st_size, path.stat().st_mtime_ns // 10**6) for path in found]


def write_inventory(path: Path, files: list[tuple[str, int, int]]) -> str:
    names, sizes, moments = (list(column) for column in zip(*files, strict=True))
    pq.write_table(pa.table({"path": names, "size": sizes, "modified": moments}), path)
    return str(path)


def said(owner: Any, name: str, answer: Any) -> Taking:
    """A value that is no function, replaced."""

    @contextmanager
    def replaced() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(owner, name, answer)
            yield

    return replaced


Make = Callable[..., Site]


@contextmanager
def making(spark: SparkSession, warehouse: Path, directory: Path) -> Iterator[Make]:
    """Makes tables; they are gone afterwards, since a table that an accident broke would be everybody's neighbour."""
    clock, made = Moved(), list[Site]()
    settings = load_settings(environ={}, flags={"state.url": f"sqlite:///{directory}/quarantine.db"})
    with Neve.open(settings, warehouse=str(warehouse), environ={}, clock=clock) as neve:
        neve.connection.session = spark

        def make(
            properties: dict[str, str] | None = None, *, location: Path | None = None, name: str | None = None, ids: int = 30
        ) -> Site:
            """Ids from 0 on, ten in a snapshot; everything is ten days old."""
            bench = Bench(spark, warehouse, "accidents", name or f"site{next(_NUMBERS)}")
            home = location or warehouse / "accidents" / bench.name
            site = Site(bench, neve, Recorded(neve, f"accidents.{bench.name}"), home, clock)  # type: ignore[arg-type]
            site.create(properties)
            made.append(site)
            for start in range(0, ids, 10):
                site.append(start, start + 10)
            site.age()
            return site

        yield make
        neve.connection.session = None
    for site in made:
        with closing(site.bench.catalog()) as catalog, suppress(NoSuchTableError):
            catalog.drop_table(("accidents", site.bench.name))
        shutil.rmtree(site.home, ignore_errors=True)
