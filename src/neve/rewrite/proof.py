"""The proof that a rewrite changed no row, from counts alone: it never trusts the kernel that wrote. Pure.

rows in minus rows dropped = rows out, none being dropped where no delete applies; values, nulls and NaN of every column add up;
bounds of outputs lie within bounds of inputs; output paths are new and unique. Called by `operations.verify` before every
commit; there is no way to turn it off.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from neve.rewrite.group import Kernel
from neve.rewrite.work_order import Counted, OutputFile, WorkResult
from neve.table.frozen import Frozen
from neve.table.metrics import ColumnMetrics, from_bytes, merge, truncate_lower, truncate_upper, with_sure_bounds

_LARGEST = {"float": (2 - 2.0**-23) * 2.0**127, "double": sys.float_info.max}
MAX_COLUMN_ID = 2147483447
"""Field ids above this are the format's own."""
_WRONG_MANIFESTS = (
    " (the table's manifests may be wrong about these files: add_files does that for timestamps in milliseconds, and for files "
    "without field ids whose columns were renamed later)"
)
_CUT = frozenset({"string", "binary"})
"""Types whose bounds may be shorter than the values they bound."""


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

    @property
    def hint(self) -> str:
        """What may be behind the objection, empty where nothing is known."""
        failed = next((check.name for check in self.checks if not check.holds), "")
        return _WRONG_MANIFESTS if failed.endswith("against manifests") or failed == "bounds within inputs" else ""


def prove(
    result: WorkResult,
    *,
    inputs_digest: str,
    input_records: int,
    input_metrics: Sequence[Mapping[int, ColumnMetrics]],
    kinds: Mapping[int, str],
    known_paths: Collection[str],
    has_deletes: bool,
) -> Proof:
    """The proof for one result; `input_metrics` are what the manifests say of the inputs, `kinds` types by field id.

    `has_deletes` tells whether any delete is attached to an input: without one, a row that was dropped was lost.
    """
    rows_out = sum(output.records for output in result.outputs)
    checks = [
        _same_inputs(result.inputs_digest, inputs_digest),
        _equal("rows read", result.rows_read, input_records),
        _rows_dropped(result.rows_dropped, has_deletes=has_deletes),
        _equal("rows written", rows_out, result.rows_read - result.rows_dropped),
        *_column_checks(result),
        *_manifest_checks(result, input_metrics),
        *_bound_checks(result, input_metrics, kinds),
        _paths_are_new([output.path for output in result.outputs], known_paths),
    ]
    return Proof(group_id=result.group_id, checks=tuple(checks))


def outputs_open(result: WorkResult) -> Check:
    """Whether every output was opened, where it is stored, by a reader that did not write it, and is what was written."""
    wrong = next((why for output in result.outputs if (why := _not_as_written(output, result.kernel)) is not None), None)
    readers = ", ".join(sorted({output.opened.reader for output in result.outputs if output.opened}))
    return Check(name="outputs open", holds=wrong is None, detail=wrong or f"{len(result.outputs):,} by {readers or 'nobody'}")


def _not_as_written(output: OutputFile, kernel: Kernel) -> str | None:
    opened = output.opened
    if opened is None:
        return f"{output.path} does not open: {output.not_opened}"
    groups = None if kernel is Kernel.SPARK else output.row_groups  # Iceberg's writer tells offsets, not row groups
    for what, found, expected in (
        ("bytes", opened.size_bytes, output.size_bytes),
        ("rows", opened.rows, output.records),
        ("row groups", opened.row_groups, groups),
    ):
        if None not in (found, expected) and found != expected:
            return f"{output.path} has {found:,} {what}, and {expected:,} were written"
    return None


def _same_inputs(found: str, expected: str) -> Check:
    detail = "as planned" if found == expected else f"the result is of other files ({found[:8]}, expected {expected[:8]})"
    return Check(name="inputs", holds=found == expected, detail=detail)


def _equal(name: str, found: int, expected: int) -> Check:
    return Check(name=name, holds=found == expected, detail=f"{found:,}, expected {expected:,}")


def _rows_dropped(dropped: int, *, has_deletes: bool) -> Check:
    if has_deletes:
        return Check(name="rows dropped", holds=dropped >= 0, detail=f"{dropped:,}")
    return Check(
        name="rows dropped", holds=not dropped, detail=f"{dropped:,}, expected none: no delete is attached to any input"
    )


def _column_checks(result: WorkResult) -> Iterable[Check]:
    """What the kernel counted as it streamed against the footers of what it wrote."""
    if not result.kept and result.outputs:
        detail = f"not compared: the {result.kernel} kernel does not count values"
        yield Check(name="values by column", holds=True, detail=detail)
        return
    for what in ("values", "nulls", "nans"):
        wrong = []
        for field_id, counted in result.kept.items():
            expected = getattr(counted, what)
            written = [getattr(output.metrics[field_id], what) for output in result.outputs if field_id in output.metrics]
            if expected is not None and None not in written and sum(written) != expected:
                wrong.append(f"column {field_id}: {sum(written):,}, expected {expected:,}")
        yield Check(name=f"{what} by column", holds=not wrong, detail="; ".join(wrong[:3]) or "equal")


def _manifest_checks(result: WorkResult, inputs: Sequence[Mapping[int, ColumnMetrics]]) -> Iterable[Check]:
    """What the manifests said of the inputs against what was counted, rows that were left out included.

    A column that some input lacks cannot be compared, nor one that the kernel did not count in what it left out. For a kernel
    that counts nothing, what it wrote is compared.
    """
    if not inputs or (result.rows_dropped and not result.dropped):
        return
    counts = result.kept or _written(result.outputs)
    for what in ("values", "nulls", "nans"):
        wrong = []
        for field_id, counted in counts.items():
            if field_id > MAX_COLUMN_ID:
                continue  # row lineage: where a writer left it out, a rewrite fills it in
            said: list[Any] = [getattr(metrics.get(field_id), what, None) for metrics in inputs]
            found = getattr(counted, what)
            if result.rows_dropped and found is not None:
                found += getattr(result.dropped[field_id], what) or 0
            if found is not None and None not in said and sum(said) != found:
                wrong.append(f"column {field_id}: {found:,}, manifests said {sum(said):,}")
        yield Check(name=f"{what} against manifests", holds=not wrong, detail="; ".join(wrong[:3]) or "equal")


def _written(outputs: Sequence[OutputFile]) -> dict[int, Counted]:
    """Counts of what was written, by its own metrics, for columns that every output tells of."""

    def total(field_id: int, what: str) -> int | None:
        found: list[int | None] = [getattr(output.metrics[field_id], what) for output in outputs]
        return None if None in found else sum(filter(None, found))

    columns = set.intersection(*(set(output.metrics) for output in outputs)) if outputs else set()
    return {
        field_id: Counted(values=values, nulls=total(field_id, "nulls"), nans=total(field_id, "nans"))
        for field_id in sorted(columns)
        if (values := total(field_id, "values")) is not None
    }


def _bound_checks(
    result: WorkResult, inputs: Sequence[Mapping[int, ColumnMetrics]], kinds: Mapping[int, str]
) -> Iterable[Check]:
    """Values compare as numbers do: writers may store a zero bound with either sign."""
    wrong, limits = [], merge([with_sure_bounds(metrics, kinds) for metrics in inputs], kinds)
    for output in result.outputs:
        for field_id, metrics in output.metrics.items():
            if (said := limits.get(field_id)) is None:
                continue
            kind = kinds[field_id]
            if metrics.lower is not None and said.lower is not None and _is_below(kind, metrics.lower, said.lower):
                wrong.append(f"column {field_id} starts below every input")
            if metrics.upper is not None and said.upper is not None and _is_above(kind, metrics.upper, said.upper):
                wrong.append(f"column {field_id} ends above every input")
    yield Check(name="bounds within inputs", holds=not wrong, detail="; ".join(wrong[:3]) or "within")


def _is_below(kind: str, found: bytes, least: bytes) -> bool:
    """A text that was cut short comes before the text it was cut from: the least possible is cut to the same length."""
    if kind in _CUT:
        least = truncate_lower(kind, least, _length(kind, found))
    return bool(from_bytes(kind, found) < _told(kind, from_bytes(kind, least), math.inf))


def _is_above(kind: str, found: bytes, most: bytes) -> bool:
    if kind in _CUT:
        cut = truncate_upper(kind, most, _length(kind, found))
        return cut is not None and found > cut
    return bool(from_bytes(kind, found) > _told(kind, from_bytes(kind, most), -math.inf))


def _told(kind: str, bound: Any, infinity: float) -> Any:
    """Of a column of infinities older pyarrow tells the largest number instead: a wider bound, and not a wrong one."""
    return math.copysign(_LARGEST[kind], infinity) if kind in _LARGEST and bound == infinity else bound


def _length(kind: str, bound: bytes) -> int:
    return len(bound.decode("utf-8", "replace")) if kind == "string" else len(bound)


def _paths_are_new(paths: Sequence[str], known: Collection[str]) -> Check:
    taken = next((f"{path} is already part of the table" for path in paths if path in known), None)
    twice = next((f"{path} was written twice" for path, times in Counter(paths).items() if times > 1), None)
    wrong = taken or twice
    return Check(name="paths are new", holds=wrong is None, detail=wrong or "each once, none known")
