"""A context for one table without a connection: what `neve.context.table.TableContext` offers, as a test gives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self

from neve.operations.rewrite_run import PlannedRun, begun
from neve.policy.model import Policy
from neve.rewrite.record import RunRecord
from neve.table.state import MAIN, TableName


@dataclass
class FakeContext:
    writer: Any
    clock: Any
    sleep: Callable[[float], object] = lambda _: None
    name: TableName = field(default_factory=lambda: TableName(catalog="c", namespace=("db",), name="t"))
    uuid: str = "u"
    branch: str = MAIN
    given: Policy = field(default_factory=lambda: Policy().model_copy(update={"gap_wait_seconds": 0.0}))
    reader: Any = None
    engine: Any = None
    specs: Sequence[Any] = ()
    progress: Any = None
    journal: Any = None
    leases: Any = None
    content: Any = None
    deletes: Any = None
    resolver: Any = None
    quarantine: Any = None
    engine_for: Callable[[Any], Any] | None = None
    """Makes the engine of a plan, where one engine does not do for all of them."""
    pins: Mapping[int, str] = field(default_factory=dict)
    killed: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    """What runs that never ended have stored, oldest first."""
    begun: list[tuple[str, Any]] = field(default_factory=list)
    ended: list[Any] = field(default_factory=list)

    @property
    def entry(self) -> Any:
        return self.writer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was opened."""

    def fresh(self, branch: str | None = None) -> Self:  # noqa: ARG002
        return self

    def engine_of(self, plan: Any) -> Any:
        return self.engine_for(plan) if self.engine_for is not None else self.engine

    def content_of(self, _: Any) -> Any:
        return self.content

    @property
    def state(self) -> Any:
        return self.reader().state()

    @property
    def records(self) -> Any:
        return self.quarantine

    @property
    def store(self) -> Any:
        return self.quarantine

    def policy(self, _: object = None) -> Policy:
        return self.given

    def report(self, stage: str, done: int = 0, total: int | None = None) -> None:
        if self.progress:
            self.progress(stage, done, total)

    def pinned(self, *_: object) -> Mapping[int, str]:
        return self.pins

    def begin(self, run_id: str, kind: str, record: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        self.begun.append((run_id, record))

    def unended(self, kind: str) -> list[Any]:  # noqa: ARG002
        return [SimpleNamespace(run_id=f"killed-{i}", started_ms=0, record=record) for i, record in enumerate(self.killed())]

    def end(self, record: Any) -> None:
        self.ended.append(record)

    def planning(self) -> nullcontext[None]:
        return nullcontext()

    def timed(self, record: Any) -> Any:
        return record

    def sourced(self, result: Any) -> Any:
        return result


def compact(plan: Any, context: Any, *, plan_again: Callable[[], PlannedRun] | None = None) -> RunRecord:
    """The stages of a compaction from a plan on, as `operations.compact` goes through them."""
    verify = "metadata" if context.content is None else "content"
    with begun(PlannedRun(plan, context.specs), context, verify=verify, plan_again=plan_again) as run:
        with run.settling():
            run.commit(run.verify(run.execute()))
        return run.record()
