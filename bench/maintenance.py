"""Upkeep of metadata: ours against Iceberg's own procedures on the same tables, in the same warm session, taking turns.

Run as `python -m bench.maintenance --work DIR`. Expiry of thousands of snapshots, orphans among a million listed files, and a
thousand manifests made few. Exits with 1 when a bar is missed, with 2 when somebody left the wrong files.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.chart import BarChart
from bench.chart_page import Figures, leave, machine
from bench.contest import Side, take_turns
from bench.driver_memory import OURS, THEIRS, driver_memory
from bench.maintenance_parts import Expiry, ManyManifests, OrphanHunt, Place
from bench.rewrite import WrongContentError, opened
from neve.table.units import MIB

PARTS = ("expire", "orphans", "manifests")
BARRED = ("expire", "orphans", "rewrite")
"""Cases, by their first word, in which ours may take no more than the best of theirs, in wall time and in CPU."""
FLAT = 1.2
"""The bar on the driver's memory: so many times that of a list of a quarter of the size."""
ORPHANS = 1_000
DAY = "2025-01-15"


@dataclass
class Found:
    """What all parts came to."""

    sides: list[Side] = field(default_factory=list)
    memory: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    """Of the driver, by contender and number of files."""
    predicted: dict[str, Any] = field(default_factory=dict)


def main() -> int:
    """Generates, measures, prints, writes, judges."""
    options, about, result = _options(), machine(), Found()
    parts = {"expire": _expire, "orphans": _orphans, "manifests": _manifests}
    try:
        for name in options.only:
            parts[name](options, result)
    except WrongContentError as error:
        print(error, file=sys.stderr)
        return 2
    missed = [] if options.quick else list(_missed(result))
    content = {
        **about,
        "scale": options.scale,
        "repeats": options.repeats,
        "missed": missed,
        "rows": [side.told() for side in result.sides],
        "memory": result.memory,
        "predicted": result.predicted,
    }
    leave("maintenance", _figures(result, options), content, _charts(result), json_file=options.json, quick=options.quick)
    for words in missed:
        print(words)
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="a directory for the tables, made anew")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where figures go (bench/out/maintenance.json)")
    parser.add_argument("--quick", action="store_true", help="small tables, once: only to see that it works")
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=list(PARTS), help="some of expire,orphans,manifests"
    )
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help="times 5,000 snapshots, 1,000,000 files (1)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs of each contender (3)")
    options = parser.parse_args()
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    if options.quick:
        options.scale, options.repeats = 0.02, 1
    return options


def _fresh(options: argparse.Namespace, name: str) -> Path:
    """A directory of its own: other tables of a catalog are looked at, too."""
    work: Path = options.work / name
    shutil.rmtree(work, ignore_errors=True)
    return work


def _expire(options: argparse.Namespace, result: Found) -> None:
    work = _fresh(options, "expire")
    with opened(work, cores=2) as neve:
        expiry = Expiry(Place(neve, work), round(5_000 * options.scale))
        for sides in (expiry.sides(), [expiry.settling()]):
            result.sides += take_turns(neve.spark, sides, expected=expiry.lost, repeats=options.repeats)


def _orphans(options: argparse.Namespace, result: Found) -> None:
    work, sizes = _fresh(options, "orphans"), (round(250_000 * options.scale), round(1_000_000 * options.scale))
    with opened(work, cores=2) as neve:
        hunts = [OrphanHunt(Place(neve, work), files, ORPHANS) for files in sizes]
        for hunt in hunts:
            result.sides += take_turns(neve.spark, hunt.sides(), expected=hunt.orphans, repeats=options.repeats)
    for hunt in hunts:
        for contender in (OURS,) if options.quick else (OURS, THEIRS):
            told = driver_memory(work, hunt, contender)
            if told.get("orphans") != len(hunt.orphans):
                raise WrongContentError(f"{contender} on a cluster: {told}")
            result.memory.setdefault(contender, {})[hunt.listed] = told


def _manifests(options: argparse.Namespace, result: Found) -> None:
    work = _fresh(options, "manifests")
    with opened(work, cores=2) as neve:
        many = ManyManifests(Place(neve, work), round(100_000 * options.scale), round(1_000 * options.scale))
        result.sides += take_turns(neve.spark, many.sides(), expected=many.files, repeats=options.repeats)
        for day, expected in ((None, many.files), (DAY, many.files_of(DAY))):
            result.sides += take_turns(neve.spark, many.planning(day), expected=expected, repeats=_plannings(options))
        if many.record is not None and many.record.before and many.record.after:
            told = (many.record.before.model_dump(), many.record.after.model_dump())
            result.predicted = dict(zip(("before", "after"), told, strict=True))


def _plannings(options: argparse.Namespace) -> int:
    return 1 if options.quick else max(5, options.repeats)


def _cases(sides: Sequence[Side]) -> Iterator[list[Side]]:
    for _, some in groupby(sides, key=lambda side: side.case):
        yield list(some)


def _missed(result: Found) -> Iterator[str]:
    """Ours may take no longer, whatever it checks besides, and the driver's memory must be flat."""
    for ours, *theirs in _cases(result.sides):
        for name in ("wall_seconds", "cpu_seconds") if ours.case.split()[0] in BARRED else ():
            took, best = ours.median(name), min(side.median(name) for side in theirs)
            if took > best:
                yield f"{ours.case}: {ours.name} took {took:.2f} {name}, Iceberg's own {best:.2f}"
    sizes = sorted(result.memory.get(OURS, {}))
    for name in ("python_bytes", "heap_bytes") if sizes else ():
        few, many = (result.memory[OURS][size][name] for size in (sizes[0], sizes[-1]))
        if many > FLAT * few:
            yield f"{name} of the driver grew {many / few:.2f} times from {sizes[0]:,} to {sizes[-1]:,} files (bar: {FLAT:g})"


def _figures(result: Found, options: argparse.Namespace) -> Figures:
    head = ["case", "contender", "wall s", "x", "CPU s", "x"]
    lines = []
    for sides in _cases(result.sides):
        base = sides[0] if sides[0].case.startswith("plan") else sides[-1]
        for side in sides:
            times = (("wall_seconds", 2), ("cpu_seconds", 2))
            cells = [
                (f"{side.median(name):.{digits}f}", f"{base.median(name) / max(side.median(name), 0.001):.1f}")
                for name, digits in times
            ]
            lines.append([side.case, side.name, *(cell for pair in cells for cell in pair)])
    return Figures(head, lines, left=2, notes=list(_notes(result, options)))


def _notes(result: Found, options: argparse.Namespace) -> Iterator[str]:
    yield (
        f"Medians of {options.repeats}, contenders taking turns in one warm session of two tasks; of planning, of "
        f"{_plannings(options)}. x is against the last of a case, of planning against the first."
    )
    for contender, by_size in result.memory.items():
        told = [
            f"{size:,} files: {found['python_bytes'] / MIB:.0f} MiB of Python, {found['heap_bytes'] / MIB:.0f} MiB of heap"
            for size, found in by_size.items()
        ]
        yield f"Driver of {contender}, tasks elsewhere: {'; '.join(told)}."
    if result.predicted:
        before, after = result.predicted["before"], result.predicted["after"]
        yield (
            f"Predicted by neve manifests: from {before['whole']:,} manifests and {before['seconds']:.2f} s of one core to "
            f"{after['whole']:,} and {after['seconds']:.2f} s; of one day from {before['one']:,} manifests to {after['one']:,}."
        )


def _charts(result: Found) -> dict[str, BarChart]:
    bars = [(side.case, [(side.name, side.median("wall_seconds"))]) for side in result.sides]
    grouped = [(case, [bar for _, (bar,) in some]) for case, some in groupby(bars, key=lambda pair: pair[0])]
    return {"maintenance": BarChart("Upkeep of metadata", "s", grouped)}


if __name__ == "__main__":
    sys.exit(main())
