"""Notices as messages: what each says, what to run next, and that no text of a table or an engine breaks them."""

from __future__ import annotations

import pytest

from neve.scheduling.notice import DayDigest, JobFailure, OperationTotal, TableLine, TablePause, TableRecovery
from neve.service.notify.messages import LISTED, MAX_LINE, MAX_SUBJECT, Message, message_about, summary_message

AT = 1_790_000_000_000
HOUR = 3_600_000


def failure(table: str = "lake.db.events", **values: object) -> JobFailure:
    return JobFailure.model_validate(
        {"table": table, "operation": "compact", "reason": "storage answered 503", "at_ms": AT} | values
    )


def pause(table: str = "lake.db.events", **values: object) -> TablePause:
    known = {"table": table, "operation": "compact", "reason": "storage answered 503", "at_ms": AT}
    return TablePause.model_validate(known | {"failures": 5, "until_ms": AT + 2 * HOUR} | values)


def lines(message: Message) -> list[str]:
    return [line for part in message.parts for line in part.lines]


def test_a_failure_says_what_why_when_again_and_what_to_run() -> None:
    message = message_about(failure(policy="nightly", run_id="3f9c", next_ms=AT + HOUR))
    assert (message.subject, message.level) == ("[Neve] compact failed on lake.db.events", "problem")
    assert lines(message) == [
        "compact failed on lake.db.events at 2026-09-21 14:13:20 UTC (policy nightly).",
        "Reason: storage answered 503",
        "Neve tries it again after 2026-09-21 15:13:20 UTC.",
        "Next: `neve runs show 3f9c`",
    ]


def test_a_failure_without_a_run_leads_to_the_table_and_counts_those_before() -> None:
    found = lines(message_about(failure(failures=3)))
    assert found[2:] == [
        "It has failed 3 times in a row.",
        "Neve tries it again when it is due.",
        "Next: `neve inspect lake.db.events`",
    ]


def test_a_pause_says_how_long_and_how_to_end_it() -> None:
    message = message_about(pause())
    assert message.subject == "[Neve] compact is paused on lake.db.events for 2 h"
    assert lines(message) == [
        "compact failed 5 times in a row on lake.db.events.",
        "It is paused until 2026-09-21 16:13:20 UTC (2 h).",
        "Last reason: storage answered 503",
        "The pause ends by itself. Then Neve tries once more.",
        "To end it earlier: `neve jobs unpause lake.db.events compact`",
        "Next: `neve inspect lake.db.events`",
    ]


def test_a_recovery_is_good_news() -> None:
    message = message_about(TableRecovery(table="a.b.c", operation="expire", failures=4, was_paused=True, at_ms=AT))
    assert (message.subject, message.level) == ("[Neve] expire works again on a.b.c", "good")
    assert lines(message) == ["expire succeeded on a.b.c at 2026-09-21 14:13:20 UTC, after 4 failures. The pause is over."]


@pytest.mark.parametrize("table", ["db.x; rm -rf ~", "db.$(id)", "db.it's", "db.`id`", "db.a\nb"])
def test_a_command_names_an_odd_table_as_one_quoted_argument(table: str) -> None:
    (command,) = (line for line in lines(message_about(failure(table))) if line.startswith("Next: "))
    quoted = command.removeprefix("Next: `neve inspect ").removesuffix("`")
    assert quoted.startswith("'")
    assert "`" not in quoted
    assert "\n" not in quoted


def test_texts_of_tables_and_engines_are_one_harmless_line() -> None:
    message = message_about(failure("lake.db.e\nvents", reason="first\r\n\tsecond \x1b[31m\u202e " + "x" * 5000))
    assert all(line.isprintable() and len(line) <= MAX_LINE for line in lines(message))
    assert lines(message)[1].startswith("Reason: first second \\x1b[31m\\u202e xxx")
    long = message_about(failure("t" * 1000))
    assert len(long.subject) <= len("[Neve] ") + MAX_SUBJECT


def test_many_failures_are_one_message_that_lists_the_first() -> None:
    message = summary_message([failure(f"lake.db.t{number}") for number in range(LISTED + 5)])
    assert (message.subject, message.level) == ("[Neve] Maintenance failed on 25 tables", "problem")
    found = lines(message)
    assert found[0] == "compact on lake.db.t0: storage answered 503"
    assert found[LISTED:] == ["and 5 more", "Next: `neve jobs list --state failed`"]


def test_many_pauses_say_until_when_and_many_recoveries_ask_for_nothing() -> None:
    assert lines(summary_message([pause("a.b.c"), pause("a.b.d")]))[0] == (
        "compact on a.b.c until 2026-09-21 16:13:20 UTC: storage answered 503"
    )
    recovered = [TableRecovery(table=name, operation="compact", failures=1, at_ms=AT) for name in ("a.b.c", "a.b.c")]
    message = summary_message(recovered)
    assert (message.subject, message.level) == ("[Neve] Maintenance works again on 1 table", "good")
    assert lines(message) == ["compact on a.b.c", "compact on a.b.c"]


def test_a_digest_says_what_was_done_gained_and_spent_and_what_is_open() -> None:
    digest = DayDigest(
        owner="sales",
        day="2026-09-21",
        from_ms=AT - 24 * HOUR,
        until_ms=AT,
        done=(OperationTotal(operation="compact", runs=12, tables=7), OperationTotal(operation="expire", runs=1, tables=1)),
        files_fewer=12_345,
        bytes_freed=3 * 2**30,
        bytes_used=5 * 2**30,
        core_seconds=7_200,
        money=1.5,
        unmeasured=2,
        failed=(TableLine(table="a.b.c", operation="ttl", text="no column"),),
        failed_count=1,
        paused=(TableLine(table="a.b.d", operation="expire", text="503", at_ms=AT + HOUR),),
        paused_count=1,
        waiting=(TableLine(table="a.b.e", operation="compact", text="212 small files"),),
        waiting_count=31,
    )
    message = message_about(digest)
    assert message.subject == "[Neve] Maintenance digest of 2026-09-21 for sales: 13 runs, 1 failed, 1 paused"
    assert message.level == "problem"
    assert {part.title: part.lines for part in message.parts} == {
        "": ("2026-09-20 14:13:20 UTC to 2026-09-21 14:13:20 UTC",),
        "Done": ("compact: 12 runs on 7 tables", "expire: 1 run on 1 table"),
        "Gained": ("12,345 files fewer in tables, 3 GB of storage freed",),
        "Spent": ("5 GB read and written, 2 h of CPU time, cost 1.50", "unknown for 2 runs"),
        "Failed (1)": ("ttl on a.b.c: no column",),
        "Paused (1)": ("expire on a.b.d until 2026-09-21 15:13:20 UTC: 503",),
        "Next (31 waiting)": ("compact on a.b.e: 212 small files", "and 30 more"),
    }


def test_a_quiet_digest_has_no_empty_parts() -> None:
    digest = DayDigest(owner="", day="2026-09-21", from_ms=0, until_ms=1, done=(), files_fewer=-2, bytes_freed=0)
    message = message_about(digest)
    assert message.level == "info"
    assert [part.title for part in message.parts] == ["", "Done", "Gained"]
    assert lines(message)[1:] == ["Nothing ran.", "2 files more in tables"]
