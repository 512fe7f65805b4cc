"""Why a Spark job failed, in one line. Called wherever a job of ours may fail."""

from __future__ import annotations

import re

_LONGEST = 500


def reason_of(error: Exception) -> str:
    """A failure in one line: of a job's, what the last task said before the JVM's stack."""
    told, is_from_jvm, _ = str(error).partition("\n\tat ")
    if is_from_jvm:
        lines = [line.strip() for line in told.splitlines() if line.strip() and line.strip() != "Driver stacktrace:"]
        return re.sub(r"^.*\(\S+ executor \S+\): ", "", lines[-1] if lines else type(error).__name__)[:_LONGEST]
    return " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
