"""A table in memory with a limit on the age of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from neve.errors import CommitConflictError, VerificationError
from neve.maintenance.ttl import Tally, TtlLimits, TtlRecord, TtlRule, TtlTarget
from neve.maintenance.ttl_proof import FooterFinding, StoredColumn
from neve.operations.ttl import expire_rows
from neve.operations.ttl_terms import TtlTerms
from neve.rewrite.live_files import DataFile, LiveFile, describe_metrics
from neve.table.metrics import ColumnMetrics, to_bytes
from neve.table.state import TableName
from tests.builders.commit_scenes import SPECS
from tests.builders.contexts import FakeContext
from tests.builders.fake_tables import Answer, Data, FakeTable, FakeWriter, Still

NAME = TableName(catalog="local", namespace=("db",), name="t")
RULE = TtlRule(column="day", field_id=1, type="date", keep_seconds=86_400)
LIMIT = 100
"""The day that the cutoff lies in; a row of the fake table is its own day."""


@dataclass
class FakeRows:
    """Rows below a number are past. Deletes rewrite the files, as copy-on-write does, and may take young rows along."""

    table: FakeTable
    writer: FakeWriter
    takes_along: int = 0
    uuid: str = "uuid"
    targets: list[TtlTarget] = field(default_factory=list)
    footers: Mapping[str, FooterFinding] = field(default_factory=dict)
    """Of files whose footers say something else than their bounds, by path."""
    opened: list[str] = field(default_factory=list)

    def candidates(self, snapshot_id: int, rule: TtlRule, limits: TtlLimits) -> list[LiveFile]:  # noqa: ARG002
        rows = {path: self.table.contents[path] for path in self.table.history[snapshot_id].data}
        chosen = [file for file in self.writer.scan(snapshot_id) if min(rows[file.path]) < int(limits.high)]
        return [LiveFile(file.data_file | _bounds(sorted(rows[file.path]))) for file in chosen]

    def tallies(self, snapshot_id: int, paths: Sequence[str], rule: TtlRule, limits: TtlLimits) -> Mapping[str, Tally]:  # noqa: ARG002
        version, found = self.table.history[snapshot_id], {}
        for path in paths:
            gone = {row for delete in version.deletes_of(version.data[path]) for row in delete.rows}
            rows = self.table.contents[path] - gone
            found[path] = Tally(sum(row < int(limits.high) for row in rows), sum(row >= int(limits.high) for row in rows))
        return {path: tally for path, tally in found.items() if sum(tally)}

    def stored(self, files: Sequence[LiveFile], rule: TtlRule) -> Mapping[str, FooterFinding]:
        self.opened += [file.path for file in files]
        return {file.path: self.footers.get(file.path) or self._footer(file.path, rule) for file in files}

    def _footer(self, path: str, rule: TtlRule) -> FooterFinding:
        rows = self.table.contents[path]
        return FooterFinding(StoredColumn(rule.type, 0, min(rows), max(rows)))

    def drop(self, files: Sequence[DataFile], summary: Mapping[str, str], target: TtlTarget) -> None:
        self._confirm(target)
        self._send([file["file-path"] for file in files], [], summary)

    def delete(
        self,
        rule: TtlRule,  # noqa: ARG002
        limits: TtlLimits,
        summary: Mapping[str, str],
        target: TtlTarget,
        left_alone: Sequence[str] = (),
    ) -> None:
        self._confirm(target)
        others = self.table.now.data.keys() - set(left_alone)
        mixed = [path for path in sorted(others) if min(self.table.contents[path]) < int(limits.high)]
        added = []
        for path in mixed:
            gone = {row for delete in self.table.now.deletes_of(self.table.now.data[path]) for row in delete.rows}
            kept = sorted(row for row in self.table.contents[path] - gone if row >= int(limits.high))[self.takes_along :]
            new = f"{path}-kept"
            self.table.contents[new] = frozenset(kept)
            added += [Data(new, "p", 1)] if kept else []
        self._send(mixed, added, summary)

    def _confirm(self, target: TtlTarget) -> None:
        self.targets.append(target)
        if target.table_uuid != self.uuid:
            raise VerificationError(f"Cannot delete rows by {target.column}: the table was replaced by another one")

    def _send(self, gone: list[str], added: list[Data], summary: Mapping[str, str]) -> None:
        self.writer.sent.append({"gone": gone})
        if self.writer.before_rewrite:
            self.writer.before_rewrite.pop(0)()
        self.writer._answer(self.writer.head() or 0, lambda: self._land(gone, added, summary))

    def _land(self, gone: list[str], added: list[Data], summary: Mapping[str, str]) -> None:
        if missing := [path for path in gone if path not in self.table.now.data]:
            raise CommitConflictError(f"Cannot commit: Missing required files to delete: {missing[0]}")
        removed = sum(len(self.table.contents[path]) for path in gone)
        told = {
            "deleted-data-files": str(len(gone)),
            "deleted-records": str(removed),
            "added-records": str(sum(len(self.table.contents[file.path]) for file in added)),
            "removed-files-size": str(1000 * len(gone)),
        }
        self.table._commit("delete", added=added, removed=gone, summary={**told, **summary})


def _bounds(rows: list[int]) -> DataFile:
    column = ColumnMetrics(values=len(rows), nulls=0, lower=to_bytes("date", rows[0]), upper=to_bytes("date", rows[-1]))
    return describe_metrics({1: column})


@dataclass
class Scene:
    """One file past as a whole, one with a past row and a young one, one that is young."""

    rows: Sequence[Sequence[int]] = ((1, 2, 3), (50, 150), (200, 201))
    request: dict[str, Any] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    takes_along: int = 0
    uuid: str = "uuid"
    footers: dict[str, FooterFinding] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.table = FakeTable()
        for rows in self.rows:
            self.table.append(*rows)

    def run(
        self,
        *answers: Answer,
        before: Sequence[Callable[[], Any]] = (),
        terms_again: Callable[[], TtlTerms] | None = None,
        **request: Any,
    ) -> TtlRecord:
        self.writer = FakeWriter(self.table, *answers, before_rewrite=before)
        context: Any = FakeContext(writer=self.writer, specs=SPECS, clock=Still(), sleep=self.wait, name=NAME, uuid="uuid")
        asked = TtlTerms(NAME, "uuid", RULE, LIMIT * 86_400_000, max_files=100)
        self.past = FakeRows(self.table, self.writer, self.takes_along, self.uuid, footers=self.footers)
        return expire_rows(replace(asked, **{**self.request, **request}), context, self.past, terms_again=terms_again)

    def wait(self, seconds: float) -> None:
        """Requests that are in flight arrive meanwhile."""
        self.waits.append(seconds)
        self.writer.land()
