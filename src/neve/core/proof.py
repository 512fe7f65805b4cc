"""The proof that a rewrite changed no row, from counts alone: it never trusts the kernel that wrote. Pure.

rows in minus rows dropped = rows out; values and nulls of every column add up; bounds of outputs lie within bounds of inputs;
output paths are new and unique. Called by `flow.verify` before every commit; there is no way to turn it off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from neve.core.metrics import ColumnMetrics, from_bytes
from neve.core.model import Frozen
from neve.core.work import WorkResult


class Check(Frozen):
    """One equation of the proof."""

    name: str
    holds: bool
    detail: str


class Proof(Frozen):
    """All of them, for one group."""

    group_id: int
    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        """Whether the group may be committed."""
        return all(check.holds for check in self.checks)

    @property
    def objection(self) -> str | None:
        """The first equation that does not hold, in words."""
        return next((f"{check.name}: {check.detail}" for check in self.checks if not check.holds), None)


def prove(
    result: WorkResult,
    *,
    input_records: int,
    input_metrics: Sequence[Mapping[int, ColumnMetrics]],
    kinds: Mapping[int, str],
    known_paths: Collection[str],
) -> Proof:
    """The proof for one result; `input_metrics` are what the manifests say of the inputs, `kinds` types by field id."""
    rows_out = sum(output.records for output in result.outputs)
    checks = [
        _equal("rows read", result.rows_read, input_records),
        _equal("rows written", rows_out, result.rows_read - result.rows_dropped),
        *_column_checks(result),
        *_manifest_checks(result, input_metrics),
        *_bound_checks(result, input_metrics, kinds),
        _paths_are_new([output.path for output in result.outputs], known_paths),
    ]
    return Proof(group_id=result.group_id, checks=tuple(checks))


def _equal(name: str, found: int, expected: int) -> Check:
    return Check(name=name, holds=found == expected, detail=f"{found:,}, expected {expected:,}")


def _column_checks(result: WorkResult) -> Iterable[Check]:
    """What the kernel counted as it streamed against the footers of what it wrote."""
    for what in ("values", "nulls", "nans"):
        wrong = []
        for field_id, counted in result.kept.items():
            expected = getattr(counted, what)
            written = [getattr(output.metrics[field_id], what) for output in result.outputs if field_id in output.metrics]
            if expected is not None and None not in written and sum(written) != expected:
                wrong.append(f"column {field_id}: {sum(written):,}, expected {expected:,}")
        yield Check(name=f"{what} by column", holds=not wrong, detail="; ".join(wrong[:3]) or "equal")


def _manifest_checks(result: WorkResult, inputs: Sequence[Mapping[int, ColumnMetrics]]) -> Iterable[Check]:
    """What the manifests said of the inputs against what was counted; a column that some input lacks cannot be compared."""
    if result.rows_dropped or not inputs:
        return
    for what in ("values", "nulls"):
        wrong = []
        for field_id, counted in result.kept.items():
            said: list[Any] = [getattr(metrics.get(field_id), what, None) for metrics in inputs]
            found = getattr(counted, what)
            if found is not None and None not in said and sum(said) != found:
                wrong.append(f"column {field_id}: {found:,}, manifests said {sum(said):,}")
        yield Check(name=f"{what} against manifests", holds=not wrong, detail="; ".join(wrong[:3]) or "equal")


def _bound_checks(
    result: WorkResult, inputs: Sequence[Mapping[int, ColumnMetrics]], kinds: Mapping[int, str]
) -> Iterable[Check]:
    """Values compare as numbers do: writers may store a zero bound with either sign."""
    wrong = []
    for output in result.outputs:
        for field_id, metrics in output.metrics.items():
            kind = kinds.get(field_id)
            said = [m[field_id] for m in inputs if field_id in m]
            if kind is None or len(said) != len(inputs) or not said:
                continue
            lowest = [from_bytes(kind, m.lower) for m in said if m.lower is not None]
            highest = [from_bytes(kind, m.upper) for m in said if m.upper is not None]
            if metrics.lower is not None and len(lowest) == len(said) and from_bytes(kind, metrics.lower) < min(lowest):
                wrong.append(f"column {field_id} starts below every input")
            if metrics.upper is not None and len(highest) == len(said) and from_bytes(kind, metrics.upper) > max(highest):
                wrong.append(f"column {field_id} ends above every input")
    yield Check(name="bounds within inputs", holds=not wrong, detail="; ".join(wrong[:3]) or "within")


def _paths_are_new(paths: Sequence[str], known: Collection[str]) -> Check:
    taken = [path for path in paths if path in known]
    detail = f"{taken[0]} is already part of the table" if taken else "each once, none known"
    return Check(name="paths are new", holds=not taken and len(set(paths)) == len(paths), detail=detail)
