"""Where a Neve can be stopped: the points of a run at which its process and another one can get in each other's way.

Runs in the process of a Neve. An order names the stages at which it must stop; at the first of them the process reports where
it is, and waits until the history lets it continue. Only that thread waits: the heartbeat continues unless the history pauses
the process. Methods of the code under test are wrapped for this, and one that has another name now is an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

from tests.histories.serving import failure

BEGUN = "begun"
"""The run is in the journal; no file is written."""
EXECUTING = "executing"
"""Rewriting begins; a resume has dealt by now with the files of the process before."""
EXECUTED = "executed"
"""Files are written that the journal does not have."""
WRITTEN = "written"
"""The journal has every file, and the checks before the commit are not done."""
SENDING = "sending"
"""Every check is done, and the commit is about to be sent."""
SENT = "sent"
"""The catalog has answered the commit."""
REMOVING = "removing"
"""Every check is done, and files are about to leave their place."""

Report = Callable[[dict[str, Any]], None]


class Stages:
    """The stages of one process, and its signs of life."""

    def __init__(self, report: Report, go: Path) -> None:
        self._report, self._go = report, go
        self._stops: Collection[str] = ()
        self._run = ""
        self._last_sign: float | None = None
        self.silence = 0.0

    def carry_out(self, stops: Collection[str], call: Callable[[], Any]) -> dict[str, Any]:
        """The answer of an order that must stop at the first of these stages, with its longest time without a sign of life."""
        self._stops, self._run, self._last_sign, self.silence = stops, "", None, 0.0
        try:
            answer = call()
        except Exception as error:
            answer = failure(error)
        finally:
            self._stops = ()
        if self._last_sign is not None:
            self.silence = max(self.silence, time.monotonic() - self._last_sign)
        return {**answer, "silence": round(self.silence, 2)}

    def reach(self, stage: str) -> None:
        """Waits here if this is where the order must stop."""
        if stage in self._stops:
            self._stops = ()
            self._report({"reached": stage, "run": self._run})
            while not self._go.exists():
                time.sleep(0.02)

    def sign(self, begun: float, *, still_ours: bool) -> None:
        """A heartbeat. A lease that was lost while the one before was valid was taken from a process that is alive."""
        now = time.monotonic()
        if self._last_sign is not None:
            self.silence = max(self.silence, now - self._last_sign)
        self._last_sign = begun if still_ours else None

    def install(self) -> None:
        """Wraps the methods that are the stages."""
        from neve.commit.rewrite_files import Committer
        from neve.spark.table.bridge import TableBridge
        from neve.spark.tasks.rewrite import SparkEngine
        from neve.state.store import StateStore
        from neve.storage.s3 import S3Files

        self._around(StateStore, "begin", after=BEGUN, note=self._note_run)
        self._around(StateStore, "written", before=EXECUTED)
        self._around(Committer, "commit", before=WRITTEN)
        self._around(TableBridge, "rewrite", before=SENDING, after=SENT)
        self._around(S3Files, "move", before=REMOVING)
        self._before_work(SparkEngine)
        self._signs(StateStore)

    def _note_run(self, run: Any) -> None:
        self._run = run.run_id

    def _around(
        self, owner: Any, name: str, *, before: str = "", after: str = "", note: Callable[[Any], None] | None = None
    ) -> None:
        original = getattr(owner, name)

        @wraps(original)
        def wrapped(this: Any, *arguments: Any, **options: Any) -> Any:
            if note is not None:
                note(arguments[0])
            self.reach(before)
            found = original(this, *arguments, **options)
            self.reach(after)
            return found

        setattr(owner, name, wrapped)

    def _before_work(self, owner: Any) -> None:
        original = owner.run

        @wraps(original)
        def wrapped(this: Any, orders: Any) -> Iterator[Any]:
            self.reach(EXECUTING)
            yield from original(this, orders)

        owner.run = wrapped

    def _signs(self, owner: Any) -> None:
        taking, renewing = owner.take_lease, owner.renew_lease

        @wraps(taking)
        def take(this: Any, *arguments: Any, **options: Any) -> Any:
            begun = time.monotonic()
            found = taking(this, *arguments, **options)
            self._last_sign = begun
            return found

        @wraps(renewing)
        def renew(this: Any, *arguments: Any, **options: Any) -> Any:
            begun = time.monotonic()
            still_ours = renewing(this, *arguments, **options)
            self.sign(begun, still_ours=still_ours)
            return still_ours

        owner.take_lease, owner.renew_lease = take, renew
