"""Which tables are read next."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from neve.scheduling.rotation import MAX_WEIGHT, Turn, rotation, weight_of
from tests.builders.scheduling import DAY, HOUR, MINUTE, NOW, observation


def test_the_table_that_waited_longest_is_first() -> None:
    turns = [Turn("a", NOW - 5), Turn("b", NOW - 7), Turn("c", NOW - 6)]
    assert rotation(turns, NOW, 2) == ["b", "c"]
    assert rotation(turns, NOW, 0) == []


def test_a_table_that_never_had_a_turn_goes_before_all_and_a_heavy_one_sooner() -> None:
    turns = [Turn("a", NOW - 100), Turn("b", None), Turn("c", NOW - 60, weight=2)]
    assert rotation(turns, NOW, 3) == ["b", "c", "a"]


def test_a_turn_in_the_future_says_nothing() -> None:
    assert rotation([Turn("a", NOW - DAY), Turn("b", NOW + DAY)], NOW, 1) == ["b"]


def test_urgent_tables_get_at_most_half_unless_others_leave_theirs() -> None:
    urgent = [Turn(f"u{n}", NOW - 1, urgent=True) for n in range(6)]
    others = [Turn(f"o{n}", NOW - 9) for n in range(6)]
    assert [name[0] for name in rotation([*urgent, *others], NOW, 4)] == ["u", "u", "o", "o"]
    assert [name[0] for name in rotation([*urgent, *others[:1]], NOW, 4)] == ["u", "u", "u", "o"]
    assert [name[0] for name in rotation([*urgent[:1], *others], NOW, 4)] == ["u", "o", "o", "o"]


def test_tables_that_were_written_lately_are_read_more_often() -> None:
    ages = (MINUTE, 2 * HOUR, 2 * DAY)
    assert [weight_of(observation(observed_ms=NOW, last_write_ms=NOW - age)) for age in ages] == [4, 2, 1]
    assert weight_of(observation()) == 1


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, MAX_WEIGHT), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 10),
    st.integers(1, 10 * MINUTE),
)
def test_each_table_gets_a_turn_within_the_stated_number_of_rounds(
    tables: list[tuple[int, bool]], limit: int, round_ms: int
) -> None:
    last = dict.fromkeys(range(len(tables)), 0)
    longest = dict.fromkeys(last, 0)
    bound = 2 * MAX_WEIGHT * len(tables) // limit + 2 * MAX_WEIGHT + 1
    for number in range(1, 4 * bound):
        now = NOW + number * round_ms
        turns = [
            Turn(str(i), NOW + last[i] * round_ms, weight, urgent=urgent and number % 2 == 0)
            for i, (weight, urgent) in enumerate(tables)
        ]
        chosen = {int(name) for name in rotation(turns, now, limit)}
        assert len(chosen) == min(limit, len(tables))
        for i in last:
            longest[i] = max(longest[i], number - last[i])
            last[i] = number if i in chosen else last[i]
    assert max(longest.values()) <= bound
