"""`neve setup`: everything that the first run would otherwise do by itself: jars, Java, and the class archive."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from neve.cli.call import Call
from neve.cli.command import command

if TYPE_CHECKING:
    from neve.context.class_archives import Prepared


@command
def setup(call: Call) -> None:
    """Prepare this machine for fast starts: find Java, download jars, and make the class archive.

    Takes about a minute of CPU time the first time, and little after that. Without it, the first run downloads the jars and
    the archive is made in the background after that run. Exits 0 also when no archive can be made, and says why: runs work
    without one.
    """
    from neve.cli.output import SCHEMA_VERSION
    from neve.render.phrases import printable

    with call.neve() as neve:
        done = neve.prepare()
    if call.wants_json:
        sys.stdout.write(json.dumps({"schema_version": SCHEMA_VERSION, **asdict(done)}, indent=2) + "\n")
        return
    for line in _lines(done):
        call.stdout.print(printable(line), markup=False, soft_wrap=True)


def _lines(done: Prepared) -> list[str]:
    from neve.table.units import format_bytes

    names = ", ".join(Path(jar).name for jar in done.jars)
    if done.archive is None:
        archive = f"Class archive: none; {done.reason}. Runs work without one, and start more slowly."
    else:
        state = "made" if done.made else "already there"
        archive = f"Class archive: {state}, {format_bytes(done.archive_bytes)} in {done.archive}"
    return [f"Java: {done.java}", f"Jars: {names}", archive]
