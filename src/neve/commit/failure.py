"""An exception as records keep it: one line that says what happened, and the traceback for whoever fixes it. Pure.

Used wherever one part of the work may fail without stopping the rest: a group of a run, a step of `maintain`.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from neve.errors import NeveError

MAX_REASON = 500
MAX_TRACEBACK = 8_000
"""Characters that are kept. Of a traceback the end is kept, which has the innermost calls."""


@dataclass(frozen=True)
class Failure:
    """What went wrong, as text that every state store can hold."""

    reason: str
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Describes an exception of any type. Never raises, even if the exception cannot be printed."""
        try:
            said = str(error)
            whole = "".join(traceback.format_exception(error))
        except Exception:  # an exception whose own text cannot be made
            said, whole = "its message cannot be printed", f"{type(error).__qualname__}: its message cannot be printed"
        reason = said if isinstance(error, NeveError) else f"{type(error).__name__}: {said}".rstrip(": ")
        return cls(storable(" ".join(reason.split())[:MAX_REASON]), storable(whole[-MAX_TRACEBACK:]))


def storable(text: str) -> str:
    """The text with what a database refuses spelled out: lone surrogates and zero bytes."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an exception: PySpark's own cleaning up may call the JVM once more, fail, and hide it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None
