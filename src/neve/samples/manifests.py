"""Writes the manifests and the manifest list of a table of metadata.

Called by `neve.samples.metadata`. Manifests are encoded here (`neve.samples.avro`), their list by pyiceberg; both are read by
every engine.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from neve.samples import avro, entries
from neve.samples.history import Commit, Part, SampleHistory
from neve.samples.seeding import seeded

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

_EPOCH = date(1970, 1, 1)


@dataclass
class _Tally:
    """What the manifest list says of one manifest."""

    files: int = 0
    rows: int = 0
    oldest_sequence_number: int | None = None
    days: set[int] = field(default_factory=set)

    def count(self, commit: Commit, day: int, *, rows: int) -> None:
        self.files += 1
        self.rows += rows
        self.days.add(day)
        number = commit.sequence_number
        if self.oldest_sequence_number is None or number < self.oldest_sequence_number:
            self.oldest_sequence_number = number


class ManifestWriter:
    """Writes into one table's metadata folder, and counts into the history's commits what they added."""

    def __init__(self, table: Table, history: SampleHistory) -> None:
        self._table = table
        self._history = history
        self._kinds = entries.file_kinds(seeded(history.seed, "kinds"))
        self._names = seeded(history.seed, "names")

    def write_data(self, part: Part) -> ManifestFile:
        """A manifest of data files, merged or fresh."""
        tally = _Tally()
        records = list(self._data_entries(part, seeded(self._history.seed, f"files {part.files.start}"), tally))
        return self._write(records, tally, owner=part.owner, deletes=False)

    def _data_entries(self, part: Part, rng: random.Random, tally: _Tally) -> Iterator[bytes]:
        prefix = f"{self._table.location()}/data/ts_day="
        for commit, file in self._history.files_by_commit(part.files):
            day, kind = self._history.day_of(commit, rng), rng.choice(self._kinds)
            tally.count(commit, day, rows=kind.records)
            commit.count(data_files=1, records=kind.records, files_size=kind.size_bytes)
            path = f"{prefix}{_iso(day)}/{file:05d}-{commit.sequence_number}-{rng.getrandbits(128):032x}.parquet"
            origin = commit.as_added if part.owner else commit.as_existing
            yield entries.encode_data_file(origin, path, day=day, micros=int(rng.random() * entries.DAY_MICROS), kind=kind)

    def write_deletes(self, positions: int, equalities: int) -> ManifestFile:
        """A manifest of delete files, all from the last commit, on its own day and the one before."""
        rng, commit, tally = seeded(self._history.seed, "deletes"), self._history.commits[-1], _Tally()
        contents = [entries.POSITION_DELETES] * positions + [entries.EQUALITY_DELETES] * equalities
        records = []
        for n, content in enumerate(contents):
            day, rows = commit.day - n % 2, rng.randint(1, 500)
            tally.count(commit, day, rows=rows)
            commit.count(delete_files=1, files_size=entries.delete_file_bytes(rows))
            commit.count(**{"position_deletes" if content == entries.POSITION_DELETES else "equality_deletes": rows})
            path = f"{self._table.location()}/data/ts_day={_iso(day)}/{n:05d}-{rng.getrandbits(128):032x}-deletes.parquet"
            records.append(entries.encode_delete_file(commit.as_added, path, day=day, records=rows, content=content))
        return self._write(records, tally, owner=commit, deletes=True)

    def write_list(self, manifests: list[ManifestFile]) -> str:
        """The manifest list of the last commit; gives its location."""
        from pyiceberg.manifest import write_manifest_list

        last = self._history.commits[-1]
        parent = self._history.commits[-2].snapshot_id if self._history.length > 1 else None
        path = f"{self._table.location()}/metadata/snap-{last.snapshot_id}-1-{self._names.getrandbits(128):032x}.avro"
        output = self._table.io.new_output(path)
        with write_manifest_list(2, output, last.snapshot_id, parent, last.sequence_number, "deflate") as writer:
            writer.add_manifests(manifests)
        return path

    def _write(self, records: list[bytes], tally: _Tally, *, owner: Commit | None, deletes: bool) -> ManifestFile:
        header = {**self._header, "content": "deletes" if deletes else "data"}
        content = avro.container(header, records, sync=self._names.randbytes(16))
        path = f"{self._table.location()}/metadata/{self._names.getrandbits(128):032x}-m0.avro"
        # Names follow from the seed, so a write that was cut short may have left this very file.
        with self._table.io.new_output(path).create(overwrite=True) as stream:
            stream.write(content)
        # A merge is the work of the newest commit, whoever added the files.
        return _manifest_file(
            path, len(content), tally, owner or self._history.commits[-1], merged=owner is None, deletes=deletes
        )

    @cached_property
    def _header(self) -> dict[str, str]:
        from pyiceberg.manifest import data_file_with_partition, manifest_entry_schema_with_data_file
        from pyiceberg.types import NestedField, StringType, StructType
        from pyiceberg.utils.schema_conversion import AvroSchemaConversion

        schema, spec = self._table.schema(), self._table.spec()
        data_file = data_file_with_partition(spec.partition_type(schema), 2)
        # Iceberg 1.12 writes this field in v2 as well; pyiceberg's list of v2 fields ends before it.
        referenced = NestedField(143, "referenced_data_file", StringType(), required=False)
        entry = manifest_entry_schema_with_data_file(2, StructType(*data_file.fields, referenced))
        return {
            "schema": schema.model_dump_json(),
            "partition-spec": json.dumps([field.model_dump(by_alias=True, mode="json") for field in spec.fields]),
            "partition-spec-id": str(spec.spec_id),
            "format-version": "2",
            "avro.schema": json.dumps(AvroSchemaConversion().iceberg_to_avro(entry, schema_name="manifest_entry")),
        }


def _manifest_file(path: str, length: int, tally: _Tally, owner: Commit, *, merged: bool, deletes: bool) -> ManifestFile:
    from pyiceberg.manifest import ManifestContent, ManifestFile, PartitionFieldSummary

    low, high = (struct.pack("<i", day) for day in (min(tally.days), max(tally.days)))
    counts: dict[str, Any] = {}
    for status, here in (("added", not merged), ("existing", merged), ("deleted", False)):
        counts[f"{status}_files_count"] = tally.files if here else 0
        counts[f"{status}_rows_count"] = tally.rows if here else 0
    return ManifestFile.from_args(
        manifest_path=path,
        manifest_length=length,
        partition_spec_id=0,
        content=ManifestContent.DELETES if deletes else ManifestContent.DATA,
        sequence_number=owner.sequence_number,
        min_sequence_number=tally.oldest_sequence_number,
        added_snapshot_id=owner.snapshot_id,
        partitions=[PartitionFieldSummary(False, None, low, high)],
        key_metadata=None,
        **counts,
    )


@cache
def _iso(day: int) -> str:
    return (_EPOCH + timedelta(days=day)).isoformat()
