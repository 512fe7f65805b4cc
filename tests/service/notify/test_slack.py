"""Messages as Slack blocks: within Slack's limits, and without mentions or links of others."""

from __future__ import annotations

from typing import Any

import pytest

from neve.service.notify.messages import Message, MessagePart
from neve.service.notify.slack import MAX_BLOCKS, MAX_HEADER, MAX_TEXT, escaped, slack_payload


def message(*lines: str, subject: str = "[Neve] s", title: str = "", level: Any = "problem") -> Message:
    return Message(subject=subject, level=level, parts=(MessagePart(title=title, lines=lines),))


def texts(payload: dict[str, Any]) -> list[str]:
    return [block["text"]["text"] for block in payload["blocks"] if block["type"] == "section"]


def test_a_message_has_a_header_and_a_section_with_its_lines() -> None:
    payload = slack_payload(message("one", "two `neve runs`", title="Done"))
    assert payload["text"] == "[Neve] s"
    assert payload["blocks"][0] == {"type": "header", "text": {"type": "plain_text", "text": "[Neve] s", "emoji": False}}
    assert texts(payload) == [":red_circle: *Done*\none\ntwo `neve runs`"]


@pytest.mark.parametrize(("level", "sign"), [("good", ":large_green_circle:"), ("info", ":information_source:")])
def test_each_level_has_its_sign(level: str, sign: str) -> None:
    assert texts(slack_payload(message("x", level=level))) == [f"{sign} x"]


def test_nobody_is_mentioned_and_nothing_is_linked() -> None:
    payload = slack_payload(message("<!channel> <@U123> <https://evil.test|ok> @here #general", subject="<!here> &"))
    assert texts(payload) == [":red_circle: &lt;!channel&gt; &lt;@U123&gt; &lt;https://evil.test|ok&gt; @here #general"]
    assert payload["text"] == "&lt;!here&gt; &amp;"
    assert (payload["parse"], payload["link_names"], payload["unfurl_links"], payload["unfurl_media"]) == (
        "none",
        False,
        False,
        False,
    )
    assert all(block["text"]["verbatim"] for block in payload["blocks"][1:])


@pytest.mark.parametrize("character", ["x", "&", "<", "ü", "😀"])
def test_long_texts_stay_within_the_limits(character: str) -> None:
    line = character * 599
    payload = slack_payload(
        Message(subject=character * 400, level="info", parts=(MessagePart(title=character * 5000, lines=(line,) * 500),) * 3)
    )
    assert len(payload["blocks"]) == MAX_BLOCKS
    assert len(payload["blocks"][0]["text"]["text"]) <= MAX_HEADER
    assert all(0 < len(text) <= MAX_TEXT for text in texts(payload))


@pytest.mark.parametrize("start", range(8))
def test_a_cut_never_leaves_half_an_escape(start: int) -> None:
    (text,) = texts(slack_payload(message("x" * start + "&" * 2000)))
    body = text.removeprefix(":red_circle: ").removesuffix("…")
    assert body == "x" * start + escaped("&") * body.count("&")


def test_lines_are_packed_in_order_and_none_is_lost() -> None:
    lines = [f"{number} {'y' * 500}" for number in range(30)]
    found = "\n".join(texts(slack_payload(message(*lines)))).removeprefix(":red_circle: ")
    assert found.split("\n") == lines


@pytest.mark.parametrize("length", [2899, 2900, 2901, 5000])
def test_no_section_is_empty_as_slack_refuses_those(length: int) -> None:
    part = MessagePart(lines=("x" * length,))
    found = texts(slack_payload(Message(subject="s", level="info", parts=(part, part))))
    assert [text.removeprefix(":information_source: ")[:1] for text in found] == ["x", "x"]


def test_a_message_without_parts_still_has_a_section() -> None:
    assert texts(slack_payload(Message(subject="s", level="info", parts=()))) == [":information_source:"]
