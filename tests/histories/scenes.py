"""Plays scenes: lets two Neves meet at chosen points of one run, where chance alone would hardly bring them.

Called by `History` between its other events. No Neve does anything else during a scene; writers go on, unless a step needs the
head to stay. Every scene ends with a check of the table. Beside what the checker finds, two rules must hold:

- a run whose process gives signs of life is not taken over;
- a process whose run was taken over commits nothing of it, unless every check was done before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from random import Random
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from tests.histories import stages
from tests.histories.actors import ActorDiedError
from tests.histories.schedule import LEASE_SECONDS, NEVES, Scene
from tests.histories.writers import write

if TYPE_CHECKING:
    from tests.histories.history import History

_PATIENCE = LEASE_SECONDS * 2 + 4
"""How long a resume is tried after a process was paused or killed: its heartbeat must end, and its marker later."""
_RUN_ID = "neve.run-id"
_CHECKED = (stages.SENDING, stages.SENT)
"""Stages after the last check before a commit."""


class Scenes:
    """Plays one scene at a time."""

    def __init__(self, history: History, turns: Mapping[str, Lock], over: Event) -> None:
        self._history, self._turns, self._over = history, turns, over
        self._stage, self._fail = history.stage, history.fail
        self._random = Random(f"{history.seed} scenes")
        self._number = 0

    def play(self, scene: Scene) -> bool:
        """Whether it came to what the scene is about; it may not, as when the table needs no compaction at that moment."""
        self._number += 1
        for name in NEVES:  # a paused process would never end its turn
            self._stage.go_on(name)
            self._stage.start_again(name)
        with self._alone(*NEVES):
            for name in NEVES:
                self._stage.make_ready(name)
            with ThreadPoolExecutor(len(NEVES)) as self._threads:
                try:
                    kinds = {"take-over": self._take_over, "restore": self._restore, "remove": self._remove}
                    return kinds[scene.kind](scene)
                finally:
                    for name in NEVES:
                        self._stage.unbar(name)
                        self._stage.make_ready(name)

    # Scenes

    def _take_over(self, scene: Scene) -> bool:
        first, second = scene.first, scene.second
        work, run = self._stopped(first, self._compaction(scene), scene.stage)
        if run is None:
            return False
        if scene.how == "kill":
            self._stage.kill(first)
        elif scene.how == "pause":
            self._stage.pause(first)
        stops = [stages.EXECUTING, stages.SENDING] if scene.meet else []
        other, met = self._resume(second, run, scene.patience if scene.how == "hold" else _PATIENCE, stops)
        before = self._snapshots_of(run)
        self._continue(first)
        silence = _answer(work).get("silence", 0.0)
        if met and scene.how != "kill" and scene.stage not in _CHECKED and (new := self._snapshots_of(run) - before):
            self._fail(f"{first} committed snapshot {min(new)} of run {run} after {second} had taken the run over")
        self._continue(second)
        taken = met or "outcome" in _of_run(_answer(other), run)
        if taken and scene.how == "hold" and silence < LEASE_SECONDS:
            self._fail(
                f"{second} took run {run} over from {first}, which was at work on it at {scene.stage}: its signs of "
                f"life were never more than {silence:g} s apart, and a lease lasts {LEASE_SECONDS:g} s"
            )
        return taken or scene.how == "hold"

    def _restore(self, scene: Scene) -> bool:
        """The restored journal is older than the run's commit, and the run's files are not in the head any more."""
        with self._alone(*(("spark", "cdc", "updater") if scene.how == "roll-back" else ())):
            run = self._committed(scene)
            if run is None:
                return False
            if scene.ref:
                self._write("updater", scene.ref, name=f"{scene.ref}-of-scene-{self._number}")
            if scene.how == "roll-back":
                self._history.order(scene.second, {"do": "roll-back", "run": run})
            else:
                self._write("spark", "insert")
                self._history.order(scene.second, self._compaction(scene))
            self._restore_store()
        work, _ = self._resume(scene.resumes, run, _PATIENCE)
        if self._history.check().wrong:
            return True
        self._history.order(scene.resumes, {"do": "settle", "at_once": True})
        return "outcome" in _of_run(_answer(work), run)

    def _remove(self, scene: Scene) -> bool:
        """Files of a run that was undone are about to go to the trash while a restored journal has them as written."""
        first = scene.first
        with self._alone("spark", "cdc", "updater"):
            run = self._committed(scene)
            if run is None:
                return False
            undone = sorted(self._snapshots_of(run))
            self._history.order(first, {"do": "roll-back", "run": run})
            self._history.order(first, {"do": "expire", "snapshot_ids": undone})
        work, stopped = self._stopped(first, {"do": "settle", "at_once": True}, stages.REMOVING)
        if stopped is None:
            return False
        self._stage.pause(first)
        self._restore_store()
        other, _ = self._resume(scene.second, run, _PATIENCE)
        with self._history.checking:  # what is moved away now is missing until the process has looked again
            self._continue(first)
            _answer(work)
        return "outcome" in _of_run(_answer(other), run)

    # Steps

    def _compaction(self, scene: Scene) -> dict[str, Any]:
        return {"do": "compact", "kernel": scene.kernel, "tier": "full"}

    def _committed(self, scene: Scene) -> str | None:
        """A compaction, with a backup of the state store at the scene's stage; None if nothing was committed."""
        work, run = self._stopped(scene.first, self._compaction(scene), scene.stage)
        if run is None:
            return None
        self._note(f"backup {self._stage.store.back_up()}")
        self._continue(scene.first)
        return run if _answer(work).get("groups", {}).get("committed") and self._snapshots_of(run) else None

    def _stopped(self, name: str, order: dict[str, Any], *where: str) -> tuple[Future[Any], str | None]:
        """An order that has stopped at one of these stages, and its run; no run if it ended before."""
        self._stage.bar(name)
        work = self._threads.submit(self._history.order, name, {**order, "stop": list(where)})
        found = self._stage.reached(name, work)
        if found is None:
            return work, None
        self._note(f"{name} is at stage {found['reached']} {found['run'][:8]}")
        return work, found["run"][:8]

    def _resume(self, name: str, run: str, patience: float, stops: list[str] | None = None) -> tuple[Future[Any], bool]:
        """A resume of the run, tried again while the run is held; and whether it has stopped at one of the stages."""
        end = time.monotonic() + patience
        while True:
            work, stopped = self._stopped(name, {"do": "resume", "run": run}, *(stops or ()))
            if stopped is not None:
                return work, True
            held = _of_run(_answer(work), run).get("error") == "LeaseHeldError"
            if not held or time.monotonic() > end or self._over.wait(1.5):
                return work, False

    def _continue(self, name: str) -> None:
        self._stage.unbar(name)
        self._stage.go_on(name, at_least=0)

    def _restore_store(self) -> None:
        self._note(f"restored backup {self._stage.store.restore()}")

    def _write(self, writer: str, kind: str, name: str | None = None) -> None:
        line = write(self._history.log, self._stage.asker(writer), writer, kind, self._random, name=name)
        self._note(f"{writer}: {line}")

    def _snapshots_of(self, run: str) -> set[int]:
        """Snapshots of a run that are in the table's metadata now."""
        snapshots = self._stage.reload()[0].snapshots
        summaries = {one.snapshot_id: one.summary.additional_properties if one.summary else {} for one in snapshots}
        return {found for found, summary in summaries.items() if summary.get(_RUN_ID, "").startswith(run)}

    def _note(self, line: str) -> None:
        self._history.note("scene", line)

    @contextmanager
    def _alone(self, *names: str) -> Iterator[None]:
        """Nobody of these does anything by themselves meanwhile."""
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(self._turns[name])
            yield


def _answer(work: Future[Any]) -> dict[str, Any]:
    """What an order answered; nothing if its process was killed."""
    try:
        return dict(work.result())
    except ActorDiedError:
        return {}


def _of_run(answer: Mapping[str, Any], run: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (answer.get("runs") or {}).get(run, {})
    return found
