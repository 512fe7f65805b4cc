"""`neve doctor` reports every fault as a check of its own and goes on: it never ends at the first one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


SETTINGS = """
default-catalog: lake
catalogs:
  lake:
    type: sql
    warehouse: {warehouse}
    storage:
      s3:
        access-key-id: ${{env:LAKE_KEY}}
        secret-access-key: ${{file:{warehouse}/no-secret}}
state:
  url: sqlite:///{warehouse}/state.db
"""


def checks_of(result: Any) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in json.loads(result.stdout)["checks"]}


def test_an_unset_secret_is_one_failed_check_and_the_others_go_on(
    neve: Run, fresh_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAKE_KEY", raising=False)
    (fresh_machine / "neve.yaml").write_text(SETTINGS.format(warehouse=tmp_path))
    result = neve("doctor", "--json")
    checks = checks_of(result)
    assert result.exit_code == 1
    assert checks["settings"] == {
        "name": "settings",
        "status": "fail",
        "detail": "catalogs.lake.storage.s3.access-key-id: cannot resolve ${env:LAKE_KEY}: the variable is not set; "
        f"catalogs.lake.storage.s3.secret-access-key: cannot resolve ${{file:{tmp_path}/no-secret}}: No such file or directory",
        "fix": "Set LAKE_KEY in the environment of this process. The file must exist and be readable by this user.",
    }
    assert [name for name, check in checks.items() if check["status"] == "fail"] == ["settings"]
    assert checks["catalog"]["status"] == checks["warehouse"]["status"] == "skip"
    assert checks["catalog"]["detail"] == "not checked: Cannot resolve ${env:LAKE_KEY}: the variable is not set"
    assert checks["state store"]["status"] == checks["python"]["status"] == checks["disk for caches"]["status"] == "ok"


@pytest.mark.parametrize(
    "written",
    [
        "state:\n  url: postgresql://neve:${env:PASSWORD_UNSET}@db.example.com/neve\n",
        "spark:\n  conf:\n    spark.ssl.keyPassword: ${env:PASSWORD_UNSET}\n",
        "default-catalog: a\ncatalogs:\n  a:\n    type: rest\n    uri: ${env:PASSWORD_UNSET}\n",
        "default-catalog: a\ncatalogs:\n  a:\n    type: hadoop\n    warehouse: s3://${env:PASSWORD_UNSET}/wh\n",
        "catalogs:\n  a:\n    type: rest\n    uri: http://127.0.0.1:9\n    token: ${env:PASSWORD_UNSET}\n",
    ],
)
def test_an_unset_variable_anywhere_in_the_settings_is_named(neve: Run, fresh_machine: Path, written: str) -> None:
    (fresh_machine / "neve.yaml").write_text(written)
    for arguments in ((), ("--spark",)):
        checks = checks_of(neve("doctor", "--json", *arguments))
        assert "PASSWORD_UNSET" in checks["settings"]["detail"]
        assert [name for name, check in checks.items() if check["status"] == "fail"] == ["settings"]
        assert checks["disk for caches"]["status"] == "ok"


def test_settings_that_cannot_be_read_are_one_failed_check(neve: Run, fresh_machine: Path) -> None:
    (fresh_machine / "neve.yaml").write_text("catalog: [")
    result = neve("doctor", "--json")
    checks = checks_of(result)
    assert result.exit_code == 1
    assert checks["settings"]["status"] == "fail"
    assert "neve.yaml" in checks["settings"]["detail"]
    assert checks["python"]["status"] == "ok"
    assert checks["catalog"]["detail"] == "not checked, since the settings cannot be used"
    assert checks["state store"]["status"] == "skip"


def test_a_warehouse_that_is_not_there_is_one_failed_check(neve: Run) -> None:
    result = neve("doctor", "--json", "--warehouse", "nowhere")
    checks = checks_of(result)
    assert result.exit_code == 1
    assert checks["settings"]["status"] == "fail"
    assert "nowhere" in checks["settings"]["detail"]
    assert checks["python"]["status"] == "ok"


def test_settings_without_faults_are_told_by_where_they_come_from(neve: Run, fresh_machine: Path, tmp_path: Path) -> None:
    without = "\n".join(SETTINGS.format(warehouse=tmp_path).splitlines()[:6]) + f"\nstate:\n  url: sqlite:///{tmp_path}/s.db\n"
    (fresh_machine / "neve.yaml").write_text(without)
    checks = checks_of(neve("doctor", "--json"))
    assert (checks["settings"]["status"], checks["settings"]["detail"]) == ("ok", "every reference to a secret resolves")
    assert checks["catalog"]["status"] == "ok"
