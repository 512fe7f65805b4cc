"""`iceberg-compact`: one compaction of one table, its catalog named by a URI instead of a settings file.

A console script for CronJobs and schedulers. It puts into settings what the URI tells, and does what `neve compact` does.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import MISSING, dataclass, field, replace
from typing import Annotated, Any

import typer

from neve.cli.call import Call
from neve.cli.command import examples
from neve.cli.compact import EXPIRY, exit_code
from neve.cli.next_steps import again
from neve.cli.operation_command import request_command
from neve.cli.options import Shared
from neve.errors import BadRequestError

URI_VARIABLE = "ICEBERG_COMPACT_CATALOG_URI"
"""Settings hold a reference to this where the URI may carry a password, which must not be shown."""

_WAREHOUSES = ("file", "s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "hdfs", "wasb", "wasbs")
_PLAIN_URI = re.compile(r"[^@?#;$]*")
"""Without a user, a query, parameters or references: hints can show it."""
_PATTERN = re.compile(r"[^\s'\"<>!()]+=[^\s'\"<>!()]*")

CATALOG_URI = (
    Annotated[
        str,
        typer.Option(
            "--catalog-uri",
            envvar="CATALOG_URI",
            metavar="URI",
            help="http(s)://HOST (rest), sqlite:///FILE or postgresql://HOST/DB (sql), thrift://HOST:PORT (hive), "
            "glue or glue:REGION, or a warehouse directory.",
        ),
    ],
    MISSING,
)
PARTITIONS = (
    Annotated[
        list[str] | None,
        typer.Option(
            "--partition",
            metavar="PATTERN|PREDICATE",
            show_default=False,
            help="Only these partitions: 'day=2025-01-*', or Spark SQL such as \"day = DATE '2025-01-17'\"; repeatable.",
        ),
    ],
    None,
)
STRATEGY = (
    Annotated[
        str | None,
        typer.Option("--strategy", metavar="NAME", show_default=False, help="What is worth rewriting, such as adaptive."),
    ],
    None,
)


def table_option(text: str) -> tuple[Any, Any]:
    """The table, named by an option."""
    return Annotated[str, typer.Option("--table", metavar="NAME", help=text)], MISSING


def megabytes(flag: str, text: str) -> tuple[Any, Any]:
    """A size."""
    return Annotated[int | None, typer.Option(flag, min=1, metavar="N", show_default=False, help=text)], None


SIZES = {
    "target_size_mb": megabytes("--target-size-mb", "The size of a good file."),
    "min_size_mb": megabytes("--min-size-mb", "Files below this are small."),
}


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


def _iceberg_compact(call: Call, options: dict[str, Any]) -> None:
    shared, table, uri = call.shared, options["table"], options["catalog_uri"]
    parts = table.split(".")
    name = shared.catalog or (parts[0] if len(parts) > 2 else "local")
    found = catalog_of(uri, name=name, warehouse=shared.warehouse)
    said = [f"policy.strategy={options['strategy']}"] if options["strategy"] is not None else []
    call.shared = _settled(shared, found, [*said, *sizes(options["target_size_mb"], options["min_size_mb"])])
    patterns, where = partitions_of(options["partitions"])
    asked = {key: options[key] for key in (*EXPIRY, "dry_run")}
    full = table if len(parts) > 1 else f"default.{table}"
    _run(call, full, found, uri, {"partitions": patterns, "where": where, **asked})


def _settled(shared: Shared, found: NamedCatalog, more: list[str]) -> Shared:
    """What was said, in the words of `neve compact`; the user's own `--set` has the last one."""
    described = [f"{key}={value}" for key, value in found.settings.items()]
    name = found.name if described else shared.catalog
    return replace(shared, warehouse=found.warehouse, catalog=name, set=[*described, *more, *shared.set])


def _run(call: Call, table: str, found: NamedCatalog, uri: str, asked: dict[str, Any]) -> None:
    from neve.api import Neve

    environ = {**os.environ, URI_VARIABLE: uri}
    call.shared = replace(call.shared, warehouse=found.warehouse)  # for commands that are suggested: it is a directory or None
    with Neve.open(call.loaded, warehouse=found.warehouse, environ=environ) as neve, call.progress() as progress:
        if asked["dry_run"]:
            planned: Any = neve.compact(table, **asked, progress=progress)
            call.output.plan(planned, groups=10)
            return
        progress("compact", 0, None)
        record = neve.compact(table, **asked, progress=progress)
    if record.run_id is None:
        step = again(call.shared, "inspect", record.table)
    else:
        step = again(call.shared, "runs", "show", record.run_id[:8])
    call.output.ended(record, next_steps=[step])
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
)(
    request_command(
        "compact",
        _iceberg_compact,
        title="iceberg-compact",
        help="""Compact small files of an Iceberg table into files of the target size, on Spark. Rows do not change.

    Appends are never blocked; a concurrent UPDATE, DELETE or MERGE on the same files may have to be retried.

    As `neve compact`, for schedulers. Where sqlite or postgresql keep the catalog under a name of its own, say it by --catalog.
    """,
        offered=("catalog_uri", "table", "strategy", "partitions", *SIZES, *EXPIRY, "dry_run"),
        extra={
            "catalog_uri": CATALOG_URI,
            "table": table_option(r"\[catalog.]\[namespace.]table; the namespace is default unless given."),
            "strategy": STRATEGY,
            "partitions": PARTITIONS,
            **SIZES,
        },
    )
)


def main() -> None:
    """The console script; Ctrl-C leaves with 130, even while modules are loading."""
    try:
        app(prog_name="iceberg-compact")
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted\n")
        raise SystemExit(130) from None
