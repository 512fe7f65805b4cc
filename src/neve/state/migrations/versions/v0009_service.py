"""What the service needs: policies, the fleet, jobs, workers, notices, and the history of health."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only: going back means restoring the copy."""
    _policies()
    _fleet()
    _jobs()
    _processes()


def _policies() -> None:
    op.create_table(
        "policies",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
        sa.Column("changed_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "policy_versions",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("document", sa.JSON),
        sa.Column("changed_ms", sa.BigInteger, nullable=False),
        sa.Column("changed_by", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False, server_default=""),
    )


def _fleet() -> None:
    op.create_table(
        "fleet",
        sa.Column("table_name", sa.Text, primary_key=True),
        sa.Column("catalog", sa.Text, nullable=False),
        sa.Column("table_uuid", sa.String(64)),
        sa.Column("metadata_location", sa.Text),
        sa.Column("observed_ms", sa.BigInteger, nullable=False),
        sa.Column("observation", sa.JSON),
        sa.Column("trouble", sa.Text),
        sa.Column("hinted_ms", sa.BigInteger),
    )
    op.create_index("ix_fleet_catalog", "fleet", ["catalog"])
    op.create_table(
        "table_operations",
        sa.Column("table_uuid", sa.String(64), primary_key=True),
        sa.Column("operation", sa.String(32), primary_key=True),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("started_ms", sa.BigInteger, nullable=False),
        sa.Column("finished_ms", sa.BigInteger),
        sa.Column("outcome", sa.String(32)),
        sa.Column("counters", sa.JSON, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
        sa.Column("paused_until_ms", sa.BigInteger),
    )
    op.create_table(
        "health_history",
        sa.Column("table_uuid", sa.String(64), primary_key=True),
        sa.Column("looked_ms", sa.BigInteger, primary_key=True),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("snapshot_id", sa.BigInteger),
        sa.Column("health", sa.Integer, nullable=False),
        sa.Column("data_files", sa.BigInteger, nullable=False),
        sa.Column("data_bytes", sa.BigInteger, nullable=False),
        sa.Column("small_files", sa.BigInteger, nullable=False),
        sa.Column("delete_files", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_health_history_table_name_looked_ms", "health_history", ["table_name", "looked_ms"])


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.String(64), primary_key=True),
        sa.Column("table_uuid", sa.String(64), nullable=False),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("operation", sa.String(32), nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("decision", sa.JSON, nullable=False),
        sa.Column("rank", sa.Float, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("not_before_ms", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("claimed_by", sa.Text),
        sa.Column("token", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("until_ms", sa.BigInteger),
        sa.Column("started_ms", sa.BigInteger),
        sa.Column("finished_ms", sa.BigInteger),
        sa.Column("run_id", sa.String(64)),
        sa.Column("outcome", sa.String(32)),
        sa.Column("told", sa.Text),
        sa.Column("actual", sa.JSON),
    )
    op.create_index("ix_jobs_state_rank", "jobs", ["state", "rank"])
    op.create_index("ix_jobs_finished_ms", "jobs", ["finished_ms"])
    op.create_index("ix_jobs_table_uuid_created_ms", "jobs", ["table_uuid", "created_ms"])
    _unique_while("ix_jobs_one_claim_per_table", ["table_uuid"], "claimed")
    _unique_while("ix_jobs_one_waiting_per_operation", ["table_uuid", "operation"], "waiting")


def _unique_while(name: str, columns: list[str], state: str) -> None:
    where = sa.text(f"state = '{state}'")
    op.create_index(name, "jobs", columns, unique=True, sqlite_where=where, postgresql_where=where)


def _processes() -> None:
    op.create_table(
        "workers",
        sa.Column("worker", sa.String(200), primary_key=True),
        sa.Column("started_ms", sa.BigInteger, nullable=False),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
        sa.Column("doing", sa.Text),
        sa.Column("figures", sa.JSON, nullable=False),
    )
    op.create_table(
        "roles",
        sa.Column("role", sa.String(64), primary_key=True),
        sa.Column("holder", sa.String(200), nullable=False),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "notices",
        sa.Column("notice_id", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("content", sa.JSON, nullable=False),
        sa.Column("sent", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("next_ms", sa.BigInteger, nullable=False),
        sa.Column("trouble", sa.Text),
    )
    op.create_index("ix_notices_sent_next_ms", "notices", ["sent", "next_ms"])
