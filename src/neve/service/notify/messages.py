"""Notices as messages in plain English. Pure; renderers of each channel take it from here.

A line is plain text on one line, with commands in backquotes. Names and reasons come from tables and engines: control
characters are made visible, long texts are cut.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Literal

from neve.render.phrases import moment, printable
from neve.scheduling.notice import DayDigest, JobFailure, NoticeContent, NoticeKind, TableLine, TablePause, TableRecovery
from neve.table.frozen import Frozen
from neve.table.units import counted, format_bytes, format_seconds

MAX_LINE = 600
MAX_SUBJECT = 140
LISTED = 20
"""Tables that a message lists one by one."""


class MessagePart(Frozen):
    """A few lines, with a title or without."""

    title: str = ""
    lines: tuple[str, ...]


class Message(Frozen):
    """What is sent, for every channel."""

    subject: str
    level: Literal["problem", "good", "info"]
    parts: tuple[MessagePart, ...]


def message_about(content: NoticeContent) -> Message:
    """The message about one notice."""
    if isinstance(content, JobFailure):
        return failure_message(content)
    if isinstance(content, TablePause):
        return pause_message(content)
    if isinstance(content, TableRecovery):
        return recovery_message(content)
    return digest_message(content)


def failure_message(failure: JobFailure) -> Message:
    """What failed, why, when it is tried again, and what to run."""
    again = "Neve tries it again" + (f" after {moment(failure.next_ms)}." if failure.next_ms else " when it is due.")
    return _message(
        f"{failure.operation} failed on {failure.table}",
        "problem",
        f"{failure.operation} failed on {failure.table} at {moment(failure.at_ms)}{_by(failure.policy)}.",
        f"Reason: {failure.reason}",
        _in_a_row(failure.failures),
        again,
        _next(failure),
    )


def pause_message(pause: TablePause) -> Message:
    """What is paused, for how long, why, and how to end it."""
    length = format_seconds(max(0, pause.until_ms - pause.at_ms) / 1000)
    unpause = f"To end it earlier: `neve jobs unpause {_argument(pause.table)} {_argument(pause.operation)}`"
    return _message(
        f"{pause.operation} is paused on {pause.table} for {length}",
        "problem",
        f"{pause.operation} failed {counted(pause.failures, 'time')} in a row on {pause.table}{_by(pause.policy)}.",
        f"It is paused until {moment(pause.until_ms)} ({length}).",
        f"Last reason: {pause.reason}",
        "The pause ends by itself. Then Neve tries once more.",
        _with_command("To end it earlier:", pause.command) or unpause,
        _inspect(pause.table, pause.run_id),
    )


def recovery_message(recovery: TableRecovery) -> Message:
    """What works again."""
    paused = " The pause is over." if recovery.was_paused else ""
    return _message(
        f"{recovery.operation} works again on {recovery.table}",
        "good",
        f"{recovery.operation} succeeded on {recovery.table} at {moment(recovery.at_ms)}{_by(recovery.policy)}, "
        f"after {counted(recovery.failures, 'failure')}.{paused}",
    )


def digest_message(digest: DayDigest) -> Message:
    """What was done, gained and spent in a day, what failed, what is paused, and what comes next."""
    title = f"Maintenance digest of {digest.day}" + (f" for {digest.owner}" if digest.owner else "")
    runs = sum(total.runs for total in digest.done)
    head = f"{counted(runs, 'run')}, {digest.failed_count:,} failed, {digest.paused_count:,} paused"
    parts = [
        ("", [f"{moment(digest.from_ms)} to {moment(digest.until_ms)}"]),
        ("Done", _done(digest)),
        ("Gained", _gained(digest)),
        ("Spent", _spent(digest)),
        (f"Failed ({digest.failed_count:,})", _lines(digest.failed, digest.failed_count, _failed)),
        (f"Paused ({digest.paused_count:,})", _lines(digest.paused, digest.paused_count, _paused)),
        (f"Next ({digest.waiting_count:,} waiting)", _lines(digest.waiting, digest.waiting_count, _waiting)),
    ]
    return Message(
        subject=_subject(f"{title}: {head}"),
        level="problem" if digest.failed_count or digest.paused_count else "info",
        parts=tuple(MessagePart(title=title, lines=tuple(map(_line, lines))) for title, lines in parts if lines),
    )


def summary_message(contents: Sequence[JobFailure | TablePause | TableRecovery]) -> Message:
    """Many notices of one kind as one message, which lists the first of them."""
    first = contents[0]
    tables = counted(len({content.table for content in contents}), "table")
    verb = {JobFailure: "failed", TablePause: "is paused", TableRecovery: "works again"}[type(first)]
    listed = [_line(_row(content), most=300) for content in contents[:LISTED]]
    more = len(contents) - len(listed)
    return Message(
        subject=_subject(f"Maintenance {verb} on {tables}"),
        level="good" if isinstance(first, TableRecovery) else "problem",
        parts=(
            MessagePart(lines=(*listed, *([f"and {more:,} more"] if more else []))),
            *([] if isinstance(first, TableRecovery) else [MessagePart(lines=("Next: `neve jobs list --state failed`",))]),
        ),
    )


def unreadable_message(kind: str, notice_id: str) -> Message:
    """For a notice that this release cannot read, such as one that a newer release wrote."""
    return _message(
        f"A notice of kind {kind}",
        "info",
        f"Notice {notice_id} was written by another release of Neve and cannot be shown here.",
        "Next: `neve runs`",
    )


def trial_message(channel: str) -> Message:
    """For a person who checks that a channel works."""
    return _message("Test message", "info", f"Channel {channel} works.")


def is_single(kind: str) -> bool:
    """Whether each notice of the kind is a message of its own."""
    return kind not in (NoticeKind.FAILURE, NoticeKind.PAUSE, NoticeKind.RECOVERY)


def _row(content: JobFailure | TablePause | TableRecovery) -> str:
    until = f" until {moment(content.until_ms)}" if isinstance(content, TablePause) else ""
    reason = "" if isinstance(content, TableRecovery) else f": {content.reason}"
    return f"{content.operation} on {content.table}{until}{reason}"


def _message(subject: str, level: Literal["problem", "good", "info"], *lines: str) -> Message:
    kept = tuple(_line(line) for line in lines if line)
    return Message(subject=_subject(subject), level=level, parts=(MessagePart(lines=kept),))


def _subject(text: str) -> str:
    return f"[Neve] {_line(text, most=MAX_SUBJECT)}"


def _line(text: str, *, most: int = MAX_LINE) -> str:
    shown = printable(" ".join(text.split()))
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _argument(text: str) -> str:
    # A backquote would end the command early. Replaced before it is quoted, as it could end the quotes otherwise.
    return shlex.quote(text.replace("`", "?"))


def _with_command(text: str, command: str | None) -> str:
    return f"{text} `{command}`" if command and "`" not in command else ""


def _by(policy: str) -> str:
    return f" (policy {policy})" if policy else ""


def _in_a_row(failures: int) -> str:
    return f"It has failed {failures:,} times in a row." if failures > 1 else ""


def _next(failure: JobFailure) -> str:
    return _with_command("Next:", failure.command) or _inspect(failure.table, failure.run_id)


def _inspect(table: str, run_id: str | None) -> str:
    if run_id:
        return f"Next: `neve runs show {_argument(run_id)}`"
    return f"Next: `neve inspect {_argument(table)}`"


def _done(digest: DayDigest) -> list[str]:
    if not digest.done:
        return ["Nothing ran."]
    return [f"{total.operation}: {counted(total.runs, 'run')} on {counted(total.tables, 'table')}" for total in digest.done]


def _gained(digest: DayDigest) -> list[str]:
    gained = []
    if digest.files_fewer is not None:
        gained.append(f"{counted(abs(digest.files_fewer), 'file')} {'more' if digest.files_fewer < 0 else 'fewer'} in tables")
    if digest.bytes_freed:
        gained.append(f"{format_bytes(digest.bytes_freed)} of storage freed")
    return [", ".join(gained)] if gained else []


def _spent(digest: DayDigest) -> list[str]:
    spent = [
        None if digest.bytes_used is None else f"{format_bytes(digest.bytes_used)} read and written",
        None if digest.core_seconds is None else f"{format_seconds(digest.core_seconds)} of CPU time",
        None if digest.money is None else f"cost {digest.money:,.2f}",
    ]
    known = ", ".join(text for text in spent if text)
    unknown = f"unknown for {counted(digest.unmeasured, 'run')}" if digest.unmeasured else ""
    return [text for text in (known, unknown) if text]


def _lines(lines: Sequence[TableLine], count: int, text: Callable[[TableLine], str]) -> list[str]:
    listed = [text(line) for line in lines[:LISTED]]
    return listed + ([f"and {count - len(listed):,} more"] if count > len(listed) else [])


def _failed(line: TableLine) -> str:
    return f"{line.operation} on {line.table}: {line.text}"


def _paused(line: TableLine) -> str:
    until = "" if line.at_ms is None else f" until {moment(line.at_ms)}"
    return f"{line.operation} on {line.table}{until}" + (f": {line.text}" if line.text else "")


def _waiting(line: TableLine) -> str:
    after = "" if line.at_ms is None else f" after {moment(line.at_ms)}"
    return f"{line.operation} on {line.table}{after}" + (f": {line.text}" if line.text else "")
