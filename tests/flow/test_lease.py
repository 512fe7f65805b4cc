"""One run at a time over a table, by the state store's row and by the table's own mark."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from neve.core.lease import Lease
from neve.core.marker import PROPERTY, Marker
from neve.errors import BadRequestError, CatalogUnreachableError, LeaseHeldError, StateError
from neve.flow import lease as module
from neve.flow.lease import LEASE_MS, MARKER_MS, leased, owner
from tests.flow.fakes import FakeTable, FakeWriter

NOW = 10**12
ELSEWHERE = "otherhost:77"


class Ticking:
    """A clock that a test moves."""

    now = NOW

    def now_ms(self) -> int:
        return self.now


class Rows:
    """Leases as the state store keeps them."""

    def __init__(self, *held: Lease) -> None:
        self.lease = held[0] if held else None
        self.renewed: list[int] = []

    def take_lease(self, table_uuid: str, *, run_id: str, owner: str, now_ms: int, until_ms: int) -> Lease:  # noqa: ARG002
        if self.lease is None or self.lease.run_id == run_id or self.lease.until_ms <= now_ms:
            self.lease = Lease(run_id, owner, (self.lease.token if self.lease else 0) + 1, until_ms)
        return self.lease

    def renew_lease(self, table_uuid: str, run_id: str, token: int, until_ms: int) -> bool:  # noqa: ARG002
        self.renewed.append(until_ms)
        return True

    def release_lease(self, table_uuid: str, run_id: str, token: int) -> None:  # noqa: ARG002
        if self.lease is not None and (self.lease.run_id, self.lease.token) == (run_id, token):
            self.lease = None


def gone_process() -> str:
    """The owner of a process of this machine that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return f"{socket.gethostname()}:{ended.pid}"


def hold(table: FakeTable, rows: Rows | None = None, run_id: str = "mine", clock: Ticking | None = None) -> object:
    return leased("db.t", "u", run_id, leases=rows, writer=FakeWriter(table), clock=clock or Ticking())


def marked(table: FakeTable) -> Marker | None:
    return Marker.of(table.properties)


def mark(table: FakeTable, owner: str, until_ms: int, run_id: str = "theirs") -> None:
    table.properties = {PROPERTY: Marker(run_id=run_id, owner=owner, until_ms=until_ms).text}


def test_a_run_marks_the_table_while_it_lasts_and_leaves_no_trace() -> None:
    table, rows = FakeTable(), Rows()
    with hold(table, rows):
        assert marked(table) == Marker(run_id="mine", owner=owner(), until_ms=NOW + MARKER_MS)
        assert rows.lease == Lease("mine", owner(), 1, NOW + LEASE_MS)
    assert table.properties == {}
    assert rows.lease is None


def test_a_table_whose_catalog_hands_out_no_history_is_not_worked_on() -> None:
    table, rows = FakeTable(properties={"nessie.catalog.content-id": "c"}), Rows()
    with pytest.raises(BadRequestError, match=r"^Cannot work on db\.t: Nessie hands out no history"), hold(table, rows):
        raise AssertionError
    assert (rows.lease, marked(table)) == (None, None)


def test_both_are_given_back_when_the_run_fails() -> None:
    table, rows = FakeTable(), Rows()
    with pytest.raises(ZeroDivisionError), hold(table, rows):
        raise ZeroDivisionError
    assert (table.properties, rows.lease) == ({}, None)


def test_a_second_run_of_the_same_store_is_refused_and_the_first_keeps_its_row() -> None:
    first = Lease("theirs-0123", ELSEWHERE, 4, NOW + 60_000)
    rows = Rows(first)
    message = r"Cannot take db\.t: run theirs-0 \(otherhost:77\) is at work on it, until 01:47 UTC at least"
    with pytest.raises(LeaseHeldError, match=message) as refused, hold(FakeTable(), rows):
        pass
    assert rows.lease == first
    assert "neve resume theirs-0 on its machine" in str(refused.value.hint)


def test_a_host_with_a_store_of_its_own_is_refused_by_the_mark_and_gives_its_row_back() -> None:
    table, rows = FakeTable(), Rows()
    mark(table, ELSEWHERE, NOW + 1)
    with pytest.raises(LeaseHeldError, match="run theirs "), hold(table, rows):
        pass
    assert marked(table) == Marker(run_id="theirs", owner=ELSEWHERE, until_ms=NOW + 1)
    assert rows.lease is None


@pytest.mark.parametrize(("owner", "until_ms"), [(ELSEWHERE, NOW), (None, NOW + 10**9)])
def test_what_has_run_out_or_whose_process_is_gone_from_this_machine_holds_nothing(owner: str | None, until_ms: int) -> None:
    table, rows = FakeTable(), Rows(Lease("theirs", owner or gone_process(), 4, until_ms))
    mark(table, owner or gone_process(), until_ms)
    with hold(table, rows):
        found = marked(table)
        assert found is not None
        assert found.run_id == "mine"
        assert rows.lease is not None
        assert rows.lease.run_id == "mine"


def test_a_run_elsewhere_that_no_longer_renews_its_row_is_not_waited_for_until_its_mark_ends() -> None:
    """Killed on another machine: of those who share the state store nobody waits longer than a row lasts."""
    table, rows = FakeTable(), Rows(Lease("theirs", ELSEWHERE, 4, NOW + 1))
    mark(table, ELSEWHERE, NOW + MARKER_MS)
    clock = Ticking()
    with pytest.raises(LeaseHeldError, match="run theirs "), hold(table, rows, clock=clock):
        pass
    clock.now = NOW + 1
    with hold(table, rows, clock=clock):
        assert rows.lease == Lease("mine", owner(), 5, NOW + 1 + LEASE_MS)
    assert (table.properties, rows.lease) == ({}, None)


def test_a_mark_of_a_run_that_this_store_does_not_know_is_waited_for() -> None:
    table, rows = FakeTable(), Rows(Lease("third", ELSEWHERE, 4, NOW - 1))
    mark(table, ELSEWHERE, NOW + 1)
    with pytest.raises(LeaseHeldError, match="run theirs "), hold(table, rows):
        pass


def test_a_living_process_of_this_machine_holds_its_table_even_if_it_is_this_one() -> None:
    table = FakeTable()
    mark(table, f"{socket.gethostname()}:{os.getppid()}", NOW + 1)
    with pytest.raises(LeaseHeldError), hold(table):
        pass
    other = FakeTable()
    with hold(other, run_id="first"), pytest.raises(LeaseHeldError, match="run first "), hold(other, run_id="second"):
        pass


def test_a_mark_that_this_process_could_not_take_off_does_not_keep_it_off_the_table() -> None:
    table, rows = FakeTable(), Rows(Lease("before", owner(), 4, NOW + 10**9))
    mark(table, owner(), NOW + 10**9, run_id="before")
    with hold(table, rows):
        found = marked(table)
        assert found is not None
        assert found.run_id == "mine"


def test_a_resumed_run_takes_its_own_lease_again() -> None:
    table, rows = FakeTable(), Rows(Lease("mine", ELSEWHERE, 4, NOW + 10**9))
    mark(table, ELSEWHERE, NOW + 10**9, run_id="mine")
    with hold(table, rows):
        assert rows.lease == Lease("mine", owner(), 5, NOW + LEASE_MS)
    assert table.properties == {}


def test_a_run_is_taken_up_by_one_process_only() -> None:
    table = FakeTable()
    mark(table, f"{socket.gethostname()}:{os.getppid()}", NOW + 1, run_id="mine")
    with pytest.raises(LeaseHeldError, match="run mine "), hold(table):
        pass
    mark(table, gone_process(), NOW + 1, run_id="mine")
    with hold(table):
        pass
    assert table.properties == {}


def test_a_store_that_does_not_answer_at_the_end_costs_the_row_and_not_the_run(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Rows):
        def release_lease(self, *_: object) -> None:
            raise StateError("Cannot write to state store: database is locked")

    with hold(FakeTable(), Broken()):
        pass
    assert "the lease on db.t is left behind until it ends by itself" in caplog.text


def test_a_mark_that_nobody_can_read_bars_nobody() -> None:
    table = FakeTable()
    table.properties = {PROPERTY: "{not json"}
    with hold(table):
        assert marked(table) is not None
    assert table.properties == {}


def test_a_mark_of_another_is_not_taken_off() -> None:
    table = FakeTable()
    with hold(table):
        mark(table, ELSEWHERE, NOW + 10**9)
    found = marked(table)
    assert found is not None
    assert found.run_id == "theirs"


def test_two_that_mark_at_the_same_moment_do_not_both_win(monkeypatch: pytest.MonkeyPatch) -> None:
    table = FakeTable()
    swap = FakeWriter.swap_property

    def late(writer: FakeWriter, key: str, expected: str | None, value: str | None) -> bool:
        if marked(table) is None:
            mark(table, ELSEWHERE, NOW + 1)
        return swap(writer, key, expected, value)

    monkeypatch.setattr(FakeWriter, "swap_property", late)
    with pytest.raises(LeaseHeldError, match="run theirs "), hold(table):
        pass


def test_a_long_run_renews_its_row_often_and_its_mark_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RENEW_SECONDS", 0.001)
    table, rows, clock = FakeTable(), Rows(), Ticking()
    with hold(table, rows, clock=clock):
        while len(rows.renewed) < 3:
            pass
        found = marked(table)
        assert found is not None
        assert found.until_ms == NOW + MARKER_MS
        clock.now = NOW + MARKER_MS // 2 + 1
        while marked(table) == found:
            pass
        renewed = marked(table)
        assert renewed is not None
        assert renewed.until_ms == clock.now + MARKER_MS
    assert table.properties == {}


def test_a_catalog_that_does_not_answer_at_the_end_costs_the_mark_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table, rows = FakeTable(), Rows()

    def unreachable(*_: object) -> bool:
        raise CatalogUnreachableError("Cannot set property neve.lease: 503")

    with hold(table, rows):
        monkeypatch.setattr(FakeWriter, "swap_property", unreachable)
    assert rows.lease is None
    assert "the mark on db.t is left behind until it ends by itself" in caplog.text
