"""One run at a time over a table, by the state store's row and by the table's own mark."""

from __future__ import annotations

import socket
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from neve.commit import lease as module
from neve.commit.lease import MARKER_MS, Held, leased, require_free
from neve.commit.lease_terms import LEASE_MS, Lease, Taken
from neve.commit.marker import PROPERTY, Marker
from neve.errors import BadRequestError, CatalogUnreachableError, LeaseHeldError, RunTakenOverError, StateError, TableGoneError
from neve.state import StateStore
from tests.builders.fake_tables import FakeTable, FakeWriter
from tests.builders.processes import ME, gone_process, other_process

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
        self.current = held[0] if held else None
        self.token = held[0].token if held else 0
        self.renewed: list[int] = []

    def take_lease(
        self,
        table_uuid: str,  # noqa: ARG002
        *,
        run_id: str,
        owner: str,
        now_ms: int,
        lease_ms: int,
        gone: int | None = None,
    ) -> Taken:
        before = self.current
        is_free = before is None or before.until_ms <= now_ms or before.token == gone
        if not is_free and before is not None and (before.run_id, before.owner) != (run_id, owner):
            return Taken(before)
        self.token += 1
        self.current = Lease(run_id, owner, self.token, now_ms + lease_ms)
        return Taken(self.current, before)

    def renew_lease(self, table_uuid: str, run_id: str, token: int, *, now_ms: int, lease_ms: int) -> bool:  # noqa: ARG002
        if self.current is None or (self.current.run_id, self.current.token) != (run_id, token):
            return False
        self.current = replace(self.current, until_ms=now_ms + lease_ms)
        self.renewed.append(now_ms + lease_ms)
        return True

    def release_lease(self, table_uuid: str, run_id: str, token: int) -> None:  # noqa: ARG002
        if self.current is not None and (self.current.run_id, self.current.token) == (run_id, token):
            self.current = None

    def lease(self, table_uuid: str) -> Lease | None:  # noqa: ARG002
        return self.current

    def clock_ms(self, now_ms: int) -> int:
        return now_ms


def hold(
    table: FakeTable, rows: Rows | None = None, run_id: str = "mine", clock: Ticking | None = None
) -> AbstractContextManager[Held]:
    return leased("db.t", "u", run_id, leases=rows, writer=FakeWriter(table), clock=clock or Ticking())


def marked(table: FakeTable) -> Marker | None:
    return Marker.of(table.properties)


def mark(table: FakeTable, owner: str, until_ms: int, run_id: str = "theirs") -> None:
    table.properties = {PROPERTY: Marker(run_id=run_id, owner=owner, until_ms=until_ms).text}


def test_a_run_marks_the_table_while_it_lasts_and_leaves_no_trace() -> None:
    table, rows = FakeTable(), Rows()
    with hold(table, rows):
        assert marked(table) == Marker(run_id="mine", owner=ME, until_ms=NOW + MARKER_MS)
        assert rows.current == Lease("mine", ME, 1, NOW + LEASE_MS)
    assert table.properties == {}
    assert rows.current is None


def test_a_table_whose_catalog_hands_out_no_history_is_not_worked_on() -> None:
    table, rows = FakeTable(properties={"nessie.catalog.content-id": "c"}), Rows()
    with pytest.raises(BadRequestError, match=r"^Cannot work on db\.t: Nessie hands out no history"), hold(table, rows):
        raise AssertionError
    assert (rows.current, marked(table)) == (None, None)


@pytest.mark.parametrize(
    ("row", "marker", "holder"),
    [
        (None, None, None),
        ((ELSEWHERE, NOW + 1), None, "theirs-0"),
        ((ELSEWHERE, NOW), None, None),
        (("gone", NOW + 1), None, None),
        (None, ("marked-012", ELSEWHERE, NOW + 1), "marked-0"),
        (None, ("marked-012", ELSEWHERE, NOW), None),
        (None, ("marked-012", "gone", NOW + 1), None),
        (None, ("before-012", ME, NOW + 1), None),
        # Its row has ended, so that whoever shares the store need not wait for the marker.
        ((ELSEWHERE, NOW), ("theirs-012", ELSEWHERE, NOW + 1), None),
        ((ELSEWHERE, NOW), ("marked-012", ELSEWHERE, NOW + 1), "marked-0"),
    ],
)
def test_a_table_is_free_before_it_is_planned_if_its_lease_could_be_taken_now(
    row: tuple[str, int] | None, marker: tuple[str, str, int] | None, holder: str | None
) -> None:
    table, store = FakeTable(), StateStore.open("sqlite://")
    if row is not None:
        owner = gone_process() if row[0] == "gone" else row[0]
        store.take_lease("u", run_id="theirs-012", owner=owner, now_ms=row[1] - LEASE_MS, lease_ms=LEASE_MS)
    if marker is not None:
        mark(table, gone_process() if marker[1] == "gone" else marker[1], marker[2], run_id=marker[0])
    before = (store.lease("u"), dict(table.properties))
    if holder is None:
        require_free("db.t", "u", table.properties, leases=store, clock=Ticking())
        with leased("db.t", "u", "mine", leases=store, writer=FakeWriter(table), clock=Ticking()):
            pass
    else:
        with pytest.raises(LeaseHeldError, match=rf"^Cannot take db\.t: run {holder} \(otherhost:77\) is at work on it"):
            require_free("db.t", "u", table.properties, leases=store, clock=Ticking())
        assert (store.lease("u"), table.properties) == before
        with (
            pytest.raises(LeaseHeldError, match=f"run {holder} "),
            leased("db.t", "u", "mine", leases=store, writer=FakeWriter(table), clock=Ticking()),
        ):
            pass


def test_both_are_given_back_when_the_run_fails() -> None:
    table, rows = FakeTable(), Rows()
    with pytest.raises(ZeroDivisionError), hold(table, rows):
        raise ZeroDivisionError
    assert (table.properties, rows.current) == ({}, None)


def test_a_second_run_of_the_same_store_is_refused_and_the_first_keeps_its_row() -> None:
    first = Lease("theirs-0123", ELSEWHERE, 4, NOW + 60_000)
    rows = Rows(first)
    message = (
        r"Cannot take db\.t: run theirs-0 \(otherhost:77\) is at work on it; its lease is valid until 2001-09-09 01:47:40 UTC"
    )
    with pytest.raises(LeaseHeldError, match=message) as refused, hold(FakeTable(), rows):
        pass
    assert rows.current == first
    assert "`neve resume theirs-0` on its machine" in str(refused.value.hint)


def test_a_host_with_a_store_of_its_own_is_refused_by_the_mark_and_gives_its_row_back() -> None:
    table, rows = FakeTable(), Rows()
    mark(table, ELSEWHERE, NOW + 1)
    with pytest.raises(LeaseHeldError, match="run theirs "), hold(table, rows):
        pass
    assert marked(table) == Marker(run_id="theirs", owner=ELSEWHERE, until_ms=NOW + 1)
    assert rows.current is None


@pytest.mark.parametrize(("owner", "until_ms"), [(ELSEWHERE, NOW), (None, NOW + 10**9)])
def test_what_has_run_out_or_whose_process_is_gone_from_this_machine_holds_nothing(owner: str | None, until_ms: int) -> None:
    table, rows = FakeTable(), Rows(Lease("theirs", owner or gone_process(), 4, until_ms))
    mark(table, owner or gone_process(), until_ms)
    with hold(table, rows):
        found = marked(table)
        assert found is not None
        assert found.run_id == "mine"
        assert rows.current is not None
        assert rows.current.run_id == "mine"


def test_a_run_elsewhere_that_no_longer_renews_its_row_is_not_waited_for_until_its_mark_ends() -> None:
    """Killed on another machine: of those who share the state store nobody waits longer than a row lasts."""
    table, rows = FakeTable(), Rows(Lease("theirs", ELSEWHERE, 4, NOW + 1))
    mark(table, ELSEWHERE, NOW + MARKER_MS)
    clock = Ticking()
    with pytest.raises(LeaseHeldError, match="run theirs "), hold(table, rows, clock=clock):
        pass
    clock.now = NOW + 1
    with hold(table, rows, clock=clock):
        assert rows.current == Lease("mine", ME, 5, NOW + 1 + LEASE_MS)
    assert (table.properties, rows.current) == ({}, None)


def test_a_mark_of_a_run_that_this_store_does_not_know_is_waited_for() -> None:
    table, rows = FakeTable(), Rows(Lease("third", ELSEWHERE, 4, NOW - 1))
    mark(table, ELSEWHERE, NOW + 1)
    with pytest.raises(LeaseHeldError, match="run theirs "), hold(table, rows):
        pass


def test_a_living_process_of_this_machine_holds_its_table_even_if_it_is_this_one() -> None:
    table = FakeTable()
    mark(table, other_process(alive=True), NOW + 1)
    with pytest.raises(LeaseHeldError), hold(table):
        pass
    other = FakeTable()
    with hold(other, run_id="first"), pytest.raises(LeaseHeldError, match="run first "), hold(other, run_id="second"):
        pass


def test_a_mark_that_this_process_could_not_take_off_does_not_keep_it_off_the_table() -> None:
    table, rows = FakeTable(), Rows(Lease("before", ME, 4, NOW + 10**9))
    mark(table, ME, NOW + 10**9, run_id="before")
    with hold(table, rows):
        found = marked(table)
        assert found is not None
        assert found.run_id == "mine"


@pytest.mark.parametrize("owner", [ELSEWHERE, f"{socket.gethostname()}:1", other_process(alive=True)])
def test_a_run_is_not_resumed_while_its_process_may_be_alive(owner: str) -> None:
    """Be that elsewhere, in a container with our host name, or here."""
    first = Lease("mine", owner, 4, NOW + 10**9)
    table, rows = FakeTable(), Rows(first)
    mark(table, owner, NOW + 10**9, run_id="mine")
    before = marked(table)
    with pytest.raises(LeaseHeldError, match="run mine "), hold(table, rows):
        pass
    with pytest.raises(LeaseHeldError, match="run mine "), hold(table):
        pass
    assert (rows.current, marked(table)) == (first, before)


def test_a_run_is_resumed_when_its_lease_has_ended_or_its_process_has() -> None:
    for owner, until_ms in ((ELSEWHERE, NOW), (gone_process(), NOW + 10**9)):
        table, rows = FakeTable(), Rows(Lease("mine", owner, 4, until_ms))
        mark(table, owner, NOW + 10**9, run_id="mine")
        with hold(table, rows):
            assert rows.current == Lease("mine", ME, 5, NOW + LEASE_MS)
        assert table.properties == {}


def test_a_run_is_resumed_by_one_thread_of_this_process_only() -> None:
    table = FakeTable()
    with hold(table), pytest.raises(LeaseHeldError, match="run mine is at work on it in this very process"), hold(table):
        pass
    with hold(table):
        pass


def held_by(table: FakeTable, rows: Rows | None, clock: Ticking) -> Held:
    held = Held("db.t", "u", "mine", rows, FakeWriter(table), clock)
    held.take()
    return held


def test_who_holds_a_table_is_told_so_as_often_as_it_asks_and_its_lease_is_renewed() -> None:
    table, rows, clock = FakeTable(), Rows(), Ticking()
    held = held_by(table, rows, clock)
    held.assert_held()
    clock.now += LEASE_MS * 2
    held.assert_held()
    assert rows.current == Lease("mine", ME, 1, clock.now + LEASE_MS)


def test_after_a_pause_in_which_nobody_came_the_lease_is_taken_again() -> None:
    table, rows, clock = FakeTable(), Rows(), Ticking()
    held = held_by(table, rows, clock)
    clock.now += MARKER_MS * 24
    held.assert_held()
    assert marked(table) == Marker(run_id="mine", owner=ME, until_ms=clock.now + MARKER_MS)


def test_after_a_pause_in_which_another_process_resumed_the_run_it_is_lost() -> None:
    table, rows, clock = FakeTable(), Rows(), Ticking()
    held = held_by(table, rows, clock)
    rows.current = Lease("mine", ELSEWHERE, 2, NOW + 10**9)
    message = r"^Cannot go on with run mine over db\.t: another process has taken over the run or its table$"
    with pytest.raises(RunTakenOverError, match=message) as lost:
        held.assert_held()
    assert str(lost.value.hint).startswith("This process stopped, and changes nothing more.")
    held.give_back()
    assert rows.current == Lease("mine", ELSEWHERE, 2, NOW + 10**9)


@pytest.mark.parametrize("run_id", ["theirs", "mine"])
@pytest.mark.parametrize("until_ms", [NOW + 10**9, NOW])
def test_a_host_with_a_store_of_its_own_took_the_table_and_the_marker_tells(run_id: str, until_ms: int) -> None:
    """Whether or not its marker is valid: the table was another's since, which may have removed files."""
    table, rows = FakeTable(), Rows()
    held = held_by(table, rows, Ticking())
    mark(table, ELSEWHERE, until_ms, run_id=run_id)
    with pytest.raises(RunTakenOverError, match=rf"run {run_id} \(otherhost:77\) has taken the table over"):
        held.assert_held()
    held.give_back()
    assert marked(table) == Marker(run_id=run_id, owner=ELSEWHERE, until_ms=until_ms)


def test_a_marker_that_was_removed_by_hand_is_set_again_while_it_was_valid_and_a_table_is_lost_after_that() -> None:
    table, clock = FakeTable(), Ticking()
    held = held_by(table, None, clock)
    table.properties = {}
    held.assert_held()
    assert marked(table) is not None
    table.properties = {}
    clock.now += MARKER_MS
    with pytest.raises(RunTakenOverError, match="another run has taken the table over"):
        held.assert_held()
    assert table.properties == {}


def test_another_table_of_the_same_name_is_neither_taken_nor_changed() -> None:
    table, rows = FakeTable(uuid="new"), Rows()
    message = r"^Cannot work on db\.t: it was replaced by another table \(new instead of u\)$"
    with pytest.raises(TableGoneError, match=message), hold(table, rows):
        pass
    assert (table.properties, rows.current) == ({}, None)


@pytest.mark.parametrize("how", ["dropped", "replaced"])
def test_a_table_that_is_gone_at_the_end_costs_nothing_but_a_warning(how: str, caplog: pytest.LogCaptureFixture) -> None:
    table, rows = FakeTable(), Rows()
    with hold(table, rows):
        table.gone = how
    assert rows.current is None
    assert "the marker on db.t stays until 2001-09-09 02:46:40 UTC" in caplog.text


def test_the_marker_of_a_renamed_table_is_removed_under_its_new_name(caplog: pytest.LogCaptureFixture) -> None:
    table, rows = FakeTable(), Rows()
    with hold(table, rows):
        table.gone, table.new_name = "renamed", "c.db.moved"
    assert (table.properties, rows.current) == ({}, None)
    assert "db.t is now c.db.moved: the marker was removed there" in caplog.text


def test_a_store_that_does_not_answer_at_the_end_costs_the_row_and_not_the_run(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Rows):
        def release_lease(self, *_: object) -> None:
            raise StateError("Cannot write to state store: database is locked")

    with hold(FakeTable(), Broken()):
        pass
    assert "the lease on db.t stays until it ends by itself" in caplog.text


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
    assert rows.current is None
    assert "the marker on db.t stays until 2001-09-09 02:46:40 UTC" in caplog.text
