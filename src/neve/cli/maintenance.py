"""Maintenance commands of one table: what each shows at its end, what to type next, and its exit code.

Options and help come from the operations' requests (`cli.operation_command`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from neve.cli.call import Call
from neve.cli.compact import EXIT_CODES
from neve.cli.next_steps import again, on_branch, steps_after
from neve.cli.operation_command import operation_command


def _show(call: Call, record: Any, _: Mapping[str, Any]) -> None:
    call.output.ended(record, next_steps=steps_after(call, record, again(call.shared, "inspect", record.table)))
    if code := EXIT_CODES.get(record.outcome.value, 0):
        raise typer.Exit(code)


def _show_orphans(call: Call, record: Any, options: Mapping[str, Any]) -> None:
    step = call.retyped() if options["dry_run"] else again(call.shared, "quarantine", "list", record.table)
    call.output.ended(record, next_steps=[] if record.outcome.value == "nothing-to-do" else [step])


def _show_prevention(call: Call, record: Any, options: Mapping[str, Any]) -> None:
    step = call.retyped("--undo", without="--apply") if options["apply"] else call.retyped("--apply")
    call.output.ended(record, next_steps=[step] if record.outcome.value == "done" and not options["undo"] else [])


def _show_ttl(call: Call, record: Any, options: Mapping[str, Any]) -> None:
    steps = [again(call.shared, "inspect", record.table, *on_branch(record.branch))]
    if record.outcome.value == "nothing-to-do":
        steps = []
    elif not options["enforce"] and not record.counts.nothing:
        # Only a preview that was remembered can be enforced.
        steps = [call.retyped() if options["dry_run"] else call.retyped("--enforce")]
    call.output.ended(record, next_steps=steps)
    if code := EXIT_CODES.get(record.outcome.value, 0):
        raise typer.Exit(code)


_QUARANTINING = frozenset({"expire", "manifests", "orphans", "settle", "purge"})
"""Steps of a maintenance that put files into the quarantine, or move those that are there."""


def _show_maintenance(call: Call, record: Any, _: Mapping[str, Any]) -> None:
    steps = [again(call.shared, "inspect", record.table)]
    if record.outcome.value == "nothing-to-do":
        steps = []
    elif record.dry_run and record.outcome.value == "done":
        steps = [call.retyped()]
    elif any(step.step.value in _QUARANTINING for step in record.done):
        steps += [again(call.shared, "quarantine", "list", record.table)]
    call.output.ended(record, next_steps=steps)
    if code := EXIT_CODES.get(record.outcome.value, 0):
        raise typer.Exit(code)


def _text(flag: str, metavar: str, text: str) -> tuple[Any, None]:
    return Annotated[str | None, typer.Option(flag, metavar=metavar, show_default=False, help=text)], None


_KNOBS = {"keep": "ttl", "column": "ttl-column", "format": "ttl-format"}
"""Short names of `neve ttl` for knobs."""


def _with_knobs(call: Call, typed: dict[str, Any]) -> Call:
    given = {knob: typed.pop(name) for name, knob in _KNOBS.items()}
    return call.with_knobs({knob: value for knob, value in given.items() if value is not None})


expire = operation_command("expire", _show)
maintain = operation_command("maintain", _show_maintenance)
manifests = operation_command("manifests", _show)
orphans = operation_command("orphans", _show_orphans)
prevent = operation_command("prevent", _show_prevention, is_slow=lambda given: given["apply"] or given["undo"])
rollback = operation_command("rollback", lambda call, done, _: call.output.rolled_back(done))
stats = operation_command("stats", _show)
tags = operation_command("tags", _show)
ttl = operation_command(
    "ttl",
    _show_ttl,
    extra={
        "keep": _text("--keep", "TIME", "How long rows are kept, the same as --ttl."),
        "column": _text("--column", "NAME", "The column that tells a row's age, the same as --ttl-column."),
        "format": _text("--format", "FORMAT", "How a number or a text tells a time, the same as --ttl-format."),
    },
    adjusted=_with_knobs,
)
