"""What `import neve` offers: one call per stage, a builder that reads like a sentence, and a cheap question for pipelines.

A surface like the command line: it turns words into settings and a request, and calls `api.Neve`. Nothing heavy is loaded
before the first call. Every call opens what it needs and closes it; `connect` keeps it open over several calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, overload

from neve.errors import BadRequestError
from neve.operations.registry import OPERATIONS, parameters, requested
from neve.operations.requests import KERNELS, TIERS, VERIFICATIONS, CompactRequest, ResumeRequest
from neve.table.depth import Depth

if TYPE_CHECKING:
    from neve.api import Neve
    from neve.health.inspection import Inspection
    from neve.maintenance.delete_files import UpkeepRecord
    from neve.maintenance.expiry import ExpiryRecord
    from neve.maintenance.manifests import ManifestsRecord
    from neve.maintenance.orphans import OrphanRecord
    from neve.maintenance.prevention import PreventionRecord
    from neve.maintenance.quarantine import QuarantinedRun, QuarantineRecord
    from neve.maintenance.statistics import StatisticsRecord
    from neve.maintenance.steps import MaintainRecord
    from neve.maintenance.tags import TagsRecord
    from neve.maintenance.ttl import TtlRecord
    from neve.operations.rollback import RolledBack
    from neve.placed_plan import PlacedPlan
    from neve.rewrite.advice import Advice
    from neve.rewrite.plan import Plan
    from neve.rewrite.record import RunRecord
    from neve.rewrite.remaining import Remaining
    from neve.rewrite.work_order import WorkOrder, WorkResult

log = logging.getLogger("neve")

TierWord = Literal["minor", "major", "full"]
KernelWord = Literal["copy", "arrow", "spark"]
VerifyWord = Literal["metadata", "content"]


def connect(
    *,
    warehouse: str | Path | None = None,
    config: str | Path | None = None,
    profile: str | None = None,
    spark: Any = None,
    settings: Mapping[str, object] | None = None,
) -> Neve:
    """Everything opened at its first use and kept until the end of a `with` block: catalogs, Spark, the state store.

    `spark` is a session of the caller's own, whose catalogs are used then; it is neither changed nor stopped. `settings` are
    keys as in neve.yaml, such as `{"policy.target-file-size": "256 MB"}`; they beat file and environment.
    """
    from neve.api import Neve
    from neve.settings import load_settings

    loaded = load_settings(file=Path(config) if config is not None else None, profile=profile, flags=settings)
    return Neve.open(loaded, warehouse=str(warehouse) if warehouse is not None else None, spark=spark)


@dataclass(frozen=True)
class ConnectionOptions:
    """Where a table is looked for, as `connect` takes it."""

    warehouse: str | Path | None = None
    config: str | Path | None = None
    profile: str | None = None
    spark: Any = None

    def open(self, knobs: Mapping[str, object] | None = None) -> Neve:
        """Opens it, with knobs of the policy said by their keys."""
        return connect(**vars(self), settings={f"policy.{key}": value for key, value in (knobs or {}).items()})


_OF_REWRITES = ("tier", "kernel", "partitions", "where", "branch", "force", "verify", "probe_query")
"""Words of a sentence that count for a compaction; for everything else only the branch does."""


def _method(name: str, *words: str) -> Callable[..., Any]:
    """A method of `Table` for a registered operation: its options are the fields of the operation's request."""
    request = OPERATIONS[name].request
    counting = {word for word in words or ("branch",) if hasattr(request, word)}

    def method(self: Table, *given: Any, **options: Any) -> Any:
        said = {word: value for word, value in self.asked.items() if word in counting}
        asked = requested(request, *given, **said | options)
        with self._open() as neve:
            return getattr(neve, name)(self.name, **vars(asked))

    method.__name__, method.__doc__ = name, request.__doc__
    first = Parameter("self", Parameter.POSITIONAL_ONLY)
    method.__signature__ = Signature([first, *parameters(request)])  # type: ignore[attr-defined]
    return method


def _function(operation: str) -> Callable[..., Any]:
    """A function of the package for a registered operation: its options and the words of `table`."""
    request = OPERATIONS[operation].request
    options = {one.name for one in fields(request)}

    def function(name: str, *given: Any, **words: Any) -> Any:
        asked = {key: words.pop(key) for key in tuple(words) if key in options}
        return getattr(table(name, **words), operation)(*given, **asked)

    return _like(function, operation, "table", [Parameter("name", Parameter.POSITIONAL_OR_KEYWORD)])


def _function_of_run(operation: str) -> Callable[..., Any]:
    """A function of the package for a registered operation on a run: its options and the words of `connect`."""
    request = OPERATIONS[operation].request
    options = {one.name for one in fields(request)}

    def function(*given: Any, **words: Any) -> Any:
        asked = dict(vars(requested(request, *given, **{key: words.pop(key) for key in tuple(words) if key in options})))
        with connect(**words) as neve:
            return getattr(neve, operation)(asked.pop("run"), **asked)

    return _like(function, operation, "connect", [])


def _like(function: Callable[..., Any], operation: str, words: str, first: list[Parameter]) -> Callable[..., Any]:
    """The function with the name, help and options of an operation."""
    request = OPERATIONS[operation].request
    function.__name__, function.__doc__ = operation, f"{request.__doc__}\n\n    `words` are those of `{words}`.\n    "
    signature = Signature([*first, *parameters(request), Parameter("words", Parameter.VAR_KEYWORD)])
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


@dataclass(frozen=True)
class Table:
    """A table and what is wanted of it. Every word gives a new value, so that a half-said sentence can be kept and reused.

    Besides the methods below, every knob of the policy is one: `.target_file_size("256 MiB").min_input_files(3)`.
    """

    name: str
    place: ConnectionOptions = field(default_factory=ConnectionOptions)
    knobs: Mapping[str, object] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)
    """Options of the operation, said by their names."""

    cluster: ClassVar[Callable[..., RunRecord]] = _method("cluster", *_OF_REWRITES)
    compact: ClassVar[Callable[..., RunRecord]] = _method("compact", *_OF_REWRITES)
    deletes: ClassVar[Callable[..., UpkeepRecord]] = _method("deletes")
    expire: ClassVar[Callable[..., ExpiryRecord]] = _method("expire")
    maintain: ClassVar[Callable[..., MaintainRecord]] = _method("maintain")
    manifests: ClassVar[Callable[..., ManifestsRecord]] = _method("manifests")
    orphans: ClassVar[Callable[..., OrphanRecord]] = _method("orphans")
    prevent: ClassVar[Callable[..., PreventionRecord]] = _method("prevent")
    purge: ClassVar[Callable[..., QuarantineRecord]] = _method("purge")
    settle: ClassVar[Callable[..., QuarantineRecord]] = _method("settle")
    stats: ClassVar[Callable[..., StatisticsRecord]] = _method("stats")
    tags: ClassVar[Callable[..., TagsRecord]] = _method("tags")

    def tier(self, tier: TierWord) -> Self:
        """How much to rewrite."""
        return self._ask(tier=_one_of("tier", tier, TIERS))

    def kernel(self, kernel: KernelWord) -> Self:
        """How to rewrite, where more than one way is right."""
        return self._ask(kernel=_one_of("kernel", kernel, KERNELS))

    def partition(self, *patterns: str) -> Self:
        """Only partitions like one of these, such as `day=2025*`; said again, it adds to them."""
        return self._ask(partitions=(*self.asked.get("partitions", ()), *patterns))

    def where(self, predicate: str) -> Self:
        """Only files that may hold rows for which this Spark SQL predicate is true, relative dates included."""
        return self._ask(where=predicate)

    def branch(self, name: str) -> Self:
        """The branch to read and to commit to."""
        return self._ask(branch=name)

    def force(self) -> Self:
        """Ignores size thresholds and quiet periods."""
        return self._ask(force=True)

    def verify(self, proof: VerifyWord) -> Self:
        """`content` reads every rewritten row once more and compares; counts and bounds are always compared."""
        return self._ask(verify=_one_of("verify", proof, VERIFICATIONS))

    def probe_query(self, sql: str) -> Self:
        """A query to run before and after: its results are compared, and its times are in the record."""
        return self._ask(probe_query=sql)

    def inspect(self, *, depth: Depth | str = Depth.FILES, sample: int = 0) -> Inspection:
        """What hurts in the table. Reads metadata only. Of what was said, only the branch counts, and knobs."""
        branch = {key: value for key, value in self.asked.items() if key == "branch"}
        with self._open() as neve:
            return neve.inspect(self.name, depth=Depth(depth), sample=sample, **branch)

    def plan(self) -> PlacedPlan:
        """What `compact` would do, with reasons and prices. Reads metadata only."""
        from neve.placed_plan import PlacedPlan

        with self._open() as neve:
            said = {word: value for word, value in self.asked.items() if word in _OF_REWRITES}
            return PlacedPlan.at(self.place, neve.plan(self.name, request=requested(CompactRequest, **said)))

    def quarantine(self) -> tuple[QuarantinedRun, ...]:
        """What is in the quarantine: files of each run, by reason and fate."""
        with self._open() as neve:
            return neve.quarantine(self.name)

    def preview_ttl(self, *, dry_run: bool = False) -> TtlRecord:
        """Counts rows past their time, by the knobs `ttl`, `ttl_column` and so on, and remembers that unless it is a `dry_run`.
        Of the other words, only the branch counts."""
        return self._ttl(dry_run=dry_run)

    def enforce_ttl(self) -> TtlRecord:
        """Removes rows past their time; the first time what the preview showed."""
        return self._ttl(enforce=True)

    def _ttl(self, *, enforce: bool = False, dry_run: bool = False) -> TtlRecord:
        branch = {key: value for key, value in self.asked.items() if key == "branch"}
        with self._open() as neve:
            return neve.ttl(self.name, enforce=enforce, dry_run=dry_run, **branch)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        key = _knob_key(name)
        if key is None:
            raise AttributeError(f"neve.table(...) has no word {name!r}{_nearest(name, _methods())}")
        return lambda value: replace(self, knobs={**self.knobs, key: value})

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *_knob_names()})

    def _ask(self, **fields: Any) -> Self:
        return replace(self, asked={**self.asked, **fields})

    def _open(self) -> Neve:
        return self.place.open(self.knobs)


def table(
    name: str,
    *,
    warehouse: str | Path | None = None,
    config: str | Path | None = None,
    profile: str | None = None,
    spark: Any = None,
    **knobs: object,
) -> Table:
    """The beginning of a sentence: `neve.table("db.events").target_file_size("256 MiB").tier("minor").compact()`."""
    return Table(name, ConnectionOptions(warehouse, config, profile, spark), _by_key(knobs))


def inspect(
    name: str, *, depth: Depth | str = Depth.FILES, sample: int = 0, branch: str | None = None, **words: Any
) -> Inspection:
    """What hurts in a table, at the head of a branch; `words` are those of `table`."""
    return with_options(table(name, **words), {"branch": branch}, (), force=False).inspect(depth=depth, sample=sample)


def plan(
    name: str,
    *,
    tier: TierWord | None = None,
    kernel: KernelWord | None = None,
    partitions: Sequence[str] = (),
    where: str | None = None,
    branch: str | None = None,
    force: bool = False,
    **words: Any,
) -> PlacedPlan:
    """What `compact` would do; `words` are those of `table`. Its `work_orders` can be carried out one by one."""
    asked = {"tier": tier, "kernel": kernel, "where": where, "branch": branch}
    return with_options(table(name, **words), asked, partitions, force=force).plan()


def execute(order: WorkOrder, **words: Any) -> WorkResult:
    """Carries one order out in this process, without Spark; `words` are those of `connect`, where it finds credentials."""
    with connect(**words) as neve:
        return neve.execute(order)


def commit(plan: Plan, results: Sequence[WorkResult], **words: Any) -> RunRecord:
    """Verifies and commits what orders of a plan wrote; `words` are those of `connect`, the plan's own unless given."""
    from neve.placed_plan import PlacedPlan

    place = ConnectionOptions(**words) if words or not isinstance(plan, PlacedPlan) else plan.place
    with place.open() as neve:
        return neve.commit(plan, results)


@overload
def resume(run: str | None = None, *, dry_run: Literal[False] = False, **words: Any) -> tuple[RunRecord, ...]: ...
@overload
def resume(run: str | None = None, *, dry_run: Literal[True], **words: Any) -> tuple[Remaining, ...]: ...
def resume(run: str | None = None, *, abandon: bool = False, dry_run: bool = False, **words: Any) -> tuple[Any, ...]:
    """Finishes runs that were interrupted, or the one whose id begins so; `words` are those of `connect`.

    A `dry_run` changes nothing and gives what would be done with each group of each run. `abandon` ends a run without
    committing anything of it.
    A run is taken over only if its process has certainly ended, or if its heartbeat has. Others are left alone; naming one
    raises LeaseHeldError. Should one run raise, the others are finished first.
    """
    from neve.errors import CommitIncidentError, LeaseHeldError
    from neve.operations.resume import require_sensible

    require_sensible(ResumeRequest(run, abandon=abandon, dry_run=dry_run))
    done: list[Any] = []
    with connect(**words) as neve:
        errors: list[Exception] = []
        for found in neve.unfinished(run):
            try:
                if not abandon:
                    neve.require_resumable(found)
                done.append(neve.resume(found.run_id, abandon=abandon, dry_run=dry_run))
            except LeaseHeldError:
                if run is not None:
                    raise
            except CommitIncidentError:
                raise  # a person must roll back first: another commit on top would make that impossible
            except Exception as error:  # the other runs do not depend on this one
                errors.append(error)
        if errors:
            raise errors[0]
    return tuple(done)


def after_write(name: str, *, every: int | None = None, raise_errors: bool = False, **words: Any) -> Advice:
    """Whether a compaction is worth it now. Made to be asked after each write of a pipeline.

    One catalog call; the files are looked at only after every so many commits (`check-interval` unless `every` is given).
    Compacts nothing. A failure is logged and told in `error`, and raised only if asked.
    """
    from neve.rewrite.advice import not_looked

    try:
        with table(name, **words)._open() as neve:
            if every is not None and every < 1:
                raise BadRequestError(f"Cannot look every {every} commits: at least 1 is needed")
            return neve.advise(name, every=every)
    except Exception as error:
        # Somebody else's pipeline has just written its data: our trouble must not undo that.
        if raise_errors:
            raise
        log.warning("after_write %s: %s", name, error)
        return not_looked(name, "the table could not be looked at", error=f"{type(error).__name__}: {error}")


def quarantine(name: str, **words: Any) -> tuple[QuarantinedRun, ...]:
    """What is in a table's quarantine: files of each run, by reason and fate; `words` are those of `table`."""
    return table(name, **words).quarantine()


def ttl(
    name: str,
    keep: object = None,
    *,
    column: str | None = None,
    enforce: bool = False,
    dry_run: bool = False,
    branch: str | None = None,
    **words: Any,
) -> TtlRecord:
    """Counts the rows of a table that are past their time, or removes them; `words` are those of `table`.

    The first enforcement of a limit has to be previewed: call it without `enforce` and look at `counts`.
    """
    asked = with_options(table(name, **words), {"ttl": keep, "ttl_column": column, "branch": branch}, (), force=False)
    return asked._ttl(enforce=enforce, dry_run=dry_run)


cluster: Callable[..., RunRecord] = _function("cluster")
compact: Callable[..., RunRecord] = _function("compact")
deletes: Callable[..., UpkeepRecord] = _function("deletes")
expire: Callable[..., ExpiryRecord] = _function("expire")
maintain: Callable[..., MaintainRecord] = _function("maintain")
manifests: Callable[..., ManifestsRecord] = _function("manifests")
orphans: Callable[..., OrphanRecord] = _function("orphans")
prevent: Callable[..., PreventionRecord] = _function("prevent")
purge: Callable[..., QuarantineRecord] = _function("purge")
restore: Callable[..., QuarantineRecord] = _function_of_run("restore")
rollback: Callable[..., RolledBack] = _function_of_run("rollback")
settle: Callable[..., QuarantineRecord] = _function("settle")
stats: Callable[..., StatisticsRecord] = _function("stats")
tags: Callable[..., TagsRecord] = _function("tags")


def with_options(chosen: Table, asked: Mapping[str, Any], partitions: Sequence[str], *, force: bool) -> Table:
    """The sentence with every word that was given."""
    chosen = chosen.partition(*partitions) if partitions else chosen
    for word, value in asked.items():
        chosen = getattr(chosen, word)(value) if value is not None else chosen
    return chosen.force() if force else chosen


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
    from neve.policy.model import knobs

    key = name.replace("_", "-")
    return key if key in knobs() else None


def _knob_names() -> list[str]:
    from neve.policy.model import knobs

    return [key.replace("-", "_") for key in knobs()]


def _methods() -> tuple[str, ...]:
    return tuple(name for name, value in vars(Table).items() if callable(value) and not name.startswith("_"))


def _nearest(name: str, words: tuple[str, ...] = ()) -> str:
    close = get_close_matches(name, [*words, *_knob_names()], n=1)
    return f"; did you mean {close[0]}?" if close else ""
