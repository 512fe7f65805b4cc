"""The two ways in which a result leaves: text for people, JSON for programs. Commands call one interface and know neither."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from rich.console import Console
from rich.text import Text

from neve.render.phrases import FROM_CACHE, printable

if TYPE_CHECKING:
    from neve.health.inspection import Inspection
    from neve.maintenance.quarantine import Quarantined, QuarantinedRun
    from neve.operations.rollback import RolledBack
    from neve.render.demo import DemoCompaction
    from neve.render.listings import CheckRow, SettingRow
    from neve.render.runs import RunRow
    from neve.rewrite.plan import Plan
    from neve.rewrite.record import Record
    from neve.rewrite.remaining import Remaining
    from neve.table.state import TableName


SCHEMA_VERSION = 1


class Output(Protocol):
    """What commands can show."""

    def inspection(self, inspection: Inspection, *, partitions: int) -> None:
        """A look at one table; the text shows at most so many partitions."""
        ...

    def plan(self, plan: Plan, *, groups: int) -> None:
        """What a compaction would do; the text shows at most so many groups."""
        ...

    def ended(self, record: Record, *, next_steps: Sequence[str]) -> None:
        """A run of any kind that has just ended, or was only told, and what to type next."""
        ...

    def remaining(self, left: Remaining, *, next_steps: Sequence[str]) -> None:
        """What a resume of an interrupted run would do, and what to type next."""
        ...

    def rolled_back(self, done: RolledBack) -> None:
        """A run that was rolled back, or would be."""
        ...

    def quarantine(self, rows: Sequence[QuarantinedRun]) -> None:
        """What is in a table's quarantine, by runs."""
        ...

    def quarantined(self, files: Iterable[Quarantined]) -> None:
        """Single files in a quarantine, as they come in."""
        ...

    def runs(self, rows: Sequence[RunRow]) -> None:
        """Runs, newest first."""
        ...

    def run(self, row: RunRow) -> None:
        """One run from the state store."""
        ...

    def tables(self, names: Iterable[TableName]) -> None:
        """Names of tables, as they come in."""
        ...

    def settings(self, rows: Sequence[SettingRow]) -> None:
        """Settings in effect, with origins."""
        ...

    def valid(self, message: str) -> None:
        """Settings that are all right."""
        ...

    def checks(self, checks: Sequence[CheckRow]) -> None:
        """Checks of the machine."""
        ...

    def demo(
        self,
        warehouse: str,
        inspections: Sequence[Inspection],
        compactions: Sequence[DemoCompaction],
        failures: Sequence[str],
        *,
        next_steps: Sequence[str],
    ) -> None:
        """The sample tables, the sickest in full, and what compacting some of them was good for."""
        ...


class TextOutput:
    """Rich text, plain where nobody sees colours."""

    def __init__(self, console: Console, elapsed: Callable[[], float]) -> None:
        self._console, self._elapsed = console, elapsed

    def inspection(self, inspection: Inspection, *, partitions: int) -> None:
        """The whole page."""
        from neve.render.text import inspection_text

        self._console.print(inspection_text(inspection, partitions=partitions))

    def plan(self, plan: Plan, *, groups: int) -> None:
        """The whole page."""
        from neve.render.plan import plan_text

        self._console.print(plan_text(plan, groups=groups))

    def ended(self, record: Record, *, next_steps: Sequence[str]) -> None:
        """The whole page, and what to type next."""
        from neve.render.records import text_of

        if record.elapsed_seconds is not None:
            # A user counts from the command to the prompt, and Spark has been stopped since the record was made.
            record = record.model_copy(update={"elapsed_seconds": self._elapsed()})
        self._console.print(text_of(record))
        self._steps("Next", next_steps)

    def remaining(self, left: Remaining, *, next_steps: Sequence[str]) -> None:
        """The groups by what would be done with them, and what to type next."""
        from neve.render.resuming import remaining_text

        self._console.print(remaining_text(left))
        self._steps("Next", next_steps)

    def rolled_back(self, done: RolledBack) -> None:
        """One line."""
        what = "Would roll back" if done.dry_run else "Rolled back"
        moved = f"{done.branch} {'moves' if done.dry_run else 'moved'} from snapshot {done.from_snapshot} back to"
        source = f" ({FROM_CACHE})" if done.metadata_from_cache else ""
        self._line(f"{what} run {done.run_id[:8]} over {printable(done.table)}: {moved} {done.to_snapshot}{source}.")

    def quarantine(self, rows: Sequence[QuarantinedRun]) -> None:
        """One line each."""
        from neve.render.quarantine import quarantine_text

        self._console.print(quarantine_text(rows))

    def quarantined(self, files: Iterable[Quarantined]) -> None:
        """One line each, never wrapped."""
        from neve.render.quarantine import quarantined_lines

        for line in quarantined_lines(files):
            self._line(line)

    def runs(self, rows: Sequence[RunRow]) -> None:
        """One line each."""
        from neve.render.runs import runs_text

        self._console.print(runs_text(rows))

    def run(self, row: RunRow) -> None:
        """The whole page, if there is a record."""
        from pydantic import ValidationError

        from neve.operations.rollback import RolledBack
        from neve.render.records import stored, text_of
        from neve.render.runs import run_row_text

        try:
            if row.kind == "rollback" and row.record:
                self.rolled_back(RolledBack.model_validate(row.record, extra="ignore"))
                return
            record = stored(row.kind, row.record) if row.finished_ms is not None else None
            self._console.print(run_row_text(row) if record is None else text_of(record))
        except ValidationError:  # records of earlier releases can all be read
            self._console.print(run_row_text(row, is_newer=True))

    def tables(self, names: Iterable[TableName]) -> None:
        """One name per line, never wrapped: the lines are for pipes."""
        for name in names:
            self._line(printable(str(name)))

    def settings(self, rows: Sequence[SettingRow]) -> None:
        """Key, value, origin."""
        from neve.render.listings import settings_text

        self._console.print(settings_text(rows))

    def valid(self, message: str) -> None:
        """One line."""
        self._line(message)

    def checks(self, checks: Sequence[CheckRow]) -> None:
        """Signs and cures."""
        from neve.render.listings import checks_text

        self._console.print(checks_text(checks))
        for check in checks:
            if check.fix and str(check.status) == "ok":
                self._line(check.fix)

    def demo(
        self,
        warehouse: str,
        inspections: Sequence[Inspection],
        compactions: Sequence[DemoCompaction],
        failures: Sequence[str],
        *,
        next_steps: Sequence[str],
    ) -> None:
        """The sickest table in full, then all of them ranked, then the compactions, then what to type next."""
        from neve.render.listings import ranking_text

        if inspections:
            self.inspection(min(inspections, key=lambda i: (i.health.score, i.table)), partitions=5)
            self._console.print(Text(f"\nAll sample tables in {printable(warehouse)}, the sickest first", style="bold"))
            self._console.print(ranking_text(inspections))
        if compactions:
            from neve.render.demo import compactions_text

            self._console.print(compactions_text(compactions))
        for failure in failures:
            self._console.print(Text(printable(failure), style="red"))
        self._steps("Try next", next_steps)

    def _steps(self, title: str, steps: Sequence[str]) -> None:
        """Commands, never wrapped: they are to be copied. Where there is none, nothing is said."""
        if not steps:
            return
        self._console.print(Text(f"\n{title}", style="bold"))
        for step in steps:
            self._line(f"  {step}")

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)


class JsonOutput:
    """One JSON document per command, with a schema version."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def inspection(self, inspection: Inspection, *, partitions: int) -> None:  # noqa: ARG002 - a program gets them all
        """The value itself."""
        self._stream.write(inspection.model_dump_json(indent=2) + "\n")

    def plan(self, plan: Plan, *, groups: int) -> None:  # noqa: ARG002 - a program gets them all
        """Groups with the paths of their files, and who is left alone."""
        told = [{**group.model_dump(mode="json"), "files": plan.paths(group)} for group in plan.groups]
        whole = plan.model_dump(mode="json", exclude={"groups", "files", "format_version"})
        totals = {"input_files": plan.input_files, "output_files": plan.output_files, "price": plan.price.model_dump()}
        rules = [rule.model_dump(mode="json") for rule in plan.not_due]
        self._document(**whole | {"table": str(plan.table), **totals, "not_due": rules, "groups": told})

    def ended(self, record: Record, *, next_steps: Sequence[str]) -> None:  # noqa: ARG002 - for people
        """The record, and what is left after it where that is reckoned."""
        left = {name: getattr(record, name) for name in ("deletes_after", "snapshots_after") if hasattr(record, name)}
        told = record.model_dump(mode="json") | left
        if "format_version" in told:
            self._stream.write(json.dumps(told, indent=2) + "\n")
        else:
            self._document(**told)

    def remaining(self, left: Remaining, *, next_steps: Sequence[str]) -> None:  # noqa: ARG002 - for people
        """The value itself."""
        self._document(dry_run=True, **left.model_dump(mode="json"))

    def rolled_back(self, done: RolledBack) -> None:
        """The value itself."""
        self._document(**done.model_dump(mode="json"))

    def quarantine(self, rows: Sequence[QuarantinedRun]) -> None:
        """The values themselves."""
        self._document(runs=[row.model_dump(mode="json") for row in rows])

    def quarantined(self, files: Iterable[Quarantined]) -> None:
        """A line of JSON for each file: there may be millions."""
        for file in files:
            self._stream.write(file.model_dump_json() + "\n")

    def runs(self, rows: Sequence[RunRow]) -> None:
        """Without the records, which may be long."""
        self._document(runs=[_run_head(row) for row in rows])

    def run(self, row: RunRow) -> None:
        """With its record; None if it has not ended."""
        self._document(**_run_head(row), run=row.record or None)

    def tables(self, names: Iterable[TableName]) -> None:
        """Full names, with their parts."""
        parts = [{"table": str(n), "catalog": n.catalog, "namespace": list(n.namespace), "name": n.name} for n in names]
        self._document(tables=parts)

    def settings(self, rows: Sequence[SettingRow]) -> None:
        """Key, value, origin."""
        self._document(settings=[{"key": r.key, "value": r.value, "origin": str(r.origin)} for r in rows])

    def valid(self, message: str) -> None:
        """Whether, and what of."""
        self._document(valid=True, message=message)

    def checks(self, checks: Sequence[CheckRow]) -> None:
        """Every check, passed or not."""
        told = [{"name": c.name, "status": str(c.status), "detail": c.detail, "fix": c.fix} for c in checks]
        self._document(ok=all(c["status"] != "fail" for c in told), checks=told)

    def demo(
        self,
        warehouse: str,
        inspections: Sequence[Inspection],
        compactions: Sequence[DemoCompaction],
        failures: Sequence[str],
        *,
        next_steps: Sequence[str],
    ) -> None:
        """Every look that was taken, every run and every query."""
        looks = [inspection.model_dump(mode="json") for inspection in inspections]
        runs = [{**c.record.model_dump(mode="json"), "queries": [vars(q) for q in c.queries]} for c in compactions]
        told = {"inspections": looks, "compactions": runs, "failures": list(failures), "next_steps": list(next_steps)}
        self._document(warehouse=warehouse, **told)

    def _document(self, **content: Any) -> None:
        self._stream.write(json.dumps({"schema_version": SCHEMA_VERSION, **content}, indent=2, default=str) + "\n")


def _run_head(row: RunRow) -> dict[str, Any]:
    moments = {"started_ms": row.started_ms, "finished_ms": row.finished_ms}
    return {"run_id": row.run_id, "table": row.table_name, "kind": row.kind, **moments, "outcome": row.outcome}
