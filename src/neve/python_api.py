"""What `import neve` offers: one call per stage, a builder that reads like a sentence, and a cheap question for pipelines.

A surface like the command line: it turns words into settings and a request, and calls `compose`. Nothing heavy is loaded
before the first call. Every call opens what it needs and closes it; `connect` keeps it open over several calls.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from neve.core.depth import Depth
from neve.errors import BadRequestError

if TYPE_CHECKING:
    from neve.compose import Neve
    from neve.core.advice import Advice
    from neve.core.inspection import Inspection
    from neve.core.plan import Plan
    from neve.core.statistics import Report
    from neve.flow.plan import Request

log = logging.getLogger("neve")

TierWord = Literal["minor", "major", "full"]
KernelWord = Literal["copy", "arrow", "spark"]


def connect(
    *,
    warehouse: str | Path | None = None,
    config: str | Path | None = None,
    profile: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> Neve:
    """Everything opened at its first use and kept until the end of a `with` block: catalogs, Spark, the state store.

    `settings` are keys as in neve.yaml, such as `{"policy.target-file-size": "256 MB"}`; they beat file and environment.
    """
    from neve.compose import Neve
    from neve.settings import load_settings

    loaded = load_settings(file=Path(config) if config is not None else None, profile=profile, flags=settings)
    return Neve.open(loaded, warehouse=str(warehouse) if warehouse is not None else None)


@dataclass(frozen=True)
class Place:
    """Where a table is looked for, as `connect` takes it."""

    warehouse: str | Path | None = None
    config: str | Path | None = None
    profile: str | None = None


@dataclass(frozen=True)
class Table:
    """A table and what is wanted of it. Every word gives a new value, so that a half-said sentence can be kept and reused.

    Besides the methods below, every knob of the policy is one: `.target_file_size("256 MiB").min_input_files(3)`.
    """

    name: str
    place: Place = field(default_factory=Place)
    knobs: Mapping[str, object] = field(default_factory=dict)
    wanted_tier: TierWord | None = None
    wanted_kernel: KernelWord | None = None
    partitions: tuple[str, ...] = ()
    forced: bool = False

    def tier(self, tier: TierWord) -> Self:
        """How much to rewrite."""
        return replace(self, wanted_tier=_one_of("tier", tier, ("minor", "major", "full")))

    def kernel(self, kernel: KernelWord) -> Self:
        """How to rewrite, where more than one way is right."""
        return replace(self, wanted_kernel=_one_of("kernel", kernel, ("copy", "arrow", "spark")))

    def partition(self, *patterns: str) -> Self:
        """Only partitions like one of these, such as `day=2025*`; said again, it adds to them."""
        return replace(self, partitions=(*self.partitions, *patterns))

    def force(self) -> Self:
        """Also what is below the thresholds, or was written just now."""
        return replace(self, forced=True)

    def inspect(self, *, depth: Depth | str = Depth.FILES, sample: int = 0) -> Inspection:
        """What hurts in the table. Reads metadata only."""
        with self._open() as neve:
            return neve.inspect(self.name, depth=Depth(depth), sample=sample)

    def plan(self) -> Plan:
        """What `compact` would do, with reasons and prices. Reads metadata only."""
        with self._open() as neve:
            return neve.plan(self.name, request=self._request())

    def compact(self) -> Report:
        """Plans and carries out a compaction. No row changes; a group that fails is in the report, the others are done."""
        with self._open() as neve:
            return neve.report(self.name, request=self._request())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        key = _knob_key(name)
        if key is None:
            raise AttributeError(f"neve.table(...) has no word {name!r}{_nearest(name, _WORDS)}")
        return lambda value: replace(self, knobs={**self.knobs, key: value})

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *_knob_names()})

    def _open(self) -> Neve:
        return connect(**vars(self.place), settings={f"policy.{key}": value for key, value in self.knobs.items()})

    def _request(self) -> Request:
        from neve.core.plan_words import Kernel, Tier
        from neve.flow.plan import Request

        return Request(
            tier=Tier(self.wanted_tier) if self.wanted_tier else None,
            kernel=Kernel(self.wanted_kernel) if self.wanted_kernel else None,
            force=self.forced,
            partitions=self.partitions,
        )


_WORDS = ("tier", "kernel", "partition", "force", "inspect", "plan", "compact")


def table(
    name: str,
    *,
    warehouse: str | Path | None = None,
    config: str | Path | None = None,
    profile: str | None = None,
    **knobs: object,
) -> Table:
    """The beginning of a sentence: `neve.table("db.events").target_file_size("256 MiB").tier("minor").compact()`."""
    return Table(name, Place(warehouse, config, profile), _by_key(knobs))


def inspect(name: str, *, depth: Depth | str = Depth.FILES, sample: int = 0, **words: Any) -> Inspection:
    """What hurts in a table; `words` are those of `table`."""
    return table(name, **words).inspect(depth=depth, sample=sample)


def plan(
    name: str,
    *,
    tier: TierWord | None = None,
    kernel: KernelWord | None = None,
    partitions: tuple[str, ...] | list[str] = (),
    force: bool = False,
    **words: Any,
) -> Plan:
    """What `compact` would do; `words` are those of `table`."""
    return _said(table(name, **words), tier, kernel, partitions, force=force).plan()


def compact(
    name: str,
    *,
    tier: TierWord | None = None,
    kernel: KernelWord | None = None,
    partitions: tuple[str, ...] | list[str] = (),
    force: bool = False,
    **words: Any,
) -> Report:
    """Compacts a table; `words` are those of `table`. The report has the run, the table before and after, and `stats`."""
    return _said(table(name, **words), tier, kernel, partitions, force=force).compact()


def after_write(name: str, *, every: int | None = None, raise_errors: bool = False, **words: Any) -> Advice:
    """Whether a compaction is worth it now. Made to be asked after each write of a pipeline.

    One catalog call; the files are looked at only after every so many commits (`check-interval` unless `every` is given).
    Compacts nothing. A failure is logged and told in `error`, and raised only if asked.
    """
    from neve.core.advice import not_looked

    try:
        with table(name, **words)._open() as neve:
            return neve.advise(name, every=_positive(every))
    except Exception as error:
        # Somebody else's pipeline has just written its data: our trouble must not undo that.
        if raise_errors:
            raise
        log.warning("after_write %s: %s", name, error)
        return not_looked(name, "the table could not be looked at", error=f"{type(error).__name__}: {error}")


def _said(
    chosen: Table,
    tier: TierWord | None,
    kernel: KernelWord | None,
    partitions: tuple[str, ...] | list[str],
    *,
    force: bool,
) -> Table:
    chosen = chosen.partition(*partitions)
    chosen = chosen.tier(tier) if tier is not None else chosen
    chosen = chosen.kernel(kernel) if kernel is not None else chosen
    return chosen.force() if force else chosen


def _positive(every: int | None) -> int | None:
    if every is not None and every < 1:
        raise BadRequestError(f"Cannot look every {every} commits: at least 1 is needed")
    return every


def _one_of(what: str, word: Any, known: tuple[str, ...]) -> Any:
    if word not in known:
        raise BadRequestError(f"Cannot use {what} {word!r}: there are {', '.join(known)}")
    return word


def _by_key(knobs: Mapping[str, object]) -> dict[str, object]:
    keys = {name: _knob_key(name) for name in knobs}
    for name, key in keys.items():
        if key is None:
            raise BadRequestError(f"Cannot set {name}: there is no such knob{_nearest(name)}")
    return {str(keys[name]): value for name, value in knobs.items()}


def _knob_key(name: str) -> str | None:
    from neve.core.policy import knobs

    key = name.replace("_", "-")
    return key if key in knobs() else None


def _knob_names() -> list[str]:
    from neve.core.policy import knobs

    return [key.replace("-", "_") for key in knobs()]


def _nearest(name: str, words: tuple[str, ...] = ()) -> str:
    close = get_close_matches(name, [*words, *_knob_names()], n=1)
    return f"; did you mean {close[0]}?" if close else ""
