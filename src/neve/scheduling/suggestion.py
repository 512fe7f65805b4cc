"""Policies for tables as they were inspected: one for each kind of table, with the reasons. Pure; for `neve policy suggest`.

A suggestion can be applied as it is. Tables that policies match already are suggested like others: `neve policy diff` shows
what would change.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from neve.health.inspection import Inspection, WorkloadKind
from neve.policy.document import OperationChoice, PolicyDocument, Triggers
from neve.policy.selector import literal
from neve.policy.workload_presets import WORKLOAD_PRESETS
from neve.table.frozen import Frozen
from neve.table.units import GIB, TIB, counted, format_bytes

_BILLION = 10**9
_HUGE_BYTES, _LARGE_BYTES, _SMALL_BYTES = 100 * GIB, 2 * TIB, 8 * GIB
_MOST_REASONS = 20
"""Tables that the comments of one policy list."""


class Suggestion(Frozen):
    """A policy and the reasons for it, one line each."""

    policy: PolicyDocument
    reasons: tuple[str, ...]


def suggestions(inspections: Iterable[Inspection], all_tables: Collection[str]) -> tuple[Suggestion, ...]:
    """Returns policies for the inspected tables.

    `all_tables` are those of the catalogs: a namespace whose tables all get the same policy is written as a pattern.
    """
    groups: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    expired: dict[str, dict[str, str]] = defaultdict(dict)
    crowded: dict[str, dict[str, str]] = defaultdict(dict)
    for found in inspections:
        catalog = found.table.partition(".")[0]
        preset, reason = preset_for(found)
        groups[catalog, preset][found.table] = reason
        for finding in found.health.findings:
            if finding.operation in ("expire", "manifests"):
                (expired if finding.operation == "expire" else crowded)[catalog][found.table] = finding.evidence
    return (
        *(_of_preset(catalog, preset, tables, all_tables) for (catalog, preset), tables in sorted(groups.items())),
        *(_of_expiry(catalog, tables, all_tables) for catalog, tables in sorted(expired.items())),
        *(_of_manifests(catalog, tables, all_tables) for catalog, tables in sorted(crowded.items())),
    )


def preset_for(found: Inspection) -> tuple[str, str]:
    """Returns the workload preset that suits a table, and why."""
    size, rows, workload = found.data_bytes or 0, found.rows or 0, found.workload
    shape = f"{format_bytes(size)} in {counted(found.data_files or 0, 'file')}"
    if workload.kind is WorkloadKind.CDC:
        return "cdc", f"{shape}; {workload.evidence}"
    if workload.kind is WorkloadKind.STREAMING:
        return "streaming", f"{shape}; {workload.evidence}"
    if rows >= _BILLION and size >= _HUGE_BYTES:
        return "huge", f"{shape}, {counted(rows, 'row')}"
    if size >= _LARGE_BYTES:
        return "large", shape
    if workload.kind is WorkloadKind.APPEND:
        return "append", f"{shape}; {workload.evidence}"
    return ("small" if size < _SMALL_BYTES else "normal"), f"{shape}; {workload.evidence}"


def _of_preset(catalog: str, preset: str, tables: dict[str, str], all_tables: Collection[str]) -> Suggestion:
    policy = PolicyDocument(
        name=_name(catalog, preset),
        description=f"Compacts {WORKLOAD_PRESETS[preset].suits}.",
        tables=_patterns(tables, all_tables),
        operations=(OperationChoice(name="compact"),),
        preset=preset,
    )
    return Suggestion(policy=policy, reasons=_reasons(tables))


def _of_expiry(catalog: str, tables: dict[str, str], all_tables: Collection[str]) -> Suggestion:
    policy = PolicyDocument(
        name=_name(catalog, "expiry"),
        description="Expires old snapshots, and removes their files once the quarantine's times have passed.",
        tables=_patterns(tables, all_tables),
        operations=tuple(OperationChoice(name=name) for name in ("expire", "settle", "purge")),
        triggers=Triggers(since_last_run=86_400.0),
    )
    return Suggestion(policy=policy, reasons=_reasons(tables))


def _of_manifests(catalog: str, tables: dict[str, str], all_tables: Collection[str]) -> Suggestion:
    policy = PolicyDocument(
        name=_name(catalog, "manifests"),
        description="Rewrites manifests where queries gain by it.",
        tables=_patterns(tables, all_tables),
        operations=(OperationChoice(name="manifests"),),
        triggers=Triggers(commits=100),
    )
    return Suggestion(policy=policy, reasons=_reasons(tables))


def _name(catalog: str, what: str) -> str:
    plain = re.sub(r"[^a-z0-9._-]", "-", catalog.lower()).lstrip("._-")[:60] or "catalog"
    return f"{plain}-{what}"


def _reasons(tables: dict[str, str]) -> tuple[str, ...]:
    lines = [f"{table}: {reason}" for table, reason in sorted(tables.items())]
    more = len(lines) - _MOST_REASONS
    return (*lines[:_MOST_REASONS], *([f"and {counted(more, 'more table', 'more tables')}"] if more > 0 else []))


def _patterns(tables: Collection[str], all_tables: Collection[str]) -> tuple[str, ...]:
    """The tables by name, and a pattern for each namespace of which nothing is left out."""
    chosen, found = set(tables), list[str]()
    for namespace, names in sorted(_by_namespace(all_tables).items()):
        mine = [name for name in names if name in chosen]
        below = [name for name in all_tables if name.startswith(f"{namespace}.")]
        if len(mine) > 1 and chosen.issuperset(below):
            found.append(f"{literal(namespace)}.*")
        else:
            found += [literal(name) for name in sorted(mine)]
    return tuple(found)


def _by_namespace(tables: Iterable[str]) -> dict[str, Sequence[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for table in tables:
        found[table.rpartition(".")[0]].append(table)
    return dict(found)
