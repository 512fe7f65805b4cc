"""`neve demo`: a warehouse of believable bad tables in a local directory, a look at each, and a compaction of some."""

from __future__ import annotations

import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.demo_directory import DemoDirectory
from neve.cli.failures import PARTLY_DONE
from neve.cli.next_steps import again
from neve.cli.options import Shared
from neve.errors import BadRequestError, NeveError

if TYPE_CHECKING:
    from neve.api import Neve
    from neve.health.inspection import Inspection
    from neve.render.demo import DemoCompaction
    from neve.samples import Sample

DEFAULT_DIRECTORY = "demo-warehouse"
NAMESPACE = "db"


@command
def demo(
    call: Call,
    keep: Annotated[bool, typer.Option("--keep", help="Reuse the tables of an earlier demo if it was finished.")] = False,
    spark: Annotated[bool, typer.Option(help="Also write the samples that need Spark, if it is installed.")] = True,
) -> None:
    """Write sample tables into ./demo-warehouse (or --warehouse DIR), show what hurts in them, and compact two.

    Needs nothing else running; without Spark nothing is compacted. A directory that is not a demo warehouse is left
    alone. Leaves with exit code 3 if some of the samples could not be written or compacted.
    """
    directory = DemoDirectory(_local_path(call.shared.warehouse))
    samples = _chosen(with_spark=spark)
    reuse = keep and directory.finished() >= {sample.name for sample in samples}
    if not reuse:
        directory.start_afresh()
    with call.neve(warehouse=str(directory.path), create_warehouse=True) as neve:
        failures = [] if reuse else _write(call, neve, directory, samples)
        inspections = _look(call, neve, directory.finished())
        compactions = _compact(call, neve, directory.finished(), failures) if _usable(spark) and not failures else []
    steps = _next_steps(call.shared, directory.path, inspections, compactions)
    call.output.demo(str(directory.path), inspections, compactions, failures, next_steps=steps)
    if failures:
        raise typer.Exit(PARTLY_DONE)


def _local_path(warehouse: str | None) -> Path:
    from neve.table.location import address

    if warehouse is not None and address(warehouse).kind != "file":
        raise BadRequestError(
            f"Cannot write the demo to {warehouse}: only a local directory will do", hint="Give --warehouse a path."
        )
    return Path(address(warehouse).local_path if warehouse else DEFAULT_DIRECTORY)


def _chosen(*, with_spark: bool) -> list[Sample]:
    from neve.samples import SAMPLES

    usable = _usable(with_spark)
    return [sample for sample in SAMPLES.values() if usable or not sample.needs_spark]


def _usable(wanted: bool) -> bool:
    return wanted and find_spec("pyspark") is not None


def _write(call: Call, neve: Neve, directory: DemoDirectory, samples: list[Sample]) -> list[str]:
    """Writes the samples, those without Spark first; a failure is told at the end and does not stop the other group."""
    failures: list[str] = []
    for needs_spark in (False, True):
        group = [sample for sample in samples if sample.needs_spark is needs_spark]
        try:
            _write_group(call, neve, directory, group, needs_spark=needs_spark)
        except NeveError as error:
            missing = ", ".join(sample.name for sample in group if sample.name not in directory.finished())
            failures.append(f"Not written: {missing}. {error}" + (f" ({error.hint})" if error.hint else ""))
    return failures


def _write_group(call: Call, neve: Neve, directory: DemoDirectory, group: list[Sample], *, needs_spark: bool) -> None:
    if not group:
        return
    if needs_spark:
        call.tell("Starting Spark for the samples that need it ...")
    with neve.demo_target(NAMESPACE, spark=needs_spark) as target:
        for sample in group:
            started = time.monotonic()
            sample.build(target)
            directory.mark(directory.finished() | {sample.name})
            took = time.monotonic() - started
            call.tell(f"Wrote {NAMESPACE}.{sample.name} in {took:.1f} s: {sample.description}")


def _look(call: Call, neve: Neve, names: frozenset[str]) -> list[Inspection]:
    with call.progress() as progress:
        looks = []
        for done, name in enumerate(sorted(names)):
            progress("looking at the tables", done, len(names))
            looks.append(neve.inspect(f"{NAMESPACE}.{name}"))
        return looks


def _compact(call: Call, neve: Neve, names: frozenset[str], failures: list[str]) -> list[DemoCompaction]:
    """Compacts some of the tables; what goes wrong is added to the failures."""
    from neve.cli.demo_compaction import compact_some

    done: list[DemoCompaction] = []
    try:
        for compaction in compact_some(call, neve, NAMESPACE, names):
            done.append(compaction)
            failures += compaction.complaints
    except NeveError as error:
        failures.append(f"Not compacted: {error}" + (f" ({error.hint})" if error.hint else ""))
    return done


def _next_steps(shared: Shared, directory: Path, inspections: list[Inspection], compactions: list[DemoCompaction]) -> list[str]:
    done = {compaction.record.table for compaction in compactions}
    sick = [inspection for inspection in inspections if inspection.table not in done]
    if not sick:
        return [again(shared, "doctor")]
    sickest, there = min(sick, key=lambda i: (i.health.score, i.table)).table, replace(shared, warehouse=str(directory))
    return [
        again(there, "inspect", sickest, "--html", "table.html"),
        again(there, "plan", sickest),
        again(there, "compact", sickest),
        again(there, "runs"),
        again(there, "doctor"),
    ]
