"""Short lists as text: rankings and checks."""

from __future__ import annotations

import io
from dataclasses import dataclass

from rich.console import Console, RenderableType

from neve.render.listings import checks_text, ranking_text
from tests.builders.inspections import make_healthy, make_inspection, make_shallow


@dataclass(frozen=True)
class Check:
    name: str
    status: str
    detail: str
    fix: str | None = None


def shown(content: RenderableType) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=80, highlight=False).print(content)
    return out.getvalue().splitlines()


def test_a_ranking_has_the_sickest_first_and_blanks_for_what_is_unknown() -> None:
    shallow = make_shallow().model_copy(update={"table": "local.db.shallow"})
    assert [line.split() for line in shown(ranking_text([make_healthy(), shallow, make_inspection()]))] == [
        ["table", "health", "files", "average", "deletes", "workload"],
        ["local.db.events", "50", "████────", "1,204", "3.75", "MB", "324", "cdc"],
        ["local.db.shallow", "50", "████────", "1,204", "3.75", "MB", "cdc"],
        ["local.db.clean", "100", "████████", "1,204", "3.75", "MB", "0", "cdc"],
    ]


def test_a_failed_check_comes_with_its_cure_and_a_count() -> None:
    checks = [
        Check("python", "ok", "3.11.9", "not shown"),
        Check("java", "fail", "none found", "Install the spark extra."),
        Check("clock", "warn", "7 s ahead", "Run NTP."),
        Check("session", "skip", "not started", "not shown"),
    ]
    assert shown(checks_text(checks)) == [
        "✓  python   3.11.9",
        "✗  java     none found",
        "            → Install the spark extra.",
        "!  clock    7 s ahead",
        "            → Run NTP.",
        "-  session  not started",
        "",
        "1 check of 4 failed.",
    ]


def test_warnings_alone_leave_it_usable() -> None:
    assert shown(checks_text([Check("clock", "warn", "7 s ahead")]))[-1] == "Usable, with 1 warning."


def test_no_complaint_is_said_aloud() -> None:
    assert shown(checks_text([Check("python", "ok", "3.11.9")]))[-1] == "All is well."
