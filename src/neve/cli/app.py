"""The application that Typer runs: the list of commands, and the options before a command's name."""

from __future__ import annotations

from inspect import Parameter
from typing import Annotated, Any

import typer

from neve.cli import config, deletes, jobs, notify, policy, quarantine, runs, state
from neve.cli.command import examples
from neve.cli.compact import cluster, compact, plan
from neve.cli.demo import demo
from neve.cli.doctor import doctor
from neve.cli.history import history
from neve.cli.inspect import InspectCommand, inspect
from neve.cli.maintenance import expire, maintain, manifests, orphans, prevent, rollback, stats, tags, ttl
from neve.cli.options import CONTEXT, Commands, KnobCommand, Shared, shared_parameters, with_parameters
from neve.cli.resume import resume
from neve.cli.serve import serve
from neve.cli.setup import setup
from neve.cli.tables import tables
from neve.cli.work import work
from neve.cli.worker import worker

EPILOG = "\n\n".join(
    [
        examples("neve demo", "neve inspect db.events --warehouse ./demo-warehouse", "neve compact db.events", "neve doctor"),
        "[bold]Exit codes[/bold]\n0 done or nothing to do, 1 failed, 2 bad request, 3 partly done, 130 interrupted",
    ]
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"neve {version('neve')}")
        raise typer.Exit


def _before_the_command(*, ctx: typer.Context, version: bool, **values: Any) -> None:  # noqa: ARG001 - its callback has acted
    """Keeps Apache Iceberg tables fast and cheap."""
    ctx.obj = Shared.take(values)


_VERSION = Annotated[
    bool, typer.Option("--version", callback=_version, is_eager=True, show_default=False, help="Show the version and leave.")
]
_VERSION_PARAMETER = Parameter("version", Parameter.KEYWORD_ONLY, default=False, annotation=_VERSION)

app = Commands(
    name="neve",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)
app.callback()(with_parameters(_before_the_command, [CONTEXT, _VERSION_PARAMETER, *shared_parameters()]))
app.command(
    cls=InspectCommand,
    epilog=examples(
        "neve inspect db.events",
        "neve inspect db.events --warehouse ./demo-warehouse --html events.html",
        "neve inspect prod.db.events --depth summary --json | jq .health.score",
        "neve inspect db.events --target-file-size '512 MB' --sample 50",
    ),
)(inspect)
app.command(
    cls=KnobCommand,
    epilog=examples(
        "neve plan db.events",
        "neve plan db.events --partition 'day=2025-01-*' --tier major",
        "neve plan db.events --max-cost 10 --json | jq .price.money",
    ),
)(plan)
app.command(
    cls=KnobCommand,
    epilog=examples(
        "neve compact db.events",
        "neve compact db.events --dry-run",
        'neve compact db.events --where "day >= current_date() - INTERVAL 7 DAYS"',
        "neve compact db.events --branch audit",
        "neve compact db.events --tier minor --target-file-size '256 MB' --max-files 5000",
        "neve compact db.events --force --json | jq .stats",
    ),
)(compact)
app.command(
    cls=KnobCommand,
    epilog=examples(
        'neve cluster db.events --by "city, amount" --dry-run',
        'neve cluster db.events --by "city, amount"',
        "neve cluster db.events",
        "neve cluster db.events --by ts --kind sort --full",
    ),
)(cluster)
app.command(
    cls=KnobCommand,
    epilog=examples(
        "neve maintain db.events --dry-run",
        "neve maintain db.events",
        "neve maintain db.events --skip orphans --snapshot-keep '3 days'",
        "neve maintain db.events --only expire,settle,purge --json | jq '.steps[] | select(.run_id)'",
    ),
)(maintain)
app.add_typer(deletes.app, name="deletes")
app.command(
    epilog=examples("neve expire db.events --dry-run", "neve expire db.events", "neve expire db.events --older-than '3 days'")
)(expire)
app.add_typer(quarantine.app, name="quarantine")
app.command(epilog=examples("neve restore 3f9c", "neve restore 3f9c --dry-run"))(quarantine.restore)
app.command(
    epilog=examples(
        "neve orphans db.events --dry-run",
        "neve orphans db.events --older-than '14 days' --limit 10000",
        "neve orphans db.events --inventory s3://inventories/lake.parquet",
        "neve orphans db.events --equal-authority nn1:8020=nn1 --json | jq .taken",
    ),
)(orphans)
app.command(
    cls=KnobCommand,
    epilog=examples(
        "neve manifests db.events --dry-run", "neve manifests db.events", "neve manifests db.events --by day,region"
    ),
)(manifests)
app.command(
    cls=KnobCommand,
    epilog=examples(
        "neve stats db.events --dry-run", "neve stats db.events --columns city,amount", "neve stats db.events --force"
    ),
)(stats)
app.command(
    cls=KnobCommand,
    epilog=examples("neve tags db.events --auto-tags 'daily 7, weekly 4, monthly 12' --dry-run", "neve tags db.events"),
)(tags)
app.command(
    cls=KnobCommand,
    epilog=examples(
        "neve ttl db.events --keep '90 days' --column ts",
        "neve ttl db.events --keep '90 days' --column ts --enforce",
        "neve ttl db.events --keep '1 w' --column day --format yyyyMMdd --dry-run --json | jq .counts",
    ),
)(ttl)
app.command(
    cls=KnobCommand,
    epilog=examples("neve prevent db.events", "neve prevent db.events --apply", "neve prevent db.events --undo"),
)(prevent)
app.add_typer(runs.app, name="runs")
app.command(epilog=examples("neve history db.events", "neve history 'lake.sales.*' --days 7 --json"))(history)
app.command(epilog=examples("neve resume", "neve resume 3f9c"))(resume)
app.command(epilog=examples("neve work order.json --out result.json", "neve work - < order.json > result.json"))(work)
app.command(epilog=examples("neve rollback 3f9c", "neve rollback 3f9c --json"))(rollback)
app.command(epilog=examples("neve tables", "neve tables db --catalog prod"))(tables)
app.add_typer(policy.app, name="policy")
app.command(epilog=examples("neve serve --demo", "neve serve --policies policies/", "neve serve --once --log-level debug"))(
    serve
)
app.command(hidden=True)(worker)
app.add_typer(jobs.app, name="jobs")
app.command(epilog=examples("neve hint lake.sales.orders"))(jobs.hint)
app.add_typer(notify.app, name="notify")
app.add_typer(state.app, name="state")
app.add_typer(config.app, name="config")
app.command(epilog=examples("neve setup", "neve setup --json | jq .archive"))(setup)
app.command(epilog=examples("neve doctor", "neve doctor --spark"))(doctor)
app.command(epilog=examples("neve demo", "neve demo --warehouse /tmp/demo --keep"))(demo)
