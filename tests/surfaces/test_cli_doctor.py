"""`neve doctor`: the exit code follows the checks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from neve.api import Neve
from neve.doctor import DoctorCheck, Status

PYTHON = DoctorCheck("python", Status.OK, "3.11.9")
CLOCK = DoctorCheck("clock", Status.WARN, "7 s ahead", "Run NTP.")
JAVA = DoctorCheck("java", Status.FAIL, "none found", "Install the spark extra.")


@pytest.mark.parametrize(("checks", "exit_code"), [((PYTHON, CLOCK), 0), ((PYTHON, JAVA), 1)])
def test_only_a_failed_check_is_a_failure(
    neve: Any, monkeypatch: pytest.MonkeyPatch, checks: tuple[DoctorCheck, ...], exit_code: int
) -> None:
    monkeypatch.setattr(Neve, "doctor", lambda _, *, start_spark: checks if not start_spark else ())
    result = neve("doctor", "--json")
    assert result.exit_code == exit_code
    document = json.loads(result.stdout)
    assert document["ok"] is (exit_code == 0)
    assert document["checks"][0] == {"name": "python", "status": "ok", "detail": "3.11.9", "fix": None}


def test_spark_is_started_only_on_request(neve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(Neve, "doctor", lambda _, *, start_spark: asked.append(start_spark) or (PYTHON,))
    assert neve("doctor").stdout == "✓  python  3.11.9\n\nAll is well.\n"
    neve("doctor", "--spark")
    assert asked == [False, True]
