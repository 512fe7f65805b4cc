"""A table whose snapshots are expired on real Iceberg, and read back without the code under test."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.types import LongType, NestedField

from neve.catalogs.file_io import LiteralFileIO
from neve.catalogs.live_paths import live_files
from neve.catalogs.references import TableReferences
from neve.maintenance.expiry import ExpiryRecord
from neve.maintenance.quarantine import Candidate
from neve.maintenance.retention import Rules, SnapshotHistory
from neve.operations.expire_snapshots import ExpiryTerms, expire
from neve.operations.reachable import Reachable
from neve.ports import Reachability
from neve.spark.maintenance.expiry import SparkSnapshotRemoval
from neve.spark.maintenance.reachable import SparkReachability
from neve.spark.table.bridge import TableBridge
from neve.table.document import outline, read_document
from neve.table.location import Spellings
from tests.builders.contexts import FakeContext
from tests.builders.quarantine_lists import ListedQuarantine
from tests.builders.spark_tables import Bench

DAY = 86_400_000
WEEK = Rules(keep_ms=7 * DAY, min_count=1)


def rows(ids: Iterable[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def head(table: Table) -> int:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


class Later:
    """A clock that is some days ahead, so that all snapshots are old."""

    def __init__(self, days: float) -> None:
        self.days = days

    def now_ms(self) -> int:
        return int(time.time() * 1000 + self.days * DAY)


class StrikingPast(SparkSnapshotRemoval):
    """Before whose first commit something happens, after everything was decided; or whose first answer is lost."""

    strike: Callable[[], object] | None = None
    loses_answer: Exception | None = None

    def expire(self, history: SnapshotHistory, snapshots: Any, *, refs: Any = (), properties: Mapping[str, str]) -> bool:
        if self.strike is not None:
            strike, self.strike = self.strike, None
            strike()
        done = super().expire(history, snapshots, refs=refs, properties=properties)
        if self.loses_answer is not None:
            lost, self.loses_answer = self.loses_answer, None
            raise lost
        return done


def on_spark(bench: Bench, bridge: TableBridge) -> Reachability:
    """Finds reachable files as for a large table."""
    return SparkReachability(bench.spark, bridge)


def in_python(bench: Bench, bridge: TableBridge) -> Reachability:
    """Finds reachable files as for a small table."""
    return Reachable(bridge, lambda: version_of(bench), live_files, on_spark(bench, bridge))


class Agreeing:
    """Asks for reachable files in Python and on Spark, and fails if the answers differ."""

    def __init__(self, bench: Bench, bridge: TableBridge) -> None:
        self._spark, self._plain = on_spark(bench, bridge), in_python(bench, bridge)

    def lost_since(self, metadata_location: str) -> Iterator[Candidate]:
        found = list(self._plain.lost_since(metadata_location))
        assert _sizes(found) == _sizes(self._spark.lost_since(metadata_location))
        yield from found

    def lost_without(self, snapshots: Collection[int]) -> Iterator[Candidate]:
        found = list(self._plain.lost_without(snapshots))
        assert _sizes(found) == _sizes(self._spark.lost_without(snapshots))
        yield from found

    def needed(self, paths: Iterable[str]) -> Iterator[str]:
        asked = list(paths)
        found = set(self._plain.needed(asked))
        assert found == set(self._spark.needed(asked))
        yield from found


def version_of(bench: Bench) -> TableReferences:
    """The table as its catalog has it now."""
    location, io = bench.load().metadata_location, LiteralFileIO()
    with io.new_input(location).open() as stream:
        return TableReferences(outline(read_document(stream.read(), location), location), io)


def _sizes(found: Iterable[Candidate]) -> set[tuple[str, int | None]]:
    return {(Spellings.of().parse(one.path).key, one.size_bytes) for one in found}


@dataclass
class Expiring:
    """A table, and the quarantine that its files go to. `reach` finds the files that nothing needs any more."""

    bench: Bench
    days: float = 10
    quarantine: ListedQuarantine = field(default_factory=ListedQuarantine)
    reach: Callable[[Bench, TableBridge], Reachability] = Agreeing

    def sql(self, statement: str) -> Any:
        return self.bench.sql(statement)

    @classmethod
    def make(cls, bench: Bench, **properties: str) -> Expiring:
        """A new table. It is written by pyiceberg, which takes no time."""
        with closing(bench.catalog()) as catalog:
            schema = Schema(NestedField(1, "id", LongType(), required=False))
            catalog.create_table((bench.namespace, bench.name), schema, properties={"format-version": "2"} | properties)
        return cls(bench)

    def append(self, *ids: int, branch: str = "main") -> None:
        self.change(lambda table: table.append(rows(ids), branch=branch))

    def overwrite(self, *ids: int) -> None:
        """All that was there goes."""
        self.change(lambda table: table.overwrite(rows(ids)))

    def tag(self, name: str, at: int | None = None, **limits: int) -> None:
        self.change(lambda table: table.manage_snapshots().create_tag(at or head(table), name, **limits).commit())

    def branch(self, name: str, **limits: int) -> None:
        self.change(lambda table: table.manage_snapshots().create_branch(head(table), name, **limits).commit())

    def add_statistics(self) -> None:
        """A file that the metadata names as statistics of the current snapshot; nobody looks into it."""

        def add(table: Table) -> None:
            at, path = head(table), Path(f"{table.location()}/metadata/{head(table)}.stats".removeprefix("file://"))
            path.write_bytes(b"PFA1")
            sizes = {"file-size-in-bytes": 4, "file-footer-size-in-bytes": 4, "blob-metadata": []}
            described = StatisticsFile.model_validate({"snapshot-id": at, "statistics-path": str(path), **sizes})
            with table.update_statistics() as update:
                update.set_statistics(described)

        self.change(add)

    def change(self, how: Callable[[Table], object]) -> None:
        with closing(self.bench.catalog()) as catalog:
            how(catalog.load_table((self.bench.namespace, self.bench.name)))

    def snapshot(self, ref: str = "main") -> int:
        return self.bench.load().metadata.refs[ref].snapshot_id

    def snapshots(self) -> list[int]:
        """Oldest first."""
        return [s.snapshot_id for s in sorted(self.bench.load().metadata.snapshots, key=lambda s: s.timestamp_ms)]

    def expire(
        self,
        rules: Rules = WEEK,
        *,
        strike: Callable[[], object] | None = None,
        loses_answer: Exception | None = None,
        tools: Mapping[str, Any] | None = None,
        **asked: Any,
    ) -> ExpiryRecord:
        state = self.bench.state()
        bridge = TableBridge(self.bench.spark, state.name)
        past = StrikingPast(bridge)
        past.strike, past.loses_answer = strike, loses_answer
        given = dict(tools or {})
        files = given.pop("files", None) or self.reach(self.bench, bridge)
        made = FakeContext(bridge, Later(self.days), name=state.name, uuid=state.uuid, quarantine=self.quarantine)
        context: Any = replace(made, **given)
        return expire(context, past, files, ExpiryTerms(rules, **asked))

    def ids_of_refs(self) -> dict[str, list[int]]:
        """The rows of every ref, as pyiceberg reads them."""
        table = self.bench.load()
        return {
            name: sorted(table.scan(snapshot_id=ref.snapshot_id, selected_fields=("id",)).to_arrow()["id"].to_pylist())
            for name, ref in table.metadata.refs.items()
        }

    def remove_recorded(self) -> set[str]:
        """What nobody does so soon: every file that was written down is removed from the disk."""
        for path in self.quarantine.recorded:
            Path(path.removeprefix("file:")).unlink()
        return self.quarantine.recorded

    def on_disk(self) -> set[str]:
        """Every file under the table's directory, without checksums that Hadoop puts beside them."""
        directory = self.bench.warehouse / self.bench.namespace / self.bench.name
        return {str(path) for path in directory.rglob("*") if path.is_file() and not path.name.endswith(".crc")}

    def named(self) -> set[str]:
        """Every file that the metadata names, as pyiceberg walks it: all snapshots, manifests and entries."""
        table, found = self.bench.load(), set[str]()
        found |= {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
        found |= {file.statistics_path for file in table.metadata.statistics}
        for snapshot in table.metadata.snapshots:
            found.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                found.add(manifest.manifest_path)
                found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)}
        return {path.removeprefix("file://").removeprefix("file:") for path in found}
