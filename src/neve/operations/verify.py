"""verify: proves each written group before it may be committed, and decides what the manifests will say of its files.

Called by `operations.rewrite_run`. The proof compares what the kernel counted with the footers of what was written and with
what the manifests said of the inputs, and asks that every output was opened by a reader that did not write it; a group that
does not add up is never committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from neve.errors import VerificationError
from neve.ports import ContentVerifier, Engine
from neve.rewrite.group import Kernel
from neve.rewrite.live_files import DataFile, LiveFile, describe_output
from neve.rewrite.proof import Check, Proof, outputs_open, prove
from neve.rewrite.work_order import WorkResult, digest_of
from neve.table.metrics import ColumnMetrics, for_manifest, leaf_fields, merge, metrics_modes, with_sure_bounds


def leaf_kinds(schema: Mapping[str, Any]) -> dict[int, str]:
    """Types by field id of the columns that have one value per row."""
    return {field_id: field["type"] for field_id, field in leaf_fields(schema)}


def proof_of(result: WorkResult, inputs: Sequence[LiveFile], schema: Mapping[str, Any], known_paths: Collection[str]) -> Proof:
    """The proof for one result: the equations, and that every output opens."""
    proof = prove(
        result,
        inputs_digest=digest_of(file.path for file in inputs),
        input_records=sum(file.records for file in inputs),
        input_metrics=[file.metrics for file in inputs],
        kinds=leaf_kinds(schema),
        known_paths=known_paths,
        has_deletes=any(file.deletes for file in inputs),
    )
    return proof.model_copy(update={"checks": (*proof.checks, outputs_open(result))})


def opened_outputs(result: WorkResult, engine: Engine, *, again: bool) -> WorkResult:
    """The result with all of its outputs opened. Those that were opened when they were written are opened `again` where that
    was another process: a result from a journal or from elsewhere may name files that are gone or were changed since."""
    if again or any(output.opened is None for output in result.outputs):
        return engine.open_outputs(result)
    return result


def with_content(
    proof: Proof, verifier: ContentVerifier, result: WorkResult, inputs: Sequence[LiveFile], outputs: Sequence[DataFile]
) -> Proof:
    """The proof with one more equation: the rows themselves. What cannot be compared is not proved."""
    try:
        check = verifier.compare(result, inputs, outputs).check
    except VerificationError as error:
        check = Check(name="content", holds=False, detail=str(error))
    return proof.model_copy(update={"checks": (*proof.checks, check)})


def described_outputs(
    result: WorkResult, inputs: Sequence[LiveFile], schema: Mapping[str, Any], properties: Mapping[str, str]
) -> list[DataFile]:
    """The new files as the commit adds them, with metrics that are never wider than what is true.

    A copied file's bounds are those of its inputs, merged; a re-encoded file's were counted, and are cut to the table's modes.
    Bounds that another writer decoded are kept only as far as they hold for the bytes.
    """
    kinds, modes = leaf_kinds(schema), metrics_modes(schema, properties)
    exact = {field_id for field_id, mode in modes.items() if mode.length is None}
    if result.kernel is Kernel.COPY:
        kept = merge([with_sure_bounds(file.metrics, kinds, exact) for file in inputs], kinds)
        sizes = {i: ColumnMetrics(size_bytes=m.size_bytes) for i, m in result.outputs[0].metrics.items()}
        merged = {i: _with_size(kept.get(i, ColumnMetrics()), sizes[i]) for i in sizes}
        return [describe_output(inputs[0], result.outputs[0], merged)]
    counted = [{i: m.plain for i, m in output.metrics.items()} for output in result.outputs]
    if result.kernel is Kernel.SPARK:
        counted = [with_sure_bounds(metrics, kinds, exact) for metrics in counted]
    return [
        describe_output(inputs[0], output, for_manifest(metrics, schema, modes))
        for output, metrics in zip(result.outputs, counted, strict=True)
    ]


def _with_size(metrics: ColumnMetrics, size: ColumnMetrics) -> ColumnMetrics:
    return ColumnMetrics(**{**vars(metrics), "size_bytes": size.size_bytes})
