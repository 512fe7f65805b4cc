"""What to do when a table's metadata needs files that are in the trash. Called by `operations.quarantine`.

That happens when older metadata of a table is registered again after its snapshots were expired: the files of these snapshots
were rightly moved to the trash, and are needed again. Nobody can tell what else is needed until they are back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote

from neve.errors import MissingFileError
from neve.maintenance.quarantine import Fate, Quarantined
from neve.operations.quarantine_moves import Moving
from neve.table.location import address


@contextmanager
def naming_restore(moving: Moving) -> Iterator[None]:
    """Around questions about what the table needs: a missing file that the trash has is named, with the way to restore it."""
    try:
        yield
    except MissingFileError as error:
        file = _in_the_trash(str(error), moving)
        if file is None:
            raise
        run, table = file.run_id[:8], moving.request.table
        raise MissingFileError(
            f"Cannot {moving.operation.value} files of {table}: its metadata needs {file.path}, which run {run} moved to the "
            "trash; older metadata was registered again, or the catalog was set back",
            hint=f"Put the files back with `neve restore {run} --table {quote(str(table))}`, then repeat this command.",
        ) from error


def _in_the_trash(text: str, moving: Moving) -> Quarantined | None:
    """The file that the error speaks of, by its path: Hadoop spells the scheme in its own way."""
    trashed = moving.context.quarantine.quarantined(moving.request.table_uuid, fates=[Fate.TRASHED])
    return next((file for file in trashed if address(file.path).path in text), None)
