"""What the service needs: policies, the fleet, jobs, workers, notices, and the history of health; and views for people.

The views are documented in docs/guide/history.md. A later migration that changes their tables drops and creates them again.
"""

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
    _views()


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
        sa.Column("vanished_ms", sa.BigInteger),
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
        sa.Column("paused_by", sa.Text),
        sa.Column("idle_until_ms", sa.BigInteger),
    )
    op.create_table(
        "health_history",
        sa.Column("table_uuid", sa.String(64), primary_key=True),
        sa.Column("inspected_ms", sa.BigInteger, primary_key=True),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("snapshot_id", sa.BigInteger),
        sa.Column("health", sa.Integer, nullable=False),
        sa.Column("data_files", sa.BigInteger, nullable=False),
        sa.Column("data_bytes", sa.BigInteger, nullable=False),
        sa.Column("small_files", sa.BigInteger, nullable=False),
        sa.Column("delete_files", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_health_history_table_name_inspected_ms", "health_history", ["table_name", "inspected_ms"])


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.String(64), primary_key=True),
        sa.Column("table_uuid", sa.String(64), nullable=False),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("operation", sa.String(32), nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False, server_default=""),
        sa.Column("decision", sa.JSON, nullable=False),
        sa.Column("rank", sa.Float, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("not_before_ms", sa.BigInteger, nullable=False),
        sa.Column("not_after_ms", sa.BigInteger),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("deaths", sa.Integer, nullable=False, server_default="0"),
        sa.Column("claimed_by", sa.Text),
        sa.Column("token", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("until_ms", sa.BigInteger),
        sa.Column("started_ms", sa.BigInteger),
        sa.Column("finished_ms", sa.BigInteger),
        sa.Column("run_id", sa.String(64)),
        sa.Column("outcome", sa.String(32)),
        sa.Column("message", sa.Text),
        sa.Column("actual", sa.JSON),
        sa.Column("cancel_requested_ms", sa.BigInteger),
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
        sa.Column("next_ms", sa.BigInteger),
        sa.Column("trouble", sa.Text),
    )
    op.create_index("ix_notices_next_ms", "notices", ["next_ms"])


def _views() -> None:
    connection = op.get_bind()
    dialect = _Postgres() if connection.dialect.name == "postgresql" else _Sqlite()
    for name, columns, source in (
        ("v_runs", _run_columns(dialect), dialect.runs),
        ("v_jobs", _job_columns(dialect), "jobs"),
        ("v_table_health", _health_columns(dialect), "health_history"),
        ("v_costs_by_day", _COST_COLUMNS, _COST_SOURCE),
    ):
        shown = ", ".join(f"{value} AS {column}" for column, value in columns.items())
        connection.exec_driver_sql(f"CREATE VIEW {name} AS SELECT {shown} FROM {source}")  # noqa: S608 - all of it stands here


class _Sqlite:
    """How SQLite says it. A document that is not JSON, such as one with a number that is none, is read as NULL."""

    runs = "runs"

    def number(self, column: str, path: str, kind: str) -> str:  # noqa: ARG002 - values have their own types
        return self.text(column, path)

    def text(self, column: str, path: str) -> str:
        return f"json_extract(CASE WHEN json_valid({column}) THEN {column} END, '$.{path}')"

    def flag(self, column: str, path: str) -> str:
        return self.text(column, path)

    def of_run(self, path: str, kind: str) -> str:
        return self.number("record", path, kind)

    def run_flag(self, path: str) -> str:
        return self.flag("record", path)

    def moment(self, column: str) -> str:
        return f"strftime('%Y-%m-%d %H:%M:%S', {column} / 1000, 'unixepoch')"


class _Postgres:
    """How PostgreSQL says it. The record of a run may be long: it is read once for all columns."""

    runs = (
        "runs CROSS JOIN LATERAL json_to_record(record) AS told (elapsed_seconds float8, session_start_seconds float8, "
        "planning_seconds float8, files_compacted bigint, files_written bigint, bytes_read bigint, bytes_written bigint, "
        "health_before integer, health_after integer, reason text, before json, after json, used json)"
    )

    def number(self, column: str, path: str, kind: str) -> str:
        return f"CAST({self.text(column, path)} AS {kind})"

    def text(self, column: str, path: str) -> str:
        return f"({column} #>> '{{{path.replace('.', ',')}}}')"

    def flag(self, column: str, path: str) -> str:
        return f"CAST(CAST({self.text(column, path)} AS boolean) AS integer)"

    def of_run(self, path: str, kind: str) -> str:
        field, _, rest = path.partition(".")
        return self.number(f"told.{field}", rest, kind) if rest else f"told.{field}"

    def run_flag(self, path: str) -> str:
        field, _, rest = path.partition(".")
        return self.flag(f"told.{field}", rest)

    def moment(self, column: str) -> str:
        return f"to_char(to_timestamp({column} / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')"


def _run_columns(dialect: _Sqlite | _Postgres) -> dict[str, str]:
    integers = ("files_compacted", "files_written", "bytes_read", "bytes_written")
    seconds = ("elapsed_seconds", "session_start_seconds", "planning_seconds")
    return {
        **{name: name for name in ("run_id", "table_name", "table_uuid")},
        "operation": "kind",
        "outcome": "outcome",
        "day": f"substr({dialect.moment('started_ms')}, 1, 10)",
        "started_at": dialect.moment("started_ms"),
        "finished_at": dialect.moment("finished_ms"),
        **{name: name for name in ("started_ms", "finished_ms")},
        **{name: dialect.of_run(name, "float8") for name in seconds},
        **{
            f"health_{when}": f"COALESCE({dialect.of_run(f'{when}.health', 'integer')}, "
            f"{dialect.of_run(f'health_{when}', 'integer')})"
            for when in ("before", "after")
        },
        **{name: dialect.of_run(name, "bigint") for name in integers},
        **{
            f"{kind}_requests": dialect.of_run(f"used.requests.{kind}", "bigint")
            for kind in ("read", "write", "list", "delete", "catalog")
        },
        **{
            f"{process}_cpu_seconds": dialect.of_run(f"used.cpu_seconds.{process}", "float8")
            for process in ("python", "jvm", "workers")
        },
        "predicted_money": dialect.of_run("used.predicted_money", "float8"),
        "money": dialect.of_run("used.money", "float8"),
        "prices": dialect.of_run("used.prices", "text"),
        "part_of_another": f"COALESCE({dialect.run_flag('used.part_of_another')}, 0)",
        "reason": dialect.of_run("reason", "text"),
    }


def _job_columns(dialect: _Sqlite | _Postgres) -> dict[str, str]:
    amounts = {"bytes": "bigint", "core_seconds": "float8", "money": "float8"}
    return {
        **{name: name for name in ("job_id", "table_name", "table_uuid", "operation", "policy", "owner", "target")},
        "state": "CASE state WHEN 'claimed' THEN 'running' ELSE state END",
        "reason": dialect.text("decision", "reason"),
        **{name: name for name in ("outcome", "message", "run_id", "attempts")},
        "worker": "claimed_by",
        "day": f"substr({dialect.moment('created_ms')}, 1, 10)",
        **{f"{name}_at": dialect.moment(f"{name}_ms") for name in ("created", "started", "finished")},
        **{name: name for name in ("created_ms", "started_ms", "finished_ms")},
        "waited_seconds": "(started_ms - created_ms) / 1000.0",
        "worked_seconds": "(finished_ms - started_ms) / 1000.0",
        **{f"predicted_{name}": dialect.number("decision", f"predicted.{name}", kind) for name, kind in amounts.items()},
        **{name: dialect.number("actual", name, kind) for name, kind in amounts.items()},
        "prices": dialect.text("actual", "prices"),
    }


def _health_columns(dialect: _Sqlite | _Postgres) -> dict[str, str]:
    return {
        **{name: name for name in ("table_name", "table_uuid")},
        "day": f"substr({dialect.moment('inspected_ms')}, 1, 10)",
        "inspected_at": dialect.moment("inspected_ms"),
        **{name: name for name in ("inspected_ms", "snapshot_id", "health", "data_files", "data_bytes")},
        "average_file_bytes": "data_bytes / NULLIF(data_files, 0)",
        **{name: name for name in ("small_files", "delete_files")},
        "is_newest": "CASE WHEN ROW_NUMBER() OVER (PARTITION BY table_uuid ORDER BY inspected_ms DESC) = 1 THEN 1 ELSE 0 END",
    }


_COST_COLUMNS = {
    **{name: name for name in ("day", "table_name", "operation", "prices")},
    "runs": "COUNT(*)",
    "failed_runs": "SUM(CASE WHEN outcome = 'failed' THEN 1 ELSE 0 END)",
    "elapsed_seconds": "SUM(elapsed_seconds)",
    "cpu_seconds": "SUM(python_cpu_seconds + jvm_cpu_seconds + workers_cpu_seconds)",
    "money": "SUM(money)",
    "runs_without_money": "SUM(CASE WHEN money IS NULL THEN 1 ELSE 0 END)",
}
_COST_SOURCE = "v_runs WHERE finished_ms IS NOT NULL AND part_of_another = 0 GROUP BY day, table_name, operation, prices"
