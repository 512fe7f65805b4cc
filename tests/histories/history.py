"""Runs one history: lets the schedule happen to the actors, checks meanwhile and at the end, and stops everything."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.histories import schedule
from tests.histories.actors import ActorDiedError
from tests.histories.checker import Checker, Seen, Verdict
from tests.histories.lake import Lake
from tests.histories.rows import MAIN, Row, compare
from tests.histories.scenes import Scenes
from tests.histories.schedule import NEVES, Event
from tests.histories.stage import LEFT_ALONE, WRITERS, Servers, Stage
from tests.histories.writers import Log, write

WRITE_EVERY_SECONDS = 1.0
WORK_SECONDS = 5.0
"""How long a kill or a pause waits for the process to be at work."""
_FIRST_SCENES = 2
SETTLE_SECONDS = 180.0
"""How long what was interrupted may take to be finished once nothing goes wrong any more."""


class HistoryFailedError(AssertionError):
    """The history shows a fault; the message has the seed, the schedule and the log."""


@dataclass
class Result:
    """What was done, so that a history in which nothing happened cannot pass for a good one."""

    counts: Counter[str] = field(default_factory=Counter)
    checks: int = 0
    rows: int = 0
    snapshots: int = 0
    unrelated: int = 0

    def count(self, start: str, end: str = "") -> int:
        """How often that happened whose name starts and ends so."""
        return sum(n for what, n in self.counts.items() if what.startswith(start) and what.endswith(end))

    def __str__(self) -> str:
        counts = "\n".join(f"  {number:5} {what}" for what, number in sorted(self.counts.items()))
        read = f"{self.snapshots} snapshots read, {self.unrelated} of them without their parent"
        return f"{self.checks} checks, {self.rows} rows at the end, {read}\n{counts}"


class History:
    """One history. `run` does everything, once."""

    def __init__(
        self,
        seed: int,
        minutes: float,
        servers: Servers,
        directory: Path,
        *,
        scenes: Sequence[str] = schedule.SCENES,
        say: Callable[[str], None] = print,
    ) -> None:
        self.seed, self.minutes, self._servers, self._directory, self._say = seed, minutes, servers, directory, say
        self._kinds = tuple(scenes)
        self.events = schedule.draw(seed, minutes, scenes)
        self.log, self.result, self.lines = Log(), Result(), list[str]()
        self._begun_scenes = 0
        self._doing: dict[str, str] = {}
        self._turns = {name: threading.Lock() for name in (*NEVES, *WRITERS)}
        """Held by each while it does something; a scene holds those that must not."""
        self._done = Counter[str]()
        """Orders that each Neve has finished since it was last killed or paused."""
        self._over, self._failed = threading.Event(), threading.Event()
        self._failures: list[str] = []
        self.checking = threading.Lock()
        """Held while a check lasts; a scene holds it while files are known to be away for a moment."""
        self._began = time.monotonic()

    def run(self) -> Result:
        """Raises HistoryFailedError if anything is wrong."""
        with ExitStack() as stack:
            try:
                self.stage = Stage(self.seed, self._servers, self._directory, self._over, stack)
                self._checker = Checker(Lake(self.stage.table.io), self.stage.listing, self.stage.reload, self.log.changes)
                self.stage.start(self.note)
                self._scenes = Scenes(self, self._turns, self._over)
                self._warm_up()
                self._live()
                if not self._failed.is_set():
                    self._end_well()
            except Exception as error:
                self.fail(f"the history itself failed: {type(error).__name__}: {error}")
                raise HistoryFailedError(self.report()) from error
            finally:
                self._over.set()
        if self._failed.is_set():
            raise HistoryFailedError(self.report())
        return self.result

    def report(self) -> str:
        """Everything that is needed to repeat and to understand it."""
        chosen = "" if self._kinds == schedule.SCENES else f" --scenes {' '.join(self._kinds)}"
        command = f"python -m tests.histories --seed {self.seed} --minutes {self.minutes:g}{chosen}"
        told = ["Schedule", *map(str, self.events), "Log", *self.lines, str(self.result), "Wrong", *self._failures]
        return "\n".join([command, *told])

    def note(self, who: str, line: str) -> None:
        told = f"{time.monotonic() - self._began:8.1f} s  {who}: {line}"
        self.lines.append(told)
        self._say(told)

    def fail(self, sentence: str) -> None:
        self._failures.append(sentence)
        self.note("WRONG", sentence)
        self._failed.set()

    # While it lasts

    def _warm_up(self) -> None:
        """Lets everybody do their work once: what a JVM does for the first time takes long."""
        random = Random(self.seed)
        for writer, kind in (
            ("spark", "insert"),
            ("spark", "update"),
            ("cdc", "upsert"),
            ("cdc", "merge"),
            ("updater", "insert"),
        ):
            self.note(writer, str(write(self.log, self.stage.asker(writer), writer, kind, random)))
        for name in NEVES:
            self.order(name, {"do": "compact", "kernel": None, "tier": "full"})
            self.order(name, {"do": "expire"})
            self.order(name, {"do": "settle", "at_once": True})
        self.check()

    def _live(self) -> None:
        self._began = time.monotonic()
        threads = [
            *(threading.Thread(target=self._guarded, args=(self._write_on, name)) for name in WRITERS),
            *(threading.Thread(target=self._guarded, args=(self._maintain_on, name)) for name in NEVES),
            threading.Thread(target=self._guarded, args=(self._check_on, "check")),
        ]
        for thread in threads:
            thread.start()
        try:
            for event in self.events:
                if self._failed.wait(max(0.0, event.at - (time.monotonic() - self._began))) or self._is_late():
                    break
                self._happen(event)
            self._failed.wait(max(0.0, self.minutes * 60 - (time.monotonic() - self._began)))
        finally:
            self._over.set()
            self.stage.calm()
            for thread in threads:
                thread.join(SETTLE_SECONDS)
            if any(thread.is_alive() for thread in threads):
                self.fail(f"a process did not answer for {SETTLE_SECONDS:g} s although nothing was wrong with it any more")

    def _is_late(self, needed: float = 0.0) -> bool:
        """Whether so many seconds are not left. The first two scenes are played however slow the machine is."""
        return self._begun_scenes >= _FIRST_SCENES and time.monotonic() - self._began > self.minutes * 60 - needed

    def _guarded(self, work: Callable[[str], None], name: str) -> None:
        try:
            work(name)
        except Exception as error:
            self.fail(f"{name}: {type(error).__name__}: {error}")

    def _check_on(self, _: str) -> None:
        while not self._over.wait(schedule.CHECK_SECONDS):
            self.check()

    def _write_on(self, name: str) -> None:
        for kind, random in schedule.writes(self.seed, name):
            if self._over.wait(WRITE_EVERY_SECONDS):
                return
            with self._turns[name]:
                line = write(self.log, self.stage.asker(name), name, kind, random)
            if line is not None:
                self.result.counts[f"{name} {kind} {'ok' if line.endswith(': ok') else 'unknown'}"] += 1
                self.note(name, line)

    def _maintain_on(self, name: str) -> None:
        for order in schedule.neve_orders(self.seed, name):
            if self._over.wait(0.1):
                return
            try:
                with self._turns[name]:
                    self._doing[name] = order["do"]
                    answer = self.order(name, order)
            except ActorDiedError:
                self.note(name, f"{json.dumps(order)} -> killed")
                if not self.stage.wait_until_up(name):
                    return
                continue
            finally:
                self._doing.pop(name, None)
            self._done[name] += 1
            if answer.get("error") == "LeaseHeldError":
                self._over.wait(0.7)

    def order(self, name: str, order: dict[str, Any]) -> Any:
        """Lets a Neve do one thing. What it refuses is part of the history; an exception of another kind is a fault."""
        answer = self.stage.ask(name, order)
        self.result.counts[f"{name} {order['do']} {answer.get('error') or answer.get('outcome') or '?'}"] += 1
        self.note(name, f"{json.dumps(order)} -> {json.dumps({k: v for k, v in answer.items() if k != 'trace'})[:600]}")
        resumed = (one for one in (answer.get("runs") or {}).values() if isinstance(one, dict))
        for crash in (one for one in (answer, *resumed) if one.get("error") and not one["ours"]):
            self.note(name, crash["trace"])
            self.fail(f"{name} crashed in {order['do']}: {crash['error']}: {crash['message'][:300]}")
        return answer

    # Events

    def _happen(self, event: Event) -> None:
        stage, target = self.stage, event.target
        acts: dict[str, Callable[[], object]] = {
            "kill": lambda: stage.kill(target) if self._is_at_work(target, event.value) else LEFT_ALONE,
            "start": lambda: stage.start_again(target),
            "pause": lambda: stage.pause(target) if self._is_at_work(target, event.value) else LEFT_ALONE,
            "continue": lambda: stage.go_on(target),
            "lose-answer": lambda: stage.lose_answer(target),
            "hold-commit": lambda: stage.hold_commit(target, event.value),
            "skew": lambda: stage.skew(target, event.value),
            "backup": stage.store.back_up,
            "restore": stage.store.restore,
            "scene": lambda: self._play(event),
        }
        doing = self._doing.get(target, "")
        done = acts[event.what]()
        self.result.counts[f"event {event.what}{' left out' if done == LEFT_ALONE else ''}"] += 1
        shown = f" {doing} -> {done}" if done is not None else ""
        self.note("event", f"{event.what} {event.scene or target} {event.value:g}{shown}")

    def _play(self, event: Event) -> str | None:
        """A scene, if there is time for it before the end."""
        assert event.scene is not None
        if self._is_late(schedule.SCENE_SECONDS):
            return LEFT_ALONE
        self._begun_scenes += 1
        self.note("scene", f"begins: {event.scene}")
        came = self._scenes.play(event.scene)
        self.check()
        if came:
            self.result.counts[f"scene {event.scene.kind} {event.scene.how}"] += 1
        return "played" if came else LEFT_ALONE

    def _is_at_work(self, name: str, delay: float) -> bool:
        """Waits until the process rewrites something, and then a little longer.

        False if it has finished nothing since it was last disturbed: on a slow machine it would never come to work.
        """
        end = time.monotonic() + WORK_SECONDS
        while self._doing.get(name) not in ("compact", "resume") and time.monotonic() < end:
            self._over.wait(0.02)
        self._over.wait(delay)
        return self._done.pop(name, 0) > 0

    # Checks

    def check(self) -> Verdict:
        """Checks the table as it is now, while everything goes on."""
        with self.checking:
            return self._check()

    def _check(self) -> Verdict:
        with self.log.lock:
            seen = Seen.at(self.stage.table, self.log.expected, self.log.refs)
        verdict = self._checker.check(seen)
        with self.log.lock:
            for number in seen.expected.unknown.keys() & verdict.committed.keys():
                self.log.expected.settled(number, committed=verdict.committed[number])
            for number in [n for n, change in seen.expected.unknown.items() if change.branch != MAIN]:
                self.log.expected.unknown.pop(number)
        self.result.checks += 1
        self.result.rows = verdict.rows
        self.result.snapshots += verdict.snapshots
        self.result.unrelated += verdict.unrelated
        self.note("check", f"{verdict.rows} rows, {verdict.snapshots} new snapshots, {len(verdict.wrong)} wrong")
        for sentence in verdict.wrong:
            self.fail(sentence)
        return verdict

    def _end_well(self) -> None:
        """With nothing going wrong any more, what was interrupted is finished, and the table is right and can be compacted."""
        for name in NEVES:
            self.stage.wait_until_ready(name)
        self._until("no run is unfinished", lambda: not self._resume_all())
        self._until("a compaction succeeds", lambda: self._final("compact") in ("done", "nothing-to-do"))
        for operation in ("expire", "settle", "purge"):
            self._final(operation)
        self.check()
        rows = [Row(*found) for found in self.stage.ask("spark", {"do": "rows"})]
        for sentence in compare(self.log.expected, rows).wrong:
            self.fail(f"as Spark reads it: {sentence}")

    def _resume_all(self) -> list[str]:
        for name in NEVES:
            self.order(name, {"do": "resume"})
        left: list[str] = self.stage.ask(NEVES[0], {"do": "unfinished"})
        return left

    def _final(self, operation: str) -> Any:
        order = {"do": operation} | ({"kernel": None, "tier": "full"} if operation == "compact" else {})
        return self.order(NEVES[0], order).get("outcome")

    def _until(self, wanted: str, done: Callable[[], bool]) -> None:
        end = time.monotonic() + SETTLE_SECONDS
        while not self._failed.is_set():
            if done():
                return
            if time.monotonic() > end:
                self.fail(f"{SETTLE_SECONDS:g} s after the last fault it does not hold yet that {wanted}")
                return
            self._failed.wait(2)


@contextmanager
def servers_of_the_session() -> Iterator[Servers]:
    """The servers of a running stack, or new ones for as long as this lasts."""
    from stack.session import Session

    with closing(Session()) as session:
        yield Servers(session.server("rest"), session.server("s3"), session.server("postgres"))
