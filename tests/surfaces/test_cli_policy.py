"""`neve policy`: files to policies in force, what they mean for tables, and the knobs that commands take from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neve.api import Neve
from neve.policy.changes import PolicyPlan
from neve.policy.document import PolicyDocument, TeamDocument
from neve.scheduling.observation import Inspected, Observation
from neve.service.policies import Policies
from neve.settings import load_settings
from neve.state import StateStore
from neve.state.policies import PolicyChange

Run = Callable[..., Any]

POLICIES = """
kind: team
name: data
limits: {per-day: {bytes: 2 TB}}
concurrency: 2
---
kind: policy
name: nightly
owner: data
tables: local.db.*
operations:
  - compact
  - name: expire
    options: {keep: 3}
triggers: {small-files: 5}
schedule: {windows: 22:00-06:00}
set: {max-files: 55, min-input-files: 4, target-file-size: auto}
---
kind: policy
name: floats
tables: local.db.floats
operations: [tags]
enabled: false
"""


@pytest.fixture
def policies(fresh_machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "110")
    file = fresh_machine / "policies.yaml"
    file.write_text(POLICIES)
    return file


@pytest.fixture
def applied(neve: Run, policies: Path, warehouse: Path) -> Run:
    """The same commands, with the policies in force and the warehouse open."""

    def run(*args: str) -> Any:
        return neve(*args, "--warehouse", str(warehouse))

    result = run("policy", "apply", "-f", policies.name, "--by", "ana")
    assert (result.exit_code, result.stderr) == (0, "")
    return run


def document(result: Any) -> Any:
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    found = json.loads(result.stdout)
    assert found.pop("schema_version") == 1
    return found


def test_a_dry_run_shows_the_same_changes_and_applies_nothing(neve: Run, policies: Path) -> None:
    first = neve("policy", "apply", "-f", policies.name, "--dry-run")
    assert first.exit_code == 0
    assert first.stdout.endswith("Would apply 3 changes: 3 added; 0 documents unchanged.\n")
    assert "+ policy nightly\n    + kind: policy\n    + name: nightly\n" in first.stdout
    assert neve("policy", "diff", "-f", policies.name).stdout == first.stdout
    assert neve("policy", "list").stdout.startswith("No policies yet.")
    done = neve("policy", "apply", "-f", policies.name)
    assert done.stdout == first.stdout.replace("Would apply", "Applied")


def test_a_change_is_shown_as_the_lines_that_differ(applied: Run, policies: Path) -> None:
    policies.write_text(POLICIES.replace("small-files: 5", "small-files: 9").replace("concurrency: 2\n", ""))
    result = applied("policy", "diff", "-f", policies.name)
    assert result.stdout == (
        "~ policy nightly (version 1)\n"
        "        - 22:00-06:00\n"
        "      triggers:\n"
        "    -   small-files: 5\n"
        "    +   small-files: 9\n"
        "      set:\n"
        "        max-files: 55\n"
        "~ team data (version 1)\n"
        "        per-day:\n"
        "          bytes: 2 TB\n"
        "    - concurrency: 2\n"
        "\n"
        "Would apply 2 changes: 2 changed; 1 document unchanged.\n"
    )
    [first, _] = document(applied("policy", "apply", "-f", policies.name, "--json"))["changes"]
    assert (first["kind"], first["name"], first["change"], first["version"]) == ("policy", "nightly", "changed", 1)
    assert (first["before"]["triggers"], first["after"]["triggers"]) == ({"small-files": 5}, {"small-files": 9})


def test_documents_that_the_files_lack_stay_unless_they_are_pruned(applied: Run, policies: Path) -> None:
    policies.write_text("kind: team\nname: data\nlimits: {per-day: {bytes: 2 TB}}\nconcurrency: 2\n")
    kept = applied("policy", "apply", "-f", policies.name)
    words = " ".join(kept.stdout.split())
    assert words.startswith(
        "Nothing to change: 1 document unchanged. In force and not in policies.yaml: policy floats, policy nightly. They stay; "
        "`neve policy apply -f policies.yaml --prune --warehouse "
    )
    gone = applied("policy", "apply", "-f", policies.name, "--prune")
    assert gone.stdout == (
        "- policy floats (version 1)\n- policy nightly (version 1)\n\nApplied 2 changes: 2 removed; 1 document unchanged.\n"
    )
    assert [row["name"] for row in document(applied("policy", "list", "--json"))["policies"]] == ["data"]


def test_files_without_any_document_remove_nothing(applied: Run, policies: Path) -> None:
    policies.write_text("# the generator failed\n")
    refused = applied("policy", "apply", "-f", policies.name, "--prune")
    assert refused.exit_code == 2
    assert "Cannot remove what policies.yaml does not have: it has no document at all" in refused.stderr
    assert len(document(applied("policy", "list", "--json"))["policies"]) == 3


def test_the_policy_of_the_service_s_own_tables_is_not_pruned(applied: Run, policies: Path, warehouse: Path) -> None:
    with Neve.open(load_settings(environ={}), warehouse=str(warehouse)) as opened, opened.connection.store() as store:
        history = PolicyDocument.model_validate({"name": "neve-history", "tables": "local.neve.*", "operations": ["compact"]})
        change = PolicyChange(kind="policy", name="neve-history", document=history)
        store.policies.apply([change], by="the service", now_ms=1)
    told = applied("policy", "apply", "-f", policies.name, "--prune").stdout
    assert told.startswith("Nothing to change: 3 documents unchanged.")
    assert "neve-history" not in told
    assert "neve-history" in applied("policy", "list").stdout


def test_an_owner_that_pruning_would_remove_is_refused(applied: Run, policies: Path) -> None:
    policies.write_text("kind: policy\nname: a\ntables: x\nowner: data\n")
    assert applied("policy", "diff", "-f", policies.name).exit_code == 0
    refused = applied("policy", "apply", "-f", policies.name, "--prune")
    assert refused.exit_code == 2
    assert "policies.yaml, line 4: owner: there is no team 'data' (known: none)" in refused.stderr


def test_files_that_are_wrong_are_refused_as_a_whole(neve: Run, policies: Path) -> None:
    policies.write_text(POLICIES.replace("small-files", "small-filse").replace("keep: 3", "kep: 3"))
    result = neve("policy", "apply", "-f", policies.name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "Error: Cannot use these policies: 2 problems\n"
        "  policies.yaml, line 14: operations[1].options.kep: unknown option, did you mean keep?\n"
        "  policies.yaml, line 15: triggers.small-filse: unknown key, did you mean small-files?\n"
        "Hint: The guide (docs/guide/policies.md) describes every key. Nothing was applied.\n"
    )
    assert neve("policy", "list").stdout.startswith("No policies yet.")
    told = json.loads(neve("policy", "apply", "-f", policies.name, "--json").stdout)["error"]
    assert told["code"] == "bad-settings"


def test_applying_an_export_changes_nothing(applied: Run, fresh_machine: Path) -> None:
    text = applied("policy", "export").stdout
    (fresh_machine / "export.yaml").write_text(text)
    result = applied("policy", "apply", "-f", "export.yaml", "--prune")
    assert result.stdout == "Nothing to change: 3 documents unchanged.\n"
    assert document(applied("policy", "export", "--json"))["documents"][0]["name"] == "floats"


def test_the_policies_in_force_are_listed_and_shown(applied: Run) -> None:
    lines = [line.split() for line in applied("policy", "list").stdout.splitlines()]
    assert lines[0] == ["kind", "name", "version", "changed", "owner", "operations", "tables"]
    assert [line[:3] for line in lines[1:]] == [["policy", "floats", "1"], ["policy", "nightly", "1"], ["team", "data", "1"]]
    assert lines[1][5:] == ["tags", "(off)", "local.db.floats"]
    shown = applied("policy", "show", "data")
    assert shown.stdout == "kind: team\nname: data\nlimits:\n  per-day:\n    bytes: 2 TB\nconcurrency: 2\n"
    refused = applied("policy", "show", "nighly")
    assert refused.exit_code == 2
    assert "Cannot show policy nighly: there is none of this name, did you mean nightly?" in refused.stderr


def test_the_log_has_who_changed_what_and_from_where(applied: Run, policies: Path) -> None:
    policies.write_text(POLICIES.replace("concurrency: 2", "concurrency: 3"))
    applied("policy", "apply", "-f", policies.name, "--by", "ben")
    applied("policy", "apply", "-f", policies.name, "--by", "nobody")
    versions = document(applied("policy", "log", "data", "--json"))["versions"]
    assert [(one["version"], one["changed_by"], one["source"], one["document"]["concurrency"]) for one in versions] == [
        (2, "ben", "policies.yaml", 3),
        (1, "ana", "policies.yaml", 2),
    ]
    assert len(applied("policy", "log").stdout.splitlines()) == 5
    assert len(applied("policy", "log", "--limit", "1").stdout.splitlines()) == 2


def test_without_policies_nothing_is_made_and_everything_says_so(neve: Run, fresh_machine: Path, warehouse: Path) -> None:
    assert neve("policy", "export").stdout == "# There are no policies.\n"
    assert neve("policy", "log").stdout == "No policy was ever applied.\n"
    assert "No policy matches." in neve("policy", "explain", "db.v1", "--warehouse", str(warehouse)).stdout
    assert "There are no policies." in neve("policy", "test", "--warehouse", str(warehouse)).stdout
    assert list((fresh_machine.parent / "home").rglob("state.db")) == []


def test_what_holds_for_a_table_is_explained_with_origins(applied: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEVE_POLICY__MIN_INPUT_FILES", "7")
    found = document(applied("policy", "explain", "db.floats", "--json"))
    assert (found["table"], found["owner"], found["policies"]) == ("local.db.floats", "data", ["floats", "nightly"])
    assert found["switched_off"] == {"tags": "floats"}
    knobs = {knob["key"]: (knob["value"], knob["origin"]) for knob in found["knobs"]}
    assert knobs["max-files"] == ("55", "policy nightly")
    assert knobs["min-input-files"] == ("7", "variable NEVE_POLICY__MIN_INPUT_FILES")
    assert knobs["target-file-size"] == ("64 MB", "policy nightly")
    operations = {one["operation"]: one for one in found["operations"]}
    assert set(operations) == {"compact", "expire"}
    assert operations["expire"]["rule"]["options"] == {"keep": 3}
    assert operations["compact"]["reason"].startswith("5 small files (5 are enough)")
    assert found["is_of_fleet"] is False

    lines = applied("policy", "explain", "db.v1").stdout.splitlines()
    assert lines[0] == "local.db.v1, owned by data"
    assert lines[1] == "policies, the most specific first: nightly"
    assert any(line.startswith("compact: ") and line.endswith("(policy nightly)") for line in lines)
    assert lines[-2:] == ["  team data: bytes 2 TB per day (UTC)", "  team data: 2 runs at a time"]


def test_an_old_version_is_shown_and_applied_again(applied: Run, policies: Path) -> None:
    first = policies.read_text()
    policies.write_text(first.replace("small-files: 5", "small-files: 9"))
    applied("policy", "apply", "-f", policies.name)
    assert "small-files: 9" in applied("policy", "show", "nightly").stdout
    old = applied("policy", "show", "nightly", "--version", "1").stdout
    assert "small-files: 5" in old
    policies.write_text(old)
    assert "    -   small-files: 9\n    +   small-files: 5\n" in applied("policy", "apply", "-f", policies.name).stdout
    assert applied("policy", "show", "nightly").stdout == old


def test_a_version_that_never_was_or_that_removed_the_policy_cannot_be_shown(applied: Run, policies: Path) -> None:
    policies.write_text("kind: team\nname: data\n")
    applied("policy", "apply", "-f", policies.name, "--prune")
    removed, never = (applied("policy", "show", "nightly", "--version", number) for number in ("2", "7"))
    assert (removed.exit_code, never.exit_code) == (2, 2)
    assert "Cannot show version 2 of policy nightly: it was removed in that version" in removed.stderr
    assert "Cannot show version 7 of policy nightly: there is no such version" in never.stderr


def test_values_of_a_preset_or_of_a_tighter_limit_are_explained_with_their_origins(
    neve: Run, warehouse: Path, tmp_path: Path
) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(
        "kind: policy\nname: streams\ntables: local.db.*\npreset: streaming\noperations: [compact]\n"
        "triggers: {commits: 100}\nlimits: {per-run: {bytes: 5 GB}}\n---\n"
        "kind: policy\nname: frugal\ntables: local.*\nlimits: {per-run: {money: 2}}\n",
        encoding="utf-8",
    )
    neve("policy", "apply", "-f", str(file), "--warehouse", str(warehouse))
    told = [
        " ".join(line.split()) for line in neve("policy", "explain", "db.v1", "--warehouse", str(warehouse)).stdout.splitlines()
    ]
    assert "triggers commits 100, since-last-run 24 h (preset streaming)" in told
    assert "per run bytes 5 GB, money 2.0 (policy frugal)" in told
    found = document(neve("policy", "explain", "db.v1", "--json", "--warehouse", str(warehouse)))
    [compact] = found["operations"]
    assert compact["rule"]["origins"] == {"triggers.since-last-run": "preset streaming", "per-run.money": "policy frugal"}


def test_a_table_that_is_not_there_cannot_be_explained(applied: Run) -> None:
    result = applied("policy", "explain", "db.nothing")
    assert result.exit_code == 2
    assert "local.db.nothing" in result.stderr


def test_a_test_shows_matches_and_the_runs_of_the_next_hours(applied: Run) -> None:
    found = document(applied("policy", "test", "--json"))
    assert found["matched"] == {"floats": 1, "nightly": 2}
    assert found["until_ms"] - found["now_ms"] == 24 * 3_600_000
    runs = {(one["table"], of["operation"]): len(of["runs"]) for one in found["tables"] for of in one["operations"]}
    assert runs == {
        ("local.db.floats", "compact"): 1,
        ("local.db.floats", "expire"): 1,
        ("local.db.v1", "compact"): 1,
        ("local.db.v1", "expire"): 1,
    }
    text = applied("policy", "test", "db.v1").stdout
    assert "policy nightly matches 1 table\n" in text
    assert "\n2 runs on 1 table, if nobody writes meanwhile" in text


def test_files_are_tested_as_if_they_were_applied(applied: Run, policies: Path) -> None:
    policies.write_text("kind: policy\nname: floats\ntables: local.db.floats\noperations: tags\ntriggers: {commits: 1}\n")
    found = document(applied("policy", "test", "-f", policies.name, "--json"))
    assert found["matched"] == {"floats": 1, "nightly": 2}
    [floats] = [one for one in found["tables"] if one["table"] == "local.db.floats"]
    assert [of["operation"] for of in floats["operations"]] == ["tags", "compact", "expire"]
    assert "enabled: false" in applied("policy", "show", "floats").stdout


def test_suggested_policies_can_be_applied_as_they_are(neve: Run, warehouse: Path, fresh_machine: Path) -> None:
    options = ("--warehouse", str(warehouse))
    result = neve("policy", "suggest", *options)
    assert result.exit_code == 0
    assert "# local.db.v1: " in result.stdout
    (fresh_machine / "suggested.yaml").write_text(result.stdout)
    applied = neve("policy", "apply", "-f", "suggested.yaml", *options)
    assert applied.exit_code == 0
    assert "Applied " in applied.stdout
    matched = document(neve("policy", "test", *options, "--json"))
    assert matched["without_policy"] == []
    found = document(neve("policy", "suggest", "db.v1", *options, "--json"))
    assert next(one["policy"]["tables"] for one in found["suggestions"]) == ["local.db.v1"]


def test_a_knob_of_a_policy_is_used_by_commands_and_shown_with_its_origin(
    applied: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settings(*args: str) -> dict[str, tuple[str, str]]:
        rows = document(applied("config", "show", "--json", *args))["settings"]
        return {row["key"]: (row["value"], row["origin"]) for row in rows}

    assert settings()["policy.max-files"][1] == "default"
    assert settings("--table", "db.v1")["policy.max-files"] == ("55", "policy nightly")
    assert settings("--table", "db.floats")["policy.max-files"] == ("55", "policy nightly")
    assert settings("--table", "db.v1", "--max-files", "66")["policy.max-files"] == ("66", "flag --max-files")
    monkeypatch.setenv("NEVE_POLICY__MAX_FILES", "77")
    assert settings("--table", "db.v1")["policy.max-files"] == ("77", "variable NEVE_POLICY__MAX_FILES")


@pytest.mark.parametrize("command", [("plan",), ("compact", "--dry-run")])
def test_commands_typed_by_hand_go_by_the_policy_unless_a_flag_or_a_variable_says_otherwise(
    applied: Run, policies: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    def codec(*args: str) -> tuple[str | None, list[tuple[str, str]]]:
        plan = document(applied(*command, "db.v1", "--force", "--json", *args))
        origins = [(one["option"], one["origin"]) for one in plan["options"]]
        return plan["policy"]["compression_codec"], [one for one in origins if one[0] == "compression-codec"]

    assert codec() == (None, [])
    policies.write_text(POLICIES.replace("max-files: 55", "compression-codec: gzip"))
    assert applied("policy", "apply", "-f", policies.name).exit_code == 0
    assert codec() == ("gzip", [("compression-codec", "policy nightly")])
    assert codec("--compression-codec", "zstd") == ("zstd", [("compression-codec", "flag --compression-codec")])
    monkeypatch.setenv("NEVE_POLICY__COMPRESSION_CODEC", "snappy")
    assert codec() == ("snappy", [("compression-codec", "variable NEVE_POLICY__COMPRESSION_CODEC")])
    assert document(applied("inspect", "db.v1", "--json"))["target_file_size_bytes"] == 64 * 1024**2


def test_a_table_is_taken_as_the_service_last_observed_it(applied: Run, fresh_machine: Path) -> None:
    found = document(applied("policy", "explain", "db.v1", "--json"))
    now_ms = found["now_ms"]
    inspected = Inspected(
        snapshot_id=1,
        inspected_ms=now_ms - 1000,
        health=3,
        data_files=999,
        data_bytes=1,
        small_files=999,
        small_bytes=1,
        delete_files=0,
    )
    seen = Observation(
        table="local.db.v1", uuid="u", metadata_location="gone", observed_ms=now_ms - 1000, inspected=inspected, properties={}
    )
    with StateStore.open(f"sqlite:///{fresh_machine.parent}/home/.local/share/neve/state.db") as store:
        store.fleet.record([seen])
        store.pauses.pause("u", "expire", until_ms=now_ms + 3_600_000, table="local.db.v1", by="ana")
    found = document(applied("policy", "explain", "db.v1", "--json"))
    operations = {one["operation"]: one for one in found["operations"]}
    assert (found["is_of_fleet"], found["observed_ms"]) == (True, now_ms - 1000)
    assert operations["compact"]["reason"].startswith("999 small files (5 are enough)")
    assert operations["expire"]["reason"].startswith("paused")
    assert operations["expire"]["next_ms"] == now_ms + 3_600_000
    forecast = document(applied("policy", "test", "--json"))
    assert [one["table"] for one in forecast["tables"]] == ["local.db.v1"]
    assert "as the service last observed it" in applied("policy", "explain", "db.v1").stdout


def test_nothing_is_applied_if_somebody_else_changed_a_document_meanwhile(
    applied: Run, policies: Path, fresh_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Policies.plan

    def interfered(self: Policies, path: str, *, prune: bool = False) -> PolicyPlan:
        found = plan(self, path, prune=prune)
        change = PolicyChange(kind="team", name="data", document=TeamDocument(name="data"), expected_version=1)
        with StateStore.open(f"sqlite:///{fresh_machine.parent}/home/.local/share/neve/state.db") as store:
            store.policies.apply([change], by="eve", now_ms=1)
        return found

    monkeypatch.setattr(Policies, "plan", interfered)
    policies.write_text(POLICIES.replace("concurrency: 2", "concurrency: 3").replace("max-files: 55", "max-files: 66"))
    result = applied("policy", "apply", "-f", policies.name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "team data is at version 2, not 1" in result.stderr
    assert "max-files: 55" in applied("policy", "show", "nightly").stdout
