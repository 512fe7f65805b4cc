"""A script of faults between an operation and its table: what every call answers, and what lands all the same.

`Tapped` stands in front of a port and lets each of its calls through the `Script`. A commit that is sent without landing and
without being refused stays in flight: `Script.arrive` lets it land once the run is over, as a slow catalog does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from neve.errors import CatalogUnreachableError, CommitConflictError, CommitUnknownError

SENDS = {"rewrite", "row_delta", "drop", "delete", "commit", "publish", "change_tags", "expire"}
"""Calls that commit."""
SWAPS = {"publish", "change_tags", "expire"}
"""Those that answer a conflict with False."""
LOOKS = {"refresh", "look", "history"}
"""Calls that load the newest metadata."""
LOCAL = {"properties", "uuid", "knows", "head", "shape", "schema_json", "schemas_json", "data_location", "state"}
"""Calls that read what was loaded before: no catalog can fail them."""
FOREVER = 10**6


@dataclass(frozen=True)
class Reply:
    """How one commit is answered. Without an error, the answer is that all is well."""

    error: type[BaseException] | None = None
    lands: bool = True
    is_undone: bool = False
    """Whether somebody rolls it back directly after it has landed."""
    away: int = 0
    """How many of the next looks fail."""
    dead: bool = False
    """Whether nothing at all can be asked afterwards: Ctrl-C has ended the JVM."""


WELL = Reply()
CONFLICT = Reply(CommitConflictError, lands=False)
CONFLICT_LANDED = Reply(CommitConflictError)
ROLLED_BACK = Reply(CommitConflictError, is_undone=True)
LOST, LOST_LANDED = (Reply(CommitUnknownError, lands) for lands in (False, True))
LOST_AWAY, LOST_LANDED_AWAY = (Reply(CommitUnknownError, lands, away=1) for lands in (False, True))
WELL_AWAY = Reply(away=1)
CRASH, CRASH_LANDED = (Reply(RuntimeError, lands) for lands in (False, True))
CTRL_C, CTRL_C_LANDED = (Reply(KeyboardInterrupt, lands) for lands in (False, True))
CTRL_C_DEAD, CTRL_C_LANDED_DEAD = (Reply(KeyboardInterrupt, lands, dead=True) for lands in (False, True))


@dataclass(frozen=True)
class Strike:
    """An error directly before or after one call, whatever it is."""

    call: int
    after: bool = False
    error: type[Exception] = CatalogUnreachableError


@dataclass
class Clock:
    """Passes when commits are sent."""

    now: int = 1_750_000_000_000

    def now_ms(self) -> int:
        return self.now


@dataclass
class Script:
    """What happens to one run, and what it did."""

    replies: list[Reply] = field(default_factory=list)
    then: Reply = WELL
    """The answer once the replies are used up."""
    lease: list[type[Exception]] = field(default_factory=list)
    """What the next lease checks raise."""
    strike: Strike | None = None
    send_ms: int = 0
    """How long a commit takes."""
    clock: Clock = field(default_factory=Clock)
    calls: list[str] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    landed: int = 0
    """Commits that are in the table."""
    undo: Callable[[], object] = lambda: None
    _in_flight: list[Callable[[], Any]] = field(default_factory=list)
    _away: int = 0
    _dead: bool = False

    @property
    def sends(self) -> int:
        return sum(name in SENDS for name in self.calls)

    def call(self, name: str, carry_out: Callable[[], Any]) -> Any:
        number = len(self.calls)
        self.calls.append(name)
        self._fail_if_struck(number, after=False)
        if self._dead:
            raise ConnectionError("Answer from Java side is empty")
        if name in LOOKS and self._away:
            self._away -= 1
            raise CatalogUnreachableError("Cannot load the table: 503 Service Unavailable")
        answer = self._send(name, carry_out) if name in SENDS else carry_out()
        self.landed -= name == "roll_back" and answer is True
        self._fail_if_struck(number, after=True)
        return answer

    def assert_held(self) -> None:
        """Stands for the lease check (`commit.lease.Held.assert_held`)."""
        self.call("assert_held", lambda: None)
        if self.lease:
            raise self.lease.pop(0)("Cannot go on: the lease check failed")

    def arrive(self) -> None:
        """A request that nobody waits for any more reaches the catalog, unless the change is there already."""
        for land in self._in_flight if not self.landed else ():
            with suppress(CommitConflictError):
                if land() is not False:
                    self.landed += 1
                    return

    def _fail_if_struck(self, number: int, *, after: bool) -> None:
        if self.strike is not None and (self.strike.call, self.strike.after) == (number, after):
            raise self.strike.error("Cannot reach the catalog: struck")

    def _send(self, name: str, land: Callable[[], Any]) -> Any:
        reply = self.replies.pop(0) if self.replies else self.then
        self.clock.now += self.send_ms
        self._away, self._dead = reply.away, reply.dead
        answer = None
        if reply.lands:
            answer = land()
            self.landed += answer is not False
        elif reply.error is not CommitConflictError:
            self._in_flight.append(land)
        if reply.is_undone:
            self.undo()
            self.landed -= 1
        if reply.error is CommitConflictError and name in SWAPS:
            return False
        if reply.error is not None:
            raise reply.error("Cannot commit: as the script has it")
        return answer


class Tapped:
    """A port whose every call goes through the script."""

    def __init__(self, port: Any, script: Script) -> None:
        self._port, self._script = port, script

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        return lambda *args, **words: self._script.call(name, lambda: found(*args, **words))
