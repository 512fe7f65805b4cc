"""Logging of the command line: stderr, text or JSON lines. A library never configures handlers; this is not a library."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from neve.cli.options import LogFormat, LogLevel
from neve.render.commands import completed

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}

_CHATTY = ("py4j", "urllib3", "boto3", "botocore", "s3transfer", "pyiceberg")
"""Libraries that log an attempt that failed as an error, even if it is repeated or raised as well."""

_STORY = ("neve.cli", "neve.service")
"""What tells a story; the rest of the product tells details."""


class JsonLines(logging.Formatter):
    """One JSON object per line; whatever was given as `extra` becomes a key."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        line = {
            "time": datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": completed(record.getMessage()),
        }
        line |= {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """One line of text each, with commands that can be copied."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name that logging calls)
        """The line without what may follow it."""
        return completed(super().formatMessage(record))


class StoryLines(TextLines):
    """What is going on, line by line: the time and a sentence; only what needs attention also has its level."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name that logging calls)
        """The line without what may follow it."""
        line = super().formatMessage(record)
        return line if record.levelno == logging.INFO else f"{line[:9]}{record.levelname.lower()}: {line[9:]}"


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to what stderr is at that moment, so that lines pass above a progress bar and not through it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        """The current stderr."""
        return sys.stderr


def configure(level: LogLevel | None, form: LogFormat | None, *, debug: bool, story: bool = False) -> None:
    """Replaces the handlers of the process. Our level is the one asked for. A `story` is read by people as it is told.

    Other libraries show errors, from level `info` on warnings, and details only when debugging: their warnings are about
    attempts that are repeated, and a failure that matters reaches the user as our own error.
    """
    chosen = LogLevel.DEBUG if debug else level or LogLevel.WARNING
    handler = StderrHandler()
    text = TextLines("%(asctime)s %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    if story:
        text = StoryLines("%(asctime)s %(message)s", datefmt="%H:%M:%S")
    handler.setFormatter(JsonLines() if form is LogFormat.JSON else text)
    closely = chosen in (LogLevel.DEBUG, LogLevel.INFO) and not (story and chosen is LogLevel.INFO)
    libraries = logging.INFO if debug else logging.WARNING if closely else logging.ERROR
    logging.basicConfig(level=libraries, handlers=[handler], force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.NOTSET if closely else logging.CRITICAL)
    logging.getLogger("neve").setLevel("WARNING" if story and chosen is LogLevel.INFO else chosen.upper())
    for name in _STORY:
        logging.getLogger(name).setLevel(chosen.upper())
    logging.captureWarnings(capture=True)
    # Warnings of libraries are for developers: shown when somebody looks closely, as log lines.
    logging.getLogger("py.warnings").setLevel(logging.WARNING if closely else logging.ERROR)
