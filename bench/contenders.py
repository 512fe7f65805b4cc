"""Who competes in `bench/rewrite.py`: Iceberg's own procedure at several settings, and our kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.shapes import Written
from neve.api import Neve
from neve.rewrite.group import Kernel
from neve.rewrite.planner import Request
from neve.rewrite.record import RunOutcome

ICEBERG = "rewrite_data_files"


@dataclass(frozen=True)
class Contender:
    """Someone who rewrites a table from start to finish, commit included."""

    name: str
    settings: str
    run: Callable[[], None]


class DeclinedError(Exception):
    """A kernel did not take the table, and says why: not a failure, but no time either."""


def ours(neve: Neve, written: Written, kernel: Kernel, *, pinned: bool = True) -> Contender:
    """One of our kernels, pinned or to be chosen by the plan: inspection, plan, rewrite, proof, commit and record."""

    def run() -> None:
        record = neve.compact(written.table, request=Request(kernel=kernel if pinned else None, force=True))
        if record.outcome is not RunOutcome.DONE:
            reasons = {group.reason for group in record.groups if group.snapshot_id is None}
            raise RuntimeError(f"{kernel} ended {record.outcome}: {'; '.join(sorted(reasons))[:500]}")
        if set(record.kernels) != {kernel}:
            refusals = next((group.refusals[0] for group in record.groups if group.refusals), record.groups[0].kernel)
            raise DeclinedError(str(refusals))

    return Contender(str(kernel), "asked for" if pinned else "chosen by the plan", run)


def iceberg(spark: Any, written: Written, options: Mapping[str, str]) -> Contender:
    """The procedure with these options; codec and level are the table's."""
    catalog, _, name = written.table.partition(".")
    given = {"target-file-size-bytes": str(written.target_bytes), "rewrite-all": "true", **options}
    pairs = ", ".join(f"'{key}', '{value}'" for key, value in given.items())
    call = f"CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map({pairs}))"
    return Contender(ICEBERG, _words(options), lambda: spark.sql(call).collect())


def iceberg_options(written: Written) -> list[dict[str, str]]:
    """One group or one per output, 1, 2 or 5 of them at a time, one commit or one per group.

    Where there are deletes, executors keep those that they have read. Up to 500 files the first setting is tried without that,
    too, since it is the default; beyond, it would take hours: every delete is opened once for each data file.
    """
    share = str(max(1, int(written.bytes / written.shape.outputs * 1.02)))
    found = []
    for partial in ("false", "true"):
        commits = {"partial-progress.enabled": partial}
        found.append({**commits, "max-concurrent-file-group-rewrites": "5"})
        for groups in ("1", "2", "5"):
            found.append({**commits, "max-concurrent-file-group-rewrites": groups, "max-file-group-size-bytes": share})
    if written.shape.has_deletes:
        default = found[:1] if written.shape.files <= 500 else []
        return [*({**options, "cache-delete-files": "true"} for options in found), *default]
    return found


def _words(options: Mapping[str, str]) -> str:
    groups = f"a group per output, {options['max-concurrent-file-group-rewrites']} at a time"
    how = groups if "max-file-group-size-bytes" in options else "groups as large as may be, 5 at a time"
    how += ", deletes kept by executors" if "cache-delete-files" in options else ""
    return how + (", partial progress" if options["partial-progress.enabled"] == "true" else "")
