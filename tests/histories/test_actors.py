"""Actors are real processes with hosts of their own, which can be killed and paused; the state store can be restored."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg2  # type: ignore[import-untyped]
import pytest

from stack.endpoints import PostgresEndpoint
from tests.histories.actors import Actor, ActorDiedError
from tests.histories.store import SharedStore


@pytest.fixture
def actor(tmp_path: Path) -> Iterator[Actor]:
    started = Actor("echo_actor", [], host="host-a", log=tmp_path / "log", environ={})
    yield started
    started.go_on()
    started.kill()


def asked(actor: Actor, order: dict[str, Any]) -> Future[Any]:
    """The answer, or what was raised instead, when there is one."""
    future: Future[Any] = Future()

    def ask() -> None:
        try:
            future.set_result(actor.ask("main", order))
        except ActorDiedError as error:
            future.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    return future


@pytest.mark.parametrize("lane", ["main", "beside"])
def test_an_actor_answers_under_its_own_host_name(actor: Actor, lane: str) -> None:
    ready = actor.wait_until_ready()
    answer = actor.ask(lane, {"do": "echo", "word": "hello"})
    assert answer == {"word": "hello", "host": "host-a", "pid": ready["pid"]}


def test_a_call_that_fails_is_an_answer(actor: Actor) -> None:
    answer = actor.ask("main", {"do": "fail", "word": "no"})
    assert (answer["error"], answer["message"], answer["ours"]) == ("ValueError", "no", False)
    assert actor.ask("main", {"do": "echo", "word": "still here"})["word"] == "still here"


def test_an_actor_reports_by_itself_where_it_is(actor: Actor) -> None:
    actor.ask("main", {"do": "report", "answer": {"reached": "written", "run": "r"}})
    assert actor.reached.get(timeout=30) == {"reached": "written", "run": "r"}


def test_a_paused_actor_answers_when_it_goes_on(actor: Actor) -> None:
    actor.wait_until_ready()
    actor.pause()
    future = asked(actor, {"do": "echo", "word": "late"})
    with pytest.raises(TimeoutError):
        future.result(0.5)
    actor.go_on()
    assert future.result(30)["word"] == "late"


def test_whoever_waits_for_a_killed_actor_is_told(actor: Actor) -> None:
    actor.wait_until_ready()
    actor.pause()
    future = asked(actor, {"do": "echo", "word": "never"})
    actor.kill()
    with pytest.raises(ActorDiedError):
        future.result(30)
    with pytest.raises(ActorDiedError):
        actor.ask("main", {"do": "echo", "word": "never"})


@pytest.mark.stack
def test_a_restored_store_is_as_it_was_at_the_backup(postgres: PostgresEndpoint) -> None:
    store = SharedStore(postgres, f"store_{uuid4().hex[:8]}")
    where = {name: getattr(store.endpoint, name) for name in ("host", "port", "user", "password")}
    try:
        assert (store.back_up(), store.restore()) == (0, 0)
        connection = psycopg2.connect(**where, dbname=store.endpoint.database)
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE runs (id int PRIMARY KEY)")
            cursor.execute("CREATE TABLE groups (id int REFERENCES runs)")
            cursor.execute("INSERT INTO runs VALUES (1)")
            cursor.execute("INSERT INTO groups VALUES (1)")
            assert store.back_up() == 1
            cursor.execute("INSERT INTO runs VALUES (2)")
            cursor.execute("DELETE FROM groups")
        assert store.restore() == 1
        with pytest.raises(psycopg2.OperationalError), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        connection.close()
        connection = psycopg2.connect(**where, dbname=store.endpoint.database)
        with connection.cursor() as cursor:
            cursor.execute("SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM groups)")
            assert cursor.fetchone() == (1, 1)
        connection.close()
    finally:
        store.drop()
