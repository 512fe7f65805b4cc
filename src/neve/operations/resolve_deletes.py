"""resolve: finds the rows of data files that equality deletes remove, as vectors in scratch files beside the data.

Called by `operations.delete_files`. Whatever applies to one of the files is resolved for all of them, in one pass of the
engine. What comes back is described as a commit would add it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from uuid import uuid4

from neve.context.table import TableContext
from neve.errors import CommitConflictError
from neve.maintenance.delete_files import convertible, deletes_of
from neve.operations.execute import identity_fields, identity_values, name_mapping
from neve.rewrite.equality_rows import ResolveDelete, ResolvedFile, ResolveInput
from neve.rewrite.live_files import DataFile, LiveFile, delete_of, describe_vector
from neve.rewrite.work_order import InputFile
from neve.table.delete_index import unpartitioned
from neve.table.metrics import leaf_fields


def resolve(files: Mapping[str, LiveFile], context: TableContext, *, head: int) -> dict[str, DataFile]:
    """By data file the vector of the rows that it loses to equality deletes in Parquet files; those without loss are not named.

    `files` are as they are live at `head`, which the writer has loaded.
    """
    writer, scopes = context.writer, _Scopes()
    deletes = deletes_of(files.values(), convertible)
    _check_specs(context, [*deletes.values(), *(file.data_file for file in files.values())])
    everywhere, fixed, numbers = unpartitioned(context.specs), identity_fields(context.specs), writer.sequence_numbers(head)
    fields = {i: described for schema in writer.schemas_json() for i, described in leaf_fields(schema)}
    compared = {field_id for delete in deletes.values() for field_id in delete["equality-ids"]}
    found = context.resolver.resolve(
        [
            ResolveInput(
                file=InputFile(
                    path=path,
                    size_bytes=file.size_bytes,
                    records=file.records,
                    constants=identity_values(file, fixed[file.data_file["spec-id"]]),
                    sequence_number=numbers[path],
                ),
                scope=scopes.of(file.data_file),
            )
            for path, file in files.items()
        ],
        [
            ResolveDelete(
                file=delete_of(delete, numbers[delete["file-path"]]),
                scope=None if delete["spec-id"] in everywhere else scopes.of(delete),
            )
            for delete in deletes.values()
        ],
        key_fields=[fields[field_id] for field_id in sorted(compared)],
        output_prefix=writer.data_location(next(iter(files.values())), f"neve-{uuid4().hex}"),
        name_mapping=name_mapping(writer.properties()),
    )
    return {one.data_path: _described(one, files[one.data_path].data_file) for one in found}


class _Scopes:
    """A number for each spec and partition."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], int] = {}

    def of(self, file: DataFile) -> int:
        return self._known.setdefault((file["spec-id"], json.dumps(file.get("partition") or [])), len(self._known))


def _check_specs(context: TableContext, files: Iterable[DataFile]) -> None:
    """An equality delete of an unpartitioned spec concerns the whole table: of a spec that is not known nobody could tell."""
    if {file["spec-id"] for file in files} - {spec.spec_id for spec in context.specs}:
        raise CommitConflictError(
            "Cannot resolve equality deletes: the table was given another partition spec meanwhile", hint="Try again."
        )


def _described(found: ResolvedFile, home: DataFile) -> DataFile:
    where = found.model_dump(include={"size_bytes", "offset", "length", "cardinality"})
    return describe_vector(home, found.path, **where)
