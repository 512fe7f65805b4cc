"""The page docs/guide/accidents.md, made from the accidents of this folder. `python -m tests.accidents.page` writes it anew."""

from __future__ import annotations

import importlib
from itertools import groupby
from pathlib import Path

from tests.accidents.unguarded import ACCIDENTS, Accident

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "guide" / "accidents.md"

HEAD = """# Accidents that do not happen here

Tools that maintain Iceberg tables have lost data, and reports of it are public. Each line below is such an accident, where it
happened, what keeps it from happening here, and the test that brings it about. A test runs twice: as Neve is, when the table
must read completely afterwards, every file of every branch and tag opened, the rows read by another engine; and with the guard
taken out, when the same check must see the damage. Where a second guard stands behind the first, the test also runs on the
second alone.

This page is written by `python -m tests.accidents.page`; a test compares it with the suite.
"""


def text() -> str:
    """The page as it should be."""
    for path in sorted(HERE.glob("test_*.py")):
        importlib.import_module(f"tests.accidents.{path.stem}")
    known = sorted(ACCIDENTS, key=lambda accident: accident.module)  # within a module, as they stand there
    sections = (_section(module, list(found)) for module, found in groupby(known, key=lambda accident: accident.module))
    return "\n".join([HEAD, *sections])


def _section(module: str, found: list[Accident]) -> str:
    title = (importlib.import_module(module).__doc__ or "").splitlines()[0].partition(":")[0].rstrip(".")
    rows = [f"| {each.words} | {each.evidence} | {each.guard} | `{each.test}` |" for each in found]
    path = f"{module.replace('.', '/')}.py"
    columns = ["| accident | where it happened | our guard | test |", "|---|---|---|---|"]
    return "\n".join([f"## {title}", "", f"Tests: `{path}`.", "", *columns, *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
