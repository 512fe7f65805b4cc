"""The tables in which the service keeps its history: their columns, and what identifies a row. Pure.

Each table has the rows of a view of the state store that will not change any more. The guide is docs/guide/history.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "whole", "number", "flag", "moment"]


@dataclass(frozen=True)
class HistoryTable:
    """One table. A column of kind `moment` is filled from the view's column of the same name and `_ms`."""

    name: str
    view: str
    key: tuple[str, ...]
    """The view's columns that identify a row. A run that is resumed after it ended has a row for each end."""
    moment: str
    """The column by which rows come. Tables are partitioned by its month, as text."""
    columns: dict[str, Kind]

    def source(self, column: str) -> str:
        """The view's column that fills a column."""
        return f"{column}_ms" if self.columns[column] == "moment" else column


def _all(kind: Kind, names: str) -> dict[str, Kind]:
    return dict.fromkeys(names.split(), kind)


RUNS = HistoryTable(
    name="runs",
    view="v_runs",
    key=("run_id", "finished_ms"),
    moment="finished",
    columns={
        **_all("text", "run_id table_name table_uuid operation outcome reason"),
        **_all("moment", "started finished"),
        **_all("number", "elapsed_seconds session_start_seconds planning_seconds"),
        **_all("whole", "health_before health_after files_compacted files_written bytes_read bytes_written"),
        **_all("whole", "read_requests write_requests list_requests delete_requests catalog_requests"),
        **_all("number", "python_cpu_seconds jvm_cpu_seconds workers_cpu_seconds predicted_money money"),
        **_all("text", "prices"),
        **_all("flag", "part_of_another"),
    },
)
JOBS = HistoryTable(
    name="jobs",
    view="v_jobs",
    key=("job_id", "finished_ms"),
    moment="finished",
    columns={
        **_all("text", "job_id table_name table_uuid operation policy owner target state reason outcome message run_id worker"),
        **_all("whole", "attempts"),
        **_all("moment", "created started finished"),
        **_all("number", "waited_seconds worked_seconds"),
        **_all("whole", "predicted_bytes"),
        **_all("number", "predicted_core_seconds predicted_money"),
        **_all("whole", "bytes"),
        **_all("number", "core_seconds money"),
        **_all("text", "prices"),
    },
)
HEALTH = HistoryTable(
    name="health",
    view="v_table_health",
    key=("table_uuid", "inspected_ms"),
    moment="inspected",
    columns={
        **_all("text", "table_name table_uuid"),
        **_all("moment", "inspected"),
        **_all("whole", "snapshot_id health data_files data_bytes average_file_bytes small_files delete_files"),
    },
)
HISTORY_TABLES = (RUNS, JOBS, HEALTH)
