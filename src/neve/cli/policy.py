"""`neve policy`: policies in force, changes to them from files, and what they mean for tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.cli.call import Call
from neve.cli.command import command, examples
from neve.cli.options import Commands
from neve.table.depth import Depth

if TYPE_CHECKING:
    from rich.console import RenderableType

    from neve.policy.changes import DocumentChange, PolicyPlan
    from neve.policy.document import Document
    from neve.service.policies import Policies

app = Commands(
    no_args_is_help=True,
    help="Decide what is done to which tables, and when: policies from YAML files, kept with their history.",
    epilog=examples(
        "neve policy suggest > policies.yaml",
        "neve policy apply -f policies.yaml --dry-run",
        "neve policy explain db.events",
    ),
)

_FILES_HELP = "A YAML file, a directory of .yaml files, or - for standard input."
Files = Annotated[str, typer.Option("-f", "--file", metavar="PATH", help=_FILES_HELP)]
OptionalFiles = Annotated[
    str | None, typer.Option("-f", "--file", metavar="PATH", help="With these policies applied; those in force unless given.")
]
Prune = Annotated[bool, typer.Option("--prune", help="Remove documents in force that the files do not have.")]
Pattern = Annotated[
    str | None,
    typer.Argument(metavar="[PATTERN]", help="Only these tables: a name, a namespace, or a glob such as 'db.*'."),
]


@app.command(
    epilog=examples(
        "neve policy apply -f policies.yaml --dry-run",
        "neve policy apply -f policies.yaml",
        "neve policy apply -f policies.yaml --by ci --json | jq .changes",
    )
)
@command
def apply(
    call: Call,
    file: Files,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    prune: Prune = False,
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who applies them, for the log; the current user unless given.")
    ] = None,
) -> None:
    """Apply policies from files: all of them or, if one is wrong, none.

    Shows what changes. Applying the same files again changes nothing.
    """
    with _policies(call) as policies:
        plan = policies.plan(file, prune=prune) if dry_run else policies.apply(file, prune=prune, by=by)
    _tell_plan(call, plan, file, dry_run=dry_run)


@app.command(
    epilog=examples("neve policy diff -f policies.yaml", "neve policy diff -f policies.yaml --prune --json | jq .changes")
)
@command
def diff(call: Call, file: Files, prune: Prune = False) -> None:
    """Show what applying files would change, as `neve policy apply` with --dry-run does."""
    with _policies(call) as policies:
        plan = policies.plan(file, prune=prune)
    _tell_plan(call, plan, file, dry_run=True)


@app.command(epilog=examples("neve policy export > policies.yaml", "neve policy export --json | jq .documents"))
@command
def export(call: Call) -> None:
    """Print all policies in force as YAML. Applying that changes nothing."""
    with _policies(call) as policies:
        _tell_documents(call, policies.documents())


@app.command(name="list", epilog=examples("neve policy list", "neve policy list --json | jq .policies"))
@command
def list_policies(call: Call) -> None:
    """List the policies and teams in force."""
    from neve.render.policies import policies_text

    with _policies(call) as policies:
        rows = policies.stored()
    _tell(
        call,
        {"policies": [row.model_dump(mode="json", exclude={"document"}) | _written(row.document) for row in rows]},
        policies_text(rows),
    )


@app.command(
    epilog=examples(
        "neve policy show streams",
        "neve policy show streams --json | jq .documents",
        "neve policy show streams --version 3 | neve policy apply -f -",
    )
)
@command
def show(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a policy or a team.")],
    version: Annotated[
        int | None, typer.Option("--version", min=1, metavar="N", help="As it was in this version, which the log lists.")
    ] = None,
) -> None:
    """Print one policy or team as YAML, as it is in force or as it was once."""
    with _policies(call) as policies:
        found = policies.named(name, version)
    _tell_documents(call, found)


@app.command(epilog=examples("neve policy log", "neve policy log streams --limit 5", "neve policy log --json | jq .versions"))
@command
def log(
    call: Call,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only the policy or team of this name.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="The newest so many.")] = 20,
) -> None:
    """Show who changed which policy when, newest first."""
    from neve.render.policies import log_text

    with _policies(call) as policies:
        rows = policies.log(name, limit=limit)
    versions = [row.model_dump(mode="json", exclude={"document"}) | _written(row.document) for row in rows]
    _tell(call, {"versions": versions}, log_text(rows))


@app.command(epilog=examples("neve policy explain db.events", "neve policy explain db.events --json | jq .operations"))
@command
def explain(
    call: Call,
    table: Annotated[str, typer.Argument(metavar="TABLE", help=r"\[catalog.]namespace.table, such as db.events.")],
) -> None:
    """Show what holds for a table: which operations are due, why or why not, and where each value comes from.

    The table is taken as `neve serve` last observed it; otherwise its metadata is read now.
    """
    from neve.render.policies import explanation_text
    from neve.service.policy_tables import PolicyTables

    with call.neve() as neve:
        found = PolicyTables(neve.connection).explain(table)
    _tell(call, found.model_dump(mode="json"), explanation_text(found))


@app.command(
    name="test",
    epilog=examples(
        "neve policy test", "neve policy test -f policies.yaml", "neve policy test 'db.*' --hours 48 --json | jq .tables"
    ),
)
@command
def forecast(
    call: Call,
    pattern: Pattern = None,
    file: OptionalFiles = None,
    hours: Annotated[int, typer.Option("--hours", min=1, max=744, metavar="N", help="How far to look ahead.")] = 24,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Tables shown in the text.")] = 50,
) -> None:
    """Show which tables the policies match, and what would run in the next 24 hours. Changes nothing.

    Counts cron times and triggers within windows, blackouts and day limits, for tables as they are now.
    """
    from neve.render.policy_forecast import forecast_text
    from neve.service.policy_tables import PolicyTables

    with _policies(call) as policies:
        documents = policies.after(file) if file is not None else None
        found = PolicyTables(policies.connection, documents).forecast(pattern, hours=hours)
    _tell(call, found.model_dump(mode="json"), forecast_text(found, limit=limit))


@app.command(
    epilog=examples(
        "neve policy suggest > policies.yaml",
        "neve policy suggest 'db.*'",
        "neve policy suggest --depth files --json | jq .suggestions",
    )
)
@command
def suggest(
    call: Call,
    pattern: Pattern = None,
    depth: Annotated[Depth, typer.Option(help="How much metadata to read of each table; more finds more.")] = Depth.SUMMARY,
) -> None:
    """Write policies for the tables that there are, from what inspecting them finds. Reads metadata only, and changes nothing.

    The YAML has the reasons as comments, and can be applied as it is.
    """
    from neve.policy.document import as_written
    from neve.service.policy_tables import PolicyTables
    from neve.settings.policy_files import policy_yaml

    with call.neve() as neve, call.progress() as progress:
        found, troubles = PolicyTables(neve.connection).suggest(pattern, depth=depth, progress=progress)
    for name, reason in sorted(troubles.items()):
        call.tell(f"{name} is left out: {reason}")
    if call.wants_json:
        told = [{"policy": as_written(one.policy), "reasons": list(one.reasons)} for one in found]
        _write_json({"suggestions": told, "troubles": troubles})
        return
    comments = {one.policy.name: one.reasons for one in found}
    _write_text(policy_yaml([one.policy for one in found], comments) or "# There are no tables to write policies for.\n")


@contextmanager
def _policies(call: Call) -> Iterator[Policies]:
    from neve.service.policies import Policies

    with call.neve() as neve:
        yield Policies(neve.connection)


def _tell_plan(call: Call, plan: PolicyPlan, path: str, *, dry_run: bool) -> None:
    from neve.render.policies import plan_text

    whole = plan.model_dump(mode="json", exclude={"changes"})
    changes = [_change(one) for one in plan.changes]
    _tell(call, {"dry_run": dry_run, "changes": changes, **whole}, plan_text(plan, path, dry_run=dry_run))


def _change(one: DocumentChange) -> dict[str, Any]:
    before, after = (_written(document)["document"] for document in (one.before, one.after))
    return {"kind": one.kind, "name": one.name, "change": one.change, "version": one.version, "before": before, "after": after}


def _written(document: Document | None) -> dict[str, Any]:
    from neve.policy.document import as_written

    return {"document": None if document is None else as_written(document)}


def _tell_documents(call: Call, documents: Any) -> None:
    from neve.policy.document import as_written
    from neve.settings.policy_files import policy_yaml

    if call.wants_json:
        _write_json({"documents": [as_written(one) for one in documents]})
    else:
        _write_text(policy_yaml(documents) or "# There are no policies.\n")


def _tell(call: Call, document: dict[str, Any], text: RenderableType) -> None:
    if call.wants_json:
        _write_json(document)
    else:
        call.stdout.print(text)


def _write_json(document: dict[str, Any]) -> None:
    from neve.cli.output import SCHEMA_VERSION

    sys.stdout.write(json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2, default=str) + "\n")


def _write_text(text: str) -> None:
    """As it is, never wrapped: it is for files."""
    sys.stdout.write(text)
