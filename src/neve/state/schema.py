"""The tables as the newest migration leaves them, and the names of all migrations.

Queries are written against these; a test compares them with what the migrations really build. Times are milliseconds since
the epoch.
"""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, ForeignKey, Index, Integer, LargeBinary, MetaData, String, Table, Text

VERSIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008")
"""Every schema version that this release knows, oldest first."""
HEAD = VERSIONS[-1]

VERSION_TABLE = "neve_version"
"""Ours, and not Alembic's default: the database may be shared with another application that uses Alembic too."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_N_label)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

runs = Table(
    "runs",
    metadata,
    Column("run_id", String(64), primary_key=True),
    Column("table_uuid", String(64), nullable=False),
    Column("table_name", Text, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("finished_ms", BigInteger),
    Column("outcome", String(32)),
    Column("record", JSON, nullable=False),
    Column("owner", Text),
    Column("plan", JSON),
    Column("token", BigInteger, nullable=False, server_default="1"),
    Column("until_ms", BigInteger),
    Index("ix_runs_table_uuid_started_ms", "table_uuid", "started_ms"),
)

# Partitions and outputs describe the table, not the run: they stay when the run is pruned, hence no foreign key.
partitions_compacted = Table(
    "partitions_compacted",
    metadata,
    Column("run_id", String(64), primary_key=True),
    Column("spec_id", Integer, primary_key=True),
    Column("partition", Text, primary_key=True),
    Column("table_uuid", String(64), nullable=False),
    Column("committed_ms", BigInteger, nullable=False),
    Column("branch", Text, nullable=False, server_default="main"),
    Column("snapshot_id", BigInteger),
    # With every column that plans ask for: a year of hourly runs is half a million rows, read by each plan.
    Index(
        "ix_partitions_compacted_newest",
        "table_uuid",
        "spec_id",
        "partition",
        "committed_ms",
        "branch",
        "snapshot_id",
        "run_id",
    ),
)

outputs = Table(
    "outputs",
    metadata,
    Column("table_uuid", String(64), primary_key=True),
    Column("path", Text, primary_key=True),
    Column("run_id", String(64), nullable=False),
    Column("row_groups", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Index("ix_outputs_run_id", "run_id"),
)

run_groups = Table(
    "run_groups",
    metadata,
    Column("run_id", String(64), ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
    Column("group_id", Integer, primary_key=True),
    Column("state", String(32), nullable=False),
    Column("output_prefix", Text, nullable=False),
    Column("result", JSON),
)

leases = Table(
    "leases",
    metadata,
    Column("table_uuid", String(64), primary_key=True),
    Column("run_id", String(64), nullable=False),
    Column("owner", Text, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
)

chores = Table(
    "chores",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("done_ms", BigInteger, nullable=False),
)

quarantine = Table(
    "quarantine",
    metadata,
    Column("table_uuid", String(64), primary_key=True),
    Column("path", Text, primary_key=True),
    Column("run_id", String(64), nullable=False),
    Column("fate", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("size_bytes", BigInteger),
    Column("recorded_ms", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
    Column("trash_path", Text),
    Column("modified_ms", BigInteger),
    Index("ix_quarantine_due", "table_uuid", "fate", "changed_ms", "path"),
)

file_index = Table(
    "file_index",
    metadata,
    Column("table_name", Text, primary_key=True),
    Column("catalog", Text, nullable=False),
    Column("table_uuid", String(64), nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("entries", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Index("ix_file_index_catalog", "catalog"),
)
