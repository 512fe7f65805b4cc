"""Why a Spark job failed, in one line. Called wherever a job of ours may fail."""

from __future__ import annotations

import re

_LONGEST = 500
_BEFORE = re.compile(r"^.*\(\S+ executor \S+\): |^An error occurred while calling \S+\n: ", re.DOTALL)
"""What comes before the words of the last task, or else of the JVM."""


def reason_of(error: Exception) -> str:
    """A failure in one line: of a job's, what the last task said before the JVM's stack."""
    told, is_from_jvm, _ = str(error).partition("\n\tat ")
    if is_from_jvm:
        # Messages of Java may go on for lines with details; what Python raised is below its traceback.
        lines = [line.strip() for line in _BEFORE.sub("", told).splitlines() if line.strip()]
        chosen = lines[-1 if "Traceback" in lines[0] else 0] if lines else type(error).__name__
        return chosen[:_LONGEST]
    return " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
