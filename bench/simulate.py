"""Which strategy keeps a table cheapest? Weeks of writes, compactions and queries on metadata alone, and what they cost.

Run as `python -m bench.simulate` for all workloads and strategies, or with `--workload NAME --strategy NAME --weeks 2`.
`validate` holds the simulator against recorded runs, `record` makes these (with Spark), `learn` draws its constants from them.
Exits with 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.chart import BarChart
from bench.chart_page import Figures, leave, machine
from bench.simulation.rewriting import CALIBRATION, calibration
from bench.simulation.running import NOTHING, Life, Strategy, live
from bench.simulation.workloads import names, workload
from neve.table.units import GIB, MIB

if TYPE_CHECKING:
    from bench.simulation.replaying import Compared

FIXED = ("small-files", "delete-files", "time-series", "dimensional", "cost-optimized")
ADAPTIVE = "adaptive"
BEHIND = 1.05
"""How far `adaptive` may be behind the best fixed strategy on any workload."""
FIRST_SEED = 1


def main() -> int:
    """Does what was asked for."""
    options = _options()
    return {"compare": _compare, "record": _record, "learn": _learn, "validate": _validate}[options.what](options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", default="compare", choices=["compare", "record", "learn", "validate"])
    parser.add_argument("--workload", type=_listed, default=names(), metavar="LIST", help=f"of {', '.join(names())}")
    parser.add_argument("--strategy", type=_listed, default=[*FIXED, ADAPTIVE], metavar="LIST", help=f"also {NOTHING}")
    parser.add_argument("--weeks", type=float, default=4, metavar="N", help="simulated time (4)")
    parser.add_argument(
        "--seeds", type=int, default=2, metavar="N", help=f"seed {FIRST_SEED} and so many that are drawn now (2)"
    )
    parser.add_argument("--seed", type=int, action="append", metavar="S", help="these seeds, and none that are drawn")
    parser.add_argument("--every", type=float, default=3600, metavar="SECONDS", help="between passes (3600)")
    parser.add_argument("--set", type=_pair, action="append", default=[], metavar="KNOB=VALUE", help="for every strategy")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="simulations at a time (1)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where figures go, the chart beside (bench/out/simulate.json)"
    )
    parser.add_argument("--quick", action="store_true", help="two days with one seed: only to see that it works")
    parser.add_argument("--work", type=Path, metavar="DIR", help="for record: where its tables are made")
    parser.add_argument("--only", type=_listed, default=[], metavar="LIST", help="for record: these cases")
    return parser.parse_args()


def _listed(text: str) -> list[str]:
    return text.split(",")


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key, value


def _compare(options: argparse.Namespace) -> int:
    about = machine()
    days = 2 if options.quick else max(1, round(options.weeks * 7))
    lives = list(_lives(options, _seeds(options), days))
    missed = [] if options.quick else list(_missed(lives))
    content = {**about, "days": days, "missed": missed, "lives": [asdict(life) for life in lives]}
    leave("simulate", _figures(lives), content, {"simulate": _chart(lives)}, json_file=options.json, quick=options.quick)
    for words in missed:
        print(words)
    return 1 if missed else 0


def _seeds(options: argparse.Namespace) -> list[int]:
    if options.seed:
        return list(options.seed)
    drawn = 0 if options.quick else options.seeds
    return [FIRST_SEED, *(secrets.randbelow(2**31) for _ in range(drawn))]


def _lives(options: argparse.Namespace, seeds: Sequence[int], days: int) -> Iterator[Life]:
    tasks = [
        (name, strategy, seed, days, options.every, dict(options.set))
        for name in options.workload
        for seed in seeds
        for strategy in options.strategy
    ]
    if options.jobs == 1:
        yield from map(_one, tasks)
        return
    with ProcessPoolExecutor(options.jobs) as pool:
        yield from pool.map(_one, tasks)


def _one(task: tuple[str, str, int, int, float, dict[str, str]]) -> Life:
    name, strategy, seed, days, every, knobs = task
    life = live(workload(name), Strategy.named(strategy, knobs), seed=seed, days=days, every_seconds=every)
    print(f"  {name}, {strategy}, seed {seed}: {life.money:.3f}", file=sys.stderr, flush=True)
    return life


def _missed(lives: Sequence[Life]) -> Iterator[str]:
    """Nothing where not all strategies took part: half a comparison proves nothing."""
    strategies = {life.strategy for life in lives}
    if not {*FIXED, ADAPTIVE} <= strategies:
        return
    money = {(life.workload, life.seed, life.strategy): life.money for life in lives}
    for name, seed in dict.fromkeys((life.workload, life.seed) for life in lives):
        best = min(FIXED, key=lambda fixed: money[name, seed, fixed])
        ratio = money[name, seed, ADAPTIVE] / money[name, seed, best]
        if ratio > BEHIND:
            yield f"{name}, seed {seed}: {ADAPTIVE} costs {ratio:.3f} times as much as {best}, the bar is {BEHIND:g}"
    sums = {strategy: sum(life.money for life in lives if life.strategy == strategy) for strategy in strategies}
    for fixed in FIXED:
        if sums[ADAPTIVE] >= sums[fixed]:
            yield f"in the sum {ADAPTIVE} costs {sums[ADAPTIVE]:.3f}, {fixed} {sums[fixed]:.3f}"


def _figures(lives: Sequence[Life]) -> Figures:
    rows = []
    for name, strategy in dict.fromkeys((life.workload, life.strategy) for life in lives):
        own = [life for life in lives if (life.workload, life.strategy) == (name, strategy)]
        rows.append([name, strategy, *_cells(own, [life for life in lives if life.workload == name])])
    for strategy in dict.fromkeys(life.strategy for life in lives):
        own = [life for life in lives if life.strategy == strategy]
        rows.append(["all", strategy, *_cells(own, lives)])
    seeds = ", ".join(str(seed) for seed in dict.fromkeys(life.seed for life in lives))
    notes = [f"Money for {lives[0].days} days, mean over seeds {seeds}; 'x' is the worst ratio to the best strategy of a seed."]
    return Figures(
        ["workload", "strategy", "money", "x", "maintenance", "queries", "runs", "rewritten GiB", "files", "deletes"],
        rows,
        left=2,
        notes=notes,
    )


def _cells(own: Sequence[Life], rivals: Sequence[Life]) -> Iterator[str]:
    count = len({life.seed for life in own})
    money = sum(life.money for life in own)
    maintenance = sum(cost.money for life in own for cost in life.maintenance)
    yield from (f"{money / count:.4f}", f"{max(_ratio(life, rivals) for life in own):.3f}")
    yield from (f"{maintenance / count:.4f}", f"{(money - maintenance) / count:.4f}")
    yield f"{sum(life.runs for life in own) / count:.0f}"
    yield f"{sum(life.rewritten_bytes for life in own) / count / GIB:.1f}"
    yield f"{sum(life.files[-1] for life in own) / count:.0f}"
    yield f"{sum(life.deletes[-1] for life in own) / count:.0f}"


def _ratio(life: Life, rivals: Sequence[Life]) -> float:
    """To the best of the same workload and seed."""
    return life.money / min(r.money for r in rivals if (r.workload, r.seed) == (life.workload, life.seed))


def _chart(lives: Sequence[Life]) -> BarChart:
    groups = []
    for name in dict.fromkeys(life.workload for life in lives):
        own = [life for life in lives if life.workload == name]
        days = own[0].days
        bars = []
        for strategy in dict.fromkeys(life.strategy for life in own):
            found = [life.money for life in own if life.strategy == strategy]
            bars.append((strategy, 100 * sum(found) / len(found) / days))
        groups.append((f"{name}: {workload(name).words}", bars))
    return BarChart("Maintenance and queries together, by strategy", "ct a day", groups)


def _validate(options: argparse.Namespace) -> int:
    from bench.simulation.replaying import BYTES_OFF, compare, left_out, recordings

    recorded = recordings()
    learned = calibration()
    found, unseen = [compare(one, learned) for one in recorded], left_out(recorded)
    rows = [_replayed(*pair) for pair in zip(found, unseen, strict=True)]
    head = ["recording", "kernel", "files before", "after", "simulated", "deletes after", "simulated"]
    head += ["MiB after", "simulated", "off", "off, unseen", "holds"]
    notes = [
        f"Bars: counts exact, bytes within {BYTES_OFF:.0%}. 'unseen' is with constants learned from the other recordings only."
    ]
    content: dict[str, Any] = {"compared": [asdict(c) for c in found], "unseen": [c.off for c in unseen]}
    figures = Figures(head, rows, left=2, notes=notes)
    path = options.json and options.json.with_name(f"{options.json.stem}-validate.json")
    leave("simulate-validate", figures, content, {}, json_file=path, quick=options.quick)
    return 0 if found and all(c.holds for c in found) else 1


def _replayed(found: Compared, unseen: Compared) -> list[str]:
    counts = (found.files_before, found.files, found.files_simulated, found.deletes, found.deletes_simulated)
    sizes = (f"{size / MIB:.2f}" for size in (found.bytes, found.bytes_simulated))
    off = (f"{found.off:+.1%}", f"{unseen.off:+.1%}")
    return [found.name, found.kernel, *map(str, counts), *sizes, *off, "yes" if found.holds else "NO"]


def _learn(_: argparse.Namespace) -> int:
    from bench.simulation.replaying import learn, recordings

    CALIBRATION.write_text(json.dumps(learn(recordings()).to_json(), indent=2) + "\n", encoding="utf-8")
    print(CALIBRATION.read_text(encoding="utf-8"), end="")
    return 0


def _record(options: argparse.Namespace) -> int:
    from bench.rewrite import opened
    from bench.simulation.recording import record

    if options.work is None:
        raise SystemExit("Cannot record: --work DIR says where its tables are made")
    with opened(options.work, cores=2) as neve:
        for path in record(neve, options.work / "warehouse", names=frozenset(options.only)):
            print(path.name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
