"""The tables as the newest migration leaves them, and the names of all migrations.

Queries are written against these; a test compares them with what the migrations really build. Times are milliseconds since
the epoch.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

VERSIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009")
"""Every schema version that this release knows, oldest first."""
HEAD = VERSIONS[-1]

VERSION_TABLE = "neve_version"
"""Ours, and not Alembic's default: the database may be shared with another application that uses Alembic too."""

VIEWS = ("v_runs", "v_jobs", "v_table_health", "v_costs_by_day")
"""Views for people, made by migration 0009 and described in docs/guide/history.md."""

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

policies = Table(
    "policies",
    metadata,
    Column("kind", String(16), primary_key=True),
    Column("name", String(100), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("document", JSON, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
)

# The audit: every version that was ever in force. A document of null is a deletion.
policy_versions = Table(
    "policy_versions",
    metadata,
    Column("kind", String(16), primary_key=True),
    Column("name", String(100), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("document", JSON),
    Column("changed_ms", BigInteger, nullable=False),
    Column("changed_by", Text, nullable=False),
    Column("source", Text, nullable=False, server_default=""),
)

fleet = Table(
    "fleet",
    metadata,
    Column("table_name", Text, primary_key=True),
    Column("catalog", Text, nullable=False),
    Column("table_uuid", String(64)),
    Column("metadata_location", Text),
    Column("observed_ms", BigInteger, nullable=False),
    Column("observation", JSON),
    Column("trouble", Text),
    Column("hinted_ms", BigInteger),
    Column("vanished_ms", BigInteger),
    Index("ix_fleet_catalog", "catalog"),
)

table_operations = Table(
    "table_operations",
    metadata,
    Column("table_uuid", String(64), primary_key=True),
    Column("operation", String(32), primary_key=True),
    Column("table_name", Text, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("finished_ms", BigInteger),
    Column("outcome", String(32)),
    Column("counters", JSON, nullable=False),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("paused_until_ms", BigInteger),
    Column("paused_by", Text),
    Column("idle_until_ms", BigInteger),
)

jobs = Table(
    "jobs",
    metadata,
    Column("job_id", String(64), primary_key=True),
    Column("table_uuid", String(64), nullable=False),
    Column("table_name", Text, nullable=False),
    Column("operation", String(32), nullable=False),
    Column("policy", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("scopes", Text, nullable=False, server_default=""),
    Column("decision", JSON, nullable=False),
    Column("rank", Float, nullable=False),
    Column("target", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("not_before_ms", BigInteger, nullable=False),
    Column("not_after_ms", BigInteger),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("deaths", Integer, nullable=False, server_default="0"),
    Column("claimed_by", Text),
    Column("token", BigInteger, nullable=False, server_default="0"),
    Column("until_ms", BigInteger),
    Column("started_ms", BigInteger),
    Column("finished_ms", BigInteger),
    Column("run_id", String(64)),
    Column("outcome", String(32)),
    Column("message", Text),
    Column("actual", JSON),
    Column("cancel_requested_ms", BigInteger),
    Index("ix_jobs_state_rank", "state", "rank"),
    Index("ix_jobs_finished_ms", "finished_ms"),
    Index("ix_jobs_table_uuid_created_ms", "table_uuid", "created_ms"),
)
Index(
    "ix_jobs_one_claim_per_table",
    jobs.c.table_uuid,
    unique=True,
    sqlite_where=text("state = 'claimed'"),
    postgresql_where=text("state = 'claimed'"),
)
Index(
    "ix_jobs_one_waiting_per_operation",
    jobs.c.table_uuid,
    jobs.c.operation,
    unique=True,
    sqlite_where=text("state = 'waiting'"),
    postgresql_where=text("state = 'waiting'"),
)

workers = Table(
    "workers",
    metadata,
    Column("worker", String(200), primary_key=True),
    Column("started_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    Column("doing", Text),
    Column("figures", JSON, nullable=False),
)

# Who does what only one process at a time should do, such as scheduling.
roles = Table(
    "roles",
    metadata,
    Column("role", String(64), primary_key=True),
    Column("holder", String(200), nullable=False),
    Column("until_ms", BigInteger, nullable=False),
)

notices = Table(
    "notices",
    metadata,
    Column("notice_id", String(64), primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("owner", Text, nullable=False),
    Column("content", JSON, nullable=False),
    Column("sent", Boolean, nullable=False, server_default=text("false")),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("next_ms", BigInteger),
    Column("trouble", Text),
    Index("ix_notices_next_ms", "next_ms"),
)

health_history = Table(
    "health_history",
    metadata,
    Column("table_uuid", String(64), primary_key=True),
    Column("inspected_ms", BigInteger, primary_key=True),
    Column("table_name", Text, nullable=False),
    Column("snapshot_id", BigInteger),
    Column("health", Integer, nullable=False),
    Column("data_files", BigInteger, nullable=False),
    Column("data_bytes", BigInteger, nullable=False),
    Column("small_files", BigInteger, nullable=False),
    Column("delete_files", BigInteger, nullable=False),
    Index("ix_health_history_table_name_inspected_ms", "table_name", "inspected_ms"),
)
