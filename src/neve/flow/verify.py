"""verify: proves each written group before it may be committed, and decides what the manifests will say of its files.

Called by `flow.run`. The proof compares what the kernel counted with the footers of what was written and with what the
manifests said of the inputs; a group that does not add up is never committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from neve.core.live import DataFile, LiveFile, describe_output
from neve.core.metrics import ColumnMetrics, for_manifest, leaf_fields, merge, metrics_modes
from neve.core.plan_words import Kernel
from neve.core.proof import Check, Proof, prove
from neve.core.work import WorkResult, digest_of
from neve.errors import VerificationError
from neve.ports import ContentVerifier


def leaf_kinds(schema: Mapping[str, Any]) -> dict[int, str]:
    """Types by field id of the columns that have one value per row."""
    return {field_id: field["type"] for field_id, field in leaf_fields(schema)}


def proof_of(result: WorkResult, inputs: Sequence[LiveFile], schema: Mapping[str, Any], known_paths: Collection[str]) -> Proof:
    """The proof for one result."""
    return prove(
        result,
        inputs_digest=digest_of(file.path for file in inputs),
        input_records=sum(file.records for file in inputs),
        input_metrics=[file.metrics for file in inputs],
        kinds=leaf_kinds(schema),
        known_paths=known_paths,
        has_deletes=any(file.deletes for file in inputs),
    )


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
    """
    if result.kernel is Kernel.COPY:
        kept = merge([file.metrics for file in inputs], leaf_kinds(schema))
        sizes = {i: ColumnMetrics(size_bytes=m.size_bytes) for i, m in result.outputs[0].metrics.items()}
        merged = {i: _with_size(kept.get(i, ColumnMetrics()), sizes[i]) for i in sizes}
        return [describe_output(inputs[0], result.outputs[0], merged)]
    modes = metrics_modes(schema, properties)
    return [
        describe_output(inputs[0], output, for_manifest({i: m.plain for i, m in output.metrics.items()}, schema, modes))
        for output in result.outputs
    ]


def _with_size(metrics: ColumnMetrics, size: ColumnMetrics) -> ColumnMetrics:
    return ColumnMetrics(**{**vars(metrics), "size_bytes": size.size_bytes})
