"""The one way to change a table: attempts until a change has landed, is refused, or its outcome stays unknown.

Called by every operation that commits. The operation describes its change (`Change`). Retries, back-off, the total timeout, the
lease check, lost answers, Ctrl-C and snapshots that were rolled back are handled here and nowhere else. Changes of properties
alone do not come here: the port's `swap_properties` compares and sets them in one step.
"""

from __future__ import annotations

import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from neve.commit.failure import Failure
from neve.errors import (
    BadRequestError,
    CommitConflictError,
    CommitIncidentError,
    CommitNotSentError,
    CommitUnknownError,
    NeveError,
    RunTakenOverError,
    TableGoneError,
)
from neve.ports import Clock, TableWriter
from neve.rewrite.live_files import Ancestor
from neve.table.units import whole_number

log = logging.getLogger(__name__)

COMMIT_ID = "neve.commit-id"
"""Snapshot property that identifies one change, however often it was attempted."""
FINAL = (CommitIncidentError, RunTakenOverError, TableGoneError)
"""No attempt may follow these."""

Sent = TypeVar("Sent")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Retry:
    """How often a commit is tried, and how long to wait in between: by the table's own properties, where it has them."""

    attempts: int = 5
    first_wait_ms: int = 100
    max_wait_ms: int = 60_000
    total_ms: int = 30 * 60_000
    checks: int = 3
    """How often a catalog that does not answer is asked, after the last attempt, what became of it."""

    @classmethod
    def of(cls, properties: Mapping[str, str], *, attempts: int = attempts) -> Retry:
        """The table's `commit.retry.*`, else Iceberg's defaults. `attempts` applies where the table sets no retries."""

        def number(name: str, otherwise: int) -> int:
            found = whole_number(properties.get(f"commit.{name}", ""))
            return otherwise if found is None else found

        return cls(
            attempts=number("retry.num-retries", attempts - 1) + 1,
            first_wait_ms=number("retry.min-wait-ms", cls.first_wait_ms),
            max_wait_ms=number("retry.max-wait-ms", cls.max_wait_ms),
            total_ms=number("retry.total-timeout-ms", cls.total_ms),
            checks=number("status-check.num-retries", cls.checks),
        )

    def wait_seconds(self, attempt: int, jitter: float) -> float:
        """After this attempt, from 0 on. Doubles each time; half of it is random, so that two processes do not keep step."""
        whole = min(self.max_wait_ms, self.first_wait_ms << attempt) / 1000
        return whole / 2 + whole / 2 * jitter


@dataclass(frozen=True)
class Terms:
    """What every change needs besides itself. `assert_held` raises if another process has taken over the run or its table."""

    what: str
    """Names the change in logs, such as `expiry of db.events`."""
    retry: Retry
    clock: Clock
    sleep: Callable[[float], None]
    assert_held: Callable[[], None] = lambda: None
    jitter: Callable[[], float] = random.random


@dataclass(frozen=True)
class Settled(Generic[Result]):
    """A change needs no further attempt."""

    result: Result


class Change(ABC, Generic[Sent, Result]):
    """A change of one table. An operation subclasses it; `commit_until_settled` calls it."""

    def __init__(self) -> None:
        self.open: list[Sent] = []
        """Attempts that were sent and may have landed: their files stay."""

    @abstractmethod
    def refresh(self) -> None:
        """Loads the newest metadata."""

    @abstractmethod
    def prepare(self) -> Sent | Settled[Result]:
        """Checks the newest head. Returns what to send, or the result if there is nothing left to send."""

    @abstractmethod
    def send(self, sent: Sent) -> Settled[Result] | None:
        """Sends one attempt. Returns the result if the answer alone proves that it landed.

        Raises CommitConflictError if it certainly failed, and CommitNotSentError if nothing was sent.
        """

    @abstractmethod
    def landed(self) -> Settled[Result] | None:
        """Looks for an open attempt in the table, and judges it. None if there is none."""

    def is_named(self) -> bool:
        """Whether any snapshot comes from this change, even one that was rolled back and is no ancestor of the head."""
        return False

    def forget(self, sent: Sent) -> None:
        """Called for an attempt that certainly did not land: nothing refers to what was written for it."""


@dataclass
class CommitOutcome(Generic[Result]):
    """How a change ended. Without a `result`, either nothing landed or, if the change has open attempts, nobody knows."""

    settled: Settled[Result] | None = None
    failure: str = ""
    """Why the last attempt did not succeed."""
    error: Exception | None = None
    """The exception behind it, if one was raised."""
    interrupted: bool = False
    """Ctrl-C arrived while a commit was under way. What was sent has been looked for."""


def commit_until_settled(change: Change[Sent, Result], terms: Terms) -> CommitOutcome[Result]:
    """Attempts a change until it is settled or no attempt is left.

    Raises only what ends the run: CommitIncidentError, RunTakenOverError and TableGoneError.
    """
    run, began = _Attempts(change, terms), terms.clock.now_ms()
    for attempt in range(terms.retry.attempts):
        if attempt:
            if terms.clock.now_ms() - began > terms.retry.total_ms:
                break
            terms.sleep(terms.retry.wait_seconds(attempt - 1, terms.jitter()))
        if run.ends():
            return run.outcome
        log.warning("%s, attempt %s: %s", terms.what, attempt + 1, run.outcome.failure)
    run.look_late()
    return run.outcome


def commit_or_raise(change: Change[Sent, Result], terms: Terms) -> CommitOutcome[Result]:
    """`commit_until_settled` for a change that is an operation of its own.

    Raises KeyboardInterrupt after Ctrl-C, a refusal of the request, and what an attempt raised if nothing was sent and a retry
    would not help.
    """
    ended = commit_until_settled(change, terms)
    if ended.interrupted:
        raise KeyboardInterrupt
    error = ended.error if ended.settled is None else None
    if error is not None and (isinstance(error, BadRequestError) or not (change.open or may_pass(error))):
        raise error
    return ended


def certainly_failed(error: Exception) -> bool:
    """Whether a commit that raised this is refused. After anything else it may have landed."""
    return isinstance(error, CommitConflictError)


def may_pass(error: Exception) -> bool:
    """Whether another attempt may succeed: the catalog or the storage did not answer."""
    return isinstance(error, NeveError) and error.retryable


@dataclass
class _Attempts(Generic[Sent, Result]):
    change: Change[Sent, Result]
    terms: Terms
    outcome: CommitOutcome[Result] = field(default_factory=CommitOutcome)

    def ends(self) -> bool:
        """One attempt. Returns whether no other should follow."""
        self.outcome.error = None
        change = self.change
        try:
            change.refresh()
            if change.open and self._landed():
                return True
            prepared = change.prepare()
            if isinstance(prepared, Settled):
                self.outcome.settled = prepared
                return True
            self._assert_held(prepared)
            change.open.append(prepared)
            certainly_failed = self._send(prepared)
            if self.outcome.settled is not None:
                return True
            change.refresh()
            if self._landed():
                return True
            if certainly_failed and not change.is_named():
                self._forget(prepared)
            return self.outcome.interrupted or self._is_refused()
        except FINAL:
            raise
        except Exception as error:
            if self.outcome.interrupted:  # Ctrl-C reaches the JVM too: it cannot answer any more
                return True
            self._failed(error)
            return self._is_refused() and not change.open

    def _is_refused(self) -> bool:
        """Whether the last attempt raised what another attempt cannot change."""
        error = self.outcome.error
        return isinstance(error, NeveError) and not may_pass(error)

    def _assert_held(self, prepared: Sent) -> None:
        try:
            self.terms.assert_held()
        except (RunTakenOverError, TableGoneError):
            raise
        except Exception:  # nothing was sent: the next attempt prepares again
            self.change.forget(prepared)
            raise

    def _send(self, prepared: Sent) -> bool:
        """Whether the attempt certainly failed, unless the table shows that it landed."""
        outcome = self.outcome
        outcome.failure = "the catalog accepted the commit, but the table does not show it"
        try:
            outcome.settled = self.change.send(prepared)
        except FINAL:
            raise
        except CommitNotSentError:
            self._forget(prepared)
            raise
        except KeyboardInterrupt:
            outcome.interrupted, outcome.failure = True, "interrupted while the commit was under way"
        except Exception as error:  # unless the catalog refused it, it may have landed
            if isinstance(error, CommitConflictError | CommitUnknownError):
                outcome.failure = str(error)
            else:
                self._failed(error)
            return certainly_failed(error)
        return False

    def look_late(self) -> None:
        """Asks what became of open attempts, should the catalog not have answered after the last one."""
        retry, terms = self.terms.retry, self.terms
        for check in range(retry.checks if self.change.open else 0):
            terms.sleep(retry.wait_seconds(retry.attempts - 1 + check, terms.jitter()))
            try:
                self.change.refresh()
                self._landed()
                return
            except FINAL:
                raise
            except Exception as error:
                self._failed(error)

    def _landed(self) -> bool:
        self.outcome.settled = self.change.landed()
        return self.outcome.settled is not None

    def _forget(self, prepared: Sent) -> None:
        # Only this attempt: an earlier one may have sent the very same, and may still land.
        newest = max((i for i, sent in enumerate(self.change.open) if sent is prepared), default=None)
        if newest is not None:
            del self.change.open[newest]
        self.change.forget(prepared)

    def _failed(self, error: Exception) -> None:
        if not may_pass(error):
            log.warning("%s: an attempt to commit raised", self.terms.what, exc_info=error)
        self.outcome.error, self.outcome.failure = error, Failure.of(error).reason


def take_back(writer: TableWriter, ours: Sequence[Ancestor], wrong: str, *, head: int | None, branch: str, run_id: str) -> None:
    """Rolls back a commit of these snapshots, the newest first, unless something was committed on top of it.

    Raises CommitIncidentError if that is not possible: then a person has to decide.
    """
    newest, before = ours[0].snapshot_id, ours[-1].parent_id
    if newest == head and before is not None and writer.knows(before):
        log.error("run %s: rolling back snapshot %s: %s", run_id, newest, wrong)
        if writer.roll_back(newest, before, branch):
            return
    raise CommitIncidentError(
        f"Cannot confirm snapshot {newest}: another writer committed between our conflict check and our commit, and {wrong}",
        hint=f"Roll the table back to snapshot {before} before anyone writes to it, and report this.",
    )
