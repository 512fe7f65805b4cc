"""Settings of `neve serve`: how often it looks for work, how much it does at a time, and where jobs run."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from neve.settings.section import ContradictionError, FreeText, Section
from neve.table.units import GIB, Bytes, Seconds

LOCAL = "local"
"""The target that is always there: the Spark that the settings describe."""


class TargetSettings(Section):
    """A place where jobs run."""

    kind: Literal["local", "spark", "submit"] = Field(
        "spark",
        description="`local` runs jobs as a command would. `spark` keeps a session on another master. `submit` runs "
        "`spark-submit` for each job.",
    )
    master: str | None = Field(None, description="The Spark master URL; needed for `spark` and `submit`.", min_length=1)
    max_concurrency: int = Field(1, description="The most jobs at a time. Each has a worker process of its own.", ge=1, le=64)
    max_bytes: Bytes | None = Field(None, description="Jobs that would read more go to another target.", gt=0)
    conf: dict[str, FreeText] = Field(default={}, description="Spark properties of this target, besides those of `spark.conf`.")

    @model_validator(mode="after")
    def _has_master(self) -> Self:
        if self.kind != "local" and self.master is None:
            raise ContradictionError(f"is needed for a target of kind {self.kind}", "master")
        return self


class ServiceSettings(Section):
    """What `neve serve` does."""

    tick_seconds: Seconds = Field(30, alias="tick", description="Time between two rounds of the scheduler.", gt=0)
    claim_seconds: Seconds = Field(
        60, alias="claim", description="A worker that gives no sign of life for this long loses its job to another.", ge=5
    )
    shutdown_grace_seconds: Seconds = Field(
        60, alias="shutdown-grace", description="How long a running job may go on after the service was asked to stop.", ge=0
    )
    max_worker_memory: Bytes = Field(
        6 * GIB, description="A worker that has grown beyond this is replaced after its job, Spark included.", gt=0
    )
    max_worker_jobs: int = Field(500, description="A worker is replaced after this many jobs.", ge=1)
    max_job_seconds: Seconds = Field(
        12 * 3600, alias="max-job-time", description="A job that takes longer is interrupted.", gt=0
    )
    catalog_requests: int = Field(600, description="The most requests to each catalog in one round.", ge=1)
    inspections: int = Field(20, description="The most tables whose manifests are read in one round.", ge=0)
    keep_jobs_seconds: Seconds = Field(
        90 * 86400, alias="keep-jobs", description="Jobs that ended longer ago are forgotten.", gt=0
    )
    history_namespace: str | None = Field(
        None,
        description="A namespace, such as `lake.neve`, in which the service keeps its history as Iceberg tables. None are kept "
        "unless it is set.",
        min_length=1,
    )
    history_every_seconds: Seconds = Field(
        3600, alias="history-every", description="How often new history is appended to these tables.", gt=0
    )
    targets: dict[str, TargetSettings] = Field(
        default={}, description="Places where jobs run, by name. `local` is always there, with one job at a time unless set."
    )

    def all_targets(self) -> dict[str, TargetSettings]:
        """Every target, `local` included."""
        return {LOCAL: TargetSettings(kind="local")} | self.targets
