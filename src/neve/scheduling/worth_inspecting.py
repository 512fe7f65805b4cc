"""Decides whether a table's manifests are worth reading, by what its snapshot summary shows. Pure; called by
`service.observer`.

An inspection costs a request per manifest. A table is inspected only if it has changed since the last one, and if its summary
suggests work or its last inspection found work that may be done by now.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from neve.policy.foreign_properties import in_force, read_foreign
from neve.policy.model import Policy, knobs
from neve.scheduling.observation import Inspected, Observation
from neve.table.units import counted, format_bytes, parse_bytes

MANY_COMMITS = 50
"""So many commits of others suggest work, whatever the size of the files."""
FEW_COMMITS = 10
LITTLE_CHANGE = 0.1
"""A table that got fewer commits and a smaller share of files than these since its last inspection can wait."""
WAIT_MS = 3_600_000
"""How long it can wait at most."""
_TARGET = "target-file-size"


def worth_inspecting(table: Observation, now_ms: int, *, small_bytes: int | None = None) -> str | None:
    """Returns why the table's manifests are worth reading; None if they are not.

    Files below `small_bytes` are small; by default, the table's own properties decide.
    """
    found = table.inspected
    if table.snapshot_id is None or (found is not None and found.snapshot_id == table.snapshot_id):
        return None
    reason = _suggested_by_summary(table, small_bytes) or (_outdated(found) if found is not None else None)
    return None if found is not None and _can_wait(table, found, now_ms) else reason


def _suggested_by_summary(table: Observation, small_bytes: int | None) -> str | None:
    if table.data_files is None or table.total_bytes is None:
        return "its summary has no totals"
    if table.delete_files:
        return counted(table.delete_files, "delete file")
    average, small = table.total_bytes / max(1, table.data_files), small_bytes or _small_bytes(table.properties)
    if table.data_files > 1 and average < small:
        return f"files have {format_bytes(average)} on average (below {format_bytes(small)})"
    commits = table.counters.commits - (table.inspected.commits if table.inspected is not None else 0)
    return f"{commits} commits since it was last inspected" if commits >= MANY_COMMITS else None


def _outdated(found: Inspected) -> str | None:
    """The scheduler would act again on what an old inspection found."""
    if not found.small_files and not found.delete_files:
        return None
    work = " and ".join(
        counted(number, name)
        for number, name in ((found.small_files, "small file"), (found.delete_files, "delete file"))
        if number
    )
    return f"{work} were found at an earlier snapshot"


def _can_wait(table: Observation, found: Inspected, now_ms: int) -> bool:
    """Whether only others have committed since, and little. A clock that was set back never makes a table wait."""
    if table.own_snapshot_id != found.own_snapshot_id or (table.hinted_ms or 0) > found.inspected_ms:
        return False
    if table.counters.commits - found.commits >= FEW_COMMITS:
        return False
    if table.data_files is not None and abs(table.data_files - found.data_files) > LITTLE_CHANGE * found.data_files:
        return False
    return 0 <= now_ms - found.inspected_ms < WAIT_MS


def _small_bytes(properties: Mapping[str, str]) -> int:
    """The size below which the table's files are small, by its own properties. The inspection goes by the whole policy."""
    known = in_force(properties)
    declared = next((name for name in _target_properties() if name in known), None)
    return _small_below(declared or "", known[declared][1] if declared is not None else "")


@lru_cache(1)
def _target_properties() -> tuple[str, ...]:
    """Table properties that set the target file size, the strongest first."""
    return tuple(knobs()[_TARGET].properties)


@lru_cache(1000)
def _small_below(name: str, text: str) -> int:
    try:
        value = parse_bytes(text if name.startswith("neve.") else read_foreign(name, text)) if name else 0
    except ValueError:
        value = 0  # whoever plans reports it
    return (Policy.model_validate({_TARGET: value}) if value > 0 else Policy()).small_bytes
