"""What happens in a history and when, drawn from a seed. Pure: the same seed gives the same schedule and the same orders.

Processes run in real time, so a replay repeats the schedule, not every interleaving.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.histories.stages import BEGUN, EXECUTED, SENDING, SENT, WRITTEN

NEVES = ("neve-a", "neve-b")
CLIENTS = (*NEVES, "spark", "cdc", "updater")

LEASE_SECONDS = 6.0
PAUSE_SECONDS = (LEASE_SECONDS + 2, LEASE_SECONDS + 10)
HOLD_SECONDS = (LEASE_SECONDS + 2, LEASE_SECONDS + 6, LEASE_SECONDS + 10)
"""How long a commit is under way to the catalog."""
SKEW_SECONDS = (-20, -8, 0, 8, 20)
"""Further off than a lease lasts."""
SNAPSHOT_KEEP_SECONDS = 25
ORPHAN_AGE_SECONDS = 90
"""More than the skew and any commit of a writer together: otherwise the loss would be the fault of the settings."""
GRACE_SECONDS = 20
TRASH_KEEP_SECONDS = 40
CHECK_SECONDS = 15.0
SCENES = ("take-over", "restore", "remove")
FIRST_SECONDS = (0.2, 1.5)
"""When the first lost answer, held commit and skewed clock come: before any scene, so that a slow machine has them as well."""
SCENE_SECONDS = 25.0
"""How long a scene may take; none begins later than so long before the end."""


@dataclass(frozen=True, order=True)
class Scene:
    """Two Neves meet at a chosen point of one run; `tests.histories.scenes` plays it.

    `first` stops at `stage`. In a `take-over` it waits there, is paused past its lease or is killed (`how`), and `second`
    resumes its run; if they `meet`, `second` stops before its own commit until `first` has ended. In a `restore` the state
    store is backed up at `stage` and restored once the run has committed, its snapshot got a `ref`, and the head moved away
    from it (`how`); then `resumes` resumes the run. In a `remove`, files of such a run are on their way to the trash meanwhile.
    """

    kind: str
    first: str
    second: str
    stage: str
    how: str
    meet: bool = False
    patience: float = 0
    ref: str = ""
    resumes: str = ""
    kernel: str | None = None

    def __str__(self) -> str:
        more = (self.ref, self.resumes and f"{self.resumes} resumes", "meeting" if self.meet else "", self.kernel or "")
        return " ".join(filter(None, (self.kind, self.first, self.stage, self.how, *more)))


@dataclass(frozen=True)
class Event:
    """Something that happens to a process, a connection, a clock or the state store, from this second on."""

    at: float
    what: str
    target: str = ""
    value: float = 0
    scene: Scene | None = None

    def __str__(self) -> str:
        value = f" {self.value:g}" if self.value else ""
        return f"{self.at:8.1f} s  {self.what} {self.scene or self.target}{value}".rstrip()


def draw(seed: int, minutes: float, scenes: Sequence[str] = SCENES) -> tuple[Event, ...]:
    """The events of a history of so many minutes, in order; `scenes` are the kinds of scenes that may be in it."""
    random, end = Random(seed), minutes * 60
    first = random.sample(("kill", "pause"), 2)
    events = [
        *(event for neve, how in zip(NEVES, first, strict=True) for event in _disturbances(random, neve, how, end)),
        *_repeated(random, "lose-answer", (5, 12), end, CLIENTS),
        *_repeated(random, "hold-commit", (10, 25), end, NEVES, HOLD_SECONDS),
        *_repeated(random, "skew", (12, 25), end, NEVES, SKEW_SECONDS),
        *_state_store(random, end),
        *_scenes(Random(f"{seed} scenes"), end, scenes),
    ]
    return tuple(sorted((event for event in events if event.at < end), key=lambda event: (event.at, event.what, event.target)))


def _disturbances(random: Random, neve: str, first: str, end: float) -> Iterator[Event]:
    """Kills and pauses of one process: never one during the other, and time to work in between. The value is how many seconds
    after the beginning of its work it is hit."""
    at, what = random.uniform(6, 20), first
    while at < end:
        lasts = random.uniform(1, 5) if what == "kill" else random.uniform(*PAUSE_SECONDS)
        yield Event(round(at, 1), what, neve, round(random.uniform(0, 2), 2))
        yield Event(round(at + lasts, 1), "start" if what == "kill" else "continue", neve)
        # The process that replaces a killed one needs a while until the next is ready.
        at += lasts + (random.uniform(30, 50) if what == "kill" else random.uniform(20, 35))
        what = random.choice(("kill", "pause", "pause"))


def _repeated(
    random: Random,
    what: str,
    every: tuple[float, float],
    end: float,
    targets: tuple[str, ...],
    values: tuple[float, ...] = (0,),
) -> Iterator[Event]:
    at = random.uniform(*FIRST_SECONDS)
    while at < end:
        yield Event(round(at, 1), what, random.choice(targets), random.choice(values))
        at += random.uniform(*every)


def _state_store(random: Random, end: float) -> Iterator[Event]:
    """Backups, and restores of the backup before the newest."""
    at = random.uniform(8, 15)
    while at < end:
        yield Event(round(at, 1), "backup")
        restored = at + random.uniform(18, 35)
        if restored < end:
            yield Event(round(restored, 1), "restore")
        at += random.uniform(40, 60)


def _scenes(random: Random, end: float, kinds: Sequence[str]) -> Iterator[Event]:
    """Rounds of scenes, as long as there is time for another one."""
    at, waiting = random.uniform(2, 5), list[Scene]()
    while at < end - SCENE_SECONDS:
        waiting = waiting or [scene for scene in _round(random) if scene.kind in kinds]
        yield Event(round(at, 1), "scene", scene=waiting.pop(0))
        at += random.uniform(14, 22)


def _round(random: Random) -> list[Scene]:
    """Take-overs in turn with other scenes, so that the first two of a history are one of each."""

    def scene(kind: str, stages: Sequence[str], how: Sequence[str], *, meet: bool = False, **more: Any) -> Scene:
        first, second = random.sample(NEVES, 2)
        resumes = first if random.random() < 0.7 else second  # only the process itself knows that it has ended
        return Scene(
            kind,
            first,
            second,
            random.choice(stages),
            random.choice(how),
            meet=meet,
            patience=random.choice((0, LEASE_SECONDS + 2)),
            ref=random.choice(("", "tag", "branch")) if kind == "restore" else "",
            resumes=resumes if kind == "restore" else "",
            kernel=random.choice((None, "arrow", "copy", "spark")),
            **more,
        )

    take_overs = [
        scene("take-over", (WRITTEN,), ("hold", "pause")),
        scene("take-over", (EXECUTED,), ("hold", "pause"), meet=True),
        scene("take-over", (WRITTEN,), ("pause",), meet=True),
        scene("take-over", (BEGUN, EXECUTED, WRITTEN, SENDING, SENT), ("hold", "pause", "kill"), meet=random.random() < 0.5),
    ]
    random.shuffle(take_overs)
    others = [
        scene("restore", (BEGUN, EXECUTED), ("roll-back", "compact")),
        *random.sample(
            (
                scene("restore", (BEGUN, EXECUTED), ("roll-back", "compact")),
                scene("restore", (WRITTEN, SENDING), ("roll-back", "compact")),
                scene("remove", (WRITTEN,), ("pause",)),
            ),
            3,
        ),
    ]
    pairs = zip(take_overs, others, strict=True)
    return [one for pair in pairs for one in random.sample(pair, 2)]


def neve_orders(seed: int, host: str) -> Iterator[dict[str, Any]]:
    """What one Neve does, one order after another."""
    random = Random(f"{seed} {host}")
    kinds = ("compact", "resume", "deletes", "expire", "orphans", "settle", "purge", "maintain", "manifests")
    weights = (40, 22, 8, 9, 6, 6, 3, 3, 3)
    while True:
        kind = random.choices(kinds, weights)[0]
        order: dict[str, Any] = {"do": kind}
        if kind == "compact":
            order |= {"kernel": random.choice((None, "arrow", "copy", "spark")), "tier": random.choice((None, "major", "full"))}
        elif kind == "deletes":
            order |= {"operation": random.choice(("convert", "rewrite", "prune"))}
        yield order


WRITES: dict[str, dict[str, int]] = {
    "spark": {"insert": 6, "update": 2, "delete": 2},
    "cdc": {"upsert": 6, "delete-equal": 1, "merge": 3},
    "updater": {"insert": 3, "overwrite": 5, "delete": 2, "tag": 1, "untag": 1, "branch": 1},
}
"""How often a writer does what. `spark` is copy-on-write, `cdc` has equality deletes and merge-on-read."""


def writes(seed: int, writer: str) -> Iterator[tuple[str, Random]]:
    """What a writer does, one change after another, with the chance for its keys."""
    random = Random(f"{seed} {writer}")
    kinds = WRITES[writer]
    while True:
        yield random.choices(list(kinds), list(kinds.values()))[0], Random(random.random())
