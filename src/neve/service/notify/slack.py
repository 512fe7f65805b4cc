"""Messages as Slack blocks. Everything is escaped, and Slack is asked to make no links and no mentions of plain text. Pure."""

from __future__ import annotations

from typing import Any

from neve.service.notify.messages import Message

MAX_HEADER = 150
MAX_TEXT = 3000
MAX_BLOCKS = 50
_SIGNS = {"problem": ":red_circle:", "good": ":large_green_circle:", "info": ":information_source:"}


def slack_payload(message: Message) -> dict[str, Any]:
    """What an incoming webhook of Slack takes."""
    header = {"type": "header", "text": {"type": "plain_text", "text": _cut(message.subject, MAX_HEADER), "emoji": False}}
    sections = [_section(text) for text in _texts(message)]
    return {
        "text": escaped(message.subject),
        "blocks": [header, *sections[: MAX_BLOCKS - 1]],
        "parse": "none",
        "link_names": False,
        "unfurl_links": False,
        "unfurl_media": False,
    }


def escaped(text: str) -> str:
    """Text in which Slack finds no mention and no link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _texts(message: Message) -> list[str]:
    texts, sign = list[str](), _SIGNS[message.level]
    for part in message.parts:
        lines = [f"*{escaped(part.title)}*"] if part.title else []
        lines += map(escaped, part.lines)
        texts += _packed(lines)
    return [f"{sign} {texts[0]}", *texts[1:]] if texts else [sign]


def _packed(lines: list[str]) -> list[str]:
    """The lines in as few texts as Slack's bound allows."""
    packed = [""]
    for line in lines:
        short = _cut(line, MAX_TEXT - 100)
        if packed[-1] and len(packed[-1]) + len(short) + 1 > MAX_TEXT - 100:
            packed.append("")
        packed[-1] += f"\n{short}" if packed[-1] else short
    return packed


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    # Not in the middle of an escape such as &amp;
    kept = text[: most - 1]
    start = kept.rfind("&", len(kept) - 5)
    return (kept[:start] if start >= 0 and ";" not in kept[start:] else kept) + "…"
