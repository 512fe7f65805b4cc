"""Schedules: the same seed gives the same history, and every kind of fault is in every history of two minutes."""

from __future__ import annotations

from itertools import islice, pairwise

from tests.histories.schedule import (
    CLIENTS,
    LEASE_SECONDS,
    NEVES,
    ORPHAN_AGE_SECONDS,
    SCENE_SECONDS,
    SKEW_SECONDS,
    WRITES,
    Event,
    Scene,
    draw,
    neve_orders,
    writes,
)

STAGES = ("begun", "executed", "written", "sending", "sent")
SEEDS = range(200)
FAULTS = {"kill", "start", "pause", "continue", "lose-answer", "hold-commit", "skew", "backup", "restore", "scene"}


def test_the_same_seed_gives_the_same_history() -> None:
    assert draw(7, 2) == draw(7, 2)
    assert draw(7, 2) != draw(8, 2)
    for neve in NEVES:
        assert list(islice(neve_orders(7, neve), 50)) == list(islice(neve_orders(7, neve), 50))
    for writer in WRITES:
        drawn = [[(kind, random.random()) for kind, random in islice(writes(7, writer), 50)] for _ in range(2)]
        assert drawn[0] == drawn[1]
    assert list(islice(neve_orders(7, "neve-a"), 50)) != list(islice(neve_orders(7, "neve-b"), 50))


def test_a_schedule_can_be_printed() -> None:
    first = Event(3.5, "kill", "neve-a", 1.25)
    assert str(first) == "     3.5 s  kill neve-a 1.25"
    scene = Scene("restore", "neve-a", "neve-b", "begun", "roll-back", ref="tag", resumes="neve-b", kernel="copy")
    assert str(Event(12, "scene", scene=scene)) == "    12.0 s  scene restore neve-a begun roll-back tag neve-b resumes copy"


def test_every_fault_is_in_two_minutes() -> None:
    for seed in SEEDS:
        events = draw(seed, 2)
        assert {event.what for event in events} == FAULTS
        assert [event.at for event in events] == sorted(event.at for event in events)
        assert all(0 < event.at < 120 for event in events)
        assert {event.target for event in events} <= {"", *CLIENTS}


def test_a_lost_answer_a_held_commit_and_a_skewed_clock_come_before_the_first_scene() -> None:
    for seed in SEEDS:
        whats = [event.what for event in draw(seed, 2)]
        assert {"lose-answer", "hold-commit", "skew"} <= set(whats[: whats.index("scene")])


def test_two_minutes_begin_with_a_take_over_and_a_restore_and_have_time_for_more() -> None:
    for seed in SEEDS:
        events = [event for event in draw(seed, 2) if event.what == "scene"]
        kinds = [event.scene.kind for event in events if event.scene]
        assert set(kinds[:2]) == {"take-over", "restore"}
        assert len(kinds) >= 5
        assert events[-1].at <= 120 - SCENE_SECONDS


def test_scenes_of_many_seeds_meet_at_every_stage_in_every_way() -> None:
    scenes = [event.scene for seed in SEEDS for event in draw(seed, 2) if event.scene]
    take_overs = {(scene.stage, scene.how) for scene in scenes if scene.kind == "take-over"}
    assert take_overs == {(stage, how) for stage in STAGES for how in ("hold", "pause", "kill")}
    restores = {(scene.how, scene.ref, scene.resumes == scene.first) for scene in scenes if scene.kind == "restore"}
    refs = ("", "tag", "branch")
    assert restores == {(how, ref, own) for how in ("roll-back", "compact") for ref in refs for own in (True, False)}
    assert {(scene.first, scene.second) for scene in scenes} == {NEVES, NEVES[::-1]}


def test_only_the_chosen_kinds_of_scenes_are_drawn() -> None:
    kinds = {event.scene.kind for event in draw(1, 10, ["restore"]) if event.scene}
    assert kinds == {"restore"}


def test_a_process_is_never_killed_or_paused_while_it_is_down_or_paused() -> None:
    for seed in SEEDS:
        for neve in NEVES:
            mine = [
                event
                for event in draw(seed, 10)
                if event.target == neve and event.what in FAULTS - {"skew", "lose-answer", "hold-commit"}
            ]
            for event, after in pairwise(mine):
                wanted = {"kill": "start", "pause": "continue"}.get(event.what)
                assert wanted in (None, after.what), (event, after)


def test_pauses_and_skews_outlast_a_lease() -> None:
    for seed in SEEDS:
        events = draw(seed, 10)
        ends = {(event.target, event.at): event for event in events if event.what == "continue"}
        for event in events:
            if event.what == "pause":
                after = [at for target, at in ends if target == event.target and at > event.at]
                assert not after or min(after) - event.at > LEASE_SECONDS
        assert max(SKEW_SECONDS) > LEASE_SECONDS
        assert min(SKEW_SECONDS) < -LEASE_SECONDS


def test_no_skew_makes_the_file_of_a_running_writer_old() -> None:
    assert max(SKEW_SECONDS) * 2 < ORPHAN_AGE_SECONDS
