"""What goes to stderr while a command works: progress and log lines."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings

import pytest
from rich.console import Console

from neve.cli.logs import configure
from neve.cli.options import LogFormat, LogLevel
from neve.cli.progress import PlainLines, follow
from neve.table.units import MIB


def test_plain_progress_is_silent_at_first_and_then_says_a_line_now_and_then() -> None:
    seconds = [0.0]
    out = io.StringIO()
    progress = PlainLines(Console(file=out, width=80), now=lambda: seconds[0])
    for at, done in ((0.5, 1), (4.9, 2), (5.1, 3_000), (9.0, 4_000), (10.2, 5_000)):
        seconds[0] = at
        progress("reading manifests", done, 10_000)
    seconds[0] = 16.0
    progress("listing", 7, None)
    assert out.getvalue() == "reading manifests: 3,000 of 10,000\nreading manifests: 5,000 of 10,000\nlisting: 7\n"


def test_bytes_are_told_with_their_rate_and_the_time_left() -> None:
    seconds = [0.0]
    out = io.StringIO()
    progress = PlainLines(Console(file=out, width=80), now=lambda: seconds[0])
    for at, done in ((0.0, 0), (6.0, 60 * MIB), (12.0, 240 * MIB), (18.0, 300 * MIB)):
        seconds[0] = at
        progress("execute", done, 300 * MIB, "bytes")
    assert out.getvalue().splitlines() == [
        "execute: 60 MB of 300 MB, 10 MB/s, 24 s left",
        "execute: 240 MB of 300 MB, 20 MB/s, 3 s left",
        "execute: 300 MB of 300 MB, 16.7 MB/s",
    ]


def test_a_terminal_gets_a_live_line_that_goes_away() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80)
    with follow(console, quiet=True) as progress:
        progress("reading manifests", 1, 10)
        progress("reading files", 2, None)
    assert out.getvalue().endswith("\x1b[2K")


def test_beside_json_nothing_is_said_off_a_terminal() -> None:
    out = io.StringIO()
    with follow(Console(file=out), quiet=True) as progress:
        progress("reading manifests", 1, 10)
    assert out.getvalue() == ""


def test_json_lines_carry_what_the_caller_gave(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogLevel.INFO, LogFormat.JSON, debug=False)
    logging.getLogger("neve.operations").info("inspected %s", "db.events", extra={"run": "r1", "stage": "inspect"})
    out, err = capsys.readouterr()
    line = json.loads(err)
    assert out == ""
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "neve.operations",
        "message": "inspected db.events",
        "run": "r1",
        "stage": "inspect",
    }


def test_a_json_line_of_an_exception_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure(None, LogFormat.JSON, debug=False)
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("neve").exception("failed")
    assert "ValueError: no" in json.loads(capsys.readouterr().err)["exception"]


def test_text_lines_have_time_level_and_place(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogLevel.INFO, LogFormat.TEXT, debug=False)
    logging.getLogger("neve.operations").info("inspected %s", "db.events")
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO neve\.operations: inspected db\.events\n", capsys.readouterr().err)


def test_by_default_only_warnings_are_told_and_other_libraries_never_say_more(capsys: pytest.CaptureFixture[str]) -> None:
    configure(None, None, debug=False)
    logging.getLogger("neve.operations").info("quiet")
    logging.getLogger("pyiceberg").info("quiet")
    assert capsys.readouterr().err == ""
    configure(LogLevel.DEBUG, None, debug=False)
    logging.getLogger("pyiceberg").info("quiet")
    logging.getLogger("neve.operations").debug("told")
    assert capsys.readouterr().err.endswith("DEBUG neve.operations: told\n")


def test_warnings_of_libraries_are_for_those_who_look_closely(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        configure(None, None, debug=False)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        assert capsys.readouterr().err == ""
        configure(LogLevel.INFO, None, debug=False)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        assert "DeprecationWarning: old" in capsys.readouterr().err
