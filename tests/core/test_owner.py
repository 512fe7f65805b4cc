"""Which process owns a run, and when it counts as gone: never where anything is unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from neve.commit.owner import ABSENT, Owner, shown

HERE = Owner("h", 7, boot="b1", namespaces="pid:[1],time:[2]", started="100", nonce="n7")
THEIRS = replace(HERE, pid=8, started="90", nonce="n8")


def test_the_text_of_an_owner_is_read_back_and_messages_show_host_and_pid() -> None:
    assert HERE.text == "h:7;boot=b1;ns=pid:[1],time:[2];start=100;id=n7"
    assert Owner.parse(HERE.text) == HERE
    assert (HERE.shown, shown(HERE.text)) == ("h:7", "h:7")


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("host:12", Owner("host", 12)),
        ("", Owner("", None)),
        ("somebody", Owner("somebody", None)),
        ("a:b:12", Owner("a:b", 12)),
        ("host:1\u00b2", Owner("host:1\u00b2", None)),
        ("host:12;junk;boot=x", Owner("host", 12, boot="x")),
    ],
)
def test_texts_of_older_releases_and_unknown_ones_are_read_as_far_as_they_go(text: str, owner: Owner) -> None:
    assert Owner.parse(text) == owner
    assert not owner.is_certainly_gone(HERE, lambda _: ABSENT)


@pytest.mark.parametrize(
    ("owner", "now", "gone"),
    [
        (THEIRS, ABSENT, True),
        (THEIRS, "90", False),  # it runs
        (THEIRS, "95", True),  # another process has its id now
        (THEIRS, None, False),  # there is a process, and nobody can tell since when
        (replace(THEIRS, started=None), "95", False),
        (replace(THEIRS, started=None), ABSENT, True),
        (replace(THEIRS, host="other"), ABSENT, False),
        (replace(THEIRS, boot="b2"), ABSENT, False),  # another machine of that name; or ours before it was restarted
        (replace(THEIRS, boot=None), ABSENT, False),
        (replace(THEIRS, namespaces="pid:[9],time:[2]"), ABSENT, False),  # a container with our host name
        (replace(THEIRS, namespaces=None), ABSENT, False),
        (replace(THEIRS, pid=None), ABSENT, False),
    ],
)
def test_a_process_is_gone_only_if_its_id_means_the_same_here_and_is_free_or_anothers(
    owner: Owner, now: str | None, gone: bool
) -> None:
    assert owner.is_certainly_gone(HERE, lambda _: now) is gone


@pytest.mark.parametrize("name", ["boot", "namespaces"])
def test_two_unknown_facts_are_not_the_same_fact(name: str) -> None:
    unknown: dict[str, Any] = {name: None}
    theirs, here = replace(THEIRS, **unknown), replace(HERE, **unknown)
    assert not theirs.is_certainly_gone(here, lambda _: ABSENT)


def test_only_the_random_number_tells_that_two_are_one_process() -> None:
    assert HERE.is_same_process(replace(HERE, host="renamed"))
    assert not HERE.is_same_process(replace(HERE, nonce="other"))
    assert not replace(HERE, nonce=None).is_same_process(replace(HERE, nonce=None))
