"""lease: one run at a time over a table: a row in the state store for those who share it, a mark on the table for the others.

Called by `flow.run` around a run. The lease saves work, it does not guard rows: commits are judged by the table's state whoever
holds it. A run whose process is gone from this machine holds nothing.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from neve.core.marker import PROPERTY, Marker
from neve.errors import BadRequestError, LeaseHeldError, NeveError
from neve.ports import Clock, Leases, TableWriter

log = logging.getLogger(__name__)

LEASE_MS = 5 * 60_000
MARKER_MS = 60 * 60_000
"""Each renewal of the mark is a commit of metadata, so it is seldom renewed."""
RENEW_SECONDS = 60.0
_NESSIE = "nessie.catalog.content-id"
"""A property of every table in Nessie, whichever way it was reached."""


def owner() -> str:
    """This process, so that a later one can tell whether the run is still under way."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_alive(owner: str) -> bool:
    """Whether the process that began a run is still there; of another machine's nothing is known, so it counts as gone."""
    host, _, pid = owner.rpartition(":")
    return host == socket.gethostname() and pid.isdigit() and int(pid) != os.getpid() and _runs(int(pid))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def require_history(table: str, properties: Mapping[str, str]) -> None:
    """Raises BadRequestError for a table of a catalog that tells only its current snapshot."""
    if _NESSIE in properties:
        raise BadRequestError(
            f"Cannot work on {table}: Nessie hands out no history of a table, so that nobody could tell what a commit met",
            hint="Inspections and plans work. To compact, use Iceberg's own procedures, which leave it to Nessie.",
        )


@contextmanager
def leased(
    table: str, table_uuid: str, run_id: str, *, leases: Leases | None, writer: TableWriter, clock: Clock
) -> Iterator[None]:
    """Holds the table for a run, and renews that while the block lasts.

    Raises LeaseHeldError if another run holds it, and BadRequestError if no run could judge what it commits there.
    """
    require_history(table, writer.properties())
    held = _Held(table, table_uuid, run_id, leases, writer, clock)
    _at_work.add(run_id)
    try:
        held.take()
        stop = threading.Event()
        renewing = threading.Thread(target=held.renew_until, args=(stop,), name="neve-lease", daemon=True)
        renewing.start()
        try:
            yield
        finally:
            stop.set()
            renewing.join()
            held.give_back()
    finally:
        _at_work.discard(run_id)


class _Held:
    def __init__(
        self, table: str, table_uuid: str, run_id: str, leases: Leases | None, writer: TableWriter, clock: Clock
    ) -> None:
        self._table, self._uuid, self._run_id = table, table_uuid, run_id
        self._leases, self._writer, self._clock = leases, writer, clock
        self._token: int | None = None
        self._marker: Marker | None = None
        self._lapsed: str | None = None
        """The run whose row had run out: it renews nothing any more, so that its mark holds nothing either."""

    def take(self) -> None:
        if self._leases is not None:
            self._take_row(self._leases)
        try:
            self._mark()
        except BaseException:
            self._give_row_back()
            raise

    def _take_row(self, leases: Leases) -> None:
        now = self._clock.now_ms()
        words = {"run_id": self._run_id, "owner": owner(), "until_ms": now + LEASE_MS}
        # As if no time had passed, so that a row which has run out is seen before it is overwritten.
        lease = leases.take_lease(self._uuid, **words, now_ms=0)  # type: ignore[arg-type]
        if lease.run_id != self._run_id:
            if _is_gone(lease.owner, lease.run_id):
                leases.release_lease(self._uuid, lease.run_id, lease.token)
            elif lease.until_ms <= now:
                self._lapsed = lease.run_id
            lease = leases.take_lease(self._uuid, **words, now_ms=now)  # type: ignore[arg-type]
        if lease.run_id != self._run_id:
            raise _held_by(self._table, lease.run_id, lease.owner, lease.until_ms)
        self._token = lease.token

    def _mark(self) -> None:
        """Puts the mark on the table, in place of one that no longer holds."""
        for _ in range(3):
            found = self._writer.properties().get(PROPERTY)
            other = Marker.of({PROPERTY: found or ""})
            now = self._clock.now_ms()
            if other is not None and self._is_kept_off(other, now):
                raise _held_by(self._table, other.run_id, other.owner, other.until_ms)
            mine = Marker(run_id=self._run_id, owner=owner(), until_ms=now + MARKER_MS)
            if self._writer.swap_property(PROPERTY, found, mine.text):
                self._marker = mine
                return
            self._writer.refresh()
        raise LeaseHeldError(f"Cannot take {self._table}: another run marks it at the same moment", hint="Try again.")

    def _is_kept_off(self, other: Marker, now_ms: int) -> bool:
        """By another run, or by a living process that has taken up this very run."""
        if other.run_id == self._run_id:
            return now_ms < other.until_ms and is_alive(other.owner)
        over = other.run_id == self._lapsed or _is_gone(other.owner, other.run_id)
        return other.bars(self._run_id, now_ms) and not over

    def renew_until(self, stop: threading.Event) -> None:
        while not stop.wait(RENEW_SECONDS):
            try:
                self._renew()
            except NeveError as error:  # the next minute tries again; commits look at the mark by themselves
                log.warning("lease on %s not renewed: %s", self._table, error)

    def _renew(self) -> None:
        now = self._clock.now_ms()
        if self._leases is not None and self._token is not None:
            self._leases.renew_lease(self._uuid, self._run_id, self._token, now + LEASE_MS)
        if self._marker is not None and self._marker.until_ms - now < MARKER_MS // 2:
            mine = self._marker.model_copy(update={"until_ms": now + MARKER_MS})
            if self._writer.swap_property(PROPERTY, self._marker.text, mine.text):
                self._marker = mine

    def give_back(self) -> None:
        """Takes the mark off and frees the row; a mark that cannot be taken off ends by itself."""
        try:
            if self._marker is not None:
                self._writer.swap_property(PROPERTY, self._marker.text, None)
        except NeveError as error:
            log.warning("the mark on %s is left behind until it ends by itself: %s", self._table, error)
        finally:
            self._give_row_back()

    def _give_row_back(self) -> None:
        try:
            if self._leases is not None and self._token is not None:
                self._leases.release_lease(self._uuid, self._run_id, self._token)
        except NeveError as error:  # the run is over, and what it did must not be called a failure for this
            log.warning("the lease on %s is left behind until it ends by itself: %s", self._table, error)


_at_work: set[str] = set()
"""The runs of this process; a mark of any other run of it was left behind by a catalog that did not answer."""


def _is_gone(owner: str, run_id: str) -> bool:
    """Whether the holder certainly works no more: its process of this machine is not there, or is this one and done with it."""
    host, _, pid = owner.rpartition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    return run_id not in _at_work if int(pid) == os.getpid() else not _runs(int(pid))


def _held_by(table: str, run_id: str, owner: str, until_ms: int) -> LeaseHeldError:
    from datetime import UTC, datetime

    until = datetime.fromtimestamp(until_ms / 1000, UTC).strftime("%H:%M")
    return LeaseHeldError(
        f"Cannot take {table}: run {run_id[:8]} ({owner}) is at work on it, until {until} UTC at least",
        hint=f"Wait for it. If that process is gone: neve resume {run_id[:8]} on its machine finishes a compaction, and what "
        f"else it was can be begun again there; or remove the table property {PROPERTY}.",
    )
