"""Tables that exist only as metadata: manifests that name up to millions of data files which were never written.

Called by the inspection benchmark and by tests of large tables. The manifests look like those that Iceberg's Java writer
makes: statistics of twelve columns, merged (existing) entries, small manifests of fresh ones. Same seed, same table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from neve.samples import entries
from neve.samples.history import Commit, SampleHistory
from neve.samples.manifests import ManifestWriter

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot, Summary


@dataclass(frozen=True)
class MetadataTable:
    """What was written."""

    identifier: tuple[str, ...]
    metadata_location: str
    data_files: int
    delete_files: int
    manifests: int
    manifest_bytes: int


def write_metadata_table(
    catalog: Catalog,
    identifier: tuple[str, ...],
    *,
    files: int,
    seed: int = 0,
    snapshots: int = 400,
    entries_per_manifest: int = 8_000,
    position_deletes: int = 0,
    equality_deletes: int = 0,
) -> MetadataTable:
    """Registers a table of `files` data files and the given delete files, none of which exists.

    Nor do the manifest lists of its history, but for the last.
    """
    table = create(catalog, identifier)
    history = SampleHistory(seed=seed, files=files, length=snapshots)
    writer = ManifestWriter(table, history)
    manifests = [writer.write_data(part) for part in history.parts(entries_per_manifest)]
    if position_deletes + equality_deletes:
        manifests.append(writer.write_deletes(position_deletes, equality_deletes))
    old = [f"{table.location()}/metadata/snap-{commit.snapshot_id}-1-expired.avro" for commit in history.commits[:-1]]
    location = register(catalog, table, history, [*old, writer.write_list(manifests)])
    return MetadataTable(
        identifier=identifier,
        metadata_location=location,
        data_files=files,
        delete_files=position_deletes + equality_deletes,
        manifests=len(manifests),
        manifest_bytes=sum(manifest.manifest_length for manifest in manifests),
    )


def create(catalog: Catalog, identifier: tuple[str, ...]) -> Table:
    """An empty table of twelve columns, partitioned by day."""
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import DayTransform

    catalog.create_namespace_if_not_exists(identifier[:-1])
    day = PartitionField(source_id=entries.TIMESTAMP_ID, field_id=1000, transform=DayTransform(), name="ts_day")
    return catalog.create_table(identifier, entries.table_schema(), partition_spec=PartitionSpec(day))


def register(catalog: Catalog, table: Table, history: SampleHistory, manifest_lists: Sequence[str]) -> str:
    """Gives a table every commit as a snapshot, each with its manifest list; where its metadata is now."""
    location = _write_metadata(table, _snapshots(history, manifest_lists))
    catalog.drop_table(table.name())  # only the name goes; the table comes back under it with its history
    catalog.register_table(table.name(), location)
    return location


def _snapshots(history: SampleHistory, manifest_lists: Sequence[str]) -> list[Snapshot]:
    from pyiceberg.table.snapshots import Snapshot

    totals = accumulate((commit.added for commit in history.commits), _add)
    parents = [None, *(commit.snapshot_id for commit in history.commits)]
    return [
        Snapshot(
            snapshot_id=commit.snapshot_id,
            parent_snapshot_id=parent,
            sequence_number=commit.sequence_number,
            timestamp_ms=commit.timestamp_ms,
            manifest_list=manifest_list,
            summary=_summary(commit, total),
            schema_id=0,
        )
        for commit, parent, total, manifest_list in zip(history.commits, parents, totals, manifest_lists, strict=False)
    ]


def _add(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    return {key: left[key] + right[key] for key in left}


def _summary(commit: Commit, total: dict[str, int]) -> Summary:
    from pyiceberg.table.snapshots import Operation, Summary

    added = {f"added-{key}": str(value) for key, value in commit.added.items() if value}
    operation = Operation.OVERWRITE if commit.added["delete-files"] else Operation.APPEND
    return Summary(operation, **added, **{f"total-{key}": str(value) for key, value in total.items()})


def _write_metadata(table: Table, snapshots: list[Snapshot]) -> str:
    from pyiceberg.serializers import ToOutputFile
    from pyiceberg.table.metadata import TableMetadataUtil
    from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
    from pyiceberg.table.snapshots import SnapshotLogEntry

    log = [SnapshotLogEntry(snapshot_id=found.snapshot_id, timestamp_ms=found.timestamp_ms) for found in snapshots]
    last = snapshots[-1]
    document = table.metadata.model_copy(
        update={
            "snapshots": snapshots,
            "current_snapshot_id": last.snapshot_id,
            "last_sequence_number": last.sequence_number,
            "last_updated_ms": last.timestamp_ms,
            "refs": {"main": SnapshotRef(snapshot_id=last.snapshot_id, snapshot_ref_type=SnapshotRefType.BRANCH)},
            "snapshot_log": log,
        }
    )
    location = f"{table.location()}/metadata/{len(snapshots):05d}-{document.table_uuid}.metadata.json"
    # A trip through JSON proves the document before anything points to it.
    checked = TableMetadataUtil.parse_raw(document.model_dump_json())
    ToOutputFile.table_metadata(checked, table.io.new_output(location))
    return location
