"""`neve work`: carries out one work order in a process of its own, without Spark and without Java.

Speaks JSON only: an order comes in, a result or an error goes out. A result is complete or not there at all.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from neve.cli.call import Call
from neve.cli.command import command
from neve.errors import BadRequestError, StorageError

if TYPE_CHECKING:
    from neve.rewrite.work_order import WorkOrder

STREAM = "-"
_SCHEMA = "docs/reference/work-order.schema.json says what an order looks like."


@command
def work(
    call: Call,
    order: Annotated[str, typer.Argument(metavar="ORDER", help="The order's file, as JSON; - for standard input.")],
    out: Annotated[str, typer.Option("--out", metavar="RESULT", help="The result's file; - for standard output.")] = STREAM,
) -> None:
    """Carry out one work order of a plan, here: without Spark, without Java, from any directory.

    Writes new data files and commits nothing; the result says what was written and counted. Credentials are those of the
    order's catalog in the settings of this machine. Leaves with exit code 1 if every kernel of the order refused it, 2 if it
    is no order; the reason is JSON on standard output, and nothing is left behind.
    """
    call.shared = replace(call.shared, json=True)
    wanted = read_order(order)
    with _stopped_like_ctrl_c(), _destination(out) as deliver, call.neve() as neve:
        deliver(neve.execute(wanted).model_dump_json() + "\n")


def read_order(place: str) -> WorkOrder:
    """The order in a file or on standard input. Raises BadRequestError for anything that is none."""
    from pydantic import ValidationError

    from neve.rewrite.work_order import FORMAT_VERSION, WorkOrder

    document = _parse(place)
    version = document.get("format_version") if isinstance(document, dict) else None
    # Looked at first: a newer order may have keys that this release would call mistakes.
    if isinstance(version, int) and version > FORMAT_VERSION:
        reason = f"its format version {version} is newer than {FORMAT_VERSION}"
        raise BadRequestError(f"Cannot read order {place}: {reason}", hint="Run it with the release that made it.")
    try:
        return WorkOrder.model_validate(document)
    except ValidationError as error:
        first, *more = error.errors(include_url=False, include_input=False)
        where = ".".join(str(part) for part in first["loc"])
        rest = f" (and {len(more)} more)" if more else ""
        reason = f"{where}: {first['msg']}" if where else first["msg"]
        raise BadRequestError(f"Cannot read order {place}: {reason}{rest}", hint=_SCHEMA) from None


def _parse(place: str) -> Any:
    try:
        return json.loads(sys.stdin.buffer.read() if place == STREAM else Path(place).read_bytes())
    except OSError as error:
        raise BadRequestError(f"Cannot read order {place}: {error.strerror}") from error
    except ValueError as error:
        raise BadRequestError(f"Cannot read order {place}: it is no JSON ({error})", hint=_SCHEMA) from error


@contextmanager
def _destination(place: str) -> Iterator[Callable[[str], object]]:
    """Takes the result. Opened before any work is done, so that none is done in vain; named only once it is complete."""
    if place == STREAM:
        yield sys.stdout.write
        return
    path = Path(place)
    partial = path.with_name(f".{path.name}.{uuid4().hex}.partial")
    try:
        if path.is_dir():
            raise IsADirectoryError(0, "it is a directory")
        file = partial.open("x", encoding="utf-8")
    except OSError as error:
        raise BadRequestError(f"Cannot write result {place}: {error.strerror}") from error
    try:
        with file:
            yield lambda text: _complete(file, text, path)
    finally:
        partial.unlink(missing_ok=True)


def _complete(file: IO[str], text: str, path: Path) -> None:
    try:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        Path(file.name).replace(path)
    except OSError as error:
        raise StorageError(f"Cannot write result {path}: {error.strerror}") from error


@contextmanager
def _stopped_like_ctrl_c() -> Iterator[None]:
    """Whoever runs workers stops them by SIGTERM, and files of an order that is given up must go then too."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
