"""What a benchmark leaves behind: one table on the terminal, the same with all figures as JSON, and charts.

The benchmarks call `leave`. `python -m bench.chart_page` puts the tables of the newest JSON files into `docs/benchmarks.md`,
between its marks.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.chart import BarChart, Chart

OUT = Path(__file__).parent / "out"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
_MARK = re.compile(r"(<!-- figures: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Figures:
    """A table of texts; the first `left` columns are words, the others numbers. `notes` are lines below it."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    notes: Sequence[str] = ()

    def text(self) -> str:
        """For a terminal."""
        lines = [self.head, *self.rows]
        widths = [max(len(line[n]) for line in lines) for n in range(len(self.head))]
        aligned = ["  ".join(self._pad(cell, n, widths[n]) for n, cell in enumerate(line)).rstrip() for line in lines]
        return "\n".join([*aligned, *self.notes])

    def markdown(self) -> str:
        """For a page."""
        rule = ["---" if n < self.left else "--:" for n in range(len(self.head))]
        lines = [f"| {' | '.join(line)} |" for line in (self.head, rule, *self.rows)]
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes), ""])

    def _pad(self, cell: str, column: int, width: int) -> str:
        return cell.ljust(width) if column < self.left else cell.rjust(width)


def machine() -> dict[str, Any]:
    """What the figures hang on; ask before the work begins, or the load is the benchmark's own."""
    load, cores = os.getloadavg()[0], os.cpu_count()
    if load > 0.5:
        print(f"This machine is busy (load {load:.1f} on {cores} cores): times will be too long.", file=sys.stderr)
    return {"python": platform.python_version(), "machine": platform.machine(), "cores": cores, "load_at_start": load}


def leave(
    name: str,
    figures: Figures,
    content: Mapping[str, Any],
    charts: Mapping[str, Chart | BarChart],
    *,
    json_file: Path | None,
    quick: bool,
) -> None:
    """Prints the table and writes all files beside the JSON file that was asked for, or into `bench/out`.

    Quick figures go into a folder of their own there: nobody is to take them for a measurement.
    """
    print(figures.text())
    path = json_file or (OUT / "quick" if quick else OUT) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**content, "figures": asdict(figures)}, indent=2) + "\n", encoding="utf-8")
    for title, chart in charts.items():
        (path.parent / f"{title}.svg").write_text(chart.svg(), encoding="utf-8")


def filled(page: str, tables: Mapping[str, str]) -> str:
    """The page with every marked place holding the table of its name; where there is none it stays as it is."""
    return _MARK.sub(lambda m: m[1] + tables[m["name"]] + m[3] if m["name"] in tables else m[0], page)


def main() -> int:
    """Fills the page from `bench/out`."""
    documents = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(OUT.glob("*.json"))}
    tables = {name: Figures(**found["figures"]).markdown() for name, found in documents.items() if "figures" in found}
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
    print(f"filled in: {', '.join(sorted(tables)) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
