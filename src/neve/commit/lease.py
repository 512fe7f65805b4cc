"""lease: one process at a time works on a table, by a row in the state store and by a marker on the table.

Called by `operations.rewrite_run` and by every operation that changes a table. Hosts that share a state store see the row,
others the marker; both name the run and its process. Another process takes them only when they have ended, or when their
process certainly has. The holder calls `Held.assert_held` directly before each commit and each removal, and stops if it has
lost them. Rows do not depend on it: commits are judged by the table's state.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from neve.commit.lease_terms import LEASE_MS, Lease, shown_time
from neve.commit.marker import PROPERTY, Marker
from neve.commit.owner import Owner, shown
from neve.commit.process import is_certainly_gone, this_process
from neve.errors import BadRequestError, LeaseHeldError, RunTakenOverError, TableGoneError
from neve.ports import Clock, Leases, TableEntry

log = logging.getLogger(__name__)

MARKER_MS = 60 * 60_000
"""Each renewal of the marker is a commit of metadata, so it is seldom renewed."""
RENEW_SECONDS = 60.0
_NESSIE = "nessie.catalog.content-id"
"""A property of every table in Nessie, whichever way it was reached."""


def require_history(table: str, properties: Mapping[str, str]) -> None:
    """Raises BadRequestError for a table of a catalog that tells only its current snapshot."""
    if _NESSIE in properties:
        raise BadRequestError(
            f"Cannot work on {table}: Nessie hands out no history of a table, so that nobody could tell what a commit met",
            hint="Inspections and plans work. To compact, use Iceberg's own procedures, which leave it to Nessie.",
        )


def require_free(table: str, table_uuid: str, properties: Mapping[str, str], *, leases: Leases | None, clock: Clock) -> None:
    """Raises LeaseHeldError if another process is at work on the table. Changes nothing.

    Operations call it before they plan or start an engine, so that a refusal is immediate. `leased` decides again.
    """
    now = clock.now_ms()
    row = leases.lease(table_uuid) if leases is not None else None
    if leases is not None and row is not None and row.until_ms > leases.clock_ms(now) and not is_over(row.owner, row.run_id):
        raise _held_by(table, row)
    marker = Marker.of(properties)
    if marker is None or not marker.is_valid(now) or is_over(marker.owner, marker.run_id):
        return
    if row is None or (row.run_id, row.owner) != (marker.run_id, marker.owner):  # otherwise its row has ended
        raise _held_by(table, marker)


def require_same_table(table: str, table_uuid: str, writer: TableEntry) -> None:
    """Raises TableGoneError if the table that is written to is not the one that was read: another one has its name by now.

    Called wherever a table is changed by what was read of it. Very old tables have no uuid to tell.
    """
    uuid = writer.uuid()
    if uuid is not None and uuid.lower() != table_uuid.lower():
        raise TableGoneError(
            f"Cannot work on {table}: it was replaced by another table ({uuid} instead of {table_uuid})",
            hint="Nothing was changed in the new table. Plan again for it.",
        )


@contextmanager
def leased(
    table: str, table_uuid: str, run_id: str, *, leases: Leases | None, writer: TableEntry, clock: Clock
) -> Iterator[Held]:
    """Holds the table for a run, and renews that while the block lasts.

    Raises LeaseHeldError if another process holds it, and BadRequestError if no run could judge what it commits there.
    """
    require_history(table, writer.properties())
    held = Held(table, table_uuid, run_id, leases, writer, clock)
    with _at_work_on(table, run_id):
        held.take()
        stop = threading.Event()
        renewing = threading.Thread(target=held.renew_until, args=(stop,), name="neve-lease", daemon=True)
        renewing.start()
        try:
            yield held
        finally:
            stop.set()
            renewing.join()
            held.give_back()


class Held:
    """A lease that this process took."""

    def __init__(
        self, table: str, table_uuid: str, run_id: str, leases: Leases | None, writer: TableEntry, clock: Clock
    ) -> None:
        self._table, self._uuid, self._run_id = table, table_uuid, run_id
        self._leases, self._writer, self._clock = leases, writer, clock
        self._owner = this_process().text
        self._token: int | None = None
        self._marker: Marker | None = None
        self._replaced: Lease | None = None
        """The lease that was taken over: it had ended, or its process had, so that its marker counts no more either."""
        self._lock = threading.Lock()
        """The renewal and the check before a commit both change the marker."""

    def take(self) -> None:
        """Takes the row, then the marker."""
        self._require_table()
        if self._leases is not None:
            self._take_row(self._leases)
        try:
            self._mark()
        except BaseException:
            self._give_row_back()
            raise

    def assert_held(self) -> None:
        """Returns if the table is still this process's to change; asked directly before each commit and each removal.

        Loads the table. A lease that ended meanwhile, as after a pause of the process, is renewed if nobody has taken it.
        Raises RunTakenOverError if another process has taken over the run or its table, and TableGoneError if the table is gone
        or another one has its name.
        """
        with self._lock:
            self._writer.refresh()
            self._require_table()
            if not self._renew_row():
                raise self._taken_over("another process has taken over the run or its table")
            self._require_marker()

    def renew_until(self, stop: threading.Event) -> None:
        """The heartbeat. A failure is left to the next beat, and to the check before a commit."""
        while not stop.wait(RENEW_SECONDS):
            try:
                self._renew()
            except Exception as error:
                log.warning("lease on %s not renewed: %s", self._table, error)

    def give_back(self) -> None:
        """Removes the marker and frees the row; a marker that cannot be removed ends by itself."""
        try:
            if self._marker is not None:
                self._unmark(self._marker)
        except Exception as error:
            until = shown_time(self._marker.until_ms) if self._marker is not None else "it ends by itself"
            log.warning("the marker on %s stays until %s: %s", self._table, until, error)
        finally:
            self._give_row_back()

    def _take_row(self, leases: Leases) -> None:
        now = self._clock.now_ms()
        words = {"run_id": self._run_id, "owner": self._owner, "now_ms": now, "lease_ms": LEASE_MS}
        taken = leases.take_lease(self._uuid, **words)  # type: ignore[arg-type]
        if not self._is_mine(taken.lease) and is_over(taken.lease.owner, taken.lease.run_id):
            taken = leases.take_lease(self._uuid, **words, gone=taken.lease.token)  # type: ignore[arg-type]
        if not self._is_mine(taken.lease):
            raise _held_by(self._table, taken.lease)
        self._token, self._replaced = taken.lease.token, taken.before

    def _is_mine(self, found: Lease | Marker) -> bool:
        return (found.run_id, found.owner) == (self._run_id, self._owner)

    def _mark(self) -> None:
        """Sets the marker, in place of one that is not valid any more."""
        for _ in range(3):
            found = self._writer.properties().get(PROPERTY)
            other = Marker.of({PROPERTY: found or ""})
            if other is not None and self._is_kept_off(other):
                raise _held_by(self._table, other)
            mine = self._new_marker()
            if self._writer.swap_property(PROPERTY, found, mine.text):
                self._marker = mine
                return
            self._writer.refresh()
        raise LeaseHeldError(f"Cannot take {self._table}: another run marks it at the same moment", hint="Try again.")

    def _new_marker(self) -> Marker:
        return Marker(run_id=self._run_id, owner=self._owner, until_ms=self._clock.now_ms() + MARKER_MS)

    def _is_kept_off(self, other: Marker) -> bool:
        """Whether another process holds the table by this marker, be it for the same run."""
        if not other.is_valid(self._clock.now_ms()) or self._is_mine(other):
            return False
        replaced = self._replaced
        if replaced is not None and (replaced.run_id, replaced.owner) == (other.run_id, other.owner):
            return False
        return not is_over(other.owner, other.run_id)

    def _require_table(self) -> None:
        require_same_table(self._table, self._uuid, self._writer)

    def _renew(self) -> None:
        with self._lock:
            if not self._renew_row():
                log.warning("run %s lost its lease on %s to another process", self._run_id, self._table)
            elif self._marker is not None and self._marker.until_ms - self._clock.now_ms() < MARKER_MS // 2:
                self._swap_marker(self._marker.text)

    def _renew_row(self) -> bool:
        """Whether the row is still this process's."""
        if self._leases is None or self._token is None:
            return True
        now = self._clock.now_ms()
        return self._leases.renew_lease(self._uuid, self._run_id, self._token, now_ms=now, lease_ms=LEASE_MS)

    def _require_marker(self) -> None:
        """Raises RunTakenOverError unless the table has this run's marker, or one can be set in its place."""
        mine, now = self._marker or self._new_marker(), self._clock.now_ms()
        found = self._writer.properties().get(PROPERTY)
        if found == mine.text and mine.until_ms - now >= MARKER_MS // 4:
            return
        # Without a marker somebody removed it by hand, or, once it had ended, took the table and gave it back.
        if (found == mine.text or (found is None and mine.is_valid(now))) and self._swap_marker(found):
            return
        other = Marker.of({PROPERTY: found or ""})
        who = f"run {other.run_id[:8]} ({shown(other.owner)})" if other is not None else "another run"
        raise self._taken_over(f"{who} has taken the table over")

    def _swap_marker(self, found: str | None) -> bool:
        mine = self._new_marker()
        if not self._writer.swap_property(PROPERTY, found, mine.text):
            return False
        self._marker = mine
        return True

    def _taken_over(self, why: str) -> RunTakenOverError:
        run = self._run_id[:8]
        return RunTakenOverError(
            f"Cannot go on with run {run} over {self._table}: {why}",
            hint=f"This process stopped, and changes nothing more. See `neve runs show {run}`; `neve resume` finishes an "
            "interrupted compaction.",
        )

    def _unmark(self, marker: Marker) -> None:
        try:
            self._writer.swap_property(PROPERTY, marker.text, None)
        except TableGoneError:
            if (name := self._writer.follow()) is None:
                raise
            self._writer.swap_property(PROPERTY, marker.text, None)
            log.warning("%s is now %s: the marker was removed there", self._table, name)

    def _give_row_back(self) -> None:
        try:
            if self._leases is not None and self._token is not None:
                self._leases.release_lease(self._uuid, self._run_id, self._token)
        except Exception as error:  # the run is over, and what it did must not be called a failure for this
            log.warning("the lease on %s stays until it ends by itself: %s", self._table, error)


_at_work: set[str] = set()
"""The runs of this process; what any other run of it holds was left behind by a catalog or store that did not answer."""
_at_work_lock = threading.Lock()


@contextmanager
def _at_work_on(table: str, run_id: str) -> Iterator[None]:
    with _at_work_lock:
        if run_id in _at_work:
            message = f"Cannot take {table}: run {run_id[:8]} is at work on it in this very process"
            raise LeaseHeldError(message, hint="Wait for it.")
        _at_work.add(run_id)
    try:
        yield
    finally:
        with _at_work_lock:
            _at_work.discard(run_id)


def is_over(owner: str, run_id: str) -> bool:
    """Whether the owner of a run certainly works on it no more: its process has ended, or is this one and has ended the run.

    False also where nobody can tell.
    """
    if Owner.parse(owner).is_same_process(this_process()):
        return run_id not in _at_work
    return is_certainly_gone(owner)


def _held_by(table: str, other: Lease | Marker) -> LeaseHeldError:
    run = other.run_id[:8]
    return LeaseHeldError(
        f"Cannot take {table}: run {run} ({shown(other.owner)}) is at work on it; its lease is valid until "
        f"{shown_time(other.until_ms)}",
        hint=f"Wait for it. If that process has ended: `neve resume {run}` on its machine finishes a compaction, and anything "
        f"else can be started again there; or remove the table property {PROPERTY}.",
    )
