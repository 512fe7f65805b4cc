"""`neve state`: looks after the state store: what it holds, a newer schema, a copy, and what it may forget.

Goes to the store itself and not through `api.Neve`: there is no catalog, engine or table to wire it to.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.cli.call import Call
from neve.cli.command import command, examples
from neve.cli.options import Commands

if TYPE_CHECKING:
    from neve.state.rows import Description, Pruned, Upgraded

app = Commands(
    no_args_is_help=True,
    help="Look after the state store, which remembers runs: show, upgrade, backup, prune.",
    epilog=examples("neve state show", "neve state backup", "neve state prune --older-than 90d --dry-run"),
)


@app.command(epilog=examples("neve state show", "neve state show --json | jq .size_bytes"))
@command
def show(call: Call) -> None:
    """Show where the state store is, its schema, its size, and what it holds. Makes and changes nothing."""
    from neve.state import admin

    told = admin.describe(_url(call))
    _tell(call, vars(told), _described(told))


@app.command(epilog=examples("neve state upgrade", "neve state upgrade --profile prod"))
@command
def upgrade(call: Call) -> None:
    """Bring the state store to the schema of this release, or make it. A SQLite file is copied aside first.

    Every run does the same by itself; this is for doing it at a time of one's choosing.
    """
    from neve.state import admin

    told = admin.upgrade(_url(call))
    _tell(call, {"from": told.before, "to": told.after, "copy": told.copy}, _upgraded(told))


@app.command(epilog=examples("neve state backup", "neve state backup /backups/neve.db"))
@command
def backup(
    call: Call,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Where to, a new file or a directory; beside the state store unless given."),
    ] = None,
) -> None:
    """Copy a SQLite state store, consistently, while others may be using it. PostgreSQL has pg_dump for that."""
    from neve.state import admin
    from neve.table.units import format_bytes

    told = admin.backup(_url(call), file)
    _tell(call, vars(told), [f"The state store was copied to {told.file} ({format_bytes(told.size_bytes)})."])


@app.command(epilog=examples("neve state prune --older-than 90d --dry-run", "neve state prune --older-than '1 week'"))
@command
def prune(
    call: Call,
    older_than: Annotated[str, typer.Option("--older-than", metavar="TIME", help="Runs that ended longer ago, such as 90d.")],
    outputs: Annotated[
        bool, typer.Option("--outputs", help="Also how many row groups the files of forgotten runs have, which plans go by.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
) -> None:
    """Forget finished runs that are older than a limit.

    Never forgotten: runs that have not ended, runs with groups in doubt or files in the quarantine, these files, and when each
    partition was last compacted.
    """
    from neve.state import admin

    before_ms = max(0, time.time_ns() // 1_000_000 - _milliseconds(older_than))
    told = admin.prune(_url(call), before_ms, outputs=outputs, dry_run=dry_run)
    _tell(call, {"dry_run": dry_run, **vars(told)}, _pruned(told, dry_run=dry_run))


def _url(call: Call) -> str:
    return call.loaded.settings.state.database.reveal(os.environ)


def _milliseconds(older_than: str) -> int:
    from neve.errors import BadRequestError
    from neve.table.units import parse_seconds

    try:
        return int(parse_seconds(older_than) * 1000)
    except ValueError as error:
        raise BadRequestError(f"Cannot read --older-than: {error}", hint="Write it like 90d, 12h or '2 weeks'.") from error


def _described(told: Description) -> list[str]:
    from neve.render.phrases import count, moment
    from neve.table.units import format_bytes

    lines = [f"state store  {told.url}"]
    if told.version is None:
        return [*lines, "             there is none yet; the first run makes it"]
    old = told.version != told.newest_version
    lines.append(f"schema       {told.version}{f', to be upgraded to {told.newest_version}' if old else ''}")
    lines.append(f"size         {format_bytes(told.size_bytes)}")
    number = {name: count(value) for name, value in told.counts.items()}
    since = "" if told.oldest_run_ms is None else f", the oldest of {moment(told.oldest_run_ms)}"
    lines.append(f"runs         {number['runs']}, {number['unfinished']} not ended{since}")
    lines.append(f"groups       {number['groups']}, {number['in_doubt']} in doubt")
    lines += [f"files        {number['outputs']}", f"quarantine   {number['quarantined']}"]
    return [*lines, f"leases       {number['leases']}"]


def _upgraded(told: Upgraded) -> list[str]:
    if told.before is None:
        return [f"The state store was made with schema {told.after}."]
    if told.before == told.after:
        return [f"The state store has schema {told.after}, the newest: nothing to do."]
    copied = [] if told.copy is None else [f"As it was, it is in {told.copy}."]
    return [f"The state store was upgraded from schema {told.before} to {told.after}.", *copied]


def _pruned(told: Pruned, *, dry_run: bool) -> list[str]:
    from neve.table.units import counted, format_bytes

    kinds = {"run": told.runs, "group": told.groups, "outdated partition": told.partitions, "file": told.outputs}
    kinds["quarantine note"] = told.quarantined
    rows = ", ".join(counted(number, kind) for kind, number in kinds.items())
    return [f"{'Would remove' if dry_run else 'Removed'} {rows}: about {format_bytes(told.bytes)}."]


def _tell(call: Call, document: dict[str, Any], lines: list[str]) -> None:
    from neve.cli.output import SCHEMA_VERSION
    from neve.render.phrases import printable

    if call.wants_json:
        sys.stdout.write(json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2, default=str) + "\n")
        return
    for line in lines:
        call.stdout.print(printable(line), markup=False, soft_wrap=True)
