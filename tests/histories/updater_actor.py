"""A copy-on-write writer without a JVM: `python -m tests.histories.updater_actor SETTINGS TABLE`, by pyiceberg.

It also makes and drops tags, and appends to a branch.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.histories.checker import CHANGE
from tests.histories.rows import row, zone_of
from tests.histories.serving import Tell, serve, take_host_name

Rows = list[tuple[int, int]]
_TRIES = 4


class Updater:
    """Writes to the table. A commit that lost against another is tried again on the new head."""

    def __init__(self, properties: dict[str, str], table: str) -> None:
        from pyiceberg.catalog import load_catalog

        self._catalog, self._name = load_catalog("lake", **properties), table

    def _again(self, write: Callable[[Any], Any]) -> Any:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        for left in reversed(range(_TRIES)):
            try:
                return write(self._catalog.load_table(self._name))
            except (CommitFailedException, ValidationException):
                if not left:
                    raise
        raise AssertionError

    def insert(self, change: int, rows: Rows, gone: list[int]) -> None:
        del gone
        self._again(lambda table: table.append(_arrow(rows), snapshot_properties={CHANGE: str(change)}))

    def overwrite(self, change: int, rows: Rows, gone: list[int]) -> None:
        keys = [*(key for key, _ in rows), *gone]
        self._again(lambda t: t.overwrite(_arrow(rows), _chosen(keys), snapshot_properties={CHANGE: str(change)}))

    def delete(self, change: int, rows: Rows, gone: list[int]) -> None:
        del rows
        self._again(lambda table: table.delete(_chosen(gone), snapshot_properties={CHANGE: str(change)}))

    def branch(self, change: int, rows: Rows, branch: str) -> None:
        """Appends to a branch, which is made at the head of main if need be."""

        def write(table: Any) -> None:
            if branch not in table.metadata.refs:
                table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, branch).commit()
            table.refresh().append(_arrow(rows), snapshot_properties={CHANGE: str(change)}, branch=branch)

        self._again(write)

    def tag(self, name: str, back: int) -> int:
        """Tags the head of main or one of its ancestors; gives the snapshot."""

        def write(table: Any) -> int:
            chain = [entry.snapshot_id for entry in table.history() if table.snapshot_by_id(entry.snapshot_id)]
            chosen = chain[-1 - min(back, len(chain) - 1)]
            table.manage_snapshots().create_tag(chosen, name).commit()
            return int(chosen)

        return int(self._again(write))

    def untag(self, name: str) -> None:
        self._again(lambda table: table.manage_snapshots().remove_tag(name).commit())


def _chosen(keys: list[int]) -> Any:
    from pyiceberg.expressions import And, In

    return And(In("zone", {zone_of(key) for key in keys}), In("id", set(keys)))


def _arrow(rows: Rows) -> Any:
    import pyarrow as pa

    schema = pa.schema([("zone", pa.int32()), ("id", pa.int64()), ("v", pa.int64()), ("text", pa.string())])
    return pa.Table.from_pylist([vars(row(*one)) for one in rows], schema=schema)


def main() -> None:
    take_host_name()
    warnings.simplefilter("ignore")

    def start(_: Tell) -> Any:
        updater = Updater(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2])
        names = ("insert", "overwrite", "delete", "branch", "tag", "untag")
        return {name: getattr(updater, name) for name in names}, []

    serve(start)


if __name__ == "__main__":
    main()
