"""A catalog for `bench/orphan_index.py`: many tables with real manifests, one table with real files, an inventory of all.

The manifests of one table are encoded once. Every other table has the same bytes with its own directory in every path, which
is as long as the first one's, so that writing ten million entries takes minutes.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.shapes_metadata import Scattered
from neve.catalogs.live_paths import live_paths
from neve.samples import avro
from neve.samples.history import Part
from neve.samples.manifests import ManifestWriter, _manifest_file, _Tally
from neve.samples.metadata import create, register
from neve.samples.seeding import seeded

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import ManifestFile

OLD = 1_700_000_000
"""When the files on disk were written, in seconds."""
_SYNC = bytes(range(16))
_RECORDS_PER_BLOCK = 120


@dataclass
class Template:
    """The manifests of one table, not compressed; `name` is in every path once."""

    catalog: Catalog
    files: int
    manifests: int
    name: str = "t0000"
    parts: list[tuple[list[bytes], _Tally]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.history = Scattered(seed=2, files=self.files, length=1)
        self.writer = ManifestWriter(create(self.catalog, ("bench", self.name)), self.history)
        for n in range(self.manifests):
            part = Part(
                range(self.files * n // self.manifests, self.files * (n + 1) // self.manifests), self.history.commits[0]
            )
            tally = _Tally()
            self.parts.append((list(self.writer._data_entries(part, seeded(2, f"files {n}"), tally)), tally))

    @cached_property
    def header(self) -> bytes:
        """What stands before the blocks of a manifest."""
        pairs = {**self.writer._header, "content": "data", "avro.codec": "deflate"}
        encoded = b"".join(avro.string(key) + avro.string(value) for key, value in pairs.items())
        return b"Obj\x01" + avro.integer(len(pairs)) + encoded + b"\0" + _SYNC

    @cached_property
    def blocks(self) -> list[list[tuple[int, bytes]]]:
        """Of each manifest, the records of each block."""
        size = _RECORDS_PER_BLOCK
        return [
            [(len(some), b"".join(some)) for some in (records[at : at + size] for at in range(0, len(records), size))]
            for records, _ in self.parts
        ]

    def manifest(self, number: int, *changes: tuple[bytes, bytes]) -> bytes:
        """One manifest with texts of the same length exchanged in its paths."""
        made = [self.header]
        for count, raw in self.blocks[number]:
            for old, new in changes:
                raw = raw.replace(old, new)
            deflate = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
            packed = deflate.compress(raw) + deflate.flush()
            made += [avro.integer(count), avro.integer(len(packed)), packed, _SYNC]
        return b"".join(made)


class Forest:
    """All tables. `searched` is the one whose files are on disk; some of the others imported files from its directory."""

    def __init__(self, catalog: Catalog, *, tables: int, entries: int, manifests: int, on_disk: int, imports: int) -> None:
        self.catalog, self.tables, self.imports = catalog, tables, imports
        self.template = Template(catalog, entries // tables, manifests)
        self.entries = tables * (entries // tables)
        self.searched = "bench.t9999"
        self.own = list[str]()
        self.imported = list[str]()
        for number in range(1, tables + 1):
            self._write(f"t{number:04d}", imports=number <= imports)
        self._write_searched(on_disk)

    def _change(self, name: str) -> tuple[bytes, bytes]:
        return f"/bench/{self.template.name}/".encode(), f"/bench/{name}/".encode()

    def _write(self, name: str, *, imports: bool) -> None:
        table = create(self.catalog, ("bench", name))
        contents = [self.template.manifest(n, self._change(name)) for n in range(len(self.template.parts))]
        tallies = [tally for _, tally in self.template.parts]
        if imports:
            # Ten at most: the directory must be as long as the one in its place.
            taken = self.template.manifest(0, self._change("t9999"), (b"/data/", f"/imp{name[-1]}/".encode()))
            contents.append(taken)
            tallies.append(tallies[0])
            self.imported += live_paths(taken, name)
        self._register(table, contents, tallies)

    def _register(self, table: Any, contents: list[bytes], tallies: list[_Tally]) -> list[str]:
        writer, commit = ManifestWriter(table, self.template.history), self.template.history.commits[0]
        written = list["ManifestFile"]()
        for number, (content, tally) in enumerate(zip(contents, tallies, strict=True)):
            path = f"{table.location()}/metadata/{number:032x}-m0.avro"
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(content)
            written.append(_manifest_file(path, len(content), tally, commit, merged=False, deletes=False))
        manifest_list = writer.write_list(written)
        location = register(self.catalog, table, self.template.history, [manifest_list])
        return [location, manifest_list, *(manifest.manifest_path for manifest in written)]

    def _write_searched(self, on_disk: int) -> None:
        """Its own files, the imported ones, and orphans, as many as there are imported ones: all of them on disk."""
        table = create(self.catalog, ("bench", "t9999"))
        orphans = len(self.imported)
        own = on_disk - len(self.imported) - orphans
        history = Scattered(seed=3, files=own, length=1)
        writer, count = ManifestWriter(table, history), max(1, own // 8_000)
        parts = [Part(range(own * n // count, own * (n + 1) // count), history.commits[0]) for n in range(count)]
        written = [writer.write_data(part) for part in parts]
        register(self.catalog, table, history, [writer.write_list(written)])
        for manifest in written:
            self.own += live_paths(Path(manifest.manifest_path).read_bytes(), manifest.manifest_path)
        data = f"{table.location()}/data"
        self.orphans = {f"{data}/ts_day=2025-02-{n % 28 + 1:02d}/lost-{n:06d}.parquet" for n in range(orphans)}
        self.on_disk = [*self.own, *self.imported, *self.orphans]
        for path in self.on_disk:
            _touch(path)

    def write_inventory(self, target: Path) -> int:
        """Every file of every table, and the orphans; how many lines it has."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        one = [path for n in range(len(self.template.parts)) for path in live_paths(self.template.manifest(n), "template")]
        template, lines = pa.array(one), 0
        schema = pa.schema([("path", pa.string()), ("size", pa.int64()), ("modified", pa.int64())])
        with pq.ParquetWriter(target, schema) as writer:
            for number in range(1, self.tables + 1):
                changed = pc.replace_substring(template, f"/{self.template.name}/", f"/t{number:04d}/")
                lines += _put(writer, schema, changed)
            lines += _put(writer, schema, pa.array(self.on_disk))
        return lines

    def commit_to(self, tables: int) -> None:
        """One more snapshot in so many tables, with one manifest of one file."""
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        for number in range(1, tables + 1):
            table = self.catalog.load_table(f"bench.t{number:04d}")
            file = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"{table.location()}/data/ts_day=2025-05-01/new.parquet",
                file_format=FileFormat.PARQUET,
                partition=Record(20_000),
                record_count=1,
                file_size_in_bytes=1,
            )
            file.spec_id = table.spec().spec_id
            with table.transaction() as change, change.update_snapshot().fast_append() as append:
                append.append_data_file(file)


def _put(writer: Any, schema: Any, paths: Any) -> int:
    import numpy as np
    import pyarrow as pa

    sizes, moments = np.ones(len(paths), dtype=np.int64), np.full(len(paths), OLD * 1000, dtype=np.int64)
    writer.write_table(pa.table([paths, sizes, moments], schema=schema))
    return len(paths)


_made = set[str]()


def _touch(path: str) -> None:
    directory = path.rpartition("/")[0]
    if directory not in _made:
        Path(directory).mkdir(parents=True, exist_ok=True)
        _made.add(directory)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    os.utime(path, (OLD, OLD))


def sized(directory: Path) -> Iterator[int]:
    """The sizes of all files below."""
    for root, _, files in os.walk(directory):
        yield from ((Path(root) / name).stat().st_size for name in files)
