"""`neve inspect`: what hurts in one table, as text, JSON or a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.options import KnobCommand
from neve.errors import StorageError
from neve.table.depth import Depth

DEFAULT_SAMPLE = 32


class InspectCommand(KnobCommand):
    """Lets `--sample` stand without a number, which Typer's options cannot."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Puts the default number behind a bare `--sample`."""
        return super().parse_args(ctx, _with_sample_size(args))


def _with_sample_size(args: list[str]) -> list[str]:
    result: list[str] = []
    for index, arg in enumerate(args):
        result.append(arg)
        following = args[index + 1] if index + 1 < len(args) else ""
        if arg == "--sample" and not following.lstrip("-").isdigit():
            result.append(str(DEFAULT_SAMPLE))
    return result


@command
def inspect(
    call: Call,
    table: Annotated[str, typer.Argument(metavar="TABLE", help=r"\[catalog.]namespace.table, such as db.events.")],
    depth: Annotated[Depth, typer.Option(help="How much metadata to read; less is faster.")] = Depth.FILES,
    sample: Annotated[
        int,
        typer.Option(
            min=0, metavar="[N]", show_default=False, help=f"Read row groups from the footers of N files ({DEFAULT_SAMPLE})."
        ),
    ] = 0,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            show_default=False,
            help="Look at the clustering by these columns, such as 'city, amount'; by the table's own layout unless given.",
        ),
    ] = None,
    branch: Annotated[str, typer.Option(metavar="NAME", help="The branch whose head to look at.")] = "main",
    partitions: Annotated[int, typer.Option(min=0, metavar="N", help="Partitions shown in the text.")] = 10,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with plots as well.")] = None,
) -> None:
    """Show what hurts in a table: health, file sizes, deletes, clustering, partitions in need.

    Reads metadata only, and starts no Java: safe to run at any time, on any table.
    """
    if by is not None:
        from neve.operations.cluster import asked_layout
        from neve.operations.inspect import require_files

        require_files(depth, "--by")
        call.shared = replace(call.shared, set=[*call.shared.set, f"policy.cluster-by={asked_layout(by, None)}"])
    with call.neve() as neve, call.progress() as progress:
        inspection = neve.inspect(table, depth=depth, sample=sample, branch=branch, progress=progress)
    if html is not None:
        _write_page(html, inspection)
    call.output.inspection(inspection, partitions=partitions)


def _write_page(path: Path, inspection: Any) -> None:
    from neve.render.html import inspection_html

    page = inspection_html(inspection)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"Cannot write page {path}: {error.strerror}", hint="Give a writable path to --html.") from error
