"""`iceberg-compact`: one compaction of one table, its catalog named by a URI instead of a settings file.

A console script for CronJobs and schedulers. It puts into settings what the URI tells, and does what `neve compact` does.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.cli.call import Call
from neve.cli.command import command, examples
from neve.cli.compact import DryRun, exit_code
from neve.cli.options import Shared
from neve.cli.requests import ExpireSnapshots, SnapshotRetentionHours, again, refuse_expiry_in_dry_run, request_of
from neve.errors import BadRequestError

if TYPE_CHECKING:
    from neve.rewrite.planner import Request

URI_VARIABLE = "ICEBERG_COMPACT_CATALOG_URI"
"""Settings hold a reference to this where the URI may carry a password, which must not be shown."""

_WAREHOUSES = ("file", "s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "hdfs", "wasb", "wasbs")
_PLAIN_URI = re.compile(r"[^@?#;$]*")
"""Without a user, a query, parameters or references: hints can show it."""
_PATTERN = re.compile(r"[^\s'\"<>!()]+=[^\s'\"<>!()]*")

CatalogUri = Annotated[
    str,
    typer.Option(
        "--catalog-uri",
        envvar="CATALOG_URI",
        metavar="URI",
        help="http(s)://HOST (rest), sqlite:///FILE or postgresql://HOST/DB (sql), thrift://HOST:PORT (hive), "
        "glue or glue:REGION, or a warehouse directory.",
    ),
]
Table = Annotated[
    str, typer.Option("--table", metavar="NAME", help=r"\[catalog.]\[namespace.]table; the namespace is default unless given.")
]
Partition = Annotated[
    list[str] | None,
    typer.Option(
        "--partition",
        metavar="PATTERN|PREDICATE",
        show_default=False,
        help="Only these partitions: 'day=2025-01-*', or Spark SQL such as \"day = DATE '2025-01-17'\"; repeatable.",
    ),
]
Strategy = Annotated[
    str | None,
    typer.Option("--strategy", metavar="NAME", show_default=False, help="What is worth rewriting, such as adaptive."),
]
TargetSize = Annotated[
    int | None, typer.Option("--target-size-mb", min=1, metavar="N", show_default=False, help="The size of a good file.")
]
MinSize = Annotated[
    int | None, typer.Option("--min-size-mb", min=1, metavar="N", show_default=False, help="Files below this are small.")
]


@dataclass(frozen=True)
class NamedCatalog:
    """What a URI says: a directory to open, or a catalog as settings describe it."""

    name: str
    warehouse: str | None = None
    settings: dict[str, str] = field(default_factory=dict)


def catalog_of(uri: str, *, name: str, warehouse: str | None = None) -> NamedCatalog:
    """Tells the kind of catalog by its URI. Raises BadRequestError for one that names none."""
    scheme, colon, rest = uri.partition(":")
    more = {"warehouse": warehouse} if warehouse else {}
    stated = {"uri": uri if _PLAIN_URI.fullmatch(uri) else f"${{env:{URI_VARIABLE}}}"}
    match scheme if colon or uri == "glue" else "file":
        case "http" | "https":
            kind = "nessie" if re.search(r"/api/v[12]/?$", uri) else "rest"
            return _described(name, {"type": kind, **stated, **more})
        case "sqlite":
            # Where new tables would go is of no matter here, and a catalog must be told.
            beside = os.path.dirname(rest.removeprefix("///")) or "."  # noqa: PTH120 - a URL's path, not yet a file's
            return _described(name, {"type": "sql", **stated, "warehouse": beside, **more})
        case "postgresql" | "postgres":
            return _described(name, {"type": "sql", **stated, **more})
        case "thrift":
            return _described(name, {"type": "hive", **stated, **more})
        case "glue":
            region = {"storage.s3.region": rest.strip("/")} if rest.strip("/") else {}
            return _described(name, {"type": "glue", **region, **more})
        case kind if kind in _WAREHOUSES and warehouse:
            raise BadRequestError(f"Cannot use --warehouse {warehouse}: the catalog is the directory {uri} already")
        case kind if kind in _WAREHOUSES:
            return NamedCatalog(name, warehouse=uri)
    raise BadRequestError(
        f"Cannot open a catalog at {scheme}:...: known are http, https, sqlite, postgresql, thrift, glue, and a directory",
        hint="Describe other catalogs in neve.yaml (docs/guide/catalogs.md), and use `neve compact TABLE`.",
    )


def _described(name: str, values: dict[str, str]) -> NamedCatalog:
    return NamedCatalog(name, settings={f"catalogs.{name}.{key}": value for key, value in values.items()})


def sizes(target_size_mb: int | None, min_size_mb: int | None) -> list[str]:
    """The two sizes as `--set` takes them."""
    said = {"target-file-size": target_size_mb, "small-file-threshold": min_size_mb}
    return [f"policy.{key}={value} MiB" for key, value in said.items() if value is not None]


def partitions_of(said: list[str] | None, where: str | None = None) -> tuple[list[str], str | None]:
    """Patterns and predicates apart; any of the predicates will do, besides what `where` demands."""
    patterns = [text for text in said or () if _PATTERN.fullmatch(text)]
    either = " OR ".join(f"({text})" for text in said or () if text not in patterns)
    return patterns, " AND ".join(f"({text})" for text in (where, either) if text) or None


@command
def iceberg_compact(
    call: Call,
    catalog_uri: CatalogUri,
    table: Table,
    strategy: Strategy = None,
    partition: Partition = None,
    target_size_mb: TargetSize = None,
    min_size_mb: MinSize = None,
    expire_snapshots: ExpireSnapshots = False,
    snapshot_retention_hours: SnapshotRetentionHours = None,
    dry_run: DryRun = False,
) -> None:
    """Compact small files of an Iceberg table into files of the target size, on Spark. Rows do not change.

    Appends are never blocked; a concurrent UPDATE, DELETE or MERGE on the same files may have to be retried.

    As `neve compact`, for schedulers. Where sqlite or postgresql keep the catalog under a name of its own, say it by --catalog.
    """
    shared, parts = call.shared, table.split(".")
    name = shared.catalog or (parts[0] if len(parts) > 2 else "local")
    found = catalog_of(catalog_uri, name=name, warehouse=shared.warehouse)
    said = [f"policy.strategy={strategy}"] if strategy is not None else []
    call.shared = _settled(shared, found, [*said, *sizes(target_size_mb, min_size_mb)])
    patterns, where = partitions_of(partition)
    request = request_of(None, None, patterns, where=where, branch="main", force=False)
    full = table if len(parts) > 1 else f"default.{table}"
    if dry_run:
        refuse_expiry_in_dry_run(full, expire_snapshots=expire_snapshots, hours=snapshot_retention_hours)
    expiry = {"expire_snapshots": expire_snapshots, "snapshot_retention_hours": snapshot_retention_hours}
    _run(call, full, found, catalog_uri, request, dry_run=dry_run, expiry=expiry)


def _settled(shared: Shared, found: NamedCatalog, more: list[str]) -> Shared:
    """What was said, in the words of `neve compact`; the user's own `--set` has the last one."""
    described = [f"{key}={value}" for key, value in found.settings.items()]
    name = found.name if described else shared.catalog
    return replace(shared, warehouse=found.warehouse, catalog=name, set=[*described, *more, *shared.set])


def _run(
    call: Call, table: str, found: NamedCatalog, uri: str, request: Request, *, dry_run: bool, expiry: dict[str, Any]
) -> None:
    from neve.api import Neve

    environ = {**os.environ, URI_VARIABLE: uri}
    call.shared = replace(call.shared, warehouse=found.warehouse)  # for commands that are suggested: it is a directory or None
    with Neve.open(call.loaded, warehouse=found.warehouse, environ=environ) as neve, call.progress() as progress:
        if dry_run:
            call.output.plan(neve.plan(table, request=request, progress=progress), groups=10)
            return
        progress("compact", 0, None)
        record = neve.compact(table, request=request, **expiry, progress=progress)
    call.output.ended(record, next_steps=[again(call.shared, "runs", "show", record.run_id[:8])])
    if code := exit_code(record):
        raise typer.Exit(code)


app = typer.Typer(
    name="iceberg-compact",
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(
    epilog=examples(
        "iceberg-compact --catalog-uri https://catalog.example.com --table db.events",
        "iceberg-compact --catalog-uri sqlite:////lake/catalog.db --table db.events --target-size-mb 256 --min-size-mb 64",
        "iceberg-compact --catalog-uri ./warehouse --table db.events --partition 'day=2025-01-*' --dry-run --json",
    )
)(iceberg_compact)


def main() -> None:
    """The console script; Ctrl-C leaves with 130, even while modules are loading."""
    try:
        app(prog_name="iceberg-compact")
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted\n")
        raise SystemExit(130) from None
